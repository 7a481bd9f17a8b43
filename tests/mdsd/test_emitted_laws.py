"""Losslessness at full vocabulary, from what a verification really uses.

`marginal_law` trusts the selection masses that a plan states. Here they are worked out anew: from
the pieces that marks are drawn from, and from the orders of groups and the chances to be kept.
"""

import itertools

import numpy as np
import pytest

import mdsd

V = 60_000
ROUNDING = 2e-16 * V
"""Of masses that are differences of prefix hits, added up over all tokens."""


def mark_masses(plan):
    """Probability that each token has the smallest mark, whatever the law of the marks."""
    marks, q, n = plan._marks.coupling, plan.draft.draft_probs, plan.draft.num_drafts
    group = np.full(len(q), -1)
    tokens = np.flatnonzero(q)
    group[tokens] = marks.group[plan._groups_of(tokens)]
    drawn = group >= 0
    assert (q[~drawn] == 0.0).all()
    group_mass = np.bincount(group[drawn], weights=q[drawn], minlength=len(marks.starts) - 1)
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
    masses = np.where(drawn, q * group_means[group], 0.0)
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    return masses


def order_masses(plan):
    """Probability that each token is selected by an order drawn by lot, and kept."""
    draft = plan.draft
    drawn = np.flatnonzero(draft.token_hit_probs())
    groups = plan._lottery.groups_of(drawn)
    assert (np.bincount(groups) > 0).all()
    assert plan.weights.sum() == pytest.approx(1.0, abs=1e-14)
    of_draws = isinstance(draft, mdsd.WithoutReplacement)
    masses = np.zeros(draft.vocab_size)
    select = selected_draws if of_draws else selected_independent
    masses[drawn] = select(plan, draft.draft_probs[..., drawn], groups)
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    masses[drawn] *= plan._keep_probs(drawn)
    return masses


def weighted_orders(plan):
    return zip(plan._lottery.orders, plan.weights, strict=True)


def selected_independent(plan, laws, groups):
    """Each draw is of a token, those of its group are as likely to be selected, none is ahead."""
    in_group = np.array([np.bincount(groups, law) for law in laws])
    chances = np.zeros_like(in_group)
    for order, weight in weighted_orders(plan):
        behind = np.empty_like(in_group)
        behind[:, order] = in_group[:, order][:, ::-1].cumsum(axis=1)[:, ::-1]
        behind -= in_group
        for j in range(len(laws)):
            others = [k for k in range(len(laws)) if k != j]
            for inside in itertools.product([False, True], repeat=len(others)):
                terms = [
                    in_group[k] if own else behind[k] for k, own in zip(others, inside, strict=True)
                ]
                chances[j] += weight * np.prod(terms, axis=0) / (1 + sum(inside))
    return (laws * chances[:, groups]).sum(axis=0)


def selected_draws(plan, q, groups):
    """Of 2 or 3 draws without replacement: a token, h of its group, and the others behind it.

    The n tokens of D are the first to ring when all of them have, and of the rest, whose rate is
    1 - q(D), the first rings now: ``integral of (1 - q(D)) exp(-t) prod over D of expm1(q t)``.
    Sums over D are elementary symmetric polynomials; the factor is minus the derivative of
    ``exp(-s) prod exp(s q)`` in s, which turns y = expm1(q t) to q y.
    """
    n, masses, step = plan.draft.num_drafts, np.zeros(len(q)), 0.25
    for u in np.arange(-16.0, 6.0, step):
        t = np.exp(u)
        y = np.expm1(q * t)
        powers = [np.bincount(groups, x) for x in (y, y * y, q * y, q * y * y)]
        own, own_slope = symmetric(*powers)
        behind, behind_slope = np.zeros_like(own), np.zeros_like(own)
        for order, weight in weighted_orders(plan):
            sums = [np.append(x[order][::-1].cumsum()[::-1][1:], 0.0) for x in powers]
            found, slopes = symmetric(*sums)
            behind[:, order] += weight * found
            behind_slope[:, order] += weight * slopes
        # Of the group without the token itself: by the recurrence over its size.
        others, slopes = [np.ones_like(y)], [np.zeros_like(y)]
        for k in (1, 2):
            slopes.append(own_slope[k][groups] - y * slopes[-1] - q * y * others[-1])
            others.append(own[k][groups] - y * others[-1])
        total, slope = np.zeros_like(y), np.zeros_like(y)
        for h in range(n):
            rest, rest_slope = behind[n - 1 - h][groups], behind_slope[n - 1 - h][groups]
            total += y * others[h] * rest / (h + 1)
            slope += (
                y * (q * others[h] * rest + slopes[h] * rest + others[h] * rest_slope) / (h + 1)
            )
        masses += step * t * np.exp(-t) * (total - slope)
    return masses


def symmetric(first, second, first_slope, second_slope):
    """Elementary symmetric polynomials of degrees 0, 1, 2 from power sums; their derivatives."""
    one = np.ones_like(first)
    values = np.array([one, first, (first * first - second) / 2.0])
    return values, np.array([0.0 * one, first_slope, first * first_slope - second_slope])


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
    "marks-fast": (lambda q: mdsd.WithReplacement(with_zeros(q[0]), 3), mark_masses),
    "draws-3": (lambda q: mdsd.WithoutReplacement(q[0], 3), order_masses),
    "draws-zeros": (lambda q: mdsd.WithoutReplacement(with_zeros(q[0]), 2), order_masses),
    "draws-fast": (lambda q: mdsd.WithoutReplacement(with_zeros(q[0]), 3), order_masses),
    "independent": (mdsd.IndependentDrafts, order_masses),
    "independent-fast": (mdsd.IndependentDrafts, order_masses),
}


@pytest.fixture(scope="module", params=PLANS)
def case(request):
    draft, masses = PLANS[request.param]
    target, vectors = laws(2)
    options = {"effort": "fast"} if request.param.endswith("fast") else {"max_iterations": 10}
    plan = mdsd.OptimalVerifier(**options).plan(target, draft(vectors))
    drawn = np.flatnonzero(plan.draft.token_hit_probs())
    tokens = np.random.default_rng(0).choice(drawn, 40)
    # Before `selected` is known: verifications one by one know single tokens only.
    lazy = [plan._chances_of(np.array([token]))[0] for token in tokens]
    return plan, masses(plan), tokens, lazy


def test_stated_selection_masses_are_those_of_the_verification(case):
    plan, masses, _, _ = case
    assert np.abs(masses - plan.selected).max() < 1e-13
    assert np.abs(masses - plan.selected).sum() < ROUNDING


def test_the_emitted_law_is_the_target(case):
    plan, masses, _, _ = case
    assert distance(plan, emitted(plan, masses)) < ROUNDING


def test_chances_of_single_tokens_are_those_of_all(case):
    plan, _, tokens, lazy = case
    kept = plan._keep_probs(tokens)
    np.testing.assert_allclose(lazy, kept * plan.chances[tokens], rtol=1e-12, atol=0)
    assert 0.0 < min(lazy) < 0.9 < 0.99 < max(lazy) <= 1.0


def test_wrong_selection_masses_are_noticed(case):
    """Negative control: `marginal_law` believes any; the law that is emitted is far off."""
    plan, masses, _, _ = case
    wrong = np.random.default_rng(1).dirichlet(np.full(V, 0.01))
    other = object.__new__(type(plan))
    kept = {"chances", "residual", "_residual_sums", "selected", "gap"}
    vars(other).update({k: x for k, x in vars(plan).items() if k not in kept})
    vars(other)["selected"] = wrong
    assert distance(other, other.marginal_law()) < 1e-14
    assert distance(other, emitted(other, masses)) > 0.03
    again = mark_masses(other) if hasattr(plan, "_marks") else order_masses(other)
    np.testing.assert_array_equal(again, masses)
