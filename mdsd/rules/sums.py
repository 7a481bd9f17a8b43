"""Running sums along rows, marks on them, and the chance of an event in one of several tries."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd.rules.arrays import concat, full, namespace, number, places

_BLOCK = 512
"""Entries summed one by one: about the root of the longest vocabularies.

A sum of 128,000 masses one by one loses digits that a sum of blocks keeps, which is what lets
float32 serve where a device has nothing wider.
"""


def any_of(chance: Any, count: int) -> Any:
    """Probability ``1 - (1 - x)**n`` of an event in one of n tries, without cancellation near 0.

    Examples
    --------
    >>> import numpy as np
    >>> any_of(np.array([0.0, 0.5, 1.0]), 2).tolist()
    [0.0, 0.75, 1.0]
    """
    xp = namespace(chance)
    if count == 1:
        return xp.minimum(chance, number(chance, 1.0))
    # What is left of 1 must not reach 0, which has no logarithm; two tries take it below rounding.
    most = number(chance, 1.0 - 0.5 * float(xp.finfo(chance.dtype).eps))
    return 0.0 - xp.expm1(count * xp.log1p(-xp.minimum(chance, most)))


def in_blocks(rows: Any) -> Any:
    """Cut rows (B, V) into blocks (B, number, size), filled up with zeros."""
    xp = namespace(rows)
    batch, size = rows.shape
    missing = -size % _BLOCK
    if missing:
        rows = concat([rows, full(rows, (batch, missing), 0.0)])
    return xp.reshape(rows, (batch, (size + missing) // _BLOCK, _BLOCK))


def sums_before(sums: Any) -> Any:
    """Turn running sums (B, m) after each entry into those before it."""
    return concat([full(sums, (sums.shape[0], 1), 0.0), sums[:, :-1]])


def running_sums(rows: Any) -> Any:
    """Sum each row up to and with each entry.

    Parameters
    ----------
    rows : array, shape (B, V), or (V,) of numpy
        Masses >= 0.

    Returns
    -------
    array of the same shape
    """
    if isinstance(rows, np.ndarray):
        return np.cumsum(rows, axis=-1)
    xp = namespace(rows)
    batch, size = rows.shape
    inner = xp.cumulative_sum(in_blocks(rows), axis=-1)
    before = sums_before(xp.cumulative_sum(inner[:, :, -1], axis=-1))
    return xp.reshape(inner + before[:, :, None], (batch, -1))[:, :size]


def sums_after(rows: Any) -> Any:
    """Sum each row beyond each entry, from the far end: what is near 0 keeps its digits."""
    xp = namespace(rows)
    onward = xp.flip(running_sums(xp.flip(rows, axis=-1)), axis=-1)
    end = full(rows, (*rows.shape[:-1], 1), 0.0)
    return concat([onward[..., 1:], end])


def marked(ids: Any, size: int) -> Any:
    """Mark the listed tokens.

    Parameters
    ----------
    ids : array of int64, shape (..., m)
    size : int
        V.

    Returns
    -------
    array of bool, shape (..., V)
    """
    tokens = places(ids, size)
    found = tokens != tokens
    for k in range(ids.shape[-1]):
        found = found | (tokens == ids[..., k : k + 1])
    return found
