"""Draws without replacement as groups of tokens see them: tables of arrivals, group by group.

The arrival form of `solvers.hitting`: every token has an exponential clock of rate q_i, and the
first n to ring are drawn. Of a group of small tokens only the power sums of the rates are kept;
they give the chance that so many of them have arrived by any time.

From each group that has been met the token selected is any of those drawn, with equal chances. A
token of rate q is then selected with a mass m(q) whose ratio m(q) / q falls with q, as
`solvers.group_selection` shows. So the ratio of the heaviest token serves for all of its group.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray
from .hitting import MASS_SCALE, _expm1_ratio, _node
from .ratio_groups import (
    HEAVY,
    NUM_BUCKETS,
    RatioGroups,
    alone,
    bucket_of,
    buckets_of,
    choose_singles,
    groups_alone,
    join_buckets,
    with_room,
)

POWERS = 16
"""Power sums kept: with the next one, 8**-17 of a token would be noticed."""

FAINT = 1.0 / 8.0
"""Tokens of a group have a rate times a time up to this at the latest time."""

_UNBORN = 1e-22
"""A rate times a time below this: nobody notices whether that has arrived."""

_UNNOTICED = 1e-22
"""Powers below this add nothing to a sum near 1, however many they are."""

_LIGHT_POWERS, _LIGHT = 5, 7e-4
"""Of an x below the second number no powers but so many are noticed."""

_ARRIVED = 800.0
"""A rate times a time above this: exp(-800) is no number any more."""

_LOWEST_NODE = -3.75
"""s at the first node, as in `solvers.hitting`."""


class DrawTables(NamedTuple):
    """What is known of the arrivals in G groups at M nodes in time.

    Attributes
    ----------
    heads : ndarray, shape (G,)
        Rate of the heaviest token of each group.
    masses : ndarray, shape (G,)
        Rate of each group.
    powers : ndarray, shape (G, powers + 1)
        Sums, over the tokens of each group but its heaviest, of ``(q t)**d`` at the time `latest`.
    latest : float
        By then enough tokens have arrived.
    times, node_weights : ndarray, shape (M,)
        The nodes.
    counts : ndarray, shape (G, n, M)
        Chance that j tokens of a group have arrived by each node.
    """

    heads: FloatArray
    masses: FloatArray
    powers: FloatArray
    latest: float
    times: FloatArray
    node_weights: FloatArray
    counts: FloatArray


def _series_of_powers() -> FloatArray:
    """Coefficients in x of ``expm1(x)**k``, for each k, up to `POWERS` on both sides."""
    series = np.array([0.0] + [1.0 / math.factorial(k) for k in range(1, POWERS + 1)])
    powers = np.zeros((POWERS + 1, POWERS + 1))
    powers[0, 0] = 1.0
    for k in range(1, POWERS + 1):
        powers[k] = np.convolve(powers[k - 1], series)[: POWERS + 1]
    return powers


SERIES = _series_of_powers()


@compiled(nogil=True)
def node_step(num_draws: int) -> float:
    """Give the distance of the nodes in s, as in `solvers.hitting`."""
    return 0.2 * math.sqrt(8.0 / max(num_draws, 8))


@compiled(nogil=True)
def latest_time(num_draws: int) -> float:
    """Time by which n tokens have arrived but for a chance of 1e-19 or so, at a rate of 1."""
    return 45.0 + num_draws + 9.5 * math.sqrt(num_draws)


@compiled(nogil=True, fastmath={"reassoc"})
def _sum(weights: FloatArray, most: float) -> float:
    """Sum the weights up to `most`."""
    total = 0.0
    for weight in weights:
        total += weight if weight <= most else 0.0
    return total


@compiled(nogil=True)
def _rest_mass(weights: FloatArray, num_draws: int) -> float:
    """Sum of the weights but for the n - 1 largest: how fast the last of n draws arrives."""
    most = np.zeros(num_draws)  # ascending; the first is no part of what is left out
    lowest = 0.0
    for weight in weights:
        if weight > lowest:
            k = 0
            while k + 1 < num_draws and most[k + 1] < weight:
                most[k] = most[k + 1]
                k += 1
            most[k] = weight
            lowest = most[0]
    total = _sum(weights, lowest)
    for weight in most[1:]:
        total -= weight if weight == lowest else 0.0
    return total


@compiled(nogil=True, error_model="numpy")
def _survey(
    target_masses: FloatArray, weights: FloatArray, scale: float, latest: float, least: float
) -> tuple[FloatArray, IntArray]:
    """Sum the light tokens of each bucket; list the others.

    A row holds the target mass, the powers 1 to 5 of x, a rate times the latest time, and the
    largest x.
    """
    rows = np.zeros((NUM_BUCKETS, 8))  # a line of the cache each
    heavy, count = np.empty(64, dtype=np.int64), 0
    for i in range(len(weights)):
        q = weights[i]
        if q > 0.0:
            p, x = target_masses[i], q * MASS_SCALE * latest
            if x >= _LIGHT or p >= least or q * scale >= least:
                heavy = with_room(heavy, count)
                heavy[count] = i
                count += 1
            else:
                key = bucket_of(p, q * scale)
                square = x * x
                rows[key, 0] += p
                # Compensated: the law rests on these, and a bucket may hold all tokens.
                added = x - rows[key, 7]
                total = rows[key, 1] + added
                rows[key, 7] = (total - rows[key, 1]) - added
                rows[key, 1] = total
                rows[key, 2] += square
                rows[key, 3] += square * x
                rows[key, 4] += square * square
                rows[key, 5] += square * square * x
                rows[key, 6] = max(rows[key, 6], x)
    return rows, heavy[:count]


@compiled(nogil=True)
def _add_powers(x: float, times: float, powers: FloatArray) -> None:
    """Add x, x**2, ... so many times to the power sums of a group."""
    power = times * x
    for d in range(1, POWERS + 1):
        powers[d] += power
        power *= x


def _group_draws(
    target_masses: FloatArray,
    weights: FloatArray,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> tuple[RatioGroups, FloatArray, FloatArray, FloatArray, float]:
    """Group the tokens; give the target masses, heads and powers, and the time these refer to."""
    rest = _rest_mass(weights, num_draws)
    scale, latest, largest = _units(rest, num_draws)
    few = alone(weights, num_singles + num_buckets)
    if len(few):
        heads, none = weights[few] * MASS_SCALE, np.zeros((len(few), POWERS + 1))
        return groups_alone(few, scale), target_masses[few], heads, none, latest
    rows, heavy = _survey(target_masses, weights, scale, latest, min(HEAVY, largest / 2.0))
    own, drawn = target_masses[heavy], weights[heavy]
    keys = buckets_of(own, drawn * scale)
    given = own, drawn, keys, scale, rest, latest, num_draws, num_singles, num_buckets
    groups, targets, heads, powers = _join_sums(rows, _LIGHT_POWERS, *given)
    groups = groups._replace(singles=heavy[groups.singles])
    return groups, targets, heads, powers, latest


def _units(rest: float, num_draws: int) -> tuple[float, float, float]:
    """Give scale, latest time and the largest scaled weight of a token that shares a group.

    All from the weight of what arrives last.
    """
    scale, span = min(1.0 / rest, 2.0**1020), latest_time(num_draws)
    return scale, span / (rest * MASS_SCALE), FAINT / span * rest * scale


@compiled(nogil=True, error_model="numpy")
def _join_sums(
    rows: FloatArray,
    num_powers: int,
    target_masses: FloatArray,
    weights: FloatArray,
    keys: IntArray,
    scale: float,
    rest: float,
    latest: float,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> tuple[RatioGroups, FloatArray, FloatArray, FloatArray]:
    """Group light tokens known by their sums, and heavy ones known one by one.

    The singles are places among the heavy ones.
    """
    count, span = len(weights), latest_time(num_draws)
    largest = FAINT / span * rest * scale
    every = np.arange(count)
    singles = choose_singles(every, target_masses, weights, scale, num_singles, largest)
    sums = rows[:, :2].copy()
    sums[:, 1] *= rest * scale / span
    place = 0
    for i in range(count):
        if place < len(singles) and singles[place] == i:
            place += 1
        else:
            sums[keys[i], 0] += target_masses[i]
            sums[keys[i], 1] += weights[i] * scale
    table, size = join_buckets(sums, num_buckets, len(singles), float(num_draws))
    targets, heads, powers = np.zeros(size), np.zeros(size), np.zeros((size, POWERS + 1))
    for key in range(NUM_BUCKETS):
        group = table[key]
        if group >= 0:
            targets[group] += sums[key, 0]
            heads[group] = max(heads[group], rows[key, num_powers + 1])
            for d in range(1, num_powers + 1):
                powers[group, d] += rows[key, d]
    place = 0
    for i in range(count):
        if place < len(singles) and singles[place] == i:
            # A heavy token's rate times a very late time may be no number.
            targets[place], heads[place] = target_masses[i], weights[i] * MASS_SCALE
            place += 1
        else:
            group = table[keys[i]]
            x = weights[i] * MASS_SCALE * latest
            _add_powers(x, 1.0, powers[group])
            heads[group] = max(heads[group], x)
    for group in range(len(singles), size):
        _add_powers(heads[group], -1.0, powers[group])
        for d in range(POWERS + 1):
            # What is left of one token is rounding.
            powers[group, d] = max(powers[group, d], 0.0) if powers[group, 1] > 0.0 else 0.0
        heads[group] /= latest
    return RatioGroups(singles, table, scale, size), targets, heads, powers


@compiled(nogil=True)
def _nodes(
    heads: FloatArray, powers: FloatArray, num_draws: int, latest: float
) -> tuple[FloatArray, FloatArray]:
    """Give times and weights of the nodes up to the latest time at which anything happens."""
    shared, step = powers[:, 1].sum() / latest, node_step(num_draws)
    times, weights = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    s, t = _LOWEST_NODE, 0.0
    while t < latest:
        t, weight = _node(s)
        s += step
        happens = shared * t > _UNBORN
        for rate in heads:
            happens = happens or _UNBORN < rate * t < _ARRIVED
        if happens:
            times.append(t)
            weights.append(weight * step)
    return np.array(times), np.array(weights)


@compiled(nogil=True, fastmath={"contract", "arcp"})
def arrival_chances(rate: float, times: FloatArray, stay: FloatArray, come: FloatArray) -> None:
    """Fill in the chances that a token has not arrived, and that it has, by ascending times."""
    early = 0
    while early < len(times) and rate * times[early] <= 0.125:
        early += 1
    for m in range(early):
        x = rate * times[m]
        come[m] = x * _expm1_ratio(-x)
        stay[m] = 1.0 - come[m]
    for m in range(early, len(times)):
        stay[m] = math.exp(-rate * times[m])
        come[m] = 1.0 - stay[m]


@compiled(nogil=True)
def _degree(sums: FloatArray) -> int:
    """Highest power of which anything is noticed."""
    degree = POWERS
    while degree > 1 and sums[degree] <= 1e-3 * _UNNOTICED * sums[1]:
        degree -= 1
    return degree


@compiled(nogil=True, fastmath={"contract", "reassoc"})
def _sum_series(
    coefficients: FloatArray,
    sums: FloatArray,
    shares: FloatArray,
    lowest: int,
    highest: int,
    total: FloatArray,
) -> None:
    """Sum ``coefficients[d] sums[d] shares**d`` over d from `lowest` to `highest`."""
    total[:] = 0.0
    for d in range(highest, lowest - 1, -1):
        factor = coefficients[d] * sums[d]
        for m in range(len(shares)):
            total[m] = total[m] * shares[m] + factor
    for _ in range(lowest):
        for m in range(len(shares)):
            total[m] *= shares[m]


@compiled(nogil=True, fastmath={"contract", "reassoc"})
def count_faint(sums: FloatArray, latest: float, times: FloatArray, counts: FloatArray) -> None:
    """Fill ``counts[j, m]``: chance that j tokens, known by their power sums, have arrived by t_m.

    It is ``exp(-sum x)`` times the elementary symmetric polynomial of the ``expm1(x)``, by Newton's
    identities from their power sums, which are series in those of the x.
    """
    num_draws, width = counts.shape
    shares = times / latest
    degree = _degree(sums)
    halvings, whole = 0, sums[1]
    while whole > 500.0:  # of so many arrivals the chance of none is no number
        whole, halvings = whole / 2.0, halvings + 1
    part = sums * 0.5**halvings
    growth = np.empty((num_draws, width))
    for k in range(1, num_draws):
        if k <= POWERS:
            _sum_series(SERIES[k], part, shares, k, degree, growth[k])
        else:
            growth[k] = 0.0
    for m in range(width):
        counts[0, m] = math.exp(-part[1] * shares[m])
    for j in range(1, num_draws):
        counts[j] = 0.0
        sign = 1.0 / j
        for k in range(1, min(j, POWERS) + 1):
            for m in range(width):
                counts[j, m] += sign * growth[k, m] * counts[j - k, m]
            sign = -sign
        for m in range(width):
            counts[j, m] = max(counts[j, m], 0.0)
    for _ in range(halvings):
        for j in range(num_draws - 1, -1, -1):
            for m in range(width):
                total = 0.0
                for k in range(j + 1):
                    total += counts[k, m] * counts[j - k, m]
                counts[j, m] = total


@compiled(nogil=True, fastmath={"contract", "reassoc"})
def flow_of_faint(
    sums: FloatArray, latest: float, times: FloatArray, counts: FloatArray, flows: FloatArray
) -> None:
    """Fill ``flows[j, m]``: the rate at which the next arrives at t_m, when j tokens have."""
    num_draws, width = counts.shape
    shares = times / latest
    rates = np.empty(width)
    flows[:] = 0.0
    sign = 1.0 / latest
    degree = _degree(sums)
    for k in range(min(num_draws, POWERS)):
        _sum_series(SERIES[k], sums[1:], shares, k, degree - 1, rates)
        for j in range(k, num_draws):
            for m in range(width):
                flows[j, m] += sign * rates[m] * counts[j - k, m]
        sign = -sign
    for j in range(num_draws):
        for m in range(width):
            flows[j, m] = max(flows[j, m], 0.0)


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def join_token(counts: FloatArray, stay: FloatArray, come: FloatArray) -> None:
    """Let one token join the set whose arrivals ``counts[j, m]`` counts."""
    for j in range(len(counts) - 1, 0, -1):
        for m in range(len(stay)):
            counts[j, m] = counts[j, m] * stay[m] + counts[j - 1, m] * come[m]
    for m in range(len(stay)):
        counts[0, m] *= stay[m]


def tabulate_draws(
    target_masses: FloatArray,
    weights: FloatArray,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> tuple[RatioGroups, FloatArray, DrawTables]:
    """Group the tokens by ratio, and tabulate the arrivals in each group.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p.
    weights : ndarray, shape (V,)
        Weights >= 0 of the draws, at least n of them positive.
    num_draws : int
        n >= 1.
    num_singles, num_buckets : int
        As for `group_by_ratio`.

    Returns
    -------
    tuple of (RatioGroups, ndarray of shape (G,), DrawTables)
        The groups, their target masses, and their arrivals.
    """
    groups, targets, heads, powers, latest = _group_draws(
        target_masses, weights, num_draws, num_singles, num_buckets
    )
    return groups, targets, _tabulate(heads, powers, num_draws, latest)


@compiled(nogil=True, error_model="numpy")
def _tabulate(heads: FloatArray, powers: FloatArray, num_draws: int, latest: float) -> DrawTables:
    """Tabulate the arrivals in groups of which heads and powers are known."""
    times, node_weights = _nodes(heads, powers, num_draws, latest)
    counts = np.zeros((len(heads), num_draws, len(times)))
    stay, come = np.empty(len(times)), np.empty(len(times))
    for group in range(len(heads)):
        if powers[group, 1] > 0.0:
            count_faint(powers[group], latest, times, counts[group])
        else:
            counts[group, 0] = 1.0
        arrival_chances(heads[group], times, stay, come)
        join_token(counts[group], stay, come)
    masses = heads + powers[:, 1] / latest
    return DrawTables(heads, masses, powers, latest, times, node_weights, counts)


SUM_POWERS = 8
"""Powers summed of the tokens that nobody looks at one by one, where there is no second look."""


def most_listed(num_draws: int) -> int:
    """Tokens to look at one by one, so that the others need no more than `SUM_POWERS` powers.

    Beyond the first K by the larger of p and scaled q, both are less than 2 / (K - n): no token
    there must stand alone, and of its ``x <= 1 / 8`` at the latest time the ninth power adds 1e-13
    of the first: nothing, by the time of the draws.
    """
    return max(2048, math.ceil(2.0 / FAINT * latest_time(num_draws)) + num_draws + 64)


def tabulate_sums(
    rows: FloatArray,
    target_masses: FloatArray,
    weights: FloatArray,
    keys: IntArray,
    live: int,
    rest: float,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> tuple[RatioGroups, FloatArray, DrawTables]:
    """Do as `tabulate_draws` where only sums are known, but for the tokens with large masses.

    Parameters
    ----------
    rows : ndarray, shape (buckets, powers + 2)
        Of the tokens of each bucket that are not listed: the sum of p, those of the powers from 1
        to `SUM_POWERS` of ``x = q * latest_time(n) / rest``, and the largest x.
    target_masses, weights : ndarray, shape (K,)
        p and q of the tokens listed; some may have q = 0, and count for nothing.
    keys : ndarray of int64, shape (K,)
        Their buckets.
    live : int
        How many tokens can be drawn: all of them are listed where they are `most_listed` at most.
    rest : float
        Sum of q but for the n - 1 largest.
    num_draws, num_singles, num_buckets
        As for `tabulate_draws`.

    Returns
    -------
    tuple of (RatioGroups, ndarray of shape (G,), DrawTables)
        As there, with places among the tokens listed for tokens.
    """
    scale, latest, largest = _units(rest, num_draws)
    if live <= num_singles + num_buckets:
        few = np.flatnonzero(weights)
        heads, none = weights[few] * MASS_SCALE, np.zeros((len(few), POWERS + 1))
        tables = _tabulate(heads, none, num_draws, latest)
        return groups_alone(few, scale), target_masses[few], tables
    x = weights * MASS_SCALE * latest
    least = min(HEAVY, largest / 2.0)
    big = (x >= _LIGHT) | (target_masses >= least) | (weights * scale >= least)
    heavy, light = np.flatnonzero((weights > 0.0) & big), (weights > 0.0) & ~big
    sums = rows.copy()
    np.add.at(sums[:, 0], keys[light], target_masses[light])
    np.maximum.at(sums[:, SUM_POWERS + 1], keys[light], x[light])
    for d in range(1, SUM_POWERS + 1):
        np.add.at(sums[:, d], keys[light], x[light] ** d)
    own = target_masses[heavy], weights[heavy], keys[heavy]
    given = *own, scale, rest, latest, num_draws, num_singles, num_buckets
    groups, targets, heads, powers = _join_sums(sums, SUM_POWERS, *given)
    groups = groups._replace(singles=heavy[groups.singles])
    return groups, targets, _tabulate(heads, powers, num_draws, latest)
