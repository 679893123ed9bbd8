//! One model on two backends: the first layers on one, the last ones on the other.
//!
//! Layers on the GPU are counted as llama.cpp counts them for `-ngl`: from the end, with the output
//! (its norm and matrix) as one. A model of `num_layers` therefore has `num_layers + 1`, and with
//! all of them on the GPU there is nothing to split. Only the residual moves between the backends,
//! once per batch.

use rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Batch, Candidate, Executor, Fusions,
    MemoryNeed, MemoryUse, Program, Progress, Split, Timeline, split,
};
use rf_kv::PageId;

use crate::error::Error;
use crate::model::{Model, fused};
use crate::options::EngineOptions;

/// Two backends that run the parts of a program one after the other.
///
/// Each part is fused for its backend. Where both backends compute the same bits, so does the
/// hybrid.
pub struct HybridBackend<'a> {
    first: &'a dyn Backend,
    second: &'a dyn Backend,
    first_layers: usize,
}

impl<'a> HybridBackend<'a> {
    /// The embedding and the first `first_layers` layers go to `first`, all else to `second`.
    pub fn new(first: &'a dyn Backend, second: &'a dyn Backend, first_layers: usize) -> Self {
        Self { first, second, first_layers }
    }
}

/// Layers of a model as `-ngl` counts them: the output is one.
pub fn layer_count(model: &Model) -> usize {
    model.config().num_layers() + 1
}

/// How many layers, counted from the end with the output as one, fit in `free_bytes` of a backend's
/// memory: [`layer_count`] if the whole model fits, 0 if not even the output does.
///
/// # Errors
///
/// If an option is invalid, tensors are missing, or the backend does not support the model.
pub fn layers_that_fit(
    model: &Model,
    options: &EngineOptions,
    backend: &dyn Backend,
    free_bytes: u64,
) -> Result<usize, Error> {
    let program = model.program(options)?;
    let fits = |part: Program| -> Result<bool, Error> {
        Ok(backend.memory_need(&fused(part, backend))?.total_bytes() <= free_bytes)
    };
    let all = layer_count(model);
    if fits(program.clone())? {
        return Ok(all);
    }
    for layers in (1..all).rev() {
        if let Ok(Split { second, .. }) = split(program.clone(), all - layers)
            && fits(second)?
        {
            return Ok(layers);
        }
    }
    Ok(0)
}

/// The two parts of a program, each fused for its backend, and the width of the residual between
/// them.
struct Parts {
    first: Program,
    second: Program,
    width: usize,
}

impl HybridBackend<'_> {
    fn parts(&self, program: Program) -> Result<Parts, BackendError> {
        let Split { first, second, width } =
            split(program, self.first_layers).map_err(|error| BackendError::Unsupported {
                backend: self.name(),
                what: format!("it: {error}"),
            })?;
        Ok(Parts { first: fused(first, self.first), second: fused(second, self.second), width })
    }
}

impl Backend for HybridBackend<'_> {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn description(&self) -> String {
        format!("{}; {}", self.first.description(), self.second.description())
    }

    /// None: the program is cut before each part is fused.
    fn fusions(&self) -> Fusions {
        Fusions::NONE
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        let (first, second) =
            (self.first.available_memory_bytes()?, self.second.available_memory_bytes()?);
        Some(first.saturating_add(second))
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        let Parts { first, second, width } = self.parts(program.clone())?;
        let residual_bytes = (program.max_batch_tokens * width * size_of::<f32>()) as u64;
        let held = MemoryUse { buffers_bytes: residual_bytes, ..MemoryUse::default() };
        let residual = MemoryNeed { held, reserve_bytes: 0 };
        Ok(self.first.memory_need(&first)? + self.second.memory_need(&second)? + residual)
    }

    /// Checks each part against the memory of its backend.
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        let Parts { first, second, .. } = self.parts(program.clone())?;
        self.second.check_memory(&second)?;
        self.first.check_memory(&first)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let tokens = program.max_batch_tokens;
        let Parts { first, second, width } = self.parts(program)?;
        let bytes = [weight_bytes(&second), weight_bytes(&first)];
        let total_bytes = bytes[0] + bytes[1];
        let mut load = |backend: &dyn Backend, part: Program, before, bytes: u64| {
            backend.compile(part, &mut |Progress { done_bytes, total_bytes: all }| {
                let share = u128::from(done_bytes) * u128::from(bytes) / u128::from(all.max(1));
                progress(Progress { done_bytes: before + share as u64, total_bytes });
            })
        };
        // The device has less memory than the host, so a failure shows first there.
        let second = load(self.second, second, 0, bytes[0])?;
        let first = load(self.first, first, bytes[0], bytes[1])?;
        Ok(Box::new(HybridExecutor { first, second, width, residual: vec![0.0; tokens * width] }))
    }
}

fn weight_bytes(program: &Program) -> u64 {
    program.weights.iter().map(|weight| weight.bytes().len() as u64).sum()
}

struct HybridExecutor {
    first: Box<dyn Executor>,
    second: Box<dyn Executor>,
    width: usize,
    /// The residual between the parts: `[max_batch_tokens, width]`.
    residual: Vec<f32>,
}

/// Runs the first part and returns the residual that it ends in.
fn run_first<'a>(
    first: &mut dyn Executor,
    residual: &'a mut [f32],
    width: usize,
    batch: &Batch<'_>,
) -> Result<&'a [f32], BackendError> {
    let Some(residual) = residual.get_mut(..batch.ids.len() * width) else {
        let what = format!("{} tokens are more than the program allows", batch.ids.len());
        return Err(BackendError::InvalidBatch(what));
    };
    // The residual has one row per token, so no output rows are selected.
    first.forward(&Batch { output_rows: &[], ..*batch }, residual)?;
    Ok(residual)
}

impl Executor for HybridExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        let residual = run_first(self.first.as_mut(), &mut self.residual, self.width, batch)?;
        self.second.forward(&Batch { input: Some(residual), ..*batch }, out)
    }

    fn max_top_k(&self) -> usize {
        self.second.max_top_k()
    }

    fn forward_top_k(
        &mut self,
        batch: &Batch<'_>,
        k: usize,
        out: &mut [Candidate],
    ) -> Result<(), BackendError> {
        let residual = run_first(self.first.as_mut(), &mut self.residual, self.width, batch)?;
        self.second.forward_top_k(&Batch { input: Some(residual), ..*batch }, k, out)
    }

    fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<(), BackendError> {
        self.first.copy_pages(copies)?;
        self.second.copy_pages(copies)
    }

    fn memory(&self) -> MemoryUse {
        let (first, second) = (self.first.memory(), self.second.memory());
        MemoryUse {
            weights_bytes: first.weights_bytes + second.weights_bytes,
            kv_bytes: first.kv_bytes + second.kv_bytes,
            buffers_bytes: first.buffers_bytes
                + second.buffers_bytes
                + size_of_val(&*self.residual) as u64,
        }
    }

    fn profile(&mut self, on: bool) -> bool {
        // Both, even if only one can.
        let (first, second) = (self.first.profile(on), self.second.profile(on));
        first || second
    }

    fn record_timeline(&mut self, max_events: usize) -> bool {
        let (first, second) =
            (self.first.record_timeline(max_events), self.second.record_timeline(max_events));
        first || second
    }

    fn timelines(&self) -> Vec<Timeline> {
        [self.first.timelines(), self.second.timelines()].concat()
    }

    fn summaries(&self) -> Vec<BackendExecutionSummary> {
        [self.first.summaries(), self.second.summaries()].concat()
    }
}
