"""The draft distributions of this package: a new one is made known here, and nowhere else."""

from __future__ import annotations

from mdsd.drafts.base import DraftDistribution
from mdsd.drafts.explicit import ExplicitDraft
from mdsd.drafts.greedy import GreedyDraft
from mdsd.drafts.hybrid import HybridDraft
from mdsd.drafts.independent import IndependentDrafts
from mdsd.drafts.joint import JointDrafts
from mdsd.drafts.spechub import SpecHubDraft
from mdsd.drafts.top_k import TopKDraft
from mdsd.drafts.with_replacement import WithReplacement
from mdsd.drafts.without_replacement import WithoutReplacement

__all__ = [
    "ExplicitDraft",
    "GreedyDraft",
    "HybridDraft",
    "IndependentDrafts",
    "JointDrafts",
    "SpecHubDraft",
    "TopKDraft",
    "WithReplacement",
    "WithoutReplacement",
]

BUILT_IN: tuple[type[DraftDistribution], ...] = (
    WithReplacement,
    WithoutReplacement,
    IndependentDrafts,
    GreedyDraft,
    SpecHubDraft,
    TopKDraft,
    HybridDraft,
)
"""Those that are made from output distributions, in the order in which they are listed."""
