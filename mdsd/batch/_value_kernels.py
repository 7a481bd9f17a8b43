"""Acceptance bounds and rates in closed form, row by row in compiled code.

Rates add up masses that are accepted or met, so that a rate near 0 keeps its digits.
"""

from __future__ import annotations

import numpy as np

from mdsd._solvers._compiled import compiled
from mdsd._solvers.hitting import MASS_SCALE, _mean_token_hit, _prefix_hits
from mdsd._solvers.prefix import prefix_with_replacement
from mdsd._solvers.rejection_caps import rejection_caps
from mdsd._solvers.sorting import falling_order
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._rules import Value
from mdsd.rules.kernels import MULTIPLIED, any_of_tries, excess, kseq_root_and_overlap, overlap
from mdsd.rules.rrs import FOLLOWED

_INSERTED = 256
"""Tokens that are sooner kept in order one by one than by sorting all."""


@compiled(nogil=True, error_model="numpy")
def live_pair(
    x: AnyArray, x_mass: float, y: AnyArray, y_mass: float
) -> tuple[FloatArray, FloatArray]:
    """Give the probabilities, p and q, of the tokens that one side at least can produce.

    Without the others, which are padding or were taken away by filters, a value is the same.

    Parameters
    ----------
    x, y : ndarray of float64 or float32, shape (V,)
        Unnormalised rows of target and draft.
    x_mass, y_mass : float
        Their masses.
    """
    p, q = np.empty(len(x)), np.empty(len(x))
    live = 0
    for i in range(len(x)):
        p[live], q[live] = x[i], y[i]
        # Counted on instead of branched on, which a processor would have to guess.
        live += (x[i] > 0.0) | (y[i] > 0.0)
    return p[:live] / x_mass, q[:live] / y_mass


@compiled(nogil=True, error_model="numpy")
def bound_over_all_prefixes(p: FloatArray, q: FloatArray, num_draws: int, step: float) -> float:
    """Compute the bound for drafts without replacement, looking at every prefix.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draft probabilities.
    num_draws : int
    step : float
        Of the nodes.
    """
    # Tokens that are never drawn lie in every best A and meet nothing.
    drawn = np.flatnonzero(q)
    # A ratio to a subnormal mass itself may be beyond all numbers.
    rates, ratios = q[drawn] * MASS_SCALE, np.empty(len(drawn))
    for k in range(len(drawn)):
        ratios[k] = p[drawn[k]] / rates[k]
    order = falling_order(ratios)
    hits = _prefix_hits(rates[order], num_draws, step)
    # p(H) from the far end, so that a value near 0 keeps its digits.
    best, outside = 1.0, 0.0
    for k in range(len(order), -1, -1):
        best = min(best, outside + hits[k])
        if k > 0:
            outside += p[drawn[order[k - 1]]]
    return best


@compiled(inner=True)
def _most_likely(q: FloatArray, count: int) -> IntArray:
    """Ids of the `count` largest entries, largest first, ties to the lowest id, in one pass."""
    if count > _INSERTED:
        return falling_order(q)[:count]
    top = np.empty(count + 1, dtype=np.int64)  # and a place for the one that falls out
    found = 0
    for i in range(len(q) if count else 0):
        if found == count and q[i] <= q[top[count - 1]]:
            continue
        place = found
        while place > 0 and q[top[place - 1]] < q[i]:
            top[place] = top[place - 1]
            place -= 1
        top[place] = i
        found = min(found + 1, count)
    return top[:count]


@compiled(inner=True, error_model="numpy")
def _top_and_tail(value: int, p: FloatArray, q: FloatArray, num_top: int) -> float:
    """``p(T)``, plus what one more token of law q~, off T, is worth: ``min(p, q~)`` or ``p q~``."""
    total, tail = 0.0, q.copy()
    for token in _most_likely(q, num_top):
        total += p[token]
        tail[token] = 0.0
    if value == Value.TOP:
        return total
    tail /= tail.sum()
    for i in range(len(p)):
        total += min(p[i], tail[i]) if value == Value.TOP_AND_ONE else p[i] * tail[i]
    return total


@compiled(inner=True, error_model="numpy")
def _first_rate(p: FloatArray, q: FloatArray, num_others: int) -> float:
    """``sum min(p, q) + sum (p - q)+ (1 - (1 - q)**m)``, with m other drafts to meet."""
    value = overlap(p, q, 1.0)
    if num_others > 0:
        for i in range(len(p)):
            if p[i] > q[i]:
                value += (p[i] - q[i]) * any_of_tries(q[i], num_others)
    return value


@compiled(inner=True)
def _rrs_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """Raise the cap by the mass left above it, from round to round."""
    if num_drafts > FOLLOWED:
        return overlap(p, q, rejection_caps(p, q, num_drafts).caps[-1])
    cap, before = 1.0, 1.0
    for _ in range(num_drafts - 1):
        left = excess(p, q, cap, 0, len(p))
        if left == before:
            break  # what is left is never drafted
        cap, before = cap + left, left
    return overlap(p, q, cap)


@compiled(inner=True)
def _met_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """``sum p (1 - (1 - q)**n)``."""
    met = np.zeros(len(p))
    if num_drafts > MULTIPLIED:
        for i in range(len(p)):
            met[i] = any_of_tries(q[i], num_drafts)
    else:
        # The same, a try of all tokens at a time: by vector instructions.
        for _ in range(num_drafts):
            for i in range(len(p)):
                met[i] += (1.0 - met[i]) * q[i]
    value = 0.0
    for i in range(len(p)):
        value += p[i] * met[i]
    return value


@compiled(inner=True, error_model="numpy")
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
    hits = np.empty(len(q))
    for i in range(len(q)):
        apart = after if i == most else after - q[i] / (1.0 - q[i])
        hits[i] = q[i] * (1.0 + apart)
        if i != most:
            # A ratio first: what is left of hardly anything is too little to divide by.
            hits[i] += q[most] * (q[i] / others)
    return hits


@compiled(inner=True)
def _met_without_rate(p: FloatArray, q: FloatArray, num_drafts: int, step: float) -> float:
    """``sum p f({i})`` for drafts without replacement."""
    if num_drafts > 2:
        return _mean_token_hit(p, q * MASS_SCALE, num_drafts, step)
    hits, value = _pair_hits(q), 0.0
    for i in range(len(p)):
        value += p[i] * hits[i]
    return value


@compiled(nogil=True)
def value_rows(
    value: int,
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
    """Compute a bound or a rate of each row.

    Parameters
    ----------
    value : int
        One of `Value`.
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
    for r in range(start, stop):
        p, q = live_pair(target[r], target_masses[r], drafted[r], drafted_masses[r])
        if value == Value.BOUND_WITH:
            found = prefix_with_replacement(p, q, num_drafts)[0]
        elif value == Value.BOUND_WITHOUT:
            found = bound_over_all_prefixes(p, q, num_drafts, step)
        elif value in (Value.TOP, Value.TOP_AND_ONE, Value.MET_BY_TOP_AND_ONE):
            found = _top_and_tail(value, p, q, num_drafts if value == Value.TOP else num_drafts - 1)
        elif value == Value.FIRST:
            found = _first_rate(p, q, num_drafts - 1)
        elif value == Value.RRS:
            found = _rrs_rate(p, q, num_drafts)
        elif value == Value.KSEQ:
            found = kseq_root_and_overlap(p, 1.0, q, 1.0, num_drafts)[1]
        elif value == Value.MET or num_drafts == 1:
            found = _met_rate(p, q, num_drafts)
        else:
            found = _met_without_rate(p, q, num_drafts, step)
        values[r] = min(found, 1.0)
