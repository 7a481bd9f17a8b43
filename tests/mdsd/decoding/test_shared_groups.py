"""Verification of blocks and of layers where tokens share groups, and selected drafts are dropped.

Exact laws: every run is followed, with its probability.
"""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TreeShape
from mdsd.decoding.block import BlockVerification, _Ends
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import EnumeratedChoices, branches
from mdsd.decoding.layers import LayerVerification
from mdsd.decoding.selection import SelectingVerifier
from mdsd.testing import sequence_law
from mdsd.verifiers.lottery import LotteryPlan

from ...shared_groups import heavy_and_tiny, share_groups, shares
from .paths import outcome_law
from .toys import PrefixModel, distance, plain_law

EXACT = 1e-12
SIZE = 7
VERIFICATIONS = {"block": BlockVerification, "layers": LayerVerification}
each_verification = pytest.mark.parametrize("kind", VERIFICATIONS.values(), ids=VERIFICATIONS)
each_effort = pytest.mark.parametrize("effort", ["exact", "fast"])


@pytest.fixture(autouse=True)
def few_groups(monkeypatch):
    share_groups(monkeypatch)


class RareModel(PrefixModel):
    """Rows of three heavy tokens and four that are hardly ever drawn, one of them never."""

    def probs(self, prefix):
        return heavy_and_tiny(np.random.default_rng([self.seed, *prefix]), 3, 4)


TARGET, DRAFT_MODEL = RareModel(1, SIZE), RareModel(2, SIZE)


def law_and_expected(verification, draft, tree):
    found = sequence_law(TARGET, DRAFT_MODEL, [0], 2, draft=draft, tree=tree, verifier=verification)
    return found, plain_law(TARGET.probs, [0], 2)


@each_verification
@each_effort
@pytest.mark.parametrize(
    ("draft", "tree"), [("without_replacement", [2]), ("without_replacement", [1, 2])], ids=str
)
def test_lossless(kind, effort, draft, tree, monkeypatch):
    asked = []
    select = EnumeratedChoices.select

    def noting(self, plan, ids):
        place = select(self, plan, ids)
        asked.append((place, isinstance(plan, LotteryPlan) and shares(plan)))
        return place

    monkeypatch.setattr(EnumeratedChoices, "select", noting)
    assert distance(*law_and_expected(kind(effort=effort), draft, tree)) <= EXACT
    if kind is BlockVerification:
        assert any(shared for _, shared in asked)
        assert any(place < 0 for place, _ in asked)  # dropped


def first_token_error(verification, seed=0):
    """How far the law of the first token is from the target's; two drafts out of 14 tokens."""
    rng = np.random.default_rng(seed)
    q = heavy_and_tiny(rng, 3, 12)
    law, target = mdsd.WithoutReplacement(q, 2), q * 5.0 ** rng.uniform(-1.0, 1.0, len(q)) + 1e-5
    rows = np.tile(target / target.sum(), (3, 1))
    found, known = np.zeros(len(q)), {}
    for ids, prob in law.tuples():
        tree = DraftedTree(TreeShape([-1, 0, 0]), np.array([0, *ids]), (law, None, None), rows)
        for chance, outcome in branches(
            lambda choices, tree=tree: verification(tree, choices), known
        ):
            first = tree.token_ids[outcome.path[0]] if outcome.path else outcome.token_id
            found[first] += prob * chance
    return np.abs(found - rows[0]).max()


@each_verification
def test_drafts_that_are_dropped(kind, monkeypatch):
    assert first_token_error(kind()) <= EXACT
    # Negative control: they are kept all the same.
    monkeypatch.setattr(LotteryPlan, "_keep_probs", lambda self, tokens: np.ones(len(tokens)))
    assert first_token_error(kind()) > 10 * EXACT


LEVELS = TreeShape([-1, 0, 0, 1, 1])


def rare_tree(seed):
    """A tree drawn without replacement, of which the rarest were drawn."""
    shape = TreeShape([-1, 0, 0, 1, 1, 3])
    rng = np.random.default_rng(seed)
    tokens, laws, rows = np.zeros(6, dtype=np.int64), [], []
    for node in range(6):
        children, q = shape.children(node), heavy_and_tiny(rng, 3, 7)
        law = mdsd.WithoutReplacement(q, len(children)) if children else None
        if law is not None:
            tiny = np.flatnonzero((q > 0.0) & (q < 1e-2))
            tokens[children.start : children.stop] = rng.choice(tiny, len(children), replace=False)
        laws.append(law)
        # Tokens are worth a half to twice their chance: prefixes pass and do not.
        masses = q * rng.uniform(0.5, 2.0, len(q)) + 1e-5
        rows.append(masses / masses.sum())
    return DraftedTree(shape, tokens, tuple(laws), np.array(rows))


def from_outcomes(tree, verification):
    found = np.zeros(tree.shape.depth)
    for outcome, prob in outcome_law(tree, verification).items():
        found[: len(outcome.path)] += prob
    return found


@each_effort
@pytest.mark.parametrize("seed", range(4))
def test_accepted_by_depth_of_blocks(effort, seed):
    tree, verification = rare_tree(seed), BlockVerification(effort=effort)
    found, expected = verification.accepted_by_depth(tree), from_outcomes(tree, verification)
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)
    assert 0.0 < found[0] < 1.0


@each_effort
def test_accepted_by_depth_of_layers(effort):
    """A depth knows the tree down to there alone: the mean over all that can be drawn below."""
    tree, verification = rare_tree(0), LayerVerification(effort=effort)
    assert shares(verification.layers(tree)[1].plan)
    below, known = np.zeros(2), tree.shape.level(1)
    node = next(node for node in known if tree.laws[node] is not None)
    children, expected = tree.shape.children(node), 0.0
    for ids, prob in tree.laws[node].tuples():
        tokens = tree.token_ids.copy()
        tokens[children.start : children.stop] = ids
        drawn = DraftedTree(LEVELS, tokens[:5], (*tree.laws[:3], None, None), tree.target_probs[:5])
        found = verification.accepted_by_depth(drawn)
        below += prob * found
        expected += prob * from_outcomes(drawn, verification)
        # The deepest is known with the whole tree.
        assert found[1] == pytest.approx(from_outcomes(drawn, verification)[1], abs=EXACT)
    np.testing.assert_allclose(below, expected, rtol=0, atol=EXACT)


def test_drafts_that_are_dropped_are_counted(monkeypatch):
    """Negative control: paths that end with a dropped draft are forgotten."""
    tree, verification = rare_tree(0), BlockVerification()
    end = _Ends._end

    def forgetful(self, prefix, left):
        prefix.unselected = 0.0
        return end(self, prefix, left)

    monkeypatch.setattr(_Ends, "_end", forgetful)
    found, expected = verification.accepted_by_depth(tree), from_outcomes(tree, verification)
    assert np.abs(found - expected).max() > 1e3 * EXACT


class Numbers:
    """A source of random numbers that gives those it was made with."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self, shape=None):
        number = self.numbers.pop(0)
        return number if shape is None else np.full(shape, number)


def test_a_draft_is_dropped_above_the_chance_to_be_kept():
    tree = rare_tree(0)
    plan = SelectingVerifier().plan(tree.target_probs[0], tree.laws[0])
    drafts, choices, dropped = tree.child_token_ids(0), RandomChoices(0), 0
    for number in (0.01, 0.99):
        token = plan._select(drafts[np.newaxis], np.array([[number]]))
        (kept,) = plan._keep_probs(token)
        place = drafts.tolist().index(token[0])
        if kept < 1.0:
            choices._verify = Numbers(number, kept * (1.0 - 1e-9))
            assert choices.select(plan, drafts) == place
            choices._verify = Numbers(number, kept)
            assert choices.select(plan, drafts) == -1
            dropped += 1
        else:
            choices._verify = Numbers(number)
            assert choices.select(plan, drafts) == place
    assert dropped >= 1
