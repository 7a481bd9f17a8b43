"""Random numbers of a batch, drawn so that no row depends on the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mdsd._random import RandomSource, generator, read_uniforms
from mdsd._typing import FloatArray
from mdsd.batch.tensors.spaces import to_host

__all__ = ["read_numbers", "row_numbers"]


def read_numbers(
    rng: RandomSource, uniforms: Any, shape: tuple[int, ...], rows: Sequence[tuple[int, ...]]
) -> FloatArray:
    """Read the caller's numbers, or draw a batch of them, a corner of the array for each row.

    Parameters
    ----------
    rng : numpy.random.Generator, int or None
    uniforms : array_like, tensor or None
    shape : tuple of int
        Of the whole array: one entry for each row, then the largest corner.
    rows : sequence of tuple of int
        Numbers that each row takes, along each further axis.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    InvalidArgumentError
        As for `read_uniforms`.
    """
    if uniforms is not None:
        return read_uniforms(rng, to_host(uniforms), shape)
    numbers = np.zeros(shape)
    for row, drawn in enumerate(row_numbers(rng, rows)):
        corner = tuple(slice(size) for size in rows[row])
        numbers[row][corner] = drawn
    return numbers


def row_numbers(rng: RandomSource, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
    """Draw numbers for each row of a batch from a stream of its own.

    How many numbers a row takes then changes nothing for the others.
    """
    keys = generator(rng, "verify").integers(2**63, size=len(shapes))
    return [
        np.random.default_rng(int(key)).random(shape)
        for key, shape in zip(keys, shapes, strict=True)
    ]
