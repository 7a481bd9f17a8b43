"""Distributions known in part: read from log-probabilities, and laid side by side."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import read_number, shown
from mdsd._typing import FloatArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

MASS_TOLERANCE = 1e-3
"""Most by which known probabilities may sum to more than 1: that of logs with three decimals."""

_ROUNDING = 4e-15
"""How far rounding of the log-probabilities and of their exponentials can move the tail."""


@dataclass(frozen=True, eq=False)
class KnownProbs:
    """Probabilities of some tokens, and the mass left for all others.

    Attributes
    ----------
    probs : dict of token to float
        Known probabilities, in the order given.
    tail : float
        1 minus their sum, at least 0.
    """

    probs: dict[Hashable, float]
    tail: float

    @property
    def least_tail(self) -> float:
        """Least mass that the tail may have behind its rounding."""
        return max(0.0, self.tail - _ROUNDING)

    @property
    def most_tail(self) -> float:
        """Most mass that the tail may have behind its rounding."""
        return self.tail + _ROUNDING


@dataclass(frozen=True, eq=False)
class Overlap:
    """What is known of a target and of one draft.

    Attributes
    ----------
    target, draft : ndarray, shape (S,)
        Probabilities of the tokens known on both sides.
    target_only : float
        Target mass of the tokens that only the target's side knows.
    draft_only : ndarray, shape (R,)
        Draft probabilities of the tokens that only the draft's side knows.
    target_tail, draft_tail : float
        Mass of the tokens that a side does not know.
    draft_tail_range : tuple of float
        Least and most that `draft_tail` may be behind its rounding, which counts where the draft
        leaves little mass beside its first tokens.
    """

    target: FloatArray
    draft: FloatArray
    target_only: float
    draft_only: FloatArray
    target_tail: float
    draft_tail: float
    draft_tail_range: tuple[float, float]


def read_known(logprobs: Any, name: str) -> KnownProbs:
    """Read the known part of a distribution.

    Parameters
    ----------
    logprobs : mapping of token to float
        Natural logarithms of probabilities.
    name : str
        What to call it in an error.

    Raises
    ------
    InvalidDistributionError
        If it is no mapping or empty, a value is no number <= 0, or the probabilities sum to more
        than 1 by more than `MASS_TOLERANCE`; names the token and the value, or the sum.

    Examples
    --------
    >>> read_known({"yes": math.log(0.5), "no": math.log(0.25)}, "target_logprobs").tail
    0.25
    """
    if not isinstance(logprobs, Mapping):
        given = "missing" if logprobs is None else type(logprobs).__name__
        raise InvalidDistributionError(
            f"{name} is {given}; expected a mapping of tokens to log-probabilities"
        )
    if not logprobs:
        raise InvalidDistributionError(f"{name} is empty; expected at least one token")
    probs: dict[Hashable, float] = {}
    for token, value in logprobs.items():
        number = read_number(value)
        if not number <= 0.0:
            raise InvalidDistributionError(
                f"{name}: token {shown(token)} has {shown(value)}; expected a log-probability, "
                "a number <= 0"
            )
        probs[token] = math.exp(number)
    mass = math.fsum(probs.values())
    if mass > 1.0 + MASS_TOLERANCE:
        raise InvalidDistributionError(
            f"{name} holds probabilities that sum to {mass:.10g}; "
            f"expected at most 1 within {MASS_TOLERANCE:g}"
        )
    if mass > 1.0:
        return KnownProbs({token: prob / mass for token, prob in probs.items()}, 0.0)
    return KnownProbs(probs, max(0.0, math.fsum([1.0, *(-prob for prob in probs.values())])))


def check_same_tokens(target: KnownProbs, draft: KnownProbs, draft_name: str) -> None:
    """Refuse token ids on one side and texts on the other, which have no token in common.

    Raises
    ------
    InvalidArgumentError
    """
    kinds = _kind(target.probs), _kind(draft.probs)
    if None not in kinds and kinds[0] != kinds[1]:
        examples = shown(next(iter(target.probs))), shown(next(iter(draft.probs)))
        raise InvalidArgumentError(
            f"target_logprobs has {kinds[0]} as tokens, such as {examples[0]}, but {draft_name} "
            f"has {kinds[1]}, such as {examples[1]}; expected the same kind on both sides"
        )


def _kind(tokens: Iterable[Hashable]) -> str | None:
    for kind, types in (("integers", (int, np.integer)), ("strings", (str,))):
        if all(isinstance(token, types) for token in tokens):
            return kind
    return None


def require_tokens(draft: KnownProbs, name: str, num_drafts: int, kind: str) -> None:
    """Refuse a draft that cannot have n tokens of positive probability.

    Raises
    ------
    InvalidDistributionError
        Naming both numbers.
    """
    positive = sum(prob > 0.0 for prob in draft.probs.values())
    if positive < num_drafts and draft.least_tail == 0.0:
        raise InvalidDistributionError(
            f"{name} has {positive} tokens with positive probability and no mass left for others; "
            f"{kind} with num_drafts={num_drafts} needs at least {num_drafts}"
        )


def overlap(target: KnownProbs, draft: KnownProbs) -> Overlap:
    """Lay a target and a draft side by side.

    Examples
    --------
    >>> target = KnownProbs({"a": 0.5, "b": 0.25}, 0.25)
    >>> found = overlap(target, KnownProbs({"c": 0.5, "a": 0.5}, 0.0))
    >>> found.target.tolist(), found.draft.tolist(), found.target_only, found.draft_only.tolist()
    ([0.5], [0.5], 0.25, [0.5])
    """
    shared = [token for token in target.probs if token in draft.probs]
    return Overlap(
        target=np.array([target.probs[token] for token in shared]),
        draft=np.array([draft.probs[token] for token in shared]),
        target_only=math.fsum(p for token, p in target.probs.items() if token not in draft.probs),
        draft_only=np.array([q for token, q in draft.probs.items() if token not in target.probs]),
        target_tail=target.tail,
        draft_tail=draft.tail,
        draft_tail_range=(draft.least_tail, draft.most_tail),
    )
