"""How often recursive rejection without replacement rejects all drafts, in compiled code.

The rejection probabilities along a path multiply to Z at its last cap, so the mean of that over the
paths is the probability sought: in closed form for two drafts, by enumeration for small supports,
and else by conditional Monte Carlo, which draws the rejected tokens only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mdsd._solvers._compiled import compiled
from mdsd._typing import FloatArray, IntArray
from mdsd.verifiers._rejection_paths import (
    SCALE,
    PathTables,
    excess_mass,
    find_place,
    insert_place,
    path_tables,
    remaining_mass,
)

_FIRST_CAP = 1.0 / SCALE

_CANCELLED = 1e-6
"""Share of the weight below which differences of running sums have too few digits to draw by."""

_NOTHING = 1e-19
"""Probability below which what could still be drawn makes no difference."""


@compiled(nogil=True)
def pair_rejection(tables: PathTables) -> float:
    """Probability that both of two drafts are rejected, in O(V log V).

    ``sum_x (q_x - p_x)+ Z(1 + Z(1) / (1 - q_x)) / Z(1)``.
    """
    first = excess_mass(tables, _FIRST_CAP)
    if first == 0.0:
        return 0.0
    total = 0.0
    rank = np.empty(1, dtype=np.int64)
    for i in range(len(tables.target)):
        # The power of two comes off without a trace.
        over = tables.drafted[i] / SCALE - tables.target[i]
        if over > 0.0:
            rank[0] = tables.rank[i]
            total += over * excess_mass(
                tables, _FIRST_CAP + first / remaining_mass(tables.tail_sums, rank)
            )
    return total / first


@compiled(inner=True)
def _rejected_weight(
    tables: PathTables, token: int, cap: float, mass: float, remaining: float
) -> float:
    """Probability that the next draft is this token AND is rejected."""
    p, q = tables.target[token], tables.drafted[token]
    return float(q / remaining - min(q / remaining, max(p - cap * q, 0.0) / mass))


@compiled(inner=True)
def _is_among(token: int, path: IntArray, count: int) -> bool:
    among = False
    for k in range(count):
        among |= path[k] == token
    return among


@compiled(nogil=True)
def enumerate_rejection(tables: PathTables, num_drafts: int) -> float:
    """Probability that all n drafts are rejected, over every path of positive probability.

    O(V**(n - 1) log V): for small supports.
    """
    size = len(tables.drafted)
    depth = num_drafts - 1
    caps, masses = np.empty(num_drafts), np.empty(num_drafts)
    rest, weights = np.empty(num_drafts), np.empty(num_drafts)
    caps[0], masses[0], rest[0], weights[0] = 0.0, 1.0, SCALE, 1.0
    place = np.full(num_drafts, -1)
    path = np.empty(num_drafts, dtype=np.int64)
    ranks = np.empty((num_drafts, num_drafts), dtype=np.int64)
    total, level = 0.0, 0
    while level >= 0:
        if level == depth:
            higher = caps[level] + masses[level] / rest[level]
            total += weights[level] * excess_mass(tables, higher) / masses[level]
            level -= 1
            continue
        place[level] += 1
        if place[level] == size:
            place[level] = -1
            level -= 1
            continue
        token = place[level]
        if tables.drafted[token] <= 0.0 or _is_among(token, path, level):
            continue
        weight = _rejected_weight(tables, token, caps[level], masses[level], rest[level])
        if weight <= 0.0:
            continue
        higher = caps[level] + masses[level] / rest[level]
        left = excess_mass(tables, higher)
        if left <= 0.0:
            continue
        path[level] = token
        for k in range(level):
            ranks[level + 1, k] = ranks[level, k]
        insert_place(ranks[level + 1], level, tables.rank[token])
        caps[level + 1], masses[level + 1] = higher, left
        rest[level + 1] = remaining_mass(tables.tail_sums, ranks[level + 1, : level + 1])
        weights[level + 1] = weights[level] * weight
        level += 1
    return total


def exact_rejection(tables: PathTables, num_drafts: int, most_paths: int) -> float:
    """Probability that all of n >= 2 drafts are rejected; NaN where there are too many paths."""
    # In Python, so that what is not needed is not compiled.
    if num_drafts == 2:
        return float(pair_rejection(tables))
    if _are_few(num_drafts, tables.drafted, most_paths):
        return float(enumerate_rejection(tables, num_drafts))
    return math.nan


def _are_few(num_drafts: int, drafted: FloatArray, most_paths: int) -> bool:
    """Tell whether the rejection paths over the support are no more than so many."""
    return (num_drafts - 1) * math.log(np.count_nonzero(drafted)) <= math.log(most_paths)


@compiled()
def _mix(number: np.uint64) -> np.uint64:
    """Turn a counter into a number that looks drawn at random.

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (SplitMix64).
    """
    z = number * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled()
def _uniform(stream: np.uint64, number: int) -> float:
    """Give the number in [0, 1) that a stream has at a place."""
    return float(_mix(stream + np.uint64(number)) >> np.uint64(11)) * 2.0**-53


@compiled(inner=True)
def _weight_sums(
    tables: PathTables, cap: float, mass: float, remaining: float, removed: IntArray
) -> FloatArray:
    """Add up the weights of the next rejected token along the order, each computed by itself."""
    size = len(tables.drafted)
    sums = np.zeros(size + 1)
    j = 0
    for k in range(size):
        weight = 0.0
        if j < len(removed) and removed[j] == k:
            j += 1
        else:
            weight = _rejected_weight(tables, tables.by_ratio[k], cap, mass, remaining)
        sums[k + 1] = sums[k] + weight
    return sums


@compiled(inner=True)
def _weight_between(
    tables: PathTables, first: int, middle: int, slopes: tuple[float, float, float], k: int
) -> float:
    """Weight of the places from `first` up to k; from `middle` on it is proportional to q."""
    sums_p, sums_q = tables.target_sums, tables.drafted_sums
    rate, per_p, per_q = slopes
    head = min(k, middle)
    upper = rate * (sums_q[head] - sums_q[first]) - per_p * (sums_p[head] - sums_p[first])
    return float(upper + per_q * (sums_q[k] - sums_q[head]))


@compiled(inner=True)
def _draw_rejected(
    tables: PathTables,
    state: tuple[float, float, float],
    removed: IntArray,
    uniforms: FloatArray,
    picks: IntArray,
) -> float:
    """Draw the next rejected token of several paths that agree so far, one from each stratum.

    Parameters
    ----------
    tables : PathTables
    state : tuple of float
        c, Z(c) and s of the paths.
    removed : ndarray of int64, shape (k,)
        Places, along the order by p/q and ascending, of tokens that are not to be drawn.
    uniforms : ndarray, shape (m,)
    picks : ndarray of int64, shape (m,)
        Filled with places along that order, which ascend.

    Returns
    -------
    float
        Weight of all tokens that could be drawn; 0 where there is none.

    Notes
    -----
    The weight is 0 where p/q exceeds the next cap, ``q (1/s + c/Z) - p/Z`` down to the present cap
    and q/s below, so its running sum comes from the prefix sums of p and q.
    """
    cap, mass, remaining = state
    size, count = len(tables.drafted), len(picks)
    first = find_place(tables.ratios, -(cap + mass / remaining))
    # No token lies below the cap 0 that comes before the first rejection.
    middle = size if cap == 0.0 else max(first, find_place(tables.ratios, -cap))
    rate, per_p, per_q = 1.0 / remaining + cap / mass, 1.0 / mass, 1.0 / remaining
    slopes = rate, per_p, per_q
    total = _weight_between(tables, first, middle, slopes, size)
    # Removed tokens have no weight any more: goals beyond them are moved on by what they had.
    begins, lost = np.empty(len(removed)), np.zeros(len(removed) + 1)
    for j in range(len(removed)):
        k = max(int(removed[j]), first)
        reached = _weight_between(tables, first, middle, slopes, k)
        begins[j] = reached - lost[j]
        lost[j + 1] = lost[j]
        if k == removed[j]:
            lost[j + 1] += _weight_between(tables, first, middle, slopes, k + 1) - reached
    total -= lost[len(removed)]
    terms = rate * (tables.drafted_sums[size] - tables.drafted_sums[first])
    if not total > _CANCELLED * (terms + lost[len(removed)]):
        sums = _weight_sums(tables, cap, mass, remaining, removed)
        for i in range(count):
            goal = (i + uniforms[i]) / count * sums[size]
            picks[i] = min(int(np.searchsorted(sums, goal, side="right")), size) - 1
        return float(sums[size])
    low, passed = first, 0
    for i in range(count):
        goal = (i + uniforms[i]) / count * total
        while passed < len(removed) and goal >= begins[passed]:
            passed += 1
        goal += lost[passed]
        step = max(1, (size - first) // count)
        # Steps that grow while they fall short of the goal, and then halve.
        growing, high = True, size
        while high - low > 1:
            k = low + step if growing and low + step < high else (low + high) // 2
            if _weight_between(tables, first, middle, slopes, k) <= goal:
                low = k
                step *= 2
            else:
                high, growing = k, False
        picks[i] = low
    return float(total)


@compiled(inner=True)
def _take_likely(
    tables: PathTables,
    state: tuple[float, float, float],
    total: float,
    picks: IntArray,
    places: IntArray,
    shares: FloatArray,
) -> int:
    """Take, of the tokens drawn, those so likely that two strata at least hold nothing else.

    Which these are does not depend on the draws: a token with that weight is always among them.
    Places and shares of the weight are filled in; returns how many they are.
    """
    cap, mass, remaining = state
    found, count = 0, len(picks)
    for j in range(count):
        if j > 0 and picks[j] == picks[j - 1]:
            continue
        token = tables.by_ratio[picks[j]]
        share = _rejected_weight(tables, token, cap, mass, remaining) / total
        if share * count >= 2.0:
            places[found], shares[found] = picks[j], share
            found += 1
    return found


@compiled(inner=True)
def _merged(first: IntArray, second: IntArray) -> IntArray:
    """Merge numbers that ascend."""
    merged = np.empty(len(first) + len(second), dtype=np.int64)
    i, j = 0, 0
    for k in range(len(merged)):
        if j == len(second) or (i < len(first) and first[i] < second[j]):
            merged[k] = first[i]
            i += 1
        else:
            merged[k] = second[j]
            j += 1
    return merged


class _Paths(NamedTuple):
    """Bundles of rejection paths of one length, each of paths that agree so far.

    Attributes
    ----------
    counts : ndarray of int64, shape (B,)
        Paths that are left to spend on each.
    weights : ndarray, shape (B,)
        Probability that each stands for.
    caps, masses, rests : ndarray, shape (B,)
        c, Z(c) and s; a mass of 0 where nobody is rejected any more.
    removed, ranks : ndarray of int64, shape (B, k)
        Places of the rejected tokens along the order by p/q, and by q; both ascending.
    """

    counts: IntArray
    weights: FloatArray
    caps: FloatArray
    masses: FloatArray
    rests: FloatArray
    removed: IntArray
    ranks: IntArray


@compiled(inner=True)
def _no_paths(size: int, length: int) -> _Paths:
    return _Paths(
        np.zeros(size, dtype=np.int64),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros((size, length), dtype=np.int64),
        np.zeros((size, length), dtype=np.int64),
    )


@compiled(inner=True)
def _first(paths: _Paths, count: int) -> _Paths:
    return _Paths(
        paths.counts[:count],
        paths.weights[:count],
        paths.caps[:count],
        paths.masses[:count],
        paths.rests[:count],
        paths.removed[:count],
        paths.ranks[:count],
    )


@compiled(inner=True)
def _lengthen(
    tables: PathTables, paths: _Paths, b: int, left: float, place: int, longer: _Paths, v: int
) -> None:
    """Let the bundle v of longer paths be the bundle b with one more rejected token."""
    length = paths.removed.shape[1]
    for k in range(length):
        longer.removed[v, k], longer.ranks[v, k] = paths.removed[b, k], paths.ranks[b, k]
    insert_place(longer.removed[v], length, place)
    insert_place(longer.ranks[v], length, tables.rank[tables.by_ratio[place]])
    longer.caps[v] = paths.caps[b] + paths.masses[b] / paths.rests[b]
    longer.masses[v] = left
    longer.rests[v] = remaining_mass(tables.tail_sums, longer.ranks[v])


@compiled(nogil=True)
def sample_rejection(
    tables: PathTables, num_drafts: int, paths: int, seed: np.uint64
) -> tuple[float, float]:
    """Estimate the probability of n rejections along sampled rejection paths.

    Parameters
    ----------
    tables : PathTables
    num_drafts : int
        n >= 2.
    paths : int
        About how many are followed, at least 2.
    seed : uint64

    Returns
    -------
    tuple of float
        The estimate, which is unbiased, and its variance: 0 where nothing had to be drawn.

    Notes
    -----
    Only the rejected tokens are drawn; every test enters with its exact conditional probability.
    Paths that agree so far stand side by side. Tokens that two and more of them would be spent on
    are all followed, each with its exact weight; of the others some are drawn, from strata of equal
    weight, however little weight they have together, so that what is rare is never left out. A
    level spends a quarter of all paths on these, shared by weight, if they would have fewer.

    The variance is that of every bundle, from the paths up: squared weights times the variances of
    those it is made of, and the scatter of those drawn. Neighbours come from neighbouring strata:
    what they differ by is what is left of the scatter, and some more, where the variance of all
    would take the strata for scatter too. Where anything was drawn, the error is no less than what
    is too rare to be met, one in the square of all paths, could add.
    """
    stream = _mix(seed + np.uint64(1))  # 0 is what 0 is turned into
    drawn = 0
    now = _no_paths(1, 0)
    now.counts[0], now.weights[0], now.masses[0], now.rests[0] = paths, 1.0, 1.0, SCALE
    # Of all bundles so far: which one each belongs to, what it counts there, and what the square
    # of its distance from the bundle before it adds to the variance.
    parents, factors, pairs = np.zeros(1, dtype=np.int64), np.ones(1), np.zeros(1)
    begin, are_drawn = 0, False
    for level in range(num_drafts - 1):
        bundles = len(now.counts)
        all_picks = np.empty(now.counts.sum(), dtype=np.int64)
        numbers = np.empty(len(all_picks))
        places, shares = np.empty(len(all_picks), dtype=np.int64), np.empty(len(all_picks))
        starts, likely = np.zeros(bundles + 1, dtype=np.int64), np.zeros(bundles, dtype=np.int64)
        lefts, others = np.zeros(bundles), np.zeros(bundles)
        draws, worths = now.counts.copy(), np.zeros(bundles)
        for b in range(bundles):
            count = now.counts[b]
            starts[b + 1] = starts[b] + count
            state = now.caps[b], now.masses[b], now.rests[b]
            left = excess_mass(tables, state[0] + state[1] / state[2]) if state[1] > 0.0 else 0.0
            draws[b] = 0
            if left <= 0.0:
                continue
            own = slice(starts[b], starts[b + 1])
            picks, uniforms = all_picks[own], numbers[own]
            for j in range(count):
                uniforms[j] = _uniform(stream, drawn + j)
            drawn += count
            total = _draw_rejected(tables, state, now.removed[b], uniforms, picks)
            if total <= 0.0:
                continue
            lefts[b], others[b], draws[b] = left, 1.0, count
            if count > 1:
                likely[b] = _take_likely(tables, state, total, picks, places[own], shares[own])
            if likely[b] > 0:
                most, parts = places[own][: likely[b]], shares[own][: likely[b]]
                for share in parts:
                    draws[b] -= int(count * share)
                removed = _merged(now.removed[b], most)
                rest = _draw_rejected(tables, state, removed, uniforms[:0], picks[:0]) / total
                # Of the sum of them all, as the total may have lost a few digits.
                whole = parts.sum() + rest
                parts /= whole
                others[b] = rest / whole
                # Beyond rounding of the estimate nothing is left to be drawn.
                if now.weights[b] * others[b] <= _NOTHING:
                    others[b], draws[b] = 0.0, 0
            # About the chance to be rejected where a token was drawn that leaves most of s.
            higher = state[0] + state[1] / state[2]
            left = excess_mass(tables, higher + left / state[2])
            worths[b] = now.weights[b] * others[b] * left
        children, worth = 0, worths.sum()
        for b in range(bundles):
            if now.counts[b] > 1 and others[b] > 0.0:
                wanted = 0.25 * paths * worths[b] / worth if worth > 0.0 else 0.0
                draws[b] = max(draws[b], 2, math.ceil(wanted))
            children += likely[b] + draws[b]
        then = _no_paths(children, level + 1)
        own_parents, own_factors = np.zeros(children, dtype=np.int64), np.zeros(children)
        own_pairs = np.zeros(children)
        v = 0
        for b in range(bundles):
            state = now.caps[b], now.masses[b], now.rests[b]
            weight, left = now.weights[b], lefts[b]
            most = places[starts[b] : starts[b] + likely[b]]
            for j in range(likely[b]):
                share = shares[starts[b] + j]
                _lengthen(tables, now, b, left, most[j], then, v)
                then.counts[v] = max(int(now.counts[b] * share), 2)
                then.weights[v] = weight * share
                own_parents[v], own_factors[v] = begin + b, share
                v += 1
            if draws[b] == 0:
                continue
            picks, count = all_picks[starts[b] : starts[b + 1]], draws[b]
            if likely[b] > 0 or count > len(picks):
                uniforms, picks = np.empty(count), np.empty(count, dtype=np.int64)
                for j in range(count):
                    uniforms[j] = _uniform(stream, drawn + j)
                drawn += count
                removed = _merged(now.removed[b], most)
                _draw_rejected(tables, state, removed, uniforms, picks)
            stratum, start, are_drawn = others[b] / count, v, True
            for j in range(count):
                if j == 0 or picks[j] != picks[j - 1]:
                    _lengthen(tables, now, b, left, picks[j], then, v)
                    own_parents[v] = begin + b
                    if v > start:
                        own_pairs[v] = others[b] * stratum / (2.0 * (count - 1))
                    v += 1
                then.counts[v - 1] += 1
                then.weights[v - 1] += weight * stratum
                own_factors[v - 1] += stratum
        begin += bundles
        now = _first(then, v)
        parents = np.concatenate((parents, own_parents[:v]))
        factors = np.concatenate((factors, own_factors[:v]))
        pairs = np.concatenate((pairs, own_pairs[:v]))
    values, variances = np.zeros(len(parents)), np.zeros(len(parents))
    for b in range(len(now.counts)):
        if now.masses[b] > 0.0:
            values[begin + b] = excess_mass(tables, now.caps[b] + now.masses[b] / now.rests[b])
    # Those that belong to a bundle stand behind it.
    for v in range(len(parents) - 1, 0, -1):
        u = parents[v]
        values[u] += factors[v] * values[v]
        variances[u] += factors[v] ** 2 * variances[v] + pairs[v] * (values[v] - values[v - 1]) ** 2
    if are_drawn:
        # What is rarer than two draws of one in so many each was not seen.
        variances[0] += (excess_mass(tables, _FIRST_CAP) / (float(paths) * paths)) ** 2
    return values[0], variances[0]


@compiled(nogil=True)
def _pair_rejected(p: FloatArray, q: FloatArray) -> float:
    return pair_rejection(path_tables(p, q))


@compiled(nogil=True)
def _enumerate_rejected(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    return enumerate_rejection(path_tables(p, q), num_drafts)


@compiled(nogil=True)
def _sample_rejected(
    p: FloatArray, q: FloatArray, num_drafts: int, paths: int, seed: np.uint64
) -> float:
    return sample_rejection(path_tables(p, q), num_drafts, paths, seed)[0]


def path_rate(p: FloatArray, q: FloatArray, num_drafts: int, paths: int, seed: np.uint64) -> float:
    """Compute the acceptance rate of n >= 2 drafts, or estimate it where there are too many paths.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draft probabilities.
    num_drafts : int
        n >= 2.
    paths : int
        Rejection paths of an estimate; where there are no more than these, all are followed.
    seed : uint64
        Of the estimate.
    """
    # As in `exact_rejection`, but that tables stay in compiled code where a row takes microseconds.
    if num_drafts == 2:
        rejected = _pair_rejected(p, q)
    elif _are_few(num_drafts, q, paths):
        rejected = _enumerate_rejected(p, q, num_drafts)
    else:
        rejected = _sample_rejected(p, q, num_drafts, paths, seed)
    return min(max(1.0 - rejected, 0.0), 1.0)
