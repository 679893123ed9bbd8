//! The model around its layers: embedding and head.

use rf_gguf::Gguf;
use rf_graph::layer::{LayerWeights, altup_mean, altup_streams, layer};
use rf_graph::{Graph, ValueId, Weight};

use crate::adapter::{AdapterError, AdapterSet};
use crate::config::ModelConfig;
use crate::error::Error;
use crate::head::{Head, logits, mean_of_text, norm, output_matrix, output_norm, scores, state};
use crate::mtp;
use crate::pooling::Pooling;
use crate::weights::{FileWeights, is_of_later_block};

/// Builds the graph of a model for sequences of up to `context_tokens`, and its weights by
/// [`WeightId::index`](rf_graph::WeightId::index).
///
/// # Errors
///
/// If a tensor is missing, has an unexpected shape or type, or is not used by the architecture, or
/// if logits or an MTP block are requested and the model has none.
pub fn build(
    gguf: &Gguf,
    config: &ModelConfig,
    context_tokens: usize,
    head: Head,
) -> Result<(Graph, Vec<Weight>), Error> {
    build_with_adapters(gguf, config, &AdapterSet::default(), context_tokens, head)
}

/// [`build`] with adapters. Before all other ops of the graph is one more
/// [`Op::Input`](rf_graph::Op::Input), unless there are no adapters: the factors of each token,
/// [`AdapterSet::input_row`].
///
/// # Errors
///
/// The errors of [`build`], and if an adapter changes a tensor that the architecture uses in
/// another way than a matmul or the embedding, or the model has an MTP block.
pub fn build_with_adapters(
    gguf: &Gguf,
    config: &ModelConfig,
    adapters: &AdapterSet,
    context_tokens: usize,
    head: Head,
) -> Result<(Graph, Vec<Weight>), Error> {
    if head == Head::LogitsAndMtp && !adapters.is_empty() {
        return Err(AdapterError::WithMtp.into());
    }
    let is_of_logits = matches!(head, Head::Logits | Head::LogitsAndMtp);
    if is_of_logits && !config.generates() {
        let architecture = config.architecture.clone();
        let pooling = config.pooling.map_or("none", Pooling::name);
        return Err(Error::NoLogits { architecture, pooling });
    }
    let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
    let layers = config.layers_for(context_tokens);
    let mut w = FileWeights::new(gguf, config.weights, &config.tensors_read, adapters);

    let table = w.matrix("token_embd.weight", vocab_size, hidden_size)?;
    let x = w.graph.embed_or_media(table, config.embedding_scale);
    let mut x = w.adapted_embedding(x, config.embedding_scale);
    if config.normalizes_embedding {
        let ones = w.constant(hidden_size, 1.0);
        x = w.graph.rms_norm(x, ones, config.layers[0].norm_eps);
    }
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
    }
    if config.embedding_norm {
        x = norm(&mut w, "token_embd_norm", &config.layers[0], x)?;
    }
    let per_layer = PerLayerInput::build(&mut w, config, x)?;
    let altup = layers[0].altup;
    if let Some(altup) = altup {
        let projections = w.squares("altup_proj.weight", altup.streams - 1, hidden_size)?;
        x = altup_streams(&mut w, x, &projections, hidden_size);
    }
    for (index, spec) in layers.iter().enumerate() {
        w.enter(index);
        let input = per_layer.as_ref().map(|input| input.of_layer(&mut w, index));
        x = layer(&mut w, spec, x, input)?;
        if let Some(direction) = adapters.direction(index) {
            x = with_direction(&mut w, config, x, (index, direction))?;
        }
        if index < config.deepstack_layers {
            x = w.graph.add_media(x, index + 1);
        }
    }
    if let Some(altup) = altup {
        let projections = w.squares("altup_unembd_proj.weight", altup.streams - 1, hidden_size)?;
        x = altup_mean(&mut w, x, &projections, hidden_size);
    }
    let output = match head {
        Head::Logits => {
            let x = w.graph.select_rows(x);
            let x = output_norm(&mut w, config, x)?;
            let output = output_matrix(&mut w, config, table)?;
            logits(&mut w, config, output, x)
        }
        Head::LogitsAndMtp => {
            let state = output_norm(&mut w, config, x)?;
            w.graph.output(state);
            let output = output_matrix(&mut w, config, table)?;
            mtp::block(&mut w, config, context_tokens, (table, output))?;
            let state = w.graph.input(hidden_size);
            let x = w.graph.select_rows(state);
            logits(&mut w, config, output, x)
        }
        Head::State => {
            let x = w.graph.select_rows(x);
            let x = output_norm(&mut w, config, x)?;
            state(&mut w, x)?
        }
        Head::Scores => {
            let x = if let Some(mean) = config.score_mean() {
                let x = output_norm(&mut w, config, x)?;
                let x = mean_of_text(&mut w, &mean, x);
                w.graph.select_rows(x)
            } else {
                let x = w.graph.select_rows(x);
                output_norm(&mut w, config, x)?
            };
            scores(&mut w, config, x)?
        }
    };
    let num_built = config.num_layers() + usize::from(head == Head::LogitsAndMtp);
    let mut unused = w.unused(num_built, config.num_blocks);
    unused.retain(|name| !head.ignores(name));
    if !unused.is_empty() {
        let architecture = config.architecture.clone();
        return Err(Error::UnknownTensors { architecture, tensors: unused });
    }
    let is_later = |name: &str| is_of_later_block(name, num_built) || head.ignores(name);
    let (graph, weights) = w.graph.finish(output);
    adapters.check_applied(&graph, &weights, &config.architecture, is_later)?;
    Ok((graph, weights))
}

/// The output of a layer with the sum of the control vectors.
fn with_direction(
    w: &mut FileWeights<'_>,
    config: &ModelConfig,
    x: ValueId,
    (layer, direction): (usize, &[f32]),
) -> Result<ValueId, Error> {
    if w.graph.width(x) != direction.len() {
        let architecture = config.architecture.clone();
        return Err(AdapterError::NoDirections { architecture }.into());
    }
    let name = format!("direction.{layer}");
    let vector = w.graph.weight(Weight::f32(name, 1, direction.len(), direction));
    Ok(w.graph.add_vector(x, vector))
}

/// The embeddings of a token for each layer alone (Gemma 3n, 4), side by side.
struct PerLayerInput {
    all: ValueId,
    width: usize,
}

impl PerLayerInput {
    /// `(norm(Wx / √hidden_size) + table[id] · √width) / √2`, with the norm over each layer's part.
    fn build(
        w: &mut FileWeights<'_>,
        config: &ModelConfig,
        x: ValueId,
    ) -> Result<Option<Self>, Error> {
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

    fn of_layer(&self, w: &mut FileWeights<'_>, layer: usize) -> ValueId {
        w.graph().slice(self.all, layer * self.width..(layer + 1) * self.width)
    }
}
