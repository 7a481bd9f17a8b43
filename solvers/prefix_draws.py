"""Subset selection for draws without replacement, without a sort.

Tokens are dealt into cells by the leading bits of the ratio p/q, and the hit function is worked out
at the ends of the cells only. It is concave along any chain of sets when drawn over their mass q
(q-convexity of its complement), so that inside a cell it lies over its chord, while p(A) lies under
its tangents: a floor below which no cut of the cell can come. Only the few cells whose floor leaves
room below the best value so far are looked into, cell by cell again or token by token.

Hits are those of `solvers.hitting`, node by node. What has not moved one by one, tokens whose rate
times the time is small, is counted by power sums of H as a whole, as in `solvers.arrivals`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ._compiled import compiled
from ._typing import BoolArray, FloatArray, IntArray
from .arrivals import SERIES as _EXPM1_POWERS
from .arrivals import join_token
from .hitting import (
    _BLOCK,
    _LOWEST_NODE,
    _NEGLIGIBLE,
    MASS_SCALE,
    _node,
    _step,
    arrival_chances,
)
from .sorting import falling_order

_POWERS, _FAINT = 8, 1.0 / 128.0
"""Power sums kept, of tokens with a rate times a time up to the second number."""

_UNBORN = 1e-30
"""A rate times a time below this: the token adds nothing to any sum of doubles near 1."""

FEWEST_TOKENS = 4096
"""Up to so many tokens that can be drawn, every prefix is sooner looked at."""

MOST_DRAWS = 16
"""Draws up to which every sum of products of arrivals, and every cell's, stays a number."""

_PARTS = 1024
"""Parts that the cells opened are cut into: single tokens where they have no more than these."""

_P, _Q = 0, _POWERS + 1
"""Columns of a cell's mass p and mass q; between them stand the power sums of its faint tokens."""


@compiled()
def _add_powers(x: float, sums: FloatArray) -> None:
    """Add x, x**2, ... to sums[1], sums[2], ..."""
    sums[1] += x
    if x > _UNBORN:  # else the powers would sink into slow subnormal numbers
        power = x
        for k in range(2, len(sums)):
            power *= x
            sums[k] += power


@compiled(error_model="numpy")
def _ratios(masses: FloatArray, rates: FloatArray) -> FloatArray:
    """Ratios of p to scaled q, infinite where q = 0."""
    ratios = np.empty(len(masses))
    for i in range(len(masses)):
        # Adding 0 takes the sign from a negative zero.
        ratios[i] = masses[i] / rates[i] + 0.0 if rates[i] > 0.0 else np.inf
    return ratios


@compiled()
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


@compiled(inline="always")
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


@compiled()
def _deal(
    masses: FloatArray,
    rates: FloatArray,
    keys: IntArray,
    horizon: float,
    places: NDArray[np.int32],
) -> tuple[FloatArray, IntArray, IntArray]:
    """Deal the tokens into cells by the bits of their ratios: cells, lowest key of each, highest.

    Cell 0 has those of ratio 0, and the last one those that are never drawn. Fills in the cell of
    each token.
    """
    never = np.array([np.inf]).view(np.int64)[0]
    lowest, highest = never, np.int64(0)
    for i in range(len(keys)):
        lowest = min(lowest, keys[i] if keys[i] > 0 else never)
        highest = max(highest, keys[i] if keys[i] < never else np.int64(0))
    lowest = min(lowest, highest)
    # Up to so many cells: about as many as there will be tokens in those that are opened.
    most, shift = 2.0 * math.sqrt(len(keys)), 0
    while (highest - lowest) >> shift >= most:
        shift += 1
    size = ((highest - lowest) >> shift) + 2
    bottoms, tops = np.zeros(size + 1, dtype=np.int64), np.zeros(size + 1, dtype=np.int64)
    for c in range(1, size):
        bottoms[c] = lowest + ((c - 1) << shift)
        tops[c] = min(lowest + (c << shift) - 1, highest)
    bottoms[size], tops[size] = never, never
    for i in range(len(keys)):
        c = ((keys[i] - lowest) >> shift) + 1 if keys[i] > 0 else 0
        places[i] = min(c, size)
    cells = np.zeros((size + 1, _POWERS + 2))
    for i in range(len(keys)):
        _add_token(cells, places[i], masses[i], rates[i], horizon)
    return cells, bottoms, tops


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _sum_block(
    reach: FloatArray, sums: FloatArray, shares: FloatArray, growth: FloatArray, chances: FloatArray
) -> float:
    """Sum over a block of nodes what fewer than n arrivals are worth at each.

    ``reach[k, m]`` is the weight of a node times the chance that nothing of A, nothing faint of H
    and at most k of its other tokens have arrived. The faint ones are known by the power sums of
    their x at the latest time; as in `count_faint`, j of them have arrived, beside none, with the
    weight ``chances[j, m]``: Newton's identities on the power sums `growth` of their ``expm1(x)``.
    """
    num_draws = len(reach)
    orders = min(num_draws - 1, _POWERS)
    for k in range(1, orders + 1):
        a1, a2 = _EXPM1_POWERS[k, 1] * sums[1], _EXPM1_POWERS[k, 2] * sums[2]
        a3, a4 = _EXPM1_POWERS[k, 3] * sums[3], _EXPM1_POWERS[k, 4] * sums[4]
        a5, a6 = _EXPM1_POWERS[k, 5] * sums[5], _EXPM1_POWERS[k, 6] * sums[6]
        a7, a8 = _EXPM1_POWERS[k, 7] * sums[7], _EXPM1_POWERS[k, 8] * sums[8]
        for m in range(_BLOCK):
            x = shares[m]
            higher = a5 + x * (a6 + x * (a7 + x * a8))
            growth[k, m] = x * (a1 + x * (a2 + x * (a3 + x * (a4 + x * higher))))
    total = 0.0
    for m in range(_BLOCK):
        chances[0, m] = 1.0
        total += reach[num_draws - 1, m]
    for j in range(1, num_draws):
        sign = 1.0 / j
        for m in range(_BLOCK):
            chances[j, m] = sign * growth[1, m] * chances[j - 1, m]
        for k in range(2, min(j, orders) + 1):
            sign = -sign
            for m in range(_BLOCK):
                chances[j, m] += sign * growth[k, m] * chances[j - k, m]
        for m in range(_BLOCK):
            chances[j, m] = max(chances[j, m], 0.0)
            total += chances[j, m] * reach[num_draws - 1 - j, m]
    return total


@compiled()
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
    growth, chances = np.empty((_POWERS + 1, _BLOCK)), np.empty((num_draws, _BLOCK))
    reach, stale, h = np.empty((num_draws, _BLOCK)), True, 0
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
                join_token(counts, stay, come)
                stale = True
            h += 1
        if asked[g] or g == len(cells) - 1:
            if stale:
                # A faint token that moves from A to H leaves these as they are.
                for m in range(_BLOCK):
                    expected = ahead[g + 1] * times[m] + sums[1] * shares[m]
                    left = node_weights[m] * math.exp(-expected)
                    reach[0, m] = left * counts[0, m]
                    for j in range(1, num_draws):
                        reach[j, m] = reach[j - 1, m] + left * counts[j, m]
                stale = False
            total = _sum_block(reach, sums, shares, growth, chances)
            hits[g + 1] += total if asked[g] else 0.0
    fewer = 0.0
    for j in range(num_draws):
        fewer += chances[j, -1] * reach[num_draws - 1 - j, -1]
    return float(fewer / node_weights[-1])


@compiled()
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


@compiled()
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
    return bool(below + (cell[_P] - gained) + chord < best * (1.0 - 1e-15))


@compiled()
def _gather(
    masses: FloatArray,
    rates: FloatArray,
    ratios: FloatArray,
    places: NDArray[np.int32],
    is_open: BoolArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses, rates and ratios of the tokens in open cells, lowest ratio first."""
    size = 0
    for i in range(len(places)):
        size += is_open[places[i]]
    found, unsorted, k = np.empty(size + 1, dtype=np.int64), np.empty(size), 0
    for i in range(len(places)):
        found[k] = i
        k += is_open[places[i]]
    for k in range(size):
        unsorted[k] = ratios[found[k]]
    order = falling_order(unsorted)
    inside = np.empty((3, size))
    for k in range(size):
        i = found[order[size - 1 - k]]
        inside[0, k], inside[1, k], inside[2, k] = masses[i], rates[i], ratios[i]
    return inside[0], inside[1], inside[2]


@compiled()
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
    most, wide = count, (inside + _PARTS - 1) // _PARTS
    for g in range(count):
        if is_open[g]:
            most += 2 * ((last[g] - first[g]) // wide + 1)
    new_cells, new_hits = np.zeros((most, cells.shape[1])), np.ones(most + 1)
    new_bottoms, new_tops = np.empty(most), np.empty(most)
    asked = np.zeros(most, dtype=np.bool_)
    size = 0
    for g in range(count):
        if not is_open[g]:
            for d in range(cells.shape[1]):
                new_cells[size, d] = cells[g, d]
            new_bottoms[size], new_tops[size] = tops[g], tops[g]
            size += 1
        place = first[g]
        # Less than all of the cell, so that two ratios at least are told apart.
        each = max(min(wide, last[g] - place - 1), 1)
        while is_open[g] and place < last[g]:
            start, stop = place, place
            while stop < last[g]:
                stop += 1
                while stop < last[g] and ratios[stop] == ratios[stop - 1]:
                    stop += 1
                if place > start and stop - start > each:
                    break
                while place < stop:
                    _add_token(new_cells, size, masses[place], rates[place], horizon)
                    place += 1
            new_bottoms[size], new_tops[size] = ratios[start], ratios[place - 1]
            asked[size] = place < last[g]
            size += 1
        new_hits[size] = hits[g + 1]
    return new_cells[:size], new_bottoms[:size], new_tops[:size], new_hits[: size + 1], asked[:size]


@compiled(nogil=True)
def best_cut(
    masses: FloatArray, rates: FloatArray, num_draws: int, step: float, most_single: int
) -> tuple[float, float]:
    """Best prefix for n draws without replacement, without a sort of all tokens.

    Parameters
    ----------
    masses : ndarray, shape (V,)
        Target probabilities p.
    rates : ndarray, shape (V,)
        Draw probabilities q times `MASS_SCALE`; `FEWEST_TOKENS` or more are positive.
    num_draws : int
        n in ``1 .. MOST_DRAWS``.
    step : float
        Of the nodes, as in `solvers.hitting`.
    most_single : int
        Tokens that may join H one by one, not being faint whenever anything is left to happen.

    Returns
    -------
    tuple of (float, float)
        The value of formulation (8), at most 1, and the largest ratio ``masses / rates`` of the
        tokens in H, among those that are ever drawn; NaN where more tokens than that join singly.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.repeat([0.9, 0.1], 90_000) / 90_000, np.repeat([0.4, 0.6], 90_000) / 90_000
    >>> value, cut = best_cut(p, q * MASS_SCALE, 2, 0.2, len(p))
    >>> round(value, 4), int(np.sum(p <= cut * q * MASS_SCALE))
    (0.74, 90000)
    """
    horizon = _horizon(rates, rates.view(np.int64), num_draws, step)
    places, singles = np.empty(len(rates), dtype=np.int32), 0
    for i in range(len(rates)):
        places[i] = rates[i] * horizon > _FAINT
        singles += places[i]
    if singles > most_single:
        return np.nan, np.nan
    ratios, is_open = _ratios(masses, rates), np.zeros(2, dtype=np.bool_)
    is_open[1] = True
    _, heavy, heavy_ratios = _gather(masses, rates, ratios, places, is_open)

    cells, lowest, highest = _deal(masses, rates, ratios.view(np.int64), horizon, places)
    count = len(cells) - 1
    cells, bottoms, tops = cells[:count], lowest.view(np.float64), highest.view(np.float64)
    hits, asked = np.ones(count + 1), np.zeros(count, dtype=np.bool_)
    for g in range(count):
        asked[g] = cells[g, _Q] > 0.0 and g < count - 1
    hits[count] = 0.0
    best, cut, is_sorted = np.inf, 0.0, False
    while True:
        count, any_open = len(cells), False
        below, is_open = np.zeros(count + 1), np.zeros(count + 1, dtype=np.bool_)
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
            best, cut = below[count], tops[count - 1]  # of A without a token
            for g in range(count - 1):
                hits[g + 1] = hits[g + 1] if asked[g] else hits[g]
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


def _applies(q: FloatArray, num_draws: int) -> bool:
    return num_draws <= MOST_DRAWS and int(np.count_nonzero(q)) >= FEWEST_TOKENS


def value_without_replacement(p: FloatArray, q: FloatArray, num_draws: int) -> float | None:
    """Value of the best prefix alone, from arrays that can be written to.

    Parameters
    ----------
    p, q, num_draws
        As for `prefix_without_replacement`.

    Returns
    -------
    float or None

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.repeat([0.9, 0.1], 90_000) / 90_000, np.repeat([0.4, 0.6], 90_000) / 90_000
    >>> round(value_without_replacement(p, q, 2), 4)
    0.74
    """
    if not _applies(q, num_draws):
        return None
    value, _ = best_cut(p, q * MASS_SCALE, num_draws, _step(num_draws), len(q) // 2)
    return None if math.isnan(value) else float(value)


def prefix_without_replacement(
    p: FloatArray, q: FloatArray, num_draws: int
) -> tuple[float, BoolArray] | None:
    """Best prefix for n successive draws, each without the tokens drawn before, in linear time.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    num_draws : int
        n >= 1.

    Returns
    -------
    tuple of (float, ndarray of bool, shape (V,)), or None
        The value of formulation (8), at most 1, and membership of H. None where looking at every
        prefix is as fast, with few tokens or few that are rarely drawn, or `best_cut` does not
        apply, with many draws.

    Notes
    -----
    The value agrees with that over all prefixes to rounding. Of subsets that are as good to
    rounding it may be another one.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.repeat([0.9, 0.1], 90_000) / 90_000, np.repeat([0.4, 0.6], 90_000) / 90_000
    >>> value, subset = prefix_without_replacement(p, q, 2)
    >>> round(value, 4), int(subset.sum())
    (0.74, 90000)
    >>> prefix_without_replacement(np.ones(2) / 2, np.ones(2) / 2, 2) is None
    True
    """
    if not _applies(q, num_draws):
        return None
    # New arrays, whatever may be written to: one compiled function for all.
    masses, rates = np.array(p, dtype=np.float64), q * MASS_SCALE
    # With more single tokens, which join at every level anew, one pass over all is as fast.
    value, cut = best_cut(masses, rates, num_draws, _step(num_draws), len(q) // 2)
    if math.isnan(value):
        return None
    drawn = rates > 0.0
    ratios = np.divide(masses, rates, out=masses, where=drawn)
    return value, np.where(drawn, ratios <= cut, ratios == 0.0)
