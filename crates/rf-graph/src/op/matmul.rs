//! Attributes of [`Op::MatMul`](super::Op::MatMul): prologue, projections, epilogue.

use super::{Activation, Router};
use crate::value::{ValueId, WeightId};

/// Matrix multiplication with the ops that are fused before and after it:
/// `epilogue(prologue(x) · Wᵢᵀ + biasᵢ + residual)`.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Computes the left operand.
    pub prologue: Prologue,
    /// The weight matrices, all multiplied by the same left operand.
    pub projections: Vec<Projection>,
    /// Residual that is added to the output of the only projection.
    pub residual: Option<ValueId>,
    /// Computation on the outputs.
    pub epilogue: Epilogue,
}

/// The left operand of a [`MatMul`]: `[rows, columns]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Prologue {
    /// An unchanged value.
    Plain(ValueId),
    /// [`Op::RmsNorm`](super::Op::RmsNorm) over the whole row.
    RmsNorm {
        /// `[rows, columns]`.
        x: ValueId,
        /// `[columns]`.
        weight: WeightId,
        /// Constant that is added to the mean square.
        eps: f32,
    },
    /// [`Op::Glu`](super::Op::Glu).
    Glu {
        /// The gate's non-linearity.
        activation: Activation,
        /// `[rows, columns]`.
        gate: ValueId,
        /// `[rows, columns]`.
        up: ValueId,
    },
}

/// The computation of a [`MatMul`] on its own outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Epilogue {
    /// No epilogue: the outputs are the projections.
    None,
    /// [`Op::RmsNorm`](super::Op::RmsNorm) of the only projection over the whole row, in addition
    /// to the projection itself: the norm before the next matmul.
    RmsNorm(RowNorm),
    /// [`Op::Glu`](super::Op::Glu) of two projections, gate and up. Both have the same shape and
    /// format, and neither has a bias. The projections themselves are scratch.
    Glu {
        /// The gate's non-linearity.
        activation: Activation,
        /// Shape of a projection.
        out: ValueId,
    },
    /// [`Op::Route`](super::Op::Route) of the projections, which are scratch: the logits and, if
    /// there is a second one, the gate of the shared expert.
    Route {
        /// Selection and weighting of experts.
        router: Router,
        /// `[tokens, 2 · slots]`: expert indices as f32, then weights.
        out: ValueId,
    },
}

/// RMSNorm over whole rows as part of another op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowNorm {
    /// Norm weight, `[width]`.
    pub weight: WeightId,
    /// Constant that is added to the mean square.
    pub eps: f32,
    /// The normalised rows, `[rows, width]`.
    pub out: ValueId,
}

/// One weight matrix of a [`MatMul`].
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// `[width of out, columns]`.
    pub weight: WeightId,
    /// `[width of out]`.
    pub bias: Option<WeightId>,
    /// `[rows, width]`.
    pub out: ValueId,
}

impl Prologue {
    /// The value whose rows and width are those of the left operand.
    pub fn shape_of(&self) -> ValueId {
        match self {
            Self::Plain(x) | Self::RmsNorm { x, .. } | Self::Glu { gate: x, .. } => *x,
        }
    }
}

impl MatMul {
    /// A short name for telemetry.
    pub(super) fn name(&self) -> &'static str {
        match (&self.prologue, &self.epilogue) {
            (Prologue::Plain(_), Epilogue::None) => "matmul",
            (Prologue::Plain(_), Epilogue::RmsNorm(_)) => "matmul+rms_norm",
            (Prologue::Plain(_), Epilogue::Glu { .. }) => "matmul+glu",
            (Prologue::Plain(_), Epilogue::Route { .. }) => "matmul+route",
            (Prologue::RmsNorm { .. }, Epilogue::None) => "rms_norm+matmul",
            (Prologue::RmsNorm { .. }, Epilogue::RmsNorm(_)) => "rms_norm+matmul+rms_norm",
            (Prologue::RmsNorm { .. }, Epilogue::Glu { .. }) => "rms_norm+matmul+glu",
            (Prologue::RmsNorm { .. }, Epilogue::Route { .. }) => "rms_norm+matmul+route",
            (Prologue::Glu { .. }, Epilogue::None) => "glu+matmul",
            (Prologue::Glu { .. }, Epilogue::RmsNorm(_)) => "glu+matmul+rms_norm",
            (Prologue::Glu { .. }, Epilogue::Glu { .. }) => "glu+matmul+glu",
            (Prologue::Glu { .. }, Epilogue::Route { .. }) => "glu+matmul+route",
        }
    }
}
