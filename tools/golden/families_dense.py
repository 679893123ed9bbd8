"""Descriptions of older and other decoders."""

import numpy as np

import gguf_file
from families import QKV_BIAS, family, moe_shape, small, untied, yarn
from model import coarse


@family("olmo")
def _(m):
    small(m, ln=True)
    m.set(attention__clamp_kqv=m.pick(0.8, 1.2))
    m.exercises = "LayerNorm without weights, q/k/v clamped, NORM RoPE; tied"


@family("olmoe")
def _(m):
    small(m, ff=16, kv=4, experts=m.pick(6, 5), used=m.pick(2, 3))
    m.exercises = "qk-norm over the whole row, softmax router, weights not renormalised, untied"


@family("minicpm3")
def _(m):
    nope, rope, kv_lora = m.pick((16, 8, 32), (8, 16, 16))
    m.base(m.pick(3, 2), m.pick(32, 48), 4, 4, m.pick(64, 48), n_rot=rope)
    m.set(
        attention__key_length=nope + rope,
        attention__value_length=m.pick(8, 12),
        attention__q_lora_rank=m.pick(32, 16),
        attention__kv_lora_rank=kv_lora,
    )
    m.keep += [r"rope_factors"]
    m.rule(r"^token_embd", "mat", m.pick(0.25, 0.4))
    m.set(rope__scaling__original_context_length=m.pick(16, 4096))
    m.rule(r"rope_factors_short", "const", 1.15)
    m.exercises = "MLA expanded (own K and V per head), longrope factors, embedding, residual and logit scales fixed by the architecture (12, 1.4 / sqrt(layers), 256 / n_embd)"


@family("apertus")
def _(m):
    small(m, head_dim=True, rope=m.pick(12e6, 500000.0))
    L = m.L
    m.keys.update(
        {
            "/xielu.alpha_n": [0.8, 1.1, 0.6][:L],
            "/xielu.alpha_p": [0.9, 0.5, 1.2][:L],
            "/xielu.beta": [0.5, 0.5, 0.4][:L],
            "/xielu.eps": [-1e-6] * L,
        }
    )
    m.keep += [r"rope_freqs"]
    untied(m)
    m.exercises = "xIELU without gate (alphas per layer), qk-norm, rope_freqs, NEOX RoPE"


@family("spark2_5")
def _(m):
    small(m, layers=4, head_dim=True, rope=m.pick(1e6, 500000.0))
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(
            [True, True, True, False], [False, True, True, False]
        ),
        rope__freq_base_swa=10000.0,
    )
    m.exercises = "window layers, sigmoid gate per head, exact (erf) GELU gate"


@family("command_r", "command-r")
def _(m):
    small(m, ln=True, rope=75000.0)
    m.set(logit_scale=m.pick(0.3, 0.5))
    m.keep += m.pick([], [r"attn_[qk]_norm"])
    m.exercises = (
        "attention and feed-forward in parallel, LayerNorm without bias, logit scale, NORM RoPE; tied"
        + m.pick("", "; qk LayerNorm per head")
    )


@family("gemma")
def _(m):
    small(m, head_dim=True, kv=1)
    m.rule(r"^token_embd", "mat", 0.8)
    m.exercises = "embeddings times sqrt(n_embd), GeGLU, MQA with a head size of its own; tied"


@family("internlm2")
def _(m):
    small(m, rope=1e6)
    m.exercises = "llama blocks, GQA, untied"
    untied(m)


@family("arcee")
def _(m):
    small(m, head_dim=True, rope=500000.0)
    yarn(m, m.pick(4, 8), 16)
    m.exercises = "squared ReLU without gate, YaRN; tied"


@family("deci")
def _(m):
    H = m.pick([4, 0, 4, 0], [4, 4, 0, 0])
    KV = m.pick([2, 0, 1, 0], [1, 2, 0, 0])
    FF = m.pick([64, 48, 0, 32], [48, 0, 64, 32])
    small(m, layers=4, heads=H, kv=KV, ff=FF, head_dim=True, rope=500000.0)
    H[m.pick(1, 2)] = 4  # a layer with heads but no K/V is a linear one
    m.keep += [r"rope_freqs"]
    m.exercises = "per-layer kinds: GQA of two sizes, attention replaced by one matrix, no attention at all, no feed-forward"


@family("qwen")
def _(m):
    small(m, kv=4, ff=m.pick(96, 96))
    m.keep += [r"attn_qkv"]
    m.exercises = "fused qkv with bias, feed_forward_length is twice the width of the MLP, untied"


@family("phi2")
def _(m):
    small(m, ln=True, n_rot=m.pick(4, 6), kv=4)
    m.fuse_qkv = True
    m.keep += [QKV_BIAS]
    m.exercises = "attention and feed-forward in parallel from one LayerNorm, partial rotary, GELU, biases incl. output"


@family("gptneox")
def _(m):
    small(m, ln=True, n_rot=m.pick(4, 6), kv=4)
    m.set(use_parallel_residual=m.pick(True, False))
    m.exercises = (
        "fused qkv, "
        + m.pick("parallel residual with two norms", "serial residual")
        + ", partial rotary, GELU, biases"
    )


@family("bloom")
def _(m):
    small(m, ln=True, kv=4, rope=0)
    m.exercises = "ALiBi, LayerNorm after the embedding, fused qkv, GELU, biases; tied"


@family("mpt")
def _(m):
    small(m, ln=True, kv=m.pick(4, 2), rope=0)
    m.set(attention__max_alibi_bias=m.pick(8.0, 16.0), attention__clamp_kqv=m.pick(1.5, 2.0))
    m.exercises = "ALiBi, clamped qkv, GELU, no biases; tied"


@family("starcoder")
def _(m):
    small(m, ln=True, kv=1, rope=0)
    m.set(context_length=64)
    m.exercises = "learned positions, MQA, fused qkv, GELU, biases; tied"


@family("baichuan")
def _(m):
    m.base(m.pick(32, 40), 16, 2, 2, 16)
    m.rule(r"(attn_output|ffn_down)\.weight", "mat", 0.6)
    m.exercises = (
        m.pick(
            "32 layers, which means NORM RoPE", "40 layers, which means ALiBi (bias 8) and no RoPE"
        )
        + "; llama blocks otherwise, untied"
    )


@family("orion")
def _(m):
    small(m, ln=True)
    m.exercises = "LayerNorm with biases, SwiGLU, NEOX RoPE, untied"


@family("xverse")
def _(m):
    small(m, kv=4)
    m.exercises = "llama blocks with NORM RoPE, untied"


@family("exaone")
def _(m):
    small(m, rope=500000.0)
    m.keep += [r"rope_freqs"]
    m.exercises = "llama blocks with NEOX RoPE and rope_freqs"


@family("nemotron")
def _(m):
    small(m, ln=True, n_rot=m.pick(6, 4))
    m.exercises = "LayerNorm with biases, squared ReLU without gate, partial rotary, untied"


@family("plamo3")
def _(m):
    small(m, layers=4, head_dim=True, rope=1e6)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(2, 4),
        rope__freq_base_swa=10000.0,
    )
    m.rule(r"post_(attention|ffw)_norm", "norm", 1.5)
    m.exercises = "fused qkv, qk-norm, 4 norms, window layers with another RoPE base, SwiGLU with gate and up in ffn_up"


@family("smallthinker")
def _(m):
    small(m, layers=4, head_dim=True, ff=16, rope=1.5e6, **moe_shape(m))
    m.set(expert_gating_func=m.pick(2, 1), attention__sliding_window=m.pick(4096, 0))
    m.exercises = "router reads the block's input before attention, ReLU gate, " + m.pick(
        "sigmoid router, every 4th layer from the 1st on without RoPE (window 4096 fixed)",
        "softmax router, RoPE in every layer",
    )


@family("grovemoe")
def _(m):
    small(
        m,
        head_dim=True,
        rope=1e6,
        **{**moe_shape(m), "experts": m.pick(6, 8), "used": m.pick(2, 3)}
    )
    m.set(
        expert_chunk_feed_forward_length=m.pick(16, 8),
        expert_group_scale=m.pick(0.3, 0.5),
        experts_per_group=2,
    )
    m.exercises = "qwen3moe plus adjugate experts shared by groups of experts, scaled"


@family("dbrx")
def _(m):
    small(m, ln=True, ff=16, rope=500000.0, experts=m.pick(6, 5), used=m.pick(2, 3))
    m.set(attention__clamp_kqv=m.pick(1.5, 2.0))
    m.fuse_qkv = True
    m.exercises = "LayerNorm without bias, clamped fused qkv, softmax router renormalised, untied"


@family("arctic")
def _(m):
    small(m, ff=m.pick(32, 16), experts=m.pick(6, 5), used=2)
    m.exercises = (
        "dense MLP with residual, and MoE of the block's input beside it (norm of its own)"
    )


@family("deepseek")
def _(m):
    small(m, **moe_shape(m))
    m.set(
        leading_dense_block_count=1,
        expert_shared_count=m.pick(2, 1),
        expert_weights_scale=m.pick(1.5, 1.0),
    )
    m.exercises = (
        "leading dense layer, softmax router not renormalised, shared experts, NORM RoPE, untied"
    )


@family("chatglm")
def _(m):
    small(m, n_rot=m.pick(6, 4))
    m.fuse_qkv = True
    m.keep += [QKV_BIAS]
    m.exercises = "fused qkv with bias, half rotary (NORM), SwiGLU with gate and up in ffn_up"


@family("bitnet")
def _(m):
    small(m, rope=500000.0)
    m.exercises = (
        "norms inside attention (before the output matrix) and MLP (before ffn_down); tied"
    )


@family("pangu_embedded", "pangu-embedded")
def _(m):
    small(m, head_dim=True, rope=m.pick(16e6, 500000.0))
    m.keep += [QKV_BIAS, r"attn_output\.bias"]
    m.exercises = "q/k/v and output biases, NEOX RoPE; tied"


@family("mimo2")
def _(m):
    small(
        m,
        layers=4,
        heads=4,
        kv=m.pick([1, 2, 2, 1], [2, 1, 2, 2]),
        rope=5e6,
        n_rot=m.pick(8, 6),
        **moe_shape(m)
    )
    k, v = m.pick((24, 16), (16, 8))
    m.set(
        attention__key_length=k,
        attention__value_length=v,
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(
            [False, True, True, False], [False, True, False, True]
        ),
        rope__freq_base_swa=10000.0,
        attention__value_scale=m.pick(0.7, 1.3),
        expert_weights_norm=True,
    )
    m.keep += [
        r"attn_sinks",
        r"exp_probs_b",
        r"ffn_gate_inp",
        r"_exps\.",
        r"ffn_(gate|up|down)\.weight",
    ]
    m.drop += m.pick(
        [
            r"blk\.0\.ffn_(gate_inp|\w+_exps)",
            r"blk\.[123]\.ffn_(gate|up|down)\.",
            r"blk\.0\.exp_probs",
            r"blk\.[03]\.attn_sinks",
        ],
        [
            r"blk\.0\.ffn_(gate_inp|\w+_exps)",
            r"blk\.[123]\.ffn_(gate|up|down)\.",
            r"blk\.0\.exp_probs",
            r"blk\.[02]\.attn_sinks",
        ],
    )
    m.set(expert_gating_func=2)
    m.exercises = "K and V heads of different size, K/V heads per layer, window layers with sinks and another RoPE base, V scaled, dense first layer, sigmoid router with bias"


@family("gemma3n")
def _(m):
    m.base(m.pick(3, 4), 16, 2, 1, m.pick(32, 16), head_dim=m.pick(8, 16), rope=1e6)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        rope__freq_base_swa=10000.0,
        attention__sliding_window_pattern=m.pick(3, 2),
    )
    m.rule(r"^token_embd", "mat", 1.0)
    m.rule(r"altup_(correct|predict)_coef", "mat32", 0.5)
    m.rule(r"altup_correct_scale", "norm", 1.0)
    m.rule(r"post_(attention|ffw)_norm", "norm", 1.5)
    # Tokens share their rows with every 64th other, since this is by far the largest tensor.
    per_layer = lambda x: q4_0(coarse(x[np.arange(len(x)) % 64], ("mat", 1.0)))
    m.packed = lambda n, x: per_layer(x) if n.startswith("per_layer_token_embd") else None
    m.exercises = "AltUp (4 streams), LAuReL, per-layer embeddings of 256 (stored in Q4_0 here), activation sparsity in the first 10 layers; sharing of K/V from layer 20 on is beyond this file"


def q4_0(x):
    """Q4_0: an F16 scale and 32 codes of 4 bits less 8 (first 16 in the low nibbles)."""
    b = x.astype(np.float32).reshape(-1, 32)
    top = b[np.arange(len(b)), np.abs(b).argmax(1)]
    d = (top / -8).astype(np.float16)
    inv = np.divide(1.0, d.astype(np.float32), out=np.zeros(len(d), np.float32), where=d != 0)
    code = np.clip(np.floor(b * inv[:, None] + 8.5), 0, 15).astype(np.uint8)
    q = np.concatenate([d.view(np.uint8).reshape(-1, 2), code[:, :16] | code[:, 16:] << 4], 1)
    values = ((code.astype(np.float32) - 8) * d.astype(np.float32)[:, None]).reshape(x.shape)
    return gguf_file.Packed(q, 2, x.shape, values)


@family("t5")
def _(m):
    small(m, layers=2, kv=4, head_dim=True, rope=0)
    m.set(attention__relative_buckets_count=m.pick(16, 8), decoder_start_token_id=0)
    m.rule(r"attn_rel_b", "vec", 1.5, 0.0)
    m.rule(r"attn_(q|k)\.weight", "mat", 0.6)
    m.keep += [r"ffn_gate\.weight", r"blk\.0\.attn_rel_b"]
    m.encoder = True
    m.exercises = "encoder-decoder: `encoder_ids` through the encoder, then `ids` are the decoder's; relative buckets (causal in the decoder), cross attention, scores not scaled, gated GELU"


@family("plamo")
def _(m):
    small(m, kv=m.pick(2, 1))
    m.exercises = "attention and feed-forward in parallel from one RMS norm, GQA, NEOX RoPE, untied"
    untied(m)


@family("codeshell")
def _(m):
    small(m, ln=True)
    m.keep += [r"^token_embd", QKV_BIAS]
    m.fuse_qkv = True
    m.exercises = "fused qkv, LayerNorm, NEOX RoPE, GELU, biases, untied"
