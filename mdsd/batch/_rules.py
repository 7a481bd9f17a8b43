"""Which rule a verifier follows for a kind of draft, where batches know it without its plans."""

from __future__ import annotations

from enum import Enum, auto

from mdsd.drafts import DraftDistribution, TopKDraft, WithoutReplacement, WithReplacement
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

__all__ = ["Rule", "rule_of"]


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


def rule_of(verifier: Verifier, draft: DraftDistribution) -> Rule | None:
    """Give the rule of a verifier for a kind of draft, or None where only its plans know.

    Types are compared exactly: a subclass may do anything.
    """
    kind = type(verifier)
    if kind is OptimalVerifier:
        closed = _closed_form(draft)
        if closed is not None:
            # A single top token is drafted with probability 1, whatever its row says.
            certain = draft.num_drafts == 1 and type(draft) is TopKDraft
            return None if certain else rule_of(closed, draft)
        return Rule.MARKS if type(draft) is WithReplacement else None
    if kind is RRSVerifier:
        if draft.num_drafts == 1:
            return Rule.SINGLE_FIRST
        if type(draft) is WithReplacement:
            return Rule.RRS_STEADY
        return Rule.RRS_SHRINKING if type(draft) is WithoutReplacement else None
    return _BY_VERIFIER.get(kind)
