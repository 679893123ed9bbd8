#!/usr/bin/env python3
"""Count the instructions that kernels execute on a gfx1100 emulator; `cargo xtask kernels --report --counts` runs it.

    count_kernels.py EMULATOR_FOLDER < launches.json > counts.json

EMULATOR_FOLDER has a module `count` with a class `CountedModule(path)`, whose `launch(kernel, grid, block, arguments)`
returns a result, counts by class of instruction and counts by mnemonic.

A launch is {"object", "kernel", "grid", "block", "params", "arena_bytes"}: `params` the bytes of the kernel's struct, in which
a word of 64 bits whose upper half is MARK is an offset into memory that this program provides. Kernels are to be
counted, not checked: the memory holds bytes from 0x20 to 0x3b, which are ordinary numbers as int8, f16 or f32.
"""
import json
import struct
import sys

MARK = 0xB0FFE000
ALIGNMENT = 4096


def place_arena(num_bytes):
    """An array of `num_bytes` that starts at a multiple of ALIGNMENT."""
    import numpy

    values = numpy.random.default_rng(1).integers(0x20, 0x3C, num_bytes + ALIGNMENT, dtype=numpy.uint8)
    start = -values.ctypes.data % ALIGNMENT
    return values[start : start + num_bytes]


def relocate(params, base):
    """`params` with offsets turned into addresses."""
    words = struct.unpack(f"<{len(params) // 8}Q", params)
    return struct.pack(f"<{len(words)}Q", *(base + (w & 0xFFFFFFFF) if w >> 32 == MARK else w for w in words))


def main():
    emulator, *rest = sys.argv[1:]
    if rest:
        sys.exit("one argument: the emulator's folder")
    sys.path.insert(0, emulator)
    from count import CountedModule

    modules = {}
    counts = []
    for launch in json.load(sys.stdin):
        path = launch["object"]
        if path not in modules:
            modules[path] = CountedModule(path)
        arena = place_arena(launch["arena_bytes"])
        params = relocate(bytes(launch["params"]), arena.ctypes.data)
        _, classes, _ = modules[path].launch(launch["kernel"], launch["grid"], launch["block"], [params])
        counts.append(classes)
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
