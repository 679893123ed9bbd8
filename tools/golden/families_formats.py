"""Models whose matrices have the codebook and ternary formats.

The formats have blocks of 256 values, so these are the only models with rows that wide.
"""

import itertools

import formats
from families import family

DENSE = [
    "IQ4_NL",
    "IQ4_XS",
    "IQ3_S",
    "IQ3_XXS",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ1_M",
    "IQ1_S",
    "TQ1_0",
    "TQ2_0",
]


def in_turn(names):
    """Gives the matrices one format after the other, in the order of the file."""
    turn, chosen = itertools.cycle(names), {}

    def pack(name, x):
        is_matrix = name == "token_embd.weight" or name.startswith("blk.") and x.ndim > 1
        if not is_matrix or "gate_inp" in name:
            return None
        if name not in chosen:
            chosen[name] = next(turn)
        return formats.packed(chosen[name], x)

    return pack


@family("llama_codebooks", "llama")
def _(m):
    m.base(2, 256, 4, 1, 256)
    m.packed = in_turn(DENSE)
    m.exact = True
    m.positions = [0, 1, 2, 3, 7, 8, 9, 15, m.n_ids - 2, m.n_ids - 1]
    m.exercises = "IQ4_NL to IQ1_S, TQ1_0, TQ2_0: each matrix has another format"


@family("qwen3moe_codebooks", "qwen3moe")
def _(m):
    m.base(1, 256, 4, 1, 256, head_dim=64, rope=1e6, experts=3, used=2, ff_exp=256)
    m.packed = in_turn(["IQ4_XS", "IQ3_S", "IQ2_XXS", "IQ1_M", "IQ3_XXS", "IQ2_XS", "IQ1_S"])
    m.exact = True
    m.positions = [0, 1, 2, 3, 7, 8, 9, 15, m.n_ids - 2, m.n_ids - 1]
    m.exercises = "experts in codebook formats"
