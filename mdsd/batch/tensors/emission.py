"""From accept tests and a residual to the emitted token of each row."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd._typing import Tensor
from mdsd.rules.arrays import namespace, number, places
from mdsd.rules.sums import in_blocks, sums_before


@dataclass(frozen=True, eq=False)
class RowTests:
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

    chances: Tensor
    tested: Tensor
    residual: Tensor


def emit(tests: RowTests, uniforms: Tensor) -> Tensor:
    """Emit a token of each row.

    Parameters
    ----------
    tests : RowTests
    uniforms : array, shape (B, m + 1)
        A number for each test in turn, then one for the residual.

    Returns
    -------
    array of int64, shape (B, 1)
    """
    xp = namespace(uniforms)
    drawn = draw(tests.residual, uniforms[:, -1:])
    if tests.tested.shape[1] == 0:
        return drawn
    place = first_match(uniforms[:, :-1] < tests.chances)
    token = xp.take_along_axis(tests.tested, xp.maximum(place, number(place, 0)), axis=-1)
    return xp.where(place >= 0, token, drawn)


def first_match(found: Tensor) -> Tensor:
    """Place of the first true entry of each row (B, m), -1 where there is none; shape (B, 1)."""
    xp, count = namespace(found), found.shape[1]
    where = places(found, count)[None, :]
    first = xp.min(xp.where(found, where, number(where, count)), axis=-1, keepdims=True)
    return xp.where(first < count, first, number(first, -1))


def draw(masses: Tensor, uniforms: Tensor) -> Tensor:
    """Draw a token of each row by the inverse of its cumulative distribution, in token order.

    Parameters
    ----------
    masses : array, shape (B, V)
        Masses >= 0, some positive in each row.
    uniforms : array, shape (B, 1)
        Numbers in [0, 1).

    Returns
    -------
    array of int64, shape (B, 1)
        Never a token without mass.
    """
    xp = namespace(masses)
    # By a power of two, so that goals within a subnormal sum keep their digits.
    least = float(xp.finfo(masses.dtype).smallest_normal)
    few = xp.sum(masses, axis=-1, keepdims=True) < least
    masses = masses * xp.where(few, number(masses, 1.0 / least), number(masses, 1.0))
    blocks = in_blocks(masses)
    sums = xp.sum(blocks, axis=-1)
    running = xp.cumulative_sum(sums, axis=-1)
    goals = uniforms * running[:, -1:]
    block = _passed(running, sums, goals)
    before = xp.take_along_axis(sums_before(running), block, axis=-1)
    size = blocks.shape[-1]
    where = xp.broadcast_to(block[:, :, None], (masses.shape[0], 1, size))
    inside = xp.take_along_axis(blocks, where, axis=1)[:, 0, :]
    return block * size + _passed(before + xp.cumulative_sum(inside, axis=-1), inside, goals)


def _passed(sums: Tensor, masses: Tensor, goals: Tensor) -> Tensor:
    """First place with mass at which the running sum exceeds the goal, else the last with mass.

    Arrays are of shapes (B, m), (B, m) and (B, 1); the places have shape (B, 1).
    """
    xp, size = namespace(masses), masses.shape[-1]
    where, some = places(masses, size)[None, :], masses > 0.0
    first = xp.where((sums > goals) & some, where, number(where, size))
    last = xp.where(some, where, number(where, 0))
    return xp.minimum(xp.min(first, axis=-1, keepdims=True), xp.max(last, axis=-1, keepdims=True))
