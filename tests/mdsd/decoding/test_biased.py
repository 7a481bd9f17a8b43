"""Biased verification: as far from the target as theory says, and never by accident."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.analysis import (
    BiasedRule,
    CactusAcceptance,
    GumbelLists,
    MixtureAcceptance,
    RelaxedAcceptance,
    ThresholdAcceptance,
    TypicalAcceptance,
    biased_rule,
    chain_pareto_front,
    simulate_chain_pareto_front,
)
from mdsd.decoding import BiasedVerification, TableModel, generate
from mdsd.decoding.verification import step_verification
from mdsd.drafts import read_kind
from mdsd.engines.registry import read_rule
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import accepted_law, sequence_law

from .toys import PrefixModel, distance, filtered, plain_law

PAIRS = {
    "usual": ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
    "equal": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]),
    "zeros": ([0.0, 0.7, 0.3], [0.4, 0.6, 0.0]),
    "point_masses": ([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
}
EPSILONS = [0.0, 0.05, 0.3, 2.0]


def same_everywhere(law):
    return TableModel([law] * len(law))


def chain(verifier, depth=1, **more):
    return {"num_drafts": 1, "depth": depth, "verifier": verifier, **more}


def marginal(law, position, vocab_size):
    probs = np.zeros(vocab_size)
    for tokens, prob in law.items():
        probs[tokens[position]] += prob
    return probs


class TestLaw:
    @pytest.mark.parametrize("pair", PAIRS)
    @pytest.mark.parametrize("epsilon", EPSILONS)
    @pytest.mark.parametrize("redraw", ["optimal", "target"])
    def test_one_position_is_off_by_exactly_what_theory_says(self, pair, epsilon, redraw):
        p, q = PAIRS[pair]
        verifier = BiasedVerification(epsilon, redraw=redraw)
        law = sequence_law(
            same_everywhere(p), same_everywhere(q), [0], 1, **chain(verifier, depth=3)
        )
        found = marginal(law, 0, len(p))
        rule = biased_rule(p, q, epsilon, redraw=redraw)
        np.testing.assert_allclose(found, rule.output_law, rtol=0, atol=1e-12)
        assert 0.5 * np.abs(found - p).sum() == pytest.approx(rule.total_variation, abs=1e-12)

    def test_the_bias_is_there(self):
        p, q = PAIRS["usual"]
        law = sequence_law(
            same_everywhere(p), same_everywhere(q), [0], 1, **chain(BiasedVerification(0.1))
        )
        # b = min(1, (p + 0.1) / q) = (1, 0.8, 1): token 1 gets 0.4 of 0.3, token 2 0.3 of 0.2.
        np.testing.assert_allclose(marginal(law, 0, 3), [0.3, 0.4, 0.3], rtol=0, atol=1e-12)

    @pytest.mark.parametrize("epsilon", [0.05, 0.3])
    @pytest.mark.parametrize("redraw", ["optimal", "target"])
    def test_sequences_have_the_law_of_the_rule_position_by_position(self, epsilon, redraw):
        target, draft_model = PrefixModel(1), PrefixModel(2)
        verifier = BiasedVerification(epsilon, redraw=redraw)
        found = sequence_law(target, draft_model, [0], 3, **chain(verifier, depth=3))

        def emitted(prefix):
            p, q = target.probs(prefix), draft_model.probs(prefix)
            return biased_rule(p, q, epsilon, redraw=redraw).output_law

        assert distance(found, plain_law(emitted, [0], 3)) <= 1e-12
        assert distance(found, plain_law(target.probs, [0], 3)) > 1e-3

    def test_token_after_an_accepted_chain_is_the_target_s(self):
        p, q = PAIRS["usual"]
        verifier = BiasedVerification(1.0)  # accepts every draft
        law = sequence_law(same_everywhere(p), same_everywhere(q), [0], 2, **chain(verifier))
        np.testing.assert_allclose(marginal(law, 0, 3), q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(marginal(law, 1, 3), p, rtol=0, atol=1e-12)

    def test_without_over_acceptance_it_is_lossless(self):
        target, draft_model = PrefixModel(3), PrefixModel(4, zeros=0.3)
        options = {"temperature": 0.7, "top_k": 3}
        found = sequence_law(
            target, draft_model, [0], 3, **chain(BiasedVerification(0.0), depth=2, **options)
        )
        expected = plain_law(lambda prefix: filtered(target.probs(prefix), **options), [0], 3)
        assert distance(found, expected) <= 1e-12

    @pytest.mark.parametrize(
        "draft", ["with_replacement", "without_replacement", "greedy", "top_k", "independent"]
    )
    def test_every_draft_distribution_of_a_chain(self, draft):
        p, q = PAIRS["usual"]
        model = same_everywhere(q)
        law = sequence_law(
            same_everywhere(p),
            [model] if draft == "independent" else model,
            [0],
            1,
            **chain(BiasedVerification(0.1), draft=draft),
        )
        drafted = [0.0, 1.0, 0.0] if draft == "top_k" else q
        expected = biased_rule(p, drafted, 0.1).output_law
        np.testing.assert_allclose(marginal(law, 0, 3), expected, rtol=0, atol=1e-12)


class TestAgainstTheory:
    """Chains of the analysis, run by the decoder itself."""

    TARGET = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])
    DRAFT = np.array([[0.5, 0.2, 0.3], [0.3, 0.4, 0.3], [0.1, 0.6, 0.3]])
    START = np.array([1.0, 0.0, 0.0])

    @pytest.mark.parametrize("epsilon", [0.0, 0.1])
    @pytest.mark.parametrize("redraw", ["optimal", "target"])
    def test_distances_of_all_positions(self, epsilon, redraw):
        horizon = 3
        verifier = BiasedVerification(epsilon, redraw=redraw)
        law = sequence_law(
            TableModel(self.TARGET), TableModel(self.DRAFT), [0], horizon, **chain(verifier, 3)
        )
        total = 0.0
        prefixes: dict[tuple[int, ...], float] = {(): 1.0}
        for position in range(horizon):
            longer: dict[tuple[int, ...], float] = defaultdict(float)
            for tokens, prob in law.items():
                longer[tokens[: position + 1]] += prob
            for prefix, mass in prefixes.items():
                emitted = np.array([longer[(*prefix, token)] for token in range(3)])
                target = mass * self.TARGET[prefix[-1] if prefix else 0]
                total += 0.5 * float(np.abs(emitted - target).sum())
            prefixes = longer
        front = chain_pareto_front(self.TARGET, self.DRAFT, horizon, self.START, [epsilon])
        name = "total_variation" if redraw == "optimal" else "uno_total_variation"
        assert total == pytest.approx(getattr(front, name)[0], abs=1e-12)

    def test_sequences_are_no_further_apart_than_their_positions_together(self):
        law = sequence_law(
            TableModel(self.TARGET),
            TableModel(self.DRAFT),
            [0],
            3,
            **chain(BiasedVerification(0.1), 3),
        )
        expected = plain_law(lambda prefix: self.TARGET[prefix[-1]], [0], 3)
        apart = 0.5 * math.fsum(
            abs(law.get(tokens, 0.0) - expected.get(tokens, 0.0))
            for tokens in itertools.product(range(3), repeat=3)
        )
        (bound,) = chain_pareto_front(self.TARGET, self.DRAFT, 3, self.START, [0.1]).total_variation
        assert 0.01 < apart <= bound

    @pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
    def test_rejections_of_the_first_draft(self, epsilon):
        rejected, *_ = accepted_law(
            TableModel(self.TARGET),
            TableModel(self.DRAFT),
            [0],
            **chain(BiasedVerification(epsilon)),
        )
        rule = biased_rule(self.TARGET[0], self.DRAFT[0], epsilon)
        assert rejected == pytest.approx(rule.rejection_probability, abs=1e-12)

    def test_more_bias_fewer_calls_of_the_target(self):
        """Rejections of a long run against theory, 4 standard errors: false alarm 6e-5."""
        horizon, epsilon = 500, 0.1
        result = generate(
            TableModel(self.TARGET),
            TableModel(self.DRAFT),
            [0],
            max_new_tokens=horizon,
            rng=5,
            **chain(BiasedVerification(epsilon), depth=40),
        )
        # Chains of 40 are hardly ever accepted whole: a call is a rejection.
        chains = self.TARGET, self.DRAFT, horizon, self.START, [epsilon]
        expected = chain_pareto_front(*chains).rejections[0]
        lossless = chain_pareto_front(*chains[:4], [0.0]).rejections[0]
        spread = simulate_chain_pareto_front(*chains, runs=50, rng=0).rejections_stderr[0] * 50**0.5
        assert abs(result.target_calls - expected) < 4 * spread
        assert abs(result.target_calls - lossless) > 4 * spread


class TestRefusals:
    def test_the_name_alone_is_refused(self):
        model = same_everywhere([0.5, 0.5])
        with pytest.raises(InvalidArgumentError, match=r"'biased'.*not lossless.*epsilon"):
            generate(model, model, [0], max_new_tokens=1, verifier="biased", num_drafts=1)

    def test_it_is_no_verifier(self):
        assert BiasedVerification.name not in mdsd.verifier_names()
        with pytest.raises(InvalidArgumentError, match="biased"):
            mdsd.get_verifier("biased")
        with pytest.raises(InvalidArgumentError, match="BiasedVerification; expected a Verifier"):
            mdsd.testing.check_verifier(BiasedVerification(0.1))

    @pytest.mark.parametrize("tree", [[2], [1, 3]], ids=str)
    def test_trees_are_refused_before_any_model_is_asked(self, tree):
        target, draft_model = PrefixModel(1), PrefixModel(2)
        with pytest.raises(UnsupportedError, match=r"'biased'.*num_drafts = 1"):
            generate(
                target,
                draft_model,
                [0],
                max_new_tokens=3,
                tree=tree,
                verifier=BiasedVerification(0.1),
            )
        assert not target.calls
        assert not draft_model.calls

    def test_batch_scheme_is_refused(self):
        model = same_everywhere([0.5, 0.5])
        with pytest.raises(InvalidArgumentError, match="scheme 'batch'"):
            generate(
                model,
                model,
                [0],
                max_new_tokens=1,
                verifier=BiasedVerification(0.1),
                num_drafts=1,
                scheme="batch",
            )

    @pytest.mark.parametrize("epsilon", [None, "0.1", -0.1, float("nan"), float("inf"), True])
    def test_epsilon(self, epsilon):
        with pytest.raises(InvalidArgumentError, match="epsilon"):
            BiasedVerification(epsilon)

    def test_redraw(self):
        with pytest.raises(InvalidArgumentError, match="redraw"):
            BiasedVerification(0.1, redraw="draft")

    def test_it_says_what_it_is(self):
        verifier = BiasedVerification(0.25)
        assert repr(verifier) == "BiasedVerification(epsilon=0.25, redraw='optimal')"
        assert "not lossless" in (BiasedVerification.__doc__ or "")
        assert step_verification(verifier) is verifier


# --- rules of engines ----------------------------------------------------------------------------

RULES: list[tuple[BiasedRule, dict[str, Any]]] = [
    (CactusAcceptance(0.05), {"draft": "with_replacement", "tree": [1, 1]}),
    (MixtureAcceptance(0.5), {"draft": "without_replacement", "tree": [1, 1]}),
    (RelaxedAcceptance(2, 0.3), {"draft": "top_k", "tree": [1, 1]}),
    (TypicalAcceptance(0.4, 0.9), {"draft": "top_k", "tree": [2, 1]}),
    (ThresholdAcceptance(0.45, 0.8), {"draft": "top_k", "tree": [2, 2]}),
    (ThresholdAcceptance(), {"draft": "top_k", "tree": [2, 2]}),
]
each_rule = pytest.mark.parametrize(("rule", "step"), RULES, ids=[r.label for r, _ in RULES])


@each_rule
def test_sequences_have_the_law_of_the_rule_where_something_is_drafted(rule, step):
    """Where the tree ends, and there alone, the token is the target's own."""
    target, draft_model = PrefixModel(1), PrefixModel(2)
    kind = read_kind(step["draft"])
    found = sequence_law(
        target, draft_model, [0], 2, verifier=BiasedVerification(rule=rule), **step
    )

    def emitted(prefix):
        count = step["tree"][min(len(prefix) - 1, 1)]
        draft = kind.make(draft_model.probs(prefix), count)
        return rule.outcome(target.probs(prefix), draft).output_law

    first = emitted([0])
    np.testing.assert_allclose(marginal(found, 0, len(first)), first, rtol=0, atol=1e-12)
    plain = marginal(
        sequence_law(target, draft_model, [0], 2, verifier="naive", **step), 0, len(first)
    )
    assert (np.abs(first - plain).max() < 1e-12) == rule.lossless


@each_rule
def test_accepted_as_often_as_the_rule_says(rule, step):
    target, draft_model = PrefixModel(1), PrefixModel(2)
    law = accepted_law(target, draft_model, [0], verifier=BiasedVerification(rule=rule), **step)
    draft = read_kind(step["draft"]).make(draft_model.probs([0]), step["tree"][0])
    outcome = rule.outcome(target.probs([0]), draft)
    assert 1.0 - law[0] == pytest.approx(outcome.acceptance, abs=1e-12)


def test_drafts_that_a_rule_does_not_take_are_refused():
    model = same_everywhere([0.5, 0.3, 0.2])
    for rule, draft in (
        (TypicalAcceptance(), "with_replacement"),
        (ThresholdAcceptance(0.5), "without_replacement"),
        (MixtureAcceptance(0.5), "top_k"),
    ):
        with pytest.raises(UnsupportedError, match=rf"'biased'.*{draft}.*{rule.name}.*takes"):
            generate(
                model,
                model,
                [0],
                max_new_tokens=1,
                draft=draft,
                tree=[2],
                verifier=BiasedVerification(rule=rule),
            )


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("typical", r"'typical'.*BiasedVerification\(rule=mdsd.analysis.TypicalAcceptance\("),
        ("relaxed:1:0", r"'relaxed:1:0'.*BiasedVerification\(rule=mdsd.analysis.RelaxedAcc"),
        ("threshold", r"'threshold'.*BiasedVerification\(rule=mdsd.analysis.ThresholdAcc"),
        ("mixture:0.5", r"'mixture:0.5'.*BiasedVerification\(rule=mdsd.analysis.MixtureAcc"),
        ("cactus:0", r"'cactus:0'.*BiasedVerification\(rule=mdsd.analysis.CactusAcceptance"),
        ("biased", r"'biased'.*BiasedVerification\(epsilon="),
        ("gumbel:1", r"'gumbel:1'.*GumbelVerification\(seed="),
        (TypicalAcceptance(), r"BiasedVerification\(rule=TypicalAcceptance\(threshold=0.09"),
        (GumbelLists(), r"GumbelLists\(\).*GumbelVerification\(seed="),
        (read_rule("single"), r"VerifierRule.*expected one of.*single"),
        ("singles:1", "'singles:1'; expected one of"),
    ],
)
def test_rules_of_engines_are_no_verifiers(rule, words):
    model = same_everywhere([0.5, 0.5])
    with pytest.raises(InvalidArgumentError, match=rf"^verifier is .*{words}"):
        generate(model, model, [0], max_new_tokens=1, verifier=rule, num_drafts=1)


def test_a_rule_or_an_over_acceptance():
    rule = TypicalAcceptance(0.1, 0.2)
    assert BiasedVerification(rule=rule).rule is rule
    text = "BiasedVerification(rule=TypicalAcceptance(threshold=0.1, alpha=0.2))"
    assert repr(BiasedVerification(rule=rule)) == text
    with pytest.raises(InvalidArgumentError, match=r"rule is .*epsilon"):
        BiasedVerification(0.1, rule=rule)
    with pytest.raises(InvalidArgumentError, match=r"rule is .*redraw"):
        BiasedVerification(redraw="target", rule=rule)
