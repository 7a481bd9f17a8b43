"""Masses at the edge of the floats: what is drawn follows the declared law, and values are exact.

Laws are enumerated in fractions. Statements about sampling have fixed seeds and a false alarm of
`FALSE_ALARM` each.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import mdsd
from mdsd import HybridDraft, SpecHubDraft, WithoutReplacement, WithReplacement
from mdsd._random import draw_tokens
from mdsd.decoding import generate
from mdsd.drafts import GreedyDraft
from mdsd.errors import UnsupportedError
from mdsd.rules.kernels import find_residual, find_token

FALSE_ALARM = 1e-6

PAIRS = [
    ([0.2, 0.3, 0.5], [1.0, 2e-321, 4e-321]),
    ([0.2, 0.3, 0.5], [2e-313, 1.0, 5.5e-313]),
    ([0.5, 0.0, 0.5], [5e-324, 1.0, 5e-324]),
    ([1.0, 2e-321, 4e-321], [0.2, 0.3, 0.5]),
    ([1.0, 1e-323, 3e-323], [1.0, 1.5e-323, 1e-323]),
    ([5e-324, 5e-324, 1.0], [1.0, 5e-324, 1e-323]),
    ([0.02, 0.5, 0.4, 0.08], [1.0, 1.4e-321, 1.1e-321, 2e-323]),
    ([0.1, 0.2, 0.3, 0.4], [1.0, 1e-150, 1e-300, 1e-320]),
    ([0.3, 0.3, 0.2, 0.2], [1.0, 1e-17, 1e-17, 3e-17]),
]
"""Targets and drafts."""

LAWS = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDraft,
    "hybrid": lambda q, n: HybridDraft(q, n, 1),
    "spechub": lambda q, n: SpecHubDraft(q),
}
CASES = [
    (p, q, name, n)
    for p, q in PAIRS
    for name in LAWS
    for n in (2, 3)
    if n == 2 or (name != "spechub" and len(q) > 3)
]


def successive(weights, count):
    """Tuples of draws without replacement, with their probabilities as fractions."""
    if count == 0:
        return {(): Fraction(1)}
    law, total = {}, sum(weights)
    for i, weight in enumerate(weights):
        if weight > 0:
            rest = [Fraction(0) if j == i else other for j, other in enumerate(weights)]
            for ids, prob in successive(rest, count - 1).items():
                law[i, *ids] = weight / total * prob
    return law


def exact_law(name, q, n):
    """Tuples of a kind of draft, with their probabilities as fractions."""
    weights = [Fraction(x) for x in q]
    if name == "with_replacement":
        total = sum(weights)
        tuples = itertools.product(range(len(q)), repeat=n)
        return {ids: math.prod(weights[i] / total for i in ids) for ids in tuples}
    if name == "without_replacement":
        return successive(weights, n)
    descending = sorted(range(len(q)), key=lambda i: -weights[i])
    top = tuple(descending[: n - 1 if name == "greedy" else 1])
    rest = [Fraction(0) if i in top else weight for i, weight in enumerate(weights)]
    tail = successive(rest, n - len(top))
    if name != "spechub":
        return {top + ids: prob for ids, prob in tail.items()}
    (hub,), total = top, sum(weights)
    law = {(i, hub): weights[i] / total for (i,) in tail}
    return law | {(hub, i): weights[hub] / total * prob for (i,), prob in tail.items()}


def rarest(found, total, chance):
    """Probability of a count so far from what is expected, on its side, twice."""
    return 2 * min(binom.cdf(found, total, chance), binom.sf(found - 1, total, chance))


def follows(drawn, law):
    """Test that drawn tuples follow a law: false alarm `FALSE_ALARM`."""
    tuples, counts = np.unique(drawn, axis=0, return_counts=True)
    found = dict(zip(map(tuple, tuples.tolist()), counts.tolist(), strict=True))
    if not found.keys() <= law.keys():
        return False
    checks = (rarest(found.get(t, 0), len(drawn), float(prob)) for t, prob in law.items())
    return min(checks) > FALSE_ALARM / len(law)


@pytest.mark.parametrize(("p", "q", "name", "n"), CASES)
def test_draws_follow_the_law(p, q, name, n):
    draft, law = LAWS[name](q, n), exact_law(name, q, n)
    assert follows(draft.sample(0, 4000), law)
    rng = np.random.default_rng(1)
    assert follows(np.array([draft.sample(rng) for _ in range(1000)]), law)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_of_other_weights_is_noticed(name):
    """The negative control: the two tokens of hardly any mass change places."""
    draft = LAWS[name]([2e-313, 1.0, 5.5e-313], 2)
    drawn = draft.sample(0, 4000)
    swapped = exact_law(name, [5.5e-313, 1.0, 2e-313], 2)
    # With replacement they have no chance to be seen.
    assert follows(drawn, swapped) == (name == "with_replacement")


@pytest.mark.parametrize(("p", "q", "name", "n"), CASES)
def test_what_is_declared_is_exact(p, q, name, n):
    draft, law = LAWS[name](q, n), exact_law(name, q, n)
    for ids, prob in law.items():
        assert draft.is_possible(np.array(ids))
        assert float(draft.prob(ids)) == pytest.approx(float(prob), rel=1e-12, abs=2e-323)
    hits = [float(sum(prob for ids, prob in law.items() if i in ids)) for i in range(len(q))]
    np.testing.assert_allclose(draft.token_hit_probs(), hits, rtol=0.0, atol=1e-12)


def least_over_subsets(p, law):
    """The bound by its formulation over sets: the least ``p(H) + f(A)``."""
    target, values = [Fraction(x) for x in p], []
    for size in range(len(p) + 1):
        for some in map(set, itertools.combinations(range(len(p)), size)):
            left_out = sum(x for i, x in enumerate(target) if i not in some) / sum(target)
            values.append(left_out + sum(prob for ids, prob in law.items() if some & set(ids)))
    return float(min(values))


def kind_of(draft):
    return HybridDraft.kind(num_top=1) if isinstance(draft, HybridDraft) else draft.name


@pytest.mark.parametrize(("p", "q", "name", "n"), CASES)
def test_bounds_are_exact(p, q, name, n):
    draft = LAWS[name](q, n)
    expected = least_over_subsets(p, exact_law(name, q, n))
    assert mdsd.acceptance_bound(p, draft).value == pytest.approx(expected, abs=1e-9)
    found = mdsd.acceptance_bounds([p], [q], draft=kind_of(draft), num_drafts=n)
    assert found[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("verifier", mdsd.verifier_names())
@pytest.mark.parametrize(("p", "q", "name", "n"), CASES)
def test_plans_and_batches(p, q, name, n, verifier):
    """Lossless over the exact law; rates are what is emitted; rows are what plans emit."""
    draft, law = LAWS[name](q, n), exact_law(name, q, n)
    rule = mdsd.get_verifier(verifier)
    if not rule.supports(draft):
        with pytest.raises(UnsupportedError):
            rule.plan(p, draft)
        return
    plan, tuples = rule.plan(p, draft), np.array(list(law))
    probs, emitted = np.array([float(prob) for prob in law.values()]), plan.output_law(tuples)
    np.testing.assert_allclose(probs @ emitted, plan.target_probs, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(plan.marginal_law(), plan.target_probs, rtol=0.0, atol=1e-12)
    rate = sum(
        prob * own[list(set(ids))].sum() for ids, prob, own in zip(law, probs, emitted, strict=True)
    )
    assert plan.acceptance_rate == pytest.approx(rate, abs=max(1e-12, plan.gap))
    assert plan.acceptance_stderr == 0.0
    kind = kind_of(draft)
    rates = mdsd.acceptance_rates([p], [q], draft=kind, num_drafts=n, verifier=verifier)
    assert rates[0] == pytest.approx(rate, abs=1e-9)

    uniforms = np.random.default_rng(0).random((len(tuples) * 6, plan.num_uniforms))
    uniforms[::6], uniforms[1::6] = 0.0, 1.0 - 2.0**-53
    ids = np.repeat(tuples, 6, axis=0)
    sides = [p] * len(ids), [q] * len(ids), ids
    if verifier == "optimal":
        return  # by a fast plan, which groups tokens
    found = mdsd.verify_batch(*sides, draft=kind, verifier=verifier, uniforms=uniforms)
    assert found.token_ids.tolist() == plan.verify_many(ids, uniforms=uniforms).token_id.tolist()


@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "spechub", "optimal"])
def test_verification_follows_its_law(verifier):
    """Residuals of subnormal mass, reached with a subnormal probability, have their law, too."""
    p, q = [1.0, 1e-323, 3e-323, 2e-323], [1.0, 3e-323, 1e-323, 5e-324]
    rule = mdsd.get_verifier(verifier)
    laws = (LAWS[name](q, 1 if verifier == "single" else 2) for name in LAWS if name != "hybrid")
    for draft in laws:
        if not rule.supports(draft):
            continue
        plan = rule.plan(p, draft)
        for ids, _ in draft.tuples():
            law = {(i,): prob for i, prob in enumerate(plan.output_law(ids)) if prob > 0.0}
            tokens = plan.verify_many(np.tile(ids, (2000, 1)), rng=3).token_id
            assert follows(tokens[:, np.newaxis], law), (draft.name, ids)


def test_goals_within_a_subnormal_sum_keep_their_digits():
    masses, uniforms = np.array([1e-323, 0.0, 5e-324]), (np.arange(300) + 0.5) / 300
    expected = np.where(uniforms < 2.0 / 3.0, 0, 2).tolist()
    sums = masses.cumsum()
    assert draw_tokens(masses, uniforms).tolist() == expected
    assert [find_token(sums, u) for u in uniforms] == expected
    assert [find_residual(masses, np.zeros(3), u) for u in uniforms] == expected
    assert draw_tokens(masses, 1.0 - 2.0**-53) == find_token(sums, 1.0 - 2.0**-53) == 2


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ([0.2, 0.3, 0.5], [1.0, 2e-321, 4e-321], 0.2 + 0.3 / 3 + 0.5 * 2 / 3),
        ([0.2, 0.3, 0.5], [2e-313, 1.0, 5.5e-313], 0.3 + 0.2 * 2 / 7.5 + 0.5 * 5.5 / 7.5),
        ([0.1, 0.6, 0.3], [5e-324, 5e-324, 1.0], 0.3 + 0.7 / 2),
        ([0.5, 0.25, 0.25], [1.0, 1e-320, 0.0], 0.75),
    ],
)
def test_rates_of_pairs(p, q, expected):
    found = mdsd.acceptance_rates(
        [p], [q], draft="without_replacement", num_drafts=2, verifier="naive"
    )
    assert found[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["greedy", "without_replacement"])
@pytest.mark.parametrize("logprob", [-700.0, -740.0, -744.0, -745.1, -39.0])
def test_intervals_hold_the_bound(kind, logprob):
    p, q = [0.3, 0.4, 0.3], [1.0 - math.exp(logprob), math.exp(logprob), 0.0]
    target = {i: math.log(x) for i, x in enumerate(p)}
    found = mdsd.acceptance_interval(
        target, {0: math.log(q[0]), 1: logprob}, draft=kind, num_drafts=2
    )
    law = GreedyDraft(q, 2) if kind == "greedy" else WithoutReplacement(q, 2)
    assert 0.0 <= found.lower <= mdsd.acceptance_bound(p, law).value <= found.upper <= 1.0


class SameLogits:
    """A model that says the same whatever came before."""

    vocab_size = 3

    def __init__(self, *logits):
        self.row = np.array(logits)

    def logits(self, prefixes):
        return np.tile(self.row, (len(prefixes), 1))


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [
        ("without_replacement", "rrs"),
        ("without_replacement", "optimal"),
        ("without_replacement", "layers"),
        ("without_replacement", "traversal"),
        ("with_replacement", "kseq"),
        ("greedy", "greedy"),
        ("spechub", "spechub"),
        (HybridDraft.kind(num_top=1), "rrs"),
        ("top_k", "naive"),
    ],
    ids=str,
)
def test_a_decoder_of_sharp_models_emits_the_target(draft, verifier):
    """At temperature .01 the draft all but knows its token, which the target never emits."""
    found = [
        generate(
            SameLogits(5.0, 0.0, 5.0),
            SameLogits(2.80, 10.0, 2.81),
            [1],
            max_new_tokens=2,
            draft=draft,
            verifier=verifier,
            num_drafts=2,
            depth=2,
            temperature=0.01,
            rng=seed,
        ).token_ids[-2:]
        for seed in range(500)
    ]
    quarter = dict.fromkeys(itertools.product((0, 2), repeat=2), Fraction(1, 4))
    assert follows(np.array(found), quarter)


def test_a_slanted_decoder_is_noticed():
    """The negative control: 83% instead of 50%."""
    drawn = np.where(np.random.default_rng(0).random((500, 2)) < 0.83, 0, 2)
    assert not follows(drawn, dict.fromkeys(itertools.product((0, 2), repeat=2), Fraction(1, 4)))
