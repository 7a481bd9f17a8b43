"""K-SEQ: the same test of every draft, by one factor rho."""

from __future__ import annotations

from typing import Any

from mdsd.rules.accepting import Reader, Tests, accept_probs, everywhere, left_over
from mdsd.rules.arrays import falling_order, full, namespace, number, places
from mdsd.rules.sums import any_of, running_sums, sums_after

TESTED = slice(None)
"""All drafts are tested, in draft order."""

_RAISED = 2.0**60
"""On both masses of a test: it changes none that float64 or float32 holds with all its digits."""

_SECTIONS = 64
"""Parts into which each step of the search for a root divides what is left of the interval."""

_STEPS = 10
"""Steps after which 64 parts each leave nothing of an interval in float64."""


def kseq_tests(p: Any, q: Any, rho: Any, count: int, at: Reader = everywhere) -> Tests:
    """Accept every draft with probability ``min(1, p / (rho q))``.

    Parameters
    ----------
    p, q : array, shape (..., V)
        The target, and the law of each draft.
    rho : array, shape (..., 1)
        The factor, of `kseq_root`.
    count : int
        n.
    at : callable, optional
        Reads the tested tokens; all of them by default.

    Returns
    -------
    Tests
        With one array of chances, for all drafts. The residual is p without what the tests emit, so
        that the emitted law is p whatever rounding did to rho.
    """
    xp = namespace(p)
    once = xp.minimum(p / rho, q)  # accepted by one test
    beta = xp.sum(once, axis=-1, keepdims=True)
    # n tests accept a token with its one-test mass times (1 - (1 - beta)**n) / beta.
    rate = any_of(beta, count) / xp.where(beta > 0.0, beta, number(p, 1.0))
    # Raised, so that what is subnormal keeps its digits as it is divided.
    chances = accept_probs(at(p, TESTED) * _RAISED / rho, at(q, TESTED) * _RAISED)
    return Tests([chances], left_over(p, once * rate))


def kseq_root(p: Any, q: Any, count: int) -> Any:
    """Find rho in [1, n] with ``1 - (1 - beta)**n = rho beta``, ``beta = sum min(p / rho, q)``.

    Parameters
    ----------
    p, q : array, shape (..., V)
    count : int
        n.

    Returns
    -------
    array, shape (..., 1)
        n where nothing is ever accepted, as every rho is a root then.

    Notes
    -----
    Along the tokens by p/q, the overlap ``sum min(p, rho q)`` is rho times a prefix of q plus what
    is left of p. The excess of the left side over the right one falls with rho, so its sign at the
    ratios says which prefix it is, and there the equation is one in rho alone.

    Examples
    --------
    >>> import numpy as np
    >>> kseq_root(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), 2).round(9).tolist()
    [1.456776436]
    """
    xp = namespace(p)
    start = full(p, (*p.shape[:-1], 1), 1.0)
    if count == 1:
        return start
    ratios = capped_ratios(p, q, count)
    order = falling_order(ratios)
    ratios, p, q = (xp.take_along_axis(x, order, axis=-1) for x in (ratios, p, q))
    # At the ratio of token k the overlap is p after k and ratio times q up to it.
    rho = xp.maximum(ratios, number(p, 1.0))
    beyond = _excess(sums_after(p) + rho * running_sums(q), rho, count) > 0.0
    smaller, zero = (ratios >= 1.0) & ~beyond, number(p, 0.0)  # of q, at the root
    drafted = xp.sum(xp.where(smaller, q, zero), axis=-1, keepdims=True)
    wanted = xp.sum(xp.where(smaller, zero, p), axis=-1, keepdims=True)

    width = float(count - 1)
    marks = places(p, _SECTIONS + 1, real=True)[1:] / _SECTIONS
    for _ in range(_STEPS):
        rho = start + width * marks
        before = _excess(wanted + rho * drafted, rho, count) >= 0.0
        passed = xp.sum(xp.where(before, number(p, 1.0), zero), axis=-1, keepdims=True)
        start = start + passed * (width / _SECTIONS)
        width /= _SECTIONS
    return xp.minimum(start + width, number(p, float(count)))


def _excess(overlap: Any, rho: Any, count: int) -> Any:
    """``1 - (1 - beta)**n - rho beta``, less what rounding could feign.

    Where target and draft agree the excess is flat, and rounding alone would decide.
    """
    xp = namespace(overlap)
    slack = 8.0 * float(xp.finfo(overlap.dtype).eps)
    return any_of(overlap / rho, count) - overlap - slack * overlap


def capped_ratios(p: Any, q: Any, count: int) -> Any:
    """Divide p by q, everything from n up, 1/0 too, being n and 0/0 being 0.

    Beyond n every order of the tokens is as good: rho is at most n, and so is the slope of the
    probability that one of n drafts is in a set.
    """
    xp = namespace(p)
    divisors = xp.maximum(q, p / count)
    return p / xp.where(divisors > 0.0, divisors, number(p, 1.0))
