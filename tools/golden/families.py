"""One description per tiny model: keys, what is kept of the optional tensors, what differs from the usual weights.

`@family(name, architecture)` registers a function of a Model (model.py). `m.pick(a, b)` gives a for the first set, b for the second
one. Tensors and their shapes come from llama.cpp, so a description only has keys, the optional tensors to keep (`m.keep`, patterns),
tensors to leave out (`m.drop`) and other weight rules (`m.rule`). `make.py --tensors NAME` shows what a description leads to.
"""

import numpy as np

import gguf_file

FAMILIES, GROUP = {}, {}  # name -> (architecture, function of a Model), name -> set it belongs to
QKV_BIAS = r"attn_[qkv]\.bias$"
OUTPUT = r"^output\.weight$"


def family(name, arch=None, group="missing"):
    def add(f):
        FAMILIES[name] = (arch or name, f)
        GROUP[name] = group
        return f

    return add


def small(m, layers=0, ff=None, kv=None, head_dim=None, heads=None, embd=None, hold=None, **kw):
    """The usual shape: width 32 (second set: 48 up to three layers), 4 heads; head_dim True writes key_length 16 (n_embd / heads is 8, second set: 12)."""
    E = embd or m.pick(32, 48 if layers < 4 else 32)
    D = 16 if head_dim is True else head_dim or 0
    m.base(
        layers or m.pick(3, 2),
        E,
        heads or 4,
        (m.pick(2, 1) if kv is None else kv),
        ff or m.pick(64, 48),
        head_dim=D,
        **kw
    )


def untied(m):
    m.keep.append(OUTPUT)
    m.tied = False


def sigmoid_moe(m, scale=1.5, norm=True, bias=True):
    m.set(
        expert_gating_func=2,
        expert_weights_scale=m.pick(scale, scale * 0.8),
        expert_weights_norm=norm,
    )
    if bias:
        m.keep.append("exp_probs_b")


def yarn(m, factor, original, **more):
    m.set(
        rope__scaling__type="yarn",
        rope__scaling__factor=float(factor),
        rope__scaling__original_context_length=original,
    )
    for k, v in more.items():
        m.key("rope.scaling." + k, v)


def moe_shape(m):
    """Experts, used, width of an expert."""
    return dict(experts=m.pick(6, 5), used=m.pick(2, 3), ff_exp=16)


# ---------------------------------------------------------------- Qwen VL


@family("qwen3vl")
def _(m):
    small(m, head_dim=m.pick(16, 24), rope=1e6)
    m.set(rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]))
    m.exercises = "qk-norm per head, interleaved M-RoPE sections: text positions make them plain NEOX RoPE; tied"


@family("qwen3vl_deepstack", "qwen3vl")
def _(m):
    small(m, head_dim=m.pick(16, 24), rope=1e6)
    m.set(
        rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]), n_deepstack_layers=m.pick(2, 1)
    )
    m.exercises = "qwen3vl with deepstack: an image row has (1 + n) n_embd values, part i + 1 is added after layer i; see `image`"


@family("qwen3vlmoe")
def _(m):
    small(m, head_dim=m.pick(16, 24), rope=1e6, **moe_shape(m))
    m.set(rope__dimension_sections=m.pick([3, 3, 2, 0], [4, 4, 4, 0]))
    untied(m)
    m.exercises = "qwen3moe with M-RoPE sections (softmax over all, top-k, renormalised), untied"


@family("qwen2vl")
def _(m):
    small(m, rope=1e6)
    m.set(rope__dimension_sections=m.pick([2, 1, 1, 0], [2, 2, 2, 0]))
    m.keep.append(QKV_BIAS)
    m.exercises = "q/k/v biases, M-RoPE in consecutive sections: text positions make them plain NEOX RoPE; tied"


# ---------------------------------------------------------------- embeddings


@family("gemma_embedding", "gemma-embedding")
def _(m):
    small(m, layers=3, head_dim=True, rope=1e6)
    m.set(
        attention__sliding_window=m.pick(8, 12),
        attention__sliding_window_pattern=m.pick([True, True, False, True], [False, True, True]),
        rope__freq_base_swa=10000.0,
        pooling_type=1,
        dense_2_feat_in=m.E,
        dense_2_feat_out=m.pick(64, 96),
        dense_3_feat_in=m.pick(64, 96),
        dense_3_feat_out=m.E,
    )
    m.keep.append(r"^dense_")
    m.rule(r"^token_embd", "mat", 1.0)
    m.pooling = "mean"
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "Gemma 3 blocks without a causal mask, symmetric window (half on either side), mean pooling, then two dense layers"


@family("nomic_bert_moe", "nomic-bert-moe")
def _(m):
    small(m, layers=3, ln=True, kv=4, experts=m.pick(4, 3), used=2)
    m.set(moe_every_n_layers=2, pooling_type=1)
    m.tokenizer = {"token_type_count": 1}
    m.keep += [QKV_BIAS, r"attn_output\.bias$", r"ffn_(up|down)\.bias$", r"^token_types"]
    m.fuse_qkv = True
    m.pooling = "mean"
    m.exercises = "norms after the residual, fused qkv with biases, NEOX RoPE, GELU without gate; every 2nd layer (1, 3) is MoE without gate, softmax, not renormalised"


@family("modern_bert", "modern-bert")
def _(m):
    small(m, layers=3, ln=True, kv=4, rope=160000.0)
    m.set(
        attention__sliding_window=m.pick(8, 12),
        attention__sliding_window_pattern=m.pick(3, 2),
        rope__freq_base_swa=10000.0,
        pooling_type=m.pick(1, 2),
    )
    m.pooling = m.pick("mean", "cls")
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "LayerNorm without bias before each block, layer 0 without attention norm, fused qkv, GeGLU in ffn_up, symmetric window, RoPE base per layer kind"


@family("modern_bert_rank", "modern-bert")
def _(m):
    small(m, layers=2, ln=True, kv=4, rope=160000.0)
    m.set(
        attention__sliding_window=m.pick(8, 6),
        attention__sliding_window_pattern=2,
        rope__freq_base_swa=10000.0,
        pooling_type=4,
        hidden_activation="silu",
        classifier__output_labels=m.pick(["score"], ["no", "yes"]),
    )
    m.keep += [r"^cls"]
    m.pooling = "rank"
    m.perturb["attention.sliding_window"] = m.keys["attention.sliding_window"] + 2
    m.exercises = "reranker: mean of the positions, cls, GELU, cls.norm, cls.output; hidden_activation silu: SwiGLU"


@family("jina_bert_v2", "jina-bert-v2")
def _(m):
    small(m, ln=True, kv=4, rope=0)
    m.set(pooling_type=1)
    m.tokenizer = {"token_type_count": 2}
    m.keep += [QKV_BIAS, r"ffn_gate\.weight"] + m.pick([], [r"attn_[qk]_norm\.(weight|bias)"])
    m.pooling = "mean"
    m.exercises = "symmetric ALiBi (bias 8), GeGLU, norms after the residual with biases" + m.pick(
        "", ", qk LayerNorm over the whole row"
    )


@family("jina_bert_v3", "jina-bert-v3")
def _(m):
    small(m, ln=True, kv=4, rope=20000.0)
    m.set(pooling_type=m.pick(1, 2))
    m.tokenizer = {"token_type_count": 1}
    m.keep += [QKV_BIAS, r"attn_output\.bias$", r"ffn_(up|down)\.bias$", r"^token_types"]
    m.fuse_qkv = True
    m.pooling = m.pick("mean", "cls")
    m.exercises = "bert blocks with RoPE (NEOX), fused qkv with biases, GELU without gate"


@family("neo_bert", "neo-bert")
def _(m):
    small(m, kv=4)
    m.set(pooling_type=m.pick(2, 1))
    m.fuse_qkv = True
    m.pooling = m.pick("cls", "mean")
    m.exercises = "RMS norms before each block, final enc.output_norm, NORM RoPE, fused qkv, SwiGLU with gate and up in ffn_up"


@family("eurobert")
def _(m):
    small(m, kv=4, rope=250000.0)
    m.set(pooling_type=m.pick(1, 2))
    m.pooling = m.pick("mean", "cls")
    m.exercises = "llama blocks without a causal mask, NEOX RoPE"


@family("llama_embed", "llama-embed")
def _(m):
    small(m, rope=500000.0)
    m.set(pooling_type=1)
    m.pooling = "mean"
    m.exercises = "llama blocks without a causal mask, NORM RoPE, GQA, mean pooling"


@family("t5encoder")
def _(m):
    small(m, kv=4, head_dim=True, rope=0)
    m.set(attention__relative_buckets_count=m.pick(16, 8), pooling_type=1)
    m.rule(r"attn_rel_b", "vec", 1.5, 0.0)
    m.keep += [r"ffn_gate\.weight", r"blk\.0\.attn_rel_b"]
    m.pooling = "mean"
    m.exercises = "bidirectional relative position buckets (layer 0's table for all), scores not scaled, RMS norms, gated GELU"


# ---------------------------------------------------------------- windows, gates, routers (2026)


@family("muse_glimmer", "muse-glimmer")
def _(m):
    small(m, layers=4, head_dim=True, rope=500000.0)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        final_logit_softcapping=m.pick(8.0, 6.0),
        logit_scale=m.pick(0.6, 0.8),
        rope__freq_base_swa=m.pick(10000.0, 20000.0),
    )
    if not m.first:
        m.set(attention__sliding_window_pattern=[True, False, True, True])
    m.rule(r"post_(attention|ffw)_norm", "norm", 1.5)
    m.exercises = "embeddings RMS-normed without weight; 3 window layers with RoPE, then 1 full one without; qk-norm; sigmoid gate on the attention's output; post norms; logits scaled, then softcapped"


@family("minimax_m2", "minimax-m2")
def _(m):
    small(m, ff=16, head_dim=True, n_rot=m.pick(8, 12), rope=5e6, **moe_shape(m))
    m.set(expert_gating_func=2)
    m.exercises = "qk-norm over the whole row, half of each head rotary, sigmoid router with selection bias, weights renormalised, no shared expert, untied"


@family("cohere2moe")
def _(m):
    small(m, layers=4, head_dim=True, rope=50000.0, ln=True, **moe_shape(m))
    m.set(
        attention__sliding_window=m.pick(8, 11),
        logit_scale=m.pick(0.25, 0.5),
        leading_dense_block_count=m.pick(1, 2),
        expert_shared_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
        expert_weights_norm=m.pick(True, False),
    )
    if not m.first:
        m.set(attention__sliding_window_pattern=[True, False, True, True])
    m.exercises = "attention and feed-forward in parallel from one LayerNorm without bias; window layers with RoPE, full ones without; leading dense layer, sigmoid router, shared expert, logit scale; tied"


@family("mistral4")
def _(m):
    mla(m, q_lora=m.pick(32, 16))
    yarn(m, m.pick(4, 8), 16, yarn_log_multiplier=m.pick(0.1, 0.08))
    m.set(
        attention__temperature_scale=m.pick(0.1, 0.2),
        attention__temperature_length=m.pick(8, 10),
        expert_shared_count=1,
        leading_dense_block_count=m.pick(0, 1),
    )
    sigmoid_moe(m, bias=False)
    untied(m)
    m.exercises = "deepseek2's graph: MLA with q_lora, MoE with a shared expert, YaRN, and q times 1 + s ln(1 + floor(position / temperature_length))"


def mla(m, layers=3, q_lora=0, heads=None, sizes=None, **kw):
    """MLA in the absorbed form of the files: cache row kv_lora + rope, heads of nope + rope."""
    kv_lora, rope, nope, v = sizes or m.pick((32, 8, 16, 16), (16, 16, 8, 32))
    H = heads or m.pick(4, 2)
    m.base(layers, m.pick(32, 48), H, 1, m.pick(64, 48), n_rot=rope, **{**moe_shape(m), **kw})
    m.set(
        attention__key_length=kv_lora + rope,
        attention__value_length=kv_lora,
        attention__key_length_mla=nope + rope,
        attention__value_length_mla=v,
        attention__kv_lora_rank=kv_lora,
    )
    if q_lora:
        m.set(attention__q_lora_rank=q_lora)
    m.mla = (kv_lora, rope, nope, v)


@family("granite_swa")
def _(m):
    small(m, layers=4, head_dim=True)
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(
            [True, True, False, True], [False, True, True, False]
        ),
        attention__rope_pattern=m.pick([True, True, False, True], [True, False, True, True]),
        logit_scale=m.pick(4.0, 3.0),
        residual_scale=m.pick(0.5, 0.7),
        embedding_scale=m.pick(3.0, 2.0),
        attention__scale=m.pick(0.2, 0.35),
    )
    m.exercises = "granite scales, window layers by an array, RoPE only where rope_pattern says, attention sinks in every layer; tied"


@family("granite_swa_moe", "granite_swa")
def _(m):
    small(m, layers=3, ff=16, head_dim=True, experts=m.pick(6, 5), used=m.pick(2, 3))
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick([True, False, True], [False, True, True]),
        logit_scale=m.pick(4.0, 3.0),
        residual_scale=0.6,
        embedding_scale=m.pick(3.0, 2.0),
        attention__scale=m.pick(0.2, 0.35),
        expert_shared_feed_forward_length=m.pick(32, 16),
    )
    untied(m)
    m.exercises = "granite_swa with MoE (softmax, renormalised) and a shared expert whose gate and up are fused in ffn_up_shexp; untied"


@family("graniteswitch")
def _(m):
    small(m)
    n = m.pick(2, 3)
    m.set(
        logit_scale=m.pick(4.0, 3.0),
        residual_scale=m.pick(0.5, 0.7),
        embedding_scale=m.pick(3.0, 2.0),
        attention__scale=m.pick(0.25, 0.3),
        adapters__count=n,
        adapters__token_ids_activate=("i32", [5, 6, 7][:n]),
        adapters__token_ids_substitute=("i32", [9, 11, 13][:n]),
        adapters__lora_rank=m.pick(4, 8),
        adapters__router_gain=m.pick(40.0, 30.0),
    )
    m.prompt_with = {m.pick(9, 7): 5, m.pick(19, 18): 6}
    m.exercises = "granite with stacked LoRA adapters: an activation token in the prompt switches the adapter for what follows (slot 0 is the base)"


@family("laguna")
def _(m):
    small(
        m,
        layers=4,
        head_dim=True,
        heads=m.pick([4, 6, 6, 6], [6, 4, 4, 6]),
        kv=2,
        rope=500000.0,
        n_rot=m.pick(8, 12),
        **moe_shape(m)
    )
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(
            [False, True, True, True], [False, True, True, False]
        ),
        rope__freq_base_swa=10000.0,
        rope__dimension_count_swa=16,
        leading_dense_block_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
    )
    yarn(m, m.pick(4, 8), 16)
    sigmoid_moe(m, 2.0)
    m.exercises = "query heads per layer, full layers with YaRN on half of the head, window layers with plain RoPE on all of it, qk-norm, softplus gate per head, sigmoid router with bias, shared expert, leading dense layer; tied"


@family("step35")
def _(m):
    small(
        m,
        layers=4,
        head_dim=True,
        heads=m.pick([4, 6, 6, 4], [6, 4, 6, 4]),
        kv=m.pick(2, 2),
        rope=m.pick(500000.0, 100000.0),
        **moe_shape(m)
    )
    m.set(
        attention__sliding_window=m.pick(8, 11),
        attention__sliding_window_pattern=m.pick(
            [False, True, True, False], [True, False, True, True]
        ),
        rope__freq_base_swa=10000.0,
        leading_dense_block_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
        swiglu_clamp_exp=m.pick([0.0, 0.0, 1.5, 1.0], [0.0, 1.2, 0.0, 1.0]),
        swiglu_clamp_shexp=m.pick([0.0, 0.0, 0.0, 1.2], [0.0, 0.0, 1.0, 0.0]),
    )
    sigmoid_moe(m, 2.0)
    m.keep += [
        r"attn_gate",
        r"attn_[qk]_norm",
        r"ffn_gate_inp",
        r"_exps\.",
        r"_shexp\.",
        r"ffn_(gate|up|down)\.weight",
    ]
    m.drop += [
        r"blk\.0\.(ffn_gate_inp|ffn_\w+_exps|ffn_\w+_shexp|exp_probs_b)",
        r"blk\.[123]\.ffn_(gate|up|down)\.",
    ]
    m.exercises = "query heads per layer, rotary on half of the head in full layers, qk-norm, sigmoid gate per head, clamped SwiGLU in some layers (routed and shared separately), sigmoid router with bias, shared expert"


@family("hy_v3")
def _(m):
    small(m, head_dim=True, rope=m.pick(11158840.0, 500000.0), **moe_shape(m))
    m.set(expert_shared_count=1, expert_shared_feed_forward_length=m.pick(32, 16))
    sigmoid_moe(m, 2.0)
    untied(m)
    m.keep += [r"ffn_gate_inp", r"_exps\.", r"_shexp\.", r"ffn_(gate|up|down)\.weight"]
    m.drop += [
        r"blk\.0\.(ffn_gate_inp|ffn_\w+_exps|ffn_\w+_shexp|exp_probs_b)",
        r"blk\.[123]\.ffn_(gate|up|down)\.weight",
    ]
    m.exercises = "qk-norm per head, sigmoid router with selection bias, renormalised and scaled, shared expert, leading dense layer"


@family("mellum")
def _(m):
    small(m, layers=4, head_dim=True, rope=500000.0, **moe_shape(m))
    m.set(attention__sliding_window=m.pick(8, 11), rope__freq_base_swa=m.pick(10000.0, 20000.0))
    if not m.first:
        m.set(attention__sliding_window_pattern=[True, False, False, True])
    untied(m)
    m.exercises = (
        "qk-norm, window of 3 layers in 4, RoPE base per layer kind, softmax router renormalised"
    )


@family("exaone_moe", "exaone-moe")
def _(m):
    small(m, layers=4, head_dim=True, rope=1e6, **moe_shape(m))
    m.set(
        attention__sliding_window=m.pick(8, 11),
        leading_dense_block_count=1,
        expert_shared_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
    )
    if not m.first:
        m.set(attention__sliding_window_pattern=[True, False, True, False])
    sigmoid_moe(m, 2.0)
    m.exercises = "window layers with RoPE, full ones without, qk-norm, leading dense layer, sigmoid router with bias, shared expert"


@family("bailingmoe")
def _(m):
    small(m, rope=600000.0, **moe_shape(m))
    m.set(
        expert_shared_count=m.pick(1, 2),
        expert_weights_norm=m.pick(True, False),
        expert_weights_scale=m.pick(1.0, 1.5),
    )
    m.exercises = "NORM RoPE, softmax router, weights renormalised by a key, shared experts"


@family("bailingmoe2")
def _(m):
    small(
        m, rope=600000.0, n_rot=m.pick(4, 6), **{**moe_shape(m), "experts": m.pick(8, 6), "used": 2}
    )
    m.set(
        expert_shared_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
        leading_dense_block_count=1,
        expert_group_count=m.pick(4, 3),
        expert_group_used_count=2,
    )
    sigmoid_moe(m, 2.5)
    m.fuse_qkv = True
    m.exercises = "fused qkv, qk-norm, half rotary, groups of experts (best two scores per group), sigmoid router with bias, shared expert, leading dense layer"


@family("dots1")
def _(m):
    small(m, head_dim=True, kv=4, rope=1e6, **moe_shape(m))
    m.set(expert_shared_count=m.pick(2, 1), leading_dense_block_count=1)
    sigmoid_moe(m, 2.5)
    m.exercises = (
        "qk-norm, sigmoid router with selection bias, shared experts, leading dense layer, untied"
    )


@family("afmoe")
def _(m):
    small(m, layers=4, head_dim=True, **moe_shape(m))
    m.set(
        attention__sliding_window=m.pick(8, 11),
        leading_dense_block_count=m.pick(1, 2),
        expert_shared_count=1,
    )
    if not m.first:
        m.set(attention__sliding_window_pattern=[True, False, True, True])
    sigmoid_moe(m, 2.0)
    m.rule(r"^token_embd", "mat", 0.7)
    m.rule(r"post_(attention|ffw)_norm", "norm", 2.0)
    m.exercises = "embeddings times sqrt(n_embd), 4 norms, qk-norm, no RoPE in every 4th layer, sigmoid gate on the attention's output, sigmoid router with bias, shared expert"


@family("hunyuan_moe", "hunyuan-moe")
def _(m):
    small(m, head_dim=True, ff=16, **moe_shape(m))
    m.set(expert_shared_feed_forward_length=m.pick(32, 16))
    m.exercises = (
        "qk-norm after RoPE, every layer MoE (softmax, renormalised) plus a shared MLP; tied"
    )


@family("phimoe")
def _(m):
    small(m, ff=16, experts=m.pick(6, 5), used=2)
    m.set(
        rope__scaling__original_context_length=m.pick(16, 4096),
        rope__scaling__attn_factor=m.pick(1.19, 1.1),
    )
    m.keep += [r"rope_factors"]
    m.rule(r"rope_factors_long", "freqs")
    m.rule(r"rope_factors_short", "const", 1.1)
    m.exercises = (
        "LayerNorm with biases, biases everywhere incl. output, longrope (%s factors apply), softmax router, renormalised"
        % m.pick("long", "short")
    )


# ---------------------------------------------------------------- older and other decoders


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


@family("falcon_h1", "falcon-h1")
def _(m):
    m.n_ids = m.pick(40, 36)
    small(m, head_dim=True, rope=1e11)
    inner, state, heads = m.pick((64, 16, 4), (48, 16, 3))
    m.set(
        ssm__conv_kernel=4,
        ssm__inner_size=inner,
        ssm__state_size=state,
        ssm__time_step_rank=heads,
        ssm__group_count=1,
    )
    m.keep += [r"ssm_conv1d\.bias"] + m.pick([], [r"ssm_norm"])
    m.exercises = "Mamba 2 and attention side by side in every layer, their outputs added; no RMS norm of the scan's output in the first set"


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


@family("plamo2")
def _(m):
    m.n_ids = m.pick(40, 36)
    heads = m.pick([0, 4, 0], [0, 0, 4])
    small(m, layers=3, kv=[x // 2 for x in heads], head_dim=True)
    m.set(
        ssm__conv_kernel=4,
        ssm__inner_size=m.pick(64, 96),
        ssm__state_size=m.pick(16, 8),
        ssm__time_step_rank=m.pick(4, 6),
        ssm__group_count=0,
    )
    m.exercises = "Mamba layers with RMS-normed dt, B and C, attention with weighted qk-norm, norms after each block too, gate and up fused"


@family("jamba")
def _(m):
    m.n_ids = m.pick(40, 36)
    heads = m.pick([0, 4, 0, 0], [0, 0, 4])
    small(
        m,
        layers=len(heads),
        heads=4,
        kv=[x // 2 for x in heads],
        rope=0,
        experts=m.pick(4, 5),
        used=2,
        ff=m.pick(32, 16),
    )
    m.set(
        ssm__conv_kernel=4,
        ssm__inner_size=m.pick(64, 96),
        ssm__state_size=m.pick(8, 16),
        ssm__time_step_rank=m.pick(6, 5),
    )
    dense = [i for i in range(len(heads)) if i % 2 == 0]
    m.drop += [r"blk\.%d\.ffn_(gate_inp|\w+_exps)" % i for i in dense]
    for i in dense:
        m.extra.update(
            {
                "blk.%d.ffn_%s.weight" % (i, n): ((m.E, m.F) if n == "down" else (m.F, m.E), None)
                for n in ("gate", "up", "down")
            }
        )
    m.exercises = "Mamba 1 with RMS-normed dt, B, C; one attention layer without RoPE; every 2nd layer MoE (softmax, not renormalised)"


@family("mamba")
def _(m):
    m.n_ids = m.pick(40, 36)
    small(m, layers=2, heads=1, kv=1, rope=0)
    m.set(
        attention__head_count=0,
        attention__head_count_kv=0,
        feed_forward_length=0,
        ssm__conv_kernel=4,
        ssm__inner_size=2 * m.E,
        ssm__state_size=m.pick(8, 16),
        ssm__time_step_rank=m.pick(6, 4),
    )
    if not m.first:
        m.set(ssm__dt_b_c_rms=True)
    m.exercises = (
        "Mamba 1 (A per channel and state)"
        + m.pick("", ", dt, B, C RMS-normed without weight (FalconMamba)")
        + "; tied"
    )


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
    m.packed = lambda n, x: q4_0(x) if n.startswith("per_layer_token_embd") else None
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


# ---------------------------------------------------------------- RWKV


@family("rwkv6")
def _(m):
    m.n_ids = m.pick(40, 36)
    head = m.pick(16, 24)
    m.base(2, m.pick(32, 48), 0, 0, m.pick(64, 96), rope=0, ln=True)
    m.set(
        wkv__head_size=head,
        time_mix_extra_dim=m.pick(8, 6),
        time_decay_extra_dim=m.pick(12, 10),
        rescale_every_n_layers=m.pick(0, 1),
        token_shift_count=2,
    )
    m.rule(r"time_mix_(w0|decay)", "vec", 1.0, -2.0)
    m.exercises = "token shift with data-dependent mixing, WKV6 state, group norm, squared ReLU channel mixing"


@family("rwkv7")
def _(m):
    m.n_ids = m.pick(40, 36)
    m.base(
        2, 64, 0, 0, m.pick(64, 48), rope=0, ln=True
    )  # heads of 64: llama.cpp's CPU kernel is wrong for smaller ones
    m.set(
        wkv__head_size=64,
        attention__decay_lora_rank=8,
        attention__iclr_lora_rank=6,
        attention__value_residual_mix_lora_rank=m.pick(4, 6),
        attention__gate_lora_rank=m.pick(10, 8),
        token_shift_count=2,
    )
    m.rule(r"time_mix_w0", "vec", 1.0, -1.0)
    m.exercises = "token shift, WKV7 (generalised delta rule), value residual from layer 0, group norm, squared ReLU channel mixing"
