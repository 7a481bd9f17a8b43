"""Which compiled kernels a batch may use: by the class of the drafts, and by that of the verifier.

Classes are compared exactly: a subclass, or a class of another package, may do anything. What is
not listed here goes through bounds and plans, row by row.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import cast

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


class Rule(IntEnum):
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


class Selection(IntEnum):
    """How a fast optimal verifier selects, given no more than sums over groups of tokens."""

    MARKS = auto()
    """By the smallest mark."""
    ORDERS = auto()
    """By a lottery over orders of groups."""


class Value(IntEnum):
    """An acceptance bound or rate in closed form."""

    BOUND_WITH = auto()
    """The bound of drafts with replacement."""
    BOUND_WITHOUT = auto()
    """The bound of drafts without replacement."""
    TOP = auto()
    """What the top n meet of the target: the bound, and a rate."""
    TOP_AND_ONE = auto()
    """The same of the top n - 1 and of one more, sampled off them, by the single-draft rule."""
    FIRST = auto()
    """The rate of the single-draft rule for the first draft, the others being met by chance."""
    RRS = auto()
    """The rate of recursive rejection of drafts with replacement."""
    KSEQ = auto()
    """The rate of K-SEQ."""
    MET = auto()
    """The chance that a token of the target is among drafts with replacement."""
    MET_WITHOUT = auto()
    """The same without replacement."""
    MET_BY_TOP_AND_ONE = auto()
    """The same of the top n - 1 and one more."""


_BY_VERIFIER = {
    SingleDraftVerifier: Rule.SINGLE_FIRST,
    NaiveTreeVerifier: Rule.SINGLE_FIRST,
    NaiveVerifier: Rule.NAIVE,
    KSeqVerifier: Rule.KSEQ,
    GreedyVerifier: Rule.SINGLE_LAST,
    SpecHubVerifier: Rule.SPECHUB,
}

_VALUES: dict[type[DraftDistribution], tuple[Value, Value]] = {
    WithReplacement: (Value.BOUND_WITH, Value.MET),
    WithoutReplacement: (Value.BOUND_WITHOUT, Value.MET_WITHOUT),
    IndependentDrafts: (Value.BOUND_WITH, Value.MET),  # one of them: of several there is none
    GreedyDraft: (Value.TOP_AND_ONE, Value.MET_BY_TOP_AND_ONE),
    SpecHubDraft: (Value.TOP_AND_ONE, Value.MET_BY_TOP_AND_ONE),  # a greedy pair in another order
    TopKDraft: (Value.TOP, Value.TOP),
}
"""The acceptance bound of each, and the chance that a token drawn from the target was drafted."""

_ACCEPTED = {
    Rule.SINGLE_FIRST: Value.FIRST,
    Rule.SINGLE_LAST: Value.TOP_AND_ONE,
    Rule.SPECHUB: Value.TOP_AND_ONE,  # accepts as much as the greedy verifier does
    Rule.RRS_STEADY: Value.RRS,
    Rule.KSEQ: Value.KSEQ,
}
"""The rate of each rule that tests drafts."""

_DRAWN_FIRST = (WithReplacement, WithoutReplacement, IndependentDrafts, GreedyDraft)
"""Drafts of which a single one is drawn from its row as it is."""


def bound_of(draft: DraftDistribution) -> Value | None:
    """Give the closed form of acceptance bounds for drafts like this one; None if there is none."""
    return _values(draft)[0]


def rate_of(rule: Rule, draft: DraftDistribution) -> Value | None:
    """Give the closed form of the rate of a rule for drafts like this one, or None."""
    met = _values(draft)[1]
    return met if rule is Rule.NAIVE or met is None else _ACCEPTED.get(rule)


def _values(draft: DraftDistribution) -> tuple[Value, Value] | tuple[None, None]:
    if draft.one_model_each and draft.num_drafts > 1:
        return None, None
    return _VALUES.get(type(draft), (None, None))


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


def mark_gap(verifier: Verifier) -> float:
    """Give the gap at which marks are shared by groups of tokens that are fine enough; 0 for none.

    Of the optimal verifier, of whose rule this is.
    """
    from mdsd.verifiers.marks import FAST_GAP

    optimal = cast(OptimalVerifier, verifier)
    return max(optimal.tolerance, FAST_GAP) if optimal.effort == "fast" else 0.0


_SELECTIONS: dict[type[DraftDistribution], Selection] = {
    WithReplacement: Selection.MARKS,
    WithoutReplacement: Selection.ORDERS,
}


def selection_of(verifier: Verifier, draft: DraftDistribution) -> tuple[Selection, float] | None:
    """Say how a verifier selects from drafts like this one, and to what tolerance; None if not so.

    Examples
    --------
    >>> from mdsd import OptimalVerifier, WithReplacement
    >>> draft = WithReplacement([0.5, 0.5], 2)
    >>> selection_of(OptimalVerifier(effort="fast"), draft)
    (<Selection.MARKS: 1>, 1e-09)
    >>> selection_of(OptimalVerifier(effort="exact"), draft) is None
    True
    """
    if type(verifier) is not OptimalVerifier or verifier.effort != "fast" or draft.num_drafts == 1:
        return None
    found = _SELECTIONS.get(type(draft))
    if found is None or (found is Selection.ORDERS and verifier.max_iterations is not None):
        return None
    return found, verifier.tolerance
