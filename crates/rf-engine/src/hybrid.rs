//! One model on two backends: the first layers on one, the last ones on the other.
//!
//! Layers on the GPU are counted as llama.cpp does for `-ngl`: from the end, and the output (its norm and
//! matrix) is one of them. So a model of `num_layers` has `num_layers + 1` of them; with all, there is nothing to
//! split. Only the residual stream goes from one backend to the other, once per batch.

use rf_graph::{
    Backend, BackendError, BackendExecutionSummary, Batch, Candidate, Executor, Fusions, MemoryUse,
    Plan, Program, Progress, Split, Timeline, fuse, split,
};
use rf_kv::PageId;

use crate::engine::EngineOptions;
use crate::error::Error;
use crate::model::Model;

/// Two backends that run a program together, the parts one after the other.
///
/// Each part is fused as its backend wants. Where both backends compute the same bits, so does the hybrid.
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
    model.config().num_layers + 1
}

/// How many layers, counted from the end and the output being one, fit on a backend that has `free_bytes` of
/// memory: [`layer_count`] if the whole model does.
///
/// # Errors
///
/// If the options make no sense, or tensors are missing.
pub fn layers_that_fit(
    model: &Model,
    options: &EngineOptions,
    free_bytes: u64,
) -> Result<usize, Error> {
    let program = model.program(options)?;
    let all = layer_count(model);
    if needed_bytes(&program) <= free_bytes {
        return Ok(all);
    }
    let fits = |layers: &usize| {
        let parts = split(copy(&program), all - layers);
        parts.is_ok_and(|Split { second, .. }| needed_bytes(&second) <= free_bytes)
    };
    Ok((1..all).rev().find(fits).unwrap_or(0))
}

/// What a program takes on a device, estimated from above: weights packed anew are a little larger than in the
/// file, fused ops want buffers of their own, and drivers keep something for themselves.
fn needed_bytes(program: &Program) -> u64 {
    const RESERVE_BYTES: u64 = 192 << 20;
    let weights: u64 = program.weights.iter().map(|weight| weight.bytes().len() as u64).sum();
    let floats = Plan::new(&program.graph).floats_per_row() * program.max_batch_tokens;
    let buffers = 4 * floats as u64;
    weights + weights / 50 + program.kv.bytes() as u64 + buffers + buffers / 2 + RESERVE_BYTES
}

/// Weights are shared, so this is cheap.
fn copy(program: &Program) -> Program {
    Program {
        graph: program.graph.clone(),
        weights: program.weights.clone(),
        kv: program.kv.clone(),
        ..*program
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

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let tokens = program.max_batch_tokens;
        let Split { first, second, width } =
            split(program, self.first_layers).map_err(|error| BackendError::Unsupported {
                backend: self.name(),
                what: format!("it: {error}"),
            })?;
        // Nothing is read for a part if the other one does not fit.
        check_memory(self.second, &second)?;
        check_memory(self.first, &first)?;
        let bytes = [weight_bytes(&second), weight_bytes(&first)];
        let total_bytes = bytes[0] + bytes[1];
        let mut load = |backend: &dyn Backend, part: Program, before, bytes: u64| {
            let part = Program { graph: fuse(part.graph, backend.fusions()), ..part };
            backend.compile(part, &mut |Progress { done_bytes, total_bytes: all }| {
                let share = u128::from(done_bytes) * u128::from(bytes) / u128::from(all.max(1));
                progress(Progress { done_bytes: before + share as u64, total_bytes });
            })
        };
        // The device's memory is the scarcer one.
        let second = load(self.second, second, 0, bytes[0])?;
        let first = load(self.first, first, bytes[0], bytes[1])?;
        Ok(Box::new(HybridExecutor { first, second, width, stream: vec![0.0; tokens * width] }))
    }
}

fn weight_bytes(program: &Program) -> u64 {
    program.weights.iter().map(|weight| weight.bytes().len() as u64).sum()
}

fn check_memory(backend: &dyn Backend, part: &Program) -> Result<(), BackendError> {
    let floats = Plan::new(&part.graph).floats_per_row() * part.max_batch_tokens;
    let bytes = weight_bytes(part) + part.kv.bytes() as u64 + 4 * floats as u64;
    match backend.available_memory_bytes() {
        Some(available) if bytes > available => {
            Err(BackendError::OutOfMemory { what: "a part of the model", bytes })
        }
        _ => Ok(()),
    }
}

struct HybridExecutor {
    first: Box<dyn Executor>,
    second: Box<dyn Executor>,
    width: usize,
    /// The residual stream between the parts: `[max_batch_tokens, width]`.
    stream: Vec<f32>,
}

/// The residual stream behind the first part.
fn run_first<'a>(
    first: &mut dyn Executor,
    stream: &'a mut [f32],
    width: usize,
    batch: &Batch<'_>,
) -> Result<&'a [f32], BackendError> {
    let Some(stream) = stream.get_mut(..batch.ids.len() * width) else {
        let what = format!("{} tokens are more than the program allows", batch.ids.len());
        return Err(BackendError::InvalidBatch(what));
    };
    // It has one row per token and no others.
    first.forward(&Batch { output_rows: &[], ..*batch }, stream)?;
    Ok(stream)
}

impl Executor for HybridExecutor {
    fn forward(&mut self, batch: &Batch<'_>, out: &mut [f32]) -> Result<(), BackendError> {
        let stream = run_first(self.first.as_mut(), &mut self.stream, self.width, batch)?;
        self.second.forward(&Batch { input: Some(stream), ..*batch }, out)
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
        let stream = run_first(self.first.as_mut(), &mut self.stream, self.width, batch)?;
        self.second.forward_top_k(&Batch { input: Some(stream), ..*batch }, k, out)
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
                + size_of_val(&*self.stream) as u64,
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
