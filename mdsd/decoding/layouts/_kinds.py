"""How drafted tokens came about: drawn as a kind of draft draws them, or chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mdsd._arguments import check_name
from mdsd._typing import IntArray
from mdsd.decoding.layouts._inputs import ProbRows, one_hot_rows, read_probs
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.verification import step_verification
from mdsd.drafts import (
    Draft,
    DraftDistribution,
    DraftKind,
    IndependentDrafts,
    TopKDraft,
    WithReplacement,
    default_kinds,
    draft_names,
    read_kind,
)
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, UnsupportedError
from mdsd.verifiers import Verifier, get_verifier

_DETERMINISTIC = "deterministic"
"""The draft of engines whose drafted tokens are chosen, not drawn: it has no probabilities."""

_PREFERRED = ("rrs", "greedy", "spechub", "naive")
"""Verifiers that are taken where the caller names none; the last one supports every draft."""


def read_draft(
    draft: Draft,
    draft_probs: Any,
    fits: Callable[[DraftKind], bool],
    shape: tuple[int, ...],
    words: str,
    target: ProbRows,
) -> tuple[DraftKind | None, ProbRows | None]:
    """Read how drafted tokens were drawn, and from what; None and None where they were chosen.

    Parameters
    ----------
    draft : str or DraftKind
    draft_probs : array_like, tensor or None
    fits : callable
        Tells whether a kind fits the layout.
    shape : tuple of int
        Of the distributions, but for the last axis.
    words, target
        As for `read_probs`.

    Raises
    ------
    InvalidArgumentError
        If the kind is not known, does not fit or has wrong options, or if distributions are given
        beside the statement that there are none.
    InvalidDistributionError
        If they are missing, of the wrong shape, or on another device.
    """
    known = isinstance(draft, str) and draft.partition(":")[0] in draft_names()
    kind = read_kind(draft) if known or isinstance(draft, DraftKind) else None
    if kind is None or not fits(kind):
        fitting = [each.label for each in default_kinds() if fits(each)]
        check_name("draft", draft, [*fitting, _DETERMINISTIC])
        if draft_probs is not None:
            raise InvalidArgumentError(
                "draft_probs is given together with draft='deterministic', which says that the "
                "drafted tokens were not drawn at all; leave out one of them"
            )
        return None, None
    if draft_probs is None:
        raise InvalidDistributionError(
            "draft_probs is missing: give the laws that the drafted tokens were drawn from, or "
            "draft='deterministic' if they were chosen"
        )
    return kind, read_probs(draft_probs, "draft_probs", (*shape, target.vocab_size), words, target)


def find_verification(
    verifier: str | Verifier | StepVerification | None,
    kind: DraftKind | None,
    counts: Iterable[int],
) -> StepVerification:
    """Take the verification that was asked for, or one that supports so many drafts of a kind.

    Raises
    ------
    InvalidArgumentError
        If a name is not known, or such numbers of drafts are not drawn.
    """
    if verifier is not None:
        return step_verification(verifier)
    if kind is None:
        return step_verification(_PREFERRED[-1])
    examples = [kind.example(count) for count in counts]
    known = map(get_verifier, _PREFERRED)
    return step_verification(next(each for each in known if all(map(each.supports, examples))))


def chosen_kind(verification: StepVerification, num_drafts: int) -> DraftKind:
    """Find the kind as which a verification knows tokens that were chosen.

    These are a top-k draft, or else independent draws from one-hot distributions; a single one may
    be drawn with replacement too. If the verification supports none of them, the first is given.
    """
    kinds = [TopKDraft.kind(), IndependentDrafts.kind()]
    if num_drafts == 1:
        kinds.append(WithReplacement.kind())
    supported = (kind for kind in kinds if _supports(verification, kind.example(num_drafts)))
    return next(supported, kinds[0])


def _supports(verification: StepVerification, example: DraftDistribution) -> bool:
    try:
        verification.check([example])
    except UnsupportedError:
        return False
    return True


def chosen_rows(kind: DraftKind, ids: IntArray, like: ProbRows) -> Any:
    """Write the distributions from which a kind draws given tokens whatever chance does.

    Parameters
    ----------
    kind : DraftKind
        Of `chosen_kind`.
    ids : ndarray of int64, shape (R, n)
        Different tokens in each row.
    like : ProbRows
        The distributions that they are verified against.

    Returns
    -------
    ndarray or tensor, shape (R, V), or (R, n, V) where each draft has its own
    """
    if kind.one_model_each:
        return one_hot_rows(ids, like)
    # Any distribution whose most likely tokens are these, in their order.
    weights = np.arange(ids.shape[1], 0, -1.0)
    weights /= weights.sum()
    return sum(one_hot_rows(row, like) * float(w) for row, w in zip(ids.T, weights, strict=True))
