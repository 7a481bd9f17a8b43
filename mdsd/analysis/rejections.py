"""How many rejections speculative decoding meets on a Markov chain, expected and simulated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mdsd._random import RandomSource
from mdsd._typing import FloatArray
from mdsd.analysis._chains import ChainPair, read_chain_pair
from mdsd.analysis._simulation import DEFAULT_RUNS, SimulatedRejections
from mdsd.analysis.batches import batch_rejection_probs, check_batch_size, simulate_batch_rejections


def expected_rejections(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_size: float = 1,
) -> float:
    """Compute the expected number of rejections in T tokens, exactly.

    Parameters
    ----------
    target_chain, draft_chain : array_like, shape (V, V) or (T, V, V)
        Row a is the distribution of the next token when the last one is a: one matrix for all
        positions, or one for each.
    horizon : int
        T >= 1, the number of tokens decoded.
    initial : array_like, shape (V,)
        Distribution of the token before the first position.
    batch_size : int, default 1
        Draft sequences M of a round, verified as `simulate_batch_rejections` describes;
        ``math.inf`` gives the limit of a growing batch.

    Returns
    -------
    float
        In [0, T]; 0 where the draft is the target.

    Raises
    ------
    InvalidArgumentError
        If `horizon` or `batch_size` is out of range.
    InvalidDistributionError
        If a chain or `initial` has the wrong shape or a row is no probability vector.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm", Theorem 1: the sum
    over positions of the total variation between target and draft, averaged over prefixes of the
    target. On a chain only the last token of a prefix matters, so it takes O(T V^2); a batch of M
    sequences adds O(V^2 M) for each matrix.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> round(expected_rejections(target, draft, 3, [0.5, 0.5]), 12)
    0.4615
    >>> round(expected_rejections(target, draft, 3, [0.5, 0.5], batch_size=4), 12)
    0.304758789062
    """
    probs = rejection_probs(target_chain, draft_chain, horizon, initial, batch_size=batch_size)
    return float(probs.sum())


def rejection_probs(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_size: float = 1,
) -> FloatArray:
    """Compute the probability of a rejection at each position, exactly.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial, batch_size
        As for `expected_rejections`.

    Returns
    -------
    ndarray of float64, shape (T,)
        Its cumulative sums are the expected rejections at every shorter horizon.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `expected_rejections`.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> rejection_probs(target, draft, 3, [0.5, 0.5]).round(12).tolist()
    [0.15, 0.155, 0.1565]
    """
    size = check_batch_size(batch_size, limit=True)
    pair = read_chain_pair(target_chain, draft_chain, horizon, initial)
    return single_rejection_probs(pair) if size == 1 else batch_rejection_probs(pair, size)


def single_rejection_probs(pair: ChainPair) -> FloatArray:
    """Compute the probability of a rejection at each position with one draft sequence.

    Parameters
    ----------
    pair : ChainPair

    Returns
    -------
    ndarray of float64, shape (T,)

    Examples
    --------
    >>> pair = read_chain_pair([[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5]] * 2, 3, [0.5, 0.5])
    >>> single_rejection_probs(pair).round(12).tolist()
    [0.15, 0.155, 0.1565]
    """
    marginal = pair.initial
    probs = []
    for (target, draft), length in pair.stretches():
        distances = np.maximum(target - draft, 0.0).sum(axis=1)
        for _ in range(length):
            probs.append(float(marginal @ distances))
            marginal = marginal @ target
    return np.minimum(probs, 1.0)


def acceleration(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_size: float = 1,
) -> float:
    """Compute T over the expected rejections: tokens for each call of the target.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial, batch_size
        As for `expected_rejections`.

    Returns
    -------
    float
        At least 1; infinite where nothing is ever rejected.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `expected_rejections`.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm". Every rejection
    stands for one call of the target; what the drafts cost, and how much longer the target takes
    over many tokens than over one, is left to `speedup`.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> round(acceleration(target, draft, 3, [0.5, 0.5]), 6)
    6.500542
    """
    rejections = expected_rejections(
        target_chain, draft_chain, horizon, initial, batch_size=batch_size
    )
    return horizon / rejections if rejections > 0.0 else math.inf


def simulate_rejections(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_size: int = 1,
    runs: int = DEFAULT_RUNS,
    rng: RandomSource = None,
) -> SimulatedRejections:
    """Count the rejections of simulated decoding.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial
        As for `expected_rejections`.
    batch_size : int, default 1
        Draft sequences of a round.
    runs : int, default 100,000
        Sequences of T tokens to decode, at least 2.
    rng : numpy.random.Generator, torch.Generator, int or None

    Returns
    -------
    SimulatedRejections
        Mean and standard error, at T and at every shorter horizon.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `expected_rejections`, and if `runs` or `rng` is out of range.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> found = simulate_rejections(target, draft, 3, [0.5, 0.5], runs=10_000, rng=0)
    >>> abs(found.mean - 0.4615) < 4 * found.stderr < 0.03
    True
    """
    return simulate_batch_rejections(
        target_chain, draft_chain, horizon, initial, batch_size=batch_size, runs=runs, rng=rng
    )
