//! Work on single rows.

use super::RopeTable;
use crate::simd::Isa;
use crate::simd::activations::{Evaluate, RmsScale, RowSource};
use crate::simd::rope::Rotate;

/// `y = x / √(mean(x²) + eps) · weight`.
pub(super) fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    evaluate(isa, norm_source(isa, x, weight, eps), y);
}

/// The normalised row as an operand.
pub(super) fn norm_source<'a>(
    isa: Isa,
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
) -> RowSource<'a> {
    RowSource::Norm { x, weight, scale: isa.run(RmsScale { x, eps }) }
}

/// Writes an operand as f32.
pub(super) fn evaluate(isa: Isa, source: RowSource<'_>, y: &mut [f32]) {
    isa.run(Evaluate { source, out: y });
}

impl RopeTable {
    /// Rotates one head at a position.
    pub(super) fn rotate(&self, isa: Isa, position: usize, head: &mut [f32]) {
        let pairs = self.rope.inv_freq.len();
        let cos_sin = &self.cos_sin[position * pairs..][..pairs];
        isa.run(Rotate { style: self.rope.style, cos_sin, head });
    }
}
