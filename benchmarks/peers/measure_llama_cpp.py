"""Measures llama.cpp once, through llama-cpp-python, and prints one JSON object.

`cargo xtask bench --peer llama.cpp` starts this, in turns with its own measurement, each time in a fresh process. It
does what llama-bench does (a run to warm up, then the measured one; tokens are random, tokenising and sampling are not
timed), on the bindings of the C interface: the Python around a call costs microseconds.
"""

import argparse
import ctypes
import json
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--generate", type=int, default=64, help="tokens to generate")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the context before")
    parser.add_argument("--batch", type=int, default=512, help="tokens computed at once, at most")
    parser.add_argument("--gpu-layers", type=int, default=0)
    return parser.parse_args()


class Peer:
    """A loaded model and one sequence."""

    def __init__(self, llama, options):
        self.llama = llama
        model_params = llama.llama_model_default_params()
        model_params.n_gpu_layers = options.gpu_layers
        self.model = llama.llama_model_load_from_file(options.model.encode(), model_params)
        if not self.model:
            sys.exit(f"llama.cpp could not load '{options.model}'")
        params = llama.llama_context_default_params()
        params.n_ctx = options.depth + options.prompt + options.generate + 16
        params.n_batch = params.n_ubatch = options.batch
        params.n_threads = params.n_threads_batch = options.threads
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp could not make a context")
        self.memory = llama.llama_get_memory(self.context)
        self.vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.random = 1

    def truncate(self, length):
        self.llama.llama_memory_seq_rm(self.memory, 0, length, -1)

    def batches(self, count, size):
        """Random tokens, as batches of `size`."""
        llama, batches = self.llama, []
        for first in range(0, count, size):
            tokens = [self.random_id() for _ in range(min(size, count - first))]
            array = (llama.llama_token * len(tokens))(*tokens)
            batches.append((array, llama.llama_batch_get_one(array, len(tokens))))
        return batches

    def run(self, batches):
        """Feeds batches, each when the one before is done. Seconds."""
        decode, synchronize, context = self.llama.llama_decode, self.llama.llama_synchronize, self.context
        start = time.perf_counter()
        for _array, batch in batches:
            status = decode(context, batch)
            if status != 0:
                sys.exit(f"llama_decode failed with {status}")
            synchronize(context)
        return time.perf_counter() - start

    def random_id(self):
        """The generator that ROCmForge's side draws from."""
        self.random = (self.random * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.random >> 33) % self.vocab_size


def speed(peer, tokens, warm_up, batch, depth):
    """Tokens per second, after warming up."""
    peer.truncate(depth)
    peer.run(peer.batches(warm_up, batch))
    peer.truncate(depth)
    return tokens / peer.run(peer.batches(tokens, batch))


def main():
    options = arguments()
    import llama_cpp as llama

    @llama.llama_log_callback
    def quiet(_level, _text, _user_data):
        pass

    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    if not hasattr(llama, "llama_memory_seq_rm"):
        sys.exit(f"llama-cpp-python {llama.__version__} is too old: 0.3.13 or newer is needed")
    peer = Peer(llama, options)
    peer.run(peer.batches(options.depth, options.batch))
    result = {
        "program": f"llama-cpp-python {llama.__version__}",
        "features": enabled_features(llama.llama_print_system_info().decode()),
        "prompt_tokens_per_s": None,
        "decode_tokens_per_s": None,
    }
    if options.prompt:
        result["prompt_tokens_per_s"] = speed(
            peer, options.prompt, options.prompt, options.batch, options.depth
        )
    if options.generate:
        warm_up = min(options.generate, 8)
        result["decode_tokens_per_s"] = speed(peer, options.generate, warm_up, 1, options.depth)
    print(json.dumps(result), flush=True)


def enabled_features(system_info):
    """`AVX2 AVX512_VNNI` of `CPU : AVX2 = 1 | AVX512_VNNI = 1 | … = 0 | `."""
    pairs = (part.rpartition(":")[2].split("=") for part in system_info.split("|") if "=" in part)
    return " ".join(name.strip() for name, value in pairs if value.strip() == "1")


if __name__ == "__main__":
    main()
