"""A tiny model: keys, tensors found by asking llama.cpp, random weights by rules on the tensors' names."""

import os
import re
import tempfile

import numpy as np

import gguf_file
import reference

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|pad|>",
    "<|mask|>",
    "<|sep|>",
    "<|unk|>",
    "<|extra|>",
]
MERGES = [
    "\u0120 t",
    "h e",
    "i n",
    "\u0120 a",
    "e r",
    "o n",
    "\u0120t he",
    "a n",
    "\u0120 s",
    "r e",
    "\u0120 w",
    "a t",
    "e n",
    "o r",
    "\u0120 c",
    "e s",
]


def byte_symbols():
    """The 256 printable stand-ins of byte-level BPE, in byte order."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def vocabulary(n_vocab):
    merges = MERGES[: n_vocab - 256 - len(SPECIAL)]
    tokens = SPECIAL + byte_symbols() + [m.replace(" ", "") for m in merges]
    assert len(tokens) == n_vocab
    return tokens, [3] * len(SPECIAL) + [1] * (n_vocab - len(SPECIAL)), merges


# Rules: first match of the tensor's name (layer prefix removed) wins. kind, parameters; see fill().
RULES = [
    (r"exp_probs_b", ("vec", 0.15, 0.0)),
    (r"^(rope_freqs|rope_factors)", ("freqs",)),
    (r"attn_sinks", ("vec", 1.0, 1.0)),
    (r"(attn_[qk]|attn_[qk]_a|indexer[._]k)_norm\.weight$", ("norm", 1.3)),
    (r"norm.*\.bias$", ("vec", 0.2, 0.0)),
    (r"norm[^.]*(\.weight)?$", ("norm", 1.0)),
    (r"ssm_a$", ("decay",)),
    (r"ssm_dt\.bias$", ("dt",)),
    (r"ssm_d$", ("vec", 0.1, 0.3)),
    (r"conv[^.]*\.weight$", ("conv",)),
    (r"attn_[qk]\.bias$", ("vec", 0.5, 0.0)),
    (r"attn_qkv\.bias$", ("vec", 0.4, 0.0)),
    (r"\.bias$", ("vec", 0.2, 0.0)),
    (r"scale", ("norm", 1.0)),
    (r"^token_embd\.weight$", ("mat", 2.0)),
    (r"^output\.weight$", ("mat", 2.0)),
    (r"(ffn_gate_inp|ffn_gate_inp_shexp)\.weight$", ("mat32", 1.5)),
    (r"^(token_types|position_embd)\.weight$", ("mat32", 1.0)),
    (r"(indexer\.proj|altup_(correct|predict)_coef)\.weight$", ("mat32", 1.0)),
    (r"time_mix_(first|lerp_fused)\.weight$", ("vec", 0.4, 0.4)),
    (r"time_mix_(decay_)?w[12]\.weight$", ("mat32", 1.0)),
    (r"attn_(q|k|q_b|k_b|kv_a_mqa)\.weight$", ("mat", 1.3)),
    (r"attn_qkv\.weight$", ("mat", 1.2)),
    (r"attn_(output|output_b|out)\.weight$", ("mat", 1.5)),
    (r"ffn_gate.*\.weight$", ("mat", 1.5)),
    (r"ffn_down.*\.weight$", ("mat", 1.2)),
]


class Model:
    def __init__(self, name, arch, seed, first):
        self.name, self.arch, self.seed, self.first = name, arch, seed, first
        self.n_vocab = 272 if first else 276
        self.n_ids = 24 if first else 26
        self.keys, self.rules, self.keep, self.drop = {}, [], [], []
        self.exercises, self.facts = "", ""
        self.pooling = None  # embedding models: mean, cls, last, rank or none
        self.used = 0  # experts used, to watch for near ties
        self.tokenizer = {}
        self.options = {}  # for reference.logits
        self.extra = {}  # tensors that llama.cpp does not list: name -> (shape, rule)
        self.packed = None  # name, array -> Packed or None: other storage formats
        self.perturb = {}  # key -> other value, for the check that the key is seen
        self.split_ok = True  # may be cut into micro-batches
        self.tied = True
        self.fuse_qkv = False  # store attn_q, attn_k and attn_v as one attn_qkv
        self.prompt_with = {}  # position -> token id
        self.encoder = False  # encoder-decoder
        self.keep_scale = False  # `keep` may name tensors called NAME.scale
        self.attempts = 0  # seeds to try (0: the usual number)
        self.first_seed = 0  # the first seed to try (0: by the name)
        self.positions = None  # positions whose logits are stored (none: see stored_positions)
        self.image = None  # rows and columns of a picture in a second text (see images.py)
        self.exact = False  # weights keep all bits of F16, and the file is not compressed

    def pick(self, a, b):
        return a if self.first else b

    def stored_positions(self):
        """The first positions, the last ones, and those around the usual windows and chunks."""
        n = self.n_ids
        middle = [7, 8, 15] if n < 60 else [31, 63, 64]
        return self.positions or [0, 1, 3] + middle + [n - 2, n - 1]

    def key(self, suffix, value, kind=None):
        self.keys[suffix] = (kind, value) if kind else value

    def set(self, **kw):
        """Keys of the architecture; two underscores stand for a dot."""
        for k, v in kw.items():
            self.keys[k.replace("__", ".")] = v

    def base(
        self,
        layers,
        embd,
        heads,
        kv_heads,
        ff,
        head_dim=0,
        rope=10000.0,
        n_rot=0,
        eps=2e-3,
        ln=False,
        ctx=256,
        experts=0,
        used=0,
        ff_exp=0,
        rms=None,
    ):
        self.L, self.E, self.H, self.KV, self.D, self.F, self.X = (
            layers,
            embd,
            heads,
            kv_heads,
            head_dim or embd // max(1, heads if isinstance(heads, int) else max(heads)),
            ff,
            experts,
        )
        self.set(
            vocab_size=self.n_vocab,
            context_length=ctx,
            embedding_length=embd,
            block_count=layers,
            feed_forward_length=ff,
            attention__head_count=heads,
            attention__head_count_kv=kv_heads,
        )
        self.keys["attention.layer_norm_epsilon" if ln else "attention.layer_norm_rms_epsilon"] = (
            eps
        )
        if rope:
            self.set(rope__dimension_count=n_rot or self.D, rope__freq_base=rope)
        if head_dim:
            self.set(attention__key_length=head_dim, attention__value_length=head_dim)
        if experts:
            self.set(expert_count=experts, expert_used_count=used)
            self.used = used
        if ff_exp:
            self.set(expert_feed_forward_length=ff_exp)

    def rule(self, pattern, *what):
        self.rules.append((pattern, what))

    # ------------------------------------------------------------ GGUF

    def all_keys(self, f32=False):
        k = {
            "general.architecture": self.arch,
            "general.type": "model",
            "general.name": "tiny " + self.name,
            "general.license": "MIT OR Apache-2.0",
            "general.file_type": 0 if f32 else 1,
            "general.quantization_version": 2,
        }
        if self.exercises:
            k["general.description"] = "Random weights, for tests only: " + self.exercises
        for s, v in self.keys.items():
            k[s[1:] if s.startswith("/") else self.arch + "." + s] = v
        tokens, types, merges = vocabulary(self.n_vocab)
        t = {
            "model": "gpt2",
            "pre": "qwen2",
            "tokens": tokens,
            "token_type": ("i32", types),
            "merges": merges,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "eot_token_id": 2,
            "padding_token_id": 3,
            "add_bos_token": False,
            "add_eos_token": False,
        }
        t.update(self.tokenizer)
        for s, v in t.items():
            if v is not None:
                k["tokenizer.ggml." + s] = v
        return k

    def shapes(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
            gguf_file.write(f.name, self.all_keys(True), {})
            found = reference.shapes(f.name)
        found = {
            n: s
            for n, s in found.items()
            if not any(re.search(p, n) for p in self.drop)
            and (self.keep_scale or not n.endswith("scale"))
        }
        return {**found, **{n: s for n, (s, _) in self.extra.items()}}

    def selected(self, all_shapes, required):
        """Tensors to write: the required ones and the optional ones that `keep` names."""
        out, fused = {}, {}
        for n, s in all_shapes.items():
            stem = re.sub(r"\d+", "N", n)
            if (
                n in required
                or n in self.extra
                or (
                    (self.keep_scale or not n.endswith("scale"))
                    and any(re.search(p, n) for p in self.keep)
                )
            ):
                part = (
                    re.match(r"(.*attn_)([qkv])(\.(?:weight|bias))$", n) if self.fuse_qkv else None
                )
                if part:
                    n = part.group(1) + "qkv" + part.group(3)
                    fused.setdefault(n, {})[part.group(2)] = s
                    out[n] = None
                    if len(fused[n]) == 3:
                        out[n] = (sum(fused[n][x][0] for x in "qkv"),) + s[1:]
                else:
                    out[n] = s
        return out

    def fill(self, shapes):
        rng = np.random.default_rng(self.seed)
        t = {}
        for name, shape in shapes.items():
            bare = re.sub(r"^((enc|dec)\.)?blk\.\d+\.", "", name)
            what = None
            if name in self.extra:
                what = self.extra[name][1]  # None: by the rules
            for p, w in self.rules + RULES:
                if what is None and re.search(p, name if "blk" in p else bare):
                    what = w
            what = what or (("mat", 1.0) if len(shape) > 1 else ("vec", 0.3, 0.0))
            x = self.values(rng, what, shape)
            packed = self.packed and self.packed(name, x)
            t[name] = packed or (x if self.exact else coarse(x, what))
        return t

    @staticmethod
    def values(rng, what, shape):
        kind, a = what[0], what[1:]
        f = np.float32
        if kind == "mat" or kind == "mat32":
            x = rng.standard_normal(shape) * (a[0] / np.sqrt(shape[-1]))
            return x.astype(np.float16 if kind == "mat" and len(shape) > 1 else f)
        if kind == "norm":
            return (a[0] * np.clip(1.0 + 0.2 * rng.standard_normal(shape), 0.3, 1.7)).astype(f)
        if kind == "vec":
            return (a[1] + a[0] * rng.standard_normal(shape)).astype(f)
        if kind == "uniform":
            return rng.uniform(a[0], a[1], shape).astype(f)
        if kind == "conv":
            return (rng.standard_normal(shape) * 1.2 / np.sqrt(shape[-1])).astype(f)
        if kind == "decay":
            return (-rng.uniform(1.0, 16.0, shape)).astype(f)
        if kind == "log_decay":
            return np.log(rng.uniform(1.0, 16.0, shape)).astype(f)
        if kind == "dt":
            dt = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), shape))
            return (dt + np.log(-np.expm1(-dt))).astype(f)
        if kind == "freqs":
            return (1.0 + 3.0 * np.linspace(0, 1, shape[-1]) ** 2 * np.ones(shape)).astype(f)
        if kind == "const":
            return np.full(shape, a[0], f)
        if kind == "fn":
            return a[0](rng, shape)
        raise ValueError(kind)

    def write(self, path, tensors, keys=None, f32=False):
        out = {}
        for n, x in tensors.items():
            if isinstance(x, gguf_file.Packed):
                out[n] = x.values.astype(np.float32) if f32 else x
            else:
                out[n] = x.astype(np.float32) if f32 and x.dtype == np.float16 else x
        gguf_file.write(path, {**self.all_keys(f32), **(keys or {})}, out)


def coarse(x, what):
    """The values with few bits of information, so that the file compresses well.

    A weight of a matrix becomes one of four values: half or twice the standard deviation, which
    hardly changes the variance. With three significant bits, only the high byte of an F16 varies.
    Other random values keep five significant bits.
    """
    if what[0] in ("mat", "mat32") and x.ndim > 1:
        deviation = significant(what[1] / np.sqrt(x.shape[-1]), 3)
        size = np.where(np.abs(x) < 1.25 * deviation, deviation / 2, deviation * 2)
        return np.copysign(size, x).astype(x.dtype)
    return x if what[0] in ("const", "fn") else significant(x, 5).astype(x.dtype)


def significant(x, bits):
    """The nearest number of so many significant bits."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent)


def required_tensors(m, all_shapes):
    """Which of the tensors llama.cpp insists on: names without layer numbers are tried together, then one by one where kinds differ."""
    names = list(all_shapes)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.gguf")
        zeros = {n: np.zeros(s, np.float32) for n, s in all_shapes.items()}
        why = []

        def loads(skip):
            gguf_file.write(
                path, m.all_keys(True), {n: x for n, x in zeros.items() if n not in skip}
            )
            try:
                reference.in_child(lambda: reference.load(reference.library(), path) and None)
                return True
            except reference.Failed as e:
                why[:] = [str(e)]
                return False

        # `skip` grows as long as the file still loads
        skip = set()
        if not loads(skip):
            return None, "does not load with every tensor (less drop): " + why[0]
        stems = {}
        for n in names:
            stems.setdefault(re.sub(r"\d+", "N", n), []).append(n)
        for stem, group in stems.items():
            if loads(skip | set(group)):
                skip |= set(group)
            elif len(group) > 1:
                for n in group:
                    if (
                        n not in skip
                        and len({all_shapes[x] for x in group}) > 1
                        and loads(skip | {n})
                    ):
                        skip.add(n)
    return [n for n in names if n not in skip], sorted({re.sub(r"\d+", "N", n) for n in skip})
