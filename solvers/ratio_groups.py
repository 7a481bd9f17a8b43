"""Groups of tokens of nearly the same ratio, formed in one pass and without a sort.

The few tokens with large masses may stand alone; every other one belongs to the bucket that the
leading bits of its ratio name. Which group a token is in follows from its own two masses, so that
nothing of the length of the vocabulary is kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._compiled import compiled
from ._typing import FloatArray, IntArray

_MANTISSA_BITS = 7
"""Of a ratio, so many bits after the leading one are looked at: buckets 0.4 to 0.8% wide."""

_LOWEST, _OCTAVES = -16, 40
"""Powers of two between which ratios are told apart; the rest goes to the bucket at either end."""

NUM_BUCKETS = _OCTAVES << _MANTISSA_BITS
_SHIFT = 52 - _MANTISSA_BITS
_FIRST_KEY = (_LOWEST + 1023) << _MANTISSA_BITS

HEAVY = 2.0**-12
"""Tokens with less of both masses are never looked at one by one."""

_HEAVY_STEPS = 12 * 4
"""Quarters of an octave from there to 1."""

_HEAVY_SHIFT = 50
_FIRST_STEP = (1023 - 12) << 2

_LEAST = 5e-324
"""What a scaled draw mass counts at least, lest a bucket with a token seem empty."""


class RatioGroups(NamedTuple):
    """A partition of the tokens with draw mass: some stand alone, the others by ratio.

    Attributes
    ----------
    singles : ndarray of int64, shape (S,)
        Ascending ids of the tokens that are groups 0, 1, ..., S - 1.
    table : ndarray of int32, shape (buckets,)
        Group of the tokens whose ratio has that key; -1 where there is none.
    scale : float
        Draw masses are multiplied by it before they are compared with others.
    size : int
        G, the number of groups; those by ratio stand from large ratios to small.
    """

    singles: IntArray
    table: NDArray[np.int32]
    scale: float
    size: int


@compiled(nogil=True, error_model="numpy", inline="always")
def bucket_of(target_mass: float, draw_mass: float) -> int:
    """Give the bucket of a ratio: its leading bits."""
    ratio = np.float64(target_mass / draw_mass)
    key = int(ratio.view(np.int64) >> _SHIFT) - _FIRST_KEY
    return min(max(key, 0), NUM_BUCKETS - 1)


def bucket_edges() -> FloatArray:
    """Give the least ratio of every bucket but the first, ascending.

    Examples
    --------
    >>> edges = bucket_edges()
    >>> len(edges) == NUM_BUCKETS - 1, bucket_of(edges[99], 1.0)
    (True, 100)
    """
    keys = np.arange(1, NUM_BUCKETS) + _FIRST_KEY
    return (keys << _SHIFT).view(np.float64)


@compiled(nogil=True)
def _step_of(mass: float) -> int:
    """Quarter of an octave that a mass from `HEAVY` on is in."""
    step = int(np.float64(mass).view(np.int64) >> _HEAVY_SHIFT) - _FIRST_STEP
    return min(max(step, 0), _HEAVY_STEPS - 1)


@compiled(nogil=True)
def place_among(ascending: IntArray, token: int) -> int:
    """Give the place of a token in an ascending list; -1 where it is not."""
    low, high = 0, len(ascending)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low if low < len(ascending) and ascending[low] == token else -1


@compiled(nogil=True, error_model="numpy")
def group_of(groups: RatioGroups, token: int, target_mass: float, draw_mass: float) -> int:
    """Give the group of a token, from its own two masses; -1 where it cannot be drawn."""
    if not draw_mass > 0.0:
        return -1
    singles = groups.singles
    if len(singles) > 0:
        place = place_among(singles, token)
        if place >= 0:
            return place
    return int(groups.table[bucket_of(target_mass, draw_mass * groups.scale)])


@compiled(nogil=True)
def choose_singles(
    heavy: IntArray,
    target_masses: FloatArray,
    draw_masses: FloatArray,
    scale: float,
    num_singles: int,
    largest: float,
) -> IntArray:
    """Choose, of the tokens listed, about the `num_singles` with the largest masses.

    Those with a scaled draw mass above `largest` are among them in any case.
    """
    steps = np.zeros(_HEAVY_STEPS, dtype=np.int64)
    for i in heavy:
        steps[_step_of(max(target_masses[i], draw_masses[i] * scale))] += 1
    alone, lowest = 0, _HEAVY_STEPS
    while lowest > 0 and alone + steps[lowest - 1] <= num_singles:
        lowest -= 1
        alone += steps[lowest]
    singles, count = np.empty(len(heavy), dtype=np.int64), 0
    for i in heavy:
        p, q = target_masses[i], draw_masses[i] * scale
        if _step_of(max(p, q)) >= lowest or q > largest:
            singles[count] = i
            count += 1
    return singles[:count].copy()


@compiled(nogil=True)
def join_buckets(
    sums: FloatArray, most: int, first: int, cap: float
) -> tuple[NDArray[np.int32], int]:
    """Join neighbouring buckets to at most so many groups, numbered from `first`.

    The loss of a group is its mass times its width. Where the sum is least, groups are as dense as
    the root of the mass; what a target mass beyond `cap` draw masses has in excess is lost anyway.
    """
    table = np.full(NUM_BUCKETS, -1, dtype=np.int32)
    total, filled = 0.0, 0
    for key in range(NUM_BUCKETS):
        if sums[key, 1] > 0.0:
            filled += 1
            total += math.sqrt(min(sums[key, 0], cap * sums[key, 1]))
    group, last, share = first - 1, -1, 0.0
    for key in range(NUM_BUCKETS - 1, -1, -1):
        if sums[key, 1] > 0.0:
            share += math.sqrt(min(sums[key, 0], cap * sums[key, 1]))
            place = min(int(share / total * most), most - 1) if total > 0.0 else 0
            if filled <= most or place != last:
                group, last = group + 1, place
            table[key] = group
    return table, group + 1


@compiled(inner=True)
def with_room(numbers: IntArray, count: int) -> IntArray:
    """Give an array with room for one number more than so many."""
    if count < len(numbers):
        return numbers
    longer = np.empty(2 * count, dtype=np.int64)
    for k in range(count):
        longer[k] = numbers[k]
    return longer


@compiled(nogil=True, error_model="numpy")
def sum_buckets(
    target_masses: FloatArray, draw_masses: FloatArray, scale: float, least: float
) -> tuple[FloatArray, IntArray]:
    """Sum both masses of the tokens in each bucket, (buckets, 2); list those from `least` on."""
    sums = np.zeros((NUM_BUCKETS, 4))
    heavy, count = np.empty(64, dtype=np.int64), 0
    for i in range(len(target_masses)):
        if draw_masses[i] > 0.0:
            p, q = target_masses[i], draw_masses[i] * scale
            if max(p, q) >= least:
                heavy = with_room(heavy, count)
                heavy[count] = i
                count += 1
            else:
                key = bucket_of(p, q)
                sums[key, 0] += p
                # Compensated: the law rests on these, and a bucket may hold all tokens.
                added = max(q, _LEAST) - sums[key, 2]
                total = sums[key, 1] + added
                sums[key, 2] = (total - sums[key, 1]) - added
                sums[key, 1] = total
    return sums[:, :2].copy(), heavy[:count]


@compiled(nogil=True)
def alone(draw_masses: FloatArray, most: int) -> IntArray:
    """List the tokens that can be drawn; none if there are more than `most`."""
    found, live = np.empty(most, dtype=np.int64), 0
    for i in range(len(draw_masses)):
        if draw_masses[i] > 0.0:
            if live == most:
                return found[:0]
            found[live] = i
            live += 1
    return found[:live]


@compiled(nogil=True, error_model="numpy")
def buckets_of(target_masses: FloatArray, draw_masses: FloatArray) -> IntArray:
    """Give the bucket of each token, (K,)."""
    keys = np.empty(len(target_masses), dtype=np.int64)
    for k in range(len(keys)):
        keys[k] = bucket_of(target_masses[k], draw_masses[k])
    return keys


@compiled(nogil=True)
def groups_alone(tokens: IntArray, scale: float) -> RatioGroups:
    """Give each of some tokens a group of its own."""
    return RatioGroups(tokens, np.full(NUM_BUCKETS, -1, dtype=np.int32), scale, len(tokens))


def group_by_ratio(
    target_masses: FloatArray,
    draw_masses: FloatArray,
    scale: float,
    num_singles: int,
    num_buckets: int,
    cap: float,
) -> RatioGroups:
    """Let the tokens with the largest masses stand alone, and put the others together by ratio.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p.
    draw_masses : ndarray, shape (V,)
        How likely each token is to be drawn, up to a factor; those with 0 are in no group.
    scale : float
        That factor: draw masses times `scale` are compared with target masses.
    num_singles, num_buckets : int
        At most so many tokens stand alone, and so many groups of others.
    cap : float
        No token can be selected with more than `cap` times its scaled draw mass, roughly.

    Returns
    -------
    RatioGroups
        Every token alone where there are at most ``num_singles + num_buckets``.
    """
    return group_with_sums(target_masses, draw_masses, scale, num_singles, num_buckets, cap)[0]


def group_with_sums(
    target_masses: FloatArray,
    draw_masses: FloatArray,
    scale: float,
    num_singles: int,
    num_buckets: int,
    cap: float,
) -> tuple[RatioGroups, FloatArray, FloatArray]:
    """Do as `group_by_ratio`, and sum both masses, (G,) and (G,), over the groups."""
    few = alone(draw_masses, num_singles + num_buckets)
    if len(few):
        return groups_alone(few, scale), target_masses[few], draw_masses[few]
    sums, heavy = sum_buckets(target_masses, draw_masses, scale, HEAVY)
    singles = choose_singles(heavy, target_masses, draw_masses, scale, num_singles, np.inf)
    others = np.setdiff1d(heavy, singles, assume_unique=True)
    own, drawn = target_masses[others], draw_masses[others] * scale
    keys = buckets_of(own, drawn)
    np.add.at(sums[:, 0], keys, own)
    np.add.at(sums[:, 1], keys, np.maximum(drawn, _LEAST))
    table, size = join_buckets(sums, num_buckets, len(singles), cap)
    target_sums, draw_sums = sums_of_groups(sums, table, size)
    draw_sums /= scale
    target_sums[: len(singles)] = target_masses[singles]
    draw_sums[: len(singles)] = draw_masses[singles]
    return RatioGroups(singles, table, scale, size), target_sums, draw_sums


def sums_of_groups(
    sums: FloatArray, table: NDArray[np.int32], size: int
) -> tuple[FloatArray, FloatArray]:
    """Sum what buckets hold of both masses, (buckets, 2), over the groups of a table."""
    filled = table >= 0
    groups = table[filled]
    target_sums = np.bincount(groups, weights=sums[filled, 0], minlength=size)
    draw_sums = np.bincount(groups, weights=sums[filled, 1], minlength=size)
    return np.asarray(target_sums, dtype=np.float64), np.asarray(draw_sums, dtype=np.float64)


@compiled(nogil=True, error_model="numpy")
def groups_of_tokens(
    groups: RatioGroups, tokens: IntArray, target_masses: FloatArray, draw_masses: FloatArray
) -> IntArray:
    """Give the group of each token, (K,), from its own two masses."""
    found = np.empty(len(tokens), dtype=np.int64)
    for k in range(len(tokens)):
        i = tokens[k]
        found[k] = group_of(groups, i, target_masses[i], draw_masses[i])
    return found


@compiled(nogil=True, error_model="numpy")
def spread_over_tokens(
    groups: RatioGroups, ratios: FloatArray, target_masses: FloatArray, draw_masses: FloatArray
) -> FloatArray:
    """Give each token, (V,), its draw mass times the ratio of its group, (G,)."""
    singles, table, scale = groups.singles, groups.table, groups.scale
    spread = np.zeros(len(target_masses))
    place, following = 0, singles[0] if len(singles) else -1
    for i in range(len(target_masses)):
        q = draw_masses[i]
        if q > 0.0:
            if i == following:
                group = place
                place += 1
                following = singles[place] if place < len(singles) else -1
            else:
                group = table[bucket_of(target_masses[i], q * scale)]
            spread[i] = q * ratios[group]
    return spread


@compiled(nogil=True)
def sure_overlap(sums: FloatArray, table: NDArray[np.int32], slopes: FloatArray) -> float:
    """Give a lower bound of ``sum min(p, slope q)`` from the sums (buckets, 2) of p and q alone.

    On the ratios of a bucket ``min(ratio, slope)`` lies above its chord, linear in p and q.
    """
    total, octave = 0.0, 1 << _MANTISSA_BITS
    for key in range(NUM_BUCKETS):
        p, q = sums[key, 0], sums[key, 1]
        if q > 0.0:
            unit = 2.0 ** (_LOWEST + (key >> _MANTISSA_BITS)) / octave
            low = unit * (octave + (key & (octave - 1)))
            high = low + unit
            slope = slopes[table[key]]
            if key == 0:
                low = 0.0
            if slope <= low:
                total += slope * q
            elif key == NUM_BUCKETS - 1:
                total += low * q
            elif slope >= high:
                total += p
            else:
                total += low * q + (slope - low) / (high - low) * max(p - low * q, 0.0)
    return total
