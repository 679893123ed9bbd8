//! Work on single rows.

use super::RopeTable;
use crate::simd::Tier;
use crate::simd::activations::{Evaluate, RmsScale, RowSource};
use crate::simd::rope::Rotate;

/// `y = x / √(mean(x²) + eps) · weight`.
pub(super) fn rms_norm(tier: Tier, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    evaluate(tier, norm_source(tier, x, weight, eps), y);
}

/// The normalised row as an operand.
pub(super) fn norm_source<'a>(
    tier: Tier,
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
) -> RowSource<'a> {
    RowSource::Norm { x, weight, scale: tier.run(RmsScale { x, eps }) }
}

/// Writes an operand as f32.
pub(super) fn evaluate(tier: Tier, source: RowSource<'_>, y: &mut [f32]) {
    tier.run(Evaluate { source, out: y });
}

impl RopeTable {
    /// Rotates one head at a position.
    pub(super) fn rotate(&self, tier: Tier, position: usize, head: &mut [f32]) {
        let pairs = self.rope.inv_freq.len();
        let cos_sin = &self.cos_sin[position * pairs..][..pairs];
        tier.run(Rotate { style: self.rope.style, cos_sin, head });
    }
}
