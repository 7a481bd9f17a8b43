"""K-SEQ on the device: its root from one sort, then the same test of every draft."""

from __future__ import annotations

from typing import Any

from mdsd.batch.tensors.bounds import capped_ratios
from mdsd.batch.tensors.emission import Tests
from mdsd.batch.tensors.rejection import chances_of
from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import any_of, running_sums

__all__ = ["kseq_roots", "kseq_tests"]

_SECTIONS = 64
"""Parts into which each step of the search for a root divides what is left of the interval."""

_STEPS = 10
"""Steps after which 64 parts each leave nothing of an interval in float64."""


def kseq_tests(space: Space, p: Any, q: Any, ids: Any) -> Tests:
    """Find the chance ``min(1, p / (rho q))`` of each draft and the residual when none passes.

    Parameters
    ----------
    space : Space
    p, q : array, shape (B, V)
        Target and draft probabilities.
    ids : array of int64, shape (B, n)
        Drafts.

    Returns
    -------
    Tests
        The residual is p without what the tests emit, so that the emitted law is p whatever
        rounding did to rho.
    """
    xp, count = space.xp, ids.shape[1]
    rho = kseq_roots(space, p, q, count)
    once = xp.minimum(p / rho, q)  # accepted by one test
    beta = xp.sum(once, axis=-1, keepdims=True)
    some = beta > 0.0
    # n tests accept a token with its one-test mass times (1 - (1 - beta)**n) / beta.
    rate = any_of(space, beta, count) / xp.where(some, beta, space.number(1.0))
    masses = xp.maximum(p - once * rate, space.number(0.0))
    residual = xp.where(xp.sum(masses, axis=-1, keepdims=True) > 0.0, masses, p)
    wanted, drafted = (xp.take_along_axis(x, ids, axis=-1) for x in (p, q))
    return Tests(chances_of(space, wanted / rho, drafted), ids, residual)


def kseq_roots(space: Space, p: Any, q: Any, count: int) -> Any:
    """Find rho in [1, n] with ``1 - (1 - beta)**n = rho beta``, ``beta = sum min(p / rho, q)``.

    Returns
    -------
    array, shape (B, 1)

    Notes
    -----
    Along the tokens by p/q, the overlap ``sum min(p, rho q)`` is rho times a prefix of q plus what
    is left of p. The excess of the left side over the right one falls with rho, so its sign at the
    ratios says which prefix it is, and there the equation is one in rho alone.
    """
    xp = space.xp
    if count == 1:
        return space.zeros(p.shape[0], 1) + 1.0
    ratios = capped_ratios(space, p, q, count)
    order = xp.argsort(ratios, axis=-1, descending=True, stable=False)
    ratios, p, q = (xp.take_along_axis(x, order, axis=-1) for x in (ratios, p, q))
    above = xp.flip(running_sums(space, xp.flip(p, axis=-1)), axis=-1)
    # At the ratio of token k the overlap is p after k and ratio times q up to it.
    rho = xp.maximum(ratios, space.number(1.0))
    overlap = (above - p) + rho * running_sums(space, q)
    smaller = (ratios >= 1.0) & ~_exceeds(space, overlap, rho, count)  # of q, at the root
    zero = space.number(0.0)
    drafted = xp.sum(xp.where(smaller, q, zero), axis=-1, keepdims=True)
    wanted = xp.sum(xp.where(smaller, zero, p), axis=-1, keepdims=True)

    start = space.zeros(p.shape[0], 1) + 1.0
    width = float(count - 1)
    marks = xp.astype(space.places(_SECTIONS + 1), space.real)[None, 1:] / _SECTIONS
    for _ in range(_STEPS):
        rho = start + width * marks
        positive = _exceeds(space, wanted + rho * drafted, rho, count)
        passed = xp.sum(xp.astype(positive, space.real), axis=-1, keepdims=True)
        start = start + passed * (width / _SECTIONS)
        width /= _SECTIONS
    return xp.minimum(start + width, space.number(float(count)))


def _exceeds(space: Space, overlap: Any, rho: Any, count: int) -> Any:
    """Tell whether rho is below the root, by more than rounding could feign.

    Where target and draft agree the excess is flat, and rounding alone would decide.
    """
    return any_of(space, overlap / rho, count) - overlap > 8.0 * space.epsilon * overlap
