"""A second text with a picture: ids, rows of embeddings at positions of M-RoPE, ids."""

import os

import numpy as np

import gguf_file
import reference
from model import coarse

BEFORE, AFTER = 6, 8


def add(m, path, ids, out):
    """Writes the rows of the picture and the logits of the whole text; gives the entry `image` of the index."""
    before, after = ids[:BEFORE], ids[BEFORE : BEFORE + AFTER]
    rows, logits, positions = reference.in_child(_run, m, path, before, after)
    _, split, _ = reference.in_child(_run, m, path, before, after, ubatch=7)
    rows_file, logits_file = m.name + ".image.f32", m.name + ".image.logits.f32"
    gguf_file.write_floats(os.path.join(out, rows_file), rows)
    stored = logits[_stored(len(before), len(rows), len(after))]
    gguf_file.write_floats(os.path.join(out, logits_file), stored)
    return {
        "before": before,
        "embeddings": rows_file,
        "rows": len(rows),
        "width": int(rows.shape[1]),
        "grid": list(m.image),
        "positions_txyz": positions,
        "after": after,
        "after_position": len(before) + max(m.image),
        "positions": _stored(len(before), len(rows), len(after)),
        "logits": logits_file,
        "llamacpp_spread": float("%.2g" % np.abs(split.astype(np.float64) - logits).max()),
    }


def _stored(before, rows, after):
    """The places in the text whose logits are stored: the ends of its three parts."""
    return [before - 1, before, before + rows - 1, before + rows, before + rows + after - 1]


def _rows(m, n, width):
    """Random rows of the size of token embeddings, of few bits."""
    x = np.random.default_rng(m.seed + 1).standard_normal((n, width)) * 2.0 / np.sqrt(m.E)
    return coarse(x.astype(np.float32), ("vec",))


def _run(m, path, before, after, ubatch=512):
    """The rows, the logits of the whole text, and the rows' positions: t stays, y and x run over the grid. The text goes on after the larger side."""
    L = reference.library()
    model = reference.load(L, path)
    V, width = reference.vocab_size(L, model), L.lib.llama_model_n_embd_inp(model)
    ctx = reference.context(L, model, 256, 256, ubatch)
    h, w = m.image
    n, n0 = h * w, len(before)
    embd = _rows(m, n, width)
    y, x = np.divmod(np.arange(n), w)
    pos = np.stack([np.full(n, n0), n0 + y, n0 + x, np.zeros(n, int)])
    reference.decode(L, ctx, before, 0)
    out = [reference.rows(L, ctx, n0, V)]
    reference.decode(L, ctx, None, 0, embd=embd, pos=pos)
    out.append(reference.rows(L, ctx, n, V))
    reference.decode(L, ctx, after, n0 + max(h, w))
    out.append(reference.rows(L, ctx, len(after), V))
    return embd, np.concatenate(out), pos.tolist()
