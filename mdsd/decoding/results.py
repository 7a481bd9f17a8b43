"""What a decoder put out, and what it took: counted step by step, for one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mdsd._frozen import FrozenArrays, frozen
from mdsd._typing import FloatArray, IntArray


@dataclass(frozen=True)
class DecodeSeconds:
    """Where the time of a decoder went, in seconds.

    Attributes
    ----------
    drafting : float
        Calls of the draft model, and drawing the drafts.
    target : float
        Calls of the target model.
    verification : float
        Turning the target's logits into probabilities, and verifying.
    """

    drafting: float
    target: float
    verification: float

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.drafting + self.target + self.verification


@dataclass(frozen=True, eq=False)
class DecodeResult(FrozenArrays):
    """Output of a decoder, and what it took.

    Attributes
    ----------
    token_ids : ndarray of int64, shape (T,)
        New tokens, without the prompt; an end token is the last.
    tokens_per_target_call : float
        T over `target_calls`.
    acceptance_by_depth : ndarray of float64, shape (D,)
        Entry d - 1: of the steps in which tokens were drafted down to depth d, the share that
        emitted an accepted token of that depth (and so of all depths before it). D is the greatest
        depth drafted. Tokens cut off behind an end token are not counted.
    drafted_by_depth : ndarray of int64, shape (D,)
        Steps that each of these shares is of; fewer at greater depths, as nothing is drafted beyond
        the length allowed.
    accepted_lengths : ndarray of int64, shape (S,)
        Drafted tokens that each step emitted, one more token aside.
    target_calls : int
        S: calls of the target model, one for each step.
    draft_calls : int
        Calls of the draft model, one for each level of each step; one more where a tree that grows
        ended after it.
    seconds : DecodeSeconds
        Time spent drafting, in the target model, and verifying.
    """

    token_ids: IntArray
    tokens_per_target_call: float
    acceptance_by_depth: FloatArray
    drafted_by_depth: IntArray
    accepted_lengths: IntArray
    target_calls: int
    draft_calls: int
    seconds: DecodeSeconds

    @property
    def synthetic_acceptance_rates(self) -> FloatArray:
        """Unconditional acceptance of each position, (D,), as serving engines take it.

        Entry d - 1 is `acceptance_by_depth`, or that of a depth before where it is less, as the
        rates may not rise. Steps near the end of a text, which draft less, do not count against
        depths that they could not draft; so one more than the sum is what a step emits on average
        where it drafts down to D. vLLM takes the rates as ``synthetic_acceptance_rates`` of its
        speculative configuration, with D as ``num_speculative_tokens``, to play a run back without
        its models.
        """
        return falling_rates(self.acceptance_by_depth)


def falling_rates(acceptance_by_depth: FloatArray) -> FloatArray:
    """Give unconditional rates of acceptance that do not rise with depth.

    Examples
    --------
    >>> falling_rates(np.array([0.8, 0.5, 0.6])).tolist()
    [0.8, 0.5, 0.5]
    """
    return np.asarray(np.minimum.accumulate(acceptance_by_depth))


class StepCount(NamedTuple):
    """What one step of one sequence came to.

    Attributes
    ----------
    depth : int
        Of the tree that was drafted.
    accepted, emitted : int
        Tokens: those drafted, and all.
    draft_calls : int
    seconds : tuple of float
        Drafting, in the target model, and verifying.
    """

    depth: int
    accepted: int
    emitted: int
    draft_calls: int
    seconds: tuple[float, float, float]


def count_steps(steps: Sequence[StepCount], token_ids: Sequence[int]) -> DecodeResult:
    """Sum up the steps of a sequence.

    Parameters
    ----------
    steps : sequence of StepCount
        At least one.
    token_ids : sequence of int, length T
        What is left of the tokens they emitted, at least one: steps that nothing is left of are not
        counted, and of the last only what is.

    Returns
    -------
    DecodeResult

    Examples
    --------
    >>> steps = [StepCount(2, 2, 3, 2, (0.0, 0.0, 0.0)), StepCount(2, 1, 2, 2, (0.0, 0.0, 0.0))]
    >>> result = count_steps(steps, [5, 1, 7, 2, 4])
    >>> result.tokens_per_target_call, result.acceptance_by_depth.tolist()
    (2.5, [1.0, 0.5])
    """
    ends = np.cumsum([step.emitted for step in steps])
    kept = steps[: int(ends.searchsorted(len(token_ids))) + 1]
    accepted = np.array([step.accepted for step in kept], dtype=np.int64)
    before = len(token_ids) - (int(ends[len(kept) - 1]) - kept[-1].emitted)
    accepted[-1] = min(accepted[-1], before)
    depths = np.array([step.depth for step in kept])
    drafted = count_at_least(depths, int(depths.max()))
    return DecodeResult(
        token_ids=frozen(np.array(token_ids, dtype=np.int64)),
        tokens_per_target_call=len(token_ids) / len(kept),
        acceptance_by_depth=frozen(count_at_least(accepted, len(drafted)) / drafted),
        drafted_by_depth=frozen(drafted),
        accepted_lengths=frozen(accepted),
        target_calls=len(kept),
        draft_calls=sum(step.draft_calls for step in kept),
        seconds=DecodeSeconds(*np.sum([step.seconds for step in kept], axis=0).tolist()),
    )


def count_at_least(numbers: IntArray, most: int) -> IntArray:
    """Count how many numbers are at least 1, 2, ..., `most`.

    Examples
    --------
    >>> count_at_least(np.array([2, 0, 1, 2]), 3).tolist()
    [3, 2, 0]
    """
    return np.asarray((numbers >= np.arange(1, most + 1)[:, np.newaxis]).sum(axis=1))
