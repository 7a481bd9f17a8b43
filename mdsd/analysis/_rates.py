"""Numbers in [0, 1] that are no laws: acceptance functions and acceptance rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mdsd._arguments import read_array, row_name
from mdsd._probabilities import is_bfloat16_tensor
from mdsd._typing import FloatArray
from mdsd.errors import InvalidArgumentError

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
    array = read_array(values, name, InvalidArgumentError)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise InvalidArgumentError(
            f"{name} holds {array.dtype.name} values; expected numbers in [0, 1]"
        )
    if not fits(array.shape):
        raise InvalidArgumentError(f"{name} has shape {array.shape}; expected {expected}")
    with np.errstate(over="ignore"):
        rates = array.astype(np.float64)
    outside = ~((rates >= 0.0) & (rates <= 1.0))
    if outside.any():
        *row, column = index = tuple(np.argwhere(outside)[0])
        raise InvalidArgumentError(
            f"{row_name(name, row)}: index {column} is {float(rates[index])!r}; "
            "expected numbers in [0, 1]"
        )
    return rates
