"""Distinct tokens in the order in which independent exponential clocks ring."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mdsd._frozen import frozen
from mdsd._random import find_tokens
from mdsd._typing import BoolArray, FloatArray, IntArray

FEW = 4096
"""So many clocks ring sooner than a few are told from those that can share one."""

_ALONE = 32
"""Number of tokens with a clock of their own where others share one, for up to 16 drafts."""

_CHUNK = 50_000
"""About how many clocks ring at once while sampling, to bound memory."""

_BLOCK = 512
"""Length of the sums that a running sum is made of."""

_SCALE = 2.0**512
"""On all rates: a power of two changes no ratio, and the clocks of subnormal ones stay finite."""


class Clocks(NamedTuple):
    """Clocks of all tokens: the first n tokens to ring are n draws without replacement.

    Where there are many, the heaviest have a clock each. The others share one, whose rate is the
    sum of theirs; when it rings, one of them is drawn, and if it was there before, nothing has
    happened. That is the same law (a Poisson process is split by independent marks), nothing is
    ever subtracted from a sum, and a row takes a few numbers however many tokens there are.

    Attributes
    ----------
    alone : ndarray of int64, shape (m,)
        Tokens with a clock of their own, ascending.
    rates : ndarray of float64, shape (m,)
    shared_sums : ndarray of float64, shape (V,), or None
        Running sum of the rates of the other tokens; None where they have no mass.
    """

    alone: IntArray
    rates: FloatArray
    shared_sums: FloatArray | None

    def draw(self, rng: np.random.Generator, size: int, num_drafts: int) -> IntArray:
        """Draw `num_drafts` distinct tokens, in order, `size` times.

        Parameters
        ----------
        rng : numpy.random.Generator
        size : int
        num_drafts : int
            For which the clocks were set.

        Returns
        -------
        ndarray of int64, shape (size, n)
        """
        rows = max(1, _CHUNK // (len(self.alone) + num_drafts * num_drafts))
        drawn = np.empty((size, num_drafts), dtype=np.int64)
        for start in range(0, size, rows):
            stop = min(size, start + rows)
            times = rng.standard_exponential((stop - start, len(self.alone))) / self.rates
            if self.shared_sums is None:
                drawn[start:stop] = self.alone[_earliest(times, num_drafts)]
            else:
                self._draw_shared(rng, times, self.shared_sums, drawn[start:stop])
        return drawn

    def _draw_shared(
        self, rng: np.random.Generator, times: FloatArray, sums: FloatArray, drawn: IntArray
    ) -> None:
        """Draw rows in which the tokens alone arrive at `times`, and write them into `drawn`."""
        num_alone, num_drafts = len(self.alone), drawn.shape[1]
        rows, last = np.arange(len(drawn)), np.zeros((len(drawn), 1))
        tokens = np.broadcast_to(self.alone, times.shape)
        while True:
            # Where all these differ, they are enough. Else the process goes on, never anew: rows
            # are not to be chosen by what was drawn in them. It soon ends: a ring in vain is of one
            # of at most n - 1 tokens, none likelier than the tokens alone, and of these 2n or more
            # at least n + 1 have still to come.
            shape = (len(rows), num_drafts)
            rings = last + rng.standard_exponential(shape).cumsum(axis=1) / sums[-1]
            last = rings[:, -1:]
            times = np.concatenate([times, rings], axis=1)
            tokens = np.concatenate([tokens, find_tokens(sums, rng.random(shape))], axis=1)
            times[:, num_alone:][repeats(tokens[:, num_alone:])] = np.inf
            each, places = np.arange(len(rows))[:, np.newaxis], _earliest(times, num_drafts)
            drawn[rows] = tokens[each, places]
            # All that comes before the last ring is known.
            unsure = (times[each, places[:, -1:]] > last)[:, 0]
            if not unsure.any():
                return
            rows, times, tokens, last = (part[unsure] for part in (rows, times, tokens, last))


def clock_each(draft_probs: FloatArray) -> Clocks:
    """Set a clock for each token.

    Parameters
    ----------
    draft_probs : ndarray of float64, shape (V,)
        Masses >= 0.

    Examples
    --------
    >>> clocks = clock_each(np.array([0.0, 0.75, 0.25]))
    >>> clocks.draw(np.random.default_rng(0), 4, 2).tolist()
    [[1, 2], [2, 1], [1, 2], [1, 2]]
    """
    support = np.flatnonzero(draft_probs)
    return Clocks(frozen(support), frozen(draft_probs[support] * _SCALE), None)


def set_clocks(draft_probs: FloatArray, num_drafts: int) -> Clocks:
    """Set clocks from which many rows can be drawn.

    Parameters
    ----------
    draft_probs : ndarray of float64, shape (V,)
        Masses >= 0, at least n of them positive.
    num_drafts : int
        n.

    Examples
    --------
    >>> clocks = set_clocks(np.full(100_000, 1e-5), 2)
    >>> clocks.draw(np.random.default_rng(0), 1000, 2).shape
    (1000, 2)
    """
    num_alone, size = max(_ALONE, 2 * num_drafts), len(draft_probs)
    if np.count_nonzero(draft_probs) <= 3 * num_alone:
        return clock_each(draft_probs)
    alone = np.sort(np.argpartition(draft_probs, size - num_alone)[-num_alone:])
    # Summed in blocks, then over blocks: rounding adds up over a few hundred sums, not over V.
    blocks = np.zeros((-(-size // _BLOCK), _BLOCK))
    shared = blocks.reshape(-1)[:size]
    np.multiply(draft_probs, _SCALE, out=shared)
    rates = shared[alone]
    shared[alone] = 0.0
    np.cumsum(blocks, axis=1, out=blocks)
    blocks[1:] += np.cumsum(blocks[:-1, -1])[:, np.newaxis]
    return Clocks(frozen(alone), frozen(rates), frozen(shared))


def _earliest(times: FloatArray, count: int) -> IntArray:
    """Places of the `count` least numbers of each row, in their order."""
    rows = np.arange(len(times))[:, np.newaxis]
    first = np.argpartition(times, count - 1, axis=1)[:, :count]
    return np.asarray(first[rows, times[rows, first].argsort(axis=1)])


def repeats(ids: IntArray) -> BoolArray:
    """Mark, in each row, the tokens that stand earlier in the same row."""
    same = ids[:, :, np.newaxis] == ids[:, np.newaxis, :]
    places = np.arange(ids.shape[1])
    return np.asarray((same & (places < places[:, np.newaxis])).any(axis=2))
