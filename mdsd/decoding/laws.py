"""The draft distribution at one node of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.batch._inputs import make_draft
from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)

__all__ = ["BATCH_LAWS", "example_law", "node_law"]

BATCH_LAWS: frozenset[type[DraftDistribution]] = frozenset(
    {
        WithReplacement,
        WithoutReplacement,
        IndependentDrafts,
        GreedyDraft,
        SpecHubDraft,
        TopKDraft,
    }
)
"""Draft distributions that `mdsd.verify_batch` knows by name and `draft_probs`."""


def node_law(draft: str, draft_probs: FloatArray, num_drafts: int) -> DraftDistribution:
    """Give the law of the tokens drafted at a node, as many as there are to draw.

    Where a law of distinct tokens finds fewer of positive probability than it is to draw, as any
    does at temperature 0, the node gets fewer children: all tokens there are.

    Parameters
    ----------
    draft : str
        Name of the draft distribution.
    draft_probs : ndarray of float64, shape (V,), or (m, V) for independent drafts
        Of the first `num_drafts` of m models, one draft each.
    num_drafts : int
        Children that the shape of the tree gives the node.

    Returns
    -------
    DraftDistribution

    Examples
    --------
    >>> node_law("without_replacement", np.array([0.0, 0.75, 0.25]), 3)
    WithoutReplacement(num_drafts=2, vocab_size=3)
    """
    if draft == IndependentDrafts.name:
        return IndependentDrafts(list(draft_probs[:num_drafts]))
    if draft == WithReplacement.name:
        return WithReplacement(draft_probs, num_drafts)
    count = min(num_drafts, int(np.count_nonzero(draft_probs)))
    if draft == SpecHubDraft.name and count < SpecHubDraft.num_drafts:
        return WithoutReplacement(draft_probs, count)  # one token, beyond doubt
    return make_draft(draft, draft_probs, count)


def example_law(draft: Any, num_drafts: int) -> DraftDistribution:
    """Make some law of a kind, to find out who supports it before any model is asked.

    Parameters
    ----------
    draft : str
        Checked name of a draft distribution.
    num_drafts : int

    Returns
    -------
    DraftDistribution

    Raises
    ------
    InvalidArgumentError
        If that kind does not draft so many tokens.
    """
    size = max(num_drafts, 2)
    uniform = np.full(size, 1.0 / size)
    several = draft == IndependentDrafts.name
    return make_draft(draft, [uniform] * num_drafts if several else uniform, num_drafts)
