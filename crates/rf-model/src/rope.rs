//! Frequencies of the rotary embedding.

use std::f64::consts::PI;
use std::sync::Arc;

use rf_graph::{Rope, RopeAxis, RopeStyle};

/// Rotary embedding of a model, as its metadata describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeConfig {
    /// Elements per head.
    pub(crate) head_dim: usize,
    /// Rotated elements per head.
    pub(crate) dims: usize,
    /// Base of the frequencies.
    pub(crate) theta: f64,
    /// Scaling of positions.
    pub(crate) scaling: RopeScaling,
    /// Factor on cos and sin, in addition to the one of [`RopeScaling::Yarn`].
    pub(crate) magnitude: f64,
}

/// Scaling of positions beyond the training length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RopeScaling {
    /// No scaling. Factors per pair may still divide the frequencies.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// YaRN: high frequencies are kept, low ones are scaled, with a ramp between them.
    Yarn {
        /// Divisor of the low frequencies.
        factor: f64,
        /// Context of the original training.
        original_context: f64,
        /// Fraction of the unscaled angle at the upper end of the ramp.
        ext_factor: f64,
        /// Rotations within the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which a frequency is fully scaled.
        beta_slow: f64,
        /// Multiplier of the logarithm in the magnitude; 0 for none.
        log_multiplier: f64,
    },
}

/// The number of pairs that take each coordinate of a position: time, row, column and the fourth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeSections {
    /// Successive pairs (Qwen 2 VL).
    Successive([usize; 4]),
    /// Pairs in turn: time, row, column. Where a coordinate has no more pairs, the pair takes the
    /// fourth one (Qwen 3 VL).
    Interleaved([usize; 4]),
}

impl RopeSections {
    /// The coordinate of each pair.
    pub(crate) fn axes(self, pairs: usize) -> Arc<[RopeAxis]> {
        use RopeAxis::{Column, Fourth, Row, Time};
        let axis = |pair: usize| match self {
            Self::Successive([time, row, column, _]) => match pair {
                _ if pair < time => Time,
                _ if pair < time + row => Row,
                _ if pair < time + row + column => Column,
                _ => Fourth,
            },
            Self::Interleaved([time, row, column, _]) => match (pair / 3, pair % 3) {
                (turn, 0) if turn < time => Time,
                (turn, 1) if turn < row => Row,
                (turn, 2) if turn < column => Column,
                _ => Fourth,
            },
        };
        (0..pairs).map(axis).collect()
    }
}

impl RopeConfig {
    /// `θᵢ = position · inv_freqᵢ`.
    ///
    /// `inv_freqᵢ = theta^(−2i/dims) / factorᵢ`, where `factors` (`rope_freqs.weight` in Llama 3)
    /// has one entry per pair, and then the scaling.
    pub(crate) fn build(&self, style: RopeStyle, factors: Option<&[f32]>) -> Rope {
        let dims = self.dims;
        let plain = |i: usize| {
            let factor = factors.map_or(1.0, |f| f64::from(f[i]));
            self.theta.powf(-2.0 * i as f64 / dims as f64) / factor
        };
        let (inv_freq, magnitude): (Arc<[f64]>, f64) = match self.scaling {
            RopeScaling::None => ((0..dims / 2).map(plain).collect(), 1.0),
            RopeScaling::Linear { factor } => {
                ((0..dims / 2).map(|i| plain(i) / factor).collect(), 1.0)
            }
            RopeScaling::Yarn {
                factor,
                original_context,
                ext_factor,
                beta_fast,
                beta_slow,
                log_multiplier,
            } => {
                // Index of the pair that makes `beta` rotations within the original context.
                let corrected = |beta: f64| {
                    dims as f64 * (original_context / (beta * 2.0 * PI)).ln()
                        / (2.0 * self.theta.ln())
                };
                let low = corrected(beta_fast).floor().max(0.0);
                let high = corrected(beta_slow).ceil().min(dims as f64 - 1.0);
                let frequencies = (0..dims / 2).map(|i| {
                    let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    let mix = ramp * ext_factor;
                    plain(i) / factor * (1.0 - mix) + plain(i) * mix
                });
                let magnitude = |log_multiplier: f64| {
                    if factor <= 1.0 { 1.0 } else { 0.1 * log_multiplier * factor.ln() + 1.0 }
                };
                let magnitude = if ext_factor == 0.0 {
                    1.0
                } else if log_multiplier == 0.0 {
                    magnitude(1.0)
                } else {
                    magnitude(1.0) / magnitude(log_multiplier)
                };
                (frequencies.collect(), magnitude)
            }
        };
        let magnitude = (magnitude * self.magnitude) as f32;
        Rope { style, head_dim: self.head_dim, inv_freq, magnitude, axes: None }
    }

    /// Returns the rotation without scaling of positions and with another base.
    pub(crate) fn unscaled(&self, theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None, magnitude: 1.0, ..self.clone() }
    }
}
