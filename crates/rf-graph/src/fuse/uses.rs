//! Writers and readers of values.

use std::collections::HashMap;

use crate::graph::Graph;
use crate::op::{MatMul, Op, Prologue};
use crate::value::ValueId;

/// The writer and the readers of each value, by the index of the op.
pub(super) struct Uses {
    pub(super) writer: HashMap<ValueId, usize>,
    readers: HashMap<ValueId, Vec<usize>>,
    output: ValueId,
}

impl Uses {
    pub(super) fn of(graph: &Graph) -> Self {
        let mut uses =
            Self { writer: HashMap::new(), readers: HashMap::new(), output: graph.output };
        for (step, op) in graph.ops.iter().enumerate() {
            uses.writer.extend(op.written().into_iter().map(|out| (out, step)));
            for input in op.inputs() {
                uses.readers.entry(input).or_default().push(step);
            }
        }
        uses
    }

    /// The only reader of a value; `None` if the value has other readers or is the graph's output.
    pub(super) fn only_reader(&self, id: ValueId) -> Option<usize> {
        match self.readers.get(&id).map(Vec::as_slice) {
            Some(&[reader]) if id != self.output => Some(reader),
            _ => None,
        }
    }

    /// The number of ops that read a value.
    pub(super) fn num_readers(&self, id: ValueId) -> usize {
        self.readers.get(&id).map_or(0, Vec::len)
    }

    /// The writer of a value with only one reader; `None` if the value is the graph's output.
    pub(super) fn writer_of_only_read(&self, id: ValueId) -> Option<usize> {
        self.only_reader(id).and_then(|_| self.writer.get(&id).copied())
    }

    /// The matmul that reads a value as its left operand and is its only reader.
    pub(super) fn matmul_of<'a>(&self, graph: &'a Graph, id: ValueId) -> Option<&'a MatMul> {
        match &graph.ops[self.only_reader(id)?] {
            Op::MatMul(m) if m.prologue == Prologue::Plain(id) => Some(m),
            _ => None,
        }
    }

    /// The columns of the left operand that a value is to all its readers; `None` if another op
    /// reads it or if it is the graph's output.
    pub(super) fn operand_columns(&self, graph: &Graph, id: ValueId) -> Option<usize> {
        let columns = |step: &usize| match &graph.ops[*step] {
            Op::MatMul(m) if m.prologue == Prologue::Plain(id) && m.residual != Some(id) => {
                Some(graph.value(id).width)
            }
            Op::ExpertMatMul(m) if m.x == id && m.route != id => {
                Some(graph.expert_weight(m)?.columns)
            }
            _ => None,
        };
        let readers = self.readers.get(&id).filter(|_| id != self.output)?;
        let first = columns(readers.first()?);
        first.filter(|_| readers.iter().all(|step| columns(step) == first))
    }
}

/// Removes the ops at `steps`.
pub(super) fn remove(graph: &mut Graph, steps: &[usize]) {
    let mut step = 0;
    graph.ops.retain(|_| {
        step += 1;
        !steps.contains(&(step - 1))
    });
}
