"""Random chains and trees in the layouts of engines, and calls of all four."""

from __future__ import annotations

from typing import Any

import numpy as np

import mdsd
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened


def laws(rng: np.random.Generator, *shape: int) -> np.ndarray:
    weights = rng.random(shape) ** 3 + 0.02
    return weights / weights.sum(axis=-1, keepdims=True)


def chains(count: int, length: int, vocab_size: int, seed: int = 0) -> dict[str, Any]:
    """Arguments of `flashinfer_chain`."""
    rng = np.random.default_rng(seed)
    drafted = laws(rng, count, length, vocab_size)
    sums = np.cumsum(drafted, axis=-1)
    draws = rng.random((count, length, 1)) * sums[..., -1:]
    return {
        "draft_probs": drafted,
        "draft_token_ids": (draws >= sums).sum(axis=-1),
        "target_probs": laws(rng, count, length + 1, vocab_size),
    }


def flattened(given: dict[str, Any], lengths: list[int], bonus: Any) -> dict[str, Any]:
    """The first drafts of each chain as arguments of `vllm_flattened`."""
    kept = np.arange(given["draft_token_ids"].shape[1]) < np.array(lengths)[:, np.newaxis]
    return {
        "draft_token_ids": given["draft_token_ids"][kept],
        "cu_num_draft_tokens": np.cumsum(lengths),
        "draft_probs": given["draft_probs"][kept],
        "target_probs": given["target_probs"][:, :-1][kept],
        "bonus_token_ids": bonus,
    }


CHILDREN = ((1, 2), (3, 4), (5,), (), (6,), (), ())
"""Children of each node; node 0 is the root."""


def links(count: int) -> dict[str, np.ndarray]:
    """Index arrays of `sglang_tree` for trees of the shape above."""
    first, sibling = np.full((2, len(CHILDREN)), -1)
    for node, below in enumerate(CHILDREN):
        if below:
            first[node] = below[0]
            sibling[list(below[:-1])] = below[1:]
    return {
        "retrive_index": np.arange(count * len(CHILDREN)).reshape(count, -1),
        "retrive_next_token": np.tile(first, (count, 1)),
        "retrive_next_sibling": np.tile(sibling, (count, 1)),
    }


PATHS = np.array([[0, 1, 3, -1], [0, 1, 4, 6], [0, 2, 5, -1]])
"""The same trees as EAGLE lists them."""


def trees(count: int, vocab_size: int, draft: str, seed: int = 0) -> dict[str, Any]:
    """Arguments of `sglang_tree`; rows of leaves hold no law of a draft."""
    rng = np.random.default_rng(seed)
    drafted = laws(rng, count, len(CHILDREN), vocab_size)
    ids = np.zeros((count, len(CHILDREN)), dtype=np.int64)
    for b in range(count):
        for node, below in enumerate(CHILDREN):
            if below:
                law = mdsd.drafts.read_kind(draft).make(drafted[b, node], len(below))
                ids[b, list(below)] = law.sample(rng)
            else:
                drafted[b, node] = np.nan
    return {
        "candidates": ids,
        **links(count),
        "target_probs": laws(rng, count, len(CHILDREN), vocab_size),
        "draft_probs": drafted,
        "draft": draft,
    }


def eagle_of(given: dict[str, Any], row: int = 0) -> dict[str, Any]:
    """One tree as arguments of `eagle_tree`."""
    drafted = given["draft_probs"]
    return {
        "draft_token_ids": given["candidates"][row],
        "retrieve_indices": PATHS,
        "draft_probs": None if drafted is None else drafted[row],
        "target_probs": given["target_probs"][row],
        "draft": given["draft"],
    }


def all_layouts(vocab_size: int = 5, draft: str = "with_replacement") -> dict[str, Any]:
    """Each layout with arguments that it accepts."""
    chain = chains(2, 3, vocab_size)
    tree = trees(2, vocab_size, draft)
    return {
        "flashinfer": (flashinfer_chain, chain),
        "vllm": (vllm_flattened, flattened(chain, [3, 2], np.array([1, 2]))),
        "sglang": (sglang_tree, tree),
        "eagle": (eagle_tree, eagle_of(tree)),
    }


LAYOUTS = ("flashinfer", "vllm", "sglang", "eagle")


def fields(result: Any) -> dict[str, Any]:
    """What a result holds, as numbers."""
    return {name: np.asarray(part).tolist() for name, part in vars(result).items()}
