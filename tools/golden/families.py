"""One description per tiny model: keys, what is kept of the optional tensors, what differs from the usual weights.

`@family(name, architecture)` registers a function of a Model (model.py). `m.pick(a, b)` gives a for the first set, b for the second
one. Tensors and their shapes come from llama.cpp, so a description only has keys, the optional tensors to keep (`m.keep`, patterns),
tensors to leave out (`m.drop`) and other weight rules (`m.rule`). `make.py --tensors NAME` shows what a description leads to.
"""

FAMILIES = {}  # name -> (architecture, function of a Model)
QKV_BIAS = r"attn_[qkv]\.bias$"
OUTPUT = r"^output\.weight$"


def family(name, arch=None):
    def add(f):
        assert name not in FAMILIES
        FAMILIES[name] = (arch or name, f)
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
