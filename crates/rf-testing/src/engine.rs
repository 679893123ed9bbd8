//! Engines of test models on the CPU, and their options.

use std::path::Path;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::{Engine, EngineOptions, Model};
use rf_graph::KvType;

/// The default options, as a constant.
pub const OPTIONS: EngineOptions = EngineOptions {
    context_tokens: None,
    batch_tokens: 512,
    page_tokens: 32,
    kv_type: KvType::F16,
    kv_tokens: None,
    sequences: 1,
    checkpoints: 0,
    host_state_bytes: 0,
    speculates: false,
    mtp: false,
    pooling: None,
};

/// A CPU with this many threads, on the best ISA.
pub fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions::default().with_threads(threads)).unwrap()
}

/// The tiny model of [`tiny_model`](crate::tiny_model).
pub fn tiny() -> Model {
    Model::open(crate::tiny_model()).unwrap()
}

/// A model of `golden/arch`.
pub fn golden(name: &str) -> Model {
    Model::open(crate::golden_model(name)).unwrap()
}

/// A model file on a CPU with this many threads.
pub fn load(path: &Path, threads: usize, options: EngineOptions) -> Engine {
    load_model(Model::open(path).unwrap(), threads, options)
}

/// A model on a CPU with this many threads.
pub fn load_model(model: Model, threads: usize, options: EngineOptions) -> Engine {
    Engine::load(model, &cpu(threads), options, &mut |_| ()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constant_has_the_default_options() {
        assert_eq!(OPTIONS, EngineOptions::default());
    }
}
