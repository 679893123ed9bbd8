"""Runs every kernel of a code object in the other emulator and writes what the kernels leave.

    reference.py CODE_OBJECT INPUTS MEMORY WORKGROUPS KERNEL...

RDNA_EMU_DIR names the folder of rdna_emu.py. Standard output gets, per kernel: the length of the
result (negative: of an error message) as a little-endian i64, then its bytes.
"""
import os
import struct
import sys

sys.path.insert(0, os.environ["RDNA_EMU_DIR"])
import numpy as np
import rdna_emu


def main():
    code, inputs, memory, workgroups, names = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    emulator = rdna_emu.Emulator()
    module = emulator.load(open(code, "rb").read())
    inputs = np.fromfile(inputs, np.uint32)
    initial = np.fromfile(memory, np.uint32)
    for name in names.split(","):
        result, memory = np.zeros_like(inputs), initial.copy()
        try:
            module.launch(name, workgroups, 32, [inputs, result, memory])
            data = result.tobytes() + memory.tobytes()
            out.write(struct.pack("<q", len(data)))
        except Exception as error:  # any refusal is a result
            data = f"{type(error).__name__}: {error}".encode()
            out.write(struct.pack("<q", -len(data)))
        out.write(data)
        out.flush()


main()
