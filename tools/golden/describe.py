#!/usr/bin/env python3
"""Write OUT/README.md: a table of the models of OUT/index.json, and what no test can see in them.

describe.py OUT
"""

import json
import os
import sys

INTRO = """# Models

Written by `tools/golden/describe.py` from `index.json`; [the folder above](../README.md) says what
the files contain.
"""

BLIND = """
## What a model cannot show

The results do not depend on these tensors and keys, so no test notices an error in them.
"""


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    models = index["models"] + index["embeddings"]
    out = [INTRO]
    out += ["| model | architecture | KB | bound | bound with F16 | exercises |"]
    out += ["|---|---|---:|---:|---:|---|"]
    for e in models:
        of_f16 = "%.1e" % e["bound_f16"] if e["bound_f16"] else "none"
        cells = (e["name"], e["architecture"], e["bytes"] // 1000, e["bound"], of_f16)
        out.append("| `%s` | `%s` | %d | %.1e | %s | %s |" % (*cells, e["exercises"]))
    unseen = [(e["name"], e["checks"]["unseen"]) for e in models if e["checks"].get("unseen")]
    if unseen:
        out += [BLIND, "| model | tensors and keys |", "|---|---|"]
        for name, names in unseen:
            names = ", ".join("`%s`" % n.replace("key ", "") for n in names)
            out.append("| `%s` | %s |" % (name, names))
    with open(os.path.join(folder, "README.md"), "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
