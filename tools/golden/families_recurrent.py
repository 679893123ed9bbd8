"""Descriptions of models with Mamba or RWKV layers."""

from families import family, small


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
