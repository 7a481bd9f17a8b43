"""From accept tests and a residual to the emitted token of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import draw

__all__ = ["Tests", "emit", "first_match"]


@dataclass(frozen=True, eq=False)
class Tests:
    """The exact law of a batch of verifications: tests in turn, then a draw.

    Attributes
    ----------
    chances : array, shape (B, m)
        Probability that the k-th test passes once it is made.
    tested : array of int64, shape (B, m)
        The token that it emits.
    residual : array, shape (B, V)
        Masses of the token emitted when every test failed, not normalised.
    """

    chances: Any
    tested: Any
    residual: Any


def emit(space: Space, tests: Tests, uniforms: Any) -> Any:
    """Emit a token of each row.

    Parameters
    ----------
    space : Space
    tests : Tests
    uniforms : array, shape (B, m + 1)
        A number for each test in turn, then one for the residual.

    Returns
    -------
    array of int64, shape (B, 1)
    """
    xp = space.xp
    drawn = draw(space, tests.residual, uniforms[:, -1:])
    if tests.tested.shape[1] == 0:
        return drawn
    place = first_match(space, uniforms[:, :-1] < tests.chances)
    token = xp.take_along_axis(tests.tested, xp.maximum(place, space.whole(0)), axis=-1)
    return xp.where(place >= 0, token, drawn)


def first_match(space: Space, found: Any) -> Any:
    """Place of the first true entry of each row (B, m), -1 where there is none; shape (B, 1)."""
    xp, count = space.xp, found.shape[1]
    places = xp.where(found, space.places(count)[None, :], space.whole(count))
    first = xp.min(places, axis=-1, keepdims=True)
    return xp.where(first < count, first, space.whole(-1))
