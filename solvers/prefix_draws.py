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

from solvers._typing import BoolArray, FloatArray, IntArray
from solvers.grouped_draws import (
    _EXPM1_POWERS,
    _FAINT,
    _POWERS,
    _UNBORN,
    _add_powers,
    _join_token,
)
from solvers.hitting import _BLOCK, _LOWEST_NODE, _NEGLIGIBLE, MASS_SCALE, _node, arrival_chances
from solvers.sorting import falling_order

FEWEST_TOKENS = 2048
"""Up to so many tokens that can be drawn, every prefix is sooner looked at."""

MOST_DRAWS = 16
"""Draws up to which every sum of products of arrivals, and every cell's, stays a number."""

_PARTS = 1024
"""Parts that the cells opened are cut into: single tokens where they have no more than these."""

_P, _Q = 0, _POWERS + 1
"""Columns of a cell's mass p and mass q; between them stand the power sums of its faint tokens."""


@njit(cache=True, error_model="numpy")
def _compact(
    p: FloatArray, q: FloatArray, masses: FloatArray, rates: FloatArray, ratios: FloatArray
) -> int:
    """Fill in p, scaled q and p over that of the tokens that can be drawn; give their number."""
    live = 0
    for i in range(len(p)):
        rate = q[i] * MASS_SCALE
        masses[live], rates[live] = p[i], rate
        ratios[live] = p[i] / rate + 0.0  # which takes the sign from a negative zero
        live += rate > 0.0
    return live


@njit(cache=True)
def _horizon(rates: FloatArray, exponents: IntArray, num_draws: int, step: float) -> float:
    """Last node by which fewer than n tokens have arrived with a chance that anything notices.

    With mu arrivals expected, that chance is ``exp(-mu) (e mu / (n - 1))**(n - 1)`` at most
    (Chernoff), and mu is known from below by the mass of each octave of rates.
    """
    octaves = np.zeros(2048)
    for i in range(len(rates)):
        octaves[exponents[i] >> 52] += rates[i]
    time, others = 1.0 / MASS_SCALE, num_draws - 1
    while True:
        expected = 0.0
        for e in range(2048):
            if octaves[e] > 0.0:
                most = 2.0 ** (e - 1022) * time
                expected += octaves[e] * time * (-math.expm1(-most) / most if most > 1e-9 else 1.0)
        log_chance = -expected
        if others > 0 and expected > others:
            log_chance += others * (1.0 + math.log(expected / others))
        if expected > others and math.log(time) + log_chance < math.log(_NEGLIGIBLE):
            break
        time *= 2.0
    s = _LOWEST_NODE + (_BLOCK - 1) * step
    while _node(s)[0] < time:
        s += _BLOCK * step
    return _node(s)[0]


@njit(cache=True)
def _heaviest(
    rates: FloatArray, ratios: FloatArray, horizon: float
) -> tuple[FloatArray, FloatArray]:
    """Rates and ratios of the tokens that are not faint at the horizon, lowest ratio first."""
    size, found = 0, np.empty(len(rates), dtype=np.int64)
    for i in range(len(rates)):
        found[size] = i
        size += rates[i] * horizon > _FAINT
    unsorted = np.empty(size)
    for k in range(size):
        unsorted[k] = ratios[found[k]]
    order = falling_order(unsorted)
    heavy, heavy_ratios = np.empty(size), np.empty(size)
    for k in range(size):
        i = order[size - 1 - k]
        heavy[k], heavy_ratios[k] = rates[found[i]], unsorted[i]
    return heavy, heavy_ratios


@njit(cache=True, inline="always")
def _add_token(cells: FloatArray, c: int, mass: float, rate: float, horizon: float) -> None:
    """Add p, the powers of x at the horizon if the token is faint by then, and q."""
    cells[c, _P] += mass
    cells[c, _Q] += rate
    x = rate * horizon
    if x <= _FAINT:
        cells[c, 1] += x
        if x > _UNBORN:  # else the powers would sink into slow subnormal numbers
            x2 = x * x
            x4 = x2 * x2
            cells[c, 2] += x2
            cells[c, 3] += x2 * x
            cells[c, 4] += x4
            cells[c, 5] += x4 * x
            cells[c, 6] += x4 * x2
            cells[c, 7] += x4 * x2 * x
            cells[c, 8] += x4 * x4


@njit(cache=True)
def _deal(
    masses: FloatArray,
    rates: FloatArray,
    keys: IntArray,
    horizon: float,
    places: IntArray,
) -> tuple[FloatArray, IntArray]:
    """Deal the tokens into cells by the bits of their ratios: cells, and highest key of each.

    Cell 0 has those of ratio 0. Fills in the cell of each token.
    """
    lowest, highest = np.int64(np.iinfo(np.int64).max), np.int64(1)
    for i in range(len(keys)):
        lowest = min(lowest, keys[i] if keys[i] > 0 else lowest)
        highest = max(highest, keys[i])
    lowest = min(lowest, highest)
    # Up to so many cells: about as many as there will be tokens in those that are opened.
    most, shift = 2.0 * math.sqrt(len(keys)), 0
    while (highest - lowest) >> shift >= most:
        shift += 1
    size = ((highest - lowest) >> shift) + 2
    tops = np.zeros(size, dtype=np.int64)
    for c in range(1, size):
        tops[c] = min(lowest + (c << shift) - 1, highest)
    for i in range(len(keys)):
        places[i] = ((keys[i] - lowest) >> shift) + 1 if keys[i] > 0 else 0
    cells = np.zeros((size, _POWERS + 2))
    for i in range(len(keys)):
        _add_token(cells, places[i], masses[i], rates[i], horizon)
    return cells, tops


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
    tops: FloatArray,
    asked: BoolArray,
    ahead: FloatArray,
    heavy: FloatArray,
    heavy_ratios: FloatArray,
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
        while h < len(heavy) and heavy_ratios[h] <= tops[g]:
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
def _value_at_ends(
    cells: FloatArray,
    tops: FloatArray,
    asked: BoolArray,
    heavy: FloatArray,
    heavy_ratios: FloatArray,
    horizon: float,
    num_draws: int,
    step: float,
    below: FloatArray,
    hits: FloatArray,
) -> tuple[float, float]:
    """Give the best value at the ends asked for, and the largest ratio in H there.

    Fills in p of all cells before each end, and the hits asked for; others stay as they are.
    """
    count = len(cells)
    ahead = np.zeros(count + 1)
    for g in range(count):
        # From either side, so that a value near 0 keeps its digits.
        below[g + 1] = below[g] + cells[g, _P]
        ahead[count - 1 - g] = ahead[count - g] + cells[count - 1 - g, _Q]
        if asked[g]:
            hits[g + 1] = 0.0
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
            heavy_ratios,
            horizon,
            num_draws,
            times,
            node_weights,
            hits,
        )
        if times[-1] >= horizon or (s > 1.0 and times[-1] * fewer < _NEGLIGIBLE):
            break
    best, cut = np.inf, 0.0
    for g in range(count - 1, -1, -1):
        if asked[g]:
            hits[g + 1] = min(hits[g + 1] * ahead[g + 1] * step, 1.0)
            if below[g + 1] + hits[g + 1] < best:
                best, cut = below[g + 1] + hits[g + 1], tops[g]
    return best, cut


@njit(cache=True)
def _is_open(
    cell: FloatArray, lower: float, upper: float, below: float, hits: FloatArray, best: float
) -> bool:
    """Tell whether a cut inside a cell, of ratios between two, could come below the best value.

    `below` is p of the cells before it, and `hits` are those before it joins H and after.
    """
    if upper <= lower or cell[_P] <= 0.0:
        return False
    # Where the left tangent, of slope `upper`, meets the right one, of slope `lower`.
    share = (cell[_P] - lower * cell[_Q]) / (upper - lower)
    share = min(max(share, 0.0), cell[_Q])
    gained = min(upper * share, cell[_P])
    chord = hits[1] + (hits[0] - hits[1]) * share / cell[_Q]
    return below + (cell[_P] - gained) + chord < best * (1.0 - 1e-15)


@njit(cache=True)
def _gather(
    masses: FloatArray,
    rates: FloatArray,
    ratios: FloatArray,
    places: IntArray,
    is_open: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses, rates and ratios of the tokens in open cells, lowest ratio first."""
    size, found = 0, np.empty(len(places), dtype=np.int64)
    for i in range(len(places)):
        found[size] = i
        size += is_open[places[i]]
    unsorted = np.empty(size)
    for k in range(size):
        unsorted[k] = ratios[found[k]]
    order = falling_order(unsorted)
    inside = np.empty((3, size))
    for k in range(size):
        i = found[order[size - 1 - k]]
        inside[0, k], inside[1, k], inside[2, k] = masses[i], rates[i], ratios[i]
    return inside[0], inside[1], inside[2]


@njit(cache=True)
def _split(
    cells: FloatArray,
    tops: FloatArray,
    hits: FloatArray,
    is_open: BoolArray,
    masses: FloatArray,
    rates: FloatArray,
    ratios: FloatArray,
    horizon: float,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, BoolArray]:
    """Put parts in the place of open cells: cells, lowest ratio, highest, hits, ends to ask for.

    The tokens of the open cells, perhaps among others, are those given, lowest ratio first. Tokens
    of one ratio stay together.
    """
    count = len(cells)
    first, last = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    inside, place = 0, 0
    for g in range(count):
        first[g] = place
        while place < len(ratios) and ratios[place] <= tops[g]:
            place += 1
        last[g] = place
        if is_open[g]:
            inside += last[g] - first[g]
    each = (inside + _PARTS - 1) // _PARTS
    most = count
    for g in range(count):
        if is_open[g]:
            most += (last[g] - first[g]) // each
    new_cells, new_hits = np.zeros((most, cells.shape[1])), np.ones(most + 1)
    new_bottoms, new_tops = np.empty(most), np.empty(most)
    asked = np.zeros(most, dtype=np.bool_)
    size = 0
    for g in range(count):
        if not is_open[g]:
            new_cells[size], new_bottoms[size], new_tops[size] = cells[g], tops[g], tops[g]
            size += 1
        place = first[g]
        while is_open[g] and place < last[g]:
            start, stop = place, min(place + each, last[g])
            while place < stop or (place < last[g] and ratios[place] == ratios[place - 1]):
                _add_token(new_cells, size, masses[place], rates[place], horizon)
                place += 1
            new_bottoms[size], new_tops[size] = ratios[start], ratios[place - 1]
            asked[size] = place < last[g]
            size += 1
        new_hits[size] = hits[g + 1]
    return new_cells[:size], new_bottoms[:size], new_tops[:size], new_hits[: size + 1], asked[:size]


@njit(cache=True, nogil=True)
def best_cut(p: FloatArray, q: FloatArray, num_draws: int, step: float) -> tuple[float, float]:
    """Best prefix for n draws without replacement, without a sort of all tokens.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities; `FEWEST_TOKENS` of q or more are positive.
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
    (0.95, 4000)
    """
    masses, rates, ratios = np.empty(len(p)), np.empty(len(p)), np.empty(len(p))
    live = _compact(p, q, masses, rates, ratios)
    masses, rates, ratios = masses[:live], rates[:live], ratios[:live]
    horizon = _horizon(rates, rates.view(np.int64), num_draws, step)
    heavy, heavy_ratios = _heaviest(rates, ratios, horizon)

    places = np.empty(live, dtype=np.int64)
    cells, top_keys = _deal(masses, rates, ratios.view(np.int64), horizon, places)
    tops = top_keys.view(np.float64)
    bottoms, asked, hits = (
        np.zeros(len(cells)),
        np.empty(len(cells), np.bool_),
        np.ones(len(cells) + 1),
    )
    for g in range(len(cells)):
        if g > 0:
            bottoms[g] = tops[g - 1]
        asked[g] = cells[g, _Q] > 0.0 and g < len(cells) - 1
    hits[-1] = 0.0
    best, cut, is_sorted = np.inf, 0.0, False
    while True:
        count = len(cells)
        below, is_open, any_open = np.zeros(count + 1), np.zeros(count, np.bool_), False
        found = _value_at_ends(
            cells,
            tops,
            asked,
            heavy,
            heavy_ratios,
            horizon,
            num_draws,
            step,
            below,
            hits,
        )
        if not is_sorted:
            best, cut = below[count], tops[count - 1]  # that of A without a token
            for g in range(count - 1):
                if not asked[g]:
                    hits[g + 1] = hits[g]
        if found[0] < best:
            best, cut = found
        for g in range(count):
            is_open[g] = _is_open(cells[g], bottoms[g], tops[g], below[g], hits[g : g + 2], best)
            any_open |= is_open[g]
        if not any_open:
            return min(best, 1.0), cut
        if not is_sorted:
            masses, rates, ratios = _gather(masses, rates, ratios, places, is_open)
            is_sorted = True
        cells, bottoms, tops, hits, asked = _split(
            cells, tops, hits, is_open, masses, rates, ratios, horizon
        )
