"""Numbers in [0, 1] that are no laws: acceptance functions and acceptance rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mdsd._arguments import read_numbers
from mdsd._probabilities import is_bfloat16_tensor
from mdsd._typing import FloatArray

__all__ = ["read_rates"]


def read_rates(
    values: Any, name: str, fits: Callable[[tuple[int, ...]], bool], expected: str
) -> FloatArray:
    """Read an array of numbers in [0, 1].

    Parameters
    ----------
    values : array_like
    name : str
        What to call it in an error.
    fits : callable
        Whether a shape is one that is expected.
    expected : str
        That shape in words.

    Returns
    -------
    ndarray of float64
        A copy.

    Raises
    ------
    InvalidArgumentError
        If it holds something else than numbers in [0, 1] or has another shape; names the row.

    Examples
    --------
    >>> read_rates([1, 0.5], "acceptance", lambda shape: shape == (2,), "(2,)").tolist()
    [1.0, 0.5]
    """
    if is_bfloat16_tensor(values):
        values = values.float()  # numpy has no such type; every bfloat16 is a float32
    rates = read_numbers(values, name, fits, expected, closed=True)
    return rates.copy()
