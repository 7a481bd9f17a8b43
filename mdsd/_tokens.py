"""The one place where drafted token ids are checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_array, row_name
from mdsd._typing import AnyArray, BoolArray, IntArray
from mdsd.errors import InvalidTokenError


def read_token_ids(draft_token_ids: ArrayLike, name: str = "draft_token_ids") -> AnyArray:
    """Read token ids as an array of integers, of whatever shape and range.

    Raises
    ------
    InvalidTokenError
        If they are not integers; bool and float are refused, even whole ones.
    """
    ids = read_array(draft_token_ids, name, InvalidTokenError)
    if ids.size == 0 and ids.dtype.kind == "f":
        ids = ids.astype(np.int64)  # an empty list reads as float64
    if ids.dtype.kind not in "iu":
        raise InvalidTokenError(f"{name} holds {ids.dtype.name} values; token ids are integers")
    return ids


def check_token_ids(
    draft_token_ids: ArrayLike,
    *,
    num_drafts: int,
    vocab_size: int,
    ndim: int | None = None,
    name: str = "draft_token_ids",
) -> IntArray:
    """Check the type, shape and range of drafted token ids.

    Parameters
    ----------
    draft_token_ids : array_like of int, shape (..., n)
        Token ids in draft order.
    num_drafts, vocab_size : int
        n and V.
    ndim : int, optional
        Number of axes expected; any number from 1 up by default.
    name : str, default "draft_token_ids"
        What to call the argument in an error.

    Returns
    -------
    ndarray of int64, shape (..., n)

    Raises
    ------
    InvalidTokenError
        If they are not integers (bool and float are refused, even whole ones), of the wrong
        shape, or outside ``0 .. V - 1``.
    """
    ids = read_token_ids(draft_token_ids, name)
    wrong_axes = ids.ndim == 0 if ndim is None else ids.ndim != ndim
    if wrong_axes or ids.shape[-1] != num_drafts:
        leading = "..., " if ndim is None else "B, " if ndim == 2 else ""
        expected = f"({leading}{num_drafts}{',' if ndim == 1 else ''})"
        raise InvalidTokenError(
            f"{name} has shape {ids.shape}; expected {expected} for {num_drafts} drafts"
        )
    checked = np.ascontiguousarray(ids, dtype=np.int64)
    # Read as unsigned numbers, negative ids lie beyond every vocabulary.
    refuse_outside(ids, checked.view(np.uint64) >= vocab_size, vocab_size, name)
    return checked


def refuse_outside(
    ids: AnyArray, outside: BoolArray, vocab_size: int, name: str, *, least: int = 0
) -> None:
    """Refuse token ids that are out of range.

    Parameters
    ----------
    ids : ndarray of integers, shape (..., n)
    outside : ndarray of bool, shape (..., n)
        Which of them are.
    vocab_size : int
        V.
    name : str
        What to call the argument in an error.
    least : int, default 0
        Where the range begins.

    Raises
    ------
    InvalidTokenError
        Naming the first one outside.
    """
    if np.count_nonzero(outside):
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        raise InvalidTokenError(
            f"{row_name(name, index[:-1])}: id {ids[index]} at position {index[-1]} "
            f"is outside {least}..{vocab_size - 1}"
        )


def refuse_impossible(ids: IntArray, possible: BoolArray, draft_name: str) -> None:
    """Refuse tuples that the draft distribution cannot have produced.

    Parameters
    ----------
    ids : ndarray of int64, shape (..., n)
        Checked token ids.
    possible : ndarray of bool, shape (...)
        Which tuples can be drawn.
    draft_name : str
        Name of the draft distribution, for the message.

    Raises
    ------
    InvalidTokenError
        Naming the first impossible row.
    """
    if np.count_nonzero(possible) == np.size(possible):
        return
    index = tuple(int(i) for i in np.argwhere(~np.asarray(possible))[0])
    raise InvalidTokenError(
        f"{row_name('draft_token_ids', index)}: {ids[index].tolist()} cannot be drawn from "
        f"the {draft_name} draft distribution"
    )
