"""Batches of draft sequences: Algorithm 4 of Yin et al., its expected rejections, and its limit.

A round starts at a prefix and drafts M sequences from it. At the first position the M first tokens
are tried in turn by recursive rejection sampling. Once one is accepted, its sequence alone is
followed with ordinary speculative decoding. A rejection, of all M first tokens or of a later token
of the sequence followed, emits one token from the residual and ends the round.

In the terms of one position, with p and q the distributions of the next token under target and
draft, the k-th test compares the residual ``(p - c q)+ / Z(c)``, ``Z(c) = sum (p - c q)+``, against
q, where the cap c starts at 0 with Z = 1 and every rejection raises it by Z(c). So a round that
starts here is rejected with total mass ``Z(c_M)``, and one that came here on a sequence with
``Z(1)``, which is the total variation between p and q.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays
from mdsd._random import RandomSource, generator
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.analysis._chains import ChainPair, read_chain_pair
from mdsd.analysis._simulation import (
    DEFAULT_RUNS,
    RejectionTally,
    RowSampler,
    SimulatedRejections,
    blocks,
)
from mdsd.errors import InvalidArgumentError
from mdsd.rules.accepting import residual_or_target

_BLOCK_ENTRIES = 1 << 16
"""Entries of a matrix worked on at a time: a block of rows stays in the cache over all stages."""


# --- expected rejections -------------------------------------------------------------------------


def batch_rejection_probs(pair: ChainPair, batch_size: float) -> FloatArray:
    """Compute the probability of a rejection at each position, for a checked pair of chains.

    Parameters
    ----------
    pair : ChainPair
    batch_size : int or math.inf
        M >= 1.

    Returns
    -------
    ndarray of float64, shape (T,)

    Notes
    -----
    Yin et al., Theorem 3, written as a recursion on the last token and on whether it was rejected:
    f(x) and g(x) are the probabilities that the last token is x and was emitted from a residual (or
    none was emitted yet), or accepted. Then

        f'(y) = sum_x f(x) (p - c_M q)+(y) + g(x) (p - q)+(y)
        g'(y) = sum_x f(x) min(p, c_M q)(y) + g(x) min(p, q)(y)

    with p, q and c_M of row x, and the total of f' is the probability of a rejection. All terms are
    positive, so nothing cancels.

    Examples
    --------
    >>> pair = read_chain_pair([[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5]] * 2, 3, [0.5, 0.5])
    >>> batch_rejection_probs(pair, 4).round(6).tolist()
    [0.01875, 0.152266, 0.133743]
    """
    fresh, followed = pair.initial, np.zeros_like(pair.initial)
    probs = []
    for (target, draft), length in pair.stretches():
        left_first = _left_after_batch(target, draft, batch_size)
        left_later = np.maximum(target - draft, 0.0)
        passed_first = target - left_first
        passed_later = np.minimum(target, draft)
        for _ in range(length):
            fresh, followed = (
                fresh @ left_first + followed @ left_later,
                fresh @ passed_first + followed @ passed_later,
            )
            probs.append(float(fresh.sum()))
    return np.minimum(probs, 1.0)


def _left_after_batch(target: FloatArray, draft: FloatArray, batch_size: float) -> FloatArray:
    """``(p - c_M q)+`` of every row: what M first tokens leave of the target, unnormalised.

    In the limit c_M reaches p / q of every token that is drafted at all.
    """
    if math.isinf(batch_size):
        return np.where(draft > 0.0, 0.0, target)
    left = np.empty_like(target)
    rows = max(1, _BLOCK_ENTRIES // target.shape[1])
    for start in range(0, len(target), rows):
        block = slice(start, start + rows)
        caps, _ = deque(_stages(target[block], draft[block], int(batch_size)), maxlen=1).pop()
        left[block] = np.maximum(target[block] - caps[:, np.newaxis] * draft[block], 0.0)
    return left


def _stages(
    target: FloatArray, draft: FloatArray, batch_size: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Caps c_k and masses Z(c_k) of every row, both (S,), after k = 0, 1, ..., M rejections.

    It ends early where further rejections would change no cap.
    """
    caps, masses = np.zeros(len(target)), np.ones(len(target))
    yield caps, masses
    scratch = np.empty_like(target)
    for _ in range(batch_size):
        raised = caps + masses
        if np.array_equal(raised, caps):
            return
        caps = raised
        np.multiply(draft, caps[:, np.newaxis], out=scratch)
        np.subtract(target, scratch, out=scratch)
        np.maximum(scratch, 0.0, out=scratch)
        masses = scratch.sum(axis=1)
        yield caps, masses


def check_batch_size(value: Any, *, limit: bool = False) -> float:
    """Check a batch size.

    Parameters
    ----------
    value : object
    limit : bool, default False
        Whether ``math.inf`` may stand for the limit of a growing batch.

    Raises
    ------
    InvalidArgumentError
        If it is not an integer >= 1.
    """
    if limit and isinstance(value, float) and value == math.inf:
        return math.inf
    return check_whole("batch_size", value, 1, otherwise=" or math.inf" if limit else "")


# --- what a batch buys ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BatchImprovement(FrozenArrays):
    """What batches of several sizes save of the rejections of a single draft sequence.

    Attributes
    ----------
    batch_sizes : ndarray of int64, shape (K,)
    rejections : ndarray of float64, shape (K,)
        Expected rejections of each.
    saved : ndarray of float64, shape (K,)
        How many fewer they are than with a single sequence, >= 0 up to rounding.
    ratio : ndarray of float64, shape (K,)
        Rejections of a single sequence over these; 1 where neither has any.
    single, limit : float
        Expected rejections of a single sequence and of a batch that grows without end.
    """

    batch_sizes: IntArray
    rejections: FloatArray
    saved: FloatArray
    ratio: FloatArray
    single: float
    limit: float


def batch_improvement(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_sizes: Sequence[int],
) -> BatchImprovement:
    """Compute what larger batches of draft sequences save, and the least they leave.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial
        As for `expected_rejections`.
    batch_sizes : sequence of int
        Sizes >= 1, in any order.

    Returns
    -------
    BatchImprovement

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `expected_rejections`, naming the batch size.

    Notes
    -----
    Yin et al. call `saved` the batch improvement. It levels off: only the first position of a round
    has more than one token to try, so the limit is 0 only where nothing is rejected after it.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> found = batch_improvement(target, draft, 3, [0.5, 0.5], batch_sizes=[1, 2, 4, 8])
    >>> found.rejections.round(4).tolist(), round(found.limit, 4)
    ([0.4615, 0.3676, 0.3048, 0.2862], 0.285)
    """
    try:
        asked = list(batch_sizes)
    except TypeError:
        raise InvalidArgumentError(
            f"batch_sizes is {type(batch_sizes).__name__}; expected a list of integers >= 1"
        ) from None
    sizes = [check_whole(f"batch_sizes[{index}]", value, 1) for index, value in enumerate(asked)]
    if not sizes:
        raise InvalidArgumentError("batch_sizes is empty; expected a list of integers >= 1")
    pair = read_chain_pair(target_chain, draft_chain, horizon, initial)
    of_size = {
        size: float(batch_rejection_probs(pair, size).sum()) for size in {1, math.inf, *sizes}
    }
    single = of_size[1]
    rejections = np.array([of_size[size] for size in sizes])
    with np.errstate(divide="ignore"):
        ratio = single / rejections if single > 0.0 else np.ones_like(rejections)
    return BatchImprovement(
        np.array(sizes, dtype=np.int64),
        rejections,
        single - rejections,
        ratio,
        single,
        of_size[math.inf],
    )


# --- simulation ----------------------------------------------------------------------------------


def simulate_batch_rejections(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    *,
    batch_size: int,
    runs: int = DEFAULT_RUNS,
    rng: RandomSource = None,
) -> SimulatedRejections:
    """Count the rejections of simulated decoding with a batch of draft sequences.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial
        As for `expected_rejections`.
    batch_size : int
        M >= 1, the draft sequences of a round; 1 is ordinary speculative decoding.
    runs : int, default 100,000
        Sequences of T tokens to decode, at least 2.
    rng : numpy.random.Generator, torch.Generator, int or None

    Returns
    -------
    SimulatedRejections

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `expected_rejections`, and if `runs` or `rng` is out of range.

    Notes
    -----
    Yin et al., Algorithm 4. M sequences are drafted from the current prefix to the horizon. Their
    first tokens are tried in turn: the m-th is accepted with probability ``min(1, p^m / q)``, where
    ``p^1`` is the target and ``p^(m+1) = (p^m - q)+``, normalised. Once one is accepted only its
    sequence is followed, with tests ``min(1, p / q)``. When all M fail a token of ``p^(M+1)`` is
    emitted, when a later one fails a token of ``p^2``; either counts as one rejection and a new
    round begins. Tokens that the algorithm would not look at are not drawn.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> found = simulate_batch_rejections(
    ...     target, draft, 3, [0.5, 0.5], batch_size=4, runs=10_000, rng=0
    ... )
    >>> abs(found.mean - 0.304758789) < 4 * found.stderr < 0.03
    True
    """
    size = int(check_batch_size(batch_size))
    count = check_whole("runs", runs, 2)
    pair = read_chain_pair(target_chain, draft_chain, horizon, initial)
    stream = generator(rng, "study")
    tally = RejectionTally(pair.horizon)
    start = RowSampler(pair.initial[np.newaxis])
    for block in blocks(count):
        origin = np.zeros(block, dtype=np.int64)
        tokens = start.draw(origin, stream.random(block))
        fresh = np.ones(block, dtype=np.bool_)
        rejections = np.zeros(block, dtype=np.int64)
        position = 0
        for (target, draft), length in pair.stretches():
            step = _Step(target, draft, size)
            for _ in range(length):
                tokens, fresh = step.emit(tokens, fresh, stream)
                rejections += fresh
                tally.add(position, rejections)
                position += 1
    return tally.result(count)


class _Step:
    """One position of Algorithm 4 for many runs at once.

    Parameters
    ----------
    target, draft : ndarray, shape (V, V)
    batch_size : int
    """

    def __init__(self, target: FloatArray, draft: FloatArray, batch_size: int) -> None:
        self._target = target
        self._draft = draft
        self._batch_size = batch_size
        self._stages = stages = list(_stages(target, draft, batch_size))
        self._drafted = RowSampler(draft)
        last_caps, _ = stages[-1]
        self._after_batch = RowSampler(_residual(target, last_caps[:, np.newaxis] * draft))
        self._after_token = RowSampler(_residual(target, draft))

    def emit(
        self, rows: IntArray, fresh: BoolArray, stream: np.random.Generator
    ) -> tuple[IntArray, BoolArray]:
        """Emit a token for every run, and say which of them were rejected.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Last token of each run.
        fresh : ndarray of bool, shape (B,)
            Whether a round starts here.
        stream : numpy.random.Generator
        """
        tokens = self._drafted.draw(rows, stream.random(len(rows)))
        rejected = ~self._passes(rows, tokens, 0, stream)
        # Runs that follow a sequence have no other token to try.
        pending = np.flatnonzero(rejected & fresh)
        for stage in range(1, self._batch_size):
            if not len(pending):
                break
            tried = self._drafted.draw(rows[pending], stream.random(len(pending)))
            passed = self._passes(rows[pending], tried, stage, stream)
            tokens[pending[passed]] = tried[passed]
            rejected[pending[passed]] = False
            pending = pending[~passed]
        for runs, residual in (
            (pending, self._after_batch),
            (np.flatnonzero(rejected & ~fresh), self._after_token),
        ):
            tokens[runs] = residual.draw(rows[runs], stream.random(len(runs)))
        return tokens, rejected

    def _passes(
        self, rows: IntArray, tokens: IntArray, stage: int, stream: np.random.Generator
    ) -> BoolArray:
        """Test tokens with ``u q < p^m``, where m - 1 = `stage` tokens were rejected before."""
        # Beyond the last stage rejections leave things as they are.
        caps, masses = self._stages[min(stage, len(self._stages) - 1)]
        drafted = self._draft[rows, tokens]
        left = self._target[rows, tokens] - caps[rows] * drafted
        return np.asarray(stream.random(len(rows)) * drafted * masses[rows] < left)


def _residual(target: FloatArray, taken: FloatArray) -> FloatArray:
    return residual_or_target(np.maximum(target - taken, 0.0), target)
