"""Measures a model over several cards: every layer divided (-sm tensor), layers dealt (-sm layer), and one card alone.

Runs `rf-cli bench` in turns, so that a card that slows down slows all modes down. --golden begins with `selftest` and the
golden models divided over two cards. --old adds another build of rf-cli to the turns, and --llama-cpp llama.cpp's programs.
Models are shapes of write_model_shape.py with random weights, which it writes where they are missing. Needs Python alone.
Prints a table, and writes all results as JSON lines to --output.

    python3 benchmarks/measure_tensor_parallel.py --program target/release/rf-cli --devices 0,1 \\
        --golden target/debug/deps/golden-1234 --llama-cpp llama.cpp/build/bin \\
        --shape llama3-8b --shape llama3-70b:20 --output results.jsonl
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN_TESTS = [
    "gpu::golden_models_of_every_architecture_match_on_two_gpus_together",
    "gpu::two_gpus_together_give_the_same_bits_each_time_and_what_one_gives",
    "gpu::a_gpu_that_fails_ends_the_step_of_both",
]
# The tests of `rf-cli bench`: prefill, decode, and decode of several sequences.
WORKLOADS = {
    "prefill 4096": ["-p", "4096", "-n", "0"],
    "prefill 4096, -ub 2048": ["-p", "4096", "-n", "0", "--ubatch-size", "2048"],
    "decode": ["-p", "0", "-n", "64"],
    "32 sequences": ["-p", "0", "-n", "32", "--n-parallel", "32"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/rf-cli", help="rf-cli")
    parser.add_argument("--golden", help="the test binary 'golden' of rf-engine")
    parser.add_argument("--devices", default="0,1", help="numbers of the cards")
    parser.add_argument("--shape", action="append", help="a shape, with a number of layers as in llama3-70b:20; repeatable")
    parser.add_argument("--test", action="append", choices=WORKLOADS, help="a test; repeatable; all by default")
    parser.add_argument("--mode", action="append", help="a mode of the table; repeatable; all by default")
    parser.add_argument("--old", help="rf-cli of another revision, for the mode '-sm tensor, old'")
    parser.add_argument("--llama-cpp", help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--file-type", default="Q4_K_M")
    parser.add_argument("--models", default=tempfile.gettempdir(), help="folder of the model files")
    parser.add_argument("--rounds", type=int, default=3, help="turns over all modes")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further run after this time")
    parser.add_argument("--output", default="tensor_parallel.jsonl")
    return parser.parse_args()


def modes(options):
    """The program and the options of each mode, the single card first."""
    devices = options.devices.split(",")
    tensor = ["--device", options.devices, "-sm", "tensor", "-ts", ",".join("1" for _ in devices)]
    all_modes = {
        "one card": (options.program, ["--device", devices[0]]),
        "-sm layer": (options.program, ["--device", options.devices, "-sm", "layer"]),
        "-sm tensor": (options.program, tensor),
    }
    if options.old:
        all_modes["-sm tensor, old"] = (options.old, tensor)
    if options.llama_cpp:
        cards = [f"CUDA{device}" for device in devices]
        all_modes["llama.cpp, one card"] = (None, ["-ngl", "99", "-fa", "on", "-dev", cards[0], "-sm", "none"])
        for split in ["layer", "tensor"]:
            all_modes[f"llama.cpp, -sm {split}"] = (None, ["-ngl", "99", "-fa", "on", "-dev", cards, "-sm", split])
    unknown = [mode for mode in options.mode or [] if mode not in all_modes]
    if unknown:
        sys.exit(f"unknown mode '{unknown[0]}': give one of {', '.join(all_modes)}")
    return {mode: run for mode, run in all_modes.items() if not options.mode or mode in options.mode}


def model_file(folder, shape, file_type):
    """The file of a shape, written if it is missing."""
    name, _, layers = shape.partition(":")
    path = pathlib.Path(folder) / f"{name}-{layers or 'all'}-{file_type}.gguf"
    if not path.exists():
        command = [sys.executable, str(HERE / "peers" / "write_model_shape.py"), name, file_type, str(path)]
        subprocess.run(command + (["--layers", layers] if layers else []), check=True)
    return path


def bench(program, model, options, workload):
    """Tokens per second of one test, or None with the error on stderr."""
    command = [program, "bench", "-m", str(model), "-r", "3", "-o", "json", *WORKLOADS[workload], *options]
    output = output_of(command)
    return json.loads(output)[0]["avg_ts"] if output else None


def llama_cpp(folder, model, options, workload):
    """Tokens per second of one test of llama.cpp, or None with the error on stderr."""
    test, is_batched = WORKLOADS[workload], "--n-parallel" in WORKLOADS[workload]
    # The two programs separate the names of devices in different ways.
    separator = "," if is_batched else "/"
    options = [separator.join(option) if isinstance(option, list) else option for option in options]
    if not is_batched:
        command = [f"{folder}/llama-bench", "-m", str(model), "-r", "3", "-o", "json", *test, *options]
        output = output_of(command)
        return json.loads(output)[0]["avg_ts"] if output else None
    counts = dict(zip(test[::2], test[1::2]))
    lengths = ["-npp", "1", "-ntg", counts["-n"], "-npl", counts["--n-parallel"], "-c", "8192", "-fit", "off"]
    command = [f"{folder}/llama-batched-bench", "-m", str(model), "--output-format", "jsonl", *lengths, *options]
    lines = (output_of(command) or "").splitlines()
    return next((json.loads(line)["speed_tg"] for line in reversed(lines) if line.startswith("{")), None)


def output_of(command):
    """What a command prints, or None with its error on stderr."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    print(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}", file=sys.stderr)
    return None


def check(command, **options):
    """Runs a check and prints its last lines if it fails."""
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    outcome = "passed" if done.returncode == 0 else f"failed with {done.returncode}"
    skipped = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("skipped:")]
    print(f"{pathlib.Path(command[0]).name} {command[1]}: {outcome} in {time.monotonic() - start:.0f} s", *skipped[:1])
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-30:]))
    sys.stdout.flush()


def table(results):
    """Medians with their range, and the ratio to one card in the same rounds."""
    keys = list(dict.fromkeys((r["shape"], r["workload"]) for r in results))
    for shape, workload in keys:
        print(f"\n{shape}, {workload}:")
        runs = [r for r in results if (r["shape"], r["workload"]) == (shape, workload)]
        one = {r["round"]: r["tokens_per_s"] for r in runs if r["mode"] == "one card"}
        for mode in dict.fromkeys(r["mode"] for r in runs):
            own = {r["round"]: r["tokens_per_s"] for r in runs if r["mode"] == mode}
            ratios = [speed / one[number] for number, speed in own.items() if number in one]
            ratio = f", {statistics.median(ratios):.2f} of one card" if ratios else ""
            low, high = min(own.values()), max(own.values())
            print(f"  {mode:22} {statistics.median(own.values()):10.1f} t/s ({low:.1f} to {high:.1f}){ratio}")


def main():
    options = arguments()
    runs = modes(options)
    end = time.monotonic() + 60 * options.minutes
    check([options.program, "devices"])
    if options.golden:
        for device in options.devices.split(","):
            check([options.program, "selftest", "--device", device])
        environment = {**os.environ, "CARGO_MANIFEST_DIR": str(HERE.parent / "crates" / "rf-engine")}
        for test in GOLDEN_TESTS:
            command = [str(pathlib.Path(options.golden).resolve()), test, "--exact", "--show-output"]
            check(command, cwd=HERE.parent / "crates" / "rf-engine", env=environment)
    results = []
    with open(options.output, "w") as output:
        for shape in options.shape or ["llama3-8b"]:
            model = model_file(options.models, shape, options.file_type)
            for number in range(options.rounds):
                for workload in options.test or WORKLOADS:
                    for mode, (program, flags) in runs.items():
                        if time.monotonic() > end:
                            break
                        if program:
                            speed = bench(program, model, flags, workload)
                        else:
                            speed = llama_cpp(options.llama_cpp, model, flags, workload)
                        if speed is None:
                            continue
                        result = {"shape": shape, "workload": workload, "mode": mode, "round": number, "tokens_per_s": speed}
                        results.append(result)
                        print(json.dumps(result), file=output, flush=True)
    table(results)


main()
