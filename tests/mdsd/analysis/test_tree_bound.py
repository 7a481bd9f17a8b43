"""The bound on lossless verifiers of a tree: attained where that is known, exceeded by none."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import mdsd
from mdsd._solvers import tree_lp
from mdsd.analysis import tree_bound, whole_trees
from mdsd.decoding import GrowingTree, TableModel, TreeShape
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.enumeration import branches
from mdsd.decoding.rows import Row
from mdsd.drafts import read_kind
from mdsd.errors import SolverError, UnsupportedError

from ..decoding.paths import SHAPES, EdgeModel, expected_accepted, toy_pair
from ..decoding.toys import PrefixModel, supporting

PROMPT = [1, 0]
PROVED = 1e-9
SEVERAL = ("with_replacement", "without_replacement", "greedy", "top_k", "hybrid:1", "independent")


def models_of(draft, seed, vocab_size=3):
    """A target and draft models; two of them for independent drafts."""
    target, model = toy_pair(seed, vocab_size)
    return target, [model, PrefixModel(seed, vocab_size)] if draft == "independent" else model


def drafted(target, models, tree, draft):
    """Probability and strings of everything that the decoder may draft, draw by draw."""
    decoder = make_decoder(target, models, tree=tree, draft=draft, verifier="optimal")
    depth = decoder.shape.depth
    drawn = branches(lambda choices: decoder.draw([Row(PROMPT, depth + 1, choices)])[0])
    return depth, [
        (prob, {tuple(path[len(PROMPT) :]) for path in drafting.paths}) for prob, drafting in drawn
    ]


def string_prob(target, string, given=()):
    """Probability that the target goes on from the first tokens of a string to all of it."""
    rows = [target.probs([*PROMPT, *string[:k]]) for k in range(len(given), len(string))]
    tokens = string[len(given) :]
    return float(np.prod([row[token] for row, token in zip(rows, tokens, strict=True)]))


def by_definition(target, models, tree, draft):
    """The program from the definition: one variable for each draw and each string emitted.

    The strings emitted, each continued by the target, have the target's law.
    """
    depth, draws = drafted(target, models, tree, draft)
    outputs = list(itertools.product(range(target.vocab_size), repeat=depth + 1))
    gains, entries = [], []
    for draw, (_, strings) in enumerate(draws):
        for accepted, token in itertools.product(strings, range(target.vocab_size)):
            emitted = (*accepted, token)
            entries.append((draw, len(gains), 1.0))
            entries += [
                (len(draws) + row, len(gains), string_prob(target, output, emitted))
                for row, output in enumerate(outputs)
                if output[: len(emitted)] == emitted
            ]
            gains.append(len(accepted))
    return best_coupling(gains, entries, draws, [string_prob(target, each) for each in outputs])


def by_whole_strings(target, models, tree, draft):
    """What more could be accepted if a string were decided to the end, beyond what is emitted."""
    depth, draws = drafted(target, models, tree, draft)
    outputs = list(itertools.product(range(target.vocab_size), repeat=depth + 1))
    gains, entries = [], []
    for draw, (_, strings) in enumerate(draws):
        for row, output in enumerate(outputs):
            entries += [(draw, len(gains), 1.0), (len(draws) + row, len(gains), 1.0)]
            gains.append(max(k for k in range(depth + 1) if output[:k] in strings))
    return best_coupling(gains, entries, draws, [string_prob(target, each) for each in outputs])


def best_coupling(gains, entries, draws, output_probs):
    """Most gained by what has the laws of draws and of outputs, those of outputs to 1e-12."""
    rows, columns, values = zip(*entries, strict=True)
    shape = (len(draws) + len(output_probs), len(gains))
    matrix = scipy.sparse.csr_array((values, (rows, columns)), shape=shape)
    found = scipy.optimize.linprog(
        -np.array(gains, dtype=float),
        A_eq=matrix[: len(draws)],
        b_eq=[prob for prob, _ in draws],
        A_ub=matrix[len(draws) :],
        b_ub=np.array(output_probs) + 1e-12,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return -found.fun


class TestDepthOne:
    @pytest.mark.parametrize("draft", [*SEVERAL, "spechub"])
    @pytest.mark.parametrize("seed", range(6))
    def test_is_the_acceptance_bound(self, draft, seed):
        target, models = models_of(draft, seed, 4)
        several = models if isinstance(models, list) else [models]
        probs = np.array([model.probs(PROMPT) for model in several])
        probs = probs if draft == "independent" else probs[0]
        law = read_kind(draft).make_at_most(probs, 2)
        expected = mdsd.acceptance_bound(target.probs(PROMPT), law).value
        found = tree_bound(target, models, PROMPT, tree=[2], draft=draft)
        assert found == pytest.approx(expected, abs=PROVED)


class TestChains:
    @pytest.mark.parametrize(("vocab_size", "depth"), [(2, 2), (2, 4), (3, 2), (3, 3)])
    @pytest.mark.parametrize("seed", range(6))
    def test_block_verification_is_optimal(self, vocab_size, depth, seed):
        models = toy_pair(seed, vocab_size)
        step = {"tree": TreeShape.chain(depth), "draft": "with_replacement"}
        attained = expected_accepted(*models, PROMPT, verifier="block", **step)
        assert tree_bound(*models, PROMPT, **step) == pytest.approx(attained, abs=PROVED)

    def test_level_by_level_is_not(self):
        models = toy_pair(0)
        step = {"tree": [1, 1], "draft": "greedy"}
        attained = expected_accepted(*models, PROMPT, verifier="optimal", **step)
        assert tree_bound(*models, PROMPT, **step) > attained + 0.005

    def test_strings_decided_to_the_end_would_accept_more(self):
        """As the target is not asked again: the next step would have to remember them."""
        models = toy_pair(0)
        step = {"tree": [1, 1], "draft": "with_replacement"}
        bound = tree_bound(*models, PROMPT, **step)
        assert by_whole_strings(*models, **step) > bound + 0.001

    @pytest.mark.parametrize("depth", [1, 5])
    def test_the_target_itself_is_accepted_to_the_end(self, depth):
        model = toy_pair(1, 2)[0]
        found = tree_bound(model, model, [0], tree=TreeShape.chain(depth), draft="greedy")
        assert found == pytest.approx(depth, abs=PROVED)

    def test_nothing_in_common(self):
        ends = TableModel([[1.0, 0.0, 0.0]] * 3), TableModel([[0.0, 0.5, 0.5]] * 3)
        assert tree_bound(*ends, [0], tree=[2, 2], draft="with_replacement") == 0.0

    def test_the_root_alone(self):
        assert tree_bound(*toy_pair(0), PROMPT, tree=TreeShape([-1]), draft="greedy") == 0.0


def verifiers_of(draft):
    """Everything that verifies trees of one and two drafts at a node."""
    successive = all(read_kind(draft).example(count).successive for count in (1, 2))
    return [*supporting(draft, [1, 2]), "block", *(["traversal"] if successive else [])]


class TestVerifiers:
    @pytest.mark.parametrize("shape", ["wide", "low", "first", "second"])
    @pytest.mark.parametrize(
        ("draft", "verifier"),
        [(draft, verifier) for draft in SEVERAL for verifier in verifiers_of(draft)],
    )
    def test_none_accepts_more(self, draft, verifier, shape):
        target, models = models_of(draft, len(shape))
        step = {"tree": SHAPES[shape], "draft": draft}
        attained = expected_accepted(target, models, PROMPT, verifier=verifier, **step)
        assert tree_bound(target, models, PROMPT, **step) >= attained - 1e-12

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    @pytest.mark.parametrize("seed", range(6))
    def test_none_accepts_more_of_other_toys(self, draft, seed):
        step = {"tree": [2, 1], "draft": draft}
        bound = tree_bound(*toy_pair(seed), PROMPT, **step)
        for verifier in ("rrs", "optimal", "block", "traversal"):
            attained = expected_accepted(*toy_pair(seed), PROMPT, verifier=verifier, **step)
            assert attained <= bound + 1e-12

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_means_are_in_the_usual_order(self, draft):
        """Those of usual pairs: the bound above all, and block above optimal above rrs."""
        step = {"tree": [2, 1], "draft": draft}
        pairs = [(PrefixModel(2 * seed, 3), PrefixModel(2 * seed + 1, 3)) for seed in range(4)]
        bounds = [tree_bound(*pair, PROMPT, **step) for pair in pairs]
        block, optimal, rrs = (
            np.mean([expected_accepted(*pair, PROMPT, verifier=name, **step) for pair in pairs])
            for name in ("block", "optimal", "rrs")
        )
        assert np.mean(bounds) > block + 0.01
        assert block >= optimal - 1e-12
        assert optimal > rrs

    def test_decoders_draft_the_trees_that_are_bounded(self):
        """A verifier that sees more drafts accepts more than the bound of a smaller tree."""
        models = toy_pair(0)
        step = {"draft": "without_replacement"}
        attained = expected_accepted(*models, PROMPT, verifier="optimal", tree=[2, 1], **step)
        assert attained > tree_bound(*models, PROMPT, tree=[1, 1], **step)


class TestDefinition:
    @pytest.mark.parametrize("draft", SEVERAL)
    @pytest.mark.parametrize("shape", ["chain", "wide", "first", "second"])
    def test_is_what_it_says(self, draft, shape):
        target, models = models_of(draft, 4)
        expected = by_definition(target, models, SHAPES[shape], draft)
        found = tree_bound(target, models, PROMPT, tree=SHAPES[shape], draft=draft)
        assert found == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_three_levels(self, draft):
        models = toy_pair(1, 2)
        expected = by_definition(*models, [2, 1, 1], draft)
        found = tree_bound(*models, PROMPT, tree=[2, 1, 1], draft=draft)
        assert found == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy"])
    def test_zeros_ties_and_point_masses(self, draft):
        models = EdgeModel(5), EdgeModel(6)
        expected = by_definition(*models, [2, 2], draft)
        found = tree_bound(*models, PROMPT, tree=[2, 2], draft=draft)
        assert found == pytest.approx(expected, abs=1e-8)

    @pytest.mark.parametrize("draft", SEVERAL)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_trees_have_the_probabilities_of_the_decoder(self, draft, shape):
        target, models = models_of(draft, 3)
        expected = defaultdict(float)
        for prob, strings in drafted(target, models, SHAPES[shape], draft)[1]:
            expected[frozenset(strings - {()})] += prob
        decoder = make_decoder(target, models, tree=SHAPES[shape], draft=draft, verifier="optimal")
        found = whole_trees._Drafts(decoder, decoder.shape, PROMPT).trees((), 0)
        assert found.keys() == expected.keys()
        assert max(abs(found[tree] - expected[tree]) for tree in found) <= 1e-15

    def test_more_drafts_never_hurt(self):
        models = toy_pair(3, 4)
        trees = [1, 1], [2, 1], [2, 2], [3, 2]
        bounds = [
            tree_bound(*models, PROMPT, tree=tree, draft="without_replacement") for tree in trees
        ]
        assert bounds == sorted(bounds)


class TestSize:
    def refused(self, tree, vocab_size=3, draft="with_replacement"):
        models = PrefixModel(1, vocab_size), PrefixModel(2, vocab_size)
        with pytest.raises(UnsupportedError) as caught:
            tree_bound(*models, [0], tree=tree, draft=draft)
        return str(caught.value)

    def test_trees_that_grow(self):
        assert "GrowingTree(budget=3, depth=2)" in self.refused(GrowingTree(3, 2))

    def test_variables(self, monkeypatch):
        monkeypatch.setitem(tree_bound.__globals__, "MAX_VARIABLES", 152)
        message = self.refused([2, 1])
        assert message == (
            "the linear program of 45 trees with 12 strings has 153 variables; at most 152 are "
            "solved"
        )

    def test_ways(self):
        message = self.refused([3, 3, 3], 4)
        assert "the tree of 39 drafts can be drafted in " in message
        assert "at most 100,000 are followed" in message

    def test_strings(self):
        message = self.refused(TreeShape.chain(50), 2)
        assert message == (
            "the tree of 50 drafts can hold more than 5,000 strings; at most as many are followed"
        )

    def test_drafts(self):
        message = self.refused(TreeShape.chain(2000))
        assert message == "the tree has 2,000 drafts; trees of at most 100 are followed"

    def test_tuples(self):
        assert "tuples" in self.refused([3], 400)

    def test_a_large_tree_that_is_certain(self):
        target, model = (PrefixModel(seed, 50) for seed in (1, 2))
        step = {"tree": [8, 8], "draft": "top_k"}
        found = tree_bound(target, model, [0], **step)
        attained = expected_accepted(target, model, [0], verifier="optimal", **step)
        assert found == pytest.approx(attained, abs=PROVED)


def test_an_answer_that_fails_its_check_is_an_error(monkeypatch):
    right = tree_lp.price_bound
    monkeypatch.setattr(tree_lp, "price_bound", lambda *given: right(*given) + 1e-6)
    with pytest.raises(SolverError, match=r"tree lp .highs-ds.*found no verified solution"):
        tree_bound(*toy_pair(0), PROMPT, tree=[2, 1], draft="greedy")
