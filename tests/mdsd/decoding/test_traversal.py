"""Traversal verification: lossless on every tree, and block verification on a chain."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TreeShape, generate
from mdsd.decoding.block import BlockVerification
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepOutcome
from mdsd.decoding.traversal import TraversalVerification
from mdsd.decoding.verification import step_verification
from mdsd.drafts import read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import accepted_law, chi_square_p_value, sequence_law

from .paths import (
    SHAPES,
    AskedRows,
    EdgeModel,
    drafted_tree,
    expected_accepted,
    outcome_law,
    toy_pair,
)
from .toys import PrefixModel, distance, draft_evenly, filtered, plain_law

EXACT = 1e-12
PROMPT, LENGTH = [2, 0], 3
DRAFTS = ("with_replacement", "without_replacement", "independent")
TARGET, DRAFT_MODEL, SECOND = (PrefixModel(seed, 3) for seed in (1, 2, 3))
GAPPY = PrefixModel(4, 3, zeros=0.5)
UNEVEN = ("first", "second")
LARGER = PrefixModel(1), PrefixModel(2)
"""Models of four tokens."""


def expected_law(target=TARGET, eos=(), **filters):
    return plain_law(lambda prefix: filtered(target.probs(prefix), **filters), PROMPT, LENGTH, eos)


def law_of(draft="without_replacement", model=DRAFT_MODEL, target=TARGET, **options):
    models = [model, SECOND] if draft == "independent" else model
    options = {"verifier": "traversal", "tree": [2, 1], **options}
    return sequence_law(target, models, PROMPT, LENGTH, draft=draft, **options)


each_case = pytest.mark.parametrize(("draft", "shape"), list(itertools.product(DRAFTS, SHAPES)))


class TestLossless:
    @each_case
    def test_plain(self, draft, shape):
        assert distance(law_of(draft, tree=SHAPES[shape]), expected_law()) <= EXACT

    @pytest.mark.parametrize("draft", DRAFTS)
    @pytest.mark.parametrize("shape", UNEVEN)
    def test_top_k(self, draft, shape):
        law = law_of(draft, tree=SHAPES[shape], top_k=2)
        assert distance(law, expected_law(top_k=2)) <= EXACT

    @each_case
    @pytest.mark.parametrize("sides", ["draft", "both"])
    def test_zeros_ties_and_point_masses(self, draft, shape, sides):
        target = TARGET if sides == "draft" else EdgeModel(5)
        law = law_of(draft, EdgeModel(6), target, tree=SHAPES[shape])
        assert distance(law, expected_law(target)) <= EXACT

    @pytest.mark.parametrize("draft", DRAFTS)
    def test_draft_models_short_of_tokens(self, draft):
        law = law_of(draft, GAPPY, tree=SHAPES["first"])
        assert distance(law, expected_law()) <= EXACT

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_four_tokens(self, draft):
        target, model = LARGER
        law = law_of(draft, model, target)
        assert distance(law, expected_law(target)) <= EXACT

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("tree", [[3], TreeShape([-1, 0, 0, 0, 2])], ids=["flat", "second"])
    def test_three_drafts(self, draft, tree):
        target, model = LARGER
        law = law_of(draft, model, target, tree=tree, top_k=3)
        assert distance(law, expected_law(target, top_k=3)) <= EXACT

    def test_three_levels(self):
        tree = TreeShape([-1, 0, 0, 1, 2, 2, 3])
        law = law_of(tree=tree, top_k=2)
        assert distance(law, expected_law(top_k=2)) <= EXACT

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("eos", [(1,), (0, 2)], ids=str)
    def test_end_tokens(self, draft, eos):
        law = law_of(draft, eos_token_id=list(eos))
        assert distance(law, expected_law(eos=eos)) <= EXACT

    @pytest.mark.parametrize("temperature", [0.0, 0.6])
    def test_temperature(self, temperature):
        law = law_of(temperature=temperature)
        assert distance(law, expected_law(temperature=temperature)) <= EXACT

    def test_deeper_than_the_output(self):
        law = law_of(tree=TreeShape.chain(5))
        assert distance(law, expected_law()) <= EXACT

    def test_the_root_alone(self):
        assert distance(law_of(tree=TreeShape([-1])), expected_law()) <= 1e-15


class TestNegativeControls:
    """Rules that are not lossless must be found out."""

    @pytest.mark.parametrize("shape", ["chain", "wide"])
    def test_prefixes_that_pass_with_their_weight(self, monkeypatch, shape):
        monkeypatch.setattr(
            "mdsd.decoding.traversal.passing_probability", lambda weight, left: weight
        )
        assert distance(law_of(tree=SHAPES[shape]), expected_law()) > 1e-3

    def test_deleted_tokens_that_stay_in_the_draft(self, monkeypatch):
        def unchanged(law, drafts):
            return (law.draft_probs for _ in drafts) if law is not None else iter(())

        monkeypatch.setattr("mdsd.decoding.traversal._probs_in_turn", unchanged)
        assert distance(law_of("with_replacement"), expected_law()) <= EXACT
        assert distance(law_of("without_replacement"), expected_law()) > 1e-3

    def test_drafts_from_another_law_than_declared(self, monkeypatch):
        draft_evenly(monkeypatch)
        assert distance(law_of(), expected_law()) > 1e-3


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_block_verification_on_a_chain(depth, seed):
    tree = drafted_tree(TreeShape.chain(depth), seed=seed)
    found = outcome_law(tree, TraversalVerification())
    assert found == pytest.approx(outcome_law(tree, BlockVerification()), abs=1e-14)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("seed", range(5))
def test_recursive_rejection_at_a_single_level(draft, seed):
    tree = drafted_tree(TreeShape([-1, 0, 0]), draft, seed)
    found = outcome_law(tree, TraversalVerification())
    expected = outcome_law(tree, LevelVerification(mdsd.RRSVerifier()))
    assert found == pytest.approx(expected, abs=1e-14)


def test_two_leaves_by_hand():
    # w(1) = .5; deleted, S = .5, p = (1, 0), w = 1, and q = (1, 0): the other leaf is accepted.
    law = mdsd.WithoutReplacement([0.2, 0.8], 2)
    rows = np.array([[0.6, 0.4], [0.25, 0.75], [1.0, 0.0]])
    tree = DraftedTree(TreeShape([-1, 0, 0]), np.array([0, 1, 0]), (law, None, None), rows)
    assert outcome_law(tree, TraversalVerification()) == pytest.approx(
        {
            StepOutcome((1,), 0): 0.5 * 0.25,
            StepOutcome((1,), 1): 0.5 * 0.75,
            StepOutcome((2,), 0): 0.5,
        },
        abs=1e-15,
    )


class TestAccepted:
    """Expected accepted tokens of one step, exactly."""

    @pytest.mark.parametrize("draft", DRAFTS)
    def test_never_below_recursive_rejection_level_by_level(self, draft):
        trees = [[1, 2], TreeShape([-1, 0, 0, 1]), TreeShape([-1, 0, 0, 2]), [2, 1]]
        gains = []
        for seed in range(24):
            target, model = toy_pair(seed + 1000, 2 + (seed % 4 < 3))
            several = [model, toy_pair(seed + 2000, target.vocab_size)[1]]
            options = {"draft": draft, "tree": trees[seed % len(trees)]}
            models = several if draft == "independent" else model
            traversal, levels = (
                expected_accepted(target, models, [0], verifier=name, **options)
                for name in ("traversal", "rrs")
            )
            gains.append(traversal - levels)
        assert min(gains) >= -EXACT
        assert np.mean(gains) > 0.01

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_target_equal_to_the_draft_accepts_all(self, draft):
        found = accepted_law(TARGET, TARGET, PROMPT, draft=draft, tree=[2, 1], verifier="traversal")
        np.testing.assert_allclose(found, [0.0, 0.0, 1.0], rtol=0, atol=EXACT)


class TestRows:
    def test_each_at_most_once_and_only_above_tested_leaves(self):
        shape = TreeShape.from_branching([3, 2, 2])
        whole = drafted_tree(shape, seed=2)
        counts = set()
        for seed in range(20):
            rows = AskedRows(whole.target_probs)
            tree = DraftedTree(whole.shape, whole.token_ids, whole.laws, rows)
            outcome = TraversalVerification()(tree, RandomChoices(seed))
            last = outcome.path[-1] if outcome.path else 0
            assert len(rows.asked) == len(set(rows.asked))
            assert set(rows.asked) - set(shape.leaves) >= {0}
            assert set(rows.asked) & set(shape.leaves) <= {last}
            counts.add(len(rows.asked))
        assert min(counts) == 4  # the first leaf, accepted at once
        assert max(counts) < shape.num_nodes

    def test_nothing_below_a_node_of_no_weight(self):
        law, none = mdsd.WithReplacement([0.5, 0.5], 2), None
        rows = {0: np.array([0.0, 1.0]), 2: np.array([1.0, 0.0]), 5: np.array([1.0, 0.0])}
        shape = TreeShape([-1, 0, 0, 1, 1, 2, 2])
        laws = (law, law, law, none, none, none, none)
        tree = DraftedTree(shape, np.array([0, 0, 1, 0, 1, 0, 0]), laws, rows)
        assert outcome_law(tree, TraversalVerification()) == {StepOutcome((2, 5), 0): 1.0}


def test_drawn_outcomes():
    tree = drafted_tree(TreeShape([-1, 0, 0, 1, 1, 2]), "without_replacement", seed=3)
    expected = outcome_law(tree, TraversalVerification())
    choices = RandomChoices(0)
    counts = Counter(TraversalVerification()(tree, choices) for _ in range(3000))
    assert set(counts) <= set(expected)
    found, probs = [counts[k] for k in expected], np.array(list(expected.values()))
    assert chi_square_p_value(found, probs) > 1e-6
    assert chi_square_p_value(found, np.roll(probs, 1)) < 1e-6


def test_a_long_chain():
    shape = TreeShape.chain(3000)
    law = mdsd.WithReplacement([0.5, 0.5], 1)
    laws = (*[law] * 3000, None)
    tree = DraftedTree(shape, np.zeros(3001, dtype=np.int64), laws, np.full((3001, 2), 0.5))
    assert len(TraversalVerification()(tree, RandomChoices(0)).path) == 3000


def test_greedy_output_at_temperature_zero():
    plain = generate(TARGET, DRAFT_MODEL, PROMPT, max_new_tokens=12, temperature=0.0)
    for draft in ("with_replacement", "without_replacement"):
        options = {"draft": draft, "tree": [2, 1], "temperature": 0.0, "verifier": "traversal"}
        result = generate(TARGET, DRAFT_MODEL, PROMPT, max_new_tokens=12, **options)
        assert result.token_ids.tolist() == plain.token_ids.tolist()


class TestArguments:
    def test_by_name(self):
        assert type(step_verification("traversal")) is TraversalVerification

    @pytest.mark.parametrize("draft", ["greedy", "top_k", "spechub"])
    def test_unsupported(self, draft):
        laws = [read_kind("with_replacement").example(2), read_kind(draft).example(2)]
        with pytest.raises(UnsupportedError, match=f"traversal.*{draft}.*without_replacement"):
            TraversalVerification().check(laws)
        with pytest.raises(UnsupportedError, match=draft):
            law_of(draft, tree=[2, 2])

    def test_not_a_law(self):
        with pytest.raises(InvalidArgumentError):
            TraversalVerification().check(["with_replacement"])
