"""Reading and checking the arrays of a layout, before anything is drawn or verified.

Laws stay where they are, numpy arrays or tensors of any library on any device; everything small
comes to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import read_array, row_name
from mdsd._probabilities import as_float_array, check_probs, is_bfloat16_tensor
from mdsd._tokens import read_token_ids, refuse_outside
from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray
from mdsd.batch import verify_batch
from mdsd.batch._inputs import read_batch
from mdsd.batch.tensors.inputs import is_real
from mdsd.batch.tensors.inputs import read_probs as read_on_device
from mdsd.batch.tensors.spaces import (
    Located,
    Space,
    check_device,
    device_space,
    space_of,
    to_host,
)
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError

__all__ = [
    "PADDING",
    "Places",
    "ProbRows",
    "check_ids",
    "draw_rows",
    "host_ids",
    "read_ids",
    "read_indices",
    "read_probs",
]

PADDING = -1
"""The id, or index, that stands for nothing."""

Places = tuple[IntArray, ...]
"""Index arrays, one for each axis."""


@dataclass(frozen=True, eq=False)
class ProbRows:
    """Probability vectors along the last axis of an array; which of them count is known later.

    Attributes
    ----------
    values : ndarray or tensor, shape (..., V)
        As they came in.
    name : str
        What to call the argument in an error.
    home : Space or None, default None
        Library and device of the caller's tensor, which numpy may read in its place; None if it
        was none.
    alone : bool, default False
        Whether the first axis, of length 1, was added here: errors then leave it out.
    """

    values: Any
    name: str
    home: Space | None = None
    alone: bool = False

    @property
    def vocab_size(self) -> int:
        """V."""
        return int(self.values.shape[-1])

    @property
    def space(self) -> Space | None:
        """Where they live; None for the host."""
        return device_space(self.values)

    def as_batch(self) -> ProbRows:
        """Add a first axis to the vectors of a single tree."""
        return ProbRows(self.values[None, ...], self.name, self.home, alone=True)

    def hand_over(self, array: AnyArray) -> Any:
        """Give a result the kind that the caller's array has, where that is."""
        return array if self.home is None else self.home.send(array)

    def take(self, places: Places) -> Any:
        """Gather the vectors at some places: (R, V), of the same kind and where they are.

        Places that name a token too give single entries, (R,).
        """
        if isinstance(self.values, np.ndarray):
            return self.values[places]
        space, shape = space_of(self.values), tuple(self.values.shape)
        flat = space.xp.reshape(self.values, (-1, *shape[len(places) :]))
        index = np.ravel_multi_index(places, shape[: len(places)])
        return space.xp.take(flat, space.send(index), axis=0)

    def entries(self, places: Places) -> AnyArray:
        """Gather single entries, (R,), on the host."""
        return as_float_array(to_host(self.take(places)), self.name)[0]

    def check(self, used: BoolArray) -> None:
        """Check the vectors that are used; the others are not looked at.

        Parameters
        ----------
        used : ndarray of bool, shape (...)

        Raises
        ------
        InvalidDistributionError
            Naming the first bad row, the index and the value.
        """
        rows = self.take(np.nonzero(used))
        if self.space is not None:
            found = read_on_device(self.space, rows)
            if found is not None and bool(found.good):
                return
        try:
            read_batch(to_host(rows), self.name, ndim=2)
        except InvalidDistributionError:
            # What is left is to name the place as the caller knows it.
            host = to_host(self.values)
            for place in np.argwhere(used).tolist():
                check_probs(host[(*place, ...)], row_name(self.name, place[self.alone :]))
            raise


def read_probs(
    values: Any, name: str, shape: tuple[int | None, ...], words: str, like: ProbRows | None = None
) -> ProbRows:
    """Read probability vectors, without looking at their entries.

    Parameters
    ----------
    values : array_like or tensor
    name : str
        What to call the argument in an error.
    shape : tuple of int or None
        Expected lengths of its axes, None for any.
    words : str
        The expected shape in letters, for the message.
    like : ProbRows, optional
        Those on whose device they must be.

    Raises
    ------
    InvalidDistributionError
        If they are missing, hold something other than real numbers, have another shape or live
        elsewhere.
    """
    located = Located.of(values)
    owner = (name, located.device) if like is None else (like.name, like.space)
    check_device(name, located, *owner)
    array = values
    if located.device is None or not is_real(values):
        given, _ = as_float_array(located.on_host(), name)
        array = values if is_bfloat16_tensor(values) else given
    _refuse_shape(array, name, shape, words, InvalidDistributionError)
    if array.shape[-1] == 0:
        raise InvalidDistributionError(f"{name} is empty: a vocabulary has at least one token")
    return ProbRows(array, name, located.home)


def read_ids(values: Any, name: str, shape: tuple[int | None, ...], words: str) -> IntArray:
    """Read token ids, of whatever range.

    Raises
    ------
    InvalidTokenError
        If they are not integers or have another shape.
    """
    given = read_token_ids(to_host(values), name)
    _refuse_shape(given, name, shape, words, InvalidTokenError)
    return given.astype(np.int64, copy=False)


def read_indices(values: Any, name: str, shape: tuple[int | None, ...], words: str) -> IntArray:
    """Read indices or counts, of whatever range.

    Raises
    ------
    InvalidArgumentError
        If they are missing, not integers, or have another shape.
    """
    if values is None:
        raise InvalidArgumentError(f"{name} is missing; expected integers of shape {words}")
    given = read_array(to_host(values), name, InvalidArgumentError)
    if given.size == 0 and given.dtype.kind == "f":
        given = given.astype(np.int64)  # an empty list reads as float64
    if given.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{name} holds {given.dtype.name} values; expected integers")
    _refuse_shape(given, name, shape, words, InvalidArgumentError)
    return given.astype(np.int64, copy=False)


def _refuse_shape(
    array: Any,
    name: str,
    shape: tuple[int | None, ...],
    words: str,
    error: type[InvalidArgumentError | InvalidDistributionError | InvalidTokenError],
) -> None:
    found = tuple(array.shape)
    fits = len(found) == len(shape) and all(
        n is None or n == m for n, m in zip(shape, found, strict=True)
    )
    if not fits:
        sizes = ", ".join("any" if n is None else str(n) for n in shape)
        here = f", here ({sizes})" if any(n is not None for n in shape) else ""
        raise error(f"{name} has shape {found}; expected {words}{here}")


def check_ids(
    ids: IntArray, used: BoolArray, vocab_size: int, name: str, alone: bool = False
) -> None:
    """Check the range of the token ids that are used; `alone` as in `ProbRows`.

    Raises
    ------
    InvalidTokenError
        Naming the first one outside.
    """
    outside = used & ((ids < 0) | (ids >= vocab_size))
    if alone:
        ids, outside = ids[0], outside[0]
    refuse_outside(ids, outside, vocab_size, name)


def draw_rows(rows: Any, uniforms: FloatArray) -> IntArray:
    """Draw a token from each of some checked laws, (R, V), by inverse CDF in token order."""
    if rows.shape[0] == 0:
        return np.empty(0, dtype=np.int64)
    # The naive verifier draws from its target, whatever is drafted: here the likeliest token.
    xp = np if isinstance(rows, np.ndarray) else space_of(rows).xp
    likeliest = xp.argmax(rows, axis=1, keepdims=True)
    found = verify_batch(
        rows,
        rows,
        likeliest,
        draft="with_replacement",
        verifier="naive",
        uniforms=uniforms[:, np.newaxis],
    )
    return host_ids(found.token_ids)


def host_ids(ids: Any) -> IntArray:
    """Bring token ids of a verification to the host."""
    return np.asarray(to_host(ids))
