"""Reading and checking the arrays of a layout, before anything is drawn or verified.

Distributions stay where they are, numpy arrays or tensors of any library on any device; everything
small comes to the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import is_bfloat16_tensor, row_name
from mdsd._probabilities import as_float_array, check_probs
from mdsd._random import RandomSource, generator, read_uniforms
from mdsd._tokens import read_token_ids, refuse_outside
from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray, TensorLike
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
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
)
from mdsd.rules.arrays import places

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

    def check(self, places: Places) -> None:
        """Check the vectors at some places; the others are not looked at.

        Raises
        ------
        InvalidDistributionError
            Naming the first bad row, the index and the value.
        """
        rows = self.take(places)
        if self.space is not None:
            found = read_on_device(self.space, rows)
            if found is not None and bool(found.good):
                return
        try:
            read_batch(to_host(rows), self.name, ndim=2)
        except InvalidDistributionError:
            # What is left is to name the place as the caller knows it.
            host = to_host(self.values)
            for place in np.stack(places, axis=1).tolist():
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
    try:
        return read_ids(values, name, shape, words)
    except InvalidTokenError as error:
        raise InvalidArgumentError(str(error).replace("token ids are", "expected")) from None


def _refuse_shape(
    array: Any, name: str, shape: tuple[int | None, ...], words: str, error: type[MdsdError]
) -> None:
    found = tuple(array.shape)
    if len(found) != len(shape) or any(
        n not in (None, m) for n, m in zip(shape, found, strict=True)
    ):
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
    """Draw a token from each of some checked vectors, (R, V), by inverse CDF in token order."""
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


def one_hot_rows(ids: IntArray, like: ProbRows) -> Any:
    """Put all mass on each id, (...) -> (..., V); where the others are, so that none is moved.

    Parameters
    ----------
    ids : ndarray of int64, shape (...)
    like : ProbRows
        The others.
    """
    if like.space is not None:
        sent = like.space.send(ids)
        return like.space.as_real(places(sent, like.vocab_size) == sent[..., None])
    # In the type that the others are verified in, so that neither is converted.
    wide = str(like.values.dtype).endswith("float64")
    rows = np.zeros((*ids.shape, like.vocab_size), np.float64 if wide else np.float32)
    np.put_along_axis(rows, ids[..., np.newaxis], 1.0, axis=-1)
    return rows


def read_numbers(
    rng: RandomSource, uniforms: TensorLike | None, taken: BoolArray, shape: tuple[int, ...]
) -> FloatArray:
    """Read the caller's numbers in [0, 1), or draw them, each row of a batch by itself.

    Parameters
    ----------
    rng : numpy.random.Generator, torch.Generator, int or None
    uniforms : array_like, tensor or None
    taken : ndarray of bool, shape (B, ...)
        Which places of the array that is returned have a number.
    shape : tuple of int
        Of `uniforms`: one number for each place that is taken, or for every place.

    Returns
    -------
    ndarray of float64, shape (B, ...)

    Raises
    ------
    InvalidArgumentError
        As for `read_uniforms`.
    """
    numbers = np.zeros(taken.shape)
    if uniforms is not None:
        given = read_uniforms(rng, to_host(uniforms), shape)
        if given.size == taken.size:
            return given.reshape(taken.shape)
        numbers[taken] = given
        return numbers
    for row, own, stream in zip(numbers, taken, row_streams(rng, len(taken)), strict=True):
        row[own] = stream.random(int(own.sum()))
    return numbers


def row_streams(rng: RandomSource, count: int) -> Iterator[np.random.Generator]:
    """Make a stream for each row of a batch: how much one draws changes nothing for the others.

    Raises
    ------
    InvalidArgumentError
        If `rng` is no source of randomness.
    """
    keys = generator(rng, "verify").integers(2**63, size=count)
    return map(np.random.default_rng, keys.tolist())
