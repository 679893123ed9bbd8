//! The model around its layers: embedding, output norm and logits.

use rf_gguf::Gguf;
use rf_graph::layer::{LayerSpec, LayerWeights, NormKind, layer};
use rf_graph::{Function, Graph, ValueId, Weight};

use crate::config::ModelConfig;
use crate::error::Error;
use crate::weights::Weights;

/// Builds the graph of a model for sequences of up to `context_tokens`, and its weights by
/// [`WeightId::index`](rf_graph::WeightId::index).
///
/// # Errors
///
/// If a tensor is missing, has an unexpected shape or type, or is not used by the architecture.
pub fn build(
    gguf: &Gguf,
    config: &ModelConfig,
    context_tokens: usize,
) -> Result<(Graph, Vec<Weight>), Error> {
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
    let per_layer = PerLayerInput::build(&mut w, config, x)?;
    for (index, spec) in layers.iter().enumerate() {
        w.enter(index);
        let input = per_layer.as_ref().map(|input| input.of_layer(&mut w, index));
        x = layer(&mut w, spec, x, input)?;
    }
    let x = w.graph.select_rows(x);
    let x = output_norm(&mut w, &config.layers[0], x)?;
    let tied = !w.has("output.weight");
    let output = if tied { table } else { w.matrix("output.weight", vocab_size, hidden_size)? };
    let bias = w.optional_vector("output.bias", vocab_size)?;
    let unused = w.unused(config.num_layers());
    if !unused.is_empty() {
        let architecture = config.architecture.clone();
        return Err(Error::UnknownTensors { architecture, tensors: unused });
    }
    let mut logits = w.graph.linear(x, output, bias);
    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 is no op")]
    if config.logit_scale != 1.0 {
        logits = w.graph.scale(logits, config.logit_scale);
    }
    if let Some(cap) = config.logit_softcap {
        logits = w.graph.map(logits, Function::Softcap(cap));
    }
    Ok(w.graph.finish(logits))
}

fn output_norm(w: &mut Weights<'_>, layer: &LayerSpec, x: ValueId) -> Result<ValueId, Error> {
    let weight = w.vector("output_norm.weight", layer.hidden_size)?;
    Ok(match layer.norm {
        NormKind::Rms => w.graph.rms_norm(x, weight, layer.norm_eps),
        NormKind::Layer => {
            let bias = w.optional_vector("output_norm.bias", layer.hidden_size)?;
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
