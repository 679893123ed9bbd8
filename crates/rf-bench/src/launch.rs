//! Launch overhead: the time of a step of short ops that depend on each other.
//!
//! A step of one op costs what handing over a batch costs. Each further op adds a barrier among
//! threads on the CPU, and a launch or a graph node on a GPU.

use std::time::Instant;

use rf_oracle::case::{Case, Timer, speed};
use rf_oracle::rf_graph::{OpCost, Program};

use crate::{Clock, Error, Prepared, Suite, Target, Task, Workload};

/// A step of one token.
#[derive(Clone, Debug)]
struct Step {
    /// Ops in a chain: each reads the result of the one before. The first reads a row of a table.
    ops: usize,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Op by op: a parallel region on the CPU, launches on a GPU.
    Step,
    /// A captured graph.
    Replay,
}

pub(crate) fn workloads() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for form in [Form::Step, Form::Replay] {
        for ops in [1, 64, 512] {
            workloads.push(Workload::new(Step { ops, form }, true));
        }
    }
    workloads
}

impl Step {
    fn program(&self, case: &Case) -> Program {
        case.timed_program(self.ops - 1)
    }
}

impl Task for Step {
    fn name(&self) -> String {
        let form = match self.form {
            Form::Step => "step",
            Form::Replay => "replay",
        };
        format!("launch/{form}/ops={}", self.ops)
    }

    fn suite(&self) -> Suite {
        Suite::Launch
    }

    fn cost(&self) -> OpCost {
        OpCost::default()
    }

    fn check(&self, target: &Target) -> Result<(), Error> {
        match self.form {
            Form::Replay if !target.is_gpu() => {
                Err(Error::Unsupported("the CPU backend captures no graphs".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&self, target: &Target) -> Result<Prepared, Error> {
        let launches = match self.form {
            Form::Step => target.without_graphs()?,
            Form::Replay => None,
        };
        let case = speed::launch();
        let backend = launches.as_deref().unwrap_or_else(|| target.backend());
        let mut timer = Timer::new(backend, &case, self.program(&case))?;
        Ok(Prepared::new(Clock::Host, move || {
            let start = Instant::now();
            timer.step()?;
            Ok(start.elapsed())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_of_a_chain_counts() {
        for ops in [1, 2, 5] {
            let program = Step { ops, form: Form::Step }.program(&speed::launch());
            // One more selects the output rows: none, when the step is timed.
            assert_eq!(program.graph.ops().len(), ops + 1);
        }
    }
}
