//! What a step costs before it computes anything: chains of ops on one short row.
//!
//! With one op it is what handing over a batch costs; what each further one adds is a barrier among threads on the CPU, a
//! launch or a node of a graph on a GPU.

use rf_graph::OpCost;

use crate::program::{Net, OpProgram, OwnedBatch, PAGE_TOKENS, Timed, no_cache};
use crate::{Error, Prepared, Suite, Target, Task, Workload};

/// A step of one token.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Ops one behind the other, each reading what the one before wrote.
    pub(crate) ops: usize,
    pub(crate) form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One by one: a parallel region on the CPU, launches on a GPU.
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
    pub(crate) fn program(&self) -> OpProgram {
        const WIDTH: usize = 64;
        let mut net = Net::new();
        let mut out = net.rows_of_table(1, WIDTH);
        for _ in 1..self.ops {
            out = net.g.scale(out, -1.0);
        }
        OpProgram {
            program: net.finish(out, no_cache(1), 1),
            batch: OwnedBatch::of_sequence(1, 0, 1, PAGE_TOKENS),
            fill: Vec::new(),
            timed: Timed::Step,
        }
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
        match (self.form, target.without_graphs()?) {
            (Form::Step, Some(launches)) => self.program().prepare_on(&*launches),
            _ => self.program().prepare(target),
        }
    }
}

#[cfg(test)]
mod tests {
    use rf_graph::conformance::Bound;

    use super::*;
    use crate::program::agreement;

    #[test]
    fn every_op_of_a_chain_counts() {
        for ops in [1, 2, 5] {
            let step = Step { ops, form: Form::Step };
            // One more picks the rows that are wanted: none, when it is measured.
            assert_eq!(step.program().program.graph.ops().len(), ops + 1);
            agreement(step.program(), Bound::Exact);
        }
    }
}
