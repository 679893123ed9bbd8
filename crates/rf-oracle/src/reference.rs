//! The definition of every op: scalar code with f64 sums, one loop per formula. Backends are
//! checked against it. Speed is not a goal.

mod cache;
mod ops;
mod recurrent;

use cache::Cache;
use ops::StageRun;
use rf_graph::{
    Backend, BackendError, Batch, BatchLimits, Executor, Fusions, Member, MemoryNeed, MemoryUse,
    Output, Plan, Program, Progress, Reduction, Stage, ValueId,
};
use rf_kv::CopyPage;

pub use ops::{attention, gated, glu, map, matmul, rms_norm, rope};
pub use recurrent::causal_conv;

/// A backend that executes each op by its definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn description(&self) -> String {
        "scalar, f64 sums".into()
    }

    fn fusions(&self) -> Fusions {
        Fusions::ALL
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        None
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        let held = MemoryUse {
            weights_bytes: program.weights.iter().map(|w| w.size_bytes() as u64).sum(),
            kv_bytes: Cache::bytes_for(&program.kv) as u64,
            states_bytes: program.kv.states_bytes(),
            buffers_bytes: Reduction::bytes_for(program),
        };
        let floats = Plan::new(&program.graph).floats_per_row() * program.max_batch_tokens;
        Ok(MemoryNeed { held, reserve_bytes: (floats * size_of::<f32>()) as u64 })
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        program.weights.iter().try_for_each(|weight| weight.check_finite(0..weight.rows()))?;
        let total_bytes = program.weights.iter().map(|w| w.size_bytes() as u64).sum();
        progress(Progress { done_bytes: total_bytes, total_bytes });
        Ok(Box::new(Reference {
            limits: BatchLimits::new(&program),
            stages: program.graph.stages(),
            cache: Cache::new(&program.kv),
            reduction: Reduction::new(&program),
            values: vec![Vec::new(); program.graph.values().len()],
            program,
        }))
    }
}

struct Reference {
    program: Program,
    stages: Vec<Stage>,
    limits: BatchLimits,
    cache: Cache,
    reduction: Reduction,
    /// Values of the batch by index, for its later stages.
    values: Vec<Vec<f32>>,
}

impl Executor for Reference {
    fn forward(&mut self, batch: &Batch<'_>, output: Output<'_>) -> Result<(), BackendError> {
        let stage = output.stage.unwrap_or(self.stages.len() - 1);
        let out = output.into_whole_rows()?;
        batch.check(&self.limits, stage)?;
        let graph = &self.program.graph;
        let stage = &self.stages[stage];
        let floats = |id: ValueId| {
            let value = graph.value(id);
            value.width * batch.rows(value.rows)
        };
        let expected = stage.outputs.iter().map(|id| floats(*id)).sum();
        if out.len() != expected {
            let what = format!("room for {} values of output, expected {expected}", out.len());
            return Err(BackendError::InvalidBatch(what));
        }
        let mut run = StageRun::new(
            &self.program,
            &mut self.cache,
            &mut self.reduction,
            batch,
            &mut self.values,
        )?;
        for op in &graph.ops()[stage.ops.clone()] {
            run.op(op)?;
        }
        let mut rest = out;
        for id in &stage.outputs {
            let (own, others) = rest.split_at_mut(floats(*id));
            own.copy_from_slice(run.get(*id));
            rest = others;
        }
        Ok(())
    }

    fn join(&mut self, member: Member) -> Result<(), BackendError> {
        self.reduction.join(member);
        Ok(())
    }

    fn copy_pages(&mut self, copies: &[CopyPage]) -> Result<(), BackendError> {
        copies.iter().try_for_each(|copy| self.cache.copy_page(*copy))
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            weights_bytes: self.program.weights.iter().map(|w| w.size_bytes() as u64).sum(),
            kv_bytes: self.cache.bytes() as u64,
            states_bytes: self.cache.states_bytes() as u64,
            buffers_bytes: self.reduction.bytes(),
        }
    }
}
