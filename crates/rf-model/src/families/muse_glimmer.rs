//! Muse Glimmer: a norm of the embedding, a gate on the output of attention, windows with RoPE and
//! full layers without.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Gating, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const MUSE_GLIMMER: Family = Family {
    name: "muse-glimmer",
    config: muse_glimmer,
    weights: &[
        rows::PRE_NORMS,
        rows::POST_NORMS,
        rows::ATTENTION,
        rows::QK_NORM,
        rows::OUTPUT_GATE,
        rows::GATED,
    ],
};

/// The epsilon of the norms on outputs, for which there is no key.
const POST_NORM_EPS: f32 = 1e-8;

fn muse_glimmer(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    config.normalizes_embedding = true;
    config.logit_scale = keys.factor("logit_scale", 1.0)?;
    config.logit_softcap = keys.softcap("final_logit_softcapping", None)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    config.set_output_gate(keys, Gating::Sigmoid);
    let windowed = config.set_windows(keys, None, 4)?;
    config.set_window_rope(keys, &windowed, RopeStyle::Normal)?;
    config.rotate_only_windows(&windowed);
    for layer in &mut config.layers {
        layer.post_norm_eps = POST_NORM_EPS;
    }
    Ok(config)
}
