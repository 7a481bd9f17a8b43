"""Cases about rejections, biased rules and wall time."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd.analysis import (
    accept_rule,
    assess_acceptance,
    biased_rule,
    expected_rejections,
    expected_tokens,
    iid_expected_tokens,
    optimal_rejection_law,
    over_acceptance,
    pareto_front,
    simulate_rejections,
    speedup,
)

from .reading import assert_law, covers


def laws(case):
    return case.vector("target_probs"), case.vector("draft_probs")


@covers("analysis-redraw-from-target")
def test_redrawing_from_the_target(case):
    target, draft = laws(case)
    exact = np.minimum(1.0, target / draft)
    rule = accept_rule(target, draft, exact, rejection_law=target)
    assert_law(rule.output_law, case.expected["output_law"], case.tolerance)
    for found in (rule, biased_rule(target, draft, 0.0, redraw="target")):
        assert abs(found.rejection_probability - case.expected["rejection_probability"]) <= 1e-12
        assert abs(found.total_variation - case.expected["total_variation"]) <= case.tolerance
    assert (rule.total_variation <= case.tolerance) == case.expected["unbiased"]
    # The acceptance function itself could be unbiased, with another rejection law.
    best = assess_acceptance(target, draft, exact)
    least = case.expected["least_total_variation_for_this_b"]
    assert abs(best.least_total_variation - least) <= case.tolerance
    lossless = accept_rule(target, draft, exact, rejection_law=best.rejection_law)
    assert_law(lossless.output_law, target, case.tolerance)


@covers("analysis-always-accept")
def test_accepting_every_draft(case):
    target, draft = laws(case)
    always = np.ones(len(target))
    rule = accept_rule(target, draft, always)
    assert_law(rule.output_law, case.expected["output_law"], case.tolerance)
    assert rule.rejection_probability == case.expected["rejection_probability"]
    assert abs(rule.total_variation - case.expected["total_variation"]) <= case.tolerance
    found = assess_acceptance(target, draft, always)
    assert found.unbiased == case.expected["unbiased"]
    total = found.rejections + found.least_total_variation
    assert abs(total - case.expected["pareto_sum"]) <= case.tolerance


@covers("analysis-over-acceptance")
def test_over_acceptance(case):
    target, draft = laws(case)
    epsilon, expected = case.input["epsilon"], case.expected
    accept = over_acceptance(target, draft, epsilon)
    np.testing.assert_allclose(accept, expected["b"], rtol=0, atol=case.tolerance)
    redraw = optimal_rejection_law(target, draft, accept)
    assert_law(redraw, expected["optimal_redraw"], case.tolerance)
    best = biased_rule(target, draft, epsilon)
    uno = biased_rule(target, draft, epsilon, redraw="target")
    assert_law(best.output_law, expected["output_law_opt"], case.tolerance)
    assert_law(uno.output_law, expected["output_law_uno"], case.tolerance)
    front = pareto_front(target, draft, [epsilon])
    for found, wanted in (
        (best.rejection_probability, "rejection_probability"),
        (best.total_variation, "least_total_variation"),
        (uno.total_variation, "total_variation_uno"),
        (front.rejections[0], "rejection_probability"),
        (front.total_variation[0], "least_total_variation"),
        (front.uno_total_variation[0], "total_variation_uno"),
        (front.rejections[0] + front.total_variation[0], "pareto_sum"),
    ):
        assert abs(found - expected[wanted]) <= case.tolerance, wanted


@covers("analysis-speedup-can-be-below-one")
def test_speedup_below_one(case):
    depth = case.input["depth"]
    for k, rate in enumerate(case.input["acceptance"]):
        tokens = case.expected["tokens_per_step"][k]
        assert abs(expected_tokens([rate] * depth) - tokens) <= case.tolerance
        assert abs(iid_expected_tokens(rate, depth) - tokens) <= case.tolerance
        for cost in case.input["draft_cost_ratio"]:
            wanted = case.expected["wall_time_factor"][str(cost)][k]
            assert abs(speedup([rate] * depth, draft_cost=cost) - wanted) <= case.tolerance


@covers("analysis-rejections-two-states")
def test_rejections_of_two_states(case):
    initial, horizon = case.input["initial"], case.input["horizon"]
    target, draft = case.input["target_chain"], case.input["draft_chain"]
    pairs = [(target, draft), (target, target), ([[0, 1], [0, 1]], [[1, 0], [1, 0]])]
    expected = [case.expected["expected_rejections"], *case.expected["expected_rejections_also"]]
    for (p, q), wanted in zip(pairs, expected, strict=True):
        assert abs(expected_rejections(p, q, horizon, initial) - wanted) <= case.tolerance
        found = simulate_rejections(p, q, horizon, initial, runs=20_000, rng=0)
        # Five standard errors, none where nothing is random: one false alarm in a million seeds.
        assert abs(found.mean - wanted) <= 5 * found.stderr


def test_initial_is_the_law_before_the_first_position():
    target, draft = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]
    assert [expected_rejections(target, draft, 1, law) for law in ([1, 0], [0, 1])] == [0.0, 1.0]
    with pytest.raises(TypeError, match="initial"):
        expected_rejections(target, draft, 1)
