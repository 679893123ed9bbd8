#!/usr/bin/env python3
"""Weight formats that libggml packs and unpacks.

formats.py OUT [SOURCE.f32]      per format: blocks of the source (8 rows of 4096), their values, 512 random blocks, their values (NVFP4, Q1_0, Q2_0)
"""

import ctypes
import json
import os
import sys

import numpy as np

import gguf_file
import reference

FORMATS = {
    "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
    "IQ4_NL": (20, 32, 18),
    "IQ4_XS": (23, 256, 136),
    "IQ3_S": (21, 256, 110),
    "IQ3_XXS": (18, 256, 98),
    "IQ2_S": (22, 256, 82),
    "IQ2_XS": (17, 256, 74),
    "IQ2_XXS": (16, 256, 66),
    "IQ1_M": (29, 256, 56),
    "IQ1_S": (19, 256, 50),
    "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66),
}  # name: ggml type, elements, bytes
OF_BLOCKS = ["NVFP4", "Q1_0", "Q2_0"]  # formats whose blocks main() records


def _base():
    g = reference.library().base
    g.ggml_quantize_chunk.restype = ctypes.c_size_t
    g.ggml_quantize_chunk.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    return g


def quantize(name, x):
    t, n, size = FORMATS[name]
    x = np.ascontiguousarray(x, np.float32)
    q = np.zeros((x.size // n, size), np.uint8)
    columns = x.shape[-1]
    assert columns % n == 0
    # The formats below three bits need an importance matrix: here every column counts the same.
    ones = np.ones(columns, np.float32) if name.startswith("IQ") else None
    importances = None if ones is None else ones.ctypes.data
    rows = x.size // columns
    quantize_chunk = _base().ggml_quantize_chunk
    packed_bytes = quantize_chunk(t, x.ctypes.data, q.ctypes.data, 0, rows, columns, importances)
    assert packed_bytes == q.nbytes
    return q


def dequantize(name, q):
    t, n, size = FORMATS[name]
    f = getattr(_base(), "dequantize_row_" + name.lower())
    f.argtypes, f.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    q = np.ascontiguousarray(q)
    y = np.zeros(q.size // size * n, np.float32)
    f(q.ctypes.data, y.ctypes.data, y.size)
    return y


def packed(name, x):
    q = quantize(name, x)
    return gguf_file.Packed(q, FORMATS[name][0], x.shape, dequantize(name, q).reshape(x.shape))


def by_definition(name, q):
    """The same values from the layout's description, as a check of the description."""
    if name == "Q1_0":  # F16 d, then 128 bits, lowest first: 1 is d, 0 is -d
        d = q[:, :2].copy().view(np.float16).astype(np.float32)
        return np.where(np.unpackbits(q[:, 2:], axis=1, bitorder="little"), d, -d).ravel()
    if name == "Q2_0":  # F16 d, then 64 codes of two bits, lowest first: (code - 1) d
        d = q[:, :2].copy().view(np.float16).astype(np.float32)
        c = (q[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
        return ((c.reshape(len(q), -1).astype(np.float32) - 1) * d).ravel()
    # four unsigned E4M3 scales (of 16 values each), then 32 bytes: per 16 values 8 bytes, low nibbles first half, high nibbles second half
    e, mant = q[:, :4] >> 3 & 15, q[:, :4] & 7
    scale = np.where(
        e == 0, mant / 8.0 * 2.0**-6, (1 + mant / 8.0) * 2.0 ** (e.astype(np.float64) - 7)
    )
    scale = np.where((q[:, :4] & 127) == 127, 0.0, scale)  # the NaN pattern counts as 0
    v = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    n = q[:, 4:].reshape(-1, 4, 8)
    return (
        (np.concatenate([v[n & 15], v[n >> 4]], -1) * scale[:, :, None]).astype(np.float32).ravel()
    )


def main():
    out = sys.argv[1]
    source = (
        sys.argv[2]
        if len(sys.argv) > 2
        else os.path.join(os.path.dirname(os.path.abspath(out)), "quant", "source.f32")
    )
    os.makedirs(out, exist_ok=True)
    x = np.fromfile(source, "<f4").reshape(8, -1)
    index = {
        "source": {"file": "../quant/source.f32", "rows": x.shape[0], "columns": x.shape[1]},
        "formats": {},
    }
    rng = np.random.default_rng(20261128)
    for name in OF_BLOCKS:
        t, n, size = FORMATS[name]
        q = quantize(name, x)
        y = dequantize(name, q)
        r = rng.integers(0, 256, (512, size), dtype=np.uint8)
        if name == "NVFP4":
            r[:, :4] &= 127  # the sign bit of a scale is unused
        else:
            r[:, :2] = rng.uniform(-2, 2, 512).astype(np.float16).view(np.uint8).reshape(-1, 2)
        z = dequantize(name, r)
        assert np.isfinite(y).all() and np.isfinite(z).all()
        d = max(np.abs(by_definition(name, q) - y).max(), np.abs(by_definition(name, r) - z).max())
        q.tofile(os.path.join(out, name + ".quantized"))
        y.tofile(os.path.join(out, name + ".dequantized.f32"))
        r.tofile(os.path.join(out, name + ".random"))
        z.tofile(os.path.join(out, name + ".random.f32"))
        e = y.reshape(x.shape).astype(np.float64) - x
        index["formats"][name] = {
            "ggml_type": t,
            "block_elements": n,
            "block_bytes": size,
            "rmse_rows": [float(v) for v in np.sqrt((e**2).mean(1))],
            "sources": "quantised and dequantised by libggml b11739; formats.by_definition gives the same values",
        }
        print(
            name,
            "definition differs by %g" % d,
            ["%.3g" % v for v in index["formats"][name]["rmse_rows"]],
        )
    with open(os.path.join(out, "index.json"), "w") as f:
        json.dump(index, f, indent=1)


if __name__ == "__main__":
    main()
