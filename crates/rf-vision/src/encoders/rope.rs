//! Rotary embedding by row and column.

use std::sync::Arc;

use rf_graph::{Rope, RopeAxis, RopeStyle};

/// Half of the pairs of a head turn by one axis, the others by the other. Pair `i` of a half turns
/// by `base^(−4i / head_dim)`, times a factor for the second half.
pub(super) fn rope(
    style: RopeStyle,
    head_dim: usize,
    axes: [RopeAxis; 2],
    base: f64,
    second_factor: f64,
) -> Rope {
    let half = head_dim / 4;
    let frequency = |i: usize| base.powf(-4.0 * i as f64 / head_dim as f64);
    let first = (0..half).map(frequency);
    let second = (0..half).map(|i| frequency(i) * second_factor);
    let axes = axes.into_iter().flat_map(|axis| std::iter::repeat_n(axis, half));
    Rope {
        style,
        head_dim,
        inv_freq: first.chain(second).collect(),
        magnitude: 1.0,
        axes: Some(axes.collect::<Arc<[RopeAxis]>>()),
    }
}
