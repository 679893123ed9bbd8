//! Fusion: the same numbers in fewer ops.

use std::collections::HashMap;

use crate::graph::Graph;
use crate::op::{MatMul, Op, Prologue, QkNorm, ValueId};

/// Which fused ops a backend takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of independent switches")]
pub struct Fusions {
    /// Products of the same left operand become one [`MatMul`] with several projections (QKV,
    /// gate/up).
    pub shared_operand: bool,
    /// [`Op::RmsNorm`] of the whole row becomes the prologue of the product that alone reads it.
    pub norm_prologue: bool,
    /// [`Op::Glu`] becomes the prologue of the product that alone reads it.
    pub glu_prologue: bool,
    /// [`Op::Add`] becomes the epilogue of the product that it alone reads.
    pub residual: bool,
    /// Head norms, RoPE of q and k and [`Op::KvAppend`] become [`Op::RopeAppend`].
    pub rope_append: bool,
}

impl Fusions {
    /// None.
    pub const NONE: Self = Self {
        shared_operand: false,
        norm_prologue: false,
        glu_prologue: false,
        residual: false,
        rope_append: false,
    };
    /// All.
    pub const ALL: Self = Self {
        shared_operand: true,
        norm_prologue: true,
        glu_prologue: true,
        residual: true,
        rope_append: true,
    };
}

/// Rewrites a graph into the fused ops that a backend takes. Weights and values keep their ids.
pub fn fuse(mut graph: Graph, fusions: Fusions) -> Graph {
    if fusions.rope_append {
        rope_append(&mut graph);
    }
    if fusions.shared_operand {
        shared_operand(&mut graph);
    }
    if fusions.norm_prologue || fusions.glu_prologue {
        prologue(&mut graph, fusions);
    }
    if fusions.residual {
        residual(&mut graph);
    }
    graph
}

/// Which op writes each value, and how many reads it has (the graph's output counts as one).
struct Uses {
    writer: HashMap<ValueId, usize>,
    reads: HashMap<ValueId, usize>,
}

impl Uses {
    fn of(graph: &Graph) -> Self {
        let mut uses = Self { writer: HashMap::new(), reads: HashMap::new() };
        *uses.reads.entry(graph.output).or_default() += 1;
        for (step, op) in graph.ops.iter().enumerate() {
            uses.writer.extend(op.outputs().into_iter().map(|out| (out, step)));
            for input in op.inputs() {
                *uses.reads.entry(input).or_default() += 1;
            }
        }
        uses
    }

    /// The op that writes a value which nothing but one op reads.
    fn only_read_of(&self, id: ValueId) -> Option<usize> {
        if self.reads.get(&id) == Some(&1) { self.writer.get(&id).copied() } else { None }
    }
}

/// `x·Wq, x·Wk, x·Wv` → one product with three projections, at the place of the first.
fn shared_operand(graph: &mut Graph) {
    let mut first: HashMap<ValueId, usize> = HashMap::new();
    let mut ops: Vec<Op> = Vec::with_capacity(graph.ops.len());
    for op in graph.ops.drain(..) {
        if let Op::MatMul(MatMul { prologue: Prologue::Plain(x), projections, residual: None }) =
            &op
        {
            if let Some(&step) = first.get(x)
                && let Op::MatMul(earlier) = &mut ops[step]
            {
                earlier.projections.extend(projections.iter().cloned());
                continue;
            }
            first.insert(*x, ops.len());
        }
        ops.push(op);
    }
    graph.ops = ops;
}

/// `rms_norm(x)·W` and `glu(g, u)·W` → the product does it on its operand.
fn prologue(graph: &mut Graph, fusions: Fusions) {
    let uses = Uses::of(graph);
    let mut gone = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::MatMul(MatMul { prologue: Prologue::Plain(x), .. }) = &graph.ops[step] else {
            continue;
        };
        let Some(writer) = uses.only_read_of(*x) else { continue };
        let width = graph.value(*x).width;
        let fused = match graph.ops[writer] {
            // A norm over part of a row stays: the prologue is defined over whole rows.
            Op::RmsNorm { x, weight, eps, .. }
                if fusions.norm_prologue && graph.weight_columns(weight) == width =>
            {
                Prologue::RmsNorm { x, weight, eps }
            }
            Op::Glu { activation, gate, up, .. } if fusions.glu_prologue => {
                Prologue::Glu { activation, gate, up }
            }
            _ => continue,
        };
        if let Op::MatMul(m) = &mut graph.ops[step] {
            m.prologue = fused;
        }
        gone.push(writer);
    }
    remove(graph, &gone);
}

/// `x + y·W` → the product adds x.
fn residual(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut gone = Vec::new();
    for step in 0..graph.ops.len() {
        let Op::Add { a, b, out } = graph.ops[step] else { continue };
        for (product, x) in [(b, a), (a, b)] {
            let Some(writer) = uses.only_read_of(product) else { continue };
            // The residual must exist when the product runs.
            if uses.writer.get(&x).is_none_or(|w| *w >= writer) {
                continue;
            }
            if let Op::MatMul(m) = &mut graph.ops[writer]
                && m.residual.is_none()
                && let [projection] = m.projections.as_mut_slice()
            {
                m.residual = Some(x);
                projection.out = out;
                gone.push(step);
                break;
            }
        }
    }
    remove(graph, &gone);
}

/// `append(rope(norm(k)), v)` and `rope(norm(q))` of the attention that follows → one op.
fn rope_append(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut gone = Vec::new();
    for step in 0..graph.ops.len().saturating_sub(1) {
        let Op::KvAppend { k, v, layer } = graph.ops[step] else { continue };
        let Op::Attention { q, attention, .. } = &graph.ops[step + 1] else { continue };
        if attention.layer != layer {
            continue;
        }
        let q_out = *q;
        let (Some(k_rope), Some(q_rope)) = (uses.only_read_of(k), uses.only_read_of(q_out)) else {
            continue;
        };
        let (Op::Rope { x: k, rope, .. }, Op::Rope { x: q, rope: q_frequencies, .. }) =
            (&graph.ops[k_rope], &graph.ops[q_rope])
        else {
            continue;
        };
        // The fused op knows one head size: that of the cache.
        if rope != q_frequencies || rope.head_dim != attention.head_dim {
            continue;
        }
        let (mut q, mut k, rope) = (*q, *k, rope.clone());
        gone.extend([k_rope, q_rope]);
        let mut qk_norm = None;
        if let (Some(k_norm), Some(q_norm)) = (uses.only_read_of(k), uses.only_read_of(q))
            && let (
                &Op::RmsNorm { x: k_in, weight: k_weight, eps, .. },
                &Op::RmsNorm { x: q_in, weight: q_weight, eps: q_eps, .. },
            ) = (&graph.ops[k_norm], &graph.ops[q_norm])
            && eps.to_bits() == q_eps.to_bits()
            && [k_weight, q_weight].iter().all(|w| graph.weight_columns(*w) == rope.head_dim)
        {
            qk_norm = Some(QkNorm { q: q_weight, k: k_weight, eps });
            (q, k) = (q_in, k_in);
            gone.extend([k_norm, q_norm]);
        }
        graph.ops[step] = Op::RopeAppend { q, k, v, qk_norm, rope, layer, q_out };
    }
    remove(graph, &gone);
}

fn remove(graph: &mut Graph, steps: &[usize]) {
    let mut step = 0;
    graph.ops.retain(|_| {
        step += 1;
        !steps.contains(&(step - 1))
    });
}
