"""Rules of engines: their output laws enumerated draft by draft, as each is written down."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.analysis import (
    BiasedRule,
    CactusAcceptance,
    GumbelLists,
    MixtureAcceptance,
    OverAcceptance,
    RelaxedAcceptance,
    ThresholdAcceptance,
    TypicalAcceptance,
    assess_rule,
    pareto_front,
)
from mdsd.engines.base import RuleOutcome
from mdsd.engines.registry import default_rules, read_rule, read_rules
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, UnsupportedError
from mdsd.testing import random_probs

EXACT = 1e-12
EDGES = {
    "equal": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]),
    "zeros": ([0.0, 0.7, 0.3], [0.4, 0.6, 0.0]),
    "certain_target": ([0.0, 1.0, 0.0], [0.2, 0.5, 0.3]),
    "certain_draft": ([0.2, 0.5, 0.3], [1.0, 0.0, 0.0]),
    "points": ([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
    "ties": ([0.25] * 4, [0.25, 0.25, 0.5, 0.0]),
}
RANDOM = np.random.default_rng(71)
PAIRS = {
    **{name: (np.array(p), np.array(q)) for name, (p, q) in EDGES.items()},
    **{f"random-{k}": (random_probs(RANDOM, 6), random_probs(RANDOM, 6)) for k in range(12)},
}
RULES: list[BiasedRule] = [
    *(rule for rule in default_rules() if isinstance(rule, BiasedRule)),
    OverAcceptance(0.0),
    OverAcceptance(0.1, "target"),
    OverAcceptance(0.0, "target"),
    OverAcceptance(2.0),
    MixtureAcceptance(1.0),
    MixtureAcceptance(0.0),
    CactusAcceptance(0.0),
    CactusAcceptance(50.0),
    TypicalAcceptance(0.0, 0.0),
    TypicalAcceptance(2.0, 2.0),
    RelaxedAcceptance(2, 0.1),
    ThresholdAcceptance(),
    ThresholdAcceptance(0.0, 1.0),
    ThresholdAcceptance(0.4, 0.6),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
each_pair = pytest.mark.parametrize("pair", PAIRS)


def drafts_of(q):
    """One draft, of any law, or several that are certain."""
    most = int(np.count_nonzero(q))
    several = [mdsd.TopKDraft(q, n) for n in (2, 3) if n <= most]
    return [mdsd.WithReplacement(q, 1), mdsd.TopKDraft(q, 1), *several]


# --- the rules as their sources have them, one drafted tuple at a time ---------------------------


def normalised(masses, otherwise):
    masses = np.asarray(masses, dtype=float)
    return masses / masses.sum() if masses.sum() > 0 else np.asarray(otherwise)


def plus(masses):
    return np.where(np.asarray(masses) > 0, masses, 0.0)


def ratio(p, q):
    return 0.0 if p == 0 else 1.0 if p >= q else p / q


def certain(p):
    law = np.zeros(len(p))
    law[int(np.argmax(p))] = 1.0
    return law


def over_accepting(rule, p, q, ids):
    accept = np.array([ratio(a + rule.epsilon, b) for a, b in zip(p, q, strict=True)])
    law = p if rule.redraw == "target" else normalised(plus(p - accept * q), p)
    return [accept[ids[0]]], law


def mixture(rule, p, q, ids):
    mixed = rule.weight * p + (1 - rule.weight) * q
    (x,) = ids
    return [ratio(mixed[x], q[x])], normalised(plus(mixed - q), p)


def cactus(rule, p, q, ids):
    (x,) = ids
    raised = min(1.0, p[x] + np.sqrt(2 * rule.delta * p[x] * (1 - p[x])))
    h = np.array([0.0 if i == x else p[i] for i in range(len(p))])
    h = h * (1 - raised) / h.sum() if h.sum() > 0 else h
    h[x] = raised
    return [ratio(h[x], q[x])], normalised(plus(h - q), p)


def typical(rule, p, q, ids):
    entropy = -sum(a * np.log(a) for a in p if a > 0)
    passing = [x for x in ids if p[x] > min(rule.threshold, rule.alpha * np.exp(-entropy))]
    best = max(passing, key=lambda x: p[x], default=None)
    return [float(x == best) for x in ids], certain(p)


def relaxed(rule, p, q, ids):
    (x,) = ids
    top = sorted(range(len(p)), key=lambda i: -p[i])[: rule.top_k]
    passes = x == top[0] or (x in top and p[x] >= p[top[0]] - rule.delta)
    return [float(passes)], certain(p)


def threshold(rule, p, q, ids):
    """A million coins would do; their law is read off the intervals that accept."""
    accepted, total, covered = [], 0.0, 0.0
    for x in ids:
        total += p[x]
        reach = 1.0 if p[x] >= rule.single else min(1.0, total / rule.accumulated)
        accepted.append(max(0.0, reach - covered))
        covered = max(covered, reach)
    chances, left = [], 1.0
    for share in accepted:
        chances.append(min(1.0, share / left) if left > 0 else 0.0)
        left -= share
    return chances, normalised([0.0 if i in ids else a for i, a in enumerate(p)], p)


STATED = {
    function.__name__: function
    for function in (over_accepting, mixture, cactus, typical, relaxed, threshold)
}


def enumerated(rule, p, draft, stated=None):
    """Output law and acceptance, over all tuples of drafts."""
    q = draft.token_hit_probs() if draft.num_drafts == 1 else None
    law, acceptance = np.zeros(len(p)), 0.0
    for ids, weight in draft.tuples():
        chances, redrawn = (stated or STATED[rule.name])(rule, p, q, ids)
        left = weight
        for token, chance in zip(ids, chances, strict=True):
            law[token] += left * chance
            acceptance += left * chance
            left *= 1 - chance
        law += left * redrawn
    return law, acceptance


@each_pair
@each_rule
def test_outcome_is_the_enumeration_of_the_rule(rule, pair):
    p, q = PAIRS[pair]
    tried = 0
    for draft in drafts_of(q):
        if not rule.supports(draft):
            continue
        found = rule.outcome(p, draft)
        law, acceptance = enumerated(rule, p, draft)
        np.testing.assert_allclose(found.output_law, law, rtol=0, atol=EXACT)
        assert abs(found.acceptance - acceptance) <= EXACT
        assert abs(found.total_variation - 0.5 * np.abs(law - p).sum()) <= EXACT
        tried += 1
    assert tried >= 1


@each_rule
def test_enumeration_would_notice_another_rule(rule):
    """A helper that accepts everything is caught at some pair, unless the rule does so too."""
    if rule.label in ("over_accepting:2.0", "mixture:0.0", "threshold:0.0:1.0"):
        return
    apart = 0.0
    for p, q in PAIRS.values():
        for draft in drafts_of(q):
            if rule.supports(draft):
                law, _ = enumerated(rule, p, draft, lambda rule, p, q, ids: ([1.0] * len(ids), p))
                apart = max(apart, np.abs(law - rule.outcome(p, draft).output_law).max())
    assert apart > 1e-3


@each_rule
def test_bias_is_zero_exactly_where_the_rule_is_lossless(rule):
    most = max(
        rule.outcome(p, draft).total_variation
        for p, q in PAIRS.values()
        for draft in drafts_of(q)
        if rule.supports(draft)
    )
    assert (most <= EXACT) == rule.lossless
    assert rule.lossless or most > 1e-4


@each_pair
@each_rule
def test_no_rule_lies_above_the_front(rule, pair):
    p, q = PAIRS[pair]
    for draft in drafts_of(q):
        if rule.supports(draft):
            found = rule.outcome(p, draft)
            bound = mdsd.acceptance_bound(p, draft).value
            assert found.acceptance <= min(1.0, bound + found.total_variation) + 1e-9


@each_pair
@pytest.mark.parametrize(
    "rule",
    [OverAcceptance(0.05), MixtureAcceptance(0.4), CactusAcceptance(0.02)],
    ids=lambda rule: rule.label,
)
def test_rules_on_the_front(rule, pair):
    p, q = PAIRS[pair]
    draft = mdsd.WithReplacement(q, 1)
    found = rule.outcome(p, draft)
    bound = mdsd.acceptance_bound(p, draft).value
    assert abs(found.acceptance - min(1.0, bound + found.total_variation)) <= 1e-9


@pytest.mark.parametrize("pair", [name for name in PAIRS if name.startswith("random")])
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_front_is_attained_for_any_number_of_drafts(pair, num_drafts):
    """Where the optimal plan rejects, emit the first draft so often that the bias is d."""
    p, q = PAIRS[pair]
    draft = mdsd.WithReplacement(q, num_drafts)
    plan = mdsd.OptimalVerifier().plan(p, draft)
    bias = 0.5 * (1.0 - plan.acceptance_rate)
    share = bias / (1.0 - plan.acceptance_rate)
    law, acceptance = np.zeros(len(p)), 0.0
    for ids, weight in draft.tuples():
        emitted = plan.output_law(ids)
        drafted = np.isin(np.arange(len(p)), ids)
        law += weight * np.where(drafted, emitted, (1.0 - share) * emitted)
        law[ids[0]] += weight * share * emitted[~drafted].sum()
        acceptance += weight * (emitted[drafted].sum() + share * emitted[~drafted].sum())
    apart = 0.5 * np.abs(law - p).sum()
    assert apart <= bias + 1e-9
    assert acceptance == pytest.approx(plan.acceptance_rate + bias, abs=1e-9)


@each_pair
def test_over_acceptance_is_that_of_the_analysis(pair):
    p, q = PAIRS[pair]
    front = pareto_front(p, q, [0.0, 0.1])
    draft = mdsd.WithReplacement(q, 1)
    for k, epsilon in enumerate([0.0, 0.1]):
        found = OverAcceptance(epsilon).outcome(p, draft)
        assert abs(1.0 - found.acceptance - front.rejections[k]) <= EXACT
        assert abs(found.total_variation - front.total_variation[k]) <= EXACT


def test_thresholds_at_one_are_the_naive_rule():
    p, q = PAIRS["random-0"]
    for draft in (mdsd.TopKDraft(q, n) for n in (1, 3)):
        rate = assess_rule("threshold:1:1", p, draft).acceptance
        assert abs(rate - assess_rule("naive", p, draft).acceptance) <= EXACT


@pytest.mark.parametrize("name", mdsd.verifier_names())
def test_verifiers_have_no_bias(name):
    p, q = PAIRS["random-1"]
    drafts = (mdsd.WithReplacement(q, 2), mdsd.GreedyDraft(q, 2), mdsd.SpecHubDraft(q))
    rule, verifier = read_rule(name), mdsd.get_verifier(name)
    supported = [d for d in (*drafts, *drafts_of(q)) if rule.supports(d)]
    assert supported
    for draft in supported:
        found = rule.outcome(p, draft)
        plan = verifier.plan(p, draft)
        assert found.acceptance == pytest.approx(plan.acceptance_rate, abs=1e-9)
        assert (found.total_variation, found.kl_divergence) == (0.0, 0.0)


# --- distances -----------------------------------------------------------------------------------


def test_divergence():
    p, law = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.75, 0.0])
    found = RuleOutcome(p, law, 0.5)
    expected = 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.3)
    assert found.kl_divergence == pytest.approx(expected, abs=1e-15)
    assert found.total_variation == pytest.approx(0.45, abs=1e-15)


def test_divergence_is_infinite_where_a_token_is_emitted_that_the_target_never_would():
    found = RuleOutcome(np.array([0.0, 1.0]), np.array([0.5, 0.5]), 0.5)
    assert found.kl_divergence == float("inf")
    assert RuleOutcome(found.target_probs, found.target_probs, 1.0).kl_divergence == 0.0


def test_divergence_of_cactus_to_second_order():
    """What the paper bounds: of h from the target, for a certain draft, about delta."""
    p, q = np.array([0.4, 0.35, 0.25]), np.array([1.0, 0.0, 0.0])
    found = CactusAcceptance(1e-4).outcome(p, mdsd.WithReplacement(q, 1))
    assert found.kl_divergence == pytest.approx(1e-4, rel=0.02)


# --- names ---------------------------------------------------------------------------------------


def test_labels_are_read_again():
    for rule in default_rules():
        again = read_rule(rule.label)
        assert again.label == rule.label
        assert again == rule or rule.label in mdsd.verifier_names()


def test_labels_keep_all_digits():
    rules = [OverAcceptance(0.1), OverAcceptance(0.1000001), OverAcceptance(0.123456789, "target")]
    found = read_rules(rules)
    assert list(found) == rules
    assert [read_rule(rule.label) for rule in found] == rules


def test_one_rule_is_read_once():
    rule, verifier = OverAcceptance(0.1), mdsd.OptimalVerifier(effort="fast")
    given = ["over_accepting:0.10", rule, "rrs", verifier, "rrs", OverAcceptance(0.1), verifier]
    assert [each.label for each in read_rules(given)] == ["over_accepting:0.1", "rrs", "optimal"]


@pytest.mark.parametrize("first", [mdsd.OptimalVerifier(effort="fast"), "optimal"])
def test_different_rules_of_one_label_are_refused(first):
    with pytest.raises(InvalidArgumentError, match="rules holds two of the name 'optimal'; set"):
        read_rules([first, "rrs", mdsd.OptimalVerifier(effort="exact")])


def test_a_name_stands_for_several_parameters():
    found = read_rules(["cactus", "cactus:0.5", "rrs", "cactus:0.5"])
    assert [rule.label for rule in found] == [
        *(rule.label for rule in CactusAcceptance.examples()),
        "cactus:0.5",
        "rrs",
    ]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("cactuss", "'cactuss'.*'cactus'"),
        ("cactus", r"'cactus'; expected cactus:DELTA"),
        ("cactus:0.1:2", "parameters of cactus: delta"),
        ("single:1", "parameters of single: none"),
        ("cactus:x", "delta is 'x'"),
        ("over_accepting:0.1:draft", "redraw"),
        ("typical:-1", "threshold is -1"),
        ("relaxed:0", "top_k is 0"),
        ("threshold:2", "single is 2"),
        ("threshold:1:0", "accumulated is 0"),
        ("mixture:1.5", "weight is 1.5; expected at most 1"),
        ("mixture:nan", "weight is 'nan'"),
        ("relaxed: 3 :0", "top_k is ' 3 '"),
        ("relaxed:1_0:0", "top_k is '1_0'"),
        ("relaxed:\N{ARABIC-INDIC DIGIT ONE}:0", "top_k is"),
        ("relaxed:1.0:0", "top_k is 1.0"),
        ("mixture:", "weight is ''"),
        ("mixture:" + "9" * 5000, "weight is inf"),
        (3, "rule is 3"),
    ],
)
def test_bad_labels(label, words):
    with pytest.raises(InvalidArgumentError, match=words):
        read_rule(label)


@pytest.mark.parametrize("text", ["1", "1.", ".5", "0.25", "1e-3", "1E-3", "1.5e-300"])
def test_plain_numbers(text):
    assert read_rule(f"mixture:{text}") == MixtureAcceptance(float(text))


def test_another_vocabulary_is_that_of_the_argument():
    draft = mdsd.WithReplacement([0.2, 0.5, 0.3], 1)
    for rule in ("single", "mixture:0.5"):
        with pytest.raises(
            InvalidDistributionError, match=r"has 2 tokens but draft\.draft_probs has 3"
        ):
            assess_rule(rule, [0.5, 0.5], draft)


def test_unsupported_drafts():
    p, q = PAIRS["random-0"]
    for label in ("mixture:0.5", "typical", "threshold:0.5"):
        rule = read_rules([label])[0]
        with pytest.raises(UnsupportedError, match=r"2 drafts.*with_replacement.*it takes"):
            rule.outcome(p, mdsd.WithReplacement(q, 2))
    with pytest.raises(UnsupportedError, match=r"gumbel.*drafts with replacement"):
        GumbelLists().outcome(p, mdsd.TopKDraft(q, 2))


def test_each_says_where_it_is_from_and_who_has_it():
    for rule in default_rules():
        assert rule.source
        assert rule.used_by
        assert rule.supported
