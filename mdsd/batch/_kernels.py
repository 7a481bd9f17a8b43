"""Row by row in compiled code: surveys of probability vectors, verifications, checks of tuples.

A row of probabilities is a vector x with its mass; a probability is x_i / mass. Nothing is copied
that need not be: a draft that is accepted costs a handful of operations, a rejection one pass.

Every verifier here accepts against ``c q`` and draws its residual from ``(p - c q)+`` for some cap
c, so they share sums and draws. These sums are taken in whatever order vector instructions like,
and so differ from those of a plan in the last digits. Therefore each decision carries a bound on
that difference, and a row in which a uniform comes closer to a threshold than that is answered
`UNSURE`: its plan decides. What is returned is thus always what the plan returns.
"""

from __future__ import annotations

import math

import numpy as np

from mdsd._solvers._compiled import compiled
from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray
from mdsd.batch._rules import Rule
from mdsd.rules.kernels import excess, kseq_excess, kseq_root_and_overlap, overlap

UNSURE = -1
"""Answer for a row that rounding could decide either way."""

_EPS = 2.0**-52

_PAIRWISE = 128
"""Entries that numpy sums in one go; longer vectors are halved."""

_BLOCK = 512
"""Entries summed together while a draw looks for the place it falls on."""

_LARGEST_CAP = 1e12
"""Caps beyond this are left to the plan: little of a double's digits would remain."""


# --- survey --------------------------------------------------------------------------------------


@compiled(inner=True)
def _block_sum(row: AnyArray, start: int, count: int) -> float:
    """Sum up to `_PAIRWISE` entries as numpy does: eight running sums."""
    if count < 8:
        total = 0.0
        for i in range(start, start + count):
            total += np.float64(row[i])
        return total
    s0, s1 = np.float64(row[start]), np.float64(row[start + 1])
    s2, s3 = np.float64(row[start + 2]), np.float64(row[start + 3])
    s4, s5 = np.float64(row[start + 4]), np.float64(row[start + 5])
    s6, s7 = np.float64(row[start + 6]), np.float64(row[start + 7])
    whole = count - count % 8
    for i in range(start + 8, start + whole, 8):
        s0, s1 = s0 + np.float64(row[i]), s1 + np.float64(row[i + 1])
        s2, s3 = s2 + np.float64(row[i + 2]), s3 + np.float64(row[i + 3])
        s4, s5 = s4 + np.float64(row[i + 4]), s5 + np.float64(row[i + 5])
        s6, s7 = s6 + np.float64(row[i + 6]), s7 + np.float64(row[i + 7])
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for i in range(start + whole, start + count):
        total += np.float64(row[i])
    return total


@compiled(inner=True)
def pairwise_sum(row: AnyArray) -> float:
    """Sum in float64 in the order of `numpy.sum`, so that masses have the bits of `check_probs`.

    Halves are summed each by itself, on a stack of our own: numba's cache cannot hold recursion.
    """
    starts, counts = np.empty(64, dtype=np.int64), np.empty(64, dtype=np.int64)
    halves_done, lefts = np.zeros(64, dtype=np.int64), np.empty(64)
    starts[0], counts[0] = 0, len(row)
    depth, total = 0, 0.0
    while depth >= 0:
        start, count = starts[depth], counts[depth]
        half = count // 2
        half -= half % 8
        if count <= _PAIRWISE:
            total = _block_sum(row, start, count)
            depth -= 1
        elif halves_done[depth] == 0:
            halves_done[depth] = 1
            depth += 1
            starts[depth], counts[depth], halves_done[depth] = start, half, 0
        elif halves_done[depth] == 1:
            halves_done[depth], lefts[depth] = 2, total
            depth += 1
            starts[depth], counts[depth], halves_done[depth] = start + half, count - half, 0
        else:
            total += lefts[depth]
            depth -= 1
    return total


@compiled(nogil=True)
def survey_rows(
    rows: AnyArray, masses: FloatArray, positives: IntArray, start: int, stop: int
) -> None:
    """Sum rows and count their positive entries; the mass of a row with a bad entry is NaN.

    Parameters
    ----------
    rows : ndarray of float64 or float32, shape (R, V)
    masses, positives : ndarray, shape (R,)
        Filled for the rows ``start .. stop - 1``. An infinite entry shows in the mass.
    start, stop : int
    """
    size = rows.shape[1]
    for r in range(start, stop):
        row = rows[r]
        good, positive = 0, 0
        for i in range(size):
            good += row[i] >= 0.0
            positive += row[i] > 0.0
        positives[r] = positive
        masses[r] = pairwise_sum(row) if good == size else math.nan


# --- sums and draws ------------------------------------------------------------------------------


@compiled(inner=True, fastmath={"reassoc", "nsz", "contract"})
def _sum(x: AnyArray, start: int, stop: int) -> float:
    total = 0.0
    for i in range(start, stop):
        total += np.float64(x[i])
    return total


@compiled(inner=True)
def _slack(size: int) -> float:
    """Bound on the error of any sum of masses, a plan's running sums among them, of total 1."""
    return 4.0 * (size + 16) * _EPS


@compiled(inner=True)
def _draw(x: AnyArray, y: AnyArray, cap: float, goal: float, tolerance: float) -> int:
    """Token on which the running sum of ``(x - cap y)+`` passes `goal`, in token order.

    `tolerance` bounds what rounding may do to the running sum and to the goal.
    """
    size = len(x)
    passed = 0.0
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        block = excess(x, y, cap, start, stop)
        if passed + block <= goal + tolerance:
            passed += block
            continue
        for i in range(start, stop):
            before = passed
            passed += max(np.float64(x[i]) - cap * np.float64(y[i]), 0.0)
            if passed > goal - tolerance:
                if goal - before >= tolerance and passed - goal >= tolerance:
                    return i
                return UNSURE
        return UNSURE
    return UNSURE


@compiled(inner=True)
def _remaining(y: AnyArray, mass: float, removed: IntArray) -> float:
    """Mass of a row without some distinct tokens, as a sum of what remains where that matters."""
    gone = 0.0
    for token in removed:
        gone += np.float64(y[token])
    if gone <= 0.5 * mass:
        return mass - gone
    left, start = 0.0, 0
    for token in np.sort(removed):
        left += _sum(y, start, token)
        start = token + 1
    return left + _sum(y, start, len(y))


# --- one row of each rule ------------------------------------------------------------------------


@compiled(inner=True)
def _naive_row(x: AnyArray, x_mass: float, uniform: float) -> int:
    return _draw(x, x, 0.0, uniform * x_mass, _slack(len(x)))


@compiled(inner=True, error_model="numpy")
def _rrs_row(
    x: AnyArray,
    x_mass: float,
    y: AnyArray,
    y_mass: float,
    ids: IntArray,
    uniforms: FloatArray,
    shrinking: bool,
) -> int:
    """Recursive rejection; with one draft the single-draft verifier.

    The k-th test compares the residual ``(p - c q)+ / Z`` with q, or, where the drafts are drawn
    without replacement, with what the rejected tokens left of q, of mass s. A rejection raises c by
    Z / s, and Z is then the mass of p above c q.
    """
    slack = _slack(len(x))
    scale = x_mass / y_mass
    cap, mass, rest = 0.0, 1.0, 1.0
    cap_error, mass_error = 0.0, 0.0
    for k in range(len(ids)):
        p, q = x[ids[k]] / x_mass, y[ids[k]] / y_mass
        if shrinking and k > 0:
            rest = _remaining(y, y_mass, ids[:k]) / y_mass
        if p > 0.0:
            lever = rest / mass
            chance = (p / q - cap) * lever
            error = lever * (cap_error + 8.0 * _EPS * (p / q + cap))
            error += abs(chance) * (mass_error / mass + slack + 16.0 * _EPS)
            if uniforms[k] < chance - error:
                return int(ids[k])
            if not uniforms[k] >= chance + error:
                return UNSURE
        cap_error += (mass_error + mass * slack) / rest + 4.0 * _EPS * cap
        cap += mass / rest
        if not cap <= _LARGEST_CAP:
            return UNSURE
        mass = excess(x, y, cap * scale, 0, len(x)) / x_mass
        # Above the cap p exceeds c q, so that q holds at most 1/c there.
        mass_error = slack + cap_error * min(1.0, 1.0 / cap)
        if mass <= 8.0 * mass_error:
            return UNSURE
    goal = uniforms[len(ids)] * mass
    return _draw(x, y, cap * scale, goal * x_mass, 2.0 * mass_error * x_mass)


@compiled(inner=True)
def _greedy_row(
    x: AnyArray,
    x_mass: float,
    y: AnyArray,
    ids: IntArray,
    uniforms: FloatArray,
    tail: AnyArray,
) -> int:
    """Single-draft verification of the last draft against q off the others."""
    tail[:] = y
    for token in ids[:-1]:
        tail[token] = 0.0
    mass = _sum(tail, 0, len(tail))
    return _rrs_row(x, x_mass, tail, mass, ids[-1:], uniforms, False)


@compiled(inner=True, error_model="numpy")
def _spechub_row(
    x: AnyArray,
    x_mass: float,
    y: AnyArray,
    y_mass: float,
    ids: IntArray,
    uniforms: FloatArray,
    left: AnyArray,
    tail: AnyArray,
) -> int:
    """Test the other token, then the hub, each against what the earlier cases left of p.

    Off the hub the first case takes ``min(p, q)`` and both together take ``min(p, (1 + c) q)``,
    with c the mass of the hub over that of the others.
    """
    size = len(x)
    slack = _slack(size)
    first, second = ids[0], ids[1]
    # One of the two is the hub: the likelier, ties to the lowest id.
    q_first, q_second = y[first] / y_mass, y[second] / y_mass
    hub_first = q_first > q_second or (q_first == q_second and first < second)
    hub, other = (first, second) if hub_first else (second, first)
    tail[:] = y
    tail[hub] = 0.0
    others = _sum(tail, 0, size) / y_mass
    ratio = (y[hub] / y_mass) / others
    if not ratio <= _LARGEST_CAP:
        return UNSURE
    p, q = x[other] / x_mass, y[other] / y_mass
    if p > 0.0:
        chance = p / q
        error = chance * (slack + 16.0 * _EPS)
        if hub_first:
            chance = (chance - 1.0) / ratio
            error = (error + 8.0 * _EPS) / ratio + abs(chance) * slack
        if uniforms[0] < chance - error:
            return int(other)
        if not uniforms[0] >= chance + error:
            return UNSURE

    # The hub is reached with the mass its partners left, in the two cases in turn.
    scale = x_mass / y_mass
    wanted = x[hub] / x_mass
    above = excess(x, tail, scale, 0, size) - x[hub]  # mass of p above q, off the hub
    above_both = excess(x, tail, (1.0 + ratio) * scale, 0, size) - x[hub]
    target_others = x_mass - x[hub]
    reached = others - (target_others - above) / x_mass
    reached_second = y[hub] / y_mass - (above - above_both) / x_mass
    spent = 0.0
    for case in range(2):
        mass = reached if case == 0 else reached_second
        rest = wanted - spent
        asked = case == (1 if hub_first else 0)
        if asked and wanted > 0.0:
            if mass <= 16.0 * slack:
                return UNSURE
            chance = rest / mass
            error = 8.0 * slack * (1.0 + abs(chance)) / mass
            if uniforms[1] < chance - error:
                return int(hub)
            if not uniforms[1] >= chance + error:
                return UNSURE
        spent += min(mass, rest)
    rest = max(wanted - spent, 0.0)
    total = rest + above_both / x_mass
    tolerance = 16.0 * slack
    if total <= 8.0 * tolerance:
        return UNSURE
    left[:] = x
    left[hub] = rest * x_mass
    return _draw(
        left,
        tail,
        (1.0 + ratio) * scale,
        uniforms[2] * total * x_mass,
        tolerance * x_mass,
    )


@compiled(inner=True, error_model="numpy")
def _kseq_range(
    x: AnyArray, x_mass: float, y: AnyArray, y_mass: float, num_drafts: int
) -> tuple[float, float]:
    """Two numbers between which a plan's rho lies, equal up to rounding wherever that is known."""
    if num_drafts == 1:
        return 1.0, 1.0
    slack = (num_drafts + 1) * _slack(len(x))
    scale = x_mass / y_mass
    low, high = 1.0, float(num_drafts)
    middle, _ = kseq_root_and_overlap(x, x_mass, y, y_mass, num_drafts, slack)
    # A plan ends where its own excess all but vanishes, which is between two places at which the
    # sign is beyond doubt.
    width = 1e-13
    for _ in range(60):
        lower, upper = max(middle - width, low), min(middle + width, high)
        below = overlap(x, y, lower * scale) / x_mass
        above = overlap(x, y, upper * scale) / x_mass
        certain = lower == low or kseq_excess(below, lower, num_drafts) > slack * below
        if certain and (
            upper == high or kseq_excess(above, upper, num_drafts) < -slack * num_drafts * above
        ):
            return lower, upper
        width *= 4.0
    return low, high


@compiled(inner=True, error_model="numpy")
def _kseq_row(
    x: AnyArray,
    x_mass: float,
    y: AnyArray,
    y_mass: float,
    ids: IntArray,
    uniforms: FloatArray,
) -> int:
    """Make the same test ``u < p / (rho q)`` of every draft, then draw from ``(p - rho q)+``."""
    n = len(ids)
    low, high = 1.0, float(n)
    known = False
    for k in range(n):
        token = ids[k]
        p, q = x[token] / x_mass, y[token] / y_mass
        if p == 0.0:
            continue
        for _ in range(2):
            ratio = p / q
            # Many tests are decided by 1 <= rho <= n alone.
            passes = uniforms[k] < ratio / high * (1.0 - 16.0 * _EPS)
            fails = uniforms[k] >= ratio / low * (1.0 + 16.0 * _EPS)
            if passes or fails or known:
                break
            low, high = _kseq_range(x, x_mass, y, y_mass, n)
            known = True
        if passes:
            return int(token)
        if not fails:
            return UNSURE
    if not known:
        low, high = _kseq_range(x, x_mass, y, y_mass, n)
    scale = x_mass / y_mass
    tolerance = 8.0 * (n + 2) * _slack(len(x)) + 2.0 * (high - low)
    if overlap(x, y, high * scale) == 0.0:
        tolerance = _slack(len(x))  # nothing in common: the residual is p, whatever rho
    mass = excess(x, y, high * scale, 0, len(x)) / x_mass
    if mass <= 8.0 * tolerance:
        return UNSURE
    goal = uniforms[n] * mass
    return _draw(x, y, high * scale, goal * x_mass, tolerance * x_mass)


# --- batches -------------------------------------------------------------------------------------


@compiled(nogil=True, error_model="numpy")
def verify_rows(
    rule: int,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    ids: IntArray,
    uniforms: FloatArray,
    tokens: IntArray,
    start: int,
    stop: int,
) -> None:
    """Verify rows by one of the rules above.

    Parameters
    ----------
    rule : int
        One of `Rule`, but for `Rule.MARKS`.
    target, drafted : ndarray of float64 or float32, shape (B, V)
        Unnormalised rows.
    target_masses, drafted_masses : ndarray, shape (B,)
        Their masses.
    ids : ndarray of int64, shape (B, n)
        Drafts that can have been drawn.
    uniforms : ndarray, shape (B, number of uniforms)
    tokens : ndarray of int64, shape (B,)
        Filled for the rows ``start .. stop - 1``: the emitted token, or `UNSURE`.
    start, stop : int
    """
    size = target.shape[1] if rule in (Rule.SINGLE_LAST, Rule.SPECHUB) else 0
    tail = np.empty(size, dtype=drafted.dtype)
    left = np.empty(size)
    for r in range(start, stop):
        x, x_mass = target[r], target_masses[r]
        y, y_mass = drafted[r], drafted_masses[r]
        row, numbers = ids[r], uniforms[r]
        if rule == Rule.NAIVE:
            tokens[r] = _naive_row(x, x_mass, numbers[0])
        elif rule == Rule.SINGLE_FIRST:
            tokens[r] = _rrs_row(x, x_mass, y, y_mass, row[:1], numbers, False)
        elif rule == Rule.SINGLE_LAST:
            tokens[r] = _greedy_row(x, x_mass, y, row, numbers, tail)
        elif rule in (Rule.RRS_STEADY, Rule.RRS_SHRINKING):
            shrinking = rule == Rule.RRS_SHRINKING
            tokens[r] = _rrs_row(x, x_mass, y, y_mass, row, numbers, shrinking)
        elif rule == Rule.KSEQ:
            tokens[r] = _kseq_row(x, x_mass, y, y_mass, row, numbers)
        else:
            tokens[r] = _spechub_row(x, x_mass, y, y_mass, row, numbers, left, tail)


@compiled(nogil=True, error_model="numpy")
def tops_match(
    drafted: AnyArray,
    masses: FloatArray,
    tops: IntArray,
    matching: BoolArray,
    start: int,
    stop: int,
) -> None:
    """Tell whether each row of ids lists the most likely tokens, largest first, lowest id first.

    Parameters
    ----------
    drafted : ndarray of float64 or float32, shape (B, V)
    masses : ndarray, shape (B,)
    tops : ndarray of int64, shape (B, m)
    matching : ndarray of bool, shape (B,)
        Filled for the rows ``start .. stop - 1``.
    start, stop : int
    """
    count = tops.shape[1]
    for r in range(start, stop):
        row, mass = drafted[r], masses[r]
        matching[r] = True
        for k in range(1, count):
            before, after = row[tops[r, k - 1]] / mass, row[tops[r, k]] / mass
            if before < after or (before == after and tops[r, k - 1] >= tops[r, k]):
                matching[r] = False
        if count == 0 or not matching[r]:
            continue
        # In the right order, they are the top if no more than the others come before the last.
        last = tops[r, count - 1]
        least = np.float64(row[last]) / mass
        ahead = 0
        for i in range(len(row)):
            # A plan compares the quotients, which may be equal where the numbers are not.
            other = np.float64(row[i]) / mass
            ahead += (other > least) | ((other == least) & (i < last))
        matching[r] = ahead == count - 1
