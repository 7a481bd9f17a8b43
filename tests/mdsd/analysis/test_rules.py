"""Accept-or-redraw rules: their laws by enumeration, and the family of unbiased ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mdsd.analysis import (
    accept_rule,
    assess_acceptance,
    assess_acceptance_on_chain,
    biased_rule,
    expected_rejections,
    optimal_rejection_law,
    over_acceptance,
)
from mdsd.testing import random_probs

from .chains import EDGES, MIXED, THIRDS, random_setting

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


def cases(count, size=4):
    """Pairs of laws of all kinds, and an acceptance function that knows no bounds."""
    rng = np.random.default_rng(29)
    for _ in range(count):
        yield random_probs(rng, size), random_probs(rng, size), rng.random(size).round(1)


def exact_rule(p, q):
    return np.array([min(1.0, a / b) if b > 0.0 else 1.0 for a, b in zip(p, q, strict=True)])


def enumerated_output(q, b, law):
    """The emitted token's law: draft by draft, accepted or redrawn."""
    output, rejected = np.zeros(len(q)), 0.0
    for token, prob in enumerate(q):
        output[token] += prob * b[token]
        rejected += prob * (1.0 - b[token])
        output += prob * (1.0 - b[token]) * law
    return output, rejected


def variation(p, q):
    return 0.5 * sum(abs(a - b) for a, b in zip(p, q, strict=True))


# --- one position --------------------------------------------------------------------------------


@pytest.mark.parametrize("redraw", ["best", "target", "other"])
def test_rule_equals_enumeration(redraw):
    other = np.array([0.1, 0.2, 0.3, 0.4])
    for p, q, b in cases(60):
        law = {"best": None, "target": p, "other": other}[redraw]
        rule = accept_rule(p, q, b, law)
        output, rejected = enumerated_output(q, b, rule.rejection_law)
        np.testing.assert_allclose(rule.output_law, output, rtol=0, atol=1e-12)
        assert abs(rule.rejection_probability - rejected) <= 1e-12
        assert abs(rule.total_variation - variation(output, p)) <= 1e-12


def test_exact_rule_is_lossless():
    for p, q, _ in cases(60):
        rule = accept_rule(p, q, exact_rule(p, q))
        np.testing.assert_allclose(rule.output_law, p, rtol=0, atol=1e-12)
        assert abs(rule.rejection_probability - variation(p, q)) <= 1e-12


def test_no_rejection_law_comes_closer():
    rng = np.random.default_rng(31)
    closest = np.inf
    for p, q, b in cases(60):
        rule = accept_rule(p, q, b)
        assert abs(rule.total_variation - np.maximum(b * q - p, 0.0).sum()) <= 1e-12
        for law in (*rng.dirichlet(np.full(4, 0.3), 20), *np.eye(4), p):
            other = accept_rule(p, q, b, law).total_variation
            assert other >= rule.total_variation - 1e-12
            closest = min(closest, other - rule.total_variation)
    assert closest <= 1e-12  # the point masses are sometimes as good: the comparison is not idle


def test_optimal_law_is_the_residual():
    assert optimal_rejection_law(P, Q, exact_rule(P, Q)).tolist() == [1.0, 0.0, 0.0]
    assert optimal_rejection_law(P, Q, np.zeros(3)).tolist() == pytest.approx(P)
    assert optimal_rejection_law(P, P, np.ones(3)).tolist() == P.tolist()  # nothing is left


# --- the unbiased family -------------------------------------------------------------------------


def test_members_are_told_from_others():
    rng = np.random.default_rng(37)
    for p, q, b in cases(80):
        limit = exact_rule(p, q)
        member = limit * rng.random(4).round(2)
        found = assess_acceptance(p, q, member)
        assert found.unbiased
        output, rejected = enumerated_output(q, member, found.rejection_law)
        np.testing.assert_allclose(output, p, rtol=0, atol=1e-12)
        assert abs(found.rejections - rejected) <= 1e-12
        assert abs(found.excess_rejections - (rejected - variation(p, q))) <= 1e-12
        assert found.excess_rejections >= -1e-15
        over = ((b - limit)[q > 0.0] > 1e-9).any() and ((b * q - p) > 1e-11).any()
        assert assess_acceptance(p, q, b).unbiased == (not (np.maximum(b * q - p, 0).sum() > 1e-12))
        if over:
            assert not assess_acceptance(p, q, b).unbiased


def test_speculative_decoding_is_the_largest_member():
    for p, q, _ in cases(60):
        found = assess_acceptance(p, q, exact_rule(p, q))
        assert found.unbiased
        assert abs(found.excess_rejections) <= 1e-12
        assert abs(found.rejections - variation(p, q)) <= 1e-12
        # One token accepted a little more often leaves the family.
        raised = exact_rule(p, q)
        token = int(np.argmin(raised))
        if raised[token] < 0.9 and q[token] > 1e-3:
            raised[token] += 0.01
            assert not assess_acceptance(p, q, raised).unbiased


def test_acceptance_of_undrafted_tokens_does_not_matter():
    p, q = [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]
    values = [assess_acceptance(p, q, [b, 1.0, 0.0]) for b in (0.0, 1.0)]
    assert [value.unbiased for value in values] == [True, True]
    assert values[0].rejections == values[1].rejections == 0.5


def test_tolerance_decides():
    slightly = exact_rule(P, Q) + np.array([0.0, 1e-6, 0.0])
    assert not assess_acceptance(P, Q, slightly).unbiased
    assert assess_acceptance(P, Q, slightly, tolerance=1e-5).unbiased


# --- along a chain -------------------------------------------------------------------------------


def per_position(chain, horizon):
    return chain if chain.ndim == 3 else np.repeat(chain[np.newaxis], horizon, axis=0)


def enumerated_chain(setting, accept, redraw):
    """Sequence law, expected rejections and added distances, over all V**T sequences."""
    target, draft, horizon, initial = setting
    chains = [per_position(np.asarray(x), horizon) for x in (target, draft, accept, redraw)]
    rejections = distance = 0.0
    prefixes = {(x,): prob for x, prob in enumerate(initial)}
    for p_rows, q_rows, b_rows, r_rows in zip(*chains, strict=True):
        following = {}
        for prefix, prob in prefixes.items():
            last = prefix[-1]
            output, rejected = enumerated_output(q_rows[last], b_rows[last], r_rows[last])
            rejections += prob * rejected
            distance += prob * variation(output, p_rows[last])
            for token, share in enumerate(output):
                following[(*prefix, token)] = prob * share
        prefixes = following
    return prefixes, rejections, distance


SMALL = [random_setting(seed, sizes=(2, 3), longest=4) for seed in range(8)]


@pytest.mark.parametrize("setting", SMALL, ids=range(8))
def test_chain_equals_enumeration(setting):
    _, _, horizon, initial = setting
    size = len(initial)
    rng = np.random.default_rng(43)
    for shape in ((size, size), (horizon, size, size)):
        accept = rng.random(shape)
        found = assess_acceptance_on_chain(*setting, accept)
        _, rejections, distance = enumerated_chain(setting, accept, found.rejection_law)
        assert abs(found.rejections - rejections) <= 1e-12
        assert abs(found.least_total_variation - distance) <= 1e-12
        assert not found.unbiased
        excess = rejections - expected_rejections(*setting)
        assert abs(found.excess_rejections - excess) <= 1e-12


@pytest.mark.parametrize("name", EDGES)
def test_members_on_a_chain_keep_the_law_of_the_sequence(name):
    target, draft, _, initial = EDGES[name]
    setting = target, draft, 3, initial
    exact = np.array([exact_rule(p, q) for p, q in zip(target, draft, strict=True)])
    found = assess_acceptance_on_chain(*setting, exact)
    assert found.unbiased
    assert abs(found.excess_rejections) <= 1e-12
    halved = assess_acceptance_on_chain(*setting, exact / 2)
    assert halved.unbiased
    law, rejections, _ = enumerated_chain(setting, exact / 2, halved.rejection_law)
    assert abs(halved.rejections - rejections) <= 1e-12
    assert halved.excess_rejections > 0.0
    for tokens, prob in law.items():
        steps = itertools.pairwise(tokens)
        wanted = initial[tokens[0]] * np.prod([target[a, b] for a, b in steps])
        assert abs(prob - wanted) <= 1e-12


def test_rows_that_are_never_reached_do_not_count():
    # From token 0 only tokens 0 and 1 are emitted; the rule of row 2 is biased.
    target = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    draft = np.array([[0.2, 0.8, 0.0], [0.8, 0.2, 0.0], [0.5, 0.0, 0.5]])
    accept = np.array([exact_rule(p, q) for p, q in zip(target, draft, strict=True)])
    accept[2, 0] = 1.0
    assert assess_acceptance_on_chain(target, draft, 5, [1, 0, 0], accept).unbiased
    assert not assess_acceptance_on_chain(target, draft, 5, THIRDS, accept).unbiased


# --- the rules of biased decoding ----------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 0.5, 1.0, 7.0])
def test_over_acceptance_by_its_formula(epsilon):
    for p, q, _ in cases(60):
        found = over_acceptance(p, q, epsilon)
        wanted = [min(1.0, (a + epsilon) / b) for a, b in zip(p, q, strict=True) if b > 0.0]
        np.testing.assert_allclose(found[q > 0.0], wanted, rtol=1e-15)
        assert ((found >= 0.0) & (found <= 1.0)).all()


def test_biased_rules_at_the_ends():
    for p, q, _ in cases(40):
        lossless = biased_rule(p, q, 0.0)
        np.testing.assert_allclose(lossless.output_law, p, rtol=0, atol=1e-12)
        assert lossless.total_variation <= 1e-12
        for redraw in ("optimal", "target"):
            always = biased_rule(p, q, 1.0, redraw=redraw)
            np.testing.assert_allclose(always.output_law, q, rtol=0, atol=1e-12)
            assert always.rejection_probability == 0.0


def test_redrawing_from_the_target_is_biased_even_with_the_exact_test():
    rule = biased_rule(P, Q, 0.0, redraw="target")
    np.testing.assert_allclose(rule.rejection_law, P)
    assert rule.total_variation == pytest.approx(0.15, abs=1e-12)


def test_rules_are_frozen_and_inputs_left_alone():
    before = P.tobytes(), Q.tobytes()
    rule = biased_rule(P, Q, 0.1)
    for array in (rule.accept_probs, rule.rejection_law, rule.output_law):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    assert (P.tobytes(), Q.tobytes()) == before
    assert MIXED.flags.writeable
