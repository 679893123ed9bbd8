//! `Backend::memory_need` is exactly what an executor holds after compilation.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::path::{Path, PathBuf};

use rf_engine::{Engine, EngineOptions, Error, Model};
use rf_graph::{Backend, BackendError, KvLayer, KvLayout, KvType, Layout};
use rf_kv::PageGroup;
use rf_oracle::ReferenceBackend;
use rf_testing::engine::{cpu, golden, tiny};
use rf_testing::{HybridBackend, StubBackend, demo_model, golden_model, golden_models, tiny_model};

/// A tiny dense model in F16, the demo model in Q8_0, whose embedding is tied, experts in MXFP4, a
/// reranker, and latent attention.
fn models() -> [PathBuf; 5] {
    let [experts, reranker, latents] =
        ["gptoss_mxfp4", "bert_rank", "deepseek2_groups"].map(golden_model);
    [tiny_model(), demo_model(), experts, reranker, latents]
}

fn check(file: &Path, backend: &dyn Backend, options: EngineOptions) {
    let model = Model::open(file).unwrap();
    let config = model.config();
    let most = config.max_context_length.unwrap_or(usize::MAX);
    let options = options
        .with_context_tokens(options.context_tokens.map(|tokens| tokens.min(most)))
        .with_pooling((!config.generates()).then(|| config.default_pooling()));
    let need = model.memory_need(backend, &options).unwrap();
    let engine = Engine::load(model, backend, options, &mut |_| ()).unwrap();
    let what = format!("{}, {}, {options:?}", file.display(), backend.description());
    assert_eq!(need.held, engine.memory(), "{what}");
    assert_eq!(need, engine.memory_need(), "{what}");
    // A model without attention has states only.
    let cache_bytes = need.held.kv_bytes + need.held.states_bytes;
    assert!(need.held.weights_bytes > 0 && cache_bytes > 0, "{what}");
}

fn options() -> impl Iterator<Item = EngineOptions> {
    let kv_types = KvType::ALL.into_iter().map(|kv_type| (kv_type, 100, 24));
    kv_types.chain([(KvType::F16, 32, 1), (KvType::F16, 200, 512)]).map(
        |(kv_type, context_tokens, batch_tokens)| {
            EngineOptions::default()
                .with_context_tokens(Some(context_tokens))
                .with_batch_tokens(batch_tokens)
                .with_kv_type(kv_type)
                .with_kv_tokens(Some(2 * context_tokens))
        },
    )
}

#[test]
fn the_memory_need_is_what_an_executor_holds() {
    let (one, two) = (cpu(1), cpu(2));
    for file in models() {
        for options in options() {
            check(&file, &one, options);
            check(&file, &two, options);
            check(&file, &ReferenceBackend, options);
            let layout = Layout { layers: 1, expert_layers: 0 };
            check(&file, &HybridBackend::new(&one, &two, layout), options);
            check(&file, &HybridBackend::new(&ReferenceBackend, &two, layout), options);
        }
    }
    // Experts of a layer, and those of a layer after one that is elsewhere.
    for (layers, expert_layers) in [(0, 1), (1, 2)] {
        let layout = Layout { layers, expert_layers };
        for options in options() {
            check(&models()[2], &HybridBackend::new(&one, &two, layout), options);
        }
    }
}

#[test]
fn the_memory_need_of_every_architecture_is_what_an_executor_holds() {
    let cpu = cpu(2);
    for model in golden_models() {
        options().for_each(|options| check(&model.path(), &cpu, options));
    }
}

#[test]
fn a_model_loads_with_exactly_the_memory_that_it_needs() {
    let options = EngineOptions::default().with_context_tokens(Some(64));
    let need = tiny().memory_need(&cpu(1), &options).unwrap().total_bytes();
    let load = |available_bytes| {
        let backend = StubBackend::new(cpu(1), "CPU", available_bytes);
        Engine::load(tiny(), &backend, options, &mut |_| ()).map(drop)
    };
    assert!(load(need).is_ok());
    let refused = load(need - 1);
    assert!(matches!(refused, Err(Error::Backend(BackendError::DoesNotFit { .. }))), "{refused:?}");
    // Each part of a hybrid is checked against the memory of its own backend.
    let [rich, poor] = [u64::MAX, 1000].map(|bytes| StubBackend::new(cpu(1), "CPU", bytes));
    for (first, second) in [(&rich, &poor), (&poor, &rich)] {
        let layout = Layout { layers: 1, expert_layers: 0 };
        let hybrid = HybridBackend::new(first, second, layout);
        let refused = Engine::load(tiny(), &hybrid, options, &mut |_| ()).map(drop);
        assert!(
            matches!(refused, Err(Error::Backend(BackendError::DoesNotFit { .. }))),
            "{refused:?}"
        );
    }
}

#[test]
fn a_latent_takes_a_row_per_token_and_layer() {
    let model = golden("deepseek2_groups");
    let held = |kv_type| {
        let options = EngineOptions::default()
            .with_context_tokens(Some(256))
            .with_kv_type(kv_type)
            .with_kv_tokens(Some(256));
        model.memory_need(&cpu(1), &options).unwrap().held.kv_bytes
    };
    // Two layers with a latent of 32 elements and 16 of the rotated key; f16 scales of 32 elements
    // and of the rest.
    let row_bytes = [
        (KvType::F32, 48 * 4),
        (KvType::F16, 48 * 2),
        (KvType::Q8_0, 48 + 2 * 2),
        (KvType::Fp8, 48),
        (KvType::Q4_0, 2 * 18),
        (KvType::Q5_0, 2 * 22),
    ];
    for (kv_type, bytes) in row_bytes {
        assert_eq!(model.kv_bytes_per_token(kv_type), 2 * bytes, "{kv_type}");
        assert_eq!(held(kv_type), 256 * 2 * bytes as u64, "{kv_type}");
    }
    // GLM 4.7 Flash: 47 layers of 512 and 64 elements.
    let bytes = |kv_type| {
        let layout = KvLayout::new(vec![KvLayer::latent(576, 512); 47], 32, 1, kv_type);
        layout.bytes_per_token(PageGroup::Full)
    };
    assert_eq!([KvType::F16, KvType::Q8_0].map(bytes), [47 * 1152, 47 * 612]);
}

#[test]
fn layers_with_a_window_have_pages_for_it_only() {
    let model = || golden("gptoss_mxfp4");
    let kv_bytes = |context_tokens, sequences| {
        let options = EngineOptions::default()
            .with_context_tokens(Some(context_tokens))
            .with_batch_tokens(64)
            .with_sequences(sequences)
            .with_kv_type(KvType::F16);
        let needs = [&cpu(1) as &dyn Backend, &ReferenceBackend]
            .map(|backend| model().memory_need(backend, &options).unwrap().held.kv_bytes);
        assert_eq!(needs[1], 2 * needs[0], "the reference has f32");
        needs[0]
    };
    // A page of a layer: 32 tokens of keys and values of two heads of 16 in f16.
    let page_bytes = 32 * 2 * 2 * 16 * 2;
    // One of two layers has a window of 16 tokens: one page, two more for where it begins and ends,
    // and two for the batch.
    assert_eq!(kv_bytes(1024, 1), page_bytes * (32 + 1 + 2 + 2));
    assert_eq!(kv_bytes(2048, 1), page_bytes * (64 + 5));
    assert_eq!(kv_bytes(2048, 9), page_bytes * (64 + 9 * 3 + 2));
    // Whole sequences take fewer pages.
    assert_eq!(kv_bytes(128, 1), page_bytes * (4 + 4));
    assert_eq!(kv_bytes(1024, 10), page_bytes * (32 + 32));
}
