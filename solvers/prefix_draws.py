"""Subset selection for draws without replacement, without a sort.

Tokens are dealt into cells by the leading bits of the ratio p/q, and the hit function is worked out
at the ends of the cells only. It is concave along any chain of sets when drawn over their mass q
(q-convexity of its complement), so that inside a cell it lies over its chord, while p(A) lies under
its tangents: a floor below which no cut of the cell can come. Only the few cells whose floor leaves
room below the best value so far are looked into, cell by cell again or token by token.

Hits are those of `solvers.hitting`, node by node. What has not moved one by one, tokens whose rate
times the time is small, is counted by power sums of H as a whole, as in `solvers.grouped_draws`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from solvers._typing import FloatArray, IntArray
from solvers.grouped_draws import _EXPM1_POWERS, _FAINT, _POWERS, _add_powers, _join_token
from solvers.hitting import _BLOCK, _LOWEST_NODE, _NEGLIGIBLE, MASS_SCALE, _node, arrival_chances
from solvers.sorting import falling_order

FEWEST_TOKENS = 1024
"""Up to so many tokens that can be drawn, every prefix is sooner looked at."""

MOST_DRAWS = 16
"""Draws up to which every sum of products of arrivals, and every cell's, stays a number."""

_FEW = 4096
"""Tokens of opened cells that are sorted to the last digit."""

_P, _Q = 0, _POWERS + 1
"""Columns of a cell's mass p and mass q; between them stand the power sums of its faint tokens."""


@njit(cache=True)
def _horizon(rates: FloatArray, num_draws: int) -> float:
    """Give a time by which n tokens have arrived, but for a chance that no double notices.

    With mu arrivals expected, fewer than n have the chance ``exp(-mu) (e mu / (n - 1))**(n - 1)``
    at most (Chernoff), and mu is known from below by the mass of each octave of rates.
    """
    exponents, octaves = rates.view(np.int64) >> 52, np.zeros(2048)
    for i in range(len(rates)):
        octaves[exponents[i]] += rates[i]
    occupied = np.flatnonzero(octaves)
    time, expected, others = 1.0 / MASS_SCALE, 0.0, num_draws - 1
    while True:
        expected = 0.0
        for e in occupied:
            most = 2.0 ** (e - 1022) * time
            expected += octaves[e] * time * (-math.expm1(-most) / most if most > 1e-9 else 1.0)
        if expected > others:
            log_chance = -expected
            if others > 0:
                log_chance += others * (1.0 + math.log(expected / others))
            if math.log(time) + log_chance < math.log(_NEGLIGIBLE):
                return time
        time *= 2.0


@njit(cache=True)
def _last_node(time: float, step: float) -> float:
    """Time of the first node, of those that end a block, that is not before a time."""
    s = _LOWEST_NODE + (_BLOCK - 1) * step
    while _node(s)[0] < time:
        s += _BLOCK * step
    return _node(s)[0]


@njit(cache=True)
def _ratio(key: int) -> float:
    """Number whose bits are the key."""
    return np.array([key]).view(np.float64)[0]


@njit(cache=True)
def _deal(
    masses: FloatArray, rates: FloatArray, places: IntArray, num_cells: int, horizon: float
) -> FloatArray:
    """Sum over the tokens of each cell: p, the powers of x at the horizon if it is faint, and q."""
    cells = np.zeros((num_cells, _POWERS + 2))
    for i in range(len(places)):
        cell = cells[places[i]]
        cell[_P] += masses[i]
        cell[_Q] += rates[i]
        x = rates[i] * horizon
        if x <= _FAINT:
            _add_powers(x, cell[:_Q])
    return cells


@njit(cache=True, fastmath={"reassoc", "contract", "arcp"})
def _missed(
    counts: FloatArray, sums: FloatArray, shares: FloatArray, work: FloatArray, fewer: FloatArray
) -> None:
    """Fill in the chance that fewer than n of H have arrived, but for the factor ``exp(-sums[1])``.

    ``counts[j, m]`` is the chance that j of the tokens that joined one by one have arrived by t_m;
    the others are known by the power sums of their x at the latest time, as `_count_faint` has it.
    """
    num_draws = len(counts)
    degree = _POWERS
    while degree > 1 and sums[degree] <= 1e-18 * sums[1]:
        degree -= 1
    orders = min(num_draws - 1, degree)
    growth, chances = work[0], work[1]
    for k in range(1, orders + 1):
        top = _EXPM1_POWERS[k, degree] * sums[degree]
        for m in range(_BLOCK):
            growth[k, m] = top
        for d in range(degree - 1, k - 1, -1):
            term = _EXPM1_POWERS[k, d] * sums[d]
            for m in range(_BLOCK):
                growth[k, m] = growth[k, m] * shares[m] + term
        for _ in range(k):
            for m in range(_BLOCK):
                growth[k, m] *= shares[m]
    # Newton's identities, summed up: chances[j] is that of at most j arrivals.
    for m in range(_BLOCK):
        chances[0, m] = 1.0
    for j in range(1, num_draws):
        for m in range(_BLOCK):
            chances[j, m] = 0.0
        sign = 1.0 / j
        for k in range(1, min(j, orders) + 1):
            for m in range(_BLOCK):
                chances[j, m] += sign * growth[k, m] * chances[j - k, m]
            sign = -sign
        for m in range(_BLOCK):
            chances[j, m] = max(chances[j, m], 0.0)
    for j in range(1, num_draws):
        for m in range(_BLOCK):
            chances[j, m] += chances[j - 1, m]
    for m in range(_BLOCK):
        fewer[m] = counts[0, m] * chances[num_draws - 1, m]
    for j in range(1, num_draws):
        for m in range(_BLOCK):
            fewer[m] += counts[j, m] * chances[num_draws - 1 - j, m]


@njit(cache=True)
def _add_block(
    cells: FloatArray,
    tops: IntArray,
    asked: IntArray,
    ahead: FloatArray,
    heavy: FloatArray,
    heavy_keys: IntArray,
    horizon: float,
    num_draws: int,
    times: FloatArray,
    node_weights: FloatArray,
    hits: FloatArray,
) -> float:
    """Add a block of nodes to the hits asked for; give Pr[< n of all arrived] at the last one.

    H takes in the cells from the lowest ratio up. Those of its tokens that are faint at the latest
    of these times are summed; the others join one by one.
    """
    latest = times[-1]
    shares, factor = times / latest, latest / horizon
    sums, counts = np.zeros(_POWERS + 1), np.zeros((num_draws, _BLOCK))
    counts[0] = 1.0
    stay, come = np.empty(_BLOCK), np.empty(_BLOCK)
    work, fewer = np.empty((2, num_draws + 1, _BLOCK)), np.empty(_BLOCK)
    wait, stale, h = np.empty(_BLOCK), True, 0
    for g in range(len(cells)):
        power = 1.0
        for d in range(1, _POWERS + 1):
            power *= factor
            sums[d] += cells[g, d] * power
        while h < len(heavy) and heavy_keys[h] <= tops[g]:
            if heavy[h] * latest <= _FAINT:
                _add_powers(heavy[h] * latest, sums)
            else:
                arrival_chances(heavy[h], times, stay, come)
                _join_token(counts, stay, come)
                stale = True
            h += 1
        if asked[g]:
            if stale:
                # Faint tokens that move from A to H leave this product as it is.
                for m in range(_BLOCK):
                    expected = ahead[g + 1] * times[m] + sums[1] * shares[m]
                    wait[m] = node_weights[m] * math.exp(-expected)
                stale = False
            _missed(counts, sums, shares, work, fewer)
            total = 0.0
            for m in range(_BLOCK):
                total += wait[m] * fewer[m]
            hits[g + 1] += total
    _missed(counts, sums, shares, work, fewer)
    return fewer[-1] * math.exp(-sums[1])


@njit(cache=True)
def _hits(
    cells: FloatArray,
    tops: IntArray,
    asked: IntArray,
    ahead: FloatArray,
    heavy: FloatArray,
    heavy_keys: IntArray,
    horizon: float,
    num_draws: int,
    step: float,
    hits: FloatArray,
) -> None:
    """Fill in the hits asked for."""
    times, node_weights = np.empty(_BLOCK), np.empty(_BLOCK)
    s = _LOWEST_NODE
    while True:
        for m in range(_BLOCK):
            times[m], node_weights[m] = _node(s)
            s += step
        fewer = _add_block(
            cells,
            tops,
            asked,
            ahead,
            heavy,
            heavy_keys,
            horizon,
            num_draws,
            times,
            node_weights,
            hits,
        )
        if times[-1] >= horizon or (s > 1.0 and times[-1] * fewer < _NEGLIGIBLE):
            break
    for g in range(len(cells)):
        if asked[g]:
            hits[g + 1] = min(hits[g + 1] * ahead[g + 1] * step, 1.0)


@njit(cache=True)
def _places(
    keys: IntArray, owners: IntArray, num_owners: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Part the cells opened: part of each token, and lowest and highest key of each part."""
    size = len(keys)
    places = np.empty(size, dtype=np.int64)
    if size <= _FEW:
        order = falling_order(keys.view(np.float64))[::-1]
        bottoms, part = np.empty(size, dtype=np.int64), -1
        for i in order:
            if part < 0 or keys[i] != bottoms[part]:
                part += 1
                bottoms[part] = keys[i]
            places[i] = part
        return places, bottoms[: part + 1], bottoms[: part + 1].copy()
    lowest = np.full(num_owners, np.iinfo(np.int64).max)
    highest = np.full(num_owners, -1)
    for i in range(size):
        o = owners[i]
        lowest[o], highest[o] = min(lowest[o], keys[i]), max(highest[o], keys[i])
    # Up to so many parts: about as many as there will be tokens in those that are opened.
    most = 2.0 * math.sqrt(size / num_owners)
    shifts, starts = np.zeros(num_owners, dtype=np.int64), np.zeros(num_owners + 1, dtype=np.int64)
    for o in range(num_owners):
        starts[o + 1] = starts[o]
        if highest[o] >= 0:
            while (highest[o] - lowest[o]) >> shifts[o] >= most:
                shifts[o] += 1
            starts[o + 1] += ((highest[o] - lowest[o]) >> shifts[o]) + 1
    bottoms, tops = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1], dtype=np.int64)
    for o in range(num_owners):
        for k in range(starts[o], starts[o + 1]):
            bottoms[k] = lowest[o] + ((k - starts[o]) << shifts[o])
            tops[k] = min(lowest[o] + ((k + 1 - starts[o]) << shifts[o]) - 1, highest[o])
    for i in range(size):
        o = owners[i]
        places[i] = starts[o] + ((keys[i] - lowest[o]) >> shifts[o])
    return places, bottoms, tops


@njit(cache=True)
def _replace(
    cells: FloatArray,
    tops: IntArray,
    hits: FloatArray,
    opened: IntArray,
    parts: FloatArray,
    parts_top: IntArray,
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Put the parts of opened cells in their place: cells, highest keys, hits (-1: not known), part.

    The part that a cell is, or -1 for a cell that was there before.
    """
    most = len(cells) + len(parts)
    new_cells, new_tops = np.empty((most, cells.shape[1])), np.empty(most, dtype=np.int64)
    new_hits, part = np.full(most + 1, -1.0), np.full(most, -1)
    new_hits[0] = 1.0
    size, r = 0, 0
    for g in range(len(cells)):
        if opened[g] < 0:
            new_cells[size], new_tops[size] = cells[g], tops[g]
            size += 1
        while opened[g] >= 0 and r < len(parts) and parts_top[r] <= tops[g]:
            if parts[r, _Q] > 0.0:
                new_cells[size], new_tops[size], part[size] = parts[r], parts_top[r], r
                size += 1
            r += 1
        if size > 0:
            new_hits[size] = hits[g + 1]
    return new_cells[:size], new_tops[:size], new_hits[: size + 1], part[:size]


@njit(cache=True)
def _is_open(
    cell: FloatArray, below: float, hits: FloatArray, slopes: tuple[float, float], best: float
) -> bool:
    """Tell whether a cut inside a cell could come below the best value.

    `below` is p of the cells before it, `hits` are those before the cell joins H and after.
    """
    lower, upper = slopes
    if upper <= lower or cell[_P] <= 0.0:
        return False
    # Where the left tangent, of slope `upper`, meets the right one, of slope `lower`.
    share = (cell[_P] - lower * cell[_Q]) / (upper - lower)
    share = min(max(share, 0.0), cell[_Q])
    gained = min(upper * share, cell[_P])
    chord = hits[1] + (hits[0] - hits[1]) * share / cell[_Q]
    return below + (cell[_P] - gained) + chord < best * (1.0 - 1e-15)


@njit(cache=True, nogil=True, error_model="numpy")
def best_cut(p: FloatArray, q: FloatArray, num_draws: int, step: float) -> tuple[float, float]:
    """Best prefix for n draws without replacement, without a sort of all tokens.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities; more than `FEWEST_TOKENS` of q are positive.
    num_draws : int
        n in ``1 .. MOST_DRAWS``.
    step : float
        Of the nodes, as in `solvers.hitting`.

    Returns
    -------
    tuple of (float, float)
        The value of formulation (8), at most 1, and the largest ratio ``p / (q * MASS_SCALE)`` of
        the tokens in H: those with q = 0 and p > 0 lie in A.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.full(4000, 1 / 4000), np.repeat([0.4 / 2000, 0.6 / 2000], 2000)
    >>> value, cut = best_cut(p, q, 2, 0.2)
    >>> round(value, 4), int(np.sum(p / (q * MASS_SCALE) <= cut))
    (1.0, 4000)
    """
    masses, rates, ratios = np.empty(len(p)), np.empty(len(p)), np.empty(len(p))
    live = 0
    for i in range(len(p)):
        rate = q[i] * MASS_SCALE
        masses[live], rates[live], ratios[live] = p[i], rate, p[i] / rate + 0.0
        live += rate > 0.0
    masses, rates, ratios = masses[:live], rates[:live], ratios[:live]

    horizon = _last_node(_horizon(rates, num_draws), step)
    large = np.flatnonzero(rates * horizon > _FAINT)
    large = large[falling_order(ratios[large])[::-1]]
    heavy, heavy_keys = rates[large], ratios[large].view(np.int64)

    # To begin with, the tokens of ratio 0 are one cell, and all others another.
    owners = (ratios > 0.0).astype(np.int64)
    cells, tops = np.zeros((2, _POWERS + 2)), np.array([0, np.iinfo(np.int64).max])
    opened, hits = np.arange(2), np.array([1.0, -1.0, 0.0])
    best, cut = np.inf, np.int64(0)
    while True:
        keys = ratios.view(np.int64)
        places, bottoms, parts_top = _places(keys, owners, opened.max() + 1)
        parts = _deal(masses, rates, places, len(bottoms), horizon)
        cells, tops, hits, part = _replace(cells, tops, hits, opened, parts, parts_top)

        # Masses from each cell down, and from each cell up: a value near 0 keeps its digits.
        count = len(cells)
        below, ahead = np.zeros(count + 1), np.zeros(count + 1)
        for g in range(count):
            below[g + 1] = below[g] + cells[g, _P]
            ahead[count - 1 - g] = ahead[count - g] + cells[count - 1 - g, _Q]
        asked = hits[1:] < 0.0
        hits = np.maximum(hits, 0.0)
        _hits(cells, tops, asked, ahead, heavy, heavy_keys, horizon, num_draws, step, hits)
        if below[count] < best:
            best, cut = below[count], tops[count - 1]
        for g in range(count - 2, -1, -1):
            if asked[g] and below[g + 1] + hits[g + 1] < best:
                best, cut = below[g + 1] + hits[g + 1], tops[g]

        opened, found = np.full(count, -1), 0
        for g in range(count):
            r = part[g]
            if r >= 0 and _is_open(
                cells[g],
                below[g],
                hits[g : g + 2],
                (_ratio(bottoms[r]), _ratio(parts_top[r])),
                best,
            ):
                opened[g] = found
                found += 1
        if found == 0:
            return min(best, 1.0), _ratio(cut)
        owner_of_part = np.full(len(parts), -1)
        for g in range(count):
            if part[g] >= 0:
                owner_of_part[part[g]] = opened[g]
        owners = owner_of_part[places]
        inside = np.flatnonzero(owners >= 0)
        masses, rates, ratios = masses[inside], rates[inside], ratios[inside]
        owners = owners[inside]
