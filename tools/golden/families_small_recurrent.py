"""Recurrent and hybrid architectures that were there first."""

from families import family, untied
from families_small import scales


def delta(m, layers, interval, moe=False, mtp=False):
    m.n_ids = m.pick(72, 40)
    m.base(
        layers + mtp,
        32,
        2,
        1,
        32,
        head_dim=m.pick(32, 16),
        rope=1e7,
        n_rot=m.pick(8, 12),
        **(dict(experts=3, used=2, ff_exp=16) if moe else {})
    )
    if m.arch != "qwen3next":
        m.set(rope__dimension_sections=m.pick([2, 1, 1, 0], [2, 2, 2, 0]))
    state, kh, vh = m.pick((16, 2, 4), (16, 1, 2))
    m.set(
        ssm__conv_kernel=4,
        ssm__inner_size=state * vh,
        ssm__state_size=state,
        ssm__time_step_rank=vh,
        ssm__group_count=kh,
        full_attention_interval=interval,
    )
    if mtp:
        m.set(
            nextn_predict_layers=1,
            attention__recurrent_layers=[
                i < layers and (i + 1) % interval != 0 for i in range(layers + 1)
            ],
        )
    if moe:
        m.set(expert_shared_feed_forward_length=16)
    m.keep += [
        r"attn_qkv\.weight",
        r"attn_gate\.weight",
        r"nextn\.(eh_proj|enorm|hnorm|shared_head_norm)",
    ]
    m.exercises = (
        "gated delta net and every %d. layer gated full attention" % interval
        + (", MoE with a gated shared expert" if moe else "")
        + (", an MTP block that normal decoding ignores" if mtp else "")
    )
    if not mtp:
        untied(m)


family("qwen35")(lambda m: delta(m, 3, 3))
family("qwen35_mtp", "qwen35")(lambda m: delta(m, 2, 2, mtp=True))
family("qwen35moe")(lambda m: delta(m, 2, 2, moe=True))
family("qwen3next")(lambda m: delta(m, 2, 2, moe=True))


def ssm2(m, inner, state, heads, groups):
    m.set(
        ssm__conv_kernel=4,
        ssm__inner_size=inner,
        ssm__state_size=state,
        ssm__time_step_rank=heads,
        ssm__group_count=groups,
    )
    m.n_ids = m.pick(40, 36)
    m.keep.append(r"ssm_conv1d\.bias")


@family("nemotron_h_moe")
def _(m):
    m.base(4, 32, 2, [0, 0, 1, 0], [0, 32, 0, 0], head_dim=16, experts=4, used=2, ff_exp=16)
    m.set(
        attention__layer_norm_epsilon=2e-3,
        expert_shared_feed_forward_length=16,
        expert_shared_count=1,
        expert_group_count=1,
        expert_group_used_count=1,
    )
    ssm2(m, 64, 16, 4, 2)
    m.set(expert_weights_norm=True, expert_weights_scale=2.5)
    m.keep += ["exp_probs_b", "_shexp"]
    untied(m)
    m.exercises = "one mixer per layer, pattern MEM*... by the arrays (M Mamba 2 of 2 groups, E sigmoid MoE with squared ReLU, * attention without RoPE)"


@family("nemotron_h")
def _(m):
    m.base(4, 32, 2, [0, 0, 1, 0], [0, 64, 0, 0], head_dim=16)
    m.set(attention__layer_norm_epsilon=2e-3)
    ssm2(m, 64, 16, 4, 2)
    untied(m)
    m.exercises = "one mixer per layer by the arrays: Mamba 2, squared-ReLU MLP, attention without RoPE, Mamba 2"


@family("granitehybrid")
def _(m):
    m.base(3, 32, 2, [0, 1, 0], 16, head_dim=16, rope=0, experts=4, used=2)
    m.set(
        rope__scaling__finetuned=False,
        rope__dimension_count=16,
        expert_shared_feed_forward_length=16,
    )
    ssm2(m, 64, 16, 4, 1)
    scales(m)
    m.keep += [r"ffn_gate_exps"]
    m.exercises = "Mamba 2, attention without RoPE, Mamba 2; MoE and shared expert; granite scales"


@family("mamba2")
def _(m):
    m.base(3, 32, 0, 0, 0, head_dim=0, rope=0)
    del m.keys["attention.head_count_kv"]
    ssm2(m, 64, 16, 4, m.pick(1, 2))
    m.exercises = "Mamba 2 only, gated grouped RMS norm"


@family("lfm2")
def _(m):
    m.base(4, 32, 2, [0, 1, 0, 1], 64, rope=1e6)
    m.set(shortconv__l_cache=3)
    m.exercises = "pattern c*c* (c gated short convolution of 3 taps, * attention with qk-norm)"


@family("lfm2moe")
def _(m):
    m.base(4, 32, 2, [0, 1, 0, 1], 64, rope=1e6, experts=4, used=2, ff_exp=16)
    m.set(shortconv__l_cache=3, leading_dense_block_count=2, expert_gating_func=2)
    m.exercises = "pattern c*c*, sigmoid MoE with bias after 2 dense layers"
