"""Acceptance bounds at full vocabulary: draft object made beforehand, validation included."""

import numpy as np
import pytest

import mdsd

DRAFTS = {
    "with_replacement": mdsd.WithReplacement,
    "without_replacement": mdsd.WithoutReplacement,
    "greedy": mdsd.GreedyDraft,
}


@pytest.mark.parametrize("num_drafts", [2, 4])
@pytest.mark.parametrize("name", DRAFTS)
def test_bound(measure, peaked, name, num_drafts):
    draft = DRAFTS[name](peaked.draft, num_drafts)
    measure(
        lambda: mdsd.acceptance_bound(peaked.target, draft),
        peaked,
        quality=lambda bound: f"bound {bound.value:.6f}",
    )


def test_single_draft_overlap(measure, peaked):
    measure(
        lambda: float(np.minimum(peaked.target, peaked.draft).sum()),
        peaked,
        quality=lambda value: f"sum min(p, q) {value:.6f}",
    )


@pytest.mark.parametrize("heavy", [1 - 1e-12, 0.998], ids="heavy={}".format)
def test_bound_without_replacement_of_a_peaked_draft(measure, peaked, heavy):
    draft_probs = np.append(
        heavy, (1 - heavy) * mdsd.filter_probs(peaked.draft[:-1] / peaked.draft[:-1].sum())
    )
    draft = mdsd.WithoutReplacement(draft_probs, 4)
    measure(
        lambda: mdsd.acceptance_bound(peaked.target, draft),
        peaked,
        quality=lambda bound: f"bound {bound.value:.6f}",
    )
