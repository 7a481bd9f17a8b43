"""Trees of RheoSampling: lossless by enumeration, and what must not be done with them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import mdsd
from benchmarks.rheo_trees import RheoTrees, RheoVerification
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.enumeration import branches

from ..mdsd.decoding.toys import PrefixModel

EXACT = 1e-12
V = 4
LAST = 1
RULE = {"budget": 4, "depth": 3, "width": 3}
TARGET, DRAFT_MODEL = PrefixModel(1, V), PrefixModel(5, V)


def tree_of(rule, choices, target=TARGET, draft_model=DRAFT_MODEL):
    return rule.draw(
        lambda path: draft_model.probs((LAST, *path)),
        choices,
        LAST,
        lambda paths: np.array([target.probs((LAST, *path)) for path in paths]),
    )


def rest_of(target, tokens, length):
    """Laws of what follows, from the target alone."""
    if len(tokens) >= length:
        return {tokens[:length]: 1.0}
    law = defaultdict(float)
    for token, prob in enumerate(target.probs((LAST, *tokens))):
        for whole, share in rest_of(target, (*tokens, token), length).items():
            law[whole] += prob * share
    return law


def bias(rule, verification, length=3):
    """Largest error of the law of the first tokens of a step and what follows."""
    law, known = defaultdict(float), {}

    def run(choices):
        tree = tree_of(rule, choices)
        outcome = verification(tree, choices)
        return (*tree.token_ids[list(outcome.path)].tolist(), outcome.token_id)

    for prob, tokens in branches(run, known):
        for whole, share in rest_of(TARGET, tokens, length).items():
            law[whole] += prob * share
    wanted = rest_of(TARGET, (), length)
    return max(abs(law[each] - wanted[each]) for each in wanted)


@pytest.mark.parametrize("num_top", [0, 1, 2, None])
def test_lossless(num_top):
    assert bias(RheoTrees(**RULE, num_top=num_top), RheoVerification()) < EXACT


class OwnProbability(RheoTrees):
    """The drawn token competes by its own probability: small ones are drawn and dropped."""

    def drawn_slot(self, node, law, choices):
        token = int(choices.drafts(law)[-1])
        return float(node.probs[token]), lambda: token


def test_a_drawn_token_that_competes_by_its_own_probability_is_noticed():
    assert bias(OwnProbability(**RULE), RheoVerification()) > 1e-2


class AsDrawnTogether(RheoTrees):
    """All children of a node are said to be drawn by one law, given their number."""

    def law(self, node):
        law = super().law(node)
        return law and as_greedy(node.probs, len(node.children), self.num_top)


def as_greedy(probs, num_drafts, num_top):
    """The same set of drafts as greedy ones, of another distribution.

    Its n - 1 most likely tokens are certain. The last one is drawn as before, and the n-th most
    likely stands for all certain ones that may be drawn.
    """
    if num_drafts <= num_top:
        return mdsd.TopKDraft(probs, num_drafts)
    order = np.argsort(-probs, kind="stable")
    tail = np.where(np.isin(np.arange(len(probs)), order[:num_top]), 0.0, probs)
    tail /= tail.sum()
    certain, last = order[: num_drafts - 1], order[num_drafts - 1]
    tail[last] += tail[certain].sum()
    tail[certain] = 0.0
    other = tail / (2 * num_drafts)
    other[certain] = np.linspace(2, 1, len(certain))
    return mdsd.GreedyDraft(other / other.sum(), num_drafts)


class Together(RheoVerification):
    """Verify all children of a node by such a law."""

    def drafts(self, tree, node, law):
        ids = tree.child_token_ids(node).tolist()
        certain = law.top_token_ids.tolist()
        return np.array([*certain, *(token for token in ids if token not in certain)])


def test_children_are_not_drawn_together_given_their_number():
    """Whether a chosen one comes behind the drawn one depends on what is below that."""
    assert bias(AsDrawnTogether(**RULE), Together()) > 1e-3


@pytest.mark.parametrize(
    ("num_top", "num_drafts"), [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4)]
)
def test_its_children_are_a_greedy_draft(num_drafts, num_top):
    """As sets: so the optimum of drafts that are there has the optimum of these."""
    rng = np.random.default_rng([num_drafts, num_top])
    p, q = rng.dirichlet(np.ones(6), size=2)
    tail = mdsd.GreedyDraft(q, num_top + 1).tail_probs
    order = np.argsort(-q, kind="stable").tolist()
    laws = defaultdict(float)
    for drawn, prob in enumerate(tail.tolist()):
        if prob:
            chosen = [token for token in order if token != drawn][: num_drafts - 1]
            laws[tuple(sorted((drawn, *chosen)))] += prob
    law = as_greedy(q, num_drafts, num_top)
    found = {tuple(sorted(ids)): prob for ids, prob in law.tuples()}
    assert found.keys() == laws.keys()
    assert all(found[each] == pytest.approx(laws[each], abs=EXACT) for each in laws)
    explicit = mdsd.ExplicitDraft(list(laws), list(laws.values()), vocab_size=6)
    best = mdsd.acceptance_bound(p, explicit).value
    assert mdsd.acceptance_bound(p, law).value == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("num_top", [0, 1, None])
def test_accepted_given_the_tree(num_top):
    rule, verification = RheoTrees(**RULE, num_top=num_top), RheoVerification()
    for seed in range(5):
        tree = tree_of(rule, RandomChoices(seed))
        counts = np.zeros(tree.shape.depth)
        for prob, outcome in branches(lambda choices, tree=tree: verification(tree, choices)):
            counts[: len(outcome.path)] += prob
        np.testing.assert_allclose(verification.accepted_by_depth(tree), counts, atol=EXACT)


@pytest.mark.parametrize("num_top", [0, 1, 2, None])
def test_sizes(num_top):
    rule = RheoTrees(budget=9, depth=3, width=2 if num_top != 2 else 3, num_top=num_top)
    for seed in range(5):
        shape = tree_of(rule, RandomChoices(seed)).shape
        assert shape.num_nodes == rule.budget
        assert shape.depth <= rule.depth
        assert max(len(shape.children(node)) for node in range(shape.num_nodes)) <= rule.width


def test_chosen_trees_are_all_alike_and_hold_the_most_likely_tokens():
    trees = [tree_of(RheoTrees(**RULE, num_top=None), RandomChoices(seed)) for seed in range(3)]
    first = trees[0]
    assert all(np.array_equal(tree.token_ids, first.token_ids) for tree in trees)
    order = np.argsort(-DRAFT_MODEL.probs((LAST,)), kind="stable")
    children = first.child_token_ids(0)
    np.testing.assert_array_equal(children, order[: len(children)])
