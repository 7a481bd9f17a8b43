"""Drafts with more below them: selected more often, each on the whole as often as before."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from mdsd import IndependentDrafts, TopKDraft, WithoutReplacement, WithReplacement
from mdsd.decoding import TreeShape
from mdsd.decoding import preference as module
from mdsd.decoding.layers import LayerVerification
from mdsd.decoding.preference import preferring, worth_below
from mdsd.drafts import DraftDistribution
from mdsd.testing import sequence_law

from .paths import expected_accepted, toy_pair
from .toys import PrefixModel, distance, plain_law

EXACT = 1e-12
UNEVEN = TreeShape([-1, 0, 0, 1, 1, 3])


def drafts(kind, n, rng):
    q = rng.dirichlet(np.ones(4))
    return {
        "with": lambda: [WithReplacement(q, n)],
        "without": lambda: [WithoutReplacement(q, n)],
        "two_nodes": lambda: [WithReplacement(q, 1), WithReplacement(q, n - 1)],
        "models": lambda: [IndependentDrafts(rng.dirichlet(np.ones(4), size=n))],
    }[kind]()


def by_set(laws):
    """All ways to draw the same tokens, with their probabilities."""
    found = defaultdict(list)
    for drawn in itertools.product(*(list(law.tuples()) for law in laws)):
        ids = sum((ids for ids, _ in drawn), ())
        found[tuple(sorted(ids))].append((ids, np.prod([prob for _, prob in drawn])))
    return found


def at_first(ids, probs):
    """Probabilities by token as those of its first place."""
    return np.array([probs[x] if ids.index(x) == k else 0.0 for k, x in enumerate(ids)])


@pytest.mark.parametrize("kind", ["with", "without", "two_nodes", "models"])
@pytest.mark.parametrize("n", [2, 3, 4])
class TestMeans:
    def cases(self, kind, n):
        rng = np.random.default_rng(n)
        for _ in range(5):
            laws = drafts(kind, n, rng)
            worths = rng.choice([0.0, 0.5, 1.0], size=n)
            for tokens, ways in by_set(laws).items():
                shares = rng.dirichlet(np.ones(len(set(tokens)))) * rng.random()
                yield laws, worths, ways, dict(zip(sorted(set(tokens)), shares, strict=True))

    def test_each_token_keeps_its_probability(self, kind, n):
        for laws, worths, ways, probs in self.cases(kind, n):
            means, total = defaultdict(float), sum(chance for _, chance in ways)
            for ids, chance in ways:
                given = at_first(ids, probs)
                found = preferring(laws, np.array(ids), given, worths)
                assert found.min() >= 0.0
                assert found.sum() == pytest.approx(given.sum(), abs=EXACT)
                for token, share in zip(ids, found, strict=True):
                    means[token] += chance * share / total
            for token, prob in probs.items():
                assert means[token] == pytest.approx(prob, abs=EXACT)

    def test_better_places_are_selected_more_often(self, kind, n):
        gain = 0.0
        for laws, worths, ways, probs in self.cases(kind, n):
            for ids, chance in ways:
                best = [max(w for x, w in zip(ids, worths, strict=True) if x == y) for y in ids]
                given = at_first(ids, probs)
                gain += chance * (preferring(laws, np.array(ids), given, worths) - given) @ best
        assert gain > 0.01


def test_all_of_two_equal_chances():
    laws, worths = [WithReplacement([0.5, 0.5], 2)], np.array([0.0, 1.0])
    even = np.array([0.5, 0.5])
    assert preferring(laws, np.array([0, 1]), even, worths).tolist() == [0.0, 1.0]
    assert preferring(laws, np.array([1, 0]), even, worths).tolist() == [0.0, 1.0]


def test_where_nothing_is_to_be_chosen():
    probs = np.array([0.3, 0.2])
    law, ids = TopKDraft([0.6, 0.4], 2), np.array([0, 1])
    worths = np.array([0.0, 1.0])
    assert preferring([law], ids, probs, worths) == pytest.approx(probs)  # one order
    equal = preferring([WithReplacement([0.5, 0.5], 2)], ids, probs, np.ones(2))
    assert equal is probs


def test_laws_without_probabilities_are_left_as_they_are():
    class Mute(DraftDistribution):
        num_drafts, vocab_size = 2, 2

        def hit_probs(self, order):
            return np.array([0.0, 0.75, 1.0])

        def sample(self, rng, size=None):
            return np.zeros((2,) if size is None else (size, 2), dtype=np.int64)

    probs = np.array([0.3, 0.2])
    assert preferring([Mute()], np.array([0, 1]), probs, np.array([0.0, 1.0])) is probs


def test_worths_tell_deeper_and_broader_trees():
    worths = worth_below(TreeShape([-1, 0, 0, 0, 1, 2, 2, 4]))
    assert worths[1] > worths[2] > worths[3] == 0.0


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
class TestUnevenTrees:
    def test_lossless(self, draft):
        target, model = PrefixModel(7, 3), PrefixModel(8, 3)
        law = sequence_law(target, model, [0], 3, draft=draft, tree=UNEVEN, verifier="layers")
        assert distance(law, plain_law(target.probs, [0], 3)) <= EXACT

    def test_gain(self, draft, monkeypatch):
        def means():
            tree = TreeShape([-1, 0, 0, 0, 1, 1])
            options = {"draft": draft, "tree": tree, "verifier": LayerVerification()}
            pairs = [toy_pair(seed, 3) for seed in range(8)]
            return np.array([expected_accepted(*pair, [0], **options) for pair in pairs])

        found = means()
        monkeypatch.setattr(module, "_MOST_DRAFTS", 0)
        gains = found - means()
        assert gains.min() >= -EXACT
        assert gains.mean() > 0.01

    def test_worths_that_depend_on_the_drafts_are_found_out(self, draft, monkeypatch):
        """A negative control: a place is worth the more the larger the token drafted there."""
        target, model = PrefixModel(7, 3), PrefixModel(8, 3)

        def cheating(laws, ids, probs, worths):
            return preferring(laws, ids, probs, np.asarray(ids, dtype=float))

        monkeypatch.setattr("mdsd.decoding.layers.preferring", cheating)
        law = sequence_law(target, model, [0], 3, draft=draft, tree=UNEVEN, verifier="layers")
        assert distance(law, plain_law(target.probs, [0], 3)) > 1e-3
