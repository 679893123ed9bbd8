//! Steps: ops with the data that the CPU precomputes for them.

use rf_graph::{
    Attention, BackendError, CausalConv, DeltaNet, Epilogue, Op, QkNorm, Rope, SelectiveScan,
    StateSpace, ValueId,
};

use super::attention::AppendItem;
use super::experts::ExpertMatMulStep;
use super::heads::HeadMatMulStep;
use super::matmul::{MatMulStep, Scratch};
use super::phases::StepPart;
use super::recurrent::Tiles;
use super::storage::StoragePlan;
use super::{Region, RopeTable, rows};
use crate::simd::Isa;
use crate::simd::recurrence::MAX_KEY_DIM;
use crate::simd::rope::Rotate;
use crate::team::{PieceDivision, Share};

/// One op with its precomputed data.
pub(super) enum Step {
    MatMul(MatMulStep),
    ExpertMatMul(ExpertMatMulStep),
    HeadMatMul(HeadMatMulStep),
    Rope {
        x: ValueId,
        rope: usize,
        out: ValueId,
    },
    RopeAppend(RopeAppend),
    KvAppend {
        k: ValueId,
        v: Option<ValueId>,
        layer: usize,
    },
    Attention(AttentionStep),
    LatentAttention(AttentionStep),
    CausalConv(CausalConv),
    DeltaNet(DeltaNet),
    StateSpace(StateSpace),
    SelectiveScan(SelectiveScan),
    AllReduce {
        x: ValueId,
        out: ValueId,
    },
    /// An op of [`rows`], without precomputed data, and the value that it computes.
    Rows(Op, Option<ValueId>),
}

/// [`Op::Attention`] with its geometry.
pub(super) struct AttentionStep {
    pub(super) q: ValueId,
    pub(super) attention: Attention,
    pub(super) out: ValueId,
}

/// [`Op::RopeAppend`] with its precomputed data.
pub(super) struct RopeAppend {
    pub(super) q: ValueId,
    pub(super) k: ValueId,
    pub(super) v: ValueId,
    pub(super) qk_norm: Option<QkNorm>,
    pub(super) rope: usize,
    pub(super) layer: usize,
    pub(super) q_out: ValueId,
}

impl Step {
    pub(super) fn new(
        op: &Op,
        storage: &StoragePlan<'_>,
        isa: Isa,
        ropes: &mut Vec<RopeTable>,
    ) -> Result<Self, BackendError> {
        let mut table = |rope: &Rope| {
            ropes.iter().position(|known| known.rope == *rope).unwrap_or_else(|| {
                ropes.push(RopeTable::new(rope.clone()));
                ropes.len() - 1
            })
        };
        Ok(match op.clone() {
            Op::MatMul(m) if m.epilogue == Epilogue::None => {
                Self::MatMul(MatMulStep::new(m, storage, isa))
            }
            Op::ExpertMatMul(m) if m.glu.is_none() && m.combine.is_none() => {
                Self::ExpertMatMul(ExpertMatMulStep::new(m, storage, isa))
            }
            Op::HeadMatMul { x, weights, out } => {
                Self::HeadMatMul(HeadMatMulStep::new(x, weights, out, storage, isa))
            }
            Op::Rope { x, rope, out } => Self::Rope { x, rope: table(&rope), out },
            Op::RopeAppend { heads, q_out } => {
                let rf_graph::RopeAppend { q, k, v, qk_norm, rope, layer } = heads;
                let rope = table(&rope);
                Self::RopeAppend(RopeAppend { q, k, v, qk_norm, rope, layer, q_out })
            }
            Op::KvAppend { k, v, layer } => Self::KvAppend { k, v, layer },
            Op::Attention { append: None, q, attention, out } => {
                let is_latent = attention.latent_dim.is_some();
                let step = AttentionStep { q, attention, out };
                if is_latent { Self::LatentAttention(step) } else { Self::Attention(step) }
            }
            Op::CausalConv(op) => Self::CausalConv(op),
            Op::DeltaNet(op) if op.heads.key_dim <= MAX_KEY_DIM => Self::DeltaNet(op),
            Op::StateSpace(op) => Self::StateSpace(op),
            Op::SelectiveScan(op) => Self::SelectiveScan(op),
            Op::AllReduce { x, residual: None, norm: None, out } => Self::AllReduce { x, out },
            op if rows::supports(&op) => {
                let out = op.outputs().first().copied();
                Self::Rows(op, out)
            }
            op => {
                let what = op.name().to_string();
                return Err(BackendError::Unsupported { backend: "CPU", what });
            }
        })
    }
}

impl Region<'_> {
    /// Deals the two parts of a step for this batch.
    pub(super) fn deals(&self, step: &Step) -> [PieceDivision; 2] {
        let main = match step {
            Step::MatMul(m) => return self.matmul_deals(m),
            Step::ExpertMatMul(m) => return self.expert_deals(m),
            Step::HeadMatMul(m) => return self.head_deals(m),
            Step::Attention(op) => self.attention_deal(op),
            Step::LatentAttention(op) => self.latent_deal(op),
            Step::RopeAppend(op) => return self.rope_append_deals(op),
            Step::AllReduce { out, .. } => return self.all_reduce_deals(*out),
            Step::KvAppend { k, layer, .. } => self.append_deal(*k, *layer),
            Step::Rope { out, .. } | Step::Rows(_, Some(out)) => self.row_deal(*out),
            Step::CausalConv(op) => self.causal_conv_deal(op),
            Step::DeltaNet(op) => self.tiles_deal(Tiles::of_delta_net(op)),
            Step::StateSpace(op) => self.tiles_deal(Tiles::of_state_space(op)),
            Step::SelectiveScan(op) => self.tiles_deal(self.scan_tiles(op)),
            Step::Rows(_, None) => PieceDivision::NOTHING,
        };
        [PieceDivision::NOTHING, main]
    }

    /// Runs one member's share of a part of a step.
    pub(super) fn step(
        &self,
        share: &mut Share<'_>,
        step: &Step,
        part: StepPart,
        scratch: &mut Scratch,
    ) {
        match step {
            Step::MatMul(m) => self.matmul(share, m, part, scratch),
            Step::Attention(op) => self.attention(share, op, scratch),
            Step::LatentAttention(op) => self.latent_attention(share, op, scratch),
            Step::RopeAppend(op) => self.rope_append(share, part, op),
            Step::KvAppend { k, v, layer } => {
                let item = AppendItem { k: *k, v: *v, layer: *layer, k_norm: None, rope: None };
                self.append(share, &item);
            }
            Step::ExpertMatMul(m) => self.expert_matmul(share, m, part, scratch),
            Step::HeadMatMul(m) => self.head_matmul(share, m, part, scratch),
            Step::Rope { x, rope, out } => {
                let (x_rows, out) = (self.rows(*x), self.rows(*out));
                let (table, mut buffer) = (&self.ropes[*rope], Vec::new());
                let Rope { style, head_dim, .. } = table.rope;
                for token in share.flatten() {
                    // SAFETY: each row belongs to one piece.
                    let y = unsafe { out.row_mut(token, 0..out.width) };
                    // SAFETY: written in an earlier phase.
                    y.copy_from_slice(unsafe { x_rows.row(token) });
                    let cos_sin = table.at(self.position(token), &mut buffer);
                    for head in y.chunks_exact_mut(head_dim) {
                        self.isa.run(Rotate { style, cos_sin, head });
                    }
                }
            }
            Step::CausalConv(op) => self.causal_conv(share, op),
            Step::DeltaNet(op) => self.delta_net(share, op),
            Step::StateSpace(op) => self.state_space(share, op),
            Step::SelectiveScan(op) => self.selective_scan(share, op),
            Step::AllReduce { x, out } => self.all_reduce(share, part, *x, *out),
            Step::Rows(op, _) => self.row_op(share, op),
        }
    }
}
