#!/usr/bin/env python3
"""Make golden LoRA adapters: random ones for golden models, and the logits of llama.cpp with them.

    adapters.py golden/lora            make the adapters and the logits of all cases
    adapters.py golden/lora --check    compute all of it again and compare

The models are those of golden/arch, which make.py makes again from their seeds.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import zlib

import numpy as np
import zopfli.gzip

import gguf_file
import make
import reference
from model import required_tensors

# Adapter: (model, pattern of the tensors, ranks that alternate by tensor, alpha, type of the matrices)
ADAPTERS = {
    "llama_attention": ("llama_gqa", r"attn_(q|k|v|output)\.weight", [4], 8.0, np.float16),
    "llama_all": ("llama_gqa", r"(attn_|ffn_).*[^m]\.weight", [3, 2], 4.0, np.float32),
    "llama_unscaled": ("llama_gqa", r"ffn_down\.weight|attn_q\.weight", [4], 0.0, np.float16),
    "phi3_fused": ("phi3", r"attn_qkv|ffn_up|output\.weight|token_embd", [4], 4.0, np.float16),
    "qwen3moe_experts": (
        "qwen3moe",
        r"_exps\.weight|ffn_gate_inp|attn_v\.weight",
        [2],
        2.0,
        np.float16,
    ),
}
# Case: adapters of one model with their scales
CASES = {
    "llama_attention": [("llama_attention", 1.0)],
    "llama_all": [("llama_all", 1.0)],
    "llama_unscaled": [("llama_unscaled", 0.75)],
    "llama_three": [("llama_attention", 0.5), ("llama_all", -0.75), ("llama_unscaled", 0.25)],
    "phi3_fused": [("phi3_fused", 1.0)],
    "qwen3moe_experts": [("qwen3moe_experts", 1.0)],
}
# Control vector: model, scale, first and last layer
CONTROL = {"smollm3_control": ("smollm3", 0.75, 1, 2)}
POSITIONS = [0, 7, 23]


def random(shape, deviation, rng, dtype):
    """Four values, which compress well. Those of F32 are no numbers of F16."""
    half, two = [np.float32(dtype(x * deviation * 1.001)) for x in (0.5, 2.0)]
    values = np.array([-two, -half, half, two], np.float32)
    return values[rng.integers(0, 4, shape)]


def tensors_of(name, weights):
    _, pattern, ranks, _, dtype = ADAPTERS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    chosen = [n for n in sorted(weights) if re.search(pattern, n)]
    assert chosen, name
    out = {}
    for i, n in enumerate(chosen):
        *experts, rows, columns = weights[n].shape
        rank = ranks[i % len(ranks)]
        b = random((*experts, rows, rank), 0.1 / rank**0.5, rng, dtype)
        if n == "token_embd.weight":
            a = random((rows, rank), 0.5, rng, dtype)
            b = random((columns, rank), 0.1 / rank**0.5, rng, dtype)
        else:
            a = random((*experts, rank, columns), columns**-0.5, rng, dtype)
        out[n + ".lora_a"], out[n + ".lora_b"] = a.astype(dtype), b.astype(dtype)
    return out


def write(name, architecture, tensors, path, f32=False):
    keys = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "general.name": name,
        "adapter.type": "lora",
        "adapter.lora.alpha": ADAPTERS[name][3],
    }
    if f32:
        tensors = {n: x.astype(np.float32) for n, x in tensors.items()}
    gguf_file.write(path, keys, tensors)


def results(tmp):
    """Files of the adapters, and (entry, logits) of each case."""
    index = json.load(open(os.path.join(os.path.dirname(__file__), "../../golden/arch/index.json")))
    entries = {e["name"]: e for e in index["models"]}
    files, cases = {}, []
    bases = {a[0] for a in ADAPTERS.values()} | {c[0] for c in CONTROL.values()}
    for base in sorted(bases):
        e = entries[base]
        m = make.build(base, True, e["seed"])
        m.seed = e["seed"]
        shapes = m.shapes()
        required, _ = required_tensors(m, shapes)
        weights = m.fill(m.selected(shapes, set(required)))
        model = os.path.join(tmp, base + ".gguf")
        m.write(model, weights, f32=True)
        for name in [n for n, a in ADAPTERS.items() if a[0] == base]:
            tensors = tensors_of(name, weights)
            path = os.path.join(tmp, name + ".gguf")
            write(name, e["architecture"], tensors, path)
            files[name] = open(path, "rb").read()
            write(name, e["architecture"], tensors, path, f32=True)
        plain, _ = make.run(m, model, e["ids"])
        for name, used in CASES.items():
            if ADAPTERS[used[0][0]][0] != base:
                continue
            adapters = [(os.path.join(tmp, n + ".gguf"), scale) for n, scale in used]

            def run(**kw):
                return make.run(m, model, e["ids"], adapters=adapters, **kw)[0]

            x = run(used=m.used)
            spread = max(make.difference(x, run(ubatch=7)), make.difference(x, run(batch=1)))
            bound = max(10 * spread, 2e-5 * float(np.abs(x).max()))
            change = make.difference(x, plain)
            assert change > 0.5, (name, change)
            print("%-20s spread %.0e change %.2f" % (name, spread, change), flush=True)
            entry = {
                "name": name,
                "model": base,
                "adapters": [{"name": n, "scale": s} for n, s in used],
                "positions": POSITIONS,
                "bound": float("%.2g" % bound),
            }
            cases.append((entry, x[POSITIONS].astype("<f4")))
        for name in [n for n, c in CONTROL.items() if c[0] == base]:
            _, scale, first, last = CONTROL[name]
            width = weights["token_embd.weight"].shape[1]
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            layers = len([n for n in weights if re.search(r"blk\.\d+\.ffn_down", n)])
            data = random((layers - 1, width), 0.1, rng, np.float16)
            tensors = {"direction.%d" % (i + 1): row for i, row in enumerate(data)}
            path = os.path.join(tmp, name + ".gguf")
            gguf_file.write(path, {"general.architecture": "controlvector"}, tensors)
            files[name] = open(path, "rb").read()
            directions = (data * np.float32(scale), first, last)

            def run(**kw):
                return make.run(m, model, e["ids"], directions=directions, **kw)[0]

            x = run()
            spread = max(make.difference(x, run(ubatch=7)), make.difference(x, run(batch=1)))
            bound = max(10 * spread, 2e-5 * float(np.abs(x).max()))
            print("%-20s spread %.0e change %.2f" % (name, spread, make.difference(x, plain)))
            entry = {
                "name": name,
                "model": base,
                "adapters": [],
                "control": {"name": name, "scale": scale, "layers": [first, last]},
                "positions": POSITIONS,
                "bound": float("%.2g" % bound),
            }
            cases.append((entry, x[POSITIONS].astype("<f4")))
    return files, cases


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    reference.library()
    with tempfile.TemporaryDirectory() as tmp:
        files, cases = results(tmp)
    os.makedirs(a.out, exist_ok=True)
    for name, data in files.items():
        path = os.path.join(a.out, "%s.gguf.gz" % name)
        if a.check:
            print("%-20s %s" % (name, "same" if gguf_file.contents(path) == data else "DIFFERS"))
            continue
        with open(path, "wb") as f:
            f.write(zopfli.gzip.compress(data))
    for entry, logits in cases:
        path = os.path.join(a.out, "%s.logits.f32" % entry["name"])
        if a.check:
            stored = np.fromfile(path, "<f4").reshape(logits.shape)
            print("%-20s %.1e" % (entry["name"], make.difference(stored, logits)))
            continue
        logits.tofile(path)
    if not a.check:
        index = {"cases": [entry for entry, _ in cases]}
        make.write_index(a.out, index)


if __name__ == "__main__":
    sys.exit(main())
