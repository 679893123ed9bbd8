#!/usr/bin/env python3
"""Measures what LoRA adapters cost: requests with a different adapter each, and as many without one.

    python3 write_model_shape.py llama-1b Q4_0 model.gguf
    python3 write_model_shape.py llama-1b Q4_0 adapter.gguf --lora 16
    python3 measure_adapters.py target/release/rf-cli model.gguf adapter.gguf

`serve` loads the adapter under as many ids as there are requests, so each sequence of a batch has
separate matrices. Rounds with and without adapters alternate. The time is that of the processor,
which other programs of the machine disturb least; the wall time is printed, too.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("adapter", type=pathlib.Path)
    parser.add_argument("--sequences", type=int, default=8, help="requests at a time, and adapters")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each answer")
    parser.add_argument("--rounds", type=int, default=8, help="rounds with, and rounds without adapters")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def start(options, folder):
    """The server, and its address."""
    command = [options.program.resolve(), "serve", "-m", options.model, "--port", "0", "-t", str(options.threads)]
    command += ["-c", "512", "--kv-size", "8192", "--no-prefix-cache"]
    for index in range(options.sequences):
        link = folder / f"adapter-{index}.gguf"
        link.symlink_to(options.adapter.resolve())
        command += ["--lora", f"{link}:0"]
    log = folder / "log"
    server = subprocess.Popen(command, stderr=open(log, "w", encoding="utf-8"))
    while not (found := re.search(r"http://[\d.:]+", log.read_text())):
        if server.poll() is not None:
            raise SystemExit(log.read_text())
        time.sleep(0.1)
    return server, found[0]


def processor_seconds(url):
    with urllib.request.urlopen(f"{url}/metrics") as metrics:
        return float(re.search(r"^process_cpu_seconds_total (.*)$", metrics.read().decode(), re.M)[1])


def ask(url, tokens, adapter):
    """Generates `tokens` tokens, with one adapter or none."""
    fields = {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "temperature": 0}
    fields["lora"] = [] if adapter is None else [{"id": adapter, "scale": 1.0}]
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/completion", json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["tokens_predicted"] == tokens


def measure(url, options, with_adapters):
    """Milliseconds per step of the processor, and of the wall."""
    adapters = range(options.sequences) if with_adapters else [None] * options.sequences
    threads = [threading.Thread(target=ask, args=(url, options.tokens, adapter)) for adapter in adapters]
    processor, wall = processor_seconds(url), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.monotonic() - wall
    return [1e3 * seconds / options.tokens for seconds in (processor_seconds(url) - processor, wall)]


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        server, url = start(options, pathlib.Path(folder))
        try:
            measure(url, options, True)
            rounds = [(measure(url, options, False), measure(url, options, True)) for _ in range(options.rounds)]
        finally:
            server.terminate()
            server.wait()
    for index, name in enumerate(["processor", "wall"]):
        without = [first[index] for first, _ in rounds]
        ratios = [second[index] / first[index] for first, second in rounds]
        cost = 100 * (statistics.median(ratios) - 1)
        print(
            f"{name:10} {statistics.median(without):8.1f} ms per step without adapters, "
            f"{cost:+5.1f} % with {options.sequences} (rounds: {100 * min(ratios) - 100:+.1f} to "
            f"{100 * max(ratios) - 100:+.1f} %)"
        )


main()
