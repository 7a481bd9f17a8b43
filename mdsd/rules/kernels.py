"""The same sums in compiled code, and the root of K-SEQ by them, without sorting.

A search on a device cannot stop when it is done, as it would have to tell the host; one in compiled
code can, and takes about ten passes. Hence a second statement of the root, which plans and the
batches of the host share; `mdsd.rules.kseq.kseq_root` must agree.
"""

from __future__ import annotations

import math

import numpy as np

from mdsd._solvers._compiled import compiled
from mdsd._typing import AnyArray, FloatArray

MULTIPLIED = 16
"""Tries up to which multiplying is faster than logarithms, and as exact."""

_LEAST_NORMAL, _RAISED = 2.0**-1022, 2.0**512
"""Products below the first lose digits, but not once masses are multiplied by the second."""


@compiled(fastmath={"reassoc", "nsz", "contract"})
def overlap(x: AnyArray, y: AnyArray, cap: float) -> float:
    """Sum of ``min(x, cap y)``."""
    total = 0.0
    for i in range(len(x)):
        wanted, offered = np.float64(x[i]), cap * np.float64(y[i])
        total += wanted if wanted < offered else offered
    return total


@compiled(fastmath={"reassoc", "nsz", "contract"})
def excess(x: AnyArray, y: AnyArray, cap: float, start: int, stop: int) -> float:
    """Sum of ``(x - cap y)+`` over a range of tokens."""
    total = 0.0
    for i in range(start, stop):
        above = np.float64(x[i]) - cap * np.float64(y[i])
        total += above if above > 0.0 else 0.0
    return total


@compiled()
def find_token(sums: FloatArray, uniform: float) -> int:
    """Find the token that a uniform falls on, by running sums: `mdsd._random.find_tokens`."""
    if sums[-1] < _LEAST_NORMAL:
        raised = sums * _RAISED
        found = np.searchsorted(raised, uniform * raised[-1], side="right")
    else:
        found = np.searchsorted(sums, uniform * sums[-1], side="right")
    # Where rounding lets the goal reach the total, the last token with mass is drawn.
    return int(min(found, np.searchsorted(sums, sums[-1])))


@compiled()
def find_residual(masses: FloatArray, taken: FloatArray, uniform: float) -> int:
    """Find the token of what is left of masses, or of the masses where rounding leaves nothing."""
    sums, total = np.empty(len(masses)), 0.0
    for i in range(len(masses)):
        total += max(masses[i] - taken[i], 0.0)
        sums[i] = total
    return find_token(sums if total > 0.0 else np.cumsum(masses), uniform)


@compiled(error_model="numpy")
def any_of_tries(chance: float, count: int) -> float:
    """``1 - (1 - x)**n``, without cancellation: `mdsd.rules.sums.any_of`."""
    if count > MULTIPLIED:
        return -math.expm1(count * math.log1p(-chance)) if chance < 1.0 else 1.0
    met = 0.0
    for _ in range(count):
        met += (1.0 - met) * chance
    return met


@compiled(error_model="numpy")
def kseq_excess(taken: float, rho: float, count: int) -> float:
    """``1 - (1 - beta)**n - rho beta`` at an overlap ``rho beta``; it falls with rho."""
    return any_of_tries(min(taken / rho, 1.0), count) - taken


@compiled(error_model="numpy")
def kseq_root_and_overlap(
    x: AnyArray, x_mass: float, y: AnyArray, y_mass: float, count: int, tolerance: float = 1e-14
) -> tuple[float, float]:
    """Find K-SEQ's rho, and ``sum min(p, rho q)`` at it, the probability that a draft is accepted.

    Parameters
    ----------
    x, y : ndarray of float64 or float32, shape (V,)
        p and q, not normalised.
    x_mass, y_mass : float
        Their masses.
    count : int
        n.
    tolerance : float, default 1e-14
        Difference of the two sides of the equation, relative to them, that will do.

    Returns
    -------
    tuple of float
        n and 0 where nothing is ever accepted. The two sides of the equation, between which the
        probability lies, agree to the last digits.
    """
    low, high, scale = 1.0, float(count), x_mass / y_mass
    taken = overlap(x, y, scale) / x_mass
    if taken == 0.0:
        return high, taken
    below = kseq_excess(taken, low, count)
    if below <= 0.0:
        return low, taken
    above = kseq_excess(overlap(x, y, high * scale) / x_mass, high, count)
    # False position, with the weight of an end that stays halved (Illinois); at every fourth step
    # the interval is, as the left side may be all but flat.
    middle, side = low, 0
    for step in range(200):
        if not (below > above and high > low):
            break
        share = below / (below - above) if step % 4 < 3 else 0.5
        middle = min(max(low + (high - low) * share, low), high)
        taken = overlap(x, y, middle * scale) / x_mass
        value = kseq_excess(taken, middle, count)
        if abs(value) <= tolerance * taken:
            break
        if value > 0.0:
            low, below = middle, value
            above *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            high, above = middle, value
            below *= 0.5 if side < 0 else 1.0
            side = -1
    return middle, taken
