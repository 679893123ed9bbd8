//! The golden models on the GPU of this machine, if it has one.

use std::time::Duration;

use rf_engine::{EngineOptions, Outputs, SequenceInput, Session};
use rf_graph::tensor::TensorBackend;
use rf_graph::{Backend, Layout};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_testing::engine::{cpu, demo};
use rf_testing::{
    GoldenModel, HybridBackend, StubBackend, demo_model, golden_folder, golden_models,
    golden_models_in, shared, skip,
};

use crate::models::{
    F16_DEVIATION, TinyModel, all_logits, argmax, assert_lost_in_the_second_step, demo_folder,
    find, greedy, ids, json, load, logits_by_token,
};
use crate::{adapters, larger_models, media, mtp};

/// The GPU, if this machine has one.
fn gpu() -> Option<GpuBackend> {
    match GpuBackend::new(GpuOptions::default()) {
        Ok(backend) => {
            eprintln!("{}", backend.description());
            Some(backend)
        }
        Err(error) => {
            skip!("{error}");
            None
        }
    }
}

/// Two GPUs, if this machine has them.
fn two_gpus() -> Option<[GpuBackend; 2]> {
    let first = gpu()?;
    match GpuBackend::new(GpuOptions::default().with_ordinal(1)) {
        Ok(second) => Some([first, second]),
        Err(error) => {
            skip!("one device ({error})");
            None
        }
    }
}

/// Both round activations to 8 bits in ways of their own, so two tokens that are about as likely
/// may change places.
#[test]
fn the_demo_model_writes_on_the_gpu_what_the_cpu_expects() {
    const SLACK: f32 = 0.25;
    let Some(gpu) = gpu() else { return };
    let cpu = cpu(2);
    let golden = json(&golden_folder().join("logits-stories-7m.json"));
    for file in golden["models"].as_object().unwrap().keys() {
        let engine = |backend| load(&demo_folder().join(file), backend, EngineOptions::default());
        let prompt = ids(&golden["prompts"]["story"]["ids"]);
        let written = greedy(&mut engine(&gpu), &prompt, 16);
        let logits = all_logits(&mut engine(&cpu), &[&prompt[..], &written].concat());
        let vocab_size = logits.len() / (prompt.len() + written.len());
        let rows = logits.chunks(vocab_size).skip(prompt.len() - 1);
        assert_eq!(written.len(), 16, "{file}");
        for (number, (id, row)) in written.iter().zip(rows).enumerate() {
            let below = row[argmax(row)] - row[*id as usize];
            assert!(
                below < SLACK,
                "{file}: token {number} of {written:?} is {below} below the best"
            );
        }
    }
}

/// A dense model, one whose later layers read the caches of earlier ones, one with latents.
#[test]
fn golden_models_match_on_two_gpus() {
    let Some([first, second]) = two_gpus() else { return };
    let both = HybridBackend::dealt(&[(&first, 1.0), (&second, 1.0)]).unwrap();
    let names = ["smollm3", "gemma4_e4b", "deepseek2_groups"];
    check_golden_models(&both, golden_models(), |name| names.contains(&name));
}

/// The devices compute every layer together.
fn as_one(gpus: &[GpuBackend]) -> TensorBackend<'_> {
    let parts: Vec<(&dyn Backend, f32)> = gpus.iter().map(|gpu| (gpu as _, 1.0)).collect();
    TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(10))
}

#[test]
fn golden_models_of_every_architecture_match_on_two_gpus_together() {
    let Some(gpus) = two_gpus() else { return };
    check_golden_models(&as_one(&gpus), golden_models(), |_| true);
}

/// A dense model, a mixture of experts with a block for further tokens, one whose later layers read
/// the caches of earlier ones, a recurrent one, one with latents.
#[test]
fn golden_models_match_on_two_gpus_together() {
    let Some(gpus) = two_gpus() else { return };
    let names = ["smollm3", "glm4moe", "gemma4_e4b", "mamba2", "deepseek2_groups"];
    check_golden_models(&as_one(&gpus), golden_models(), |name| names.contains(&name));
}

/// Chunks of more than 64 tokens are queued, and their sums are large enough for device memory.
/// Single tokens are padded or kept.
#[test]
fn two_gpus_together_give_the_same_bits_each_time_and_what_one_gives() {
    let Some(gpus) = two_gpus() else { return };
    let backend = as_one(&gpus);
    let options = EngineOptions::default()
        .with_context_tokens(Some(256))
        .with_batch_tokens(100)
        .with_kv_tokens(Some(3 * 256))
        .with_sequences(3);
    let run = |backend: &dyn Backend, is_profiled: bool| {
        let need = demo().memory_need(backend, &options).unwrap();
        let mut engine = load(&demo_model(), backend, options);
        assert_eq!(engine.memory(), need.held);
        assert!(!is_profiled || engine.profile(true));
        let prompt: Vec<u32> = (0..140).map(|i| (3 + 31 * i * i + 7 * i) % 500).collect();
        let (mut a, mut b, mut c) = (engine.session(), engine.session(), engine.session());
        let mut logits = Vec::new();
        for session in [&mut a, &mut b, &mut c] {
            let feed = SequenceInput { session, ids: &prompt, outputs: Outputs::Last };
            logits.extend(engine.forward(&mut [feed]).unwrap());
        }
        for step in 0..4 {
            let ids = [[step], [step + 1], [step + 2]];
            let sessions = [&mut a, &mut b, &mut c].into_iter();
            let feeds = sessions.zip(&ids);
            let feeds =
                feeds.map(|(session, ids)| SequenceInput { session, ids, outputs: Outputs::All });
            logits.extend(engine.forward(&mut feeds.collect::<Vec<_>>()).unwrap());
        }
        let sums = engine
            .summaries()
            .iter()
            .map(|part| part.ops.get("all_reduce").map_or(0, |op| op.count))
            .collect();
        (logits, sums)
    };
    let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let (expected, _): (_, Vec<u64>) = run(&backend, false);
    assert!(bits(&run(&backend, false).0) == bits(&expected));
    let (profiled, sums) = run(&backend, true);
    assert!(bits(&profiled) == bits(&expected));
    assert!(sums.len() == 2 && sums[0] == sums[1] && sums[0] > 0, "{sums:?}");

    let (alone, _) = run(&gpus[0], false);
    let square = |x: f32| f64::from(x) * f64::from(x);
    let distance: f64 = alone.iter().zip(&expected).map(|(a, b)| square(a - b)).sum();
    let relative = distance / alone.iter().copied().map(square).sum::<f64>();
    eprintln!("two devices: {relative:.1e}");
    assert!(alone.len() == expected.len() && relative < 1e-3, "{relative}");
}

#[test]
fn a_gpu_that_fails_ends_the_step_of_both() {
    let Some([first, second]) = two_gpus() else { return };
    let second = StubBackend::new(second, "GPU", u64::MAX).with_steps(1);
    let parts: [(&dyn Backend, f32); 2] = [(&first, 1.0), (&second, 1.0)];
    let backend = TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(10));
    let engine = load(&demo_model(), &backend, EngineOptions::default());
    assert_lost_in_the_second_step(engine);
}

/// The CPU waits for the values of the GPU, but not the GPU for those of the CPU.
#[test]
fn a_sum_over_a_gpu_and_a_cpu_is_refused() {
    let Some(gpu) = gpu() else { return };
    let cpu = cpu(1);
    let parts: [(&dyn Backend, f32); 2] = [(&gpu, 1.0), (&cpu, 1.0)];
    let backend = TensorBackend::new(&parts).unwrap().with_limit(Duration::from_mins(10));
    let mut engine = load(&demo_model(), &backend, EngineOptions::default());
    let mut session = engine.session();
    let feed = SequenceInput { session: &mut session, ids: &[1], outputs: Outputs::Last };
    let error = engine.forward(&mut [feed]).unwrap_err().to_string();
    assert!(error.contains("devices of different kinds"), "{error}");
}

/// Chunks of more than 64 tokens are queued on all devices at once.
#[test]
fn long_prompts_on_two_gpus_give_what_one_gives() {
    const CHUNK: usize = 65;
    let Some([first, second]) = two_gpus() else { return };
    let options = EngineOptions::default()
        .with_context_tokens(Some(4 * CHUNK))
        .with_batch_tokens(CHUNK)
        .with_kv_tokens(Some(8 * CHUNK))
        .with_sequences(2);
    let prompt = |seed: usize, len: usize| -> Vec<u32> {
        (0..len).map(|i| ((seed + 31 * i * i + 7 * i) % 500) as u32).collect()
    };
    let logits = |backend: &dyn Backend, is_profiled: bool| {
        let mut engine = load(&demo_model(), backend, options);
        assert!(!is_profiled || engine.profile(true));
        let (mut a, mut b) = (engine.session(), engine.session());
        let (long, other, rest) = (prompt(3, 4 * CHUNK - 2), prompt(5, 2 * CHUNK), [7, 8]);
        let mut feed = |session: &mut Session, ids: &[u32], outputs| {
            engine.forward(&mut [SequenceInput { session, ids, outputs }]).unwrap()
        };
        // Without outputs, so that the next prompt follows in the same queue.
        feed(&mut a, &long, Outputs::None);
        let of_other = feed(&mut b, &other, Outputs::Tail(3));
        [of_other, feed(&mut a, &rest, Outputs::All)].concat()
    };
    let expected = logits(&first, false);
    let two: [(&dyn Backend, f32); 2] = [(&first, 1.0), (&second, 1.0)];
    let three: [(&dyn Backend, f32); 3] = [(&second, 1.0), (&first, 1.0), (&second, 1.0)];
    for parts in [&two[..], &three] {
        let dealt = HybridBackend::dealt(parts).unwrap();
        let queued = logits(&dealt, false);
        // While ops are timed, nothing is queued.
        assert!(queued == logits(&dealt, true), "{} devices", parts.len());
        // The ops at a cut are not fused.
        let square = |x: f32| f64::from(x) * f64::from(x);
        let distance: f64 = queued.iter().zip(&expected).map(|(a, b)| square(a - b)).sum();
        let relative = distance / expected.iter().copied().map(square).sum::<f64>();
        eprintln!("{} devices: {relative:.1e}", parts.len());
        assert!(queued.len() == expected.len() && relative < 1e-5, "{relative}");
    }
}

#[test]
fn golden_models_match_on_the_gpu() {
    let Some(backend) = gpu() else { return };
    check_golden_models(&backend, golden_models(), |_| true);
}

#[test]
fn golden_adapters_match_on_the_gpu() {
    let Some(backend) = gpu() else { return };
    let rounding = if backend.rounds_operands_to_f16() { F16_DEVIATION } else { 0.0 };
    adapters::check(&backend, "GPU", rounding);
}

#[test]
fn logits_after_pictures_match_on_the_gpu() {
    let Some(backend) = gpu() else { return };
    let rounding = if backend.rounds_operands_to_f16() { F16_DEVIATION } else { 0.0 };
    media::check_rows(&[&backend], &[64, 5], rounding);
    media::check_prompts(&backend, Some(rounding));
}

/// Every layer but the first ones is on the GPU, with its part of the cache.
#[test]
fn a_model_with_latents_is_split_between_cpu_and_gpu() {
    let Some(gpu) = gpu() else { return };
    let cpu = cpu(2);
    let model = find("deepseek2_groups");
    for layers in 1..3 {
        let layout = Layout { layers, expert_layers: 0 };
        let backend = HybridBackend::new(&cpu, &gpu, layout);
        let mut engine = model.load(&backend);
        let logits = all_logits(&mut engine, &model.ids());
        let wrong = model.deviations_from_f16(&logits, "both", gpu.rounds_operands_to_f16());
        assert!(wrong.is_empty(), "{layers} layers on the CPU: {wrong:?}");
    }
}

/// The first layers, or the experts of the last ones, are on the CPU.
#[test]
fn a_model_that_drafts_with_its_own_block_is_split_between_cpu_and_gpu() {
    let Some(gpu) = gpu() else { return };
    let cpu = cpu(2);
    let model = find("glm4moe");
    for (layers, expert_layers) in [(2, 0), (0, 3)] {
        let layout = Layout { layers, expert_layers };
        mtp::check_greedy(&model, &HybridBackend::new(&cpu, &gpu, layout));
    }
}

#[test]
fn shared_models_draft_with_their_own_blocks_on_the_gpu() {
    let (Some(backend), Some(folder)) = (gpu(), shared("golden/arch")) else { return };
    let models = golden_models_in(&folder).into_iter();
    let with_block: Vec<_> = models.filter(|model| model.mtp_logits().is_some()).collect();
    assert_eq!(with_block.len(), 2);
    for model in with_block.into_iter().map(TinyModel) {
        mtp::check(&model, &backend, "the GPU");
        mtp::check_greedy(&model, &backend);
    }
}

/// Separate from the models in the repository: on an emulated card all of them take minutes.
#[test]
fn shared_golden_models_match_on_the_gpu() {
    let Some(backend) = gpu() else { return };
    for models in larger_models() {
        check_golden_models(&backend, models, |_| true);
    }
}

/// The models that the GPU backend refuses, and for what it has no kernel.
const WITHOUT_KERNELS: [(&str, &str); 6] = [
    ("bloom", "ALiBi"),
    ("gemma_embedding", "in both directions"),
    ("jina_bert_v2", "ALiBi"),
    ("modern_bert", "in both directions"),
    ("modern_bert_rank", "in both directions"),
    ("mpt", "ALiBi"),
];

fn check_golden_models(
    backend: &dyn Backend,
    models: Vec<GoldenModel>,
    selects: impl Fn(&str) -> bool,
) {
    let mut wrong = Vec::new();
    for model in models.into_iter().map(TinyModel) {
        if !selects(model.name()) {
            continue;
        }
        if let Some((name, what)) = WITHOUT_KERNELS.iter().find(|(name, _)| *name == model.name()) {
            let error = model.load_error(backend);
            assert!(error.contains(what), "{name}: {error}");
            continue;
        }
        if model.is_embedding() {
            wrong.extend(embedding_deviation(&model, backend));
            continue;
        }
        let (mut engine, ids) = (model.load(backend), model.ids());
        let whole = all_logits(&mut engine, &ids);
        let by_token = logits_by_token(&mut engine, &ids);
        // Single tokens have operands of f32.
        let from_f16 = backend.rounds_operands_to_f16();
        let forms = [(whole, "a prompt", from_f16), (by_token, "single tokens", false)];
        for (logits, form, from_f16) in forms {
            let error = model.largest_error(&logits);
            eprintln!("{:24} {form:14} {error:.1e}", model.name());
            let what = format!("the GPU in {form}");
            wrong.extend(model.deviations_from_f16(&logits, &what, from_f16));
        }
        if model.0.mtp_logits().is_some() {
            mtp::check(&model, backend, "the GPU");
            mtp::check_greedy(&model, backend);
        }
        if model.is_recurrent() || model.has_latents() {
            let deviation = model.chunk_deviation(backend);
            eprintln!("{:24} {:14} {deviation:.1e}", model.name(), "chunks");
            let most = if from_f16 { model.f16_deviation() } else { 1e-4 };
            if deviation.is_nan() || deviation >= most {
                wrong.push(format!("{} on the GPU in chunks: {deviation}", model.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} deviations:\n{}", wrong.len(), wrong.join("\n"));
}

/// The message for an embedding, or the scores of a reranker, beyond its bound.
fn embedding_deviation(model: &TinyModel, backend: &dyn Backend) -> Option<String> {
    let error = model.embedding_error(backend);
    eprintln!("{:24} {:14} {error:.1e}", model.name(), "an embedding");
    let mut bound = model.0.bound();
    if backend.rounds_operands_to_f16() {
        let largest = model.0.results().iter().map(|value| value.abs()).fold(0.0, f32::max);
        bound = bound.max(model.f16_deviation() * largest);
    }
    let exceeds = error.is_nan() || error >= bound;
    exceeds.then(|| format!("{} on the GPU: off by {error}, bound {bound}", model.name()))
}
