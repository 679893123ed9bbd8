"""Writes a GGUF file with the shape of a published model and random weights, for speed measurements only.

The speed of a matmul does not depend on the values of its weights, so the file is timed like the model. Needs Python
alone. Routers are random too, so experts are selected about evenly.

    python3 write_model_shape.py qwen3moe-30b-a3b Q4_K_M model.gguf --layers 8
"""

import argparse
import random
import struct

ALIGNMENT = 32

# ggml's type ids, elements and bytes of a block, and the f16 fields of a block (offset, value) that keep weights small.
TYPES = {
    "F32": (0, 1, 4, []),
    "F16": (1, 1, 2, []),
    "Q4_0": (2, 32, 18, [(0, 0.004)]),
    "Q5_0": (6, 32, 22, [(0, 0.002)]),
    "Q8_0": (8, 32, 34, [(0, 0.0003)]),
    "Q4_K": (12, 256, 144, [(0, 0.0001), (2, 0.0005)]),
    "Q5_K": (13, 256, 176, [(0, 0.0001), (2, 0.0005)]),
    "Q6_K": (14, 256, 210, [(208, 0.00001)]),
    "IQ4_XS": (23, 256, 136, [(0, 0.00001)]),
    "MXFP4": (39, 32, 17, []),
}
MXFP4_SCALE = 121  # 2^(121 - 128) of a code's double

# Hyper-parameters of the models' published configurations.
SHAPES = {
    # Qwen/Qwen3-30B-A3B
    "qwen3moe-30b-a3b": {
        "arch": "qwen3moe", "layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128, "vocab": 151936,
        "context": 40960, "eps": 1e-6, "rope": 1e6, "experts": 128, "used": 8, "expert_ff": 768,
    },
    # openai/gpt-oss-20b
    "gpt-oss-20b": {
        "arch": "gpt-oss", "layers": 24, "hidden": 2880, "heads": 64, "kv_heads": 8, "head_dim": 64, "vocab": 201088,
        "context": 131072, "eps": 1e-5, "rope": 150000.0, "experts": 32, "used": 4, "expert_ff": 2880,
    },
    # meta-llama/Llama-2-7b
    "llama2-7b": {
        "arch": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "vocab": 32000,
        "context": 4096, "eps": 1e-5, "rope": 10000.0, "ff": 11008,
    },
    # meta-llama/Meta-Llama-3-8B
    "llama3-8b": {
        "arch": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "vocab": 128256,
        "context": 131072, "eps": 1e-5, "rope": 500000.0, "ff": 14336,
    },
    # meta-llama/Meta-Llama-3-70B
    "llama3-70b": {
        "arch": "llama", "layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "head_dim": 128, "vocab": 128256,
        "context": 131072, "eps": 1e-5, "rope": 500000.0, "ff": 28672,
    },
    # The shape of Qwen/Qwen2-1.5B without its biases.
    "qwen2-1.5b": {
        "arch": "llama", "layers": 28, "hidden": 1536, "heads": 12, "kv_heads": 2, "head_dim": 128, "vocab": 151936,
        "context": 32768, "eps": 1e-6, "rope": 1e6, "ff": 8960, "tied": True,
    },
    # Gemma 3's 12 B (google/gemma-3-12b-it) with Gemma 4's heads of 512 and two key-value heads in every sixth layer.
    "gemma4-12b": {
        "arch": "gemma4", "layers": 48, "hidden": 3840, "heads": 16, "kv_heads": 8, "head_dim": 256, "vocab": 262144,
        "context": 131072, "eps": 1e-6, "rope": 1e6, "ff": 15360, "window": 1024, "global_every": 6,
        "global_head_dim": 512, "global_kv_heads": 2,
    },
    # The shape of Llama 3.2 1 B with 32,000 tokens.
    "llama-1b": {
        "arch": "llama", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "head_dim": 64, "vocab": 32000,
        "context": 8192, "eps": 1e-5, "rope": 10000.0, "ff": 8192,
    },
    # Qwen/Qwen3.5-4B: three of four layers are gated delta rules.
    "qwen35-4b": {
        "arch": "qwen35", "layers": 32, "hidden": 2560, "heads": 16, "kv_heads": 4, "head_dim": 256, "vocab": 248320,
        "context": 262144, "eps": 1e-6, "rope": 1e7, "ff": 9216, "rope_dim": 64, "full_every": 4, "taps": 4,
        "key_heads": 16, "value_heads": 32, "state": 128, "tied": True,
    },
    # Qwen/Qwen3.5-9B
    "qwen35-9b": {
        "arch": "qwen35", "layers": 32, "hidden": 4096, "heads": 16, "kv_heads": 4, "head_dim": 256, "vocab": 248320,
        "context": 262144, "eps": 1e-6, "rope": 1e7, "ff": 12288, "rope_dim": 64, "full_every": 4, "taps": 4,
        "key_heads": 16, "value_heads": 32, "state": 128,
    },
    # Qwen/Qwen3.5-35B-A3B
    "qwen35moe-35b-a3b": {
        "arch": "qwen35moe", "layers": 40, "hidden": 2048, "heads": 16, "kv_heads": 2, "head_dim": 256, "vocab": 248320,
        "context": 262144, "eps": 1e-6, "rope": 1e7, "experts": 256, "used": 8, "expert_ff": 512, "shared_ff": 512,
        "rope_dim": 64, "full_every": 4, "taps": 4, "key_heads": 16, "value_heads": 32, "state": 128,
    },
    # LiquidAI/LFM2-1.2B: short convolutions, and attention in some layers.
    "lfm2-1.2b": {
        "arch": "lfm2", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "head_dim": 64, "vocab": 65536,
        "context": 128000, "eps": 1e-5, "rope": 1e6, "ff": 8192, "full": [2, 5, 8, 10, 12, 14], "taps": 3,
        "tied": True,
    },
    # zai-org/GLM-4.7-Flash: latent attention.
    "glm-4.7-flash": {
        "arch": "deepseek2", "layers": 47, "hidden": 2048, "heads": 20, "kv_heads": 1, "head_dim": 256, "vocab": 154880,
        "context": 202752, "eps": 1e-5, "rope": 1e6, "ff": 10240, "experts": 64, "used": 4, "expert_ff": 1536,
        "shared_ff": 1536, "leading_dense": 1, "query_rank": 768, "latent": 512, "rope_dim": 64, "value_dim": 256,
    },
    # A small mixture, for tests of this program.
    "qwen3moe-tiny": {
        "arch": "qwen3moe", "layers": 2, "hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "vocab": 512,
        "context": 2048, "eps": 1e-6, "rope": 1e6, "experts": 8, "used": 2, "expert_ff": 256,
    },
}
FILE_TYPES = ["Q4_K_M", "Q8_0", "Q4_0", "IQ4_XS", "MXFP4", "F16"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("file_type", choices=FILE_TYPES, help="MXFP4: experts in MXFP4, the rest in Q8_0")
    parser.add_argument("output")
    parser.add_argument("--layers", type=int, help="write this many layers; the default is all of the model")
    parser.add_argument("--lora", type=int, metavar="RANK", help="write an adapter of RANK for all matrices of the layers")
    return parser.parse_args()


def type_of(file_type, name, layer, layers):
    """The format of a matrix in a mix of llama-quantize."""
    if file_type == "MXFP4":
        return "MXFP4" if "_exps" in name else "Q8_0"
    if file_type in ("F16", "Q8_0", "Q4_0", "IQ4_XS"):
        return "Q6_K" if name == "output" and file_type in ("Q4_0", "IQ4_XS") else file_type
    if name == "attn_k_b":
        return "Q5_0"  # its rows are no whole blocks of 256
    more_bits = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if name == "output" or (name in ("attn_v", "ffn_down", "ffn_down_exps", "ffn_down_shexp") and more_bits):
        return "Q6_K"
    return "Q4_K"


class Model:
    """The metadata and the tensors of a file."""

    def __init__(self, shape, file_type, layers):
        self.metadata, self.tensors = [], []
        self.file_type, self.layers = file_type, layers
        self.output = "token_embd" if shape["arch"] == "gemma4" or shape.get("tied") else "output"
        self.write_metadata(shape)
        self.add_matrix("token_embd", 0, shape["vocab"], shape["hidden"])
        for layer in range(layers):
            self.add_layer(shape, layer)
        norm = "token_embd_norm" if shape["arch"] == "lfm2" else "output_norm"
        self.add_vector(f"{norm}.weight", shape["hidden"], 1.0)
        if shape["arch"] == "gemma4":
            self.add_vector("rope_freqs.weight", shape["global_head_dim"] // 2, 1.0)
        elif self.output == "output":
            self.add_matrix("output", 0, shape["vocab"], shape["hidden"])

    def write_metadata(self, shape):
        arch = shape["arch"]
        uint = lambda key, value: self.metadata.append((key, 4, struct.pack("<I", value)))
        real = lambda key, value: self.metadata.append((key, 6, struct.pack("<f", value)))
        text = lambda key, value: self.metadata.append((key, 8, string(value)))
        text("general.architecture", arch)
        text("general.name", "random weights")
        uint(f"{arch}.block_count", self.layers)
        uint(f"{arch}.context_length", shape["context"])
        uint(f"{arch}.embedding_length", shape["hidden"])
        uint(f"{arch}.feed_forward_length", shape.get("ff") or shape["expert_ff"])
        if "experts" in shape:
            uint(f"{arch}.expert_feed_forward_length", shape["expert_ff"])
            uint(f"{arch}.expert_count", shape["experts"])
            uint(f"{arch}.expert_used_count", shape["used"])
            if arch == "qwen35moe":
                uint(f"{arch}.expert_shared_feed_forward_length", shape["shared_ff"])
        uint(f"{arch}.attention.head_count", shape["heads"])
        if arch == "gemma4":
            local = [layer % shape["global_every"] != shape["global_every"] - 1 for layer in range(self.layers)]
            heads = [shape["kv_heads"] if is_local else shape["global_kv_heads"] for is_local in local]
            self.metadata.append((f"{arch}.attention.head_count_kv", 9, array(5, [struct.pack("<i", n) for n in heads])))
            pattern = array(7, [struct.pack("<?", is_local) for is_local in local])
            self.metadata.append((f"{arch}.attention.sliding_window_pattern", 9, pattern))
            uint(f"{arch}.attention.sliding_window", shape["window"])
            uint(f"{arch}.attention.shared_kv_layers", 0)
            uint(f"{arch}.embedding_length_per_layer_input", 0)
            for kind, head_dim in (("", shape["global_head_dim"]), ("_swa", shape["head_dim"])):
                uint(f"{arch}.attention.key_length{kind}", head_dim)
                uint(f"{arch}.attention.value_length{kind}", head_dim)
                uint(f"{arch}.rope.dimension_count{kind}", head_dim)
            real(f"{arch}.rope.freq_base_swa", 10000.0)
            real(f"{arch}.final_logit_softcapping", 30.0)
        else:
            if arch == "lfm2":
                heads = [shape["kv_heads"] if attends(shape, layer) else 0 for layer in range(self.layers)]
                items = array(5, [struct.pack("<i", n) for n in heads])
                self.metadata.append((f"{arch}.attention.head_count_kv", 9, items))
                uint(f"{arch}.shortconv.l_cache", shape["taps"])
            else:
                uint(f"{arch}.attention.head_count_kv", shape["kv_heads"])
            if is_delta_rule(shape):
                uint(f"{arch}.rope.dimension_count", shape["rope_dim"])
                uint(f"{arch}.full_attention_interval", shape["full_every"])
                uint(f"{arch}.ssm.conv_kernel", shape["taps"])
                uint(f"{arch}.ssm.group_count", shape["key_heads"])
                uint(f"{arch}.ssm.time_step_rank", shape["value_heads"])
                uint(f"{arch}.ssm.state_size", shape["state"])
                uint(f"{arch}.ssm.inner_size", shape["value_heads"] * shape["state"])
                sections = [struct.pack("<i", n) for n in (11, 11, 10, 0)]
                self.metadata.append((f"{arch}.rope.dimension_sections", 9, array(5, sections)))
            if arch == "deepseek2":
                uint(f"{arch}.leading_dense_block_count", shape["leading_dense"])
                uint(f"{arch}.attention.q_lora_rank", shape["query_rank"])
                uint(f"{arch}.attention.kv_lora_rank", shape["latent"])
                uint(f"{arch}.attention.key_length_mla", shape["head_dim"])
                uint(f"{arch}.attention.value_length_mla", shape["value_dim"])
                uint(f"{arch}.rope.dimension_count", shape["rope_dim"])
                uint(f"{arch}.expert_shared_count", 1)
                uint(f"{arch}.expert_gating_func", 2)
                real(f"{arch}.expert_weights_scale", 1.8)
                self.metadata.append((f"{arch}.expert_weights_norm", 7, struct.pack("<?", True)))
                uint(f"{arch}.attention.key_length", shape["latent"] + shape["rope_dim"])
                uint(f"{arch}.attention.value_length", shape["latent"])
            else:
                uint(f"{arch}.attention.key_length", shape["head_dim"])
                uint(f"{arch}.attention.value_length", shape["head_dim"])
        real(f"{arch}.attention.layer_norm_rms_epsilon", shape["eps"])
        real(f"{arch}.rope.freq_base", shape["rope"])
        if arch == "gpt-oss":
            uint(f"{arch}.attention.sliding_window", 128)
            text(f"{arch}.rope.scaling.type", "yarn")
            real(f"{arch}.rope.scaling.factor", 32.0)
            uint(f"{arch}.rope.scaling.original_context_length", 4096)
        # A byte-level vocabulary, filled up with words of letters that no text has.
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [byte for byte in range(256) if byte not in visible]
        letters = [chr(byte) for byte in visible] + [chr(256 + i) for i in range(len(hidden))]
        tokens = letters + ["<|end|>"] + [f"<unused{i}>" for i in range(shape["vocab"] - 257)]
        kinds = [1] * 256 + [3] + [5] * (shape["vocab"] - 257)
        text("tokenizer.ggml.model", "gpt2")
        text("tokenizer.ggml.pre", "gpt-4o" if arch == "gpt-oss" else "qwen2")
        self.metadata.append(("tokenizer.ggml.tokens", 9, array(8, [string(token) for token in tokens])))
        self.metadata.append(("tokenizer.ggml.token_type", 9, array(5, [struct.pack("<i", kind) for kind in kinds])))
        self.metadata.append(("tokenizer.ggml.merges", 9, array(8, [string("! !")])))
        uint("tokenizer.ggml.bos_token_id", 256)
        uint("tokenizer.ggml.eos_token_id", 256)

    def add_layer(self, shape, layer):
        hidden, heads, kv_heads, head_dim = (shape[key] for key in ("hidden", "heads", "kv_heads", "head_dim"))
        prefix = f"blk.{layer}."
        arch = shape["arch"]
        with_bias = arch == "gpt-oss"
        if arch == "gemma4" and layer % shape["global_every"] == shape["global_every"] - 1:
            kv_heads, head_dim = shape["global_kv_heads"], shape["global_head_dim"]
        self.add_vector(f"{prefix}attn_norm.weight", hidden, 1.0)
        norm = "post_attention_norm" if with_bias or is_delta_rule(shape) else "ffn_norm"
        self.add_vector(f"{prefix}{norm}.weight", hidden, 1.0)
        if arch == "deepseek2":
            self.add_latent_attention(shape, layer)
            if layer < shape["leading_dense"]:
                self.add_feed_forward(shape, layer)
            else:
                self.add_experts(shape, layer)
                self.add_vector(f"{prefix}exp_probs_b.bias", shape["experts"], 0.0)
            return
        if not attends(shape, layer):
            self.add_mixer(shape, layer)
            self.add_any_feed_forward(shape, layer)
            return
        gated = 2 if is_delta_rule(shape) else 1
        projections = [
            ("attn_q", gated * heads * head_dim, hidden), ("attn_k", kv_heads * head_dim, hidden),
            ("attn_v", kv_heads * head_dim, hidden), ("attn_output", hidden, heads * head_dim),
        ]
        for name, rows, columns in projections:
            self.add_matrix(name, layer, rows, columns, prefix)
            if with_bias:
                self.add_vector(f"{prefix}{name}.bias", rows, 0.0)
        if with_bias:
            self.add_vector(f"{prefix}attn_sinks.weight", heads, 0.0)
            self.add_vector(f"{prefix}ffn_gate_inp.bias", shape["experts"], 0.0)
        elif arch != "llama":
            self.add_vector(f"{prefix}attn_q_norm.weight", head_dim, 1.0)
            self.add_vector(f"{prefix}attn_k_norm.weight", head_dim, 1.0)
        if arch == "gemma4":
            self.add_vector(f"{prefix}post_attention_norm.weight", hidden, 1.0)
            self.add_vector(f"{prefix}post_ffw_norm.weight", hidden, 1.0)
            self.add_vector(f"{prefix}layer_output_scale.weight", 1, 1.0)
        self.add_any_feed_forward(shape, layer)

    def add_any_feed_forward(self, shape, layer):
        if "experts" in shape:
            self.add_experts(shape, layer, shape["arch"] == "gpt-oss")
        else:
            self.add_feed_forward(shape, layer)

    def add_experts(self, shape, layer, with_bias=False):
        hidden, experts, expert_ff = shape["hidden"], shape["experts"], shape["expert_ff"]
        prefix = f"blk.{layer}."
        self.tensors.append((f"{prefix}ffn_gate_inp.weight", [hidden, experts], "F32", None))
        matrices = [("ffn_gate_exps", expert_ff, hidden), ("ffn_up_exps", expert_ff, hidden), ("ffn_down_exps", hidden, expert_ff)]
        for name, rows, columns in matrices:
            self.add_matrix(name, layer, rows, columns, prefix, experts)
            if with_bias:
                self.tensors.append((f"{prefix}{name}.bias", [rows, experts], "F32", 0.0))
        if "shared_ff" in shape:
            width = shape["shared_ff"]
            for name, rows, columns in [("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)]:
                self.add_matrix(f"ffn_{name}_shexp", layer, rows, columns, prefix)
        if is_delta_rule(shape):
            self.tensors.append((f"{prefix}ffn_gate_inp_shexp.weight", [hidden], "F32", None))

    def add_latent_attention(self, shape, layer):
        hidden, heads, latent, prefix = shape["hidden"], shape["heads"], shape["latent"], f"blk.{layer}."
        query_rank, rope_dim, value_dim = shape["query_rank"], shape["rope_dim"], shape["value_dim"]
        self.add_matrix("attn_q_a", layer, query_rank, hidden, prefix)
        self.add_vector(f"{prefix}attn_q_a_norm.weight", query_rank, 1.0)
        self.add_matrix("attn_q_b", layer, heads * shape["head_dim"], query_rank, prefix)
        self.add_matrix("attn_kv_a_mqa", layer, latent + rope_dim, hidden, prefix)
        self.add_vector(f"{prefix}attn_kv_a_norm.weight", latent, 1.0)
        self.add_matrix("attn_k_b", layer, latent, shape["head_dim"] - rope_dim, prefix, heads)
        self.add_matrix("attn_v_b", layer, value_dim, latent, prefix, heads)
        self.add_matrix("attn_output", layer, hidden, heads * value_dim, prefix)

    def add_feed_forward(self, shape, layer):
        hidden, width = shape["hidden"], shape["ff"]
        for name, rows, columns in [("ffn_gate", width, hidden), ("ffn_up", width, hidden), ("ffn_down", hidden, width)]:
            self.add_matrix(name, layer, rows, columns, f"blk.{layer}.")

    def add_mixer(self, shape, layer):
        """A short convolution, or a gated delta rule."""
        hidden, taps, prefix = shape["hidden"], shape["taps"], f"blk.{layer}."
        if shape["arch"] == "lfm2":
            self.add_matrix("shortconv.in_proj", layer, 3 * hidden, hidden, prefix)
            self.tensors.append((f"{prefix}shortconv.conv.weight", [taps, hidden], "F32", None))
            self.add_matrix("shortconv.out_proj", layer, hidden, hidden, prefix)
            return
        inner = shape["value_heads"] * shape["state"]
        width = inner + 2 * shape["key_heads"] * shape["state"]
        self.add_matrix("attn_qkv", layer, width, hidden, prefix)
        self.add_matrix("attn_gate", layer, inner, hidden, prefix)
        self.tensors.append((f"{prefix}ssm_conv1d.weight", [taps, width], "F32", None))
        self.add_vector(f"{prefix}ssm_dt.bias", shape["value_heads"], 0.0)
        self.add_vector(f"{prefix}ssm_a", shape["value_heads"], -1.0)
        for name in ("ssm_alpha", "ssm_beta"):
            self.add_matrix(name, layer, shape["value_heads"], hidden, prefix)
        self.add_vector(f"{prefix}ssm_norm.weight", shape["state"], 1.0)
        self.add_matrix("ssm_out", layer, hidden, inner, prefix)

    def add_matrix(self, name, layer, rows, columns, prefix="", experts=0):
        dims = [columns, rows] + ([experts] if experts else [])
        part = "output" if name == self.output else name
        kind = type_of(self.file_type, part, layer, self.layers)
        self.tensors.append((f"{prefix}{name}.weight", dims, kind, None))

    def add_vector(self, name, length, value):
        self.tensors.append((name, [length], "F32", value))

    def become_adapter(self, arch, rank):
        """Replaces the model by an adapter for its matrices, without those of experts."""
        matrices = [(name, dims) for name, dims, kind, _ in self.tensors if kind != "F32" and len(dims) == 2]
        self.tensors = []
        for name, (columns, rows) in matrices:
            if name.startswith("blk."):
                self.tensors.append((f"{name}.lora_a", [columns, rank], "F16", None))
                self.tensors.append((f"{name}.lora_b", [rank, rows], "F16", None))
        texts = [("general.architecture", arch), ("general.type", "adapter"), ("adapter.type", "lora")]
        self.metadata = [(key, 8, string(value)) for key, value in texts]
        self.metadata.append(("adapter.lora.alpha", 6, struct.pack("<f", rank)))

    def write(self, path):
        header = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.metadata))
        for key, kind, value in self.metadata:
            header += string(key) + struct.pack("<I", kind) + value
        offset, sizes = 0, []
        for name, dims, kind, _ in self.tensors:
            type_id, elements, block_bytes, _ = TYPES[kind]
            count = 1
            for dim in dims:
                count *= dim
            if dims[0] % elements:
                raise SystemExit(f"{name}: {dims[0]} columns are no whole blocks of {kind}")
            sizes.append(count // elements * block_bytes)
            header += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            header += struct.pack("<IQ", type_id, offset)
            offset += padded(sizes[-1])
        with open(path, "wb") as file:
            file.write(header + bytes(padded(len(header)) - len(header)))
            for (_, _, kind, value), size in zip(self.tensors, sizes):
                write_repeated(file, blocks(kind, value), size)
                file.write(bytes(padded(size) - size))


def is_delta_rule(shape):
    """True for Qwen 3.5."""
    return shape["arch"] in ("qwen35", "qwen35moe")


def attends(shape, layer):
    """True if a layer has attention."""
    if "full" in shape:
        return layer in shape["full"]
    return layer % shape.get("full_every", 1) == shape.get("full_every", 1) - 1


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def blocks(kind, value, cache={}):
    """Blocks that a tensor repeats: an odd number, so that rows differ."""
    if (kind, value) not in cache:
        _, elements, block_bytes, fields = TYPES[kind]
        source = random.Random(kind)
        if kind in ("F32", "F16"):
            numbers = [value if value is not None else source.gauss(0.0, 0.02) for _ in range(65537)]
            data = struct.pack(f"<{len(numbers)}{'f' if kind == 'F32' else 'e'}", *numbers)
        else:
            data = bytearray(source.randbytes(4099 * block_bytes))
            for start in range(0, len(data), block_bytes):
                for offset, number in fields:
                    data[start + offset : start + offset + 2] = struct.pack("<e", number)
                if kind == "MXFP4":
                    data[start] = MXFP4_SCALE
        cache[kind, value] = bytes(data)
    return cache[kind, value]


def write_repeated(file, data, size):
    while size > 0:
        part = data[: min(size, len(data))]
        file.write(part)
        size -= len(part)


def main():
    options = arguments()
    shape = SHAPES[options.shape]
    model = Model(shape, options.file_type, options.layers or shape["layers"])
    if options.lora:
        model.become_adapter(shape["arch"], options.lora)
    model.write(options.output)


main()
