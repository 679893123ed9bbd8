"""Descriptions of decoders with windows, gates and routers (2026)."""

from families import family, mla, moe_shape, sigmoid_moe, small, untied, yarn


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
