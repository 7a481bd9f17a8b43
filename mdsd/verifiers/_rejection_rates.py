"""How often recursive rejection without replacement rejects all drafts, in compiled code.

The rejection probabilities along a path multiply to Z at its last cap, so the mean of that over the
paths is the probability sought: in closed form for two drafts, by enumeration for small supports,
and else by conditional Monte Carlo, which draws the rejected tokens only.
"""

from __future__ import annotations

import math

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
    for k in range(size):
        weight = 0.0
        if not _is_among(k, removed, len(removed)):
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
    cap: float,
    mass: float,
    remaining: float,
    removed: IntArray,
    uniforms: FloatArray,
    picks: IntArray,
) -> bool:
    """Draw the next rejected token of several paths that agree so far, one from each stratum.

    Parameters
    ----------
    tables : PathTables
    cap, mass, remaining : float
        c, Z(c) and s of the paths.
    removed : ndarray of int64, shape (k,)
        Places, along the order by p/q, of the tokens they rejected.
    uniforms : ndarray, shape (m,)
    picks : ndarray of int64, shape (m,)
        Filled with places along that order, which ascend.

    Returns
    -------
    bool
        Whether any token has weight.

    Notes
    -----
    The weight is 0 where p/q exceeds the next cap, ``q (1/s + c/Z) - p/Z`` down to the present cap
    and q/s below, so its running sum comes from the prefix sums of p and q.
    """
    size, count = len(tables.drafted), len(picks)
    first = find_place(tables.ratios, -(cap + mass / remaining))
    # No token lies below the cap 0 that comes before the first rejection.
    middle = size if cap == 0.0 else max(first, find_place(tables.ratios, -cap))
    rate, per_p, per_q = 1.0 / remaining + cap / mass, 1.0 / mass, 1.0 / remaining
    slopes = rate, per_p, per_q
    total = _weight_between(tables, first, middle, slopes, size)
    # Rejected tokens have no weight any more: goals beyond them are moved on by what they had.
    begins, lost = np.empty(len(removed)), np.zeros(len(removed) + 1)
    for j in range(len(removed)):
        k = max(int(removed[j]), first)
        reached = _weight_between(tables, first, middle, slopes, k)
        begins[j] = reached - lost[j]
        lost[j + 1] = lost[j]
        if k == removed[j]:
            lost[j + 1] += _weight_between(tables, first, middle, slopes, k + 1) - reached
    total -= lost[len(removed)]
    if not total > _CANCELLED * lost[len(removed)]:
        sums = _weight_sums(tables, cap, mass, remaining, removed)
        for i in range(count):
            goal = (i + uniforms[i]) / count * sums[size]
            picks[i] = min(int(np.searchsorted(sums, goal, side="right")), size) - 1
        return bool(sums[size] > 0.0)
    low = first
    for i in range(count):
        goal = (i + uniforms[i]) / count * total
        passed = 0
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
    return True


@compiled(nogil=True)
def sample_rejection(
    tables: PathTables, num_drafts: int, paths: int, seed: np.uint64
) -> FloatArray:
    """Probability of n rejections along sampled rejection paths, one value for each path.

    Parameters
    ----------
    tables : PathTables
    num_drafts : int
        n >= 2.
    paths : int
    seed : uint64

    Returns
    -------
    ndarray, shape (paths,)
        Their mean is an unbiased estimate: only the rejected tokens are drawn, every test enters
        with its exact conditional probability. Paths that agree so far stand side by side and draw
        from strata of equal weight, so that their mean scatters less than independent ones would.
    """
    depth = num_drafts - 1
    stream = _mix(seed + np.uint64(1))  # 0 is what 0 is turned into
    uniforms, picks = np.empty(paths), np.empty(paths, dtype=np.int64)
    # Bundles of paths that agree so far; what is known of one stands at its first path.
    begins, parted = np.empty(paths + 1, dtype=np.int64), np.empty(paths + 1, dtype=np.int64)
    begins[0], begins[1], bundles = 0, paths, 1
    caps, masses, rests = np.zeros(paths), np.ones(paths), np.full(paths, SCALE)
    removed = np.empty((paths, depth), dtype=np.int64)
    ranks = np.empty((paths, depth), dtype=np.int64)
    before, ranks_before = np.empty(depth, dtype=np.int64), np.empty(depth, dtype=np.int64)
    for level in range(depth):
        for j in range(paths):
            uniforms[j] = _uniform(stream, level * paths + j)
        parts = 0
        for b in range(bundles):
            begin, end = begins[b], begins[b + 1]
            cap, mass, rest = caps[begin], masses[begin], rests[begin]
            for k in range(level):
                before[k], ranks_before[k] = removed[begin, k], ranks[begin, k]
            left = excess_mass(tables, cap + mass / rest) if mass > 0.0 else 0.0
            given = uniforms[begin:end]
            if left <= 0.0 or not _draw_rejected(
                tables, cap, mass, rest, before[:level], given, picks[begin:end]
            ):
                left = 0.0  # nobody is rejected any more
                for j in range(begin, end):
                    picks[j] = -1
            for j in range(begin, end):
                if j > begin and picks[j] == picks[j - 1]:
                    continue
                parted[parts] = j
                parts += 1
                caps[j], masses[j] = cap + mass / rest, left
                if left > 0.0:
                    for k in range(level):
                        removed[j, k], ranks[j, k] = before[k], ranks_before[k]
                    insert_place(removed[j], level, picks[j])
                    insert_place(ranks[j], level, tables.rank[tables.by_ratio[picks[j]]])
                    rests[j] = remaining_mass(tables.tail_sums, ranks[j, : level + 1])
        parted[parts] = paths
        begins, parted, bundles = parted, begins, parts
    values = np.zeros(paths)
    for b in range(bundles):
        j = begins[b]
        if masses[j] > 0.0:
            value = excess_mass(tables, caps[j] + masses[j] / rests[j])
            for k in range(j, begins[b + 1]):
                values[k] = value
    return values


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
    total = 0.0
    for value in sample_rejection(path_tables(p, q), num_drafts, paths, seed):
        total += value
    return total / paths


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
