//! Fusion: rewrites a graph into fewer ops that compute the same results. Nothing else fuses.
//!
//! Two families of fusions exist. A *prologue* lets a matmul compute its left operand from the
//! input of a norm or gated unit. An *epilogue* lets the op before a matmul write that operand: it
//! adds the residual, applies the norm or the gated unit, and quantises. The CPU uses prologues:
//! each thread needs the operand in its own cache. The GPU uses epilogues: one launch writes the
//! operand once.
//!
//! Fused work is a part of the op. The reference, costs, telemetry and tests therefore see it
//! without a GPU.

mod epilogue;
mod prologue;
mod shared_expert;
mod uses;

use std::collections::HashMap;

use crate::graph::Graph;
use crate::op::{MatMul, Op, Prologue, QkNorm, RopeAppend};
use crate::value::ValueId;
use uses::{Uses, remove};

pub use epilogue::WeightRule;

/// The fusions that a backend supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of independent switches")]
pub struct Fusions {
    /// Matmuls of the same left operand become one [`MatMul`] or
    /// [`ExpertMatMul`](crate::ExpertMatMul) with several projections (QKV, gate/up).
    pub shared_operand: bool,
    /// The shared expert becomes one of the experts where its matrices are like theirs. Condition:
    /// a token has at most this number of slots.
    pub shared_expert: Option<usize>,
    /// Head norms, RoPE of q and k and [`Op::KvAppend`] become [`Op::RopeAppend`].
    pub rope_append: bool,
    /// [`Op::RopeAppend`] becomes part of the [`Op::Attention`] that reads its queries.
    pub append_attention: bool,
    /// [`Op::Add`] becomes the residual of the matmul or the sum of experts whose output it reads,
    /// if no other op reads that output.
    pub residual: bool,
    /// [`Op::RmsNorm`] of the whole row becomes the prologue of the only matmul that reads it.
    pub norm_prologue: bool,
    /// [`Op::Glu`] becomes the prologue of the only matmul that reads it.
    pub glu_prologue: bool,
    /// [`Op::Glu`] of gate and up becomes the epilogue of the matmul that writes both.
    pub glu_epilogue: Option<WeightRule>,
    /// [`Op::Glu`] of a gate and an [`Op::RmsNorm`] becomes [`Op::GatedNorm`]. Condition: the norm
    /// is over groups of this number of columns.
    pub gated_norm: Option<usize>,
    /// [`Op::Route`] becomes the epilogue of the matmul of the router.
    pub route_epilogue: bool,
    /// [`Op::CombineExperts`] becomes part of the [`ExpertMatMul`](crate::ExpertMatMul) that writes
    /// its input.
    pub combine_epilogue: Option<WeightRule>,
    /// [`Op::RmsNorm`] of the whole row between matmuls becomes the epilogue of the first.
    pub norm_epilogue: Option<WeightRule>,
    /// [`Op::Add`] and [`Op::RmsNorm`] of the whole row become part of the [`Op::AllReduce`] before
    /// them, the norm if only matmuls read it.
    pub sum_epilogue: bool,
    /// [`Op::RmsNorm`] between [`Op::Embed`] and the only matmul that reads the norm becomes part
    /// of [`Op::Embed`].
    pub embed_norm: bool,
    /// An output of a norm, a gated unit or attention that only matmuls read is stored as their
    /// operand ([`Storage::MatMulOperand`](crate::Storage)). Condition: a row, or a
    /// head of attention, is a multiple of this number of elements.
    pub operand_block: Option<usize>,
}

impl Fusions {
    /// No fusion.
    pub const NONE: Self = Self {
        shared_operand: false,
        shared_expert: None,
        rope_append: false,
        append_attention: false,
        residual: false,
        norm_prologue: false,
        glu_prologue: false,
        glu_epilogue: None,
        gated_norm: None,
        route_epilogue: false,
        combine_epilogue: None,
        norm_epilogue: None,
        sum_epilogue: false,
        embed_norm: false,
        operand_block: None,
    };
    /// All fusions into the reading op: matmuls compute their operands.
    pub const PROLOGUES: Self = Self {
        shared_operand: true,
        rope_append: true,
        residual: true,
        norm_prologue: true,
        glu_prologue: true,
        ..Self::NONE
    };
    /// All fusions into the writing op: matmuls read finished operands.
    pub const EPILOGUES: Self = Self {
        norm_prologue: false,
        glu_prologue: false,
        shared_expert: Some(usize::MAX),
        glu_epilogue: Some(WeightRule::ANY),
        append_attention: true,
        gated_norm: Some(128),
        route_epilogue: true,
        combine_epilogue: Some(WeightRule::ANY),
        norm_epilogue: Some(WeightRule::ANY),
        sum_epilogue: true,
        embed_norm: true,
        operand_block: Some(32),
        ..Self::PROLOGUES
    };
    /// All fusions. An op that could become an epilogue or a prologue becomes an epilogue.
    pub const ALL: Self = Self { norm_prologue: true, glu_prologue: true, ..Self::EPILOGUES };

    /// The subsets that a test of these fusions covers: none, each fusion alone, prologues only,
    /// epilogues only, and all.
    pub fn subsets(self) -> Vec<Self> {
        let none = Self::NONE;
        let epilogues_only = Self { norm_prologue: false, glu_prologue: false, ..self };
        let prologues_only = Self {
            shared_expert: None,
            append_attention: false,
            glu_epilogue: None,
            gated_norm: None,
            route_epilogue: false,
            combine_epilogue: None,
            norm_epilogue: None,
            sum_epilogue: false,
            embed_norm: false,
            operand_block: None,
            ..self
        };
        let mut subsets = vec![none];
        for subset in [
            Self { shared_operand: self.shared_operand, ..none },
            Self { shared_expert: self.shared_expert, ..none },
            Self { rope_append: self.rope_append, ..none },
            Self { append_attention: self.append_attention, rope_append: self.rope_append, ..none },
            Self { residual: self.residual, ..none },
            Self { norm_prologue: self.norm_prologue, ..none },
            Self { glu_prologue: self.glu_prologue, ..none },
            Self { glu_epilogue: self.glu_epilogue, shared_operand: self.shared_operand, ..none },
            Self { gated_norm: self.gated_norm, ..none },
            Self { route_epilogue: self.route_epilogue, ..none },
            Self { combine_epilogue: self.combine_epilogue, ..none },
            Self { norm_epilogue: self.norm_epilogue, ..none },
            Self { sum_epilogue: self.sum_epilogue, ..none },
            Self { embed_norm: self.embed_norm, ..none },
            Self { operand_block: self.operand_block, ..none },
            prologues_only,
            epilogues_only,
            self,
        ] {
            if !subsets.contains(&subset) {
                subsets.push(subset);
            }
        }
        subsets
    }
}

/// Rewrites a graph into the fused ops that a backend supports. Weights and values keep their ids.
pub fn fuse(mut graph: Graph, fusions: Fusions) -> Graph {
    if fusions == Fusions::NONE {
        return graph;
    }
    graph.layer_ends.clear();
    if let Some(most_slots) = fusions.shared_expert {
        shared_expert::shared_expert(&mut graph, most_slots);
    }
    if fusions.rope_append {
        rope_append(&mut graph);
    }
    if fusions.append_attention {
        append_attention(&mut graph);
    }
    if fusions.shared_operand {
        shared_operand(&mut graph);
        shared_expert_operand(&mut graph);
    }
    if fusions.residual {
        prologue::residual(&mut graph);
    }
    if let Some(rule) = fusions.glu_epilogue {
        epilogue::glu_epilogue(&mut graph, rule);
    }
    if let Some(group) = fusions.gated_norm {
        epilogue::gated_norm(&mut graph, group);
    }
    if fusions.route_epilogue {
        epilogue::route_epilogue(&mut graph);
    }
    if let Some(rule) = fusions.combine_epilogue {
        epilogue::combine_epilogue(&mut graph, rule);
    }
    if let Some(rule) = fusions.norm_epilogue {
        epilogue::norm_epilogue(&mut graph, rule);
    }
    if fusions.sum_epilogue {
        epilogue::sum_epilogue(&mut graph);
    }
    if fusions.embed_norm {
        epilogue::embed_norm(&mut graph);
    }
    if fusions.norm_prologue || fusions.glu_prologue {
        prologue::prologue(&mut graph, fusions.norm_prologue, fusions.glu_prologue);
    }
    if let Some(block) = fusions.operand_block {
        epilogue::store_operands(&mut graph, block);
    }
    graph
}

/// `x·Wq, x·Wk, x·Wv` → one matmul with three projections, at the position of the first.
fn shared_operand(graph: &mut Graph) {
    let mut first: HashMap<ValueId, usize> = HashMap::new();
    let mut ops: Vec<Op> = Vec::with_capacity(graph.ops.len());
    for op in graph.ops.drain(..) {
        if let Op::MatMul(MatMul {
            prologue: Prologue::Plain(x),
            projections,
            residual: None,
            ..
        }) = &op
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

/// Gate and up of the selected experts → one op, at the position of the first. Unlike those of
/// [`MatMul`], its projections have one shape and format.
fn shared_expert_operand(graph: &mut Graph) {
    let mut ops: Vec<Op> = Vec::with_capacity(graph.ops.len());
    for op in std::mem::take(&mut graph.ops) {
        if let Op::ExpertMatMul(m) = &op
            && let Some(earlier) = ops.iter_mut().rev().find_map(|op| match op {
                Op::ExpertMatMul(earlier) => Some(earlier),
                _ => None,
            })
            && (earlier.x, earlier.route) == (m.x, m.route)
            && graph.expert_weight(earlier) == graph.expert_weight(m)
        {
            earlier.projections.extend(m.projections.iter().cloned());
        } else {
            ops.push(op);
        }
    }
    graph.ops = ops;
}

/// `append(rope(norm(k)), v)` and `rope(norm(q))` of the next attention op → one op.
fn rope_append(graph: &mut Graph) {
    let uses = Uses::of(graph);
    let mut removed = Vec::new();
    for step in 0..graph.ops.len().saturating_sub(1) {
        let Op::KvAppend { k, v: Some(v), layer } = graph.ops[step] else { continue };
        let Op::Attention { q, attention, .. } = &graph.ops[step + 1] else { continue };
        if attention.layer != layer {
            continue;
        }
        let q_out = *q;
        let (Some(k_rope), Some(q_rope)) =
            (uses.writer_of_only_read(k), uses.writer_of_only_read(q_out))
        else {
            continue;
        };
        let (Op::Rope { x: k, rope, .. }, Op::Rope { x: q, rope: q_frequencies, .. }) =
            (&graph.ops[k_rope], &graph.ops[q_rope])
        else {
            continue;
        };
        // The fused op has a single head size, which is that of the cache, and one norm weight for
        // all heads.
        if rope != q_frequencies || rope.head_dim != attention.head_dim {
            continue;
        }
        let (mut q, mut k, rope) = (*q, *k, rope.clone());
        removed.extend([k_rope, q_rope]);
        let mut qk_norm = None;
        if let (Some(k_norm), Some(q_norm)) =
            (uses.writer_of_only_read(k), uses.writer_of_only_read(q))
            && let (
                &Op::RmsNorm { x: k_in, weight: k_weight, eps, .. },
                &Op::RmsNorm { x: q_in, weight: q_weight, eps: q_eps, .. },
            ) = (&graph.ops[k_norm], &graph.ops[q_norm])
            && eps.to_bits() == q_eps.to_bits()
            && [k_weight, q_weight]
                .map(|w| graph.weight(w))
                .iter()
                .all(|w| (w.rows, w.columns) == (1, rope.head_dim))
        {
            qk_norm = Some(QkNorm { q: q_weight, k: k_weight, eps });
            (q, k) = (q_in, k_in);
            removed.extend([k_norm, q_norm]);
        }
        let heads = RopeAppend { q, k, v, qk_norm, rope, layer };
        graph.ops[step] = Op::RopeAppend { heads, q_out };
    }
    remove(graph, &removed);
}

/// `rope(norm(q))` and the append of keys and values, and the attention that follows → one op.
fn append_attention(graph: &mut Graph) {
    let mut removed = Vec::new();
    for step in 1..graph.ops.len() {
        let (before, rest) = graph.ops.split_at_mut(step);
        if let (Op::RopeAppend { heads, q_out }, Op::Attention { append, q, attention, .. }) =
            (&before[step - 1], &mut rest[0])
            && q == q_out
            && attention.layer == heads.layer
        {
            *append = Some(heads.clone());
            removed.push(step - 1);
        }
    }
    remove(graph, &removed);
}
