#!/usr/bin/env python3
"""Let the libraries of llama-cpp-py-sync load with a glibc older than 2.38 (Debian 12 has 2.36).

    python older_glibc.py            (patches the installed package in place; running it again changes nothing)

All they need of 2.38 are __isoc23_strtol and its like, which differ from strtol only in reading "0b..." numbers. In each library
those undefined symbols get their old names (the tail of the same string) and an old version, and the need of 2.38 becomes weak.
"""

import glob
import importlib.util
import os
import struct
import sys


def patch(path):
    d = bytearray(open(path, "rb").read())
    (off,) = struct.unpack_from("<Q", d, 40)
    size, count, names = struct.unpack_from("<HHH", d, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", d, off + i * size) for i in range(count)]
    text = lambda base, o: bytes(d[base + o : d.index(0, base + o)]).decode()
    by_name = {text(sections[names][4], s[0]): s for s in sections}
    dynsym, dynstr = by_name[".dynsym"], by_name[".dynstr"][4]
    versym, need = by_name[".gnu.version"][4], by_name.get(".gnu.version_r")
    if need is None:
        return 0
    old, new, at, more = None, None, need[4], True
    while more:  # one record per library, one entry per version
        _, n, file, aux, nxt = struct.unpack_from("<HHIII", d, at)
        a = at + aux
        for _ in range(n):
            _, flags, other, name, step = struct.unpack_from("<IHHII", d, a)
            v = text(dynstr, name)
            if text(dynstr, file).startswith("libc.so"):
                if v == "GLIBC_2.2.5":
                    old = other
                if v == "GLIBC_2.38":
                    new = other
                    struct.pack_into("<H", d, a + 4, flags | 2)  # weak: may be missing
            a += step
        at, more = at + nxt, nxt
    changed = 0
    for i in range(dynsym[5] // 24):
        s = dynsym[4] + i * 24
        (name,) = struct.unpack_from("<I", d, s)
        t = text(dynstr, name)
        if t.startswith("__isoc23_") and new is not None:
            struct.pack_into("<I", d, s, name + len("__isoc23_"))
            struct.pack_into("<H", d, versym + 2 * i, old)
            changed += 1
    if changed:
        mode = os.stat(path).st_mode
        with open(path + ".new", "wb") as f:
            f.write(d)
        os.chmod(path + ".new", mode)
        os.replace(path + ".new", path)
    return changed


def main():
    folder = (
        sys.argv[1]
        if len(sys.argv) > 1
        else os.path.dirname(importlib.util.find_spec("llama_cpp_py_sync").origin)
    )
    for path in sorted(glob.glob(os.path.join(folder, "*.so*"))):
        print("%-24s %d symbols" % (os.path.basename(path), patch(path)))


if __name__ == "__main__":
    main()
