//! The model around its layers: embedding, output norm and head.

use rf_gguf::Gguf;
use rf_graph::layer::{LayerSpec, LayerWeights, NormKind, layer};
use rf_graph::{Function, Graph, ValueId, Weight, WeightId};

use crate::config::ModelConfig;
use crate::error::Error;
use crate::pooling::Pooling;
use crate::weights::Weights;

/// The output that is computed from the state of each requested row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// The logits of the next token, `[vocab_size]`.
    Logits,
    /// The state itself after the output norm, `[hidden_size]`: what embeddings are pooled from.
    State,
    /// The scores of a reranker, `[labels]`.
    Scores,
}

/// Builds the graph of a model for sequences of up to `context_tokens`, and its weights by
/// [`WeightId::index`](rf_graph::WeightId::index).
///
/// # Errors
///
/// If a tensor is missing, has an unexpected shape or type, or is not used by the architecture, or
/// if the model has no logits and they are requested.
pub fn build(
    gguf: &Gguf,
    config: &ModelConfig,
    context_tokens: usize,
    head: Head,
) -> Result<(Graph, Vec<Weight>), Error> {
    if head == Head::Logits && !config.generates() {
        let architecture = config.architecture.clone();
        let pooling = config.pooling.map_or("none", Pooling::name);
        return Err(Error::NoLogits { architecture, pooling });
    }
    let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
    let layers = config.layers_for(context_tokens);
    let mut w = Weights::new(gguf, config.weights, &config.tensors_read);

    let table = w.matrix("token_embd.weight", vocab_size, hidden_size)?;
    let mut x = w.graph.embed(table, config.embedding_scale);
    if config.learned_positions {
        let positions = w.matrix("position_embd.weight", config.context_length, hidden_size)?;
        let position = w.graph.embed_position(positions);
        x = w.graph.add(x, position);
    }
    if config.is_encoder {
        // All tokens have type 0. Positions beyond a table read its last row, here its only one.
        if w.has("token_types.weight") {
            let types = w.first_row("token_types.weight", hidden_size)?;
            let token_type = w.graph.embed_position(types);
            x = w.graph.add(x, token_type);
        }
        x = norm(&mut w, "token_embd_norm", &config.layers[0], x)?;
    }
    let per_layer = PerLayerInput::build(&mut w, config, x)?;
    for (index, spec) in layers.iter().enumerate() {
        w.enter(index);
        let input = per_layer.as_ref().map(|input| input.of_layer(&mut w, index));
        x = layer(&mut w, spec, x, input)?;
    }
    let mut x = w.graph.select_rows(x);
    if !config.is_encoder {
        x = norm(&mut w, config.output_norm, &config.layers[0], x)?;
    }
    let output = match head {
        Head::Logits => logits(&mut w, config, table, x)?,
        Head::State => x,
        Head::Scores => scores(&mut w, config, x)?,
    };
    let mut unused = w.unused(config.num_layers());
    unused.retain(|name| !head.ignores(name));
    if !unused.is_empty() {
        let architecture = config.architecture.clone();
        return Err(Error::UnknownTensors { architecture, tensors: unused });
    }
    Ok(w.graph.finish(output))
}

impl Head {
    /// Returns true if a tensor belongs to another head.
    fn ignores(self, name: &str) -> bool {
        let is_of_logits = name.starts_with("output.");
        let is_of_scores = name.starts_with("cls.");
        match self {
            Self::Logits => false,
            Self::State => is_of_logits || is_of_scores,
            Self::Scores => is_of_logits,
        }
    }
}

/// The logits of the next token; without an output matrix, the embedding `table` is it.
fn logits(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    table: WeightId,
    x: ValueId,
) -> Result<ValueId, Error> {
    let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
    let tied = !w.has("output.weight");
    let output = if tied { table } else { w.matrix("output.weight", vocab_size, hidden_size)? };
    let bias = w.optional_vector("output.bias", vocab_size)?;
    let mut logits = w.graph.linear(x, output, bias);
    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 is no op")]
    if config.logit_scale != 1.0 {
        logits = w.graph.scale(logits, config.logit_scale);
    }
    if let Some(cap) = config.logit_softcap {
        logits = w.graph.map(logits, Function::Softcap(cap));
    }
    Ok(logits)
}

/// The scores of a reranker: `tanh(Wx + b)`, if the model has that layer, then a row per label.
fn scores(w: &mut Weights<'_>, config: &ModelConfig, mut x: ValueId) -> Result<ValueId, Error> {
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

/// A norm of the model, of the kind that its layers have.
fn norm(w: &mut Weights<'_>, stem: &str, layer: &LayerSpec, x: ValueId) -> Result<ValueId, Error> {
    let weight = w.vector(&format!("{stem}.weight"), layer.hidden_size)?;
    Ok(match layer.norm {
        NormKind::Rms => w.graph.rms_norm(x, weight, layer.norm_eps),
        NormKind::Layer => {
            let bias = w.optional_vector(&format!("{stem}.bias"), layer.hidden_size)?;
            w.graph.layer_norm(x, weight, bias, layer.norm_eps)
        }
    })
}

/// The embeddings of a token for each layer alone (Gemma 3n, 4), side by side.
struct PerLayerInput {
    all: ValueId,
    width: usize,
}

impl PerLayerInput {
    /// `(norm(Wx / √hidden_size) + table[id] · √width) / √2`, with the norm over each layer's part.
    fn build(w: &mut Weights<'_>, config: &ModelConfig, x: ValueId) -> Result<Option<Self>, Error> {
        let Some(width) = config.layers[0].per_layer_input else { return Ok(None) };
        let columns = config.num_layers() * width;
        let sqrt = |n: usize| (n as f32).sqrt();
        let projection = w.matrix("per_layer_model_proj.weight", columns, config.hidden_size)?;
        let projected = w.graph.matmul(x, projection);
        let projected = w.graph.scale(projected, 1.0 / sqrt(config.hidden_size));
        let norm = w.vector("per_layer_proj_norm.weight", width)?;
        let projected = w.graph.rms_norm(projected, norm, config.layers[0].norm_eps);
        let table = w.matrix("per_layer_token_embd.weight", config.vocab_size, columns)?;
        let embedded = w.graph.embed(table, sqrt(width));
        let sum = w.graph.add(projected, embedded);
        let all = w.graph.scale(sum, 1.0 / sqrt(2));
        Ok(Some(Self { all, width }))
    }

    fn of_layer(&self, w: &mut Weights<'_>, layer: usize) -> ValueId {
        w.graph().slice(self.all, layer * self.width..(layer + 1) * self.width)
    }
}
