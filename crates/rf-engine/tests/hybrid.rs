//! A model on two backends computes what it computes on one.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_engine::{Engine, EngineOptions, Model, Outputs, SequenceInput};
use rf_graph::{Backend, Layout};
use rf_oracle::ReferenceBackend;
use rf_testing::engine::{cpu, demo, golden, tiny};
use rf_testing::{HybridBackend, prompt};

/// A tiny Gemma 4, whose layers have their own inputs and whose last layers read the caches of
/// earlier ones.
fn gemma4() -> Model {
    golden("gemma4_e4b")
}

/// A tiny `DeepSeek` 2 with latent attention.
fn deepseek2() -> Model {
    golden("deepseek2_groups")
}

const OPTIONS: EngineOptions = EngineOptions::DEFAULT
    .with_context_tokens(Some(96))
    .with_batch_tokens(24)
    .with_kv_tokens(Some(2 * 96))
    .with_sequences(2);

/// The embedding and the first layers.
fn layers(layers: usize) -> Layout {
    Layout { layers, expert_layers: 0 }
}

fn load(model: Model, backend: &dyn Backend) -> Engine {
    Engine::load(model, backend, OPTIONS, &mut |_| ()).unwrap()
}

/// Logits of a prompt in chunks, then of two sequences together.
fn logits(engine: &mut Engine) -> Vec<f32> {
    let prompt = prompt(7, 40);
    let (mut a, mut b) = (engine.session(), engine.session());
    let mut feed = |feeds: &mut [SequenceInput<'_>]| engine.forward(feeds).unwrap();
    let mut all =
        feed(&mut [SequenceInput { session: &mut a, ids: &prompt, outputs: Outputs::All }]);
    all.extend(feed(&mut [
        SequenceInput { session: &mut b, ids: &prompt[..9], outputs: Outputs::Last },
        SequenceInput { session: &mut a, ids: &[3], outputs: Outputs::Last },
    ]));
    all
}

#[test]
fn two_cpus_give_the_bits_of_one_wherever_the_cut_is() {
    for model in [tiny, demo, gemma4, deepseek2] {
        let expected = logits(&mut load(model(), &cpu(2)));
        let (first, second) = (cpu(1), cpu(2));
        for first_layers in 1..=model().config().num_layers() {
            let backend = HybridBackend::new(&first, &second, layers(first_layers));
            let actual = logits(&mut load(model(), &backend));
            let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && actual.len() == expected.len(), "{first_layers} layers first");
        }
    }
}

#[test]
fn layers_that_are_dealt_over_cpus_give_the_bits_of_one() {
    for model in [tiny, demo, gemma4, deepseek2] {
        let expected = logits(&mut load(model(), &cpu(2)));
        let cpus = [cpu(1), cpu(2), cpu(1)];
        for shares in [&[1.0, 1.0][..], &[3.0, 1.0, 2.0], &[1.0, 1.0, 0.0], &[0.0, 1.0, 1.0]] {
            let parts: Vec<(&dyn Backend, f32)> =
                cpus.iter().zip(shares).map(|(cpu, share)| (cpu as _, *share)).collect();
            let dealt = HybridBackend::dealt(&parts).unwrap();
            let need = model().memory_need(&dealt, &OPTIONS).unwrap();
            let mut engine = load(model(), &dealt);
            assert_eq!(engine.memory(), need.held);
            let actual = logits(&mut engine);
            let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && actual.len() == expected.len(), "{shares:?}");
            // After layers of another CPU.
            let first = cpu(1);
            let below = HybridBackend::new(&first, &dealt, layers(1));
            let actual = logits(&mut load(model(), &below));
            let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{shares:?} after a layer");
        }
    }
}

#[test]
fn experts_on_another_cpu_give_the_bits_of_one() {
    for name in ["gptoss_mxfp4", "glm4moe", "deepseek2_groups"] {
        let model = || golden(name);
        let expected = logits(&mut load(model(), &cpu(2)));
        let (first, second) = (cpu(1), cpu(2));
        let num_layers = model().config().num_layers();
        for (layers, expert_layers) in [(0, num_layers), (0, num_layers - 1), (1, num_layers)] {
            let layout = Layout { layers, expert_layers };
            let actual = match Engine::load(
                model(),
                &HybridBackend::new(&first, &second, layout),
                OPTIONS,
                &mut |_| (),
            ) {
                Ok(mut engine) => logits(&mut engine),
                // The first layers of the others have no experts.
                Err(error) => {
                    assert!(error.to_string().contains("nothing to split"), "{name}: {error}");
                    continue;
                }
            };
            let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && actual.len() == expected.len(), "{name} with {layout:?}");
        }
    }
}

#[test]
fn the_parts_may_be_of_different_kinds() {
    let cpu = cpu(2);
    let expected = logits(&mut load(tiny(), &cpu));
    let energy: f32 = expected.iter().map(|x| x * x).sum();
    let parts: [(&dyn Backend, &dyn Backend); 2] =
        [(&cpu, &ReferenceBackend), (&ReferenceBackend, &cpu)];
    for (first, second) in parts {
        let actual = logits(&mut load(tiny(), &HybridBackend::new(first, second, layers(1))));
        let error: f32 = actual.iter().zip(&expected).map(|(a, b)| (a - b) * (a - b)).sum();
        assert!(error / energy < 1e-5, "{}", error / energy);
    }
}

#[test]
fn a_cut_where_there_is_no_layer_is_an_error() {
    let cpu = cpu(1);
    let backend = HybridBackend::new(&cpu, &cpu, layers(tiny().config().num_layers() + 1));
    let error = Engine::load(tiny(), &backend, OPTIONS, &mut |_| ()).err().unwrap();
    assert!(error.to_string().contains("the first part cannot have"), "{error}");
}

#[test]
fn each_stage_counts_the_batch_once() {
    let (first, second) = (cpu(1), cpu(2));
    let layout = Layout { layers: 0, expert_layers: usize::MAX };
    let mut engine = load(golden("gptoss_mxfp4"), &HybridBackend::new(&first, &second, layout));
    assert!(engine.profile(true));
    logits(&mut engine);
    let num_layers = engine.model().config().num_layers() as u64;
    let summaries = engine.summaries();
    let [a, b] = summaries.as_slice() else { panic!("{summaries:?}") };
    assert_eq!((a.tokens, b.tokens), (50, 50));
    assert_eq!(a.ops["expert_matmul"].count, 2 * num_layers * a.batches);
    assert_eq!(b.ops["attention"].count, num_layers * b.batches);
    assert!(!b.ops.contains_key("expert_matmul"));
}

#[test]
fn each_backend_reports_what_it_did() {
    let (first, second) = (cpu(1), cpu(2));
    let mut engine = load(demo(), &HybridBackend::new(&first, &second, layers(2)));
    assert!(engine.summaries().is_empty());
    assert!(engine.profile(true));
    logits(&mut engine);
    let summaries = engine.summaries();
    let [a, b] = summaries.as_slice() else { panic!("{summaries:?}") };
    assert_eq!((a.tokens, b.tokens), (50, 50));
    assert_eq!(a.batches, b.batches);
    assert_eq!(a.ops["embed"].count, a.batches);
    assert_eq!(b.ops["input"].count, b.batches);
    assert_eq!(a.ops["attention"].count, 2 * a.batches);
    let hidden_size = engine.model().config().hidden_size as u64;
    assert_eq!((a.input_bytes, b.input_bytes), (0, 4 * 50 * hidden_size));
    for summary in [a, b] {
        let in_ops: std::time::Duration = summary.ops.values().map(|op| op.time).sum();
        assert!(in_ops <= summary.time && in_ops > summary.time / 4, "{summary:?}");
    }
    assert!(engine.profile(false));
    assert!(engine.summaries().is_empty());
}
