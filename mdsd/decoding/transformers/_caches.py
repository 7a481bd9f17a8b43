"""Key-value caches of transformers: making them, and keeping some of their slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._typing import IntArray

CACHE_KEYWORDS = ("cache", "past_key_values", "past_key_value")
"""What the versions of transformers call the argument and the output that hold the cache."""


def new_cache(model: Any) -> Any:
    """Make the dynamic cache that transformers makes for a model."""
    from transformers import DynamicCache

    return DynamicCache(config=model.config.get_text_config(decoder=True))


def cache_of(arguments: dict[str, Any]) -> Any:
    """Find the cache among keyword arguments, under any of its names; None if there is none."""
    found = (arguments.get(keyword) for keyword in CACHE_KEYWORDS)
    return next((cache for cache in found if cache is not None), None)


def keep_slots(cache: Any, rows: list[int], slots: IntArray) -> None:
    """Keep some rows of a cache, and some slots of each.

    Parameters
    ----------
    cache : DynamicCache
        Of layers that hold keys and values of shape (B, heads, S, width).
    rows : list of int, length R
        Rows to keep.
    slots : ndarray of int64, shape (R, C)
        For each of them the slots to keep, in the order in which they are to stand.
    """
    moved = (slots != np.arange(slots.shape[1])).any(axis=0)
    first = int(moved.argmax()) if moved.any() else len(moved)
    for layer in cache.layers:
        if layer.keys is not None:  # else it shares those of another layer
            layer.keys = _kept(layer.keys, rows, slots, first)
            layer.values = _kept(layer.values, rows, slots, first)


def _kept(states: Any, rows: list[int], slots: IntArray, first: int) -> Any:
    """Keep slots of keys or values, of which those before `first` stay where they are."""
    import torch

    if len(rows) < len(states):
        states = states[torch.tensor(rows, device=states.device)]
    kept = states[:, :, : slots.shape[1]]
    if first < slots.shape[1]:
        # Only what moves is copied: a long text stays in its place.
        index = torch.as_tensor(slots[:, first:], device=states.device)
        batch = torch.arange(len(index), device=states.device)[:, None]
        kept[:, :, first:] = states.transpose(1, 2)[batch, index].transpose(1, 2)
    return kept
