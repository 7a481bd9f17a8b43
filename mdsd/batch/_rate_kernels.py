"""Acceptance rates row by row in compiled code.

They add up masses that are accepted or met, so that a rate near 0 keeps its digits; but for the one
of recursive rejection without replacement, of which the rejections are what is known.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from mdsd._typing import AnyArray, FloatArray
from mdsd.batch._bound_kernels import most_likely, top_and_tail
from mdsd.batch._live_tokens import gather_live
from mdsd.verifiers._rejection_paths import path_tables
from mdsd.verifiers._rejection_rates import enumerate_rejection, pair_rejection, sample_rejection
from solvers.hitting import MASS_SCALE, _mean_token_hit

__all__ = [
    "FIRST",
    "KSEQ",
    "LAST",
    "MET",
    "MET_BY_TOP",
    "MET_BY_TOP_AND_ONE",
    "MET_WITHOUT",
    "RRS",
    "path_rate_rows",
    "rate_rows",
]

FIRST, LAST, RRS, KSEQ, MET, MET_WITHOUT, MET_BY_TOP, MET_BY_TOP_AND_ONE = range(8)
"""Rules of `rate_rows`.

`FIRST` is the single-draft rule for the first draft, with the others met by chance, and `LAST` the
one for the last draft, which is sampled off the top n - 1. `RRS` and `KSEQ` are those for drafts
with replacement. The others draw from the target, and look whether the token was met: by drafts
with replacement, without, by the top n, or by the top n - 1 and one more.
"""

_MULTIPLIED = 16
"""Draws up to which multiplying is faster than logarithms, and as exact."""


@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def _overlap(p: FloatArray, q: FloatArray, cap: float) -> float:
    """``sum min(p, c q)``."""
    total = 0.0
    for i in range(len(p)):
        offered = cap * q[i]
        total += p[i] if p[i] < offered else offered
    return total


@njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def _excess(p: FloatArray, q: FloatArray, cap: float) -> float:
    """Z(c): ``sum (p - c q)+``."""
    total = 0.0
    for i in range(len(p)):
        above = p[i] - cap * q[i]
        total += above if above > 0.0 else 0.0
    return total


@njit(cache=True, error_model="numpy")
def _any_of(chance: float, num_draws: int) -> float:
    """``1 - (1 - x)**n``, without cancellation."""
    if num_draws > _MULTIPLIED:
        return -math.expm1(num_draws * math.log1p(-chance)) if chance < 1.0 else 1.0
    met = 0.0
    for _ in range(num_draws):
        met += (1.0 - met) * chance
    return met


@njit(cache=True, error_model="numpy")
def _first_rate(p: FloatArray, q: FloatArray, num_others: int) -> float:
    """``sum min(p, q) + sum (p - q)+ (1 - (1 - q)**m)``, with m other drafts to meet."""
    value = _overlap(p, q, 1.0)
    if num_others > 0:
        for i in range(len(p)):
            if p[i] > q[i]:
                value += (p[i] - q[i]) * _any_of(q[i], num_others)
    return value


@njit(cache=True)
def _rrs_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """Raise the cap by the mass left above it, from round to round."""
    cap, before = 1.0, 1.0
    for _ in range(num_drafts - 1):
        left = _excess(p, q, cap)
        if left == before:
            break  # what is left is never drafted
        cap, before = cap + left, left
    return _overlap(p, q, cap)


@njit(cache=True, error_model="numpy")
def _kseq_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """``1 - (1 - beta)**n = rho beta`` at the rho in [1, n] where both sides are equal.

    The left side falls with rho and the right side, ``sum min(p, rho q)``, rises: at any rho the
    rate lies between the two, and where they agree to the last digits, it is known to these.
    """
    low, high = 1.0, float(num_drafts)
    taken = _overlap(p, q, low)
    below = _any_of(min(taken, 1.0), num_drafts) - taken
    if taken == 0.0 or below <= 0.0:
        return taken
    above = _any_of(min(_overlap(p, q, high) / high, 1.0), num_drafts) - _overlap(p, q, high)
    # False position, with the weight of an end that stays halved (Illinois); at every fourth step
    # the interval is, as the left side may be all but flat.
    side = 0
    for step in range(200):
        if not (below > above and high > low):
            break
        share = below / (below - above) if step % 4 < 3 else 0.5
        middle = min(max(low + (high - low) * share, low), high)
        taken = _overlap(p, q, middle)
        value = _any_of(min(taken / middle, 1.0), num_drafts) - taken
        if abs(value) <= 1e-14 * taken:
            break
        if value > 0.0:
            low, below = middle, value
            above *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            high, above = middle, value
            below *= 0.5 if side < 0 else 1.0
            side = -1
    return taken


@njit(cache=True)
def _met_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """``sum p (1 - (1 - q)**n)``."""
    value = 0.0
    for i in range(len(p)):
        value += p[i] * _any_of(q[i], num_drafts)
    return value


@njit(cache=True, error_model="numpy")
def _pair_hits(q: FloatArray) -> FloatArray:
    """Probability that either of two draws without replacement is each token.

    ``q_i + sum over j != i of q_j q_i / (1 - q_j)``: first, or second after another one.
    """
    # 1 - q as a sum of what remains where it would lose digits: for one token at most.
    most = int(np.argmax(q))
    others = 0.0
    for i in range(len(q)):
        others += q[i] if i != most else 0.0
    after = 0.0
    for i in range(len(q)):
        after += q[i] / (1.0 - q[i]) if i != most else 0.0
    after_most = q[most] / others
    hits = np.empty(len(q))
    for i in range(len(q)):
        apart = after if i == most else after - q[i] / (1.0 - q[i]) + after_most
        hits[i] = q[i] * (1.0 + apart)
    return hits


@njit(cache=True)
def _met_without_rate(p: FloatArray, q: FloatArray, num_drafts: int, step: float) -> float:
    """``sum p f({i})`` for drafts without replacement."""
    if num_drafts > 2:
        return _mean_token_hit(p, q * MASS_SCALE, num_drafts, step)
    hits, value = _pair_hits(q), 0.0
    for i in range(len(p)):
        value += p[i] * hits[i]
    return value


@njit(cache=True, error_model="numpy")
def _met_by_top_rate(p: FloatArray, q: FloatArray, num_top: int) -> float:
    """``p(T) + sum off T of p q~``."""
    top = most_likely(q, num_top)
    value, tail = 0.0, q.copy()
    for token in top:
        value += p[token]
        tail[token] = 0.0
    mass = tail.sum()
    for i in range(len(p)):
        value += p[i] * (tail[i] / mass)
    return value


@njit(cache=True)
def _rate(rule: int, p: FloatArray, q: FloatArray, num_drafts: int, step: float) -> float:
    if rule == FIRST:
        return _first_rate(p, q, num_drafts - 1)
    if rule == LAST:
        return top_and_tail(p, q, num_drafts - 1, True)
    if rule == RRS:
        return _rrs_rate(p, q, num_drafts)
    if rule == KSEQ:
        return _kseq_rate(p, q, num_drafts)
    if rule == MET_BY_TOP:
        return top_and_tail(p, q, num_drafts, False)
    if rule == MET_BY_TOP_AND_ONE:
        return _met_by_top_rate(p, q, num_drafts - 1)
    if rule == MET or num_drafts == 1:
        return _met_rate(p, q, num_drafts)
    return _met_without_rate(p, q, num_drafts, step)


@njit(cache=True, nogil=True)
def rate_rows(
    rule: int,
    num_drafts: int,
    step: float,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Compute the acceptance rate of each row by one of the rules above.

    Parameters
    ----------
    rule : int
        `FIRST`, `LAST`, ...
    num_drafts : int
        n.
    step : float
        Step of the nodes for drawing without replacement.
    target, drafted : ndarray of float64 or float32, shape (B, V)
        Unnormalised rows.
    target_masses, drafted_masses : ndarray, shape (B,)
        Their masses.
    values : ndarray, shape (B,)
        Filled for the rows ``start .. stop - 1``.
    start, stop : int
    """
    size = target.shape[1]
    p, q = np.empty(size), np.empty(size)
    for r in range(start, stop):
        live = gather_live(target[r], target_masses[r], drafted[r], drafted_masses[r], p, q)
        values[r] = min(_rate(rule, p[:live], q[:live], num_drafts, step), 1.0)


@njit(cache=True)
def _path_rate(p: FloatArray, q: FloatArray, num_drafts: int, paths: int, seed: np.uint64) -> float:
    tables = path_tables(p, q)
    if num_drafts == 2:
        rejected = pair_rejection(tables)
    elif (num_drafts - 1) * math.log(np.count_nonzero(q)) <= math.log(paths):
        rejected = enumerate_rejection(tables, num_drafts)
    else:
        rejected = sample_rejection(tables, num_drafts, paths, seed).mean()
    return min(max(1.0 - rejected, 0.0), 1.0)


@njit(cache=True, nogil=True)
def path_rate_rows(
    num_drafts: int,
    paths: int,
    seeds: AnyArray,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Compute or estimate the acceptance rate of recursive rejection without replacement.

    Parameters
    ----------
    num_drafts : int
        n >= 2.
    paths : int
        Rejection paths of an estimate; where there are no more than these, all are followed.
    seeds : ndarray of uint64, shape (B,)
        One for the estimate of each row.
    target, target_masses, drafted, drafted_masses, values, start, stop
        As for `rate_rows`.
    """
    size = target.shape[1]
    p, q = np.empty(size), np.empty(size)
    for r in range(start, stop):
        live = gather_live(target[r], target_masses[r], drafted[r], drafted_masses[r], p, q)
        values[r] = _path_rate(p[:live], q[:live], num_drafts, paths, seeds[r])
