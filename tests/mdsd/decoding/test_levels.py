"""Verification of one tree, level by level."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TreeShape
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepOutcome
from mdsd.decoding.verification import step_verification
from mdsd.drafts import read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError

from .paths import AskedRows, drafted_tree, outcome_law
from .toys import V

RNG = np.random.default_rng(8)


def by_hand(tree, verifier, node=0, path=()):
    """The outcomes by definition: output laws of one-step plans, multiplied along the path."""
    law = tree.laws[node]
    row = tree.target_probs[node]
    if law is None:
        return {StepOutcome(path, token): p for token, p in enumerate(row) if p > 0.0}
    ids = tree.child_token_ids(node).tolist()
    found = defaultdict(float)
    for token, prob in enumerate(verifier.plan(row, law).output_law(ids)):
        if prob == 0.0:
            continue
        if token not in ids:
            found[StepOutcome(path, token)] += prob
            continue
        child = tree.shape.children(node)[ids.index(token)]
        for outcome, after in by_hand(tree, verifier, child, (*path, child)).items():
            found[outcome] += prob * after
    return found


@pytest.mark.parametrize(
    "shape",
    [TreeShape([-1]), TreeShape.chain(3), TreeShape.k_ary(2, 2), TreeShape([-1, 0, 0, 0, 1, 1, 5])],
    ids=["root", "chain", "binary", "uneven"],
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("verifier", [mdsd.RRSVerifier(), mdsd.KSeqVerifier()], ids=repr)
def test_outcomes_multiply_along_the_path(shape, seed, verifier):
    tree = drafted_tree(shape, seed=seed)
    found, expected = outcome_law(tree, LevelVerification(verifier)), by_hand(tree, verifier)
    assert set(found) == set(expected)
    assert found == pytest.approx(expected, abs=1e-15)


def test_a_residual_token_that_was_drafted_is_gone_on_from():
    # The first draft is never the target's; the residual of a single-draft test is token 1.
    law = mdsd.WithReplacement([0.5, 0.5, 0.0], 2)
    tree = DraftedTree(
        TreeShape([-1, 0, 0]), np.array([2, 0, 1]), (law, None, None), np.eye(3)[[1, 0, 2]]
    )
    assert outcome_law(tree, LevelVerification(mdsd.NaiveTreeVerifier())) == {
        StepOutcome((2,), 2): 1.0
    }


def test_of_equal_drafts_the_first_is_taken():
    law = mdsd.WithReplacement([0.0, 1.0], 2)
    tree = DraftedTree(
        TreeShape([-1, 0, 0]), np.array([0, 1, 1]), (law, None, None), np.eye(2)[[1, 0, 1]]
    )
    assert outcome_law(tree, LevelVerification(mdsd.RRSVerifier())) == {StepOutcome((1,), 0): 1.0}


def test_rows_off_the_path_are_not_asked_for():
    shape = TreeShape.k_ary(3, 3)
    whole = drafted_tree(shape, "without_replacement")
    rows = AskedRows(whole.target_probs)
    tree = DraftedTree(whole.shape, whole.token_ids, whole.laws, rows)
    outcome = LevelVerification(mdsd.RRSVerifier())(tree, RandomChoices(0))
    assert rows.asked == [0, *outcome.path]


def test_other_nodes_are_refused_when_one_of_them_is_not_supported():
    laws = [read_kind("with_replacement").example(n) for n in (1, 2)]
    with pytest.raises(UnsupportedError, match="num_drafts=2"):
        LevelVerification(mdsd.SingleDraftVerifier()).check(laws)


class TestShortOfTokens:
    """Nodes at which a draft distribution cannot draw as many tokens as asked for."""

    @pytest.mark.parametrize("draft", ["without_replacement", "greedy", "top_k"])
    @pytest.mark.parametrize("support", [1, 2, 3])
    def test_all_tokens_there_are(self, draft, support):
        probs = np.zeros(V)
        probs[:support] = 1.0 / support
        law = read_kind(draft).make_at_most(probs, 3)
        assert (law.name, law.num_drafts) == (draft, support)

    def test_spechub(self):
        probs = np.array([0.0, 1.0, 0.0])
        law = read_kind("spechub").make_at_most(probs, 2)
        assert law.sample(0).tolist() == [1]
        assert not mdsd.SpecHubVerifier().supports(law)
        target = np.array([0.25, 0.5, 0.25])
        tree = DraftedTree(
            TreeShape([-1, 0]), np.array([0, 1]), (law, None), np.stack([target, probs])
        )
        found = outcome_law(tree, LevelVerification(mdsd.SpecHubVerifier()))
        assert found == {
            StepOutcome((), 0): 0.25,
            StepOutcome((1,), 1): 0.5,
            StepOutcome((), 2): 0.25,
        }

    def test_with_replacement_there_are_always_enough(self):
        assert read_kind("with_replacement").make_at_most(np.array([0.0, 1.0]), 3).num_drafts == 3

    def test_independent_takes_the_first_models(self):
        rows = RNG.dirichlet(np.ones(V), size=3)
        law = read_kind("independent").make_at_most(rows, 2)
        np.testing.assert_allclose(law.draft_probs, rows[:2], rtol=0, atol=1e-15)


class TestCheck:
    @pytest.mark.parametrize("name", mdsd.verifier_names())
    @pytest.mark.parametrize("draft", ["with_replacement", "greedy", "independent"])
    @pytest.mark.parametrize("num_drafts", [1, 3])
    def test_refuses_what_the_verifier_does_not_support(self, name, draft, num_drafts):
        verifier = mdsd.get_verifier(name)
        law = read_kind(draft).example(num_drafts)
        check = step_verification(name).check
        if verifier.supports(law):
            check([law])
        else:
            with pytest.raises(UnsupportedError, match=f"{name}.*{draft}"):
                check([law])

    def test_names_and_objects(self):
        verifier = mdsd.RRSVerifier()
        assert step_verification(verifier).verifier is verifier
        assert step_verification("kseq").verifier.name == "kseq"

    @pytest.mark.parametrize("verifier", ["fast", None, 3, mdsd.RRSVerifier], ids=repr)
    def test_unknown(self, verifier):
        with pytest.raises(InvalidArgumentError, match="verifier"):
            step_verification(verifier)
