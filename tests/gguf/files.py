"""GGUF files of tiny models with random weights, and vocabularies of bytes and some words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PARTS = ["▁", "w", "x", *map(str, range(10)), "▁w", "▁x"]
"""Words are put together of two of these, as its kind of tokenizer does."""

WORDS = [*PARTS, *(f"▁w{k}" for k in range(12))]
FEW = [*PARTS, "▁x1", *WORDS[:20:-1]]
"""Some of them, in another order, and one that they do not have."""

WIDTH, HEADS, HIDDEN = 32, 2, 48
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def write_model(
    path: Path,
    seed: int,
    words: Sequence[str] = WORDS,
    *,
    layers: int = 2,
    context: int = 4096,
    architecture: str = "llama",
    tokenizer: str = "llama",
    **entries: Any,
) -> Path:
    """Write a model.

    Parameters
    ----------
    path : path
    seed : int
        Of its weights.
    words : sequence of str
        Tokens besides <unk>, <s>, </s> and one for each byte.
    layers, context : int
    architecture, tokenizer : str
        Kinds of these; of "no_vocab" nothing is said about tokens.
    **entries
        More for the header, dots written as double underscores.
    """
    import gguf

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    writer.add_vocab_size(len(tokens))
    if tokenizer == "llama":
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([*[0.0] * 259, *(-float(k) for k in range(len(words)))])
        writer.add_token_types([UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_add_bos_token(False)
        writer.add_add_space_prefix(True)
    else:
        writer.add_tokenizer_model(tokenizer)
    for name, value in entries.items():
        key = name.replace("__", ".")
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(key, value)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(scale=1.5 / np.sqrt(shape[-1]), size=shape).astype(np.float32)

    tensors = {
        # Texts differ in every token, and the next ones are far from equally likely.
        "token_embd.weight": weights(len(tokens), WIDTH) * WIDTH**0.5,
        "output.weight": weights(len(tokens), WIDTH) * 2,
        "output_norm.weight": np.ones(WIDTH, dtype=np.float32),
    }
    for layer in range(layers):
        shapes = {
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH // HEADS, WIDTH),
            "attn_v": (WIDTH // HEADS, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (HIDDEN, WIDTH),
            "ffn_up": (HIDDEN, WIDTH),
            "ffn_down": (WIDTH, HIDDEN),
        }
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = weights(*shape)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = np.ones(WIDTH, dtype=np.float32)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
