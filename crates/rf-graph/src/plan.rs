//! Buffer assignment: values whose lifetimes do not overlap share memory.

use crate::graph::Graph;
use crate::value::ValueId;

/// The place of each value in one arena.
///
/// Offsets and sizes are in f32 per row of the batch: with `n` rows a value of `w` floats per row
/// occupies `[offset · n, (offset + w) · n)`. One plan is valid for every batch size.
#[derive(Clone, Debug)]
pub struct Plan {
    offsets: Vec<Option<usize>>,
    floats_per_row: usize,
}

impl Plan {
    /// Assigns offsets to values of one f32 per column.
    pub fn new(graph: &Graph) -> Self {
        Self::with_floats(graph, |id| graph.value(id).width)
    }

    /// Assigns offsets to values of `floats(id)` f32 per row, first fit in the order of the
    /// ops. A value lives from the op that writes it to the last op that reads it. Scratch lives
    /// only during its op, the output to the end.
    pub fn with_floats(graph: &Graph, floats: impl Fn(ValueId) -> usize) -> Self {
        let mut last_use = vec![None; graph.values.len()];
        for (step, op) in graph.ops.iter().enumerate() {
            for id in op.inputs().into_iter().chain(op.written()) {
                last_use[id.index()] = Some(step);
            }
        }
        last_use[graph.output.index()] = Some(usize::MAX);

        let mut plan = Self { offsets: vec![None; graph.values.len()], floats_per_row: 0 };
        let mut live: Vec<ValueId> = Vec::new(); // ordered by offset
        for (step, op) in graph.ops.iter().enumerate() {
            for out in op.written() {
                let width = floats(out);
                let mut offset = 0;
                let mut place = live.len();
                for (i, other) in live.iter().enumerate() {
                    let start = plan.offset(*other);
                    if offset + width <= start {
                        place = i;
                        break;
                    }
                    offset = start + floats(*other);
                }
                plan.offsets[out.index()] = Some(offset);
                plan.floats_per_row = plan.floats_per_row.max(offset + width);
                live.insert(place, out);
            }
            live.retain(|id| last_use[id.index()].is_some_and(|last| last > step));
        }
        plan
    }

    /// Offset of a value in f32 per row.
    ///
    /// # Panics
    ///
    /// If no op of the graph writes the value because it was fused away.
    pub fn offset(&self, id: ValueId) -> usize {
        self.offsets[id.index()].expect("a value that some op writes")
    }

    /// Size of the arena in f32 per row of the batch.
    pub fn floats_per_row(&self) -> usize {
        self.floats_per_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, GraphBuilder, Op, Weight};

    fn weight(g: &mut GraphBuilder, rows: usize, columns: usize) -> crate::WeightId {
        g.weight(Weight::f32("w", rows, columns, vec![0.0; rows * columns]))
    }

    #[test]
    fn values_alive_together_never_overlap_and_dead_ones_are_reused() {
        let mut g = GraphBuilder::new();
        let (table, gate_w, up_w, down_w) = (
            weight(&mut g, 3, 8),
            weight(&mut g, 32, 8),
            weight(&mut g, 32, 8),
            weight(&mut g, 8, 32),
        );
        let mut x = g.embed(table, 1.0);
        for _ in 0..12 {
            let gate = g.matmul(x, gate_w);
            let up = g.matmul(x, up_w);
            let h = g.glu(Activation::Silu, gate, up);
            let down = g.matmul(h, down_w);
            x = g.add(x, down);
        }
        let (graph, _) = g.finish(x);
        let plan = Plan::new(&graph);

        // x, gate, up and h are alive together in the middle of a layer. First fit leaves gaps of
        // the residual's width, and their number does not grow with the number of layers.
        let least = 8 + 3 * 32;
        assert!((least..=least + 2 * 8).contains(&plan.floats_per_row()), "{plan:?}");
        let ops = graph.ops();
        for (step, op) in ops.iter().enumerate() {
            for out in op.outputs() {
                let range = plan.offset(out)..plan.offset(out) + graph.value(out).width;
                let still_read = |id: &ValueId| ops[step..].iter().any(|o| o.inputs().contains(id));
                let written = ops[..step].iter().flat_map(Op::outputs).filter(still_read);
                for other in written {
                    let start = plan.offset(other);
                    let end = start + graph.value(other).width;
                    assert!(end <= range.start || range.end <= start, "{other:?} {out:?}");
                }
            }
        }
    }
}
