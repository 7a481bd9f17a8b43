"""Plans that select one draft by lot: lossless, optimal, and with the masses that they state."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import mdsd
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.selection import OnlyDraftPlan, SelectingVerifier, TopDraftsPlan
from mdsd.testing import check_plan, chi_square_p_value, drafts_of
from mdsd.verifiers.base import SelectionPlan

from .toys import V

FALSE_ALARM = 1e-6


def random_pair(seed, zeros=0.3):
    """Target and draft with zeros, at least two tokens in the draft."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    rows = rng.dirichlet(np.full(size, 0.4), size=2)
    rows[rng.random((2, size)) < zeros] = 0.0
    rows[0, rng.integers(size)] += 0.05
    rows[1, rng.permutation(size)[:2]] += 0.05
    return rows / rows.sum(axis=1, keepdims=True)


def top_laws(probs):
    for n in range(1, np.count_nonzero(probs) + 1):
        yield mdsd.GreedyDraft(probs, n)
        yield mdsd.TopKDraft(probs, n)
    yield mdsd.SpecHubDraft(probs)
    yield mdsd.WithReplacement(probs, 1)
    yield mdsd.IndependentDrafts([probs])


EDGES = {
    "no target on the top": ([0.0, 0.5, 0.5], [0.5, 0.3, 0.2]),
    "no target drafted at all": ([0.0, 0.0, 1.0], [0.6, 0.4, 0.0]),
    "hardly any target on the top": ([5e-324, 1.0, 0.0], [0.5, 0.3, 0.2]),
    "all target on the top": ([1.0, 0.0, 0.0], [0.5, 0.3, 0.2]),
    "target is the draft": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "target is the tail": ([0.0, 0.6, 0.4], [0.5, 0.3, 0.2]),
    "ties": ([1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]),
}


class TestClosedForms:
    @pytest.mark.parametrize("seed", range(12))
    def test_lossless_and_optimal(self, seed):
        target, draft_probs = random_pair(seed)
        for law in top_laws(draft_probs):
            check_plan(SelectingVerifier().plan(target, law), attains_bound=True)

    @pytest.mark.parametrize("edge", EDGES)
    def test_edges(self, edge):
        target, draft_probs = EDGES[edge]
        for law in top_laws(draft_probs):
            plan = SelectingVerifier().plan(target, law)
            check_plan(plan, attains_bound=True)
            assert plan.selected.sum() == pytest.approx(1.0, abs=1e-15)

    @pytest.mark.parametrize("seed", range(10))
    def test_accept_probabilities_are_even(self, seed):
        """Each token is selected in proportion to the target, or as often as it is drafted."""
        target, draft_probs = random_pair(seed, zeros=0.0)
        law = mdsd.GreedyDraft(draft_probs, 2)
        plan = SelectingVerifier().plan(target, law)
        capped = np.isclose(plan.selected, law.tail_probs, rtol=1e-12, atol=0.0)
        capped[law.top_token_ids] = False
        ratios = plan.selected / target
        scale = ratios[law.top_token_ids[0]]
        assert scale >= 1.0 - 1e-9
        np.testing.assert_allclose(ratios[~capped], scale, rtol=1e-9)
        assert (ratios[capped] <= scale * (1.0 + 1e-9)).all()


def all_laws():
    rng = np.random.default_rng(3)
    rows = [rng.dirichlet(np.ones(V)) for _ in range(3)]
    return [law for n in (1, 2, 3) for law in drafts_of(rows[:n], n, 0)]


@pytest.mark.parametrize("law", all_laws(), ids=repr)
class TestEveryDraftDistribution:
    TARGET = np.random.default_rng(4).dirichlet(np.ones(V))

    def test_same_acceptance_as_the_optimal_verifier(self, law):
        plan = SelectingVerifier().plan(self.TARGET, law)
        assert isinstance(plan, SelectionPlan)
        expected = mdsd.OptimalVerifier().plan(self.TARGET, law).acceptance_rate
        assert plan.acceptance_rate == pytest.approx(expected, abs=1e-12)
        assert plan.num_uniforms == SelectingVerifier().num_uniforms(law)

    def test_masses_of_tokens(self, law):
        plan = SelectingVerifier().plan(self.TARGET, law)
        selected = np.zeros(V)
        for ids, prob in law.tuples():
            shares = plan._selection_probs(np.array([ids]))[0]
            np.add.at(selected, list(ids), prob * shares)
        np.testing.assert_allclose(selected, plan.selected, rtol=0, atol=1e-14)
        assert plan.selected_of(np.arange(V)).tolist() == plan.selected.tolist()
        assert plan.selected_of(np.array([2, 0, 2])).tolist() == plan.selected[[2, 0, 2]].tolist()
        assert plan._keep_probs(np.arange(V)).tolist() == [1.0] * V

    def test_drawn_positions(self, law):
        plan, choices = SelectingVerifier().plan(self.TARGET, law), RandomChoices(0)
        ids = law.sample(0)
        shares = Counter()
        for place, share in enumerate(plan._selection_probs(ids[np.newaxis])[0]):
            shares[ids.tolist().index(ids[place])] += share
        counts = Counter(choices.select(plan, ids) for _ in range(1000))
        positions = range(law.num_drafts)
        expected = np.array([shares[k] for k in positions])
        assert chi_square_p_value([counts[k] for k in positions], expected) > FALSE_ALARM


def test_plans_by_draft_distribution():
    q = [0.4, 0.3, 0.2, 0.1]
    kinds = {
        mdsd.WithoutReplacement(q, 1): OnlyDraftPlan,
        mdsd.TopKDraft(q, 1): OnlyDraftPlan,
        mdsd.GreedyDraft(q, 3): TopDraftsPlan,
        mdsd.TopKDraft(q, 3): TopDraftsPlan,
        mdsd.SpecHubDraft(q): TopDraftsPlan,
    }
    for law, kind in kinds.items():
        assert type(SelectingVerifier().plan(q, law)) is kind


@pytest.mark.parametrize("effort", ["exact", "fast"])
@pytest.mark.parametrize("kind", [mdsd.WithoutReplacement, mdsd.WithReplacement])
def test_masses_of_some_tokens_of_large_vocabularies(kind, effort):
    """They are had without those of all tokens, and with the chance to be kept."""
    rng = np.random.default_rng(0)
    target = mdsd.probs_from_logits(3.0 * rng.normal(size=20_000))
    draft_probs = mdsd.probs_from_logits(np.log(target) + rng.normal(size=20_000))
    plan = SelectingVerifier(effort=effort).plan(target, kind(draft_probs, 2))
    tokens = rng.choice(20_000, size=30, p=target)
    found, kept = plan.selected_of(tokens), plan._keep_probs(tokens)
    assert "selected" not in vars(plan)
    np.testing.assert_allclose(found, plan.selected[tokens], rtol=1e-13, atol=0)
    assert (kept <= 1.0).all()
    assert bool((kept < 1.0).any()) is (kind is mdsd.WithoutReplacement)
    assert 0.0 <= plan.gap < 1e-3
