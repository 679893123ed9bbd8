//! Encoders: BERT, Nomic BERT, also with experts, Jina BERT 2 and 3. Norms follow the residual, and
//! every token sees all others.

use rf_graph::Activation;
use rf_graph::layer::Role;

use super::family::Family;
use super::rows;
use crate::config::{ModelConfig, encoder};
use crate::error::Error;
use crate::keys::Keys;
use crate::weights::{WeightRow, WeightTable, row};

pub(super) const BERT: Family = Family {
    name: "bert",
    config: bert,
    weights: &[rows::ATTENTION_OPTIONAL_BIAS, RESIDUAL_NORMS, rows::UNGATED],
};

pub(super) const NOMIC_BERT: Family = Family {
    name: "nomic-bert",
    config: encoder,
    weights: &[rows::ATTENTION_OPTIONAL_BIAS, RESIDUAL_NORMS, rows::GATED_OPTIONAL_BIAS],
};

pub(super) const NOMIC_BERT_MOE: Family = Family {
    name: "nomic-bert-moe",
    config: nomic_bert_moe,
    weights: &[rows::ATTENTION_OPTIONAL_BIAS, RESIDUAL_NORMS, rows::UNGATED, rows::EXPERTS],
};

/// `ALiBi` in both directions, and gated GELU.
pub(super) const JINA_BERT_V2: Family = Family {
    name: "jina-bert-v2",
    config: jina_bert_v2,
    weights: &[rows::ATTENTION_OPTIONAL_BIAS, RESIDUAL_NORMS, rows::GATED_OPTIONAL_BIAS],
};

pub(super) const JINA_BERT_V3: Family = Family {
    name: "jina-bert-v3",
    config: jina_bert_v3,
    weights: &[rows::ATTENTION_OPTIONAL_BIAS, RESIDUAL_NORMS, rows::UNGATED],
};

const RESIDUAL_NORMS: &[WeightRow] = &[
    row(Role::AttentionResidualNorm, "attn_output_norm").with_bias(),
    row(Role::FeedForwardResidualNorm, "layer_output_norm").with_bias(),
];

/// GELU without a gate. The adapters for tasks are files of their own.
fn jina_bert_v3(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = encoder(keys, weights)?;
    config.set_ungated(Activation::GeluTanh);
    Ok(config)
}

/// GELU without a gate, and experts in the second layer of every few.
fn nomic_bert_moe(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = encoder(keys, weights)?;
    let period = keys.count("moe_every_n_layers")?;
    config.dense_layers(keys, |layer| period == 0 || layer % period != 1)?;
    config.set_activation(Activation::GeluTanh);
    config.set_ungated(Activation::GeluTanh);
    for experts in config.experts_mut() {
        (experts.gated, experts.normalize) = (false, false);
    }
    Ok(config)
}

/// Learned positions, GELU without a gate.
fn bert(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = jina_bert_v3(keys, weights)?;
    config.learned_positions = true;
    config.max_context_length = Some(config.context_length);
    for attention in config.attentions_mut() {
        attention.rope = None;
    }
    Ok(config)
}

fn jina_bert_v2(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = encoder(keys, weights)?;
    config.set_activation(Activation::GeluTanh);
    config.set_alibi(8.0);
    Ok(config)
}
