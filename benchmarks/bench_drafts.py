"""Drafts drawn: the first row of a draft, rows after it, and a thousand at once."""

import numpy as np
import pytest

import mdsd

KINDS = {
    "with_replacement": lambda draft_probs: mdsd.WithReplacement(draft_probs, 4),
    "without_replacement": lambda draft_probs: mdsd.WithoutReplacement(draft_probs, 4),
    "hybrid": lambda draft_probs: mdsd.HybridDraft(draft_probs, 4, num_top=1),
    "greedy": lambda draft_probs: mdsd.GreedyDraft(draft_probs, 4),
    "spechub": mdsd.SpecHubDraft,
    "independent": lambda draft_probs: mdsd.IndependentDrafts([draft_probs] * 4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_draw_first(measure, peaked, kind):
    """With the making of the draft, which keeps what it sums."""
    rng = np.random.default_rng(0)
    measure(
        lambda: KINDS[kind](peaked.draft).sample(rng),
        peaked,
        quality=lambda _: "draft made and one row drawn",
    )


@pytest.mark.parametrize("size", [1, 1000], ids="rows={}".format)
@pytest.mark.parametrize("kind", KINDS)
def test_draw(measure, benchmark, peaked, kind, size):
    draft, rng = KINDS[kind](peaked.draft), np.random.default_rng(0)

    def microseconds(_):
        return f"{benchmark.stats.stats.median / size * 1e6:.3g} microseconds a row"

    measure(lambda: draft.sample(rng, size), peaked, quality=microseconds)
