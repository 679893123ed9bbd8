//! Ling 3: as Kimi Linear, with a bounded decay, gates without a latent, attention with positions
//! and a gate per head, and bounds of the experts' gated units.

use rf_graph::layer::{LatentSpec, OutputGate, Role};
use rf_graph::{DeltaDecay, Gating, RopeStyle};

use super::deepseek2::{LATENT_ATTENTION, latent_attention};
use super::family::Family;
use super::kimi_linear::{DELTA, delta, delta_and_latent};
use super::rows;
use crate::config::ModelConfig;
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

const GATES: &[WeightRow] = &[row(Role::Alpha, "ssm_f_a"), row(Role::MixerGate, "ssm_g_a")];

pub(super) const BAILING_MOE3: Family = Family {
    name: "bailingmoe3",
    config: bailing_moe3,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        DELTA,
        GATES,
        LATENT_ATTENTION,
        rows::OUTPUT_GATE,
        rows::GATED,
        rows::EXPERTS,
        rows::SELECTION_BIAS,
        rows::SHARED_EXPERT,
    ],
};

fn bailing_moe3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    const BOUND: &str = "kda.gate_lower_bound";
    if keys.flag("kda.safe_gate")? == Some(false) {
        return Err(keys.unsupported("kda.safe_gate", &false, "supported is a bounded decay"));
    }
    if keys.rope_sections()?.is_some_and(|sections| sections != [0; 4]) {
        let reason = "positions of several coordinates are not supported in latent attention";
        return Err(keys.unsupported("rope.dimension_sections", &"list", reason));
    }
    let bound = keys.optional_f64(BOUND)?.ok_or_else(|| keys.missing(BOUND))? as f32;
    if bound >= 0.0 {
        return Err(keys.invalid(BOUND, &bound, "it must be negative"));
    }
    let delta = delta(keys, DeltaDecay::BoundedChannel { bound })?;
    let mut config = delta_and_latent(keys, weights, delta, |layer| {
        let latent = latent_attention(keys, RopeStyle::Normal, layer)?;
        let gate = OutputGate { function: Gating::Sigmoid, width: latent.num_heads };
        Ok(LatentSpec { output_gate: Some(gate), ..latent })
    })?;
    config.set_expert_clamps(keys)?;
    Ok(config)
}
