"""Reading texts as token ids."""

from __future__ import annotations

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
    return [int(token) for token in ids]
