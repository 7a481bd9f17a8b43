"""The interval in which the acceptance bound lies, from the most likely tokens of both sides."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mdsd._arguments import shown
from mdsd._shown import Shown
from mdsd._solvers.certificates import certified_gap
from mdsd.drafts import (
    Draft,
    DraftDistribution,
    DraftKind,
    GreedyDraft,
    IndependentDrafts,
    WithoutReplacement,
    WithReplacement,
    read_kind,
)
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    UnsupportedError,
    solver_errors,
)
from mdsd.intervals.draws import ends_with_replacement, ends_without_replacement
from mdsd.intervals.greedy import ends_greedy
from mdsd.intervals.independent import ends_independent
from mdsd.intervals.known import KnownProbs, check_same_tokens, overlap, read_known, require_tokens

Token = TypeVar("Token", bound=Hashable)

_OUTWARD = 1e-12
"""How far the ends are moved outwards, so that no rounding excludes the value."""


@dataclass(frozen=True, repr=False)
class AcceptanceInterval(Shown):
    """Where an acceptance bound lies, whatever the unknown probabilities are.

    Attributes
    ----------
    lower, upper : float
        Its ends, in [0, 1].

    Examples
    --------
    >>> from mdsd import AcceptanceInterval
    >>> AcceptanceInterval(lower=0.8, upper=0.9)
    AcceptanceInterval(lower=0.8, upper=0.9)
    """

    lower: float
    upper: float

    def _facts(self) -> dict[str, object]:
        return vars(self)


def acceptance_interval(
    target_logprobs: Mapping[Token, float],
    draft_logprobs: Mapping[Token, float] | Sequence[Mapping[Token, float]],
    *,
    draft: Draft = "with_replacement",
    num_drafts: int,
) -> AcceptanceInterval:
    """Bound the acceptance bound alpha* from the log-probabilities of some tokens.

    Serving engines return the log-probabilities of the most likely tokens only. The interval holds
    `acceptance_bound` of the full laws, wherever their remaining mass lies.

    Parameters
    ----------
    target_logprobs : mapping of token to float
        Natural log-probabilities, at temperature 1, of the tokens known of the target. A token is
        anything that can be a key, such as its id or its text. ``-inf`` is a token known to have
        probability 0; tokens not listed may have any.
    draft_logprobs : mapping of token to float, or sequence of n such mappings
        The same of the draft model, under the same names of tokens; for independent drafts of each
        of the n draft models, in draft order.
    draft : str or DraftKind, default "with_replacement"
        Kind of draft: ``with_replacement``, ``without_replacement``, ``independent`` or ``greedy``.
    num_drafts : int
        n >= 1; for independent drafts the number of models.

    Returns
    -------
    AcceptanceInterval
        Ends rounded outwards by 1e-12.

    Raises
    ------
    InvalidDistributionError
        If a mapping is none or empty, a value is no number <= 0, known probabilities sum to more
        than 1 by more than 1e-3 (within it they are renormalised), or the draft cannot have n
        tokens where it needs them; names the argument, and the token and the value or the sum.
    InvalidArgumentError
        If `draft` or `num_drafts` is not what it should be, or if one side has only integers for
        tokens and the other only strings, which have no token in common.
    UnsupportedError
        If there is no interval for that draft distribution; names those that have one.
    SolverError
        If the lower end found is above the upper one.

    Notes
    -----
    The bound is the least p(H) + f(A) over all sets A of tokens, H the others and f(A) the chance
    that a draft lies in A: formulation (8) of Hu et al., "Towards Optimal Multi-draft Speculative
    Decoding". A completion is a choice of the unknown probabilities.

    *Lower end.* Every completion has p(H) at least as if the target's unknown mass were all in A,
    and f(A) at least as if the draft's unknown mass were all in H; without replacement, at least as
    if it were split without end there, so that it offers ever new tokens. One completion, in the
    limit, does all this at once: the unknown masses of both sides miss each other. So the end is
    the greatest there is.

    *Upper end.* For every set the greatest value that a completion gives it is known, and the
    least of these over all sets is an end. With replacement, and for the greedy draft whose
    top tokens are known, a completion attains it. A token known to one side only is never taken to
    be 0 on the other side, nor is an unknown probability taken to be at most the least known one:
    logs may hold a token because it was sampled, or those of several lists.

    *Greedy.* The n - 1 most likely draft tokens are read from the log, ties as it lists them or by
    id. It is taken to hold the most likely draft tokens and, where it has fewer than n, at most one
    more, so that one token alone need not be the most likely; a union of lists needs n - 1 tokens
    from that of the draft.

    Known values are taken at their word. Where they are rounded to r, so are the ends, up to a
    factor of n; more without replacement and for greedy drafts, if the draft leaves little mass
    beside its first tokens. Independent drafts are searched, and with a few hundred tokens and more
    the ends may lie wider apart than they must; they are valid all the same.

    Examples
    --------
    >>> from math import log
    >>> from mdsd import acceptance_interval
    >>> target = {" Paris": log(0.6), " the": log(0.2), " a": log(0.1)}
    >>> draft = {" the": log(0.5), " Paris": log(0.3), " in": log(0.1)}
    >>> found = acceptance_interval(target, draft, num_drafts=2)
    >>> round(found.lower, 6), round(found.upper, 6)
    (0.71, 0.91)
    >>> found = acceptance_interval(target, draft, draft="without_replacement", num_drafts=2)
    >>> round(found.lower, 6), round(found.upper, 6)
    (0.8, 1.0)
    """
    kind = read_kind(draft)
    ends = _ENDS.get(kind.draft_type)
    if ends is None:
        names = ", ".join(map(str, interval_kinds()))
        raise UnsupportedError(
            f"draft is {kind.label!r}, which has no interval; those with one: {names}"
        )
    count = kind.check_count(num_drafts)
    target = read_known(target_logprobs, "target_logprobs")
    if kind.one_model_each:
        drafts = _read_drafts(target, draft_logprobs, count)
    else:
        drafts = [read_known(draft_logprobs, "draft_logprobs")]
        check_same_tokens(target, drafts[0], "draft_logprobs")
    if kind.distinct:
        require_tokens(drafts[0], "draft_logprobs", count, kind.draft_type.words)
    return _outward(*ends(target, drafts, count))


_Ends = Callable[[KnownProbs, list[KnownProbs], int], tuple[float, float]]

_ENDS: dict[type[DraftDistribution], _Ends] = {
    WithReplacement: lambda p, qs, n: ends_with_replacement(overlap(p, qs[0]), n),
    WithoutReplacement: lambda p, qs, n: ends_without_replacement(overlap(p, qs[0]), n),
    IndependentDrafts: lambda p, qs, n: ends_independent(p, qs),
    GreedyDraft: lambda p, qs, n: ends_greedy(p, qs[0], n),
}
"""What is known of each draft distribution when parts of its output distributions are not."""


def interval_kinds() -> tuple[DraftKind, ...]:
    """List the kinds of drafts for which there is an interval.

    Examples
    --------
    >>> [str(kind) for kind in interval_kinds()]
    ['with_replacement', 'without_replacement', 'independent', 'greedy']
    """
    return tuple(draft_type.kind() for draft_type in _ENDS)


def _read_drafts(target: KnownProbs, draft_logprobs: Any, num_drafts: int) -> list[KnownProbs]:
    """Read one mapping for each independent draft."""
    try:
        several = not isinstance(draft_logprobs, (Mapping, str)) and len(draft_logprobs) > 0
    except TypeError:
        several = False
    if not several:
        given = "missing" if draft_logprobs is None else shown(draft_logprobs)
        raise InvalidDistributionError(
            f"draft_logprobs is {given}; expected one mapping of tokens to log-probabilities "
            "for each independent draft"
        )
    if len(draft_logprobs) != num_drafts:
        raise InvalidArgumentError(
            f"num_drafts is {num_drafts}; draft_logprobs has {len(draft_logprobs)} mappings"
        )
    drafts = []
    for j, logprobs in enumerate(draft_logprobs):
        label = f"draft_logprobs[{j}]"
        drafts.append(read_known(logprobs, label))
        check_same_tokens(target, drafts[-1], label)
    return drafts


def _outward(lower: float, upper: float) -> AcceptanceInterval:
    with solver_errors():
        certified_gap(upper, lower, method="interval")
    low, high = sorted((lower, upper))  # apart by rounding at most, if that moves either
    ends = (min(max(end, 0.0), 1.0) for end in (low - _OUTWARD, high + _OUTWARD))
    return AcceptanceInterval(*map(float, ends))
