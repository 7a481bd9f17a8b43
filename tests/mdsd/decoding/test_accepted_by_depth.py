"""Chances of accepting so many tokens of a drawn tree: exact given the tree, for every rule."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.decoding import BiasedVerification, TreeShape
from mdsd.decoding.block import BlockVerification
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import branches
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.rows import Row
from mdsd.decoding.steps import StepOutcome, StepVerification
from mdsd.decoding.verification import step_verification
from mdsd.errors import UnsupportedError
from mdsd.testing import accepted_law

from .paths import SHAPES, EdgeModel, drafted_tree, outcome_law, toy_pair
from .toys import DRAFTS, HastyVerifier, supporting

EXACT = 1e-12
TREES: dict[str, Any] = {
    **SHAPES,
    "root": TreeShape([-1]),
    "long": [1, 1, 1, 1],
    "pairs": [2, 2],
    "deep": [2, 1, 1],
    "broad": [3, 2],
    # Leaves at depths 1, 2 and 3.
    "leaves": TreeShape([-1, 0, 0, 0, 1, 1, 2, 4]),
}


def shape_of(name: str) -> TreeShape:
    tree = TREES[name]
    return tree if isinstance(tree, TreeShape) else TreeShape.from_branching(tree)


def counts_of(shape: TreeShape) -> list[int]:
    return [len(shape.children(node)) for node in set(shape.parents) - {-1}]


def from_outcomes(tree: DraftedTree, verification: StepVerification) -> np.ndarray:
    """By following every branch of the verification."""
    found = np.zeros(tree.shape.depth)
    for outcome, prob in outcome_law(tree, verification).items():
        found[: len(outcome.path)] += prob
    return found


def verifications(draft: str, shape: TreeShape) -> dict[str, StepVerification]:
    """All that apply, in a form whose branches can be followed."""
    counts = counts_of(shape)
    if max(counts, default=1) > (2 if draft == "independent" else 3):
        return {}
    if draft == "spechub" and set(counts) - {2}:
        return {}
    found = {name: step_verification(name) for name in supporting(draft, counts)}
    found["block"] = BlockVerification()
    found["stopped"] = BlockVerification(max_iterations=1)
    if draft in ("with_replacement", "without_replacement", "independent"):
        found["traversal"] = step_verification("traversal")
    if max(counts, default=1) == 1:
        found["biased"] = BiasedVerification(0.1)
    return found


CASES = [
    (draft, tree)
    for draft, tree in itertools.product(DRAFTS, TREES)
    if verifications(draft, shape_of(tree))
]


@pytest.mark.parametrize(("draft", "tree"), CASES)
def test_equal_to_every_branch(draft, tree):
    for name, verification in verifications(draft, shape_of(tree)).items():
        for seed in range(4):
            drawn = drafted_tree(shape_of(tree), draft, seed)
            found = verification.accepted_by_depth(drawn)
            assert found.shape == (drawn.shape.depth,)
            expected = from_outcomes(drawn, verification)
            np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT, err_msg=name)


def test_cases_have_all_that_makes_a_difference():
    """Tokens drafted twice, and the difference that depths and rules make."""
    drawn = [
        drafted_tree(shape_of(tree), draft, seed) for draft, tree in CASES for seed in range(4)
    ]
    twice = [
        tree
        for tree in drawn
        if any(
            len(set(ids.tolist())) < len(ids)
            for ids in map(tree.child_token_ids, set(tree.shape.parents) - {-1})
        )
    ]
    assert len(twice) > 10
    tree = drafted_tree(shape_of("leaves"), seed=1)
    found = {
        name: tuple(rule.accepted_by_depth(tree).round(6))
        for name, rule in verifications("with_replacement", tree.shape).items()
    }
    assert len({found[name] for name in ("rrs", "kseq", "optimal", "block", "traversal")}) == 5


def mean_over_trees(target: Any, models: Any, **options: Any) -> np.ndarray:
    """Mean over all trees that can be drawn, with their probabilities."""
    decoder = make_decoder(target, models, **options)
    length = decoder.shape.depth + 1
    mean = np.zeros(decoder.shape.depth)
    for prob, drawn in branches(lambda choices: decoder.draw([Row([0], length, choices)])):
        (tree,) = decoder.score(drawn)
        chances = decoder.verification.accepted_by_depth(tree)
        mean[: len(chances)] += prob * chances
    return mean


def at_least(law: np.ndarray) -> np.ndarray:
    return law[:0:-1].cumsum()[::-1]


MEANS = [
    ("rrs", "with_replacement", [2, 2]),
    ("rrs", "without_replacement", "first"),
    ("kseq", "with_replacement", "second"),
    ("greedy", "greedy", [2, 1]),
    ("spechub", "spechub", "second"),  # where one token is left, `naive` stands in
    ("optimal", "without_replacement", [2, 1]),
    ("optimal", "independent", "low"),
    ("block", "with_replacement", "chain"),
    ("block", "with_replacement", "first"),
    ("block", "without_replacement", [2, 2]),
    ("block", "spechub", "second"),
    ("block", "top_k", [2, 1]),
    ("traversal", "with_replacement", "second"),
    ("traversal", "without_replacement", [2, 1]),
    ("traversal", "independent", "first"),
]


@pytest.mark.parametrize(("verifier", "draft", "tree"), MEANS)
@pytest.mark.parametrize("kind", ["toys", "edges", "greedy text"])
def test_mean_over_trees_is_the_law(verifier, draft, tree, kind):
    target, model = (EdgeModel(1), EdgeModel(2)) if kind == "edges" else toy_pair(4)
    models = [model, toy_pair(5)[1]] if draft == "independent" else model
    options = {"verifier": verifier, "draft": draft, "tree": TREES.get(str(tree), tree)}
    if kind == "greedy text":
        options["temperature"] = 0.0
    found = mean_over_trees(target, models, **options)
    expected = at_least(accepted_law(target, models, [0], **options))
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)


class TestWhatMustShow:
    """Errors that the comparisons above would find."""

    TREE = drafted_tree(TreeShape.from_branching([2, 2]), "without_replacement", seed=3)

    def test_residual_tokens_that_were_drafted(self):
        """Level by level a residual may fall on another draft, and is gone on from."""
        verifier = mdsd.OptimalVerifier(max_iterations=1)
        rule = LevelVerification(verifier)
        expected = from_outcomes(self.TREE, rule)
        np.testing.assert_allclose(rule.accepted_by_depth(self.TREE), expected, rtol=0, atol=EXACT)
        drafts = self.TREE.child_token_ids(0)
        plan = verifier.plan(self.TREE.target_probs[0], self.TREE.laws[0])
        selected = plan._selection_probs(drafts[np.newaxis])[0] * plan.chances[drafts]
        assert selected.sum() < expected[0] - 1e-6

    def test_tokens_beside_the_selected_path(self, monkeypatch):
        rule = BlockVerification(max_iterations=1)
        found = rule.accepted_by_depth(self.TREE)
        np.testing.assert_allclose(found, from_outcomes(self.TREE, rule), rtol=0, atol=EXACT)
        monkeypatch.setattr("mdsd.decoding.block._unused_child", lambda *_: None)
        assert abs(found - from_outcomes(self.TREE, rule)).max() > 1e-6


class OwnVerification(StepVerification):
    """A user's own: level by level, and no `accepted_by_depth`."""

    def __init__(self) -> None:
        self._rule = LevelVerification(HastyVerifier())

    def check(self, laws):
        self._rule.check(laws)

    def __call__(self, tree, choices) -> StepOutcome:
        return self._rule(tree, choices)


def test_a_users_own_is_followed_branch_by_branch():
    tree = drafted_tree(shape_of("deep"), seed=2)
    assert OwnVerification().accepted_by_depth(tree).tolist() == [1.0, 1.0, 1.0]


def test_any_verifier_level_by_level():
    tree = drafted_tree(shape_of("deep"), seed=2)
    assert LevelVerification(HastyVerifier()).accepted_by_depth(tree).tolist() == [1.0, 1.0, 1.0]


def test_only_rows_that_can_be_reached_are_asked_for():
    law = mdsd.WithReplacement([0.5, 0.5], 1)
    rows = {0: np.array([0.0, 1.0])}  # and no other
    tree = DraftedTree(TreeShape.chain(2), np.array([0, 0, 1]), (law, law, None), rows)
    for name in ("rrs", "optimal", "block", "traversal"):
        assert step_verification(name).accepted_by_depth(tree).tolist() == [0.0, 0.0]


def test_too_many_branches_are_refused(monkeypatch):
    monkeypatch.setattr("mdsd.decoding.enumeration.MAX_BRANCHES", 2)
    rule = BlockVerification()
    tree = drafted_tree(shape_of("deep"), seed=2)
    assert rule.accepted_by_depth(tree).shape == (3,)
    with pytest.raises(UnsupportedError, match="more than 2 branches"):
        StepVerification.accepted_by_depth(rule, tree)
