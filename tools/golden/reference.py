"""llama.cpp as the reference: shapes of a described model, and results of a GGUF file.

Needs `pip install llama-cpp-py-sync==0.11739 numpy` (llama.cpp b11739, CPU). Every call runs in a forked child, because llama.cpp
ends the process where a check of its own fails; the parent gets a `Failed` with the last lines of the log instead.

Exactness: the file is an F32 copy of the weights, the cache F32, no flash attention, one thread. The shipped CPU kernels read
GELU (tanh form and quick form) from a table of F16 values; those nodes are computed again here in float64 while the graph runs.
"""

import ctypes
import math
import os
import pickle
import signal
import sys

import numpy as np

os.environ.setdefault("GGML_NO_BACKTRACE", "1")
F32, F16 = 0, 1
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


class Failed(RuntimeError):
    pass


# ---------------------------------------------------------------- a child per call


def in_child(f, *args, timeout=60, **kw):
    r, w = os.pipe()
    errors = os.memfd_create("log")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(r)
            os.dup2(errors, 2)
            signal.alarm(timeout)
            data = pickle.dumps((True, f(*args, **kw)))
            code = 0
        except BaseException as e:  # the parent must hear of everything
            data = pickle.dumps((False, "%s: %s" % (type(e).__name__, e)))
        with os.fdopen(w, "wb") as out:
            out.write(data)
        os._exit(code)
    os.close(w)
    with os.fdopen(r, "rb") as src:
        data = src.read()
    _, status = os.waitpid(pid, 0)
    os.lseek(errors, 0, 0)
    log = os.read(errors, 1 << 20).decode(errors="replace")
    os.close(errors)
    ok, value = (
        pickle.loads(data)
        if data
        else (
            False,
            "ended by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "no result",
        )
    )
    if not ok:
        lines = [
            l
            for l in log.splitlines()
            if l.strip() and not l.startswith(("[New", "warning", "0x", "#", "[Inf", "[Thread"))
        ]
        raise Failed("%s | %s" % (value, " | ".join(lines[-6:])[-700:]))
    return value


# ---------------------------------------------------------------- bindings

_STRUCTS = """
struct rf_tensor {
    int type; void * buffer; int64_t ne[4]; size_t nb[4]; int op; int32_t op_params[16]; int32_t flags;
    struct rf_tensor * src[10]; struct rf_tensor * view_src; size_t view_offs; void * data; char name[64]; void * extra; char padding[8];
};
"""


class Library:
    def __init__(self):
        from llama_cpp_py_sync import _cffi_bindings as b

        self.ffi, self.lib = b.ffi, b.get_lib()
        self.ffi.cdef(_STRUCTS)
        folder = os.path.dirname(b.__file__)
        self.base = ctypes.CDLL(os.path.join(folder, "libggml-base.so.0"), mode=ctypes.RTLD_GLOBAL)
        self.raw = ctypes.CDLL(os.path.join(folder, "libllama.so"), mode=ctypes.RTLD_GLOBAL)
        self.base.ggml_op_desc.restype = ctypes.c_char_p
        self.base.ggml_op_desc.argtypes = [ctypes.c_void_p]
        self.lib.llama_backend_init()
        self.keep = []
        if not os.environ.get("REF_VERBOSE"):

            @self.ffi.callback("void(enum ggml_log_level, const char *, void *)")
            def log(level, text, _):
                if level >= 3:  # warnings and errors
                    os.write(2, self.ffi.string(text))

            self.keep.append(log)
            self.lib.llama_log_set(log, self.ffi.NULL)

    def address(self, p):
        return int(self.ffi.cast("uintptr_t", p))

    def array(self, t, dtype="<f4"):
        """View of a tensor's values in memory, [ne3][ne2][ne1][ne0]."""
        n = [t.ne[i] for i in range(4)][::-1]
        s = [t.nb[i] for i in range(4)][::-1]
        size = sum((a - 1) * b for a, b in zip(n, s)) + s[3]
        buf = self.ffi.buffer(self.ffi.cast("char *", t.data), size)
        return np.ndarray(n, dtype, buffer=buf, strides=s)


_library = None


def library():
    global _library
    if _library is None:
        _library = Library()
    return _library


# ---------------------------------------------------------------- shapes


def _shapes(meta_path):
    L = library()
    ffi, lib = L.ffi, L.lib

    class Params(ctypes.Structure):
        _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]

    L.base.gguf_init_from_file.restype = ctypes.c_void_p
    L.base.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]
    meta = L.base.gguf_init_from_file(meta_path.encode(), Params(True, None))
    found = {}

    @ffi.callback("void(struct ggml_tensor *, void *)")
    def seen(t, _):
        t = ffi.cast("struct rf_tensor *", t)
        dims = [t.ne[i] for i in range(4)]
        while len(dims) > 1 and dims[-1] == 1:
            dims.pop()
        found[ffi.string(t.name).decode()] = tuple(dims[::-1])
        L.array(t, np.uint8 if t.type > 1 else "<f4" if t.type == 0 else "<f2")[...] = 0

    p = lib.llama_model_default_params()
    p.use_extra_bufts = False
    p.load_mtp = True
    model = lib.llama_model_init_from_user(
        ffi.cast("struct gguf_context *", meta), seen, ffi.NULL, p
    )
    if model == ffi.NULL:
        raise Failed("the keys do not make a model")
    return found


def shapes(meta_path):
    """Name -> shape (rows first) of every tensor that llama.cpp would read, required or not, from a file of keys alone."""
    return in_child(_shapes, meta_path)


# ---------------------------------------------------------------- exact GELU, router gaps


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * x * (1.0 + 0.044715 * x * x)))


def gelu_quick(x):
    return x / (1.0 + np.exp(-1.702 * x))


class Watch:
    """cb_eval: computes GELU nodes again, and records the smallest distance between chosen and rejected experts."""

    def __init__(self, L, used=0, groups=None, record=()):
        self.L, self.used, self.groups, self.gap, self.record, self.recorded = (
            L,
            used,
            groups,
            {},
            tuple(record),
            {},
        )
        L.base.ggml_get_unary_op.argtypes = L.base.ggml_get_glu_op.argtypes = [ctypes.c_void_p]
        self.callback = L.ffi.callback("bool(struct ggml_tensor *, bool, void *)", self.call)
        self.fixed = 0

    def call(self, t, ask, _):
        L = self.L
        t = L.ffi.cast("struct rf_tensor *", t)
        desc = L.base.ggml_op_desc(L.address(t)).decode()
        gel = desc in ("GELU", "GEGLU", "GELU_QUICK", "GEGLU_QUICK")
        name = L.ffi.string(t.name).decode()
        stem = name.rsplit("-", 1)[0]
        router = self.used and stem in (
            "ffn_moe_logits",
            "ffn_moe_probs_biased",
            "ffn_moe_probs_masked",
        )
        recorded = stem in self.record or name in self.record
        if ask:
            # The allocator may give a unary op its operand's memory, so the operand is read before the op runs: every
            # node is asked for, which makes the scheduler compute the graph node by node.
            if gel:
                self.operand = L.array(t.src[0]).astype(np.float64)
            return True
        if gel:
            f = gelu_quick if "QUICK" in desc else gelu
            x = self.operand
            out = L.array(t)
            if desc.startswith("GEGLU"):
                if t.src[1] != L.ffi.NULL:
                    out[...] = f(x) * L.array(t.src[1])
                else:
                    half = x.shape[-1] // 2
                    a, b = (
                        (x[..., half:], x[..., :half])
                        if t.op_params[1]
                        else (x[..., :half], x[..., half:])
                    )
                    out[...] = f(a) * b
            else:
                out[...] = f(x)
            self.fixed += 1
        if router and t.type == 0:
            v = L.array(t)[0, 0].astype(np.float64)
            if v.shape[-1] > self.used:
                s = -np.sort(-v, -1)
                g = s[:, self.used - 1] - s[:, self.used]
                g = g[np.isfinite(g)]
                if g.size:
                    self.gap[stem] = min(self.gap.get(stem, np.inf), float(g.min()))
        if recorded:
            self.recorded.setdefault(name, []).append(L.array(t).copy())
        return True


# ---------------------------------------------------------------- runs


def context(
    L,
    model,
    n_ctx,
    n_batch,
    n_ubatch,
    cache=F32,
    embedding=False,
    pooling=None,
    watch=None,
    causal=None,
    outputs=None,
    **more
):
    p = L.lib.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = n_ctx, n_batch, n_ubatch, 1, 1
    p.flash_attn_type = 0
    p.type_k = p.type_v = cache
    p.no_perf = True
    for k, v in more.items():
        setattr(p, k, v)
    if embedding:
        p.embeddings = True
        if pooling is not None:
            p.pooling_type = POOLING[pooling]
    if watch:
        p.cb_eval = watch.callback
    ctx = L.lib.llama_init_from_model(model, p)
    if ctx == L.ffi.NULL:
        raise Failed("no context")
    return ctx


def load(L, path):
    p = L.lib.llama_model_default_params()
    p.use_extra_bufts = False
    p.load_mtp = True
    model = L.lib.llama_model_load_from_file(path.encode(), p)
    if model == L.ffi.NULL:
        raise Failed("does not load")
    return model


def decode(L, ctx, ids, start, want_all=True, encode=False, embd=None, pos=None, with_ids=False):
    """One llama_decode (or encode). embd: [n][width] rows in place of ids, or beside them (with_ids). pos: explicit positions (n, or 4 rows of n for M-RoPE)."""
    ffi, lib, n = L.ffi, L.lib, len(ids) if embd is None else len(embd)
    b = lib.llama_batch_init(n, 0 if embd is None else embd.shape[1], 1)
    own = None
    b.n_tokens = n
    if pos is not None and np.ndim(pos) == 2:
        own = ffi.new("llama_pos[]", [int(x) for x in np.asarray(pos).ravel()])
        old, b.pos = b.pos, own
    for i in range(n):
        if embd is None:
            b.token[i] = ids[i]
        if own is None:
            b.pos[i] = start + i if pos is None else int(pos[i])
        b.n_seq_id[i] = 1
        b.seq_id[i][0] = 0
        b.logits[i] = 1 if want_all or i == n - 1 else 0
    if embd is not None:
        ffi.memmove(b.embd, np.ascontiguousarray(embd, "<f4").tobytes(), n * embd.shape[1] * 4)
    if with_ids:
        tokens = ffi.new("llama_token[]", [int(x) for x in ids])
        b.token = tokens
    rc = (lib.llama_encode if encode else lib.llama_decode)(ctx, b)
    if own is not None:
        b.pos = old
    if with_ids:
        b.token = ffi.NULL
    lib.llama_batch_free(b)
    if rc:
        raise Failed("decode gives %d" % rc)


def rows(L, ctx, n, width, get=None):
    get = get or L.lib.llama_get_logits_ith
    return np.stack(
        [np.frombuffer(L.ffi.buffer(get(ctx, i), 4 * width), "<f4").copy() for i in range(n)]
    )


def adapt(L, model, ctx, adapters):
    """Applies LoRA adapters: pairs of a file and a scale."""
    if not adapters:
        return
    loaded = [L.lib.llama_adapter_lora_init(model, path.encode()) for path, _ in adapters]
    if L.ffi.NULL in loaded:
        raise Failed("an adapter does not load")
    scales = L.ffi.new("float[]", [scale for _, scale in adapters])
    loaded = L.ffi.new("struct llama_adapter_lora *[]", loaded)
    if L.lib.llama_set_adapters_lora(ctx, loaded, len(adapters), scales):
        raise Failed("adapters are refused")


def vocab_size(L, model):
    return L.lib.llama_vocab_n_tokens(L.lib.llama_model_get_vocab(model))


def nll(logits, ids):
    l = logits[:-1].astype(np.float64)
    m = l.max(-1, keepdims=True)
    p = l - m - np.log(np.exp(l - m).sum(-1, keepdims=True))
    return float(-p[np.arange(len(ids) - 1), ids[1:]].mean())


def _logits(
    path,
    ids,
    n_greedy=0,
    ubatch=512,
    batch=0,
    cache=F32,
    used=0,
    encoder=None,
    exact_gelu=True,
    record=(),
    n_ctx=0,
    adapters=(),
    directions=None,
    **more
):
    L = library()
    model = load(L, path)
    V, n = vocab_size(L, model), len(ids)
    watch = Watch(L, used, record=record) if exact_gelu or used or record else None
    ctx = context(L, model, n_ctx or 256, 256, ubatch, cache, watch=watch, **more)
    adapt(L, model, ctx, adapters)
    if directions is not None:  # [layers after the first one][columns], for the layers that follow
        data, first, last = directions
        values = L.ffi.new("float[]", np.ascontiguousarray(data, "<f4").ravel().tolist())
        if L.lib.llama_set_adapter_cvec(ctx, values, data.size, data.shape[1], first, last):
            raise Failed("directions are refused")
    if encoder is not None:  # encoder-decoder: `encoder` ids first, then ids are the decoder's
        decode(L, ctx, encoder, 0, encode=True)
    out = []
    step = batch or n
    for at in range(0, n, step):
        part = ids[at : at + step]
        decode(L, ctx, part, at)
        out.append(rows(L, ctx, len(part), V))
    logits = np.concatenate(out)
    last, greedy, margin = logits[-1], [], []
    for g in range(n_greedy):
        order = np.argsort(-last, kind="stable")
        greedy.append(int(order[0]))
        margin.append(float(last[order[0]] - last[order[1]]))
        if g + 1 < n_greedy:
            decode(L, ctx, [greedy[-1]], n + g)
            last = rows(L, ctx, 1, V)[0]
    return dict(
        logits=logits,
        greedy=greedy,
        margin=margin,
        n_vocab=V,
        n_ctx=L.lib.llama_n_ctx(ctx),
        gap=watch.gap if watch else {},
        gelu=watch.fixed if watch else 0,
        recorded=watch.recorded if watch else {},
    )


def logits(path, ids, **kw):
    return in_child(_logits, path, ids, **kw)


def _mtp(path, ids):
    """Logits of the block for further tokens (MTP) at every position. At p it gets token p and the trunk's state after the last norm at p - 1 (zeros at 0)."""
    L = library()
    model, n = load(L, path), len(ids)
    watch = Watch(L, record=("result_norm",))
    trunk = context(L, model, 256, 256, 512, watch=watch)
    decode(L, trunk, ids, 0)
    states = watch.recorded["result_norm"][0].reshape(n, -1)
    before = np.concatenate([np.zeros_like(states[:1]), states[:-1]])
    of_block = Watch(L)  # kept alive: the context calls it
    ctx = context(L, model, 256, 256, 512, watch=of_block, ctx_type=1, ctx_other=trunk)
    decode(L, ctx, ids, 0, embd=before, with_ids=True)
    return rows(L, ctx, n, vocab_size(L, model))


def mtp(path, ids):
    return in_child(_mtp, path, ids)


def _embedding(path, ids, pooling, cache=F32, exact_gelu=True, record=(), **more):
    """The sequence's L2-normalised embedding, a reranker's scores, or ("none") every position's state."""
    L = library()
    model = load(L, path)
    n = len(ids)
    watch = Watch(L, record=record) if exact_gelu or record else None
    ctx = context(
        L, model, 256, 256, 256, cache, embedding=True, pooling=pooling, watch=watch, **more
    )
    mem = L.lib.llama_get_memory(ctx) != L.ffi.NULL
    decode(L, ctx, ids, 0, encode=not mem)
    if pooling == "none":
        E = L.lib.llama_model_n_embd_out(model)
        return dict(
            embedding=rows(L, ctx, n, E, L.lib.llama_get_embeddings_ith),
            n_vocab=vocab_size(L, model),
            recorded=watch.recorded if watch else {},
        )
    E = (
        L.lib.llama_model_n_cls_out(model)
        if pooling == "rank"
        else L.lib.llama_model_n_embd_out(model)
    )
    x = np.frombuffer(L.ffi.buffer(L.lib.llama_get_embeddings_seq(ctx, 0), 4 * E), "<f4").astype(
        np.float64
    )
    if pooling != "rank":
        x = x / np.sqrt((x * x).sum())
    return dict(
        embedding=x.astype(np.float32),
        n_vocab=vocab_size(L, model),
        recorded=watch.recorded if watch else {},
    )


def embedding(path, ids, pooling, **kw):
    return in_child(_embedding, path, ids, pooling, **kw)
