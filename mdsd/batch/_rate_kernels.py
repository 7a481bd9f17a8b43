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
from mdsd.rules.kernels import any_of_tries, excess, kseq_root_and_overlap, overlap
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


@njit(cache=True, error_model="numpy")
def _first_rate(p: FloatArray, q: FloatArray, num_others: int) -> float:
    """``sum min(p, q) + sum (p - q)+ (1 - (1 - q)**m)``, with m other drafts to meet."""
    value = overlap(p, q, 1.0)
    if num_others > 0:
        for i in range(len(p)):
            if p[i] > q[i]:
                value += (p[i] - q[i]) * any_of_tries(q[i], num_others)
    return value


@njit(cache=True)
def _rrs_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """Raise the cap by the mass left above it, from round to round."""
    cap, before = 1.0, 1.0
    for _ in range(num_drafts - 1):
        left = excess(p, q, cap, 0, len(p))
        if left == before:
            break  # what is left is never drafted
        cap, before = cap + left, left
    return overlap(p, q, cap)


@njit(cache=True)
def _met_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """``sum p (1 - (1 - q)**n)``."""
    value = 0.0
    for i in range(len(p)):
        value += p[i] * any_of_tries(q[i], num_drafts)
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
        return kseq_root_and_overlap(p, 1.0, q, 1.0, num_drafts)[1]
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
