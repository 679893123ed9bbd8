//! Fusions into the matmul that reads a value, and fusions of the residual.

use super::uses::{Uses, remove};
use crate::graph::Graph;
use crate::op::{MatMul, Op, Prologue};

/// `rms_norm(x)·W` and `glu(g, u)·W` → the matmul computes its operand.
pub(super) fn prologue(graph: &mut Graph, takes_norm: bool, takes_glu: bool) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::MatMul(MatMul { prologue: Prologue::Plain(x), .. }) = &graph.ops[step] else {
            continue;
        };
        let Some(writer) = uses.writer_of_only_read(*x) else { continue };
        let width = graph.value(*x).width;
        let fused = match graph.ops[writer] {
            // A prologue normalises whole rows only.
            Op::RmsNorm { x, weight, eps, .. }
                if takes_norm && graph.weight(weight).columns == width =>
            {
                Prologue::RmsNorm { x, weight, eps }
            }
            Op::Glu { activation, gate, up, .. } if takes_glu => {
                Prologue::Glu { activation, gate, up }
            }
            _ => continue,
        };
        if let Op::MatMul(m) = &mut graph.ops[step] {
            m.prologue = fused;
        }
        removed.push(writer);
    }
    remove(graph, &removed);
}

/// `x + y·W` → the matmul adds x; `x + Σ p·y` over experts likewise.
pub(super) fn residual(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Add { a, b, out } = graph.ops[step] else { continue };
        for (matmul, x) in [(b, a), (a, b)] {
            let Some(writer) = uses.writer_of_only_read(matmul) else { continue };
            // The residual must be written before the matmul runs.
            if uses.writer.get(&x).is_none_or(|w| *w >= writer) {
                continue;
            }
            let (residual, output) = match &mut graph.ops[writer] {
                Op::MatMul(MatMul { residual, projections, .. }) => {
                    match projections.as_mut_slice() {
                        [projection] => (residual, &mut projection.out),
                        _ => continue,
                    }
                }
                Op::CombineExperts { residual, out, .. } => (residual, out),
                _ => continue,
            };
            if residual.is_none() {
                *residual = Some(x);
                *output = out;
                removed.push(step);
                break;
            }
        }
    }
    remove(graph, &removed);
}
