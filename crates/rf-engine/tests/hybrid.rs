//! A model on two backends computes what it computes on one.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::{Path, PathBuf};

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::hybrid::{HybridBackend, layer_count, layers_that_fit};
use rf_engine::{Engine, EngineOptions, Feed, Model, Outputs};
use rf_graph::{Backend, ReferenceBackend};

/// A tiny Qwen3 with F16 weights: 512 tokens, context 256.
fn tiny() -> Model {
    Model::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/qwen3.gguf")).unwrap()
}

/// The demo model of rf-cli: Q8_0, the embedding is the output's matrix too.
fn demo() -> Model {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../rf-cli/demo/stories-7m-Q8_0.gguf");
    Model::open(path).unwrap()
}

const OPTIONS: EngineOptions = EngineOptions { context_tokens: Some(96), batch_tokens: 24, ..BASE };
const BASE: EngineOptions = EngineOptions {
    context_tokens: None,
    batch_tokens: 512,
    page_tokens: 32,
    kv_type: rf_graph::KvType::F16,
    kv_tokens: Some(2 * 96),
    pooling: None,
};

fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap()
}

fn load(model: Model, backend: &dyn Backend) -> Engine {
    Engine::load(model, backend, OPTIONS, &mut |_| ()).unwrap()
}

/// Logits of a prompt in chunks, then of two sequences together.
fn logits(engine: &mut Engine) -> Vec<f32> {
    let prompt: Vec<u32> = (0..40).map(|i| (7 + i * i * 31 + i * 7) % 500).collect();
    let (mut a, mut b) = (engine.session(), engine.session());
    let mut feed = |feeds: &mut [Feed<'_>]| engine.forward(feeds).unwrap();
    let mut all = feed(&mut [Feed { session: &mut a, ids: &prompt, outputs: Outputs::All }]);
    all.extend(feed(&mut [
        Feed { session: &mut b, ids: &prompt[..9], outputs: Outputs::Last },
        Feed { session: &mut a, ids: &[3], outputs: Outputs::Last },
    ]));
    all
}

#[test]
fn two_cpus_give_the_bits_of_one_wherever_the_cut_is() {
    for model in [tiny, demo] {
        let expected = logits(&mut load(model(), &cpu(2)));
        let (first, second) = (cpu(1), cpu(2));
        for first_layers in 0..=model().config().num_layers() {
            let backend = HybridBackend::new(&first, &second, first_layers);
            let actual = logits(&mut load(model(), &backend));
            let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && actual.len() == expected.len(), "{first_layers} layers first");
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
        let actual = logits(&mut load(tiny(), &HybridBackend::new(first, second, 1)));
        let error: f32 = actual.iter().zip(&expected).map(|(a, b)| (a - b) * (a - b)).sum();
        assert!(error / energy < 1e-5, "{}", error / energy);
    }
}

#[test]
fn a_cut_where_there_is_no_layer_is_an_error() {
    let cpu = cpu(1);
    let layers = tiny().config().num_layers();
    let backend = HybridBackend::new(&cpu, &cpu, layers + 1);
    let error = Engine::load(tiny(), &backend, OPTIONS, &mut |_| ()).err().unwrap();
    assert!(error.to_string().contains("there is no layer"), "{error}");
}

#[test]
fn as_many_layers_as_fit_are_chosen() {
    let (model, cpu) = (demo(), cpu(1));
    let fit = |free_bytes| layers_that_fit(&model, &OPTIONS, &cpu, free_bytes).unwrap();
    let all = layer_count(&model);
    assert_eq!(all, model.config().num_layers() + 1);
    assert_eq!(fit(u64::MAX), all);
    assert_eq!(fit(0), 0);
    let mut seen: Vec<usize> = (0..500).map(|step| fit(step * (32 << 10))).collect();
    assert!(seen.is_sorted());
    seen.dedup();
    // The output's matrix is the embedding, so one layer costs more than the step and none is
    // skipped.
    assert_eq!(seen.first(), Some(&0));
    assert_eq!(seen.last(), Some(&all));
    assert!(seen.len() > all / 2, "{seen:?}");
}

#[test]
fn each_backend_reports_what_it_did() {
    let (first, second) = (cpu(1), cpu(2));
    let mut engine = load(demo(), &HybridBackend::new(&first, &second, 2));
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
