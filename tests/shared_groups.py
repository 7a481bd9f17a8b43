"""Lotteries whose tokens share groups, at sizes that can be enumerated."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd._solvers import token_lottery
from mdsd._solvers.grouped_law import single_groups
from mdsd._typing import FloatArray
from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    HybridDraft,
    IndependentDrafts,
    JointDrafts,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.verifiers.lottery import LotteryPlan


def share_groups(patch: pytest.MonkeyPatch) -> None:
    """Let one token stand alone and one group hold the others, where there would be dozens.

    Of draws without replacement, the tokens of more than 1/500 or so of the mass still stand alone.
    """
    for name in ("EXACT", "FAST"):
        patch.setattr(token_lottery, name, token_lottery.Effort(1, 1e-6, 60, 1))
    patch.setattr(token_lottery, "FEWEST_GROUPS", 1)
    patch.setattr(token_lottery, "FEW", 0)


def heavy_and_tiny(rng: np.random.Generator, heavy: int, tiny: int) -> FloatArray:
    """A few heavy tokens, and so many of up to 1/500 of the lightest, which share a group.

    The first of the tiny ones has no mass at all.
    """
    masses = np.append(rng.uniform(0.5, 1.0, heavy), rng.uniform(0.2, 1.0, tiny))
    masses[heavy:] *= 2e-3 * masses[:heavy].min()
    masses[heavy] = 0.0
    masses = masses[rng.permutation(len(masses))]
    return np.asarray(masses / masses.sum())


def without_replacement(rng: np.random.Generator) -> DraftDistribution:
    return WithoutReplacement(heavy_and_tiny(rng, 3, 20), 2)


def independent(rng: np.random.Generator) -> DraftDistribution:
    return IndependentDrafts([rng.dirichlet(np.ones(6)) for _ in range(2)])


def hybrid(rng: np.random.Generator) -> DraftDistribution:
    return HybridDraft(heavy_and_tiny(rng, 4, 20), 3, 1)


def joint(rng: np.random.Generator) -> DraftDistribution:
    """Three groups of drafts: without replacement, of two models, and known beforehand."""
    first, second = rng.dirichlet(np.ones(4), 2)
    two_models = [WithReplacement(first, 1), WithReplacement(second, 1)]
    draws = WithoutReplacement(heavy_and_tiny(rng, 2, 8), 2)
    return JointDrafts([draws, two_models, GreedyDraft(first, 2)], num_others=1)


DRAFTS = {
    "without_replacement": without_replacement,
    "independent": independent,
    "hybrid": hybrid,
    "joint": joint,
}


def target_for(rng: np.random.Generator, draft: DraftDistribution) -> FloatArray:
    """A target with up to five times more or less than what is drafted, and one token never."""
    masses = draft.token_hit_probs() * 5.0 ** rng.uniform(-1.0, 1.0, draft.vocab_size)
    masses += 1e-3 * rng.random(draft.vocab_size)
    masses[rng.integers(draft.vocab_size)] = 0.0
    return np.asarray(masses / masses.sum())


def shares(plan: LotteryPlan) -> bool:
    """Whether some group of a plan holds several tokens that can be drafted."""
    lottery = plan._lottery
    drawn = np.flatnonzero(plan.draft.token_hit_probs())
    sizes = np.bincount(lottery.groups_of(drawn), minlength=len(single_groups(lottery._law)))
    return bool(sizes.max() > 1)
