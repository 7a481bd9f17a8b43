"""Sums over the tokens of a row by the leading bits of their ratio, on whatever device."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from mdsd._solvers.ratio_groups import NUM_BUCKETS, bucket_edges
from mdsd._typing import FloatArray, Tensor
from mdsd.batch.tensors.spaces import space_of
from mdsd.rules.arrays import concat, full, namespace, number, places, take

_BEYOND = 2.0**-30
"""Ratios above the inverse of this are all alike, far beyond the last edge."""


@lru_cache(maxsize=1)
def _edges() -> FloatArray:
    return bucket_edges()


def ratio_keys(target_masses: Tensor, draw_masses: Tensor) -> Tensor:
    """Give the bucket of the ratio of each token, as `solvers.ratio_groups.bucket_of` does.

    Parameters
    ----------
    target_masses, draw_masses : array, shape (B, m)

    Returns
    -------
    array of int64, shape (B, m)
        Anything in the range of buckets where there is no draw mass.
    """
    xp = namespace(target_masses)
    # No ratio overflows, and none is moved to another bucket.
    least = xp.maximum(draw_masses, target_masses * _BEYOND)
    ratios = target_masses / xp.where(draw_masses > 0.0, least, number(least, 1.0))
    edges = space_of(ratios).send(_edges())
    keys: Tensor = xp.astype(xp.searchsorted(edges, ratios, side="right"), xp.int64)
    return keys


class BucketSums:
    """Sums, by bucket, of what belongs to the tokens of each row.

    With a library that can add to places of an array, that is one pass for each sum. With any other
    the tokens are sorted by bucket, and each is joined with those before it in its bucket, twice as
    many every time: a difference of running sums would lose what is small.

    Parameters
    ----------
    keys : array of int64, shape (B, V)
    """

    def __init__(self, keys: Tensor) -> None:
        self._xp, self._keys = namespace(keys), keys
        self._order: Tensor | None = None
        offsets = places(keys, keys.shape[0])[:, None]
        self._flat = self._xp.reshape(keys + offsets * NUM_BUCKETS, (-1,))
        if not hasattr(self._xp, "scatter_add"):
            self._sort(offsets)

    def _sort(self, offsets: Tensor) -> None:
        xp, batch = self._xp, self._keys.shape[0]
        self._order = xp.argsort(self._keys, axis=-1)
        self._sorted = take(self._keys, self._order)
        along = xp.reshape(self._sorted + offsets * NUM_BUCKETS, (-1,))
        wanted = places(self._keys, batch * NUM_BUCKETS)
        stops = xp.reshape(xp.searchsorted(along, wanted, side="right"), (batch, NUM_BUCKETS))
        starts = xp.reshape(xp.searchsorted(along, wanted, side="left"), (batch, NUM_BUCKETS))
        self._filled = stops > starts
        last = xp.astype(stops, xp.int64) - 1 - offsets * self._keys.shape[1]
        self._last = xp.where(self._filled, last, number(last, 0))

    def sums(self, masses: Tensor) -> Tensor:
        """Sum masses >= 0, (B, V), of each bucket; (B, buckets)."""
        xp = self._xp
        if self._order is None:
            return self._scattered(masses, xp.scatter_add)
        return self._joined(masses, xp.add)

    def largest(self, masses: Tensor) -> Tensor:
        """Find the largest mass, (B, V), of each bucket, 0 where there is none; (B, buckets)."""
        xp = self._xp
        if self._order is None:
            return self._scattered(masses, partial(xp.scatter_reduce, reduce="amax"))
        return self._joined(masses, xp.maximum)

    def _scattered(self, masses: Tensor, scatter: Any) -> Tensor:
        xp, shape = self._xp, (masses.shape[0], NUM_BUCKETS)
        # Along one axis torch has a way to do it that gives the same every time, if asked for.
        none = full(masses, (shape[0] * shape[1],), 0.0)
        return xp.reshape(scatter(none, 0, self._flat, xp.reshape(masses, (-1,))), shape)

    def _joined(self, masses: Tensor, join: Any) -> Tensor:
        xp, keys = self._xp, self._sorted
        found, step = take(masses, self._order), 1
        while step < keys.shape[1]:
            onward, before = found[:, step:], found[:, :-step]
            same = keys[:, step:] == keys[:, :-step]
            found = concat([found[:, :step], xp.where(same, join(onward, before), onward)])
            step *= 2
        ends = take(found, self._last)
        return xp.where(self._filled, ends, number(ends, 0.0))


def leading(values: Tensor, count: int) -> Tensor:
    """Places of the largest entries of each row (B, V), so many, largest first; (B, count)."""
    xp = namespace(values)
    if hasattr(xp, "topk"):
        return xp.topk(values, count, dim=-1)[1]
    return xp.argsort(values, axis=-1, descending=True)[:, :count]


def lookup(table: Tensor, keys: Tensor, ids: Tensor, own: Tensor) -> Tensor:
    """Read a number of each token in the table of its row, but for the tokens that have their own.

    Parameters
    ----------
    table : array, shape (B, buckets)
    keys : array of int64, shape (B, V)
    ids : array of int64, shape (B, K)
        Ascending.
    own : array, shape (B, K)
        The numbers of those tokens; those below 0 are read in the table.

    Returns
    -------
    array, shape (B, V)
    """
    xp, (batch, size) = namespace(table), keys.shape
    found, offsets = take(table, keys), places(ids, batch)[:, None] * size
    if ids.shape[1] == 0:
        return found
    listed = xp.reshape(ids + offsets, (-1,))
    tokens = places(ids, batch * size)
    at = xp.astype(xp.searchsorted(listed, tokens), xp.int64)
    at = xp.minimum(at, number(at, listed.shape[0] - 1))
    mine = xp.reshape(xp.take(xp.reshape(own, (-1,)), at, axis=0), (batch, size))
    is_listed = xp.reshape(xp.take(listed, at, axis=0) == tokens, (batch, size))
    return xp.where(is_listed & (mine >= 0.0), mine, found)
