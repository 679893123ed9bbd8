//! Fusions into the op that writes the operand of a matmul.

use super::uses::{Uses, remove};
use crate::graph::Graph;
use crate::op::{Combine, Epilogue, ExpertMatMul, MatMul, Op, RowNorm};
use crate::value::{Storage, ValueId};
use crate::weight::WeightShape;

/// A condition on the weights of a matmul with an epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightRule {
    /// True if the format must be quantised.
    pub quantized: bool,
    /// The number of output features must be a multiple of this.
    pub row_multiple: usize,
}

impl WeightRule {
    /// Any weight.
    pub const ANY: Self = Self { quantized: false, row_multiple: 1 };

    fn accepts(self, weight: WeightShape) -> bool {
        let accepts_format = !self.quantized || weight.dtype.block_elements() > 1;
        accepts_format && weight.rows.is_multiple_of(self.row_multiple)
    }
}

/// `glu(x·G, x·U)` → the matmul applies the gated unit to its two projections. Those of experts may
/// have biases.
pub(super) fn glu_epilogue(graph: &mut Graph, rule: WeightRule) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Glu { activation, gate, up, out } = graph.ops[step] else { continue };
        let Some(writer) = uses.writer_of_only_read(gate) else { continue };
        if uses.writer_of_only_read(up) != Some(writer) {
            continue;
        }
        let is_fusible = match &graph.ops[writer] {
            Op::MatMul(m) => {
                let [a, b] = m.projections.as_slice() else { continue };
                let weight = graph.weight(a.weight);
                let is_plain = a.bias.is_none() && b.bias.is_none() && m.epilogue == Epilogue::None;
                (a.out, b.out) == (gate, up)
                    && weight == graph.weight(b.weight)
                    && is_plain
                    && rule.accepts(weight)
            }
            Op::ExpertMatMul(m) => {
                let [a, b] = m.projections.as_slice() else { continue };
                let accepted = graph.expert_weight(m).is_some_and(|weight| rule.accepts(weight));
                (a.out, b.out) == (gate, up) && m.glu.is_none() && accepted
            }
            _ => false,
        };
        if !is_fusible {
            continue;
        }
        match &mut graph.ops[writer] {
            Op::ExpertMatMul(m) => m.glu = Some((activation, out)),
            op => set_epilogue(op, Epilogue::Glu { activation, out }),
        }
        removed.push(step);
    }
    remove(graph, &removed);
}

/// `glu(gate, rms_norm(x))` → one op.
pub(super) fn gated_norm(graph: &mut Graph, group: usize) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Glu { activation, gate, up, out } = graph.ops[step] else { continue };
        let Some(writer) = uses.writer_of_only_read(up) else { continue };
        let Op::RmsNorm { x, weight, eps, .. } = graph.ops[writer] else { continue };
        let shape = graph.weight(weight);
        if gate != up && (shape.rows, shape.columns) == (1, group) {
            graph.ops[step] = Op::GatedNorm { activation, gate, x, weight, eps, out };
            removed.push(writer);
        }
    }
    remove(graph, &removed);
}

/// `route(x·W)` → the matmul of the router, and of the shared expert's gate, selects the experts.
pub(super) fn route_epilogue(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Route { logits, shared_gate, router, out } = &graph.ops[step] else { continue };
        let inputs = || std::iter::once(*logits).chain(*shared_gate);
        let Some(writer) = uses.writer_of_only_read(*logits) else { continue };
        let Op::MatMul(m) = &graph.ops[writer] else { continue };
        let is_only_reader = inputs().all(|id| uses.only_reader(id) == Some(step));
        let is_whole = m.projections.iter().map(|projection| projection.out).eq(inputs());
        let is_plain = m.residual.is_none() && m.epilogue == Epilogue::None;
        if is_only_reader && is_whole && is_plain {
            let epilogue = Epilogue::Route { router: router.clone(), out: *out };
            set_epilogue(&mut graph.ops[writer], epilogue);
            removed.push(step);
        }
    }
    remove(graph, &removed);
}

/// `Σ p·(x·W)` over experts → the matmul of the experts sums up.
pub(super) fn combine_epilogue(graph: &mut Graph, rule: WeightRule) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::CombineExperts { x, route, residual, out } = graph.ops[step] else { continue };
        let Some(writer) = uses.writer_of_only_read(x) else { continue };
        // The residual must be written before the matmul runs.
        let is_ready = residual.is_none_or(|id| uses.writer.get(&id).is_some_and(|w| *w < writer));
        let Op::ExpertMatMul(m) = &graph.ops[writer] else { continue };
        let is_plain = m.projections.len() == 1 && m.glu.is_none() && m.route == route;
        let accepted = graph.expert_weight(m).is_some_and(|weight| rule.accepts(weight));
        if !(is_ready && is_plain && accepted) {
            continue;
        }
        if let Op::ExpertMatMul(m) = &mut graph.ops[writer] {
            m.combine = Some(Combine { residual, out, norm: None });
        }
        removed.push(step);
    }
    remove(graph, &removed);
}

/// `rms_norm(x·V)·W` → the first matmul also writes the operand of the second, and of others.
pub(super) fn norm_epilogue(graph: &mut Graph, rule: WeightRule) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 1..graph.ops.len() {
        let Some((x, norm)) = operand_norm(graph, &uses, step) else { continue };
        let is_fusible = match &graph.ops[step - 1] {
            Op::MatMul(m) => {
                let [projection] = m.projections.as_slice() else { continue };
                projection.out == x
                    && m.epilogue == Epilogue::None
                    && rule.accepts(graph.weight(projection.weight))
            }
            Op::ExpertMatMul(m) => {
                let accepted = graph.expert_weight(m).is_some_and(|weight| rule.accepts(weight));
                m.combine.is_some_and(|sum| sum.out == x && sum.norm.is_none()) && accepted
            }
            _ => false,
        };
        if !is_fusible {
            continue;
        }
        match &mut graph.ops[step - 1] {
            Op::ExpertMatMul(m) => {
                m.combine = m.combine.map(|sum| Combine { norm: Some(norm), ..sum });
            }
            op => set_epilogue(op, Epilogue::RmsNorm(norm)),
        }
        removed.push(step);
    }
    remove(graph, &removed);
}

/// `x + Σₚ yₚ` over the parts of a divided program, and its norm → the sum adds x and writes the
/// operand of the matmuls that read the norm.
pub(super) fn sum_epilogue(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Add { a, b, out: added } = graph.ops[step] else { continue };
        for (sum, x) in [(b, a), (a, b)] {
            let Some(writer) = uses.writer_of_only_read(sum) else { continue };
            // The residual must be written before the sum.
            let is_ready = uses.writer.get(&x).is_some_and(|w| *w < writer);
            if let Op::AllReduce { residual: residual @ None, out, .. } = &mut graph.ops[writer]
                && is_ready
            {
                (*residual, *out) = (Some(x), added);
                removed.push(step);
                break;
            }
        }
    }
    remove(graph, &removed);

    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 1..graph.ops.len() {
        let Some((x, row_norm)) = operand_norm(graph, &uses, step) else { continue };
        if let Op::AllReduce { norm: norm @ None, out, .. } = &mut graph.ops[step - 1]
            && *out == x
        {
            *norm = Some(row_norm);
            removed.push(step);
        }
    }
    remove(graph, &removed);
}

/// `rms_norm(embed(ids))·W` → embedding also writes the operand of the matmul.
pub(super) fn embed_norm(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 1..graph.ops.len() {
        let Some((x, row_norm)) = row_norm(graph, step) else { continue };
        if uses.matmul_of(graph, row_norm.out).is_none() {
            continue;
        }
        if let Op::Embed { norm, out, .. } = &mut graph.ops[step - 1]
            && *out == x
        {
            *norm = Some(row_norm);
            removed.push(step);
        }
    }
    remove(graph, &removed);
}

/// The input and the description of an op that is an RMSNorm of whole rows.
fn row_norm(graph: &Graph, step: usize) -> Option<(ValueId, RowNorm)> {
    let Op::RmsNorm { x, weight, eps, out } = graph.ops[step] else { return None };
    let is_whole = graph.weight(weight).columns == graph.value(x).width;
    is_whole.then_some((x, RowNorm { weight, eps, out }))
}

/// As [`row_norm`], if the norm is the left operand of all ops that read it.
fn operand_norm(graph: &Graph, uses: &Uses, step: usize) -> Option<(ValueId, RowNorm)> {
    let (x, norm) = row_norm(graph, step)?;
    let columns = uses.operand_columns(graph, norm.out);
    (columns == Some(graph.value(norm.out).width)).then_some((x, norm))
}

fn set_epilogue(op: &mut Op, epilogue: Epilogue) {
    if let Op::MatMul(m) = op {
        m.epilogue = epilogue;
    }
}

/// Marks the values that only matmuls read, as their left operand.
pub(super) fn store_operands(graph: &mut Graph, block: usize) {
    let uses = Uses::of(graph);
    for step in 0..graph.ops.len() {
        let (id, elements) = match &graph.ops[step] {
            Op::RmsNorm { .. } => match row_norm(graph, step) {
                Some((x, norm)) => (norm.out, graph.value(x).width),
                None => continue,
            },
            Op::Glu { out, .. }
            | Op::GatedNorm { out, .. }
            | Op::MatMul(MatMul {
                epilogue: Epilogue::RmsNorm(RowNorm { out, .. }) | Epilogue::Glu { out, .. },
                ..
            })
            | Op::Embed { norm: Some(RowNorm { out, .. }), .. }
            | Op::AllReduce { norm: Some(RowNorm { out, .. }), .. }
            | Op::ExpertMatMul(
                ExpertMatMul { glu: Some((_, out)), .. }
                | ExpertMatMul {
                    combine: Some(Combine { norm: Some(RowNorm { out, .. }), .. }), ..
                },
            ) => (*out, graph.value(*out).width),
            Op::Attention { attention, out, .. } if attention.latent_dim.is_none() => {
                (*out, attention.head_dim)
            }
            _ => continue,
        };
        let columns = uses.operand_columns(graph, id);
        if elements.is_multiple_of(block) && columns.is_some_and(|c| c.is_multiple_of(block)) {
            graph.values[id.index()].storage = Storage::MatMulOperand;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fusions, GraphBuilder, Weight, WeightId, fuse};

    const WIDTH: usize = 8;

    fn matrix(g: &mut GraphBuilder, rows: usize, columns: usize) -> WeightId {
        g.weight(Weight::f32("w", rows, columns, vec![0.5; rows * columns]))
    }

    fn square(g: &mut GraphBuilder) -> WeightId {
        matrix(g, WIDTH, WIDTH)
    }

    fn input(g: &mut GraphBuilder) -> ValueId {
        let table = matrix(g, 3, WIDTH);
        g.embed(table, 1.0)
    }

    /// Names of the ops that remain after fusing the graph of `build`.
    fn fused(build: impl Fn(&mut GraphBuilder) -> ValueId) -> Vec<&'static str> {
        let mut g = GraphBuilder::new();
        let output = build(&mut g);
        fuse(g.finish(output).0, Fusions::EPILOGUES).ops().iter().map(Op::name).collect()
    }

    #[test]
    fn a_sum_over_parts_adds_the_residual_and_writes_the_norm() {
        let build = |reads_sum_twice: bool| {
            fused(|g| {
                let x = input(g);
                let w = square(g);
                let y = g.matmul(x, w);
                let sum = g.all_reduce(y);
                let x = g.add(x, sum);
                let weight = matrix(g, 1, WIDTH);
                let normalised = g.rms_norm(x, weight, 1e-5);
                let w = square(g);
                let y = g.matmul(normalised, w);
                let y = if reads_sum_twice { g.mul(y, sum) } else { y };
                let y = g.all_reduce(y);
                let x = g.add(y, x);
                // The norm is not the operand of a matmul.
                let normalised = g.rms_norm(x, weight, 1e-5);
                g.mul(x, normalised)
            })
        };
        let fused =
            ["embed", "matmul", "all_reduce+rms_norm", "matmul", "all_reduce", "rms_norm", "mul"];
        assert_eq!(build(false), fused);
        // The norm of a sum without the residual would be another one.
        assert_eq!(build(true)[2..5], ["all_reduce", "add", "rms_norm"]);
    }

    #[test]
    fn a_residual_that_is_computed_after_a_sum_is_added_separately() {
        let ops = fused(|g| {
            let x = input(g);
            let sum = g.all_reduce(x);
            let late = g.scale(x, 2.0);
            g.add(late, sum)
        });
        assert_eq!(ops, ["embed", "all_reduce", "scale", "add"]);
    }
}
