"""Many equal draws rejected in turn: against following each, and in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd._solvers.rejection_caps import before_draws, rejection_caps
from mdsd.rules.rrs import FOLLOWED, rrs_tests
from mdsd.verifiers._steady_rrs import SteadyRRSPlan
from mdsd.verifiers.base import accepted_and_rejected, closing_law
from mdsd.verifiers.rrs import ChainRRSPlan

RNG = np.random.default_rng(5)
PAIRS = {
    "even": (RNG.dirichlet(np.ones(9)), RNG.dirichlet(np.ones(9))),
    "peaked": (RNG.dirichlet(np.full(40, 0.1)), RNG.dirichlet(np.full(40, 0.1))),
    "rarely drawn": (np.array([0.2, 0.5, 0.3]), np.array([0.999, 9e-4, 1e-4])),
    "never drawn": (np.array([0.2, 0.5, 0.3, 0.0]), np.array([0.99, 0.0, 0.009, 0.001])),
    "equal": (np.full(4, 0.25), np.full(4, 0.25)),
    "apart": (np.array([1.0, 0.0]), np.array([0.0, 1.0])),
    "one token": (np.ones(1), np.ones(1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_caps_are_those_of_following_each_draw(name):
    p, q = PAIRS[name]
    left, lefts = p, []
    for _ in range(300):
        lefts.append(left.sum())
        left = np.maximum(left - lefts[-1] * q, 0.0)
    caps, found = before_draws(rejection_caps(p, q, 300), np.arange(300))
    drawn = q > 0.0  # the cap rises for ever where something is never drawn
    np.testing.assert_allclose(found, lefts, rtol=0, atol=1e-13)
    expected = np.cumsum([0.0, *lefts[:-1]])
    np.testing.assert_allclose(
        np.minimum(p, np.outer(caps, q))[:, drawn],
        np.minimum(p, np.outer(expected, q))[:, drawn],
        rtol=0,
        atol=1e-13,
    )


@pytest.mark.parametrize("name", PAIRS)
def test_a_plan_of_many_drafts_is_that_of_following_each(name):
    p, q = PAIRS[name]
    n = FOLLOWED + 40
    draft = mdsd.WithReplacement(q, n)
    found = mdsd.get_verifier("rrs").plan(p, draft)
    assert isinstance(found, SteadyRRSPlan)
    expected = ChainRRSPlan(p, draft, [q] * n)
    assert found.acceptance_rate == pytest.approx(expected.acceptance_rate, rel=0, abs=1e-13)
    ids = draft.sample(1, 50)
    np.testing.assert_allclose(found.output_law(ids), expected.output_law(ids), rtol=0, atol=1e-12)
    # The law over all tuples, from the tests themselves.
    everything = np.repeat(np.arange(len(p))[:, np.newaxis], n, axis=1)
    chances = found._tests(everything)[0].T
    law = closing_law(*accepted_and_rejected([q] * n, chances), found.residual)
    np.testing.assert_allclose(law, p, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.marginal_law(), p, rtol=0, atol=1e-12)


def test_another_cap_is_told_apart():
    p, q = PAIRS["rarely drawn"]
    chances, _ = rrs_tests(p, [q] * 100)
    wrong, _ = accepted_and_rejected([q] * 100, [1.001 * each for each in chances])
    right, _ = accepted_and_rejected([q] * 100, chances)
    assert abs(wrong.sum() - right.sum()) > 1e-6


RARE = 1e-7
MET = -np.expm1(10**6 * np.log1p(-RARE))  # that a million drafts hold the rare token
RATES = {
    "naive": 0.5 + 0.5 * MET,
    "naive_tree": 0.5 + RARE + (0.5 - RARE) * -np.expm1((10**6 - 1) * np.log1p(-RARE)),
    "rrs": 1.0 - (0.5 - RARE) * np.exp((10**6 - 1) * np.log1p(-RARE)),
    "optimal": 0.5 + MET,
}


@pytest.mark.parametrize("verifier", RATES)
def test_a_million_drafts_cost_as_much_as_a_few(verifier):
    p, q = np.array([0.5, 0.5]), np.array([1.0 - RARE, RARE])
    plan = mdsd.get_verifier(verifier).plan(p, mdsd.WithReplacement(q, 10**6))
    assert plan.acceptance_rate == pytest.approx(RATES[verifier], rel=0, abs=1e-9)
    rates = mdsd.acceptance_rates([p], [q], num_drafts=10**6, verifier=verifier)
    assert rates[0] == pytest.approx(RATES[verifier], rel=0, abs=1e-9)
    np.testing.assert_allclose(plan.marginal_law(), p, rtol=0, atol=1e-9)


def test_kseq_of_a_million_drafts():
    p, q = np.array([0.5, 0.5]), np.array([1.0 - RARE, RARE])
    plan = mdsd.get_verifier("kseq").plan(p, mdsd.WithReplacement(q, 10**6))
    assert RATES["rrs"] < plan.acceptance_rate < RATES["optimal"]
    np.testing.assert_allclose(plan.marginal_law(), p, rtol=0, atol=1e-9)


def test_stretches_are_no_more_than_the_ratios():
    p, q = RNG.dirichlet(np.full(300, 0.2)), RNG.dirichlet(np.full(300, 0.2))
    assert len(rejection_caps(p, q, 10**12).starts) < 2 * 300
