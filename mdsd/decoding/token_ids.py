"""Texts as token ids: reading them, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from mdsd._tokens import read_token_ids, refuse_outside
from mdsd.errors import InvalidTokenError


def read_sequence(name: str, values: ArrayLike, vocab_size: int, *, least: int = 0) -> list[int]:
    """Check a text given as token ids.

    Parameters
    ----------
    name : str
        What to call the argument in an error.
    values : array_like of int, shape (T,)
    vocab_size : int
        V.
    least : int, default 0
        Fewest tokens it may have.

    Returns
    -------
    list of int

    Raises
    ------
    InvalidTokenError
        If they are not integers in ``0 .. V - 1``, or too few.
    """
    ids = read_token_ids(values, name)
    if ids.ndim != 1 or len(ids) < least:
        few = f" with at least {least} token id" if least else ""
        raise InvalidTokenError(f"{name} has shape {ids.shape}; expected (T,){few}")
    refuse_outside(ids, (ids < 0) | (ids >= vocab_size), vocab_size, name)
    return cast(list[int], ids.tolist())


def shared_start(prefixes: Sequence[list[int]]) -> list[int]:
    """Give what all prefixes, one at least, begin with, short of the last token of any.

    Examples
    --------
    >>> shared_start([[5, 6, 7], [5, 6, 8, 9]]), shared_start([[5, 6], [5, 6, 8]])
    ([5, 6], [5])
    """
    # What the first and the last in order have in common, all have.
    first, last = min(prefixes), max(prefixes)
    most = min(map(len, prefixes)) - 1
    return first[: min(most, common_length(first, last))]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Count the tokens that two texts both begin with."""
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    return int((np.asarray(first[:length]) != np.asarray(second[:length])).argmax())
