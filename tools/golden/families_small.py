"""Architectures that were there first."""

import numpy as np

import gguf_file
from families import QKV_BIAS, family, mla, moe_shape, sigmoid_moe, small, untied, yarn


def out(m):
    """Half of the models are tied: in the second set the other half."""
    if m.first:
        untied(m)


LLAMA3 = lambda rng, shape: np.where(
    np.arange(shape[-1]) < 3, 1.0, np.where(np.arange(shape[-1]) > 5, 8.0, 3.0)
).astype(np.float32)


@family("llama_gqa", "llama")
def _(m):
    small(m, layers=2)
    m.exercises = "GQA, tied, NORM RoPE"


@family("llama_rope_freqs", "llama")
def _(m):
    small(m, layers=2, head_dim=True, rope=500000.0)
    m.keep.append("rope_freqs")
    m.rule("rope_freqs", "fn", LLAMA3)
    untied(m)
    m.exercises = "rope_freqs.weight, base 500000, untied"


@family("llama_rope_linear", "llama")
def _(m):
    small(m, layers=2, head_dim=True)
    m.set(rope__scaling__type="linear", rope__scaling__factor=m.pick(4.0, 2.5))
    m.exercises = "linear RoPE scaling"


@family("llama_rope_yarn", "llama")
def _(m):
    small(m, layers=2, head_dim=True)
    yarn(m, m.pick(4, 8), 64)
    m.exercises = "YaRN, original context 64"


@family("llama_moe", "llama")
def _(m):
    small(m, layers=2, ff=16, experts=m.pick(4, 6), used=2)
    m.keep += [r"ffn_gate_exps"]
    m.exercises = "Mixtral MoE (softmax over all, top-k, renormalised)"


@family("llama_head_dim", "llama")
def _(m):
    small(m, layers=2, head_dim=True)
    m.exercises = "attention.key_length apart from n_embd / n_head"


@family("mistral", "llama")
def _(m):
    small(m, layers=2)
    m.set(attention__sliding_window=8)
    untied(m)
    m.exercises = "llama with attention.sliding_window, which llama.cpp ignores"


@family("qwen2")
def _(m):
    small(m, layers=2, rope=1e6)
    m.keep.append(QKV_BIAS)
    m.exercises = "q/k/v biases, NEOX RoPE"


@family("qwen3")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    m.exercises = "qk-norm per head"


@family("qwen3moe")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6, **moe_shape(m))
    m.exercises = "qk-norm, MoE"


@family("gemma2")
def _(m):
    small(m, layers=3, head_dim=True)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attn_logit_softcapping=8.0,
        final_logit_softcapping=6.0,
    )
    m.rule("^token_embd", "mat", 1.0)
    m.rule(r"post_(attention|ffw)_norm", "norm", 3.0)
    m.exercises = "4 norms, score and logit softcaps, window on even layers, GELU"


@family("gemma3_pattern6", "gemma3")
def _(m):
    m.base(7, 32, 2, 1, 16, head_dim=16, rope=1e6)
    m.set(attention__sliding_window=m.pick(8, 11))
    m.rule("^token_embd", "mat", 1.0)
    m.rule(r"post_(attention|ffw)_norm", "norm", 3.0)
    m.exercises = (
        "7 layers with the default pattern (every 6th full), qk-norm, freq_base_swa absent (10000)"
    )


@family("gemma3_linear", "gemma3")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=2,
        rope__freq_base_swa=20000.0,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=7.0,
    )
    m.rule("^token_embd", "mat", 1.0)
    m.rule(r"post_(attention|ffw)_norm", "norm", 3.0)
    m.exercises = "pattern key 2, freq_base_swa, linear factor 8 on full layers only, final softcap"


def phi3(m, **kw):
    small(m, layers=2, **kw)
    m.fuse_qkv = True
    m.keep.append(r"attn_[qkv]\.weight")


@family("phi3")
def _(m):
    phi3(m)
    m.name = "phi_3"
    untied(m)
    m.exercises = "fused attn_qkv, gate and up fused in ffn_up"


@family("phi3_longrope_long", "phi3")
def _(m):
    phi3(m, n_rot=6)
    m.name = "phi_3 long"
    m.set(rope__scaling__original_context_length=64, rope__scaling__attn_factor=1.19)
    m.keep.append("rope_factors")
    m.rule("rope_factors_short", "const", 1.1)
    m.exercises = "longrope: the long factors apply (n_ctx above original context 64), attn_factor, partial rotary"


@family("phi3_longrope_short", "phi3")
def _(m):
    phi3(m, n_rot=6)
    m.name = "phi_3 short"
    m.set(rope__scaling__original_context_length=4096, rope__scaling__attn_factor=1.1)
    m.keep.append("rope_factors")
    m.rule("rope_factors_short", "const", 1.3)
    m.exercises = "longrope: the short factors apply, attn_factor, partial rotary"


def gptoss(m, ff):
    m.base(2, 32, 4, 2, ff, head_dim=16, rope=150000.0, experts=m.pick(4, 5), used=2, ff_exp=ff)
    m.set(attention__sliding_window=m.pick(16, 11))
    yarn(m, 32, 64)
    m.rule(r"ffn_(gate|up)_exps\.weight", "mat", 3.0)
    m.rule(r"ffn_down_exps\.weight", "mat", 0.25)
    m.keep.append(r"\.bias$")


@family("gptoss_f16", "gpt-oss")
def _(m):
    gptoss(m, 16)
    m.exercises = "attention sinks, all biases, MoE (softmax over the selected, clamped SwiGLU), YaRN factor 32, window on even layers"


@family("gptoss_mxfp4", "gpt-oss")
def _(m):
    gptoss(m, 32)
    m.packed = lambda n, x: pack_mxfp4(x) if n.endswith("_exps.weight") else None
    m.exercises = "the same with MXFP4 experts"


def pack_mxfp4(x):
    """MXFP4 as in the OCP format: a power of two per 32 values, codes of 4 bits (low nibbles first half, high nibbles second half)."""
    v = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    b = x.astype(np.float64).reshape(-1, 32)
    e = np.floor(np.log2(np.maximum(np.abs(b).max(1), 1e-30))) - 2
    y = b / 2.0 ** e[:, None]
    code = np.abs(np.abs(y)[:, :, None] - v).argmin(-1) + 8 * (y < 0)
    q = np.concatenate(
        [(e + 127).astype(np.uint8)[:, None], (code[:, :16] | code[:, 16:] << 4).astype(np.uint8)],
        1,
    )
    values = (
        (v[code & 7] * np.where(code & 8, -1, 1) * 2.0 ** e[:, None])
        .astype(np.float32)
        .reshape(x.shape)
    )
    return gguf_file.Packed(q, 39, x.shape, values)


def gemma4(m, pattern, kv_full, per_layer=0, shared_kv=0, k_eq_v=False, **moe):
    L = len(pattern)
    ff = 32
    m.base(
        L,
        32,
        2,
        [1 if s else kv_full for s in pattern],
        [ff * 2 if i >= L - shared_kv else ff for i in range(L)] if shared_kv else ff,
        head_dim=32,
        rope=1e6,
        **moe
    )
    m.set(
        attention__key_length_swa=16,
        attention__value_length_swa=16,
        rope__dimension_count_swa=16,
        rope__freq_base_swa=10000.0,
        attention__sliding_window=m.pick(16, 11),
        attention__sliding_window_pattern=pattern,
        attention__shared_kv_layers=shared_kv,
        embedding_length_per_layer_input=per_layer,
        final_logit_softcapping=8.0,
    )
    m.rule("^token_embd", "mat", 1.0)
    m.rule(
        "^rope_freqs",
        "fn",
        lambda rng, s: np.where(np.arange(s[-1]) < 4, 1.0, 1e30).astype(np.float32),
    )
    m.rule(r"post_(attention|ffw)_norm", "norm", 2.0)
    m.rule(r"layer_output_scale", "norm", 0.9)
    m.keep += ["rope_freqs", "layer_output_scale"]
    first_shared = L - shared_kv
    for i, s in enumerate(pattern):
        if k_eq_v and not s:
            m.drop.append(r"blk\.%d\.attn_v" % i)
        if i >= first_shared:
            m.drop.append(r"blk\.%d\.attn_(k|v|k_norm)\." % i)
        elif not (k_eq_v and not s):
            m.keep.append(r"blk\.%d\.attn_v\.weight" % i)
    m.keep += [r"attn_k\.weight", r"attn_k_norm"]


@family("gemma4_31b", "gemma4")
def _(m):
    gemma4(m, [True, True, False], m.pick(1, 2), k_eq_v=True)
    m.exercises = "head sizes per layer kind, global layers with K = V and proportional RoPE, no score scale, V normalised without weight, layer scales, softcap"


@family("gemma4_e4b", "gemma4")
def _(m):
    gemma4(m, [True, False, True, False], 1, per_layer=8, shared_kv=2)
    m.exercises = "per-layer embeddings, the last two layers reuse K/V of the last layers of their kinds, wider MLP there"


@family("gemma4_26b_a4b", "gemma4")
def _(m):
    gemma4(m, [True, False], 1, k_eq_v=True, experts=4, used=2, ff_exp=16)
    m.fuse_gate_up = True
    m.keep += [
        r"ffn_gate_inp",
        r"_exps",
        r"ffn_norm_\d|pre_ffw_norm_2|post_ffw_norm_[12]",
        r"ffn_gate_inp\.scale",
        r"ffn_down_exps\.scale",
    ]
    m.keep_scale = True
    m.drop += [r"input_scale"]
    m.exercises = "dense MLP and MoE side by side (norms of their own), router of the unweighted norm, factor per expert"


@family("glm4moe")
def _(m):
    m.n_ids = m.pick(40, 36)
    small(m, layers=3, head_dim=True, n_rot=8, rope=1e6, experts=3, used=2, ff_exp=16)
    m.set(expert_shared_count=1, leading_dense_block_count=1, nextn_predict_layers=1)
    sigmoid_moe(m)
    m.keep += [QKV_BIAS, r"attn_[qk]_norm", r"nextn\.(eh_proj|enorm|hnorm|shared_head_norm)"]
    m.exercises = "sigmoid router with bias, shared expert, leading dense layer, q/k/v biases, qk-norm, half rotary (NEOX), MTP block as the last layer, ignored"


@family("deepseek2_mla", "deepseek2")
def _(m):
    mla(m, layers=2, heads=2, q_lora=m.pick(32, 16))
    m.set(leading_dense_block_count=1, expert_shared_count=1)
    sigmoid_moe(m)
    untied(m)
    m.exercises = (
        "MLA absorbed, q_lora, sigmoid router with bias, shared expert, leading dense layer"
    )


@family("deepseek2_groups", "deepseek2")
def _(m):
    # Keys of whole blocks, so that a test can quantise the matrices of the heads.
    sizes = m.pick((32, 16, 32, 16), (32, 8, 64, 16))
    mla(m, layers=2, heads=2, q_lora=16, sizes=sizes, experts=m.pick(8, 6), used=2, ff_exp=8)
    m.set(
        leading_dense_block_count=0,
        expert_shared_count=1,
        expert_group_count=m.pick(4, 3),
        expert_group_used_count=2,
    )
    sigmoid_moe(m, 2.5)
    yarn(m, 4, 16, yarn_log_multiplier=0.1)
    untied(m)
    m.exercises = "expert groups, YaRN with yarn_log_multiplier"


@family("deepseek2_lite", "deepseek2")
def _(m):
    m.base(27, 16, 1, 1, 8, n_rot=8, experts=2, used=1, ff_exp=8)
    m.set(
        attention__key_length=16,
        attention__value_length=8,
        attention__key_length_mla=16,
        attention__value_length_mla=8,
        attention__kv_lora_rank=8,
        leading_dense_block_count=26,
        expert_shared_count=1,
    )
    m.rule(r"(attn_output|ffn_down\w*)\.weight", "mat", 0.7)
    untied(m)
    m.exercises = "27 layers, which means no q_lora; softmax router (no gating key), not renormalised; MoE in the last layer only"


def scales(m):
    m.set(
        logit_scale=m.pick(2.0, 3.0),
        residual_scale=m.pick(0.6, 0.8),
        embedding_scale=m.pick(3.0, 2.0),
        attention__scale=m.pick(0.25, 0.35),
    )


@family("granite")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    scales(m)
    untied(m)
    m.exercises = "embedding, residual, score and logit scales"


@family("granitemoe")
def _(m):
    small(m, layers=2, ff=16, head_dim=True, rope=1e6, experts=4, used=2)
    scales(m)
    m.set(expert_shared_feed_forward_length=m.pick(32, 16))
    untied(m)
    m.keep += [r"ffn_gate_exps"]
    m.exercises = "granite scales, MoE and shared expert"


@family("mistral3")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    yarn(m, 4, 8, yarn_beta_fast=32.0, yarn_beta_slow=1.0, yarn_log_multiplier=1.0)
    m.set(attention__temperature_scale=0.3)
    untied(m)
    m.exercises = "q scaled by 1 + 0.3 ln(1 + floor(position / 8)), YaRN"


@family("smollm3")
def _(m):
    small(m, layers=4, rope=5e6)
    m.exact = True  # examples in documents open this file
    m.first_seed = 84921000
    m.exercises = "every 4th layer without RoPE"


@family("olmo2")
def _(m):
    small(m, layers=2, rope=500000.0)
    untied(m)
    m.exercises = "norms only after attention and feed-forward, qk-norm over the whole row"


@family("olmo3", "olmo2")
def _(m):
    small(m, layers=4, ff=32, rope=500000.0)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=[True, True, True, False],
    )
    yarn(m, 8, 64, attn_factor=1.2)
    untied(m)
    m.exercises = "olmo2 with windows; YaRN on the full layers only"


@family("qwen2moe")
def _(m):
    small(m, layers=2, rope=1e6, **moe_shape(m))
    m.set(expert_shared_feed_forward_length=m.pick(32, 16))
    m.keep.append(QKV_BIAS)
    untied(m)
    m.exercises = "q/k/v biases, MoE not renormalised, gated shared expert"


@family("cohere2")
def _(m):
    small(m, layers=4, ff=32, ln=True, rope=50000.0)
    m.set(attention__sliding_window=m.pick(8, 11), logit_scale=0.5, rope__scaling__type="none")
    m.exercises = (
        "parallel blocks, LayerNorm without bias, 3 window layers with RoPE, 1 full without"
    )


@family("glm4")
def _(m):
    small(m, layers=2, head_dim=True, n_rot=8)
    m.keep.append(QKV_BIAS)
    untied(m)
    m.exercises = "q/k/v biases, 4 norms, gate and up fused, half rotary (NORM)"


@family("llama4")
def _(m):
    m.base(4, 32, 2, 1, 32, head_dim=16, rope=500000.0, experts=m.pick(4, 3), used=1, ff_exp=16)
    m.set(interleave_moe_layer_step=2, expert_shared_feed_forward_length=16)
    m.keep.append("rope_freqs")
    m.exercises = "top-1 MoE (sigmoid on the expert's input) with shared expert in every 2nd layer, every 4th layer without RoPE, weightless qk-norm, rope_freqs"


@family("ernie4_5")
def _(m):
    small(m, layers=2, head_dim=True)
    m.exercises = "NORM RoPE, tied"


@family("ernie4_5_moe", "ernie4_5-moe")
def _(m):
    small(m, layers=3, head_dim=True, ff=32, experts=4, used=2, ff_exp=16)
    m.set(
        interleave_moe_layer_step=1,
        leading_dense_block_count=1,
        expert_shared_count=1,
        expert_shared_feed_forward_length=16,
    )
    m.keep += ["exp_probs_b"]
    m.keep += [r"ffn_gate_exps"]
    m.exercises = "softmax router with selection bias, shared expert, leading dense layer"


@family("exaone4")
def _(m):
    small(m, layers=2, rope=1e6)
    m.keep.append("rope_freqs")
    m.exercises = "norms after attention and feed-forward, qk-norm per head, rope_freqs"


@family("seed_oss")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e7)
    m.keep.append(QKV_BIAS)
    untied(m)
    m.exercises = "q/k/v biases, the norm before the feed-forward is called post_attention_norm"


@family("hunyuan_dense", "hunyuan-dense")
def _(m):
    small(m, layers=2, head_dim=True, rope=11158840.0)
    m.exercises = "qk-norm after RoPE"


@family("minicpm")
def _(m):
    small(m, layers=2)
    m.set(logit_scale=2.0, residual_scale=0.8, embedding_scale=4.0)
    untied(m)
    m.exercises = "embedding, residual and logit scales"


@family("stablelm")
def _(m):
    small(m, layers=2, kv=4, ln=True, n_rot=4)
    m.keep.append(QKV_BIAS)
    m.set(use_parallel_residual=False)
    m.keep.append(r"ffn_norm")
    m.exercises = "LayerNorm with bias, q/k/v biases, partial rotary (NEOX)"


@family("starcoder2")
def _(m):
    small(m, layers=2, ln=True)
    m.keep += [QKV_BIAS, r"attn_output\.bias", r"ffn_(up|down)\.bias"]
    untied(m)
    m.exercises = "a bias on every matrix, GELU without gate, NEOX"


@family("gpt2")
def _(m):
    small(m, layers=2, kv=4, ln=True, rope=0)
    m.set(context_length=64)
    m.exercises = "learned positions, fused qkv with bias, GELU"


def falcon(m, two):
    small(m, layers=2, ln=True, kv=2 if two else 1)
    m.keep += [r"attn_norm_2"] if two else []
    m.drop += [] if two else [r"attn_norm_2"]
    untied(m)
    m.exercises = "attention and feed-forward in parallel from %s, fused qkv, GELU" % (
        "two norms" if two else "one norm, one KV head"
    )


family("falcon_7b", "falcon")(lambda m: falcon(m, False))


family("falcon_40b", "falcon")(lambda m: falcon(m, True))


def bert(m, pooling, nomic=False):
    small(m, layers=2, kv=4, ln=True, rope=1000.0 if nomic else 0)
    m.set(pooling_type={"mean": 1, "cls": 2, "rank": 4}[pooling], context_length=64)
    m.tokenizer = {"token_type_count": 2}
    m.keep += [r"^token_types"] + (
        [r"ffn_gate\.weight"] if nomic else [QKV_BIAS, r"attn_output\.bias", r"ffn_(up|down)\.bias"]
    )
    m.fuse_qkv = nomic
    m.pooling = pooling
    m.exercises = (
        pooling
        + " pooling, norms after the residual, "
        + ("RoPE, fused qkv, gated SiLU" if nomic else "learned positions, biases, GELU")
    )


family("bert_cls", "bert")(lambda m: bert(m, "cls"))


family("bert_mean", "bert")(lambda m: bert(m, "mean"))


family("nomic_bert", "nomic-bert")(lambda m: bert(m, "mean", True))


@family("bert_rank", "bert")
def _(m):
    bert(m, "rank")
    m.keep += [r"^cls"]
    m.drop += [r"^cls\.norm"]
    m.exercises += "; reranker: cls.output (tanh (cls x))"


@family("qwen3_embedding", "qwen3")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    m.set(pooling_type=3)
    m.pooling = "last"
    m.exercises = "last position's state after the final norm, normalised"


@family("qwen3_rank", "qwen3")
def _(m):
    small(m, layers=2, head_dim=True, rope=1e6)
    m.set(pooling_type=4, classifier__output_labels=["yes", "no"])
    m.keep.append(r"^cls\.output\.weight")
    m.pooling = "rank"
    m.exercises = "cls.output of the last position's state, softmax over the labels"
