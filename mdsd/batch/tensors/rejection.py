"""Recursive rejection on the device, with replacement or without; with one draft the single rule.

The k-th test compares the residual ``(p - c q)+ / Z``, Z its mass, with what the drafts rejected so
far left of q, of mass s. A rejection raises c by Z / s.
"""

from __future__ import annotations

from typing import Any

from mdsd.batch.tensors.emission import Tests
from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import marked

__all__ = ["chances_of", "greedy_tests", "masses_left", "rejection_tests"]


def rejection_tests(space: Space, p: Any, q: Any, ids: Any, left: Any | None = None) -> Tests:
    """Find the chance of each draft once it is tested, and the residual when none passes.

    Parameters
    ----------
    space : Space
    p, q : array, shape (B, V)
        Target and draft probabilities.
    ids : array of int64, shape (B, n)
        Drafts.
    left : array, shape (B, n), optional
        Mass that is left of q when each draft is drawn; 1 where nothing is ever taken out.

    Returns
    -------
    Tests
    """
    xp = space.xp
    # By a power of two, which the caps are divided by: the cap of a rejection that leaves subnormal
    # draft mass would overflow otherwise.
    scale = 2.0**512 if space.is_double else 2.0**64
    q = q * scale
    drafted = xp.take_along_axis(q, ids, axis=-1)
    wanted = xp.take_along_axis(p, ids, axis=-1)
    cap = space.zeros(p.shape[0], 1)
    mass = cap + 1.0
    zero = space.number(0.0)
    chances, residual = [], p
    for k in range(ids.shape[1]):
        here, rest = slice(k, k + 1), scale if left is None else scale * left[:, k : k + 1]
        above = xp.maximum(wanted[:, here] - cap * drafted[:, here], zero)
        chances.append(chances_of(space, above / mass * rest, drafted[:, here]))
        higher = cap + mass / rest
        # A cap so high that the product overflows leaves nothing.
        masses = xp.maximum(p - higher * q, zero)
        sums = xp.sum(masses, axis=-1, keepdims=True)
        # Where rounding leaves no residual, that of the test before stays.
        some = sums > 0.0
        cap, mass = xp.where(some, higher, cap), xp.where(some, sums, mass)
        residual = xp.where(some, masses, residual)
    return Tests(xp.concat(chances, axis=-1), ids, residual)


def chances_of(space: Space, wanted: Any, drafted: Any) -> Any:
    """Divide masses, at most 1; a token that the target never emits has chance 0."""
    xp = space.xp
    sure = (wanted >= drafted) & (wanted > 0.0)
    divisors = xp.where(drafted > wanted, drafted, space.number(1.0))
    return xp.where(sure, space.number(1.0), wanted / divisors)


def masses_left(space: Space, q: Any, ids: Any) -> Any:
    """Mass of q when each of some distinct tokens is drawn without those before it.

    Returns
    -------
    array, shape (B, n)
        Sums of what remains, so that none loses digits however little it is.
    """
    xp = space.xp
    others = xp.where(marked(space, ids, q.shape[-1]), space.number(0.0), q)
    drafted = xp.flip(xp.take_along_axis(q, ids, axis=-1), axis=-1)
    sums = xp.sum(others, axis=-1, keepdims=True) + xp.cumulative_sum(drafted, axis=-1)
    # Before the first draw it is 1, whatever rounding makes of the sum.
    return xp.concat([space.zeros(q.shape[0], 1) + 1.0, xp.flip(sums, axis=-1)[:, 1:]], axis=-1)


def greedy_tests(space: Space, p: Any, q: Any, ids: Any) -> Tests:
    """Test the last draft against q off the others, its law; those are met by the residual."""
    xp = space.xp
    tail = xp.where(marked(space, ids[:, :-1], q.shape[-1]), space.number(0.0), q)
    return rejection_tests(space, p, tail / xp.sum(tail, axis=-1, keepdims=True), ids[:, -1:])
