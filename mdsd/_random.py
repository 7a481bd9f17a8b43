"""Random generators: drafting and verifying never share a stream, whatever seed both are given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_numbers, shown
from mdsd._typing import FloatArray, IntArray
from mdsd.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

Uniforms = ArrayLike | None
"""Numbers in [0, 1) that a caller gives in place of a `RandomSource`."""

RandomSource: TypeAlias = "np.random.Generator | torch.Generator | int | None"
"""A generator, an integer seed, or None for fresh entropy from the operating system."""

SEED_LIMIT = 2**63 - 1
"""Seeds drawn from a generator are less than this, the most that those of torch can draw."""

_LEAST_NORMAL, _RAISED = 2.0**-1022, 2.0**512
"""Products below the first lose digits, but not once masses are multiplied by the second."""

_STREAMS = {"draft": 1, "verify": 2, "study": 3, "capture": 4}


def generator(
    rng: RandomSource, stream: Literal["draft", "verify", "study", "capture"], *place: int
) -> np.random.Generator:
    """Turn what the caller gave into a generator of the named stream.

    Parameters
    ----------
    rng : numpy.random.Generator, torch.Generator, int or None
        A generator is used as it is; one of torch, on any device, gives the seed, another one each
        time. The same integer gives independent streams for drafting and for verifying. None draws
        fresh entropy; numpy's global state is never touched.
    stream : {"draft", "verify", "study", "capture"}
        What the numbers are for.
    *place : int
        Which stream of that name, if there are many. A generator serves all of them.

    Raises
    ------
    InvalidArgumentError
        If `rng` is none of these.
    """
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None:
        return np.random.default_rng()
    key = (_STREAMS[stream], *place)
    return np.random.default_rng(np.random.SeedSequence(read_seed("rng", rng), spawn_key=key))


def read_seed(name: str, rng: RandomSource) -> int:
    """Read a seed, or draw one from a generator.

    Parameters
    ----------
    name : str
        What to call the argument in an error.
    rng : numpy.random.Generator, torch.Generator or int

    Returns
    -------
    int
        At least 0.

    Raises
    ------
    InvalidArgumentError
        If it is none of these.
    """
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(SEED_LIMIT))
    if _is_torch_generator(rng):
        return draw_torch_seed(rng)
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0:
        return int(rng)
    raise InvalidArgumentError(
        f"{name} is {shown(rng)}; expected a numpy.random.Generator, a torch.Generator, a "
        "seed >= 0, or None"
    )


def draw_torch_seed(source: Any = None) -> int:
    """Draw a seed from a generator of torch, or from the one that ``torch.manual_seed`` seeds."""
    import torch

    device = "cpu" if source is None else source.device
    return int(torch.randint(SEED_LIMIT, (), generator=source, device=device))


def _is_torch_generator(rng: object) -> bool:
    """Tell whether it is one, without importing torch: who has one has imported it."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(rng, torch.Generator)


def draw_tokens(weights: FloatArray, uniforms: ArrayLike) -> IntArray:
    """Draw token ids by the inverse of the cumulative distribution, in token order.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Masses >= 0 in float64, not necessarily normalised, at least one positive.
    uniforms : array_like, any shape
        Numbers in [0, 1).

    Returns
    -------
    ndarray of int64
        One id for each number. Buckets are half-open, and a token without mass is never drawn,
        not even when rounding lets the last bucket end short of the draw.
    """
    return find_tokens(np.cumsum(weights), uniforms)


def find_tokens(sums: FloatArray, uniforms: ArrayLike) -> IntArray:
    """Draw token ids as `draw_tokens` does, given the running sum of the weights.

    Parameters
    ----------
    sums : ndarray of float64, shape (V,)
    uniforms : array_like, any shape
        Numbers in [0, 1).

    Returns
    -------
    ndarray of int64
        One id for each number.
    """
    if sums[-1] < _LEAST_NORMAL:
        sums = sums * _RAISED
    total = sums[-1]
    found = sums.searchsorted(np.asarray(uniforms) * total, side="right")
    # The first id at which the sum reaches its total is the last one with mass.
    last = sums.searchsorted(total)
    return np.asarray(np.minimum(found, last), dtype=np.int64)


def read_uniforms(rng: RandomSource, uniforms: Uniforms, shape: tuple[int, ...]) -> FloatArray:
    """Draw the numbers of verifications, or check those the caller gave instead.

    Parameters
    ----------
    rng : numpy.random.Generator, torch.Generator, int or None
    uniforms : array_like or None
        Numbers in [0, 1).
    shape : tuple of int

    Returns
    -------
    ndarray of float64

    Raises
    ------
    InvalidArgumentError
        If both are given, or `uniforms` has another shape, holds something else than numbers or
        leaves [0, 1).
    """
    if uniforms is None:
        return generator(rng, "verify").random(shape)
    if rng is not None:
        raise InvalidArgumentError("rng and uniforms are both given; expected one of them")
    return read_numbers(uniforms, "uniforms", shape.__eq__, str(shape), closed=False)
