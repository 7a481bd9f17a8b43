"""Acceptance by shared noise: closed form, quadrature, brute force and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import mdsd
from mdsd.analysis import gumbel_acceptance
from mdsd.engines import gumbel
from mdsd.engines.gumbel import ACCURACY, hit_masses
from mdsd.testing import random_probs

EDGES = {
    "equal": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]),
    "zeros": ([0.0, 0.7, 0.3], [0.4, 0.6, 0.0]),
    "points": ([0.0, 1.0], [1.0, 0.0]),
    "far": ([0.6, 0.4 - 1e-9, 1e-9], [1e-9, 0.5, 0.5 - 1e-9]),
}
RANDOM = np.random.default_rng(73)
PAIRS = {
    **{name: (np.array(p), np.array(q)) for name, (p, q) in EDGES.items()},
    **{f"random-{k}": (random_probs(RANDOM, 5), random_probs(RANDOM, 5)) for k in range(6)},
    **{f"even-{k}": tuple(RANDOM.dirichlet(np.full(4, 2.0), 2)) for k in range(2)},
}


def missed(j, p, q, times):
    """Probability that token j wins the target's race and no draft's, given its own times."""
    least = min(times)
    prob = 1.0
    for time in times:
        wins = sum(least * a / p[j] for i, a in enumerate(p) if i != j)
        both = sum(
            max(least * p[i] / p[j], time * q[i] / q[j] if q[j] > 0 else np.inf * (q[i] > 0))
            for i in range(len(p))
            if i != j and (p[i] > 0 or q[i] > 0)
        )
        prob *= np.exp(-wins) - np.exp(-both)
    return prob


@pytest.mark.parametrize("pair", PAIRS)
def test_one_draft(pair):
    """The formula of Daliri et al., token by token."""
    p, q = PAIRS[pair]
    expected = sum(
        1.0 / sum(max(p[i] / p[j], q[i] / q[j]) for i in range(len(p)))
        for j in range(len(p))
        if p[j] > 0 and q[j] > 0
    )
    assert gumbel_acceptance(p, q) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("pair", ["even-0", "even-1", "equal", "zeros"])
def test_one_draft_by_brute_force(pair):
    p, q = PAIRS[pair]
    hits = hit_masses(p, q, 1)
    for j in np.flatnonzero((p > 0) & (q > 0)):
        lost, _ = quad(lambda s, j=j: np.exp(-s) * missed(j, p, q, [s]), 0, 60, epsabs=1e-12)
        assert hits[j] == pytest.approx(p[j] - lost, abs=1e-10)


@pytest.mark.parametrize("pair", ["even-0", "even-1", "zeros"])
def test_two_drafts_by_brute_force(pair):
    """Integrated over both times of a token, in the order of the two, which the kink follows."""
    p, q = PAIRS[pair]
    hits = hit_masses(p, q, 2)
    for j in np.flatnonzero((p > 0) & (q > 0)):
        half, _ = dblquad(
            lambda more, least, j=j: (
                np.exp(-2 * least - more) * missed(j, p, q, [least, least + more])
            ),
            0,
            40,
            0,
            40,
            epsabs=1e-8,
            epsrel=1e-8,
        )
        assert hits[j] == pytest.approx(p[j] - 2 * half, abs=2e-7)


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("least", [1e-310, 5e-324])
def test_tokens_that_are_all_but_never_drafted(least, num_drafts):
    """As if the draft did not have them, and without a warning."""
    for p, q in (
        ([0.5, 0.3, 0.2], [0.7, 0.3, least]),
        ([0.5, 0.5], [1.0, least]),
        ([least, 1.0], [1.0, least]),
        ([0.4, 0.6, 0.0], [least, least, 1.0]),
    ):
        without = np.where(np.array(q) > least, q, 0.0)
        found = gumbel_acceptance(p, q, num_drafts)
        assert found == pytest.approx(gumbel_acceptance(p, without, num_drafts), abs=ACCURACY)


@pytest.mark.parametrize("num_drafts", [2, 3, 8, 64])
@pytest.mark.parametrize("pair", PAIRS)
def test_accuracy(monkeypatch, pair, num_drafts):
    """Against a grid several times as fine and as long, with no early end."""
    p, q = PAIRS[pair]
    found = gumbel_acceptance(p, q, num_drafts)
    monkeypatch.setattr(gumbel, "_FIRST_STEP", 0.06)
    monkeypatch.setattr(gumbel, "_SMALL_CHANGE", 0.0)
    monkeypatch.setattr(gumbel, "_MOST_HALVINGS", 1)
    monkeypatch.setattr(gumbel, "_LEAST_TIME", 1e-16)
    assert abs(found - gumbel_acceptance(p, q, num_drafts)) <= ACCURACY / 10


@pytest.mark.parametrize("num_drafts", [1, 2, 5])
@pytest.mark.parametrize("pair", ["even-0", "random-2", "zeros", "far"])
def test_simulation(pair, num_drafts):
    """Races drawn 40,000 times, 4.5 standard errors: one in 150,000 by chance."""
    p, q = PAIRS[pair]
    times = np.random.default_rng(5).standard_exponential((40_000, num_drafts, len(p)))
    with np.errstate(divide="ignore"):
        drafts = (times / q).argmin(axis=2)
        emitted = (times.min(axis=1) / p).argmin(axis=1)
    accepted = (drafts == emitted[:, np.newaxis]).any(axis=1)
    expected = gumbel_acceptance(p, q, num_drafts)
    assert (
        abs(accepted.mean() - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 40_000) + 1e-9
    )
    # The law of what is emitted, whatever is drafted.
    shares = np.bincount(emitted, minlength=len(p)) / 40_000
    assert (abs(shares - p) <= 4.5 * np.sqrt(p * (1 - p) / 40_000)).all()


@pytest.mark.parametrize("pair", PAIRS)
def test_between_naive_and_optimal_and_rising(pair):
    p, q = PAIRS[pair]
    rates = [gumbel_acceptance(p, q, n) for n in (1, 2, 3, 5)]
    assert (np.diff(rates) >= -1e-12).all()
    for n, rate in zip((1, 2, 3, 5), rates, strict=True):
        draft = mdsd.WithReplacement(q, n)
        assert rate <= mdsd.acceptance_bound(p, draft).value + 1e-9
        assert rate >= mdsd.NaiveVerifier().plan(p, draft).acceptance_rate - 1e-9


@pytest.mark.parametrize("pair", PAIRS)
def test_one_draft_loses_at_most_what_is_known(pair):
    """At least (1 - d) / (1 + d) for a total variation of d, as Daliri et al. have it."""
    p, q = PAIRS[pair]
    apart = np.maximum(p - q, 0).sum()
    assert gumbel_acceptance(p, q) >= (1 - apart) / (1 + apart) - 1e-12


def test_hits_are_no_more_than_the_target_has():
    p, q = PAIRS["random-3"]
    for n in (1, 2, 7):
        hits = hit_masses(p, q, n)
        assert ((hits >= 0) & (hits <= p)).all()
    assert gumbel_acceptance(p, p, 4) == pytest.approx(1.0, abs=ACCURACY)
