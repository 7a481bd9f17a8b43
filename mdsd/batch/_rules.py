"""Which compiled kernels a batch may use: by the class of the drafts, and by that of the verifier.

Classes are compared exactly: a subclass, or a class of another package, may do anything. What is
not listed here goes through bounds and plans, row by row.
"""

from __future__ import annotations

from enum import Enum, auto

from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.verifiers import (
    GreedyVerifier,
    KSeqVerifier,
    NaiveTreeVerifier,
    NaiveVerifier,
    OptimalVerifier,
    RRSVerifier,
    SingleDraftVerifier,
    SpecHubVerifier,
    Verifier,
)
from mdsd.verifiers.optimal import _closed_form

__all__ = ["Rule", "bound_kernel", "met_kernel", "rule_of"]


class Rule(Enum):
    """What is done with the drafts of a row."""

    NAIVE = auto()
    """Draw from the target, whatever was drafted."""
    SINGLE_FIRST = auto()
    """The single-draft rule for the first draft."""
    SINGLE_LAST = auto()
    """The single-draft rule for the last draft, against q off the others."""
    RRS_STEADY = auto()
    """Recursive rejection of drafts with replacement."""
    RRS_SHRINKING = auto()
    """Recursive rejection of drafts without replacement."""
    KSEQ = auto()
    """The same test of every draft."""
    SPECHUB = auto()
    """The hub and its partner."""
    MARKS = auto()
    """The mark coupling."""


_BY_VERIFIER = {
    SingleDraftVerifier: Rule.SINGLE_FIRST,
    NaiveTreeVerifier: Rule.SINGLE_FIRST,
    NaiveVerifier: Rule.NAIVE,
    KSeqVerifier: Rule.KSEQ,
    GreedyVerifier: Rule.SINGLE_LAST,
    SpecHubVerifier: Rule.SPECHUB,
}

_KERNELS: dict[type[DraftDistribution], tuple[str, str]] = {
    WithReplacement: ("WITH", "MET"),
    WithoutReplacement: ("WITHOUT", "MET_WITHOUT"),
    IndependentDrafts: ("WITH", "MET"),  # one of them: of several there is no kernel
    GreedyDraft: ("TOP_AND_ONE", "MET_BY_TOP_AND_ONE"),
    SpecHubDraft: ("TOP_AND_ONE", "MET_BY_TOP_AND_ONE"),  # the greedy pair in another order
    TopKDraft: ("DETERMINISTIC", "MET_BY_TOP"),
}
"""Names in `_bound_kernels`, and in `_rate_kernels` of the rate at which a token is met."""

_DRAWN_FIRST = (WithReplacement, WithoutReplacement, IndependentDrafts, GreedyDraft)
"""Drafts of which a single one is drawn from its row as it is."""


def bound_kernel(draft: DraftDistribution) -> str | None:
    """Name the kernel of acceptance bounds for drafts like this one; None if there is none."""
    return _kernels(draft)[0]


def met_kernel(draft: DraftDistribution) -> str | None:
    """Name the kernel of the chance that a token drawn from the target was drafted, or None."""
    return _kernels(draft)[1]


def _kernels(draft: DraftDistribution) -> tuple[str, str] | tuple[None, None]:
    if draft.one_model_each and draft.num_drafts > 1:
        return None, None
    return _KERNELS.get(type(draft), (None, None))


def rule_of(verifier: Verifier, draft: DraftDistribution) -> Rule | None:
    """Give the rule of a verifier for drafts like this one, or None where only plans know it."""
    rule = _named_rule(verifier, draft)
    if rule is Rule.SINGLE_FIRST and type(draft) not in _DRAWN_FIRST:
        return None
    return rule


def _named_rule(verifier: Verifier, draft: DraftDistribution) -> Rule | None:
    kind = type(verifier)
    if kind is OptimalVerifier:
        closed = _closed_form(draft)
        if closed is not None:
            return _named_rule(closed, draft)
        return Rule.MARKS if type(draft) is WithReplacement else None
    if kind is RRSVerifier:
        if draft.num_drafts == 1:
            return Rule.SINGLE_FIRST
        if type(draft) is WithReplacement:
            return Rule.RRS_STEADY
        return Rule.RRS_SHRINKING if type(draft) is WithoutReplacement else None
    return _BY_VERIFIER.get(kind)
