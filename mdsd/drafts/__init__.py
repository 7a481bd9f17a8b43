"""Draft distributions: the joint law of the draft tokens of one step, sampled AND declared."""

from __future__ import annotations

from mdsd.drafts.base import MAX_TUPLES, DraftDistribution
from mdsd.drafts.explicit import ExplicitDraft
from mdsd.drafts.greedy import GreedyDraft
from mdsd.drafts.independent import IndependentDrafts
from mdsd.drafts.kinds import DraftKind
from mdsd.drafts.registry import Draft, default_kinds, draft_names, read_kind
from mdsd.drafts.spechub import SpecHubDraft
from mdsd.drafts.top_k import TopKDraft
from mdsd.drafts.with_replacement import WithReplacement
from mdsd.drafts.without_replacement import WithoutReplacement

__all__ = [
    "MAX_TUPLES",
    "Draft",
    "DraftDistribution",
    "DraftKind",
    "ExplicitDraft",
    "GreedyDraft",
    "IndependentDrafts",
    "SpecHubDraft",
    "TopKDraft",
    "WithReplacement",
    "WithoutReplacement",
    "default_kinds",
    "draft_names",
    "read_kind",
]
