//! The end of a model: output norm, and logits, states or scores.

use rf_graph::layer::{LayerSpec, LayerWeights, NormKind};
use rf_graph::{Activation, Attention, Function, ValueId, WeightId};

use crate::config::{ModelConfig, OutputNorm, ScoreHead};
use crate::error::Error;
use crate::weights::FileWeights;

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
        let is_of_states = name.starts_with("dense_");
        match self {
            Self::Logits | Self::LogitsAndMtp => false,
            Self::State => is_of_logits || is_of_scores,
            Self::Scores => is_of_logits || is_of_states,
        }
    }
}

/// A matrix whose product with a state are logits, and its bias.
pub(crate) type OutputMatrix = (WeightId, Option<WeightId>);

/// The output matrix; without one in the file, the embedding `table` is it.
pub(crate) fn output_matrix(
    w: &mut FileWeights<'_>,
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
    w: &mut FileWeights<'_>,
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

/// The state itself, or what the linear layers after the pooling make of it: the pooling of their
/// outputs is their output for the pooled states.
pub(crate) fn state(w: &mut FileWeights<'_>, mut x: ValueId) -> Result<ValueId, Error> {
    for name in ["dense_2.weight", "dense_3.weight"] {
        if w.has(name) {
            let (rows, columns) = (w.rows(name), w.graph.width(x));
            let weight = w.matrix(name, rows, columns)?;
            x = w.graph.matmul(x, weight);
        }
    }
    Ok(x)
}

/// The scores of a reranker: `tanh(Wx + b)`, if the model has that layer, then a row per label.
/// With [`ScoreHead::Mean`] it is `norm(gelu(Wx + b))`.
pub(crate) fn scores(
    w: &mut FileWeights<'_>,
    config: &ModelConfig,
    mut x: ValueId,
) -> Result<ValueId, Error> {
    let hidden_size = config.hidden_size;
    if w.has("cls.weight") {
        let weight = w.matrix("cls.weight", hidden_size, hidden_size)?;
        let bias = w.optional_vector("cls.bias", hidden_size)?;
        x = w.graph.linear(x, weight, bias);
        let function = match config.score_head {
            // A softcap of 1 is tanh.
            ScoreHead::Token => Function::Softcap(1.0),
            ScoreHead::Mean => Function::Activation(Activation::GeluErf),
        };
        x = w.graph.map(x, function);
        if config.score_head == ScoreHead::Mean && w.has("cls.norm.weight") {
            x = norm(w, "cls.norm", &config.layers[0], x)?;
        }
    }
    let labels = w.rows("cls.output.weight");
    let weight = w.matrix("cls.output.weight", labels, hidden_size)?;
    let bias = w.optional_vector("cls.output.bias", labels)?;
    Ok(w.graph.linear(x, weight, bias))
}

/// The norm before the head.
pub(crate) fn output_norm(
    w: &mut FileWeights<'_>,
    config: &ModelConfig,
    x: ValueId,
) -> Result<ValueId, Error> {
    let layer = &config.layers[0];
    match config.output_norm {
        OutputNorm::None => Ok(x),
        OutputNorm::Unweighted => {
            let ones = w.constant(layer.hidden_size, 1.0);
            Ok(norm_by(w, layer, x, ones, None))
        }
        OutputNorm::Tensor(stem) => norm(w, stem, layer, x),
    }
}

/// The mean over the tokens of each text, in all its rows.
pub(crate) fn mean_of_text(w: &mut FileWeights<'_>, mean: &Attention, x: ValueId) -> ValueId {
    w.graph.attention(x, x, x, mean)
}

/// A norm of the model, of the kind that its layers have.
pub(crate) fn norm(
    w: &mut FileWeights<'_>,
    stem: &str,
    layer: &LayerSpec,
    x: ValueId,
) -> Result<ValueId, Error> {
    let weight = w.vector(&format!("{stem}.weight"), layer.hidden_size)?;
    let bias = w.optional_vector(&format!("{stem}.bias"), layer.hidden_size)?;
    Ok(norm_by(w, layer, x, weight, bias))
}

fn norm_by(
    w: &mut FileWeights<'_>,
    layer: &LayerSpec,
    x: ValueId,
    weight: WeightId,
    bias: Option<WeightId>,
) -> ValueId {
    match layer.norm {
        NormKind::Rms => {
            let y = w.graph.rms_norm(x, weight, layer.norm_eps);
            bias.map_or(y, |bias| w.graph.add_vector(y, bias))
        }
        NormKind::Layer => w.graph.layer_norm(x, weight, bias, layer.norm_eps),
    }
}
