"""Random pairs of Markov chains whose draft resembles the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray
from mdsd.filters import probs_from_logits

SPREAD = 1.5
"""Standard deviation of the target's logits."""

NOISE = 1.2
"""That of the difference to the draft's: about a third of the drafts are rejected."""


@dataclass(frozen=True, eq=False)
class RandomChains(FrozenArrays):
    """A target and a draft chain.

    Attributes
    ----------
    target, draft : ndarray of float64, shape (V, V) or (T, V, V)
        One matrix for all positions, or one for each.
    initial : ndarray of float64, shape (V,)
        Distribution of the token before the first position: uniform.
    horizon : int
        T.
    """

    target: FloatArray
    draft: FloatArray
    initial: FloatArray
    horizon: int

    @property
    def setting(self) -> tuple[FloatArray, FloatArray, int, FloatArray]:
        """The first four arguments of all functions of `mdsd.analysis` about chains."""
        return self.target, self.draft, self.horizon, self.initial

    @property
    def one_position(self) -> tuple[FloatArray, FloatArray]:
        """Both distributions at the first position, after the token that parts them most."""
        first = (0,) * (self.target.ndim - 2)
        target, draft = self.target[first], self.draft[first]
        row = int(np.abs(target - draft).sum(axis=1).argmax())
        return target[row], draft[row]


def random_chains(
    vocab_size: int, horizon: int, *, stationary: bool, rng: np.random.Generator
) -> RandomChains:
    """Draw a pair of chains: rows are softmaxes of normal logits, the draft's with noise added.

    Parameters
    ----------
    vocab_size, horizon : int
        V and T.
    stationary : bool
        Whether one matrix serves all positions.
    rng : numpy.random.Generator

    Returns
    -------
    RandomChains

    Examples
    --------
    >>> chains = random_chains(3, 5, stationary=False, rng=np.random.default_rng(0))
    >>> chains.target.shape, bool(np.allclose(chains.draft.sum(axis=-1), 1.0))
    ((5, 3, 3), True)
    """
    shape = (vocab_size, vocab_size)
    target, draft = np.empty((2, 1 if stationary else horizon, *shape))
    for position in range(len(target)):
        logits = SPREAD * rng.normal(size=shape)
        target[position] = probs_from_logits(logits)
        draft[position] = probs_from_logits(logits + NOISE * rng.normal(size=shape))
    if stationary:
        target, draft = target[0], draft[0]
    return RandomChains(target, draft, np.full(vocab_size, 1.0 / vocab_size), horizon)
