"""The rule of the greedy draft: the last draft against its own law, q off the others."""

from __future__ import annotations

from typing import Any

from mdsd.rules.accepting import Reader, Tests, everywhere
from mdsd.rules.arrays import namespace, number
from mdsd.rules.single import single_tests
from mdsd.rules.sums import marked

TESTED = slice(-1, None)
"""The draft that is tested; the others are met by the residual."""


def tail_law(q: Any, top: Any) -> Any:
    """Law of the last draft: q off the top tokens.

    Parameters
    ----------
    q : array, shape (..., V)
    top : array of int64, shape (..., n - 1)

    Returns
    -------
    array, shape (..., V)
    """
    xp = namespace(q)
    tail = xp.where(marked(top, q.shape[-1]), number(q, 0.0), q)
    return tail / xp.sum(tail, axis=-1, keepdims=True)


def greedy_tests(p: Any, tail: Any, at: Reader = everywhere) -> Tests:
    """Follow the single-draft rule for the last draft, whose law is `tail`."""
    return single_tests(p, tail, at, TESTED)
