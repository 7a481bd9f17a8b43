"""What is called with bad values: data, drafts and plans of three tokens, drafts that lie."""

from __future__ import annotations

from typing import Any

import numpy as np

import mdsd

from .rows import Values
from .values import NAN, P, Q

DATA = mdsd.datasets.load("smollm2")
DRAFTS: dict[str, mdsd.DraftDistribution] = {
    "WithReplacement": mdsd.WithReplacement(Q, 2),
    "WithoutReplacement": mdsd.WithoutReplacement(Q, 2),
    "IndependentDrafts": mdsd.IndependentDrafts([Q, P]),
    "GreedyDraft": mdsd.GreedyDraft(Q, 2),
    "SpecHubDraft": mdsd.SpecHubDraft(Q),
    "TopKDraft": mdsd.TopKDraft(Q, 2),
    "HybridDraft": mdsd.HybridDraft(Q, 2, 1),
    "JointDrafts": mdsd.JointDrafts([[mdsd.WithReplacement(Q, 1), mdsd.TopKDraft(P, 1)]]),
    "ExplicitDraft": mdsd.ExplicitDraft([[0, 1], [2, 1]], [0.25, 0.75], vocab_size=3),
}
PLANS: dict[str, mdsd.Plan] = {
    "single": mdsd.SingleDraftVerifier().plan(P, mdsd.WithReplacement(Q, 1)),
    "naive": mdsd.NaiveVerifier().plan(P, DRAFTS["ExplicitDraft"]),
    "naive_tree": mdsd.NaiveTreeVerifier().plan(P, DRAFTS["WithReplacement"]),
    "rrs": mdsd.RRSVerifier().plan(P, DRAFTS["WithReplacement"]),
    "rrs_paths": mdsd.RRSVerifier().plan(P, DRAFTS["WithoutReplacement"]),
    "kseq": mdsd.KSeqVerifier().plan(P, DRAFTS["WithReplacement"]),
    "spechub": mdsd.SpecHubVerifier().plan(P, DRAFTS["SpecHubDraft"]),
    "greedy": mdsd.GreedyVerifier().plan(P, DRAFTS["GreedyDraft"]),
    "marks": mdsd.OptimalVerifier().plan(P, DRAFTS["WithReplacement"]),
    "lottery": mdsd.OptimalVerifier().plan(P, DRAFTS["IndependentDrafts"]),
    "top_k": mdsd.OptimalVerifier().plan(P, DRAFTS["TopKDraft"]),
}


class LyingDraft(mdsd.DraftDistribution):
    """A user's draft distribution whose hit probabilities are what they are set to."""

    name, num_drafts, vocab_size = "lying", 2, 3

    def __init__(self, hits: Any) -> None:
        self.hits = hits

    def hit_probs(self, order: Any) -> Any:
        return self.hits

    def sample(self, rng: Any, size: int | None = None) -> Any:
        return np.zeros((2,) if size is None else (size, 2), dtype=np.int64)


class BareDraft(LyingDraft):
    """It says neither how many tokens it drafts nor from how many."""

    num_drafts = vocab_size = None


LYING_DRAFTS: Values = {
    "hits_nan": (LyingDraft(np.full(4, NAN)), "nan"),
    "hits_too_short": (LyingDraft(np.array([0.0, 0.5, 1.0])), "(3,)"),
    "hits_falling": (LyingDraft(np.array([0.0, 1.0, 0.5, 1.0])),),
    "hits_above_one": (LyingDraft(np.array([0.0, 1.0, 2.0, 3.0])),),
    "hits_end_below_one": (LyingDraft(np.array([0.0, 0.1, 0.2, 0.3])), "0.3"),
    "hits_strings": (LyingDraft(["0", "0.5", "1", "1"]),),
    "no_sizes": (BareDraft(np.array([0.0, 0.5, 1.0, 1.0])), "None"),
}
