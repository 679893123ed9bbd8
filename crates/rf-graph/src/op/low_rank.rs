//! Low-rank updates of matrices (LoRA), in existing ops: a matmul whose weight has an update adds
//! `(s ⊙ (x · Aᵀ)) · Bᵀ` to its output.
//!
//! Several adapters share the matrices: the rows of all `A` are one after the other, and so are the
//! columns of all `B`. Each row of `s` selects adapters by the factors of their ranks. A factor of
//! 0 adds exactly 0, so a row without adapters is what it is without any update.

use crate::value::{ValueId, WeightId};

/// The update of a weight, or of the weights of all experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowRank {
    /// `A`, `[rank, columns]`: one, or one per expert.
    pub a: Vec<WeightId>,
    /// `B`, `[output features, rank]`: as many.
    pub b: Vec<WeightId>,
    /// Factors, `[tokens, rank]`.
    pub scales: ValueId,
}
