//! LoRA adapters and control vectors against the logits of llama.cpp, against merged weights, and
//! against each other in one batch.

use std::collections::HashMap;
use std::ops::ControlFlow;

use rf_cpu::{CpuBackend, CpuOptions, Isa};
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::{Event, Request, RequestId, SchedulerOptions, StepScheduler};
use rf_engine::{
    Adapter, AdapterScales, ControlVector, Engine, EngineOptions, GenerateOptions, Model, Outputs,
    SequenceInput, Session,
};
use rf_gguf::{Gguf, GgufWriter};
use rf_graph::{Backend, KvType, Layout};
use rf_oracle::ReferenceBackend;
use rf_quant::DType;
use rf_testing::engine::{cpu, demo};
use rf_testing::{GoldenAdapters, HybridBackend, Lcg, golden_adapters};

use crate::models::{all_logits, argmax, greedy};

const OPTIONS: EngineOptions = EngineOptions::DEFAULT
    .with_context_tokens(Some(128))
    .with_kv_type(KvType::F32)
    .with_kv_tokens(Some(8 * 128))
    .with_sequences(8);

fn case(name: &str) -> GoldenAdapters {
    golden_adapters().into_iter().find(|case| case.name == name).unwrap()
}

fn adapters_of(case: &GoldenAdapters) -> Vec<(Adapter, f32)> {
    let open = |(path, scale): &(std::path::PathBuf, f32)| (Adapter::open(path).unwrap(), *scale);
    case.adapters.iter().map(open).collect()
}

fn with_adapters(case: &GoldenAdapters, backend: &dyn Backend) -> Engine {
    let model = Model::open(case.model.path()).unwrap();
    let mut model = model.with_adapters(adapters_of(case)).unwrap();
    if let Some((path, scale, layers)) = &case.control {
        let vector = ControlVector::open(path).unwrap();
        model = model.with_control_vectors(&[(vector, *scale)], layers).unwrap();
    }
    Engine::load(model, backend, OPTIONS, &mut |_| ()).unwrap()
}

/// Checks every case, with this share of the largest logit as an additional error.
pub(crate) fn check(backend: &dyn Backend, what: &str, rounding: f32) {
    for case in golden_adapters() {
        let mut engine = with_adapters(&case, backend);
        let logits = all_logits(&mut engine, &case.model.ids());
        let vocab_size = engine.output_width();
        let found = case.positions.iter().flat_map(|at| &logits[at * vocab_size..][..vocab_size]);
        let largest = case.logits.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
        let error = found.zip(&case.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let bound = case.bound.max(rounding * largest);
        eprintln!("{:20} {what}: off by {error:.1e}, bound {bound:.1e}", case.name);
        assert!(error <= bound, "{} on {what}: off by {error}", case.name);
    }
}

#[test]
fn golden_adapters_match_on_the_reference_and_every_isa() {
    check(&ReferenceBackend, "reference", 0.0);
    for isa in Isa::available() {
        let options = CpuOptions::default().with_threads(2).with_isa(isa);
        check(&CpuBackend::new(options).unwrap(), &isa.to_string(), 0.0);
    }
}

/// The factors of the adapters are handed over with the residual.
#[test]
fn golden_adapters_match_where_two_backends_share_the_model() {
    let (first, second) = (cpu(2), ReferenceBackend);
    for layout in [Layout { layers: 1, expert_layers: 0 }, Layout { layers: 0, expert_layers: 1 }] {
        let case = case("qwen3moe_experts");
        let backend = HybridBackend::new(&first, &second, layout);
        let mut engine = with_adapters(&case, &backend);
        let logits = all_logits(&mut engine, &case.model.ids());
        let vocab_size = engine.output_width();
        for (row, at) in case.logits.chunks(vocab_size).zip(&case.positions) {
            let found = &logits[at * vocab_size..][..vocab_size];
            let error = found.iter().zip(row).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error <= case.bound, "{layout:?}: off by {error}");
        }
    }
}

/// A model whose weights have the update of an adapter, in f32.
fn merged(case: &GoldenAdapters) -> Model {
    let base = Gguf::open(case.model.path()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in base.metadata().iter() {
        writer.set(key, value.clone()).unwrap();
    }
    let values = |gguf: &Gguf, name: &str| {
        let tensor = gguf.tensor(name)?;
        let mut values = vec![0.0; tensor.elements() as usize];
        rf_quant::dequantize(tensor.dtype().unwrap(), &tensor.data(), &mut values).unwrap();
        Some((values, tensor.shape().to_vec()))
    };
    let mut tensors = HashMap::new();
    for tensor in base.tensors() {
        let (mut weight, shape) = values(&base, tensor.name()).unwrap();
        for (adapter, scale) in adapters_of(case) {
            let of = |end: &str| values(adapter.gguf(), &format!("{}{end}", tensor.name()));
            let (Some((a, _)), Some((b, b_shape))) = (of(".lora_a"), of(".lora_b")) else {
                continue;
            };
            let rank = b_shape[0] as usize;
            let factor = if adapter.alpha() == 0.0 { 1.0 } else { adapter.alpha() / rank as f32 };
            let columns = shape[0] as usize;
            for (row, b) in weight.chunks_mut(columns).zip(b.chunks(rank)) {
                for (column, weight) in row.iter_mut().enumerate() {
                    let sum: f32 =
                        b.iter().enumerate().map(|(r, b)| b * a[r * columns + column]).sum();
                    *weight += scale * factor * sum;
                }
            }
        }
        writer.add_tensor(tensor.name(), &shape, DType::F32).unwrap();
        tensors.insert(tensor.name().to_owned(), weight);
    }
    let mut bytes = Vec::new();
    let write = |plan: &rf_gguf::TensorPlan, out: &mut dyn std::io::Write| {
        for value in &tensors[plan.name()] {
            out.write_all(&value.to_le_bytes())?;
        }
        Ok(())
    };
    writer.write_to(&mut bytes, write).unwrap();
    Model::from_gguf(Gguf::from_bytes(bytes).unwrap()).unwrap()
}

#[test]
fn an_adapter_computes_what_merged_weights_do() {
    for name in ["llama_attention", "llama_three"] {
        let case = case(name);
        let backend = cpu(2);
        let mut merged = Engine::load(merged(&case), &backend, OPTIONS, &mut |_| ()).unwrap();
        let mut engine = with_adapters(&case, &backend);
        let ids = case.model.ids();
        let expected = greedy(&mut merged, &ids, 16);
        assert_eq!(greedy(&mut engine, &ids, 16), expected, "{name}");
        let text = [&ids[..], &expected].concat();
        let (found, expected) = (all_logits(&mut engine, &text), all_logits(&mut merged, &text));
        let error = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 10.0 * case.bound, "{name}: off by {error}");
    }
}

/// An adapter for every matrix of the layers of a model.
fn random_adapter(base: &Gguf, rank: u64, seed: u64) -> Adapter {
    let mut random = Lcg::new(seed as u32);
    let mut writer = GgufWriter::new();
    let architecture = base.metadata().required_str("general.architecture").unwrap();
    let text = [
        ("general.type", "adapter"),
        ("general.architecture", architecture),
        ("adapter.type", "lora"),
    ];
    for (key, value) in text {
        writer.add(key, value).unwrap();
    }
    writer.add("adapter.lora.alpha", 2.0 * rank as f32).unwrap();
    for tensor in base.tensors().iter().filter(|tensor| tensor.name().starts_with("blk.")) {
        let &[columns, rows] = tensor.shape() else { continue };
        let name = tensor.name();
        writer.add_tensor(format!("{name}.lora_a"), &[columns, rank], DType::F16).unwrap();
        writer.add_tensor(format!("{name}.lora_b"), &[rank, rows], DType::F16).unwrap();
    }
    let mut bytes = Vec::new();
    let mut write = |plan: &rf_gguf::TensorPlan, out: &mut dyn std::io::Write| {
        let count = plan.shape().iter().product::<u64>() as usize;
        let values: Vec<f32> =
            (0..count).map(|_| f32::from(random.byte()) / 1024.0 - 0.125).collect();
        Ok(out.write_all(&rf_quant::quantize_to_vec(DType::F16, &values)?)?)
    };
    writer.write_to(&mut bytes, &mut write).unwrap();
    Adapter::from_gguf(Gguf::from_bytes(bytes).unwrap(), format!("random {seed}")).unwrap()
}

/// The demo model, whose matrices are Q8_0, with three adapters of different ranks and no scales.
fn demo_with_adapters(batch_tokens: usize) -> Engine {
    let model = demo();
    let adapters = (1..=3).map(|i| (random_adapter(model.gguf(), 4 * i, i), 0.0)).collect();
    let options = OPTIONS.with_batch_tokens(batch_tokens);
    Engine::load(model.with_adapters(adapters).unwrap(), &cpu(2), options, &mut |_| ()).unwrap()
}

/// Scales of the sequences of a batch.
const MIXED: [&[f32]; 6] =
    [&[], &[1.0], &[0.0, 1.0], &[0.5, 0.0, -1.0], &[0.0, 1.0], &[1.0, 1.0, 1.0]];

fn session(engine: &Engine, scales: &[f32]) -> Session {
    let mut session = engine.session();
    session.set_adapters(AdapterScales::new(scales));
    session
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn sequences_with_other_adapters_in_a_batch_have_the_bits_that_each_has_alone() {
    let ids = rf_testing::prompt(3, 20);
    let mut alone = demo_with_adapters(512);
    let expected: Vec<Vec<f32>> = MIXED
        .iter()
        .map(|scales| {
            let mut session = session(&alone, scales);
            alone.forward(&mut [SequenceInput {
                session: &mut session,
                ids: &ids,
                outputs: Outputs::All,
            }])
        })
        .collect::<Result<_, _>>()
        .unwrap();
    // Every set of adapters changes the text in another way.
    for (i, a) in expected.iter().enumerate() {
        for (j, b) in expected[..i].iter().enumerate() {
            assert_eq!(a == b, MIXED[i] == MIXED[j], "{i} {j}");
        }
    }
    for batch_tokens in [512, 7] {
        let mut engine = demo_with_adapters(batch_tokens);
        let mut sessions: Vec<Session> =
            MIXED.iter().map(|scales| session(&engine, scales)).collect();
        let feeds = sessions.iter_mut();
        let mut feeds: Vec<SequenceInput<'_>> = feeds
            .map(|session| SequenceInput { session, ids: &ids, outputs: Outputs::All })
            .collect();
        let logits = engine.forward(&mut feeds).unwrap();
        assert_eq!(bits(&logits), bits(&expected.concat()), "batches of {batch_tokens}");
    }
}

#[test]
fn a_sequence_without_adapters_has_the_bits_of_a_model_without_any() {
    let ids = rf_testing::prompt(5, 40);
    let model = demo();
    let mut plain = Engine::load(model, &cpu(2), OPTIONS, &mut |_| ()).unwrap();
    let expected = all_logits(&mut plain, &ids);
    assert_eq!(bits(&all_logits(&mut demo_with_adapters(512), &ids)), bits(&expected));
    for case in golden_adapters().into_iter().filter(|case| case.control.is_none()) {
        let ids = case.model.ids();
        let model = Model::open(case.model.path()).unwrap();
        let mut plain = Engine::load(model, &cpu(2), OPTIONS, &mut |_| ()).unwrap();
        let mut engine = with_adapters(&case, &cpu(2));
        let mut session = session(&engine, &[]);
        let feed = SequenceInput { session: &mut session, ids: &ids, outputs: Outputs::All };
        let logits = engine.forward(&mut [feed]).unwrap();
        assert_eq!(bits(&logits), bits(&all_logits(&mut plain, &ids)), "{}", case.name);
    }
}

/// The tokens of requests that are served together, and the tokens that each found in the cache.
fn serve(engine: &mut Engine, prompts: &[(&[u32], &[f32])]) -> Vec<(Vec<u32>, usize)> {
    let mut steps = StepScheduler::new(engine, SchedulerOptions::default()).unwrap();
    let options =
        GenerateOptions::default().with_sampler(SamplerConfig::greedy()).with_max_tokens(8);
    let mut answers: HashMap<RequestId, (Vec<u32>, usize)> = HashMap::new();
    let mut order = Vec::new();
    for (prompt, scales) in prompts {
        let request = Request::new(prompt.to_vec(), options.clone())
            .with_adapters(AdapterScales::new(scales));
        order.push(steps.submit(engine, request).unwrap());
    }
    while !steps.is_idle() {
        steps.step(engine, None, &mut |id, event| {
            let answer = answers.entry(id).or_default();
            match event {
                Event::Token { id, .. } => answer.0.push(id),
                Event::Started { cached_tokens, .. } => answer.1 = cached_tokens,
                Event::Failed(error) => panic!("{error}"),
                _ => {}
            }
            ControlFlow::Continue(())
        });
    }
    order.iter().map(|id| answers.remove(id).unwrap()).collect()
}

#[test]
fn requests_share_cached_prefixes_only_with_the_same_adapters() {
    let prompt = rf_testing::prompt(9, 70);
    let requests: Vec<(&[u32], &[f32])> =
        MIXED.iter().map(|scales| (&prompt[..], *scales)).collect();
    let mut engine = demo_with_adapters(512);
    let first = serve(&mut engine, &requests);
    let again = serve(&mut engine, &requests);
    for (number, (first, again)) in first.iter().zip(&again).enumerate() {
        let alone = serve(&mut demo_with_adapters(512), &requests[number..=number]);
        assert_eq!(first.0, alone[0].0, "request {number}");
        assert_eq!(again, &(first.0.clone(), 64), "request {number}");
        // The third and the fifth have the same adapters.
        assert_eq!(first.1, if number == 4 { 64 } else { 0 }, "request {number}");
    }
}

#[test]
fn scales_that_the_model_cannot_use_are_refused() {
    let mut engine = demo_with_adapters(512);
    let mut steps = StepScheduler::new(&engine, SchedulerOptions::default()).unwrap();
    let options = GenerateOptions::default();
    for (scales, message) in [
        (&[0.0, 0.0, 0.0, 1.0][..], "there is no adapter with id 3: the model was loaded with 3"),
        (&[1.0, f32::NAN], "the scale of adapter 1 is not a finite number"),
    ] {
        let request = Request::new(vec![1, 2], options.clone());
        let request = request.with_adapters(AdapterScales::new(scales));
        assert_eq!(steps.submit(&mut engine, request).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_saved_sequence_keeps_its_adapters_and_others_do_not_continue_it() {
    let ids = rf_testing::prompt(11, 40);
    let mut engine = demo_with_adapters(512);
    let mut first = session(&engine, MIXED[3]);
    engine.prefill(&mut first, &ids).unwrap();
    let mut saved = Vec::new();
    engine.save(&first, &mut saved).unwrap();
    let mut restored = engine.restore(&saved).unwrap();
    assert_eq!(restored.adapters(), first.adapters());
    let mut next = |session: &mut Session| {
        let feed = SequenceInput { session, ids: &ids[39..], outputs: Outputs::Last };
        argmax(&engine.forward(&mut [feed]).unwrap())
    };
    assert_eq!(next(&mut restored), next(&mut first));
    restored.set_adapters(AdapterScales::default());
    assert!(restored.is_empty(), "its tokens were computed with adapters");
}
