//! The block that guesses the token after the next one (multi-token prediction, MTP): one more
//! layer after those of the model, with a separate KV cache. Its inputs are a token and the
//! model's state of the token before it. The front page of `rf_engine`'s module `engine/mtp`
//! describes its use.

use rf_graph::layer::{LayerSpec, layer};
use rf_graph::{ValueId, WeightId};

use crate::config::ModelConfig;
use crate::error::Error;
use crate::head::{OutputMatrix, logits, norm, output_norm};
use crate::keys::Keys;
use crate::weights::FileWeights;

/// The stages of a program with [`Head::LogitsAndMtp`](crate::Head::LogitsAndMtp): see
/// [`Graph::stages`](rf_graph::Graph::stages). They share weights and no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpStage {
    /// Embedding, layers and output norm. Its output is the state of each token,
    /// `[tokens, hidden_size]`.
    Trunk,
    /// The block. Its inputs are a token and the trunk's state of the token before it,
    /// `[tokens, hidden_size]`, zeros for the first one. Its outputs, for the requested rows, are
    /// its own state, which takes the place of the trunk's to guess further tokens, and the logits
    /// of the token after the given one.
    Block,
    /// Its input is the trunk's state of each token, `[tokens, hidden_size]`, and its output the
    /// logits of the requested rows.
    Logits,
}

impl MtpStage {
    /// The number of the stage.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The layer of the first MTP block of a file: it is like the last layer of the model that attends
/// and has tensors of the same shapes, or else like the last one that attends, so that the tensor
/// that differs is named. `None` if there is no block, or no layer attends.
pub(crate) fn layer_spec(
    keys: &Keys<'_>,
    config: &ModelConfig,
) -> Result<Option<LayerSpec>, Error> {
    let num_layers = config.num_layers();
    let is_there = keys.has_tensor(&tensor(num_layers, "eh_proj"));
    if keys.count("nextn_predict_layers")? == 0 || !is_there || !config.generates() {
        return Ok(None);
    }
    let is_like_block = |index: usize| {
        let mut rows = config.weights.iter().copied().flatten();
        rows.all(|row| keys.shape(&row.tensor(index)) == keys.shape(&row.tensor(num_layers)))
    };
    let attends = |(_, layer): &(usize, &LayerSpec)| {
        layer.kv_layer().is_some() && layer.per_layer_input.is_none()
    };
    let mut layers = config.layers.iter().enumerate().filter(attends).rev();
    let last = layers.clone().next();
    let model = layers.find(|(index, _)| is_like_block(*index)).or(last);
    Ok(model.map(|(_, layer)| {
        let mut spec = layer.clone();
        spec.set_kv_layer(config.kv_layers().len());
        spec
    }))
}

/// Builds [`MtpStage::Block`]: `layer([norm(embedding), norm(state)] · W)`, and the head. `table`
/// is the model's embedding, and `output` its output matrix.
pub(crate) fn block(
    w: &mut FileWeights<'_>,
    config: &ModelConfig,
    context_tokens: usize,
    (table, output): (WeightId, OutputMatrix),
) -> Result<(), Error> {
    let spec = config
        .mtp_for(context_tokens)
        .ok_or_else(|| Error::NoMtpBlock { architecture: config.architecture.clone() })?;
    let (index, hidden_size, vocab_size) =
        (config.num_layers(), config.hidden_size, config.vocab_size);
    let own_matrix = |w: &mut FileWeights<'_>, stem| {
        let name = tensor(index, stem);
        w.has(&name).then(|| w.matrix(&name, vocab_size, hidden_size)).transpose()
    };
    w.enter(index);
    let state = w.graph.input(hidden_size);
    let table = own_matrix(w, "embed_tokens")?.unwrap_or(table);
    let embedding = w.graph.embed_or_media(table, config.embedding_scale);
    let embedding = norm_of(w, &spec, index, "enorm", embedding)?;
    let state = norm_of(w, &spec, index, "hnorm", state)?;
    let joined = w.graph.join_groups(embedding, state, 1);
    let projection = w.matrix(&tensor(index, "eh_proj"), hidden_size, 2 * hidden_size)?;
    let x = w.graph.matmul(joined, projection);
    let x = layer(w, &spec, x, None)?;
    let x = w.graph.select_rows(x);
    let x = if w.has(&tensor(index, "shared_head_norm")) {
        norm_of(w, &spec, index, "shared_head_norm", x)?
    } else {
        output_norm(w, config, x)?
    };
    let output = own_matrix(w, "shared_head_head")?.map_or(output, |matrix| (matrix, None));
    let logits = logits(w, config, output, x);
    w.graph.output(x);
    w.graph.output(logits);
    Ok(())
}

fn norm_of(
    w: &mut FileWeights<'_>,
    spec: &LayerSpec,
    index: usize,
    stem: &str,
    x: ValueId,
) -> Result<ValueId, Error> {
    norm(w, &format!("blk.{index}.nextn.{stem}"), spec, x)
}

fn tensor(index: usize, stem: &str) -> String {
    format!("blk.{index}.nextn.{stem}.weight")
}
