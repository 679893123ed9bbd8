"""Write small GGUF files (version 3, alignment 32). No dependency but numpy."""

import gzip
import os
import struct

import numpy as np

KINDS = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
TYPES = {
    np.dtype("float32"): 0,
    np.dtype("float16"): 1,
    np.dtype("int32"): 26,
    np.dtype("int64"): 27,
}


class Packed:
    """A tensor stored in a block format: bytes of the rows, its ggml type and logical shape (rows first, as numpy)."""

    def __init__(self, data, ggml_type, shape, values):
        self.data, self.ggml_type, self.shape, self.values = (
            np.ascontiguousarray(data),
            ggml_type,
            tuple(shape),
            values,
        )


def kind_of(value):
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (str, bytes)):
        return "str"
    if isinstance(value, float):
        return "f32"
    return "u32" if value >= 0 else "i32"


def _string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def _value(value, kind=None):
    """Type id and bytes of a value; kind names the element type where the default is not wanted."""
    if isinstance(value, (list, tuple)):
        k = kind or kind_of(value[0])
        if k == "str":
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        return struct.pack("<IIQ", 9, KINDS[k][0], len(value)) + struct.pack(
            "<%d%s" % (len(value), KINDS[k][1]), *value
        )
    k = kind or kind_of(value)
    if k == "str":
        return struct.pack("<I", 8) + _string(value)
    return struct.pack("<I", KINDS[k][0]) + struct.pack("<" + KINDS[k][1], value)


def write(path, keys, tensors):
    """keys: name -> value or (kind, value). tensors: name -> numpy array (rows first) or Packed."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)))
    for name, v in keys.items():
        out += _string(name) + (_value(v[1], v[0]) if isinstance(v, tuple) else _value(v))
    offset, blobs = 0, []
    for name, x in tensors.items():
        packed = isinstance(x, Packed)
        data = (x.data if packed else np.ascontiguousarray(x)).tobytes()
        dims = tuple(reversed(x.shape))
        out += _string(name) + struct.pack("<I%dQ" % len(dims), len(dims), *dims)
        out += struct.pack("<IQ", x.ggml_type if packed else TYPES[x.dtype], offset)
        data += bytes(-len(data) % 32)
        blobs.append(data)
        offset += len(data)
    out += bytes(-len(out) % 32)
    with open(path, "wb") as f:
        f.write(out)
        for b in blobs:
            f.write(b)


def write_floats(path, values):
    """Writes f32 to PATH.gz."""
    with open(path + ".gz", "wb") as f:
        f.write(gzip.compress(values.astype("<f4").tobytes(), 9, mtime=0))


def read_floats(path):
    """The f32 of PATH, or of PATH.gz."""
    path = path if os.path.exists(path) else path + ".gz"
    return np.frombuffer(contents(path), "<f4")


def contents(path):
    """The bytes of a file, unpacked."""
    with open(path, "rb") as f:
        d = f.read()
    return gzip.decompress(d) if path.endswith(".gz") else d


def read(path):
    """Keys (name -> value) and tensors (name -> (shape rows first, ggml type)) of a file."""
    d = contents(path)
    at = 4

    def take(f):
        nonlocal at
        v = struct.unpack_from("<" + f, d, at)
        at += struct.calcsize("<" + f)
        return v[0] if len(v) == 1 else v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return d[at - n : at].decode(errors="replace")

    codes = {v[0]: v[1] for v in KINDS.values()}

    def value(t):
        if t == 8:
            return text()
        if t == 9:
            e, n = take("IQ")
            return [value(e) for _ in range(n)]
        return take(codes[t])

    _, n_tensors, n_keys = take("IQQ")
    keys = {}
    for _ in range(n_keys):
        k = text()
        keys[k] = value(take("I"))
    tensors = {}
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        t, _ = take("IQ")
        tensors[name] = (tuple(dims[::-1]), t)
    return keys, tensors
