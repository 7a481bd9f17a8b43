"""Pairs of Markov chains: what the target and the draft say of the next token, given the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays
from mdsd._probabilities import as_float_array, check_probs
from mdsd._typing import FloatArray
from mdsd.errors import InvalidDistributionError


@dataclass(frozen=True, eq=False)
class ChainPair(FrozenArrays):
    """A checked target and draft chain, and the distribution of the token before both.

    Attributes
    ----------
    target, draft : ndarray of float64, shape (1, S, V) or (T, S, V)
        Row a of matrix t is the distribution of the token at position t + 1 after token a; a single
        matrix serves every position. S is V, unless there is a single position: then it may be 1.
    initial : ndarray of float64, shape (S,)
    horizon : int
        T, the number of positions.
    """

    target: FloatArray
    draft: FloatArray
    initial: FloatArray
    horizon: int

    @classmethod
    def one_position(cls, target: FloatArray, draft: FloatArray) -> ChainPair:
        """Make a chain of one position of two distributions; its last token does not matter."""
        return cls(target[np.newaxis, np.newaxis], draft[np.newaxis, np.newaxis], np.ones(1), 1)

    def stretches(self, *more: FloatArray) -> Iterator[tuple[tuple[FloatArray, ...], int]]:
        """Walk through the positions in stretches over which no matrix changes.

        Parameters
        ----------
        *more : ndarray, shape (1, S, V) or (T, S, V)
            Further matrices, beside the target and the draft.

        Yields
        ------
        tuple of (tuple of ndarray, int)
            Matrices (S, V), target and draft first, and the number of positions that they serve: T
            if none of them changes.

        Examples
        --------
        >>> import numpy as np
        >>> pair = read_chain_pair([[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5]] * 2, 3, [1.0, 0.0])
        >>> [length for _, length in pair.stretches()]
        [3]
        >>> [length for _, length in pair.stretches(np.zeros((3, 2, 2)))]
        [1, 1, 1]
        """
        kernels = (self.target, self.draft, *more)
        if all(len(kernel) == 1 for kernel in kernels):
            yield tuple(kernel[0] for kernel in kernels), self.horizon
            return
        for t in range(self.horizon):
            yield tuple(kernel[t if len(kernel) > 1 else 0] for kernel in kernels), 1


def read_chain_pair(
    target_chain: ArrayLike, draft_chain: ArrayLike, horizon: Any, initial: ArrayLike
) -> ChainPair:
    """Check the arguments that every function on chains takes.

    Parameters
    ----------
    target_chain, draft_chain : array_like, shape (V, V) or (T, V, V)
    horizon : int
        T >= 1.
    initial : array_like, shape (V,)

    Returns
    -------
    ChainPair
        With rows renormalised in float64.

    Raises
    ------
    InvalidArgumentError
        If `horizon` is not an integer >= 1.
    InvalidDistributionError
        If a chain or `initial` has the wrong shape or a row is no probability vector; names the
        argument and the row.

    Examples
    --------
    >>> pair = read_chain_pair([[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5]] * 2, 3, [1.0, 0.0])
    >>> pair.target.shape, pair.horizon
    ((1, 2, 2), 3)
    """
    horizon = check_whole("horizon", horizon, 1)
    target = _read_chain(target_chain, "target_chain", horizon)
    draft = _read_chain(draft_chain, "draft_chain", horizon)
    start = check_probs(initial, "initial")
    vocab_size = target.shape[-1]
    for name, found in (("draft_chain", draft.shape[-1]), ("initial", len(start))):
        if found != vocab_size:
            raise InvalidDistributionError(
                f"{name} has {found} tokens but target_chain has {vocab_size}"
            )
    return ChainPair(target, draft, start, horizon)


def _read_chain(values: ArrayLike, name: str, horizon: int) -> FloatArray:
    array, _ = as_float_array(values, name)
    shape = array.shape
    square = array.ndim in (2, 3) and shape[-1] == shape[-2]
    if not square or (array.ndim == 3 and len(array) != horizon):
        raise InvalidDistributionError(
            f"{name} has shape {shape}; expected (V, V), or (T, V, V) with T = horizon = {horizon}"
        )
    # As it came: the tolerance of its mass depends on its type.
    chain = check_probs(values, name, ndim=array.ndim)
    return np.asarray(chain if chain.ndim == 3 else chain[np.newaxis])
