//! The accuracy of each type of the KV cache: how much the mean NLL of stories changes.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use std::ops::ControlFlow;

use rf_engine::sampling::SamplerConfig;
use rf_engine::{Engine, EngineOptions, GenerateOptions, Perplexity};
use rf_graph::KvType;
use rf_testing::demo_model;
use rf_testing::engine::load;

/// The context of the demo model.
const CONTEXT: usize = 1024;

fn engine(kv_type: KvType) -> Engine {
    let options = EngineOptions::DEFAULT.with_context_tokens(Some(CONTEXT)).with_kv_type(kv_type);
    load(&demo_model(), 2, options)
}

/// Stories of the demo model, one per context.
fn stories() -> Vec<u32> {
    let mut engine = engine(KvType::F32);
    let stories = (1..=4).flat_map(|seed| {
        let options = GenerateOptions::default()
            .with_sampler(SamplerConfig::default().with_seed(seed))
            .with_max_tokens(CONTEXT - 1)
            .with_ignore_eos(true);
        let mut session = engine.session();
        let bos = engine.model().tokenizer().bos().unwrap();
        let outcome = engine
            .generate(&mut session, &[bos], &options, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        [vec![bos], outcome.ids].concat()
    });
    stories.collect()
}

fn mean_nll(kv_type: KvType, ids: &[u32]) -> f64 {
    let mut engine = engine(kv_type);
    let mut run = Perplexity::new(&mut engine, ids, None).unwrap();
    while run.step().unwrap() {}
    run.score().mean_nll()
}

#[test]
fn the_nll_of_stories_hardly_depends_on_the_type_of_the_cache() {
    let ids = stories();
    assert_eq!(ids.len(), 4 * CONTEXT);
    let exact = mean_nll(KvType::F32, &ids);
    for kv_type in KvType::ALL {
        let most = match kv_type {
            KvType::F32 | KvType::F16 => 1e-4,
            KvType::Q8_0 | KvType::Fp8 => 2e-3,
            _ => 5e-3,
        };
        let change = mean_nll(kv_type, &ids) / exact - 1.0;
        eprintln!("{kv_type}: {exact:.5} {:+.3} %", 100.0 * change);
        assert!(change.abs() < most, "{kv_type}: {change}");
    }
}
