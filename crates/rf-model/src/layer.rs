//! The transformer, written once.

use rf_gguf::Gguf;
use rf_graph::{Activation, Attention, Graph, GraphBuilder, Rope, ValueId, Weight};

use crate::config::ModelConfig;
use crate::error::Error;
use crate::rope::rope;
use crate::weights::Weights;

/// Builds the graph of a model, and its weights by [`WeightId::index`](rf_graph::WeightId::index).
///
/// # Errors
///
/// If a tensor is missing, or has an unexpected shape or type.
pub fn build(gguf: &Gguf, config: &ModelConfig) -> Result<(Graph, Vec<Weight>), Error> {
    let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
    let mut w = Weights { gguf, graph: GraphBuilder::new() };
    let factors = w.values("rope_freqs.weight", config.rope.dims / 2)?;
    let rope = rope(config, factors.as_deref());

    let table = w.matrix("token_embd.weight", vocab_size, hidden_size)?;
    let mut x = w.graph.embed(table, 1.0);
    for index in 0..config.num_layers {
        x = layer(&mut w, config, &rope, index, x)?;
    }
    let x = w.graph.select_rows(x);
    let norm = w.vector("output_norm.weight", hidden_size)?;
    let x = w.graph.rms_norm(x, norm, config.rms_norm_eps);
    let tied = gguf.tensor("output.weight").is_none();
    let output = if tied { table } else { w.matrix("output.weight", vocab_size, hidden_size)? };
    let bias = w.optional_vector("output.bias", vocab_size)?;
    let logits = w.graph.linear(x, output, bias);
    Ok(w.graph.finish(logits))
}

/// `x + attention(norm(x))`, then `x + feed_forward(norm(x))`.
fn layer(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    rope: &Rope,
    index: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let name = |tensor: &str| format!("blk.{index}.{tensor}");
    let norm = w.vector(&name("attn_norm.weight"), config.hidden_size)?;
    let normed = w.graph.rms_norm(x, norm, config.rms_norm_eps);
    let attended = attention(w, config, rope, index, normed)?;
    let x = w.graph.add(x, attended);

    let norm = w.vector(&name("ffn_norm.weight"), config.hidden_size)?;
    let normed = w.graph.rms_norm(x, norm, config.rms_norm_eps);
    let fed = if config.experts.is_some() {
        mixture_of_experts(w, config, index, normed)?
    } else {
        feed_forward(w, config, index, normed)?
    };
    Ok(w.graph.add(x, fed))
}

/// `softmax(rope(q) · rope(k)ᵀ / √head_dim) · v · Wₒ`.
fn attention(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    rope: &Rope,
    index: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let ModelConfig { hidden_size, num_heads, num_kv_heads, head_dim, .. } = *config;
    let mut q = projection(w, index, "attn_q", [num_heads * head_dim, hidden_size], x)?;
    let mut k = projection(w, index, "attn_k", [num_kv_heads * head_dim, hidden_size], x)?;
    let v = projection(w, index, "attn_v", [num_kv_heads * head_dim, hidden_size], x)?;
    if config.family.qk_norm {
        for (x, tensor) in [(&mut q, "attn_q_norm"), (&mut k, "attn_k_norm")] {
            let norm = w.vector(&format!("blk.{index}.{tensor}.weight"), head_dim)?;
            *x = w.graph.rms_norm(*x, norm, config.rms_norm_eps);
        }
    }
    let (q, k) = (w.graph.rope(q, rope), w.graph.rope(k, rope));
    let attention = Attention::new(index, num_heads, num_kv_heads, head_dim);
    let y = w.graph.attention(q, k, v, &attention);
    projection(w, index, "attn_output", [hidden_size, num_heads * head_dim], y)
}

/// `(silu(x · Wgate) ⊙ x · Wup) · Wdown`.
fn feed_forward(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    index: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let ModelConfig { hidden_size, intermediate_size, .. } = *config;
    let gate = projection(w, index, "ffn_gate", [intermediate_size, hidden_size], x)?;
    let up = projection(w, index, "ffn_up", [intermediate_size, hidden_size], x)?;
    let h = w.graph.glu(Activation::Silu, gate, up);
    projection(w, index, "ffn_down", [hidden_size, intermediate_size], h)
}

/// `Σ pₑ · feed_forwardₑ(x)` over the experts that the router selects.
fn mixture_of_experts(
    w: &mut Weights<'_>,
    config: &ModelConfig,
    index: usize,
    x: ValueId,
) -> Result<ValueId, Error> {
    let hidden_size = config.hidden_size;
    let Some(experts) = config.experts else { return Ok(x) };
    let (count, inner) = (experts.count, experts.intermediate_size);
    let name = |tensor: &str| format!("blk.{index}.{tensor}.weight");
    let router = w.matrix(&name("ffn_gate_inp"), count, hidden_size)?;
    let gate = w.experts(&name("ffn_gate_exps"), count, inner, hidden_size)?;
    let up = w.experts(&name("ffn_up_exps"), count, inner, hidden_size)?;
    let down = w.experts(&name("ffn_down_exps"), count, hidden_size, inner)?;

    let logits = w.graph.matmul(x, router);
    let route = w.graph.route(logits, experts.experts_per_token);
    let gate = w.graph.expert_matmul(x, route, gate);
    let up = w.graph.expert_matmul(x, route, up);
    let h = w.graph.glu(Activation::Silu, gate, up);
    let y = w.graph.expert_matmul(h, route, down);
    Ok(w.graph.combine_experts(y, route))
}

/// `x · Wᵀ (+ b)`, with the bias if the file has one.
fn projection(
    w: &mut Weights<'_>,
    index: usize,
    tensor: &str,
    [rows, columns]: [usize; 2],
    x: ValueId,
) -> Result<ValueId, Error> {
    let weight = w.matrix(&format!("blk.{index}.{tensor}.weight"), rows, columns)?;
    let bias = w.optional_vector(&format!("blk.{index}.{tensor}.bias"), rows)?;
    Ok(w.graph.linear(x, weight, bias))
}
