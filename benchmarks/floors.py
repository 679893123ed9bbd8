#!/usr/bin/env python3
"""Measures the speed floors of floors.toml that this machine can run, and prints the whole table.

    benchmarks/floors.py cpu --peer-python target/peers/llama-cpp-python/bin/python
    benchmarks/floors.py gpu --peer-bench path/to/llama-bench --batched-bench path/to/llama-batched-bench
    benchmarks/floors.py cpu --only "llama-1b Q4_K_M" --list

A ratio comes from two measurements in turns in one run. A row that was not measured says why. Models have the shapes
of published ones and random weights; they are written to target/bench/shapes and kept. Needs Python 3.11 alone.

Exit code: 0 if no floor is missed, 1 if one is, 2 for an error.
"""

import argparse
import csv
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SHAPES = TARGET / "bench" / "shapes"
# The formats that write_model_shape.py writes; `rf-cli quantize` makes the others of F16.
WRITTEN = {"Q4_K_M", "Q8_0", "Q4_0", "IQ4_XS", "MXFP4", "F16"}
GPUS = {"gpu": 1, "gpu2": 2, "gpu4": 4}


class NotRun(Exception):
    """Why a row cannot be measured here."""


@dataclass(frozen=True)
class Test:
    """What is timed: `prefill 512`, `decode 64 @ 4096`, `decode 64 x8`."""

    kind: str
    tokens: int
    depth: int
    sequences: int

    @classmethod
    def parse(cls, text):
        match = re.fullmatch(r"(prefill|decode) (\d+)(?: @ (\d+))?(?: x(\d+))?", text)
        if not match:
            raise ValueError(f"'{text}' is not a test such as 'prefill 512', 'decode 64 @ 4096' or 'decode 64 x8'")
        return cls(match[1], int(match[2]), int(match[3] or 0), int(match[4] or 1))

    def lengths(self):
        """Tokens of the prompt and of the answer."""
        return (self.tokens, 0) if self.kind == "prefill" else (0, self.tokens)


@dataclass(frozen=True)
class Ratio:
    """The median of a ratio and its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours, theirs):
        ratios = [a / b for a, b in zip(ours, theirs)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


def main():
    options = arguments()
    with open(Path(__file__).parent / "floors.toml", "rb") as file:
        sections = tomllib.load(file)["section"]
    missed = 0
    for section in sections:
        rows = [row for row in section["rows"] if not options.only or options.only in " ".join(map(str, row))]
        if not rows:
            continue
        by_hand = section["against"] == "by hand"
        print(f"\n{section['title']}" + ("" if by_hand else f", against {section['against']}"))
        for model, text, floor in rows:
            line = f"  {model:<28} {'' if by_hand else text:<20} {floor:>5.2f}  "
            try:
                ratio = measure(section, model, text, options)
            except NotRun as reason:
                print(f"{line}not run: {reason}", flush=True)
                continue
            holds = ratio.median >= floor
            missed += not holds
            verdict = "holds" if holds else "MISSED"
            print(f"{line}{verdict}  {ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})", flush=True)
    return 1 if missed else 0


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="See the beginning of this file for examples."
    )
    parser.add_argument("machine", choices=["cpu", *GPUS], help="measure the rows of this kind of machine")
    parser.add_argument("--only", metavar="TEXT", help="measure only rows that contain TEXT")
    parser.add_argument("--list", action="store_true", help="print the rows without measuring them")
    parser.add_argument("--repetitions", "-r", type=int, default=5, metavar="N", help="pairs of runs of a row [5]")
    parser.add_argument("--isa", default="avx512", choices=["avx512", "avx2"], help="what llama.cpp was built for")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--peer-python", metavar="PYTHON", help="a Python with llama-cpp-python")
    peer.add_argument("--peer-bench", metavar="PROGRAM", help="llama-bench")
    parser.add_argument("--batched-bench", metavar="PROGRAM", help="llama-batched-bench")
    parser.add_argument("--peer-server", metavar="PROGRAM", help="llama-server")
    return parser.parse_args()


def measure(section, model, text, options):
    """The ratio of a row."""
    if section["against"] == "by hand":
        raise NotRun(text)
    test = Test.parse(text)
    if options.list:
        raise NotRun("--list")
    if section["machine"] != options.machine:
        raise NotRun(f"it is for the machine '{section['machine']}'")
    threads = section.get("threads", 1)
    if threads > len(os.sched_getaffinity(0)):
        raise NotRun(f"{threads} threads need as many cores, and there are {len(os.sched_getaffinity(0))}")
    if section.get("isa", options.isa) != options.isa:
        raise NotRun(f"llama.cpp must be built for {section['isa']} (--isa)")
    measured_by = {
        "llama.cpp": against_llama_cpp,
        "llama-server": against_server,
        "batched-bench": against_batched_bench,
        "one sequence": against_one_sequence,
        "one GPU": against_one_gpu,
    }
    return measured_by[section["against"]](section, model, test, options)


def against_llama_cpp(section, model, test, options):
    if options.peer_python:
        peer = ["--peer-python", options.peer_python]
    elif options.peer_bench:
        peer = ["--peer-bench", options.peer_bench]
    else:
        raise NotRun("it needs --peer-python or --peer-bench")
    prompt, generated = test.lengths()
    command = ["cargo", "xtask", "bench", "--peer", "llama.cpp", *peer, *model_option(model), "--format", "json"]
    command += ["-p", prompt, "-n", generated, "-d", test.depth, "-r", options.repetitions]
    command += ["--backend", "gpu"] if options.machine in GPUS else ["-t", section["threads"]]
    if options.isa == "avx2":
        command += ["--isa", "avx2"]
    ratio = json.loads(output_of(command))["ratios"][0]["ratio"]
    return Ratio(ratio["median"], ratio["min"], ratio["max"])


def against_server(section, model, test, options):
    if not options.peer_server:
        raise NotRun("it needs --peer-server")
    command = ["cargo", "xtask", "bench", "serve", "--peer-server", options.peer_server, *model_option(model)]
    command += ["--load", test.sequences, "-p", 256, "-n", test.tokens, "-r", options.repetitions, "--format", "csv"]
    command += ["--backend", "gpu"] if options.machine in GPUS else ["-t", section["threads"]]
    rows = list(csv.DictReader(io.StringIO(output_of(command))))
    sides = [[float(row["tokens_per_s"]) for row in rows if row["side"] == side] for side in ("ours", "theirs")]
    return Ratio.of(*sides)


def against_batched_bench(_section, model, test, options):
    if not options.batched_bench:
        raise NotRun("it needs --batched-bench")
    sequences, context = test.sequences, test.sequences * (16 + test.tokens)
    peer = [options.batched_bench, *model_option(model), "-ngl", 999, "-fa", "on", "-c", context]
    peer += ["-npp", 16, "-ntg", test.tokens, "-npl", sequences, "--output-format", "jsonl"]

    def theirs():
        results = [json.loads(line) for line in output_of(peer).splitlines() if line.startswith("{")]
        return results[-1]["speed_tg"]

    return in_turns(lambda: own_speed(model, test, ["--device", "gpu"]), theirs, options)


def against_one_sequence(section, model, test, options):
    placement = ["--device", "cpu", "-t", section["threads"]]
    one = Test(test.kind, test.tokens, test.depth, 1)
    return in_turns(lambda: own_speed(model, test, placement), lambda: own_speed(model, one, placement), options)


def against_one_gpu(section, model, test, options):
    devices = ",".join(map(str, range(GPUS[section["machine"]])))
    several = ["--device", devices, "-sm", section["split"]]
    return in_turns(
        lambda: own_speed(model, test, several), lambda: own_speed(model, test, ["--device", "0"]), options
    )


def in_turns(ours, theirs, options):
    pairs = [(ours(), theirs()) for _ in range(options.repetitions)]
    return Ratio.of(*zip(*pairs))


def own_speed(model, test, placement):
    """Tokens per second of all sequences together."""
    prompt, generated = test.lengths()
    # One sequence is measured before several.
    command = [rf_cli(), "bench", *model_option(model), *placement, "-o", "json", "-r", 1]
    command += ["-p", prompt, "-n", generated, "-d", test.depth, "-npl", test.sequences]
    if prompt:
        # As in llama.cpp, one batch: the devices divide it among themselves.
        command += ["-b", prompt]
    results = json.loads(output_of(command))
    return next(entry["avg_ts"] for entry in results if entry.get("n_parallel", 1) == test.sequences)


def model_option(model):
    """`-m FILE` of a model such as `llama-1b Q4_0` or `gpt-oss-20b:6 MXFP4`, which is written if it is not there."""
    if model == "demo":
        return []
    shape, file_format = model.split()
    name, _, layers = shape.partition(":")
    file = SHAPES / f"{shape.replace(':', '-')}-{file_format}.gguf"
    if file.exists():
        return ["-m", file]
    SHAPES.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    if file_format in WRITTEN:
        writer = [sys.executable, ROOT / "benchmarks/peers/write_model_shape.py", name, file_format, part]
        output_of(writer + (["--layers", layers] if layers else []))
    else:
        _, source = model_option(f"{shape} F16")
        output_of([rf_cli(), "quantize", source, part, file_format])
    part.rename(file)
    return ["-m", file]


def rf_cli():
    """The program, built in release."""
    output_of(["cargo", "build", "--release", "--locked", "--package", "rf-cli"])
    return TARGET / "release" / "rf-cli"


def output_of(command):
    """What a command prints; its progress and its errors go to the terminal."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise NotRun(f"exit code {done.returncode} of {' '.join(map(str, command))}")
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"error: {error}")
