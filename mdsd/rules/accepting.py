"""What the rules are made of: a test of one mass against another, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from mdsd.rules.arrays import namespace, number

Array = TypeVar("Array")

Reader = Callable[[Any, slice], Any]
"""Reads, of masses (..., V), the entries that a rule's tests of some drafts are about."""


class Tests(NamedTuple):
    """What a rule says of a row.

    Attributes
    ----------
    chances : sequence of array
        Probability that each test passes, at the tokens that the reader gave.
    residual : array, shape (..., V)
        Masses of the token emitted when every test failed, not normalised.
    """

    chances: Sequence[Any]
    residual: Any


def everywhere(masses: Any, drafts: slice) -> Any:
    """Read all tokens: any of them may be drafted."""
    return masses


def accept_probs(target_masses: Array, draft_masses: Any) -> Array:
    """Accept probabilities ``min(1, p / q)``, 0 where p = 0, with no warning where q = 0.

    A uniform is tested strictly against them, so mass 0 is never accepted, not even at u = 0.

    Examples
    --------
    >>> import numpy as np
    >>> accept_probs(np.array([0.0, 0.1, 0.9]), np.array([0.0, 0.2, 0.8])).tolist()
    [0.0, 0.5, 1.0]
    """
    xp = namespace(target_masses)
    larger = xp.maximum(target_masses, draft_masses)
    chances: Array = target_masses / xp.where(larger > 0.0, larger, number(larger, 1.0))
    return chances


def residual_or_target(masses: Array, target_probs: Any) -> Array:
    """Give the residual masses, (..., V), or the target where rounding left no residual at all.

    Every test then passes up to rounding, so the residual is hardly ever reached; when it is, a
    token of the target is emitted, never one of probability 0.
    """
    xp = namespace(masses)
    some = xp.any(masses > 0.0, axis=-1, keepdims=True)  # type: ignore[operator]
    residual: Array = xp.where(some, masses, target_probs)
    return residual


def left_over(wanted: Any, taken: Any) -> Any:
    """Give ``(wanted - taken)+``, or what was wanted where rounding leaves nothing of any row."""
    xp = namespace(wanted)
    return residual_or_target(xp.maximum(wanted - taken, number(wanted, 0.0)), wanted)
