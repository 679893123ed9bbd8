//! Frequencies of the rotary embedding.

use std::f64::consts::PI;
use std::sync::Arc;

use rf_graph::Rope;

use crate::config::{ModelConfig, RopeScaling};

/// The RoPE of a model: `θᵢ = position · inv_freqᵢ`.
///
/// `inv_freqᵢ = theta^(−2i/dims) / factorᵢ`, where `factors` (`rope_freqs.weight`, Llama 3) has one
/// entry per pair, and then the scaling.
pub(crate) fn rope(config: &ModelConfig, factors: Option<&[f32]>) -> Rope {
    let dims = config.rope.dims;
    let plain = |i: usize| {
        let factor = factors.map_or(1.0, |f| f64::from(f[i]));
        config.rope.theta.powf(-2.0 * i as f64 / dims as f64) / factor
    };
    let (inv_freq, magnitude): (Arc<[f64]>, f64) = match config.rope.scaling {
        RopeScaling::None => ((0..dims / 2).map(plain).collect(), 1.0),
        RopeScaling::Linear { factor } => ((0..dims / 2).map(|i| plain(i) / factor).collect(), 1.0),
        RopeScaling::Yarn {
            factor,
            original_context,
            ext_factor,
            attn_factor,
            beta_fast,
            beta_slow,
            log_multiplier,
        } => {
            // Index of the pair that makes `beta` rotations within the original context.
            let corrected = |beta: f64| {
                dims as f64 * (original_context / (beta * 2.0 * PI)).ln()
                    / (2.0 * config.rope.theta.ln())
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
            (frequencies.collect(), magnitude * attn_factor)
        }
    };
    Rope {
        style: config.family.rope_style,
        head_dim: config.head_dim,
        inv_freq,
        magnitude: magnitude as f32,
    }
}
