//! Apertus: xIELU with parameters per layer, without a gate.

use rf_graph::layer::QkNormGroup;
use rf_graph::{Activation, RopeStyle, Xielu};

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, transformer};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::WeightTable;

pub(super) const APERTUS: Family = Family {
    name: "apertus",
    config: apertus,
    weights: &[rows::PRE_NORMS, rows::ATTENTION_OPTIONAL_BIAS, rows::QK_NORM, rows::UNGATED],
};

fn apertus(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_qk_norm(QkNormGroup::Head, false);
    // Not the activation function, but the form without a gate.
    config.set_ungated(Activation::Relu);
    let num_layers = config.num_layers();
    let parameter = |name: &str| keys.f32_per_layer(&format!("xielu.{name}"), num_layers);
    let [alpha_p, alpha_n] = [parameter("alpha_p")?, parameter("alpha_n")?];
    let [beta, eps] = [parameter("beta")?, parameter("eps")?];
    for (index, layer) in config.layers.iter_mut().enumerate() {
        // Both are positive.
        let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let xielu = Xielu {
            alpha_p: softplus(alpha_p[index]),
            alpha_n: softplus(alpha_n[index]) + beta[index],
            beta: beta[index],
            eps: eps[index],
        };
        if let Some(dense) = &mut layer.dense {
            dense.xielu = Some(xielu);
        }
    }
    Ok(config)
}
