//! Hyper-parameters, checked once.

mod changes;

use rf_graph::layer::{
    AttentionSpec, DenseSpec, LayerSpec, Mixer, NormKind, QkNormGroup, QkNormSpec,
};
use rf_graph::{Activation, Attention, KvLayer, Rope, RopeStyle, StateShape};

use crate::error::Error;
use crate::keys::Keys;
use crate::pooling::Pooling;
use crate::rope::RopeSections;
use crate::weights::WeightTable;

/// Hyper-parameters of a model, from the metadata of its file.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a model")]
pub struct ModelConfig {
    /// The architecture, from `general.architecture`.
    pub architecture: String,
    /// Width of the residual.
    pub hidden_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Tokens of context that the model was trained for.
    pub context_length: usize,
    /// Tokens of context beyond which the model cannot be computed, if there is such a limit.
    pub max_context_length: Option<usize>,
    /// The blocks of the file: the layers, and those that predict further tokens.
    pub(crate) num_blocks: usize,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// The layer of the block that guesses the token after the next one (MTP), if the file has one:
    /// of several blocks, the first. It follows the last layer.
    pub mtp: Option<LayerSpec>,
    /// Factor on the embedding of a token.
    pub embedding_scale: f32,
    /// True if a norm follows the embedding.
    pub(crate) embedding_norm: bool,
    /// True if a norm without weight follows the embedding (Muse Glimmer).
    pub(crate) normalizes_embedding: bool,
    /// The norm before the head.
    pub(crate) output_norm: OutputNorm,
    /// Layers, from the first on, after which a part of a media row is added to the residual: a row
    /// is as wide as the model for the embedding, and once more for each of them (Qwen 3 VL).
    pub deepstack_layers: usize,
    /// True if positions are learned: rows of `position_embd.weight` are added to the embedding.
    pub learned_positions: bool,
    /// Factor on the logits.
    pub logit_scale: f32,
    /// Softcap of the logits.
    pub logit_softcap: Option<f32>,
    /// True if the model is an encoder, as BERT is: it may have token types, its windows are
    /// symmetric, and there are no logits.
    pub is_encoder: bool,
    /// The head of a reranker.
    pub(crate) score_head: ScoreHead,
    /// The pooling of the states that the file asks for.
    pub pooling: Option<Pooling>,
    /// The RoPE of a context longer than the original one, if it is another one.
    pub(crate) long_rope: Option<LongRope>,
    /// The weights of a layer.
    pub(crate) weights: WeightTable,
    /// Names of the tensors whose values are among the hyper-parameters.
    pub(crate) tensors_read: Vec<String>,
}

/// The norm before the head, of the kind that the layers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputNorm {
    /// No norm.
    None,
    /// A norm without a weight.
    Unweighted,
    /// The norm of the tensor `{0}.weight`.
    Tensor(&'static str),
}

/// The head of a reranker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreHead {
    /// From the state of one token, with tanh between the matrices.
    Token,
    /// From the mean of all states, with GELU and a norm between the matrices (`ModernBERT`).
    Mean,
}

/// RoPE that depends on the length of the context (Phi-3).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LongRope {
    /// Tokens of context up to which the layers' own RoPE applies.
    pub(crate) original_context: usize,
    /// The RoPE of all layers beyond that.
    pub(crate) rope: Rope,
}

impl ModelConfig {
    /// Transformer layers.
    pub fn num_layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns true if each token sees only itself and earlier tokens, so that a text can be
    /// computed in parts.
    pub fn is_causal(&self) -> bool {
        self.attentions().all(|attention| attention.causal)
    }

    /// Returns true if layers have recurrent states: a sequence cannot be cut.
    pub fn is_recurrent(&self) -> bool {
        !self.states().is_empty()
    }

    /// Returns true if the model predicts tokens. Others embed or rank texts.
    pub fn generates(&self) -> bool {
        self.is_causal() && !self.is_encoder && self.pooling != Some(Pooling::Rank)
    }

    /// The pooling of the file, or else what models of its kind are trained for: the mean where all
    /// tokens see each other, otherwise the last token, which alone sees all.
    pub fn default_pooling(&self) -> Pooling {
        let usual = if self.is_causal() { Pooling::Last } else { Pooling::Mean };
        self.pooling.unwrap_or(usual)
    }

    /// The layers of the KV cache, for [`KvLayout::layers`](rf_graph::KvLayout::layers), which keep
    /// every position.
    pub fn kv_layers(&self) -> Vec<KvLayer> {
        let mean = self.score_mean().map(|mean| KvLayer::new(mean.num_kv_heads, mean.head_dim));
        self.layers.iter().filter_map(LayerSpec::kv_layer).chain(mean).collect()
    }

    /// As [`kv_layers`](Self::kv_layers), with the layer of the MTP block as the last one.
    pub fn kv_layers_with_mtp(&self) -> Vec<KvLayer> {
        self.layers.iter().chain(&self.mtp).filter_map(LayerSpec::kv_layer).collect()
    }

    /// Returns true if layers attend to a latent instead of keys and values.
    pub fn has_latents(&self) -> bool {
        self.kv_layers().iter().any(|layer| layer.latent_dim.is_some())
    }

    /// The recurrent states of a sequence, for [`KvLayout::states`](rf_graph::KvLayout::states).
    pub fn states(&self) -> Vec<StateShape> {
        self.layers.iter().flat_map(LayerSpec::states).collect()
    }

    /// The mean of the states of a text, where a reranker scores it: attention whose scores are all
    /// 0.
    pub(crate) fn score_mean(&self) -> Option<Attention> {
        if self.score_head == ScoreHead::Token {
            return None;
        }
        let head_dim = self.head_dim();
        let num_heads = self.hidden_size / head_dim;
        let layer = self.layers.iter().filter_map(LayerSpec::kv_layer).count();
        let attention = Attention::new(layer, num_heads, num_heads, head_dim);
        Some(Attention { scale: 0.0, causal: false, ..attention })
    }

    /// The layers that attend.
    pub(crate) fn attentions(&self) -> impl Iterator<Item = &AttentionSpec> {
        self.layers.iter().filter_map(LayerSpec::attention)
    }

    /// The layers that attend, to change.
    pub(crate) fn attentions_mut(&mut self) -> impl Iterator<Item = &mut AttentionSpec> {
        self.layers.iter_mut().filter_map(LayerSpec::attention_mut)
    }

    /// Elements per head of the first layer that attends; 0 without one.
    pub(crate) fn head_dim(&self) -> usize {
        self.attentions().next().map_or(0, |attention| attention.head_dim)
    }

    /// The layers for a context of `context_tokens`.
    pub(crate) fn layers_for(&self, context_tokens: usize) -> Vec<LayerSpec> {
        self.layers.iter().map(|layer| self.for_context(layer, context_tokens)).collect()
    }

    /// The layer of the MTP block for a context of `context_tokens`.
    pub(crate) fn mtp_for(&self, context_tokens: usize) -> Option<LayerSpec> {
        self.mtp.as_ref().map(|layer| self.for_context(layer, context_tokens))
    }

    fn for_context(&self, layer: &LayerSpec, context_tokens: usize) -> LayerSpec {
        let mut layer = layer.clone();
        if let Some(attention) = layer.attention_mut().filter(|attention| !attention.causal) {
            // A symmetric window that reaches every token of a text is none.
            attention.window = attention.window.filter(|window| window / 2 + 1 < context_tokens);
        }
        if let Some(long) = &self.long_rope
            && context_tokens > long.original_context
        {
            set_rope(&mut layer, &long.rope);
        }
        layer
    }
}

/// Sets the RoPE of a layer that attends.
fn set_rope(layer: &mut LayerSpec, rope: &Rope) {
    match &mut layer.mixer {
        Mixer::Latent(latent) => latent.rope = Some(rope.clone()),
        _ => {
            if let Some(attention) = layer.attention_mut() {
                attention.rope = Some(rope.clone());
            }
        }
    }
}

/// What most families have in common: RMS norm, RoPE of every head, a dense feed-forward layer with
/// `SiLU`, or experts in every layer if the keys say so. A family changes what is different.
pub(crate) fn transformer(
    keys: &Keys<'_>,
    weights: WeightTable,
    style: RopeStyle,
) -> Result<ModelConfig, Error> {
    hybrid(keys, weights, style, |_, _| Ok(None))
}

/// As [`transformer`], with layers of other kinds: `mixer` has the index of a layer and its number
/// of key and value heads, and returns what the layer has instead of attention.
#[expect(clippy::too_many_lines, reason = "it names every setting of a model once")]
pub(crate) fn hybrid(
    keys: &Keys<'_>,
    weights: WeightTable,
    style: RopeStyle,
    mixer: impl Fn(usize, usize) -> Result<Option<Mixer>, Error>,
) -> Result<ModelConfig, Error> {
    let vocab_size = keys.vocab_size()?;
    let hidden_size = keys.size("embedding_length")?;
    let num_blocks = keys.size("block_count")?;
    if num_blocks > keys.num_tensors() {
        return Err(keys.invalid("block_count", &num_blocks, "the file has fewer tensors"));
    }
    let num_layers = num_blocks.saturating_sub(keys.count("nextn_predict_layers")?);
    if num_layers == 0 {
        return Err(keys.invalid("nextn_predict_layers", &num_blocks, "no other layers remain"));
    }
    let num_heads = keys
        .counts_per_layer("attention.head_count", num_layers)?
        .ok_or_else(|| keys.missing("attention.head_count"))?;
    let num_kv_heads = keys.counts_per_layer("attention.head_count_kv", num_layers)?;
    let num_kv_heads = num_kv_heads.unwrap_or_else(|| num_heads.clone());
    let mixers = (0..num_layers).map(|layer| mixer(layer, num_kv_heads[layer]));
    let mixers = mixers.collect::<Result<Vec<_>, _>>()?;
    let attends = mixers.iter().position(Option::is_none);
    let attention = match attends {
        Some(first) => Some(attention(keys, hidden_size, num_heads[first], style)?),
        None => None,
    };
    let (norm, norm_eps) = match keys.norm_eps("attention.layer_norm_rms_epsilon") {
        Ok(eps) => (NormKind::Rms, eps),
        Err(error) => match keys.norm_eps("attention.layer_norm_epsilon") {
            Ok(eps) => (NormKind::Layer, eps),
            Err(_) => return Err(error),
        },
    };
    let causal = keys.flag("attention.causal")?.unwrap_or(true);
    let experts = keys.experts()?;
    let intermediate_sizes = match keys.counts_per_layer("feed_forward_length", num_layers)? {
        Some(sizes) => sizes,
        None if experts.is_some() => vec![0; num_layers],
        None => return Err(keys.missing("feed_forward_length")),
    };
    let mut num_kv_layers = 0;
    let layers = mixers.into_iter().enumerate().map(|(layer, mixer)| {
        let mixer = match (mixer, &attention) {
            (None, Some(([head_dim, value_dim], rope))) => {
                let [num_heads, num_kv_heads] = heads(keys, num_heads[layer], num_kv_heads[layer])?;
                num_kv_layers += 1;
                Mixer::Attention(AttentionSpec {
                    value_dim: *value_dim,
                    rope: Some(rope.clone()),
                    causal,
                    ..AttentionSpec::new(num_heads, num_kv_heads, *head_dim, num_kv_layers - 1)
                })
            }
            (Some(mixer), _) => mixer,
            (None, None) => unreachable!("the first layer that attends has been found"),
        };
        let dense = DenseSpec {
            intermediate_size: intermediate_sizes[layer],
            activation: Activation::Silu,
            gated: true,
            xielu: None,
            clamp: None,
        };
        Ok(LayerSpec {
            hidden_size,
            norm,
            norm_eps,
            post_norm_eps: norm_eps,
            mixer,
            dense: experts.is_none().then_some(dense),
            experts,
            parallel: false,
            residual_scale: 1.0,
            output_scale: 1.0,
            per_layer_input: None,
            altup: None,
        })
    });
    let mut layers = layers.collect::<Result<Vec<_>, Error>>()?;
    let mut num_states = 0;
    for layer in &mut layers {
        layer.set_first_state(num_states);
        num_states += layer.states().len();
    }
    Ok(ModelConfig {
        num_blocks,
        architecture: keys.architecture.clone(),
        hidden_size,
        vocab_size,
        context_length: keys.size("context_length")?,
        max_context_length: None,
        layers,
        mtp: None,
        embedding_scale: 1.0,
        embedding_norm: false,
        normalizes_embedding: false,
        deepstack_layers: 0,
        output_norm: OutputNorm::Tensor("output_norm"),
        learned_positions: false,
        logit_scale: 1.0,
        logit_softcap: None,
        is_encoder: false,
        score_head: ScoreHead::Token,
        pooling: keys.pooling()?,
        long_rope: None,
        weights,
        tensors_read: Vec::new(),
    })
}

/// As [`transformer`], for encoders of BERT's kind: a norm follows the embedding, and none the last
/// layer.
pub(crate) fn encoder(keys: &Keys<'_>, weights: WeightTable) -> Result<ModelConfig, Error> {
    let mut config = transformer(keys, weights, RopeStyle::Neox)?;
    config.set_encoder(keys)?;
    config.embedding_norm = true;
    config.output_norm = OutputNorm::None;
    Ok(config)
}

/// Elements per head of keys and of values, and the rotary embedding.
fn attention(
    keys: &Keys<'_>,
    hidden_size: usize,
    num_heads: usize,
    style: RopeStyle,
) -> Result<([usize; 2], Rope), Error> {
    let num_heads = keys.checked_size("attention.head_count", num_heads as u64)?;
    let [head_dim, value_dim] = head_dims(keys, hidden_size, num_heads)?;
    let rope = keys.rope(head_dim)?;
    let factors = keys.divisors("rope_freqs.weight", rope.dims / 2)?;
    Ok(([head_dim, value_dim], rope.build(style, factors.as_deref())))
}

/// Query heads, and the key and value heads that divide them.
fn heads(keys: &Keys<'_>, num_heads: usize, num_kv_heads: usize) -> Result<[usize; 2], Error> {
    let num_heads = keys.checked_size("attention.head_count", num_heads as u64)?;
    let num_kv_heads = keys.checked_size("attention.head_count_kv", num_kv_heads as u64)?;
    if num_heads.is_multiple_of(num_kv_heads) {
        return Ok([num_heads, num_kv_heads]);
    }
    let reason = format!("it must divide the {num_heads} query heads");
    Err(keys.invalid("attention.head_count_kv", &num_kv_heads, &reason))
}

/// Elements per head of keys and of values.
fn head_dims(keys: &Keys<'_>, hidden_size: usize, num_heads: usize) -> Result<[usize; 2], Error> {
    let head_dim = match keys.optional_size("attention.key_length")? {
        Some(head_dim) => head_dim,
        None if hidden_size >= num_heads => hidden_size / num_heads,
        None => {
            let reason = "more heads than embedding_length";
            return Err(keys.invalid("attention.head_count", &num_heads, reason));
        }
    };
    let value_dim = keys.optional_size("attention.value_length")?.unwrap_or(head_dim);
    if value_dim > head_dim {
        let reason = format!("it must be at most the key length, {head_dim}");
        return Err(keys.unsupported("attention.value_length", &value_dim, &reason));
    }
    Ok([head_dim, value_dim])
}

/// Values have as many elements per head as keys.
pub(crate) fn check_value_length(
    keys: &Keys<'_>,
    name: &str,
    head_dim: usize,
) -> Result<(), Error> {
    let value_length = keys.optional_size(name)?.unwrap_or(head_dim);
    if value_length == head_dim {
        return Ok(());
    }
    let reason = format!("it must equal the key length, {head_dim}");
    Err(keys.unsupported(name, &value_length, &reason))
}

impl ModelConfig {
    /// Makes layers dense in a model with experts.
    pub(crate) fn dense_layers(
        &mut self,
        keys: &Keys<'_>,
        is_dense: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let num_layers = self.num_layers();
        let sizes = keys.per_layer("feed_forward_length", num_layers)?;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if layer.experts.is_some() && is_dense(index) {
                let sizes = sizes.as_ref().ok_or_else(|| keys.missing("feed_forward_length"))?;
                layer.experts = None;
                layer.dense = Some(DenseSpec {
                    intermediate_size: sizes[index],
                    activation: Activation::Silu,
                    gated: true,
                    xielu: None,
                    clamp: None,
                });
            }
        }
        Ok(())
    }

    /// Sets the RoPE of files that have factors for short and for long contexts (longrope), of
    /// `head_dim` elements per head.
    pub(crate) fn set_long_rope(
        &mut self,
        keys: &Keys<'_>,
        head_dim: usize,
        style: RopeStyle,
    ) -> Result<(), Error> {
        let rope = keys.rope(head_dim)?;
        let factors = |name: &str| keys.divisors(name, rope.dims / 2);
        let short = factors("rope_factors_short.weight")?;
        let long = factors("rope_factors_long.weight")?;
        let (Some(short), Some(long)) = (short, long) else { return Ok(()) };
        let short = rope.build(style, Some(&short));
        self.layers.iter_mut().for_each(|layer| set_rope(layer, &short));
        let original_context = keys.original_context()?;
        self.long_rope = Some(LongRope { original_context, rope: rope.build(style, Some(&long)) });
        Ok(())
    }

    /// Replaces RoPE by `ALiBi` with a largest bias in every layer.
    pub(crate) fn set_alibi(&mut self, bias: f32) {
        for attention in self.attentions_mut() {
            (attention.rope, attention.alibi) = (None, Some(bias));
        }
    }

    /// Makes the model an encoder: every token sees all others, or those of a symmetric window.
    pub(crate) fn set_encoder(&mut self, keys: &Keys<'_>) -> Result<(), Error> {
        self.is_encoder = true;
        let causal = keys.flag("attention.causal")?.unwrap_or(false);
        for attention in self.attentions_mut() {
            attention.causal = causal;
        }
        Ok(())
    }

    /// Makes attention and feed-forward of every layer read the same residual.
    pub(crate) fn set_parallel(&mut self) {
        for layer in &mut self.layers {
            layer.parallel = true;
        }
    }

    /// Sets the norm of queries and keys in every layer.
    pub(crate) fn set_qk_norm(&mut self, group: QkNormGroup, after_rope: bool) {
        for attention in self.attentions_mut() {
            attention.qk_norm = Some(QkNormSpec { group, after_rope });
        }
    }

    /// Divides the pairs of RoPE among the coordinates of a position, if the file has sections.
    pub(crate) fn set_rope_sections(
        &mut self,
        keys: &Keys<'_>,
        sections: fn([usize; 4]) -> RopeSections,
    ) -> Result<(), Error> {
        let Some(sizes) = keys.rope_sections()? else { return Ok(()) };
        for rope in self.attentions_mut().filter_map(|attention| attention.rope.as_mut()) {
            rope.axes = Some(sections(sizes).axes(rope.inv_freq.len()));
        }
        Ok(())
    }

    /// Makes the rows of a picture see each other both ways, in the layers that `sees` selects.
    pub(crate) fn set_non_causal_media(&mut self, sees: impl Fn(&AttentionSpec) -> bool) {
        for attention in self.attentions_mut() {
            attention.non_causal_media = sees(attention);
        }
    }

    /// Sets the activation of every feed-forward layer and expert.
    pub(crate) fn set_activation(&mut self, activation: Activation) {
        for layer in &mut self.layers {
            if let Some(dense) = &mut layer.dense {
                dense.activation = activation;
            }
            if let Some(experts) = &mut layer.experts {
                experts.activation = activation;
            }
        }
    }

    /// Makes every feed-forward layer one without a gate.
    pub(crate) fn set_ungated(&mut self, activation: Activation) {
        for dense in self.layers.iter_mut().filter_map(|layer| layer.dense.as_mut()) {
            (dense.activation, dense.gated) = (activation, false);
        }
    }

    /// Sets the window of the layers that have one.
    pub(crate) fn set_windows(
        &mut self,
        keys: &Keys<'_>,
        default_window: Option<usize>,
        default_period: usize,
    ) -> Result<Vec<bool>, Error> {
        let windowed = keys.windowed(self.num_layers(), default_period)?;
        let window = keys.optional_size("attention.sliding_window")?.or(default_window);
        for (attention, windowed) in self.attentions_mut().zip(&windowed) {
            attention.window = if *windowed { window } else { None };
        }
        Ok(if window.is_some() { windowed } else { vec![false; self.num_layers()] })
    }
}
