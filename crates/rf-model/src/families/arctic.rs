//! Arctic: a dense part as in a Llama, and experts of the layer's input, whose output is added.

use rf_graph::layer::{BeforeAttention, DenseSpec, Role};
use rf_graph::{Activation, RopeStyle};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightTable, row};

pub(super) const ARCTIC: Family = Family {
    name: "arctic",
    config: arctic,
    weights: &[
        rows::PRE_NORMS,
        rows::ATTENTION,
        rows::GATED,
        &[row(Role::ExpertNorm, "ffn_norm_exps")],
        rows::EXPERTS,
    ],
};

/// The dense part is as wide as the residual.
fn arctic(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Normal)?;
    let intermediate_size = config.hidden_size;
    for layer in &mut config.layers {
        let activation = Activation::Silu;
        layer.dense = Some(DenseSpec {
            intermediate_size,
            activation,
            gated: true,
            xielu: None,
            clamp: None,
        });
        if let Some(experts) = &mut layer.experts {
            experts.before_attention = BeforeAttention::Experts;
        }
    }
    Ok(config)
}
