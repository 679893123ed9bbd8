#!/usr/bin/env python3
"""Writes the tokenizer of a GGUF file for Hugging Face's libraries.

    tools/clients/tokenizer.py FILE FOLDER

For clients that count tokens themselves and would else ask the hub. The file's tokenizer must be
that of Qwen 2, as the demo model's is.
"""

import json
import pathlib
import struct
import sys

# The formats of GGUF's numbers. 8 is a text, and 9 an array.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CONTROL = 3
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def main():
    _, model, folder = sys.argv
    with open(model, "rb") as file:
        metadata = read(file)
    assert metadata["tokenizer.ggml.pre"] == "qwen2", metadata["tokenizer.ggml.pre"]
    tokens = metadata["tokenizer.ggml.tokens"]
    special = [id for id, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == CONTROL]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": id,
                "content": tokens[id],
                **dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False),
                "special": True,
            }
            for id in special
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_]},
        "decoder": bytes_,
        "model": {
            "type": "BPE",
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
    }
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def read(file):
    """The metadata of a GGUF file."""
    assert file.read(4) == b"GGUF"
    _, _, entries = number(file, "IQQ")
    return {value(file, 8): value(file, *number(file, "I")) for _ in range(entries)}


def value(file, kind):
    if kind == 8:
        return file.read(*number(file, "Q")).decode()
    if kind == 9:
        element, length = number(file, "IQ")
        return [value(file, element) for _ in range(length)]
    return number(file, NUMBERS[kind])[0]


def number(file, form):
    form = "<" + form
    return struct.unpack(form, file.read(struct.calcsize(form)))


if __name__ == "__main__":
    main()
