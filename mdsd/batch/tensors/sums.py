"""Running sums, draws and marks along the rows of a matrix, in blocks.

A sum of 128,000 masses one by one loses digits that a sum of blocks keeps, which is what lets
float32 serve where a device has nothing wider.
"""

from __future__ import annotations

from typing import Any

from mdsd.batch.tensors.spaces import Space

__all__ = ["any_of", "draw", "marked", "running_sums"]

_BLOCK = 512
"""Entries summed one by one: about the root of the longest vocabularies."""


def _blocks(space: Space, rows: Any) -> Any:
    """Cut rows (B, V) into blocks (B, number, `_BLOCK`), filled up with zeros."""
    xp = space.xp
    batch, size = rows.shape
    missing = -size % _BLOCK
    if missing:
        rows = xp.concat([rows, space.zeros(batch, missing)], axis=-1)
    return xp.reshape(rows, (batch, (size + missing) // _BLOCK, _BLOCK))


def _shifted(space: Space, sums: Any) -> Any:
    """Turn running sums (B, m) after each entry into those before it."""
    return space.xp.concat([space.zeros(sums.shape[0], 1), sums[:, :-1]], axis=-1)


def running_sums(space: Space, rows: Any) -> Any:
    """Sum each row up to and with each entry.

    Parameters
    ----------
    space : Space
    rows : array, shape (B, V)
        Masses >= 0.

    Returns
    -------
    array, shape (B, V)
    """
    xp = space.xp
    batch, size = rows.shape
    inner = xp.cumulative_sum(_blocks(space, rows), axis=-1)
    before = _shifted(space, xp.cumulative_sum(inner[:, :, -1], axis=-1))
    return xp.reshape(inner + before[:, :, None], (batch, -1))[:, :size]


def _passed(space: Space, sums: Any, masses: Any, goals: Any) -> Any:
    """First place with mass at which the running sum exceeds the goal, else the last with mass.

    Arrays are of shapes (B, m), (B, m) and (B, 1); the places have shape (B, 1).
    """
    xp, size = space.xp, masses.shape[-1]
    places, full = space.places(size)[None, :], masses > 0.0
    first = xp.where((sums > goals) & full, places, space.whole(size))
    last = xp.where(full, places, space.whole(0))
    return xp.minimum(xp.min(first, axis=-1, keepdims=True), xp.max(last, axis=-1, keepdims=True))


def draw(space: Space, masses: Any, uniforms: Any) -> Any:
    """Draw a token of each row by the inverse of its cumulative distribution, in token order.

    Parameters
    ----------
    space : Space
    masses : array, shape (B, V)
        Masses >= 0, some positive in each row.
    uniforms : array, shape (B, 1)
        Numbers in [0, 1).

    Returns
    -------
    array of int64, shape (B, 1)
        Never a token without mass.
    """
    xp = space.xp
    blocks = _blocks(space, masses)
    sums = xp.sum(blocks, axis=-1)
    running = xp.cumulative_sum(sums, axis=-1)
    goals = uniforms * running[:, -1:]
    block = _passed(space, running, sums, goals)
    before = xp.take_along_axis(_shifted(space, running), block, axis=-1)
    where = xp.broadcast_to(block[:, :, None], (masses.shape[0], 1, _BLOCK))
    inside = xp.take_along_axis(blocks, where, axis=1)[:, 0, :]
    place = _passed(space, before + xp.cumulative_sum(inside, axis=-1), inside, goals)
    return block * _BLOCK + place


def marked(space: Space, ids: Any, size: int) -> Any:
    """Mark the listed tokens.

    Parameters
    ----------
    space : Space
    ids : array of int64, shape (B, m)
    size : int
        V.

    Returns
    -------
    array of bool, shape (B, V)
    """
    xp, places = space.xp, space.places(size)[None, :]
    found = xp.zeros((ids.shape[0], size), dtype=xp.bool, device=space.device)
    for k in range(ids.shape[1]):
        found = found | (places == ids[:, k : k + 1])
    return found


def any_of(space: Space, chance: Any, count: int) -> Any:
    """Probability ``1 - (1 - x)**n`` of an event in one of n tries, without cancellation near 0."""
    xp = space.xp
    # What is left of 1 must not reach 0, which has no logarithm.
    most = space.number(1.0 - 0.5 * space.epsilon)
    return -xp.expm1(count * xp.log1p(-xp.minimum(chance, most)))
