//! Engines of test models on the CPU.

use std::path::Path;

use rf_cpu::{CpuBackend, CpuOptions};
use rf_engine::{Engine, EngineOptions, Model};

/// A CPU with this many threads, on the best ISA.
pub fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions::default().with_threads(threads)).unwrap()
}

/// The tiny model of [`tiny_model`](crate::tiny_model).
pub fn tiny() -> Model {
    Model::open(crate::tiny_model()).unwrap()
}

/// The model of [`demo_model`](crate::demo_model): Q8_0, the embedding is the output's matrix too.
pub fn demo() -> Model {
    Model::open(crate::demo_model()).unwrap()
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
