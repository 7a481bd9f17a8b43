"""Losslessness at full vocabulary, from what a verification really uses.

`marginal_law` trusts the selection masses that a plan states. Here they are worked out anew: from
the pieces that marks are drawn from, and from the orders as tokens are ranked in them.
"""

import numpy as np
import pytest

import mdsd
from mdsd.drafts.independent import hit_of_independent
from solvers.hitting import prefix_hits

V = 60_000
ROUNDING = 2e-16 * V
"""Of masses that are differences of prefix hits, added up over all tokens."""


def mark_masses(plan):
    """Probability that each token has the smallest mark, whatever the law of the marks."""
    marks, q, n = plan._coupling, plan.draft.draft_probs, plan.draft.num_drafts
    drawn = marks.group >= 0
    assert (q[~drawn] == 0.0).all()
    group_mass = np.bincount(marks.group[drawn], weights=q[drawn], minlength=len(marks.starts) - 1)
    piece_group = np.repeat(np.arange(len(group_mass)), np.diff(marks.starts))
    chances = np.diff(marks.levels, prepend=0.0)
    chances[marks.starts[:-1]] = marks.levels[marks.starts[:-1]]
    order = np.argsort(marks.left)
    assert (marks.right[order][:-1] <= marks.left[order][1:] + 1e-15).all()
    # The chance of a larger mark falls in a straight line from end to end of each piece.
    masses = (group_mass[piece_group] * chances)[order]
    larger = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    # n times the mean of its power n - 1 there.
    means = sum(larger[:-1] ** k * larger[1:] ** (n - 1 - k) for k in range(n))
    first = np.empty(len(order))
    first[order] = means
    group_means = np.bincount(piece_group, weights=first * chances, minlength=len(group_mass))
    return np.where(drawn, q * group_means[marks.group], 0.0)


def order_masses(plan):
    """Probability that each token is the first drawn one of an order drawn by lot."""
    draft = plan.draft
    if isinstance(draft, mdsd.WithoutReplacement):
        (tokens,) = draft.draft_probs.nonzero()
    else:
        (tokens,) = draft.draft_probs.any(axis=0).nonzero()
    ends = np.concatenate([[0.0], plan._weight_sums])
    assert ends[-1] == pytest.approx(1.0, abs=1e-14)
    masses = np.zeros(draft.vocab_size)
    for order, weight in enumerate(np.diff(ends)):
        ranks = plan._ranks(np.array(order), tokens)
        ahead = tokens[np.argsort(ranks)]
        assert len(np.unique(ranks)) == len(tokens)
        if isinstance(draft, mdsd.WithoutReplacement):
            hits = prefix_hits(draft.draft_probs[ahead], draft.num_drafts)
        else:
            hits = hit_of_independent(draft.draft_probs[:, ahead])
        masses[ahead] += weight * np.diff(hits)
    return masses


def emitted(plan, masses):
    """Law of the emitted token where these are the masses of the selected one."""
    accepted = masses * plan.chances
    return accepted + (1.0 - accepted.sum()) * plan.residual / plan.residual.sum()


def distance(plan, law):
    return np.abs(law - plan.target_probs).sum() / 2


def laws(num_models):
    rng = np.random.default_rng(7)
    logits = rng.normal(size=V) * 3
    noise = rng.normal(size=(num_models, V))
    return mdsd.probs_from_logits(logits), [mdsd.probs_from_logits(logits + x) for x in noise]


def with_zeros(q):
    q = q.copy()
    q[::3] = 0.0
    return q / q.sum()


PLANS = {
    "marks-2": (lambda q: mdsd.WithReplacement(q[0], 2), mark_masses),
    "marks-5": (lambda q: mdsd.WithReplacement(q[0], 5), mark_masses),
    "marks-zeros": (lambda q: mdsd.WithReplacement(with_zeros(q[0]), 3), mark_masses),
    "draws-3": (lambda q: mdsd.WithoutReplacement(q[0], 3), order_masses),
    "draws-zeros": (lambda q: mdsd.WithoutReplacement(with_zeros(q[0]), 2), order_masses),
    "independent": (mdsd.IndependentDrafts, order_masses),
}


@pytest.fixture(scope="module", params=PLANS)
def case(request):
    draft, masses = PLANS[request.param]
    target, vectors = laws(2)
    plan = mdsd.OptimalVerifier(max_iterations=10).plan(target, draft(vectors))
    drawn = np.flatnonzero(plan.draft.token_hit_probs())
    tokens = np.random.default_rng(0).choice(drawn, 40)
    # Before `selected` is known: verifications one by one know single tokens only.
    lazy = [plan._chances_of(np.array([token]))[0] for token in tokens]
    return plan, masses(plan), tokens, lazy


def test_stated_selection_masses_are_those_of_the_verification(case):
    plan, masses, _, _ = case
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(masses - plan.selected).max() < 1e-13
    assert np.abs(masses - plan.selected).sum() < ROUNDING


def test_the_emitted_law_is_the_target(case):
    plan, masses, _, _ = case
    assert distance(plan, emitted(plan, masses)) < ROUNDING


def test_chances_of_single_tokens_are_those_of_all(case):
    plan, _, tokens, lazy = case
    np.testing.assert_allclose(lazy, plan.chances[tokens], rtol=1e-12, atol=0)
    assert 0.0 < min(lazy) < max(lazy) == 1.0


def test_wrong_selection_masses_are_noticed(case):
    """Negative control: `marginal_law` believes any; the law that is emitted is far off."""
    plan, masses, _, _ = case
    wrong = np.random.default_rng(1).dirichlet(np.full(V, 0.01))
    other = object.__new__(type(plan))
    kept = {"chances", "residual", "_residual_sums", "selected", "gap"}
    vars(other).update({k: x for k, x in vars(plan).items() if k not in kept})
    if masses_of_marks := hasattr(plan, "_coupling"):
        other._coupling = plan._coupling._replace(selected=wrong)
    else:
        vars(other)["selected"] = wrong
    assert distance(other, other.marginal_law()) < 1e-14
    assert distance(other, emitted(other, masses)) > 0.03
    again = mark_masses(other) if masses_of_marks else order_masses(other)
    np.testing.assert_array_equal(again, masses)
