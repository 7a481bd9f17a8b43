"""Joint drafts: groups on tokens of their own, against enumeration and the exact forms."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd import (
    ExplicitDraft,
    GreedyDraft,
    HybridDraft,
    IndependentDrafts,
    JointDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd._solvers.group_hits import hits_of_groups
from mdsd.testing import random_probs

from .. import own_kinds
from ..shared_groups import heavy_and_tiny, share_groups, shares

EXACT = 1e-12


def vectors(seed, count, size=3):
    rng = np.random.default_rng(seed)
    return [random_probs(rng, size, "flat") for _ in range(count)]


def own(q, n):
    return own_kinds.SharpenedDraft(q, n, 2)


GROUPS = {
    "with": lambda a, b: [WithReplacement(a, 2), WithReplacement(b, 1)],
    "without": lambda a, b: [WithoutReplacement(a, 2), WithoutReplacement(b, 2)],
    "certain": lambda a, b: [GreedyDraft(a, 2), TopKDraft(b, 2)],
    "pairs": lambda a, b: [SpecHubDraft(a), HybridDraft(b, 2, 1)],
    "two_models": lambda a, b: [IndependentDrafts([a, b]), WithoutReplacement(b, 1)],
    "same_string": lambda a, b: [[WithReplacement(a, 2), WithReplacement(a, 1)], TopKDraft(b, 1)],
    "same_two": lambda a, b: [[IndependentDrafts([a, b]), IndependentDrafts([a, b])]],
    "same_mixed": lambda a, b: [[WithoutReplacement(a, 2), TopKDraft(a, 1)], own(b, 2)],
    "three": lambda a, b: [WithoutReplacement(a, 2), own(b, 1), GreedyDraft(b, 2)],
    "one": lambda a, b: [WithoutReplacement(a, 2)],
}
each_group = pytest.mark.parametrize("name", GROUPS)


def joint(name, seed=0, num_others=1):
    return JointDrafts(GROUPS[name](*vectors(seed, 2)), num_others=num_others)


def listed(draft):
    """The same law, tuple by tuple."""
    return ExplicitDraft(*draft.tuple_arrays(), vocab_size=draft.vocab_size)


def target(draft, seed):
    return random_probs(np.random.default_rng(seed), draft.vocab_size)


@each_group
class TestLaw:
    def test_hits(self, name):
        draft = joint(name)
        known = listed(draft)
        rng = np.random.default_rng(1)
        for _ in range(5):
            order = rng.permutation(draft.vocab_size)
            np.testing.assert_allclose(draft.hit_probs(order), known.hit_probs(order), atol=EXACT)
        np.testing.assert_allclose(draft.token_hit_probs(), known.token_hit_probs(), atol=EXACT)

    def test_tuples(self, name):
        draft = joint(name)
        ids, probs = draft.tuple_arrays()
        assert probs.sum() == pytest.approx(1.0, abs=EXACT)
        assert ids.max() < draft.vocab_size - draft.num_others
        np.testing.assert_allclose(draft.prob(ids), probs, atol=EXACT)
        assert draft.is_possible(ids).all()
        assert draft.prob(np.zeros(draft.num_drafts, dtype=int) + draft.vocab_size - 1) == 0.0

    def test_samples(self, name):
        draft = joint(name)
        ids, probs = draft.tuple_arrays()
        drawn = draft.sample(0, 4000)
        found = [(drawn == row).all(axis=1).sum() for row in ids]
        assert sum(found) == 4000
        assert mdsd.testing.chi_square_p_value(found, probs) > 1e-6
        assert draft.sample(0).shape == (draft.num_drafts,)

    def test_one_token_of_two_groups_is_not_the_same(self, name):
        draft = joint(name)
        sizes = [group[0].vocab_size for group in draft.groups]
        assert draft.offsets.tolist() == np.cumsum([0, *sizes[:-1]]).tolist()
        assert draft.vocab_size == sum(sizes) + 1


@each_group
@pytest.mark.parametrize("seed", range(3))
def test_every_method_finds_the_bound(name, seed):
    draft = joint(name, seed)
    masses = target(draft, seed)
    expected = mdsd.acceptance_bound(masses, listed(draft), method="lp").value
    methods = ["lp", "matching", "cover", "subset", "submodular", "auto"]
    if name == "one":
        methods.append("prefix")
    for method in methods:
        assert mdsd.acceptance_bound(masses, draft, method=method).value == pytest.approx(
            expected, abs=1e-9
        )


@each_group
@pytest.mark.parametrize("verifier", ["naive", "optimal"])
def test_lossless(name, verifier):
    for seed in range(4):
        draft = joint(name, seed)
        masses = target(draft, seed)
        plan = mdsd.get_verifier(verifier).plan(masses, draft)
        ids, probs = draft.tuple_arrays()
        np.testing.assert_allclose(probs @ plan.output_law(ids), masses, rtol=0, atol=EXACT)


def test_kinds_without_a_prefix_say_so():
    with pytest.raises(mdsd.UnsupportedError, match="prefix"):
        mdsd.acceptance_bound(target(joint("with"), 0), joint("with"), method="prefix")


def test_laws_are_told_apart():
    assert joint("with").law_key() == joint("with").law_key()
    keys = {joint(name, seed).law_key() for name in GROUPS for seed in (0, 1)}
    assert len(keys) == 2 * len(GROUPS)
    assert joint("with").law_key() != joint("with", num_others=2).law_key()


class TestGroups:
    """Orders of groups of tokens of several laws, against the law of the drafts."""

    def test_prefix_hits(self, monkeypatch):
        share_groups(monkeypatch)
        a, b = vectors(5, 2, 6)
        draws = WithoutReplacement(heavy_and_tiny(np.random.default_rng(0), 3, 9), 2)
        draft = JointDrafts([draws, GreedyDraft(b, 2), IndependentDrafts([a, b])], num_others=2)
        masses = np.full(draft.vocab_size, 1.0 / draft.vocab_size)
        lottery = mdsd.OptimalVerifier().plan(masses, draft)._lottery
        groups = lottery.groups_of(np.arange(draft.vocab_size))
        (drawn,) = np.nonzero(groups >= 0)
        assert set(np.flatnonzero(groups < 0)) == set(np.flatnonzero(draft.token_hit_probs() == 0))
        sizes = np.bincount(groups[drawn])
        assert sizes.min() > 0
        for seed in range(5):
            order = np.random.default_rng(seed).permutation(len(sizes))
            tokens = drawn[np.argsort(np.argsort(order)[groups[drawn]], kind="stable")]
            rest = np.flatnonzero(groups < 0)
            ends = np.concatenate([[0], np.cumsum(sizes[order])])
            expected = draft.hit_probs(np.concatenate([tokens, rest]))[ends]
            found = hits_of_groups(order, lottery._law)[0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)
        assert (sizes > 1).any()

    def test_parts_are_moved_to_their_tokens(self):
        a, b = vectors(5, 2, 6)
        draft = JointDrafts([WithoutReplacement(a, 2), GreedyDraft(b, 2), TopKDraft(b, 3)])
        parts = draft.law_parts()
        assert [part.offset for part in parts] == [0, 6, 6, 12]
        assert sum(part.num_drafts for part in parts) == draft.num_drafts
        assert {part.vocab_size for part in parts} == {6}
        unknown = JointDrafts([WithoutReplacement(a, 2), own(b, 2)])
        assert unknown.law_parts() == ()  # of one all that is known is what it hits

    def test_a_group_that_is_hit_hides_those_behind_it(self):
        sure = TopKDraft([0.6, 0.4], 1)
        plan = mdsd.OptimalVerifier().plan([0.0, 0.0, 1.0, 0.0], JointDrafts([sure, sure]))
        assert plan.selected.tolist() == [0.0, 0.0, 1.0, 0.0]
        hits = hits_of_groups(plan._lottery.orders[0].astype(np.int64), plan._lottery._law)[0]
        assert hits.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("share", [1, 4])
def test_large_vocabularies_in_groups(share):
    """The gap is certified token by token, and what is selected is lossless, at 900 tokens."""
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.full(900, 0.05), size=3) for _ in range(2))
    draft = JointDrafts(
        [WithoutReplacement(q[0], 3), [WithReplacement(q[1], 1)] * 2, HybridDraft(q[2], 3, 1)],
        num_others=1,
    )
    masses = np.concatenate([*(0.3 * row for row in p), [0.1]])
    plan = mdsd.OptimalVerifier(max_iterations=40 * share).plan(masses, draft)
    assert shares(plan)
    assert 0.0 <= plan.gap <= 5e-3 / share
    np.testing.assert_allclose(plan.marginal_law(), masses, rtol=0, atol=EXACT)
