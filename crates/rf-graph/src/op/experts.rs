//! Attributes of mixtures of experts.

use super::{Activation, RowNorm};
use crate::value::{ValueId, WeightId};

/// Matmuls of the experts that a route selects: `glu(xₛ · Wᵢᵀ (+ biasᵢ))` for each slot `s`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertMatMul {
    /// `[tokens, columns]` for all slots, or `[tokens, slots · columns]`.
    pub x: ValueId,
    /// Output of [`Op::Route`](super::Op::Route).
    pub route: ValueId,
    /// One for each matmul of the same left operand; all of one shape and format.
    pub projections: Vec<ExpertProjection>,
    /// Fused: [`Op::Glu`](super::Op::Glu) of two projections, gate and up, and its output. The
    /// projections themselves are scratch.
    pub glu: Option<(Activation, ValueId)>,
    /// Fused: [`Op::CombineExperts`](super::Op::CombineExperts) of the only projection, which is
    /// scratch.
    pub combine: Option<Combine>,
}

/// The weighted sum of the experts' outputs as part of another op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combine {
    /// Is added to the sum: `[tokens, width]`.
    pub residual: Option<ValueId>,
    /// `[tokens, width]`.
    pub out: ValueId,
    /// Fused: the norm of the sum before the next matmul.
    pub norm: Option<RowNorm>,
}

impl ExpertMatMul {
    /// A short name for telemetry.
    pub(super) fn name(&self) -> &'static str {
        match (self.glu, self.combine) {
            (None, None) => "expert_matmul",
            (Some(_), _) => "expert_matmul+glu",
            (None, Some(Combine { norm: None, .. })) => "expert_matmul+combine",
            (None, Some(Combine { norm: Some(_), .. })) => "expert_matmul+combine+rms_norm",
        }
    }
}

/// The weights of one matmul of an [`ExpertMatMul`].
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertProjection {
    /// One matrix `[rows, columns]` per expert.
    pub weights: Vec<WeightId>,
    /// `[experts, rows]`, f32.
    pub bias: Option<WeightId>,
    /// `[tokens, slots · rows]`.
    pub out: ValueId,
}

/// `Σₛ pₛ · xₛ` of one token. The reference and the CPU backend compute
/// [`Op::CombineExperts`](super::Op::CombineExperts) by it.
///
/// Shapes: x `[slots, width]`, p `[slots]`.
pub fn combine_experts(x: &[f32], p: &[f32]) -> Vec<f32> {
    let width = x.len() / p.len();
    let at = |i: usize| x.iter().skip(i).step_by(width).zip(p);
    (0..width)
        .map(|i| at(i).map(|(x, p)| f64::from(*x) * f64::from(*p)).sum::<f64>() as f32)
        .collect()
}
