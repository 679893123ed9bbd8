//! The end of a model: output norm, and logits, states or scores.

use rf_graph::layer::{LayerSpec, NormKind};
use rf_graph::{Function, ValueId, WeightId};

use crate::config::ModelConfig;
use crate::error::Error;
use crate::weights::Weights;

/// The output that is computed from the state of each requested row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// The logits of the next token, `[vocab_size]`.
    Logits,
    /// As [`Logits`](Self::Logits), in the stages [`MtpStage`](crate::MtpStage): the model has a
    /// block that guesses further tokens ([`ModelConfig::mtp`]).
    LogitsAndMtp,
    /// The state itself after the output norm, `[hidden_size]`: what embeddings are pooled from.
    State,
    /// The scores of a reranker, `[labels]`.
    Scores,
}

impl Head {
    /// Returns true if a tensor belongs to another head.
    pub(crate) fn ignores(self, name: &str) -> bool {
        let is_of_logits = name.starts_with("output.");
        let is_of_scores = name.starts_with("cls.");
        match self {
            Self::Logits | Self::LogitsAndMtp => false,
            Self::State => is_of_logits || is_of_scores,
            Self::Scores => is_of_logits,
        }
    }
}

/// A matrix whose product with a state are logits, and its bias.
pub(crate) type OutputMatrix = (WeightId, Option<WeightId>);

/// The output matrix; without one in the file, the embedding `table` is it.
pub(crate) fn output_matrix(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    table: WeightId,
) -> Result<OutputMatrix, Error> {
    let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
    let tied = !w.has("output.weight");
    let output = if tied { table } else { w.matrix("output.weight", vocab_size, hidden_size)? };
    Ok((output, w.optional_vector("output.bias", vocab_size)?))
}

/// The logits of the next token.
pub(crate) fn logits(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    (output, bias): OutputMatrix,
    x: ValueId,
) -> ValueId {
    let mut logits = w.graph.linear(x, output, bias);
    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 is no op")]
    if config.logit_scale != 1.0 {
        logits = w.graph.scale(logits, config.logit_scale);
    }
    if let Some(cap) = config.logit_softcap {
        logits = w.graph.map(logits, Function::Softcap(cap));
    }
    logits
}

/// The scores of a reranker: `tanh(Wx + b)`, if the model has that layer, then a row per label.
pub(crate) fn scores(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    mut x: ValueId,
) -> Result<ValueId, Error> {
    let hidden_size = config.hidden_size;
    if w.has("cls.weight") {
        let weight = w.matrix("cls.weight", hidden_size, hidden_size)?;
        let bias = w.optional_vector("cls.bias", hidden_size)?;
        x = w.graph.linear(x, weight, bias);
        // A softcap of 1 is tanh.
        x = w.graph.map(x, Function::Softcap(1.0));
    }
    let labels = w.rows("cls.output.weight");
    let weight = w.matrix("cls.output.weight", labels, hidden_size)?;
    let bias = w.optional_vector("cls.output.bias", labels)?;
    Ok(w.graph.linear(x, weight, bias))
}

/// The norm before the head.
pub(crate) fn output_norm(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    norm(w, config.output_norm, &config.layers[0], x)
}

/// A norm of the model, of the kind that its layers have.
pub(crate) fn norm(
    w: &mut Weights<'_>,
    stem: &str,
    layer: &LayerSpec,
    x: ValueId,
) -> Result<ValueId, Error> {
    let weight = w.vector(&format!("{stem}.weight"), layer.hidden_size)?;
    Ok(match layer.norm {
        NormKind::Rms => {
            let y = w.graph.rms_norm(x, weight, layer.norm_eps);
            let bias = w.optional_vector(&format!("{stem}.bias"), layer.hidden_size)?;
            bias.map_or(y, |bias| w.graph.add_vector(y, bias))
        }
        NormKind::Layer => {
            let bias = w.optional_vector(&format!("{stem}.bias"), layer.hidden_size)?;
            w.graph.layer_norm(x, weight, bias, layer.norm_eps)
        }
    })
}
