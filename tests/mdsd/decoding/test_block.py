"""Block verification: lossless, never below level by level, and what it touches on the way."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TreeShape, generate
from mdsd.decoding.block import BlockVerification
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import EnumeratedChoices
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.selection import SelectingVerifier
from mdsd.decoding.steps import StepOutcome
from mdsd.decoding.verification import step_verification
from mdsd.errors import InvalidArgumentError
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
from .toys import DRAFTS, PrefixModel, SameRow, distance, filtered, plain_law

EXACT = 1e-12
PROMPT, LENGTH = [2, 0], 3
TARGET, DRAFT_MODEL, SECOND = (PrefixModel(seed, 3) for seed in (1, 2, 3))
GAPPY = PrefixModel(4, 3, zeros=0.5)
LARGER = PrefixModel(1), PrefixModel(2)
"""Models of four tokens."""
UNEVEN = ("first", "second")
WIDE = TreeShape([-1, 0, 0, 1, 1, 2])


def expected_law(target=TARGET, eos=(), **filters):
    return plain_law(lambda prefix: filtered(target.probs(prefix), **filters), PROMPT, LENGTH, eos)


def law_of(draft="without_replacement", model=DRAFT_MODEL, target=TARGET, **options):
    models = [model, SECOND] if draft == "independent" else model
    options = {"verifier": "block", "tree": [2, 1], **options}
    return sequence_law(target, models, PROMPT, LENGTH, draft=draft, **options)


def applies(draft, shape):
    return draft != "spechub" or shape in UNEVEN  # which has two drafts at each node


CASES = [pair for pair in itertools.product(DRAFTS, SHAPES) if applies(*pair)]
each_case = pytest.mark.parametrize(("draft", "shape"), CASES)


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
    @pytest.mark.parametrize("sides", ["target", "both"])
    def test_zeros_ties_and_point_masses(self, draft, shape, sides):
        target, model = EdgeModel(5), DRAFT_MODEL if sides == "target" else EdgeModel(6)
        law = law_of(draft, model, target, tree=SHAPES[shape])
        assert distance(law, expected_law(target)) <= EXACT

    @pytest.mark.parametrize("draft", DRAFTS)
    def test_draft_models_short_of_tokens(self, draft):
        law = law_of(draft, GAPPY, tree=SHAPES["first"])
        assert distance(law, expected_law()) <= EXACT

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy"])
    def test_four_tokens(self, draft):
        target, model = LARGER
        law = law_of(draft, model, target)
        assert distance(law, expected_law(target)) <= EXACT

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy"])
    def test_three_drafts(self, draft):
        target, model = LARGER
        law = law_of(draft, model, target, tree=TreeShape([-1, 0, 0, 0, 1]), top_k=3)
        assert distance(law, expected_law(target, top_k=3)) <= EXACT

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
        law = law_of("greedy", tree=TreeShape.chain(5))
        assert distance(law, expected_law()) <= EXACT

    def test_the_root_alone(self):
        assert distance(law_of(tree=TreeShape([-1])), expected_law()) <= 1e-15


class TestNegativeControls:
    """Rules that are not lossless must be found out."""

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("shape", ["chain", "wide"])
    def test_masses_of_another_draft(self, draft, shape):
        class Lying(SelectingVerifier):
            def plan(self, target_probs, law):
                other = law.draft_probs + 0.2
                return super().plan(target_probs, type(law)(other / other.sum(), law.num_drafts))

        verification = BlockVerification()
        verification.verifier = Lying()
        law = law_of(draft, verifier=verification, tree=SHAPES[shape])
        assert sum(law.values()) == pytest.approx(1.0, abs=EXACT)
        assert distance(law, expected_law()) > 1e-4

    @pytest.mark.parametrize("shape", ["chain", "wide"])
    def test_prefixes_that_pass_with_their_weight(self, monkeypatch, shape):
        monkeypatch.setattr("mdsd.decoding.block.passing_probability", lambda weight, left: weight)
        assert distance(law_of("with_replacement", tree=SHAPES[shape]), expected_law()) > 1e-3

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_another_selection_than_that_of_the_masses(self, monkeypatch, draft):
        def largest(self, plan, ids):
            return int(np.argmax(ids))

        monkeypatch.setattr(EnumeratedChoices, "select", largest)
        assert distance(law_of(draft), expected_law()) > 1e-3


def by_hand(tree):
    """Outcomes on a chain from the paper: tests of all prefixes, the longest that passes."""
    nodes = range(len(tree.token_ids))
    p, q = tree.target_probs, [law.draft_probs if law else None for law in tree.laws]
    weights = [1.0]
    for node in nodes[1:]:
        token = tree.token_ids[node]
        weights.append(min(1.0, weights[-1] * p[node - 1][token] / q[node - 1][token]))
    outcomes, longer = defaultdict(float), 1.0
    for node in reversed(nodes):
        w = weights[node]
        masses = p[node] if node == nodes[-1] else np.maximum(w * p[node] - q[node], 0.0)
        total = masses.sum()
        passes = w if node == nodes[-1] else (1.0 if w == 1.0 else total / (total + 1.0 - w))
        for token in np.flatnonzero(masses):
            outcomes[StepOutcome(tuple(nodes[1 : node + 1]), token)] = (
                longer * passes * masses[token] / total
            )
        longer *= 1.0 - passes
    return {outcome: prob for outcome, prob in outcomes.items() if prob > 0.0}


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_chains_by_hand(depth, seed):
    tree = drafted_tree(TreeShape.chain(depth), seed=seed)
    found = outcome_law(tree, BlockVerification())
    assert found == pytest.approx(by_hand(tree), abs=1e-14)


class TestAccepted:
    """Expected accepted tokens of one step, exactly."""

    def test_example_of_the_paper(self):
        # Sun et al., section 2: target (1/3, 2/3), draft (2/3, 1/3), two drafts.
        target, draft_model = SameRow(np.log([1, 2])), SameRow(np.log([2, 1]))
        options = {"draft": "with_replacement", "num_drafts": 1, "depth": 2}
        for verifier, expected in (("single", 10 / 9), ("block", 11 / 9)):
            found = expected_accepted(target, draft_model, [0], verifier=verifier, **options)
            assert found == pytest.approx(expected, abs=1e-15)

    def test_never_below_single_draft_verification_on_a_chain(self):
        gains = []
        for seed in range(120):
            pair = toy_pair(seed)
            options = {"num_drafts": 1, "depth": 2 + (seed % 8 == 0)}
            block, single = (
                expected_accepted(*pair, [0], verifier=name, **options)
                for name in ("block", "single")
            )
            gains.append(block - single)
        assert min(gains) >= -EXACT
        assert np.mean(gains) > 0.03

    @pytest.mark.parametrize(
        ("draft", "least"),
        [
            ("with_replacement", 0.004),
            ("without_replacement", 0.002),
            ("greedy", 0.004),
            ("independent", 0.004),
        ],
    )
    def test_never_below_optimal_level_by_level_on_trees(self, draft, least):
        trees = [[1, 2], TreeShape([-1, 0, 0, 1]), TreeShape([-1, 0, 0, 2]), [2, 1]]
        gains = []
        for seed in range(40):
            target, model = toy_pair(seed + 1000, 2 + (seed % 4 < 3))
            models = (
                [model, toy_pair(seed + 2000, target.vocab_size)[1]]
                if draft == "independent"
                else model
            )
            options = {"draft": draft, "tree": trees[seed % len(trees)]}
            block, optimal = (
                expected_accepted(target, models, [0], verifier=name, **options)
                for name in ("block", "optimal")
            )
            gains.append(block - optimal)
        assert min(gains) >= -EXACT
        assert np.mean(gains) > least

    def test_spechub_where_both_drafts_have_equal_trees_below(self):
        gains = []
        for seed in range(8):
            block, optimal = (
                expected_accepted(
                    *toy_pair(seed + 3000), [0], draft="spechub", tree=[2, 2], verifier=name
                )
                for name in ("block", "optimal")
            )
            gains.append(block - optimal)
        assert min(gains) >= -EXACT
        assert np.mean(gains) > 0.004

    @pytest.mark.parametrize("seed", range(5))
    def test_top_k_drafts_are_known_beforehand(self, seed):
        laws = [
            accepted_law(*toy_pair(seed), [0], draft="top_k", tree=[2, 2], verifier=name)
            for name in ("block", "optimal")
        ]
        np.testing.assert_allclose(*laws, rtol=0, atol=EXACT)

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy"])
    def test_target_equal_to_the_draft_accepts_all(self, draft):
        found = accepted_law(TARGET, TARGET, PROMPT, draft=draft, tree=[2, 1], verifier="block")
        np.testing.assert_allclose(found, [0.0, 0.0, 1.0], rtol=0, atol=EXACT)

    @pytest.mark.parametrize("tree", [[2, 1], [1, 2]], ids=str)
    def test_a_token_drafted_beside_the_path_is_gone_on_from(self, monkeypatch, tree):
        """Most often where the search for a lottery was stopped early, which stays lossless."""
        verification = BlockVerification(max_iterations=1)
        options = {"draft": "without_replacement", "tree": tree, "verifier": verification}
        assert distance(law_of(**options), expected_law()) <= EXACT
        longer = expected_accepted(*toy_pair(6), [0], **options)
        monkeypatch.setattr("mdsd.decoding.block._unused_child", lambda *_: None)
        assert distance(law_of(**options), expected_law()) <= EXACT
        assert longer > expected_accepted(*toy_pair(6), [0], **options) + 1e-3


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
def test_drawn_outcomes(draft):
    tree, draws, choices = drafted_tree(WIDE, draft, seed=3), 3000, RandomChoices(0)
    verification = BlockVerification()
    expected = outcome_law(tree, verification)
    plans = {}

    def plan(verifier, target_probs, law):
        key = id(law)
        if key not in plans:
            plans[key] = verifier.plan(target_probs, law)
        return plans[key]

    choices.plan = plan
    counts = Counter(verification(tree, choices) for _ in range(draws))
    assert set(counts) <= set(expected)
    found, probs = [counts[k] for k in expected], np.array(list(expected.values()))
    assert chi_square_p_value(found, probs) > 1e-6
    assert chi_square_p_value(found, np.roll(probs, 1)) < 1e-6


def test_only_rows_of_the_selected_path_are_asked_for():
    whole = drafted_tree(TreeShape.from_branching([3, 2, 2]), "with_replacement", seed=1)
    for seed in range(10):
        rows = AskedRows(whole.target_probs)
        tree = DraftedTree(whole.shape, whole.token_ids, whole.laws, rows)
        BlockVerification()(tree, RandomChoices(seed))
        assert len(set(rows.asked)) <= 4 + 3  # one path, and at most another below its first node


def test_nothing_is_selected_below_a_token_of_no_weight():
    law = mdsd.WithReplacement([0.5, 0.5], 1)
    rows = {0: np.array([0.0, 1.0])}  # and no other
    tree = DraftedTree(TreeShape.chain(2), np.array([0, 0, 1]), (law, law, None), rows)
    assert outcome_law(tree, BlockVerification()) == {StepOutcome((), 1): 1.0}


def test_greedy_output_at_temperature_zero():
    plain = generate(TARGET, DRAFT_MODEL, PROMPT, max_new_tokens=12, temperature=0.0)
    for draft in ("with_replacement", "without_replacement", "greedy", "top_k"):
        options = {"draft": draft, "tree": [2, 1], "temperature": 0.0, "verifier": "block"}
        result = generate(TARGET, DRAFT_MODEL, PROMPT, max_new_tokens=12, **options)
        assert result.token_ids.tolist() == plain.token_ids.tolist()


def test_same_seed_same_output():
    options = {"max_new_tokens": 30, "verifier": "block", "tree": [2, 1], "rng": 3}
    first, second = (generate(TARGET, DRAFT_MODEL, PROMPT, **options) for _ in range(2))
    assert first.token_ids.tolist() == second.token_ids.tolist()


class TestArguments:
    def test_by_name_and_as_an_object(self):
        assert type(step_verification("block")) is BlockVerification
        verification = BlockVerification(max_iterations=3)
        assert step_verification(verification) is verification

    def test_options_of_the_search(self):
        verifier = BlockVerification(tolerance=1e-3, max_iterations=5, effort="exact").verifier
        assert (verifier.tolerance, verifier.max_iterations) == (1e-3, 5)
        assert (verifier.effort, BlockVerification().verifier.effort) == ("exact", "fast")

    @pytest.mark.parametrize(
        "options",
        [{"effort": "fastest"}, {"effort": None}, {"tolerance": -1.0}, {"max_iterations": 0}],
        ids=str,
    )
    def test_bad_options(self, options):
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            BlockVerification(**options)

    def test_unknown_name(self):
        with pytest.raises(InvalidArgumentError, match="did you mean 'block'"):
            step_verification("blok")

    def test_every_draft_distribution_is_supported(self):
        for draft in DRAFTS:
            verification = BlockVerification()
            tree = drafted_tree(TreeShape([-1, 0, 0]), draft)
            verification.check([tree.laws[0]])
            assert isinstance(verification(tree, RandomChoices(0)), StepOutcome)


def test_level_by_level_with_the_same_selection_is_optimal():
    for draft in ("with_replacement", "without_replacement", "greedy"):
        options = {"draft": draft, "tree": [2, 1]}
        laws = [
            accepted_law(*toy_pair(7), [0], verifier=verifier, **options)
            for verifier in (LevelVerification(SelectingVerifier()), "optimal")
        ]
        np.testing.assert_allclose(*laws, rtol=0, atol=1e-10)
