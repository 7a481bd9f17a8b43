"""Tiny models of transformers and tokenizers of whole words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WORDS = ["<unk>", "</s>", *(f"w{k}" for k in range(12))]


def tiny_llama(
    seed: int, vocab_size: int = 14, *, layers: int = 1, context: int = 2048, eos: Any = None
) -> Any:
    """Make a model with random weights."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=context,
        initializer_range=1.0,
        bos_token_id=None,
        eos_token_id=eos,
    )
    return transformers.LlamaForCausalLM(config).eval()


def byte_tokenizer() -> Any:
    """Make a tokenizer of single bytes, 256 of them."""
    import tokenizers
    import transformers

    bytes_ = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    plain = tokenizers.Tokenizer(
        tokenizers.models.BPE({byte: k for k, byte in enumerate(bytes_)}, [])
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain)


def word_tokenizer(words: Sequence[str]) -> Any:
    """Make a tokenizer that knows some words."""
    import tokenizers
    import transformers

    pieces = tokenizers.models.WordLevel({w: k for k, w in enumerate(words)}, unk_token="<unk>")
    plain = tokenizers.Tokenizer(pieces)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", eos_token="</s>"
    )
