"""Groups of tokens that a lottery over priority orders moves as one.

A hit function of groups is again submodular, so the lottery over orders of groups is found in the
same way as one over orders of tokens. The few tokens that matter stand alone; the many that do not
share a group with those of nearly the same ratio p/q, whose fate is nearly the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solvers._compiled import compiled
from solvers._typing import BoolArray, FloatArray, IntArray

_FEW = 4096
"""Up to so many tokens are sorted to the last digit."""

_CUT_BITS = 46
"""Last bits of a ratio that the others are not sorted by; six of its mantissa are left."""

_TINY = float(np.finfo(np.float64).tiny)
"""The reciprocal of less is no number."""

_KEYS = 1 << (63 - _CUT_BITS)


@dataclass(frozen=True, eq=False)
class TokenGroups:
    """A partition of some tokens into groups, each in an order of its own.

    Attributes
    ----------
    vocab_size : int
        V.
    members : ndarray of int64, shape (S,)
        Tokens of group 0 in order, then those of group 1, ...; tokens left out are in no group.
    starts : ndarray of int64, shape (G + 1,)
        Where each group begins in `members`.

    Examples
    --------
    >>> import numpy as np
    >>> groups = TokenGroups(4, np.array([3, 0, 1]), np.array([0, 1, 3]))
    >>> len(groups), groups.single.tolist(), groups.group.tolist(), groups.place.tolist()
    (2, [True, False], [1, 1, -1, 0], [0, 1, 0, 0])
    >>> groups.sums(np.array([0.1, 0.2, 0.3, 0.4])).round(12).tolist()
    [0.4, 0.3]
    """

    vocab_size: int
    members: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def single(self) -> BoolArray:
        """Which groups are one token, (G,)."""
        return np.asarray(np.diff(self.starts) == 1)

    @cached_property
    def _found(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return _find(self.members, self.starts, self.vocab_size)

    @property
    def group(self) -> NDArray[np.int32]:
        """Group of each token, (V,); -1 for those left out."""
        return self._found[0]

    @property
    def place(self) -> NDArray[np.int32]:
        """Place of each token within its group, (V,)."""
        return self._found[1]

    def sums(self, masses: FloatArray) -> FloatArray:
        """Sum masses (V,) over each group."""
        return np.add.reduceat(masses[self.members], self.starts[:-1])

    def tokens(self, order: IntArray) -> IntArray:
        """Spell out an order of groups as an order of their tokens."""
        sizes = np.diff(self.starts)[order]
        ends = np.cumsum(sizes)
        within = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
        return np.asarray(self.members[np.repeat(self.starts[order], sizes) + within])


@compiled()
def _find(
    members: IntArray, starts: IntArray, vocab_size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Group of each token, and its place there."""
    group = np.full(vocab_size, -1, dtype=np.int32)
    place = np.zeros(vocab_size, dtype=np.int32)
    for g in range(len(starts) - 1):
        for i in range(starts[g], starts[g + 1]):
            group[members[i]] = g
            place[members[i]] = i - starts[g]
    return group, place


def single_tokens(vocab_size: int, tokens: IntArray | None = None) -> TokenGroups:
    """Give every token, or each of those listed, a group of its own."""
    members = np.arange(vocab_size) if tokens is None else tokens
    return TokenGroups(vocab_size, members, np.arange(len(members) + 1))


def group_by_ratio(
    target_masses: FloatArray,
    hit_masses: FloatArray,
    num_singles: int,
    num_buckets: int,
) -> TokenGroups:
    """Let the tokens with the largest masses stand alone, and bucket the others by ratio.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p.
    hit_masses : ndarray, shape (V,)
        How likely each token is to be drafted, up to a common factor; those with 0 are left out.
    num_singles : int
        Tokens that get a group each: half of them those with the largest hit masses, half those
        with the largest p of the others.
    num_buckets : int
        Groups for the others: quantiles of the ratio p / hit mass, weighted with the shares in
        both masses.

    Returns
    -------
    TokenGroups
        In each group the ratio falls; of many tokens, up to the accuracy of a key in a sort.

    Notes
    -----
    Neither choice depends on the factor of the hit masses: where one token is nearly always
    drafted, the others are drafted far more often than their weights say.
    """
    drafted = np.flatnonzero(hit_masses)
    if len(drafted) <= num_singles + num_buckets:
        return single_tokens(len(target_masses), drafted)
    p, f = target_masses[drafted], hit_masses[drafted]
    alone = np.zeros(len(drafted), dtype=np.bool_)
    alone[_largest(f, num_singles // 2)] = True
    alone[_largest(np.where(alone, -1.0, p), num_singles - num_singles // 2)] = True
    singles, rest = np.flatnonzero(alone), np.flatnonzero(~alone)
    p, f = p[rest], f[rest]
    order = _nearly_falling_ratio(p, f) if len(rest) > _FEW else falling_ratio(p, f)
    starts = _buckets(p, f, order, num_buckets) + num_singles
    return TokenGroups(
        len(target_masses),
        drafted[np.concatenate([singles, rest[order]])],
        np.concatenate([np.arange(num_singles), starts]),
    )


def _largest(values: FloatArray, count: int) -> IntArray:
    """Find where the largest values stand."""
    place = len(values) - count
    return np.argpartition(values, place)[place:] if count else np.empty(0, dtype=np.int64)


@compiled()
def _buckets(p: FloatArray, f: FloatArray, order: IntArray, num_buckets: int) -> IntArray:
    """Cut an order into buckets of equal shares in both masses: where each begins, and the end."""
    p_total, f_total = p.sum(), f.sum()
    p_scale = 1.0 / p_total if p_total > _TINY else 0.0
    f_scale = 1.0 / f_total if f_total > _TINY else 0.0
    total = max(p_total * p_scale + f_total * f_scale, _TINY)
    starts = np.empty(num_buckets + 1, dtype=np.int64)
    count, last, share = 0, -1, 0.0
    for k in range(len(order)):
        share += p[order[k]] * p_scale + f[order[k]] * f_scale
        bucket = min(int(share / total * num_buckets), num_buckets - 1)
        if bucket != last:
            starts[count] = k
            count += 1
            last = bucket
    starts[count] = len(order)
    return starts[: count + 1]


@compiled()
def _nearly_falling_ratio(numerators: FloatArray, denominators: FloatArray) -> IntArray:
    """Sort by ratio, largest first, to one part in 64, in two passes: by its leading bits."""
    size = len(numerators)
    ratios = np.empty(size)
    for i in range(size):
        ratios[i] = numerators[i] / denominators[i] if denominators[i] > 0.0 else np.inf
    keys = ratios.view(np.int64)
    places = np.zeros(_KEYS + 1, dtype=np.int64)
    for i in range(size):
        places[_KEYS - (keys[i] >> _CUT_BITS)] += 1
    total = 0
    for key in range(_KEYS + 1):
        places[key], total = total, total + places[key]
    order = np.empty(size, dtype=np.int64)
    for i in range(size):
        key = _KEYS - (keys[i] >> _CUT_BITS)
        order[places[key]] = i
        places[key] += 1
    return order


def refined_groups(
    target_masses: FloatArray, hit_masses: FloatArray, num_singles: int, num_buckets: int
) -> Iterator[TokenGroups]:
    """Give groups of the tokens that can be drawn, from coarse to fine, at last each by itself.

    Parameters
    ----------
    target_masses, hit_masses, num_singles, num_buckets
        As for `group_by_ratio`, to begin with; both numbers are then four times as large each time.
    """
    while True:
        groups = group_by_ratio(target_masses, hit_masses, num_singles, num_buckets)
        yield groups
        if groups.single.all():
            return
        num_singles, num_buckets = 4 * num_singles, 4 * num_buckets


def shared_out(share: float, *counts: int) -> tuple[int, ...]:
    """Give a share of each of some counts, at least 1.

    Examples
    --------
    >>> shared_out(0.25, 256, 2)
    (64, 1)
    """
    return tuple(max(1, round(share * count)) for count in counts)


def falling_ratio(numerators: FloatArray, denominators: FloatArray) -> IntArray:
    """Sort by ratio, largest first, ties in any order; denominators are positive."""
    with np.errstate(over="ignore"):
        return np.argsort(-(numerators / denominators))
