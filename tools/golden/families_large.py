"""Descriptions of the architectures with new kinds of cache or attention, of drafts, and of weight formats."""

import numpy as np

import gguf_file
from families import OUTPUT, family, mla, moe_shape, sigmoid_moe, small, untied, yarn


def kda(m, heads_kv, head_dim=0):
    """KDA layers where heads_kv is 0; MLA elsewhere."""
    m.set(
        attention__head_count_kv=heads_kv,
        ssm__conv_kernel=4,
        kda__head_dim=head_dim or m.pick(16, 32),
    )
    m.rule(r"ssm_conv1d", "conv")
    m.rule(r"ssm_(f_b|g_b)\.weight", "mat", 1.5)


@family("kimi_linear", "kimi-linear")
def _(m):
    m.n_ids = m.pick(72, 36)
    m.positions = m.pick([0, 3, 31, 62, 64, 65, 70, 71], None)
    mla(m, layers=3, heads=m.pick(2, 3))
    m.set(attention__value_length=m.mla[0])
    kda(m, m.pick([0, 1, 0], [0, 0, 1]), 16)
    m.set(leading_dense_block_count=1, expert_shared_count=1)
    sigmoid_moe(m, 2.0)
    m.drop.append(r"attn_q_a|attn_q_b")
    m.keep += [r"_shexp"]
    m.exercises = "KDA (gated delta rule with a decay per channel) in two layers of three, MLA without RoPE in the other, leading dense layer, sigmoid router with bias, shared expert"


@family("bailingmoe3")
def _(m):
    m.n_ids = m.pick(72, 36)
    m.positions = m.pick([0, 3, 31, 62, 64, 65, 70, 71], None)
    mla(m, layers=3, heads=m.pick(2, 3), q_lora=m.pick(0, 16))
    kda(m, m.pick([0, 1, 0], [0, 0, 1]), 16)
    m.set(
        kda__safe_gate=True,
        kda__gate_lower_bound=m.pick(-5.0, -3.0),
        leading_dense_block_count=1,
        expert_shared_count=1,
        expert_shared_feed_forward_length=m.pick(32, 16),
        swiglu_clamp_exp=m.pick([0.0, 1.0, 1.5], [0.0, 0.0, 1.2]),
        swiglu_clamp_shexp=m.pick([0.0, 0.0, 1.2], [0.0, 1.0, 0.0]),
    )
    sigmoid_moe(m, 2.0)
    m.rule(r"ssm_a$", "uniform", 0.5, 3.0)
    m.exercises = "KDA with the bounded gate, MLA with RoPE (NORM) and a sigmoid gate per head, clamped SwiGLU in some layers, sigmoid router with bias, shared expert"


def indexer(m, heads, size, top_k):
    m.set(
        attention__indexer__head_count=heads,
        attention__indexer__key_length=size,
        attention__indexer__top_k=top_k,
    )
    m.perturb["attention.indexer.top_k"] = top_k + 2


@family("deepseek32")
def _(m):
    mla(m, layers=2, heads=2, q_lora=m.pick(32, 16))
    indexer(m, m.pick(2, 4), 64, m.pick(6, 9))
    m.set(leading_dense_block_count=1, expert_shared_count=1)
    sigmoid_moe(m, 2.0)
    yarn(m, m.pick(4, 8), 16, yarn_log_multiplier=m.pick(0.1, 0.08))
    untied(m)
    m.exercises = (
        "MLA with a lightning indexer per layer: each position attends to its top %d scored positions only; YaRN, sigmoid router with bias"
        % m.pick(6, 9)
    )


@family("glm_dsa", "glm-dsa")
def _(m):
    mla(m, layers=3, heads=2, q_lora=m.pick(32, 16))
    indexer(m, m.pick(2, 4), 64, m.pick(6, 9))
    types = m.pick([1, 0, 1], [1, 1, 0])
    m.set(leading_dense_block_count=1, expert_shared_count=1, attention__indexer__types=types)
    m.keep.append(r"indexer")
    m.drop += [r"blk\.%d\.indexer" % i for i, t in enumerate(types) if not t]
    sigmoid_moe(m, 2.0)
    untied(m)
    m.exercises = "MLA with a lightning indexer in some layers, the others reuse the choice of the layer before; sigmoid router with bias"


def hyper(m, **more):
    m.set(hyper_connection__count=4, hyper_connection__epsilon=1e-5, **more)
    m.rule(r"hc_\w+_fn\.weight", "mat32", 1.0)
    m.rule(r"hc_\w+_base\.weight", "vec", 0.5, 0.0)
    m.rule(r"hc_\w+_scale\.weight", "norm", 0.8)


@family("deepseek4")
def _(m):
    m.n_ids = m.pick(150, 141)
    m.positions = m.pick(
        [0, 3, 4, 11, 63, 127, 128, 149],
        [0, 3, 4, 11, 64, 127, 128, 140],
    )
    D = m.pick(16, 32)
    m.base(m.pick(4, 3), 32, m.pick(4, 2), 1, 32, head_dim=D, n_rot=D // 2, **moe_shape(m))
    m.set(
        attention__q_lora_rank=16,
        attention__sliding_window=m.pick(8, 11),
        leading_dense_block_count=0,
        expert_shared_count=1,
        attention__output_group_count=2,
        attention__output_lora_rank=m.pick(16, 8),
        attention__compress_ratios=m.pick([0, 4, 128, 4], [4, 0, 128]),
        attention__compress_rope_freq_base=m.pick(160000.0, 40000.0),
        hash_layer_count=1,
        swiglu_clamp_exp=m.pick([2.0] * 4, [1.5] * 3),
        expert_gating_func=4,
        expert_weights_scale=1.5,
        expert_weights_norm=True,
    )
    indexer(m, m.pick(2, 4), 64, m.pick(6, 9))
    hyper(m, hyper_connection__sinkhorn_iterations=m.pick(3, 5))
    X, V = m.X, m.n_vocab
    m.rule(
        r"tid2eid",
        "fn",
        lambda rng, shape: np.argsort(rng.random((V, X)), 1)[:, : m.used].astype(np.int32),
    )
    m.rule(r"compressor_(kv|gate)|comp_w", "mat", 1.2)
    m.rule(r"compressor_ape", "mat32", 1.0)
    m.exercises = "window attention of one K=V head with sinks and inverse RoPE of its output, compressed caches (4:1 with indexer, 128:1), hyper-connections of 4 streams (Sinkhorn), hash-routed first layer, grouped low-rank output, clamped SwiGLU, sqrt-softplus router"


@family("glm5_next", "glm5-next")
def _(m):
    m.n_ids = m.pick(40, 36)
    kv_lora, nope, v = m.pick((32, 16, 16), (16, 24, 32))
    L = 3
    m.base(L, 32, 2, 2, m.pick(64, 48), rope=0, **moe_shape(m))
    m.set(
        rope__dimension_count=0,
        attention__key_length=kv_lora,
        attention__value_length=kv_lora,
        attention__key_length_mla=nope,
        attention__value_length_mla=v,
        attention__kv_lora_rank=kv_lora,
        attention__q_lora_rank=m.pick(16, 32),
        attention__layer_norm_epsilon=1e-3,
    )
    kda(m, m.pick([0, 1, 0], [0, 0, 1]), 16)
    m.set(
        kda__gate_lower_bound=m.pick(-5.0, -3.0),
        leading_dense_block_count=1,
        expert_shared_count=1,
        swiglu_clamp_exp=m.pick([1.5] * 3, [1.2] * 3),
    )
    indexer(m, 2, 64, m.pick(8, 12))
    m.perturb["attention.indexer.top_k"] = m.keys["attention.indexer.top_k"] + 4
    m.set(attention__indexer__kpool=4, attention__indexer__kpool_select_tail=True)
    sigmoid_moe(m, 2.0)
    hyper(m, hyper_connection__sinkhorn_iterations=m.pick(3, 5))
    m.rule(r"ssm_a$", "uniform", -3.0, -0.5)
    m.rule(r"indexer_compressor_ape", "mat32", 1.0)
    m.exercises = "hyper-connections of 4 streams around KDA and MLA (no RoPE) layers, indexer over pooled keys of 4, clamped SwiGLU, sigmoid router with bias"


@family("qwen4exp")
def _(m):
    m.n_ids = m.pick(40, 36)
    m.base(
        m.pick(2, 3),
        32,
        m.pick(4, 2),
        m.pick(2, 1),
        m.pick(64, 48),
        head_dim=16,
        rope=1e6,
        n_rot=8,
        **{**moe_shape(m), "experts": 4, "used": 2}
    )
    state, kh, vh = m.pick((16, 2, 4), (16, 1, 2))
    heads, ngram = m.pick(2, 1), m.pick(3, 2)
    n = (ngram - 1) * heads
    rows = [61, 67, 71, 73][:n]
    m.set(
        rope__dimension_sections=[2, 1, 1, 0],
        ssm__conv_kernel=4,
        ssm__inner_size=state * vh,
        ssm__state_size=state,
        ssm__time_step_rank=vh,
        ssm__group_count=kh,
        expert_shared_feed_forward_length=m.pick(32, 16),
        hyper_connection__count=m.pick(4, 2),
        hyper_connection__low_rank=m.pick(8, 16),
        full_attention_interval=m.pick(2, 3),
        attention__compress_ratios=m.pick([0, 4], [0, 0, 4]),
        ple__layers=[0],
        ple__ngram_size=ngram,
        ple__heads_per_ngram=heads,
        ple__conv_kernel=m.pick(4, 3),
        ple__eos_token_id=0,
        embedding_length_per_layer_input=32 // n,
    )
    m.key("ple.layer_multipliers", [1, 31, 977][:ngram], "u64")
    m.key("ple.head_offsets", [sum(rows[:i]) for i in range(n)], "u64")
    m.key("ple.head_vocab_sizes", rows, "u64")
    indexer(m, m.pick(2, 4), 16, m.pick(8, 12))
    m.perturb["attention.indexer.top_k"] = m.keys["attention.indexer.top_k"] + 4
    m.rule(r"ple_conv1d", "conv")
    m.exercises = "low-rank hyper-connections, gated delta net and gated attention that sees only the best blocks of 4 (pooled indexer keys), n-gram hash embeddings with a convolution, MoE with a gated shared expert"


@family("minimax_m3", "minimax-m3")
def _(m):
    m.n_ids = m.pick(40, 36)
    small(m, layers=m.pick(3, 2), head_dim=True, n_rot=8, rope=5e6, kv=2, **moe_shape(m))
    m.set(leading_dense_block_count=1, expert_shared_count=1)
    sigmoid_moe(m, 2.0)
    indexer(m, 2, 16, m.pick(3, 4))
    m.set(attention__indexer__block_size=4, attention__indexer__local_blocks=m.pick(1, 2))
    m.perturb["attention.indexer.top_k"] = m.keys["attention.indexer.top_k"] + 1
    m.options = {"flash_attn_type": 1}  # without flash attention llama.cpp attends to everything
    m.exercises = (
        "GQA whose positions see the best %d blocks of 4 and the local ones (one indexer head per K/V head), qk-norm, clamped SwiGLU, sigmoid router with bias, shared expert, leading dense layer"
        % m.pick(3, 4)
    )


@family("hy_v4", "hy_v4")
def _(m):
    mla(m, layers=m.pick(3, 3), heads=2, q_lora=m.pick(32, 16))
    indexer(m, m.pick(2, 4), 64, m.pick(6, 9))
    m.set(
        leading_dense_block_count=1,
        expert_shared_count=1,
        swiglu_clamp_exp=m.pick([0.0, 1.5, 1.2], [0.0, 0.0, 1.2]),
        attention__indexer__types=m.pick([1, 0, 1], [1, 1, 0]),
    )
    sigmoid_moe(m, 2.0)
    hyper(m, hyper_connection__magnitude=m.pick(2.0, 1.5))
    m.exercises = "hyper-connections of 4 streams without Sinkhorn, MLA with sinks and a gate, indexer in some layers, clamped SwiGLU, sigmoid router with bias"


@family("kimi_k3", "kimi-k3")
def _(m):
    m.n_ids = m.pick(40, 36)
    mla(m, layers=3, heads=2, q_lora=m.pick(0, 16))
    kda(m, m.pick([0, 1, 0], [0, 0, 1]), 16)
    m.set(
        kda__gate_lower_bound=m.pick(-5.0, -3.0),
        leading_dense_block_count=1,
        expert_shared_count=1,
        expert_latent_length=m.pick(16, 32),
        attn_res__block_size=m.pick(2, 1),
        activation__situ_beta=m.pick(2.0, 1.5),
        activation__situ_linear_beta=m.pick(3.0, 4.0),
    )
    sigmoid_moe(m, 2.0)
    m.keep += [r"_shexp", r"attn_gate", r"ffn_routed_norm"] + m.pick([], [r"attn_q_a"])
    if m.first:
        m.drop.append(r"attn_q_[ab]")
    m.rule(r"ssm_a$", "uniform", -3.0, -0.5)
    m.exercises = "KDA and gated MLA without RoPE, attention over the residual streams of earlier blocks, SiTU activation, experts in a latent space, sigmoid router with bias"


# ---------------------------------------------------------------- weight formats: every matrix of the layers packed


def in_format(m, name, width):
    import formats

    m.base(m.pick(1, 2) * 128 // width, width, 4, m.pick(2, 1), width, head_dim=width // 4)
    m.packed = lambda n, x: (
        formats.packed(name, x) if n.startswith("blk.") and x.ndim == 2 else None
    )


@family("nvfp4_llama", "llama")
def _(m):
    in_format(m, "NVFP4", 64)
    m.keep += [r"attn_[qkvo]\w*\.scale", r"ffn_(gate|up|down)\.scale"]
    m.keep_scale = True
    m.drop.append(r"input_scale|\.bias$|rope_freqs")
    m.rule(r"\.scale$", "norm", 1.2)
    m.exercises = (
        "llama with NVFP4 matrices, each with a NAME.scale tensor [1] that multiplies its product"
    )


@family("q1_0_qwen3", "qwen3")
def _(m):
    in_format(m, "Q1_0", 128)
    m.exercises = "qwen3 with Q1_0 matrices"


@family("q2_0_llama", "llama")
def _(m):
    in_format(m, "Q2_0", 64)
    m.exercises = "llama with Q2_0 matrices"
