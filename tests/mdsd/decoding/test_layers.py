"""Verification layer by layer: lossless on every tree, and never below what goes one path."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import mdsd
from mdsd._solvers import group_selection
from mdsd.decoding import TreeShape
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import branches
from mdsd.decoding.layers import DraftedString, Layer, LayerVerification
from mdsd.decoding.rows import Row
from mdsd.decoding.verification import step_verification
from mdsd.testing import accepted_law, chi_square_p_value, sequence_law

from ...own_kinds import SharpenedDraft
from .paths import SHAPES, EdgeModel, drafted_tree, expected_accepted, toy_pair
from .toys import DRAFTS, PrefixModel, distance, filtered, plain_law

EXACT = 1e-12
PROMPT, LENGTH = [2, 0], 3
TARGET, DRAFT_MODEL, SECOND = (PrefixModel(seed, 3) for seed in (1, 2, 3))
GAPPY = PrefixModel(4, 3, zeros=0.5)
KINDS = (*DRAFTS, "hybrid:1", SharpenedDraft.kind(power=2))
SMALL = {
    "root": TreeShape([-1]),
    "wider": [3],
    "both": [2, 2],
    "long": [1, 1, 1],
    "deep": [2, 1, 1],
    "late": [1, 1, 2],
    "mixed": TreeShape([-1, 0, 0, 0, 1, 1, 2, 4]),
}
"""More shapes, for two tokens."""


def expected_law(target=TARGET, length=LENGTH, prompt=PROMPT, **filters):
    return plain_law(lambda prefix: filtered(target.probs(prefix), **filters), prompt, length)


def law_of(draft="without_replacement", model=DRAFT_MODEL, target=TARGET, **options):
    models = [model, SECOND] if draft == "independent" else model
    options = {"verifier": "layers", "tree": [2, 1], **options}
    return sequence_law(target, models, PROMPT, LENGTH, draft=draft, **options)


def applies(draft, shape):
    if draft == "spechub":
        return shape in ("first", "second")  # which has two drafts at each node
    return draft != "hybrid:1" or shape in ("wide", "first", "second")


CASES = [pair for pair in itertools.product(KINDS, SHAPES) if applies(*pair)]
each_case = pytest.mark.parametrize(("draft", "shape"), CASES, ids=str)
DRAWN = ("with_replacement", "without_replacement")
each_drawn = pytest.mark.parametrize("draft", DRAWN)


def law_of_two_tokens(draft, shape, **options):
    """Law of four tokens out of two, and the law that it should be."""
    target, model = PrefixModel(7, 2), PrefixModel(8, 2)
    found = sequence_law(
        target, model, [0], 4, draft=draft, tree=shape, **{"verifier": "layers", **options}
    )
    return found, expected_law(target, 4, [0])


class TestLossless:
    @each_case
    def test_plain(self, draft, shape):
        assert distance(law_of(draft, tree=SHAPES[shape]), expected_law()) <= EXACT

    @pytest.mark.parametrize("shape", SMALL)
    @each_drawn
    def test_more_shapes(self, draft, shape):
        assert distance(*law_of_two_tokens(draft, SMALL[shape])) <= EXACT

    @pytest.mark.parametrize("draft", KINDS, ids=str)
    def test_top_k(self, draft):
        law = law_of(draft, tree=SHAPES["first"], top_k=2)
        assert distance(law, expected_law(top_k=2)) <= EXACT

    @pytest.mark.parametrize("draft", DRAFTS)
    @pytest.mark.parametrize("sides", ["target", "both"])
    def test_zeros_ties_and_point_masses(self, draft, sides):
        target, model = EdgeModel(5), DRAFT_MODEL if sides == "target" else EdgeModel(6)
        law = law_of(draft, model, target, tree=SHAPES["first"])
        assert distance(law, expected_law(target)) <= EXACT

    @pytest.mark.parametrize("draft", DRAFTS)
    def test_draft_models_short_of_tokens(self, draft):
        law = law_of(draft, GAPPY, tree=SHAPES["first"])
        assert distance(law, expected_law()) <= EXACT

    @pytest.mark.parametrize("temperature", [0.0, 0.6])
    def test_temperature(self, temperature):
        law = law_of(temperature=temperature)
        assert distance(law, expected_law(temperature=temperature)) <= EXACT

    @each_drawn
    @pytest.mark.parametrize("orders", [1, 2, 4])
    def test_searches_that_were_stopped(self, draft, orders):
        law = law_of(draft, verifier=LayerVerification(max_iterations=orders))
        assert distance(law, expected_law()) <= EXACT

    @each_drawn
    @pytest.mark.parametrize("least", [0.2, 0.5, 1.0])
    def test_branches_that_are_dropped(self, draft, least):
        law = law_of(draft, verifier=LayerVerification(min_weight=least))
        assert distance(law, expected_law()) <= EXACT


class TestNegativeControls:
    """What is not lossless must be found out by the same tests."""

    def found(self):
        return distance(*law_of_two_tokens("with_replacement", [2, 1, 1]))

    def test_weights_that_are_too_large(self, monkeypatch):
        exact = Layer.following

        def scaled(self):
            strings = list(exact(self))
            scale = min(1.01, 1.0 / max(1e-9, sum(string.weight for string in strings)))
            for string in strings:
                yield DraftedString(string.nodes, scale * string.weight)

        monkeypatch.setattr(Layer, "following", scaled)
        assert self.found() > 1e-4

    def test_masses_left_at_the_wrong_layer(self, monkeypatch):
        exact = Layer.left_over
        monkeypatch.setattr(Layer, "left_over", lambda self, place: exact(self, place) ** 2)
        assert self.found() > 1e-3

    def test_misses_of_siblings_forgotten(self, monkeypatch):
        exact = group_selection.selection_probs

        def forgetful(orders, weights, groups):
            # As if every string were by itself, and the others had nothing drafted.
            alone = [exact(orders, weights, groups[:, [k]]) for k in range(groups.shape[1])]
            return np.hstack(alone) / groups.shape[1]

        monkeypatch.setattr(group_selection, "selection_probs", forgetful)
        assert self.found() > 1e-3


def layer_after(tree, tokens):
    """The second layer of a tree whose first tokens are given, and all that may follow it."""
    token_ids = tree.token_ids.copy()
    token_ids[tree.shape.level(1).start : tree.shape.level(1).stop] = tokens
    nodes = [node for node in tree.shape.level(1) if tree.laws[node] is not None]
    draws = [list(tree.laws[node].tuples()) for node in nodes]
    for drawn in itertools.product(*draws):
        for node, (ids, _) in zip(nodes, drawn, strict=True):
            children = tree.shape.children(node)
            token_ids[children.start : children.stop] = ids
        filled = DraftedTree(tree.shape, token_ids.copy(), tree.laws, tree.target_probs)
        yield float(np.prod([prob for _, prob in drawn])), filled


@pytest.mark.parametrize("draft", [*DRAWN, "greedy", "independent"])
@pytest.mark.parametrize("tokens", [(0, 1), (2, 2)])
def test_what_is_passed_on_and_what_is_left_make_up_the_target(draft, tokens):
    """The mean weight of each longer string and what is left of it: w_v p_v, to 1e-12."""
    if tokens[0] == tokens[1] and draft not in ("with_replacement", "independent"):
        pytest.skip("no token is drafted twice")
    tree = drafted_tree(TreeShape([-1, 0, 0, 1, 1, 2]), draft, seed=4)
    passed, wanted = {}, {}
    for prob, filled in layer_after(tree, tokens):
        layers = LayerVerification().layers(filled)
        for place, string in enumerate(layers[1].strings):
            masses = string.weight * tree.target_probs[string.nodes[0]]
            token = filled.token_ids[string.nodes[0]]
            wanted[token] = masses
            passed.setdefault(token, np.zeros(4))
            passed[token] += prob * layers[1].left_over(place)
        for string in layers[2].strings if len(layers) > 2 else ():
            parent = filled.token_ids[tree.shape.parents[string.nodes[0]]]
            passed[parent][filled.token_ids[string.nodes[0]]] += prob * string.weight
    assert wanted
    for token, masses in wanted.items():
        np.testing.assert_allclose(passed[token], masses, rtol=0, atol=EXACT)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tree", [[1, 1], [1, 1, 1]], ids=str)
def test_block_verification_on_chains(seed, tree):
    laws = [
        accepted_law(*toy_pair(seed), [0], tree=tree, verifier=name) for name in ("layers", "block")
    ]
    np.testing.assert_allclose(*laws, rtol=0, atol=EXACT)


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy", "spechub"])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_of_one_level(draft, seed):
    laws = [
        accepted_law(*toy_pair(seed), [0], draft=draft, tree=[2], verifier=name)
        for name in ("layers", "optimal")
    ]
    np.testing.assert_allclose(*laws, rtol=0, atol=1e-9)


def mean_over_trees(pair, verification, **options):
    """Expected accepted tokens, and the certified gaps of the layers, over all drawn trees."""
    decoder = make_decoder(*pair, verifier=verification, **options)
    known, accepted, gap = {}, 0.0, 0.0
    drawn = branches(lambda choices: decoder.draw([Row([0], 9, choices)]), known)
    for prob, drafting in drawn:
        (tree,) = decoder.score(drafting)
        accepted += prob * verification.accepted_by_depth(tree).sum()
        gap += prob * sum(layer.plan.gap for layer in verification.layers(tree) if layer.plan)
    return accepted, gap


@each_drawn
@pytest.mark.parametrize("tree", [[2, 1], [2, 1, 1]], ids=str)
def test_never_below_one_path(draft, tree):
    gains = []
    for seed in range(5):
        pair = toy_pair(seed + 100, 2 + (len(tree) == 2))
        options = {"draft": draft, "tree": tree}
        layers, gap = mean_over_trees(pair, LayerVerification(), **options)
        assert layers == pytest.approx(
            expected_accepted(*pair, [0], verifier="layers", **options), abs=EXACT
        )
        best = max(
            expected_accepted(*pair, [0], verifier=name, **options)
            for name in ("block", "optimal", "traversal", "rrs")
        )
        gains.append(layers - best + gap)
    assert min(gains) >= -EXACT
    assert np.mean(gains) > 0.01


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy"])
def test_target_equal_to_the_draft_accepts_all(draft):
    found = accepted_law(TARGET, TARGET, PROMPT, draft=draft, tree=[2, 1], verifier="layers")
    np.testing.assert_allclose(found, [0.0, 0.0, 1.0], rtol=0, atol=EXACT)


class TestFullVocabulary:
    """Groups of many tokens: 3,000 of them."""

    SHAPE = TreeShape.from_branching([3, 2, 1])

    def tree(self, draft, seed=0):
        rng = np.random.default_rng(seed)
        kind, size = mdsd.drafts.read_kind(draft), 3000
        logits = rng.normal(size=(len(self.SHAPE.parents), size)) * 3.0
        target, model = (
            np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
            for x in (logits, logits + rng.normal(size=logits.shape))
        )
        tokens, laws = np.zeros(len(logits), dtype=np.int64), []
        for node in range(len(logits)):
            children = self.SHAPE.children(node)
            laws.append(kind.make(model[node], len(children)) if children else None)
            if children:
                tokens[children.start : children.stop] = laws[-1].sample(rng)
        return DraftedTree(self.SHAPE, tokens, tuple(laws), target)

    @pytest.mark.parametrize("draft", [*DRAWN, "greedy"])
    def test_what_is_selected_agrees_with_the_law(self, draft):
        """The masses sum to 1 or nearly; those passed on leave nothing over."""
        layers = LayerVerification().layers(self.tree(draft))
        assert len(layers) == 4
        for layer in layers[:-1]:
            plan = layer.plan
            few = np.argsort(-plan.target_probs)[:20]
            of_few = plan.selected_of(few)
            np.testing.assert_allclose(of_few, plan.selected[few], rtol=0, atol=1e-14)
            if draft == "without_replacement":  # not all that is selected is kept
                assert 1.0 - 1e-3 < plan.selected.sum() <= 1.0 + 1e-11
            else:
                assert plan.selected.sum() == pytest.approx(1.0, abs=1e-11)
            assert plan.selected[-1] == 0.0
            assert 0.0 <= plan.gap <= 2e-3
            np.testing.assert_allclose(plan.marginal_law(), plan.target_probs, rtol=0, atol=1e-12)

    @each_drawn
    def test_drawn_outcomes_agree_with_the_weights(self, draft):
        """Depths of 1,500 outcomes of one tree; with false alarms once in a million."""
        tree, verification, choices = self.tree(draft), LayerVerification(), RandomChoices(0)
        plans = {}

        def plan(verifier, masses, law):
            key = masses.tobytes()
            if key not in plans:
                plans[key] = verifier.plan(masses, law)
            return plans[key]

        choices.plan = plan
        counts = Counter(len(verification(tree, choices).path) for _ in range(1500))
        exact = outcome_law_by_depth(tree, verification)
        found = [counts[depth] for depth in range(4)]
        assert chi_square_p_value(found, exact) > 1e-6
        assert chi_square_p_value(found, np.roll(exact, 1)) < 1e-6


def outcome_law_by_depth(tree, verification):
    """Where a step ends, from sums over all tokens."""
    probs, further = [], 1.0
    for layer in reversed(verification.layers(tree)):
        left = sum(layer.left_over(place).sum() for place in range(len(layer.strings)))
        stops = 1.0 if layer.weight == 1.0 else left / (left + 1.0 - layer.weight)
        probs.append(further * stops)
        further *= 1.0 - stops
    return np.array(probs[::-1] + [0.0] * (4 - len(probs)))


def test_a_layer_by_hand():
    """Two strings that share what is left: the second draft has the token the first lacks."""
    law = mdsd.WithReplacement([0.5, 0.5], 1)
    tree = DraftedTree(
        TreeShape([-1, 0, 0, 1, 2]),
        np.array([0, 0, 1, 0, 1]),
        (mdsd.TopKDraft([0.6, 0.4], 2), law, law, None, None),
        np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]),
    )
    layers = LayerVerification().layers(tree)
    assert [string.weight for string in layers[1].strings] == pytest.approx([0.5, 0.5])
    # (0, 0) and (1, 1) are wanted with 1/2 each, and either is drafted with 1/2: alone it gets all
    # of its mass, both together share.
    assert layers[1].plan.acceptance_rate == pytest.approx(0.75)
    assert layers[2].weight == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("min_weight", 1.5, "at most 1"),
        ("min_weight", -0.1, ">= 0"),
        ("min_weight", "0", "min_weight"),
        ("effort", "fastest", "effort"),
        ("tolerance", float("nan"), "tolerance"),
        ("max_iterations", 0, ">= 1"),
    ],
)
def test_wrong_options(option, value, words):
    with pytest.raises(mdsd.InvalidArgumentError, match=words):
        LayerVerification(**{option: value})


def test_by_name():
    assert isinstance(step_verification("layers"), LayerVerification)
