"""Intervals from truncated logs: valid for every completion, and no wider than they must be."""

from __future__ import annotations

import math
from functools import cache
from itertools import islice

import numpy as np
import pytest

import mdsd
from mdsd import acceptance_interval
from mdsd._solvers import hitting, split_tail
from mdsd._solvers.hitting import prefix_hits
from mdsd.intervals import greedy
from mdsd.testing import random_probs

from ..solvers.two_weights import FAULTS
from .completions import (
    Truncated,
    bounds,
    logarithms,
    random_truncated,
    searched,
    values,
    violation,
)

SINGLE = ("with_replacement", "without_replacement", "greedy")
KINDS = (*SINGLE, "independent")
SLACK = 2e-12
"""Twice the rounding of an end: what two ends that should be equal may differ by."""


# --- every completion lies inside ----------------------------------------------------------------


def interval_or_none(case, kind, num_drafts):
    """The interval, or None where no completion has enough tokens to draw."""
    try:
        return case.interval(kind, num_drafts)
    except mdsd.InvalidDistributionError:
        assert kind in ("without_replacement", "greedy")
        return None


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("seed", range(20))
def test_completions_lie_inside(kind, seed):
    rng = np.random.default_rng(seed)
    case = random_truncated(rng)
    for num_drafts in (1, 2, 3, 5):
        interval = interval_or_none(case, kind, num_drafts)
        found = values(case, kind, num_drafts, rng)
        if interval is not None and len(found):
            assert violation(interval, found) <= 0.0


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("seed", range(12))
def test_completions_found_by_search_lie_inside(kind, seed):
    rng = np.random.default_rng([seed, 1])
    case, num_drafts = random_truncated(rng), 1 + seed % 4
    interval = interval_or_none(case, kind, num_drafts)
    if interval is None:
        return
    assert searched(case, kind, num_drafts, rng, sign=1) <= interval.upper
    assert -searched(case, kind, num_drafts, rng, sign=-1) <= -interval.lower


@pytest.mark.parametrize("num_models", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_completions_of_independent_drafts_lie_inside(num_models, seed):
    rng = np.random.default_rng([seed, num_models])
    case = random_truncated(rng, num_models)
    found = values(case, "independent", num_models, rng, random=1)[:60]
    assert violation(case.interval("independent", num_models), found) <= 0.0


def logs_of(law):
    """Two laws known in full: a target all on one light token, and the draft."""
    q = dict(enumerate(np.log(law.weights).tolist()))
    return {len(q) - 1: 0.0}, q


@pytest.mark.parametrize("law", FAULTS, ids=["20 draws", "64 draws"])
def test_the_ends_meet_for_many_draws_of_two_weights(law):
    found = acceptance_interval(*logs_of(law), draft="without_replacement", num_drafts=law.n)
    assert found.lower <= law.hit(0, 1) <= found.upper
    assert found.upper - found.lower < 1e-11


def test_a_lower_end_above_the_upper_one_is_an_error(monkeypatch):
    """Negative control: prefix hits that lose a twentieth."""
    law = FAULTS[0]
    monkeypatch.setattr(hitting, "prefix_hits", lambda *args: prefix_hits(*args) * 0.95)
    with pytest.raises(
        mdsd.SolverError, match=r"'interval'.*upper bound 0\.38\d+ is below the attained 0\.40"
    ):
        acceptance_interval(*logs_of(law), draft="without_replacement", num_drafts=law.n)


def test_as_many_unknown_tokens_as_surpass_a_known_one():
    """Two of the three most likely draft tokens may be unknown: the last known is off T then."""
    case = {0: math.log(0.1), 1: math.log(0.9)}, {0: math.log(0.5), 1: math.log(0.14)}
    found = acceptance_interval(*case, draft="greedy", num_drafts=4)
    # T holds token 0 and both of mass 0.15, beside which token 1 has 0.7 of what is sampled.
    draft = mdsd.GreedyDraft([0.5, 0.14, 0.15, 0.15, 0.06], 4)
    value = mdsd.acceptance_bound([0.1, 0.9, 0.0, 0.0, 0.0], draft).value
    assert value == pytest.approx(0.8, abs=1e-12)
    assert found.lower <= value <= found.upper


@cache
def sampled_logs(count=600):
    """Logs of the most likely tokens and a sampled one, or of that one alone; n; and the truth."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        size = int(rng.integers(2, 8))
        laws = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0])), 2)
        lengths = rng.integers(0, size + 1), rng.integers(0, size + 1) * rng.integers(2)
        logs = []
        for law, length in zip(laws, lengths, strict=True):
            listed = {*np.argsort(-law)[:length].tolist(), int(rng.choice(np.flatnonzero(law)))}
            logs.append({i: float(law[i]) for i in sorted(listed)})
        num_drafts = int(rng.integers(2, size + 1))
        value = mdsd.acceptance_bound(laws[0], mdsd.GreedyDraft(laws[1], num_drafts)).value
        found.append((Truncated(logs[0], (logs[1],)), num_drafts, value))
    return found


def outside():
    """How far the truth lies outside of each interval."""
    return np.array(
        [violation(case.interval("greedy", n), np.array([v])) for case, n, v in sampled_logs()]
    )


def test_the_truth_lies_inside_whichever_token_was_sampled():
    assert outside().max() <= 0.0


def test_a_token_alone_taken_as_the_most_likely_is_caught(monkeypatch):
    """Negative control: of logs with the sampled token alone some exclude the truth by much."""

    def trusting(draft, count):
        top = top_tokens(draft, count)
        alone = not top.certain and top.doubtful is not None
        return type(top)([top.doubtful], None, top.missing - 1) if alone else top

    top_tokens = greedy._top_tokens
    monkeypatch.setattr(greedy, "_top_tokens", trusting)
    assert (outside() > 0.05).sum() >= 5


ALONE = {
    # The log of the draft, n, and the lower end.
    "unlikely": ({0: 0.05}, 2, 0.05 / 0.95),
    "as-likely-as-all-others": ({0: 0.5}, 2, 0.7),
    "behind-two": ({0: 0.3}, 3, 0.3 / (0.3 + 0.7 - 0.6)),
    "never-behind-two": ({0: 0.36}, 3, 0.7),
    "beside-one-of-no-mass": ({0: 0.05, 3: 0.0}, 2, 0.05 / 0.95),
}


@pytest.mark.parametrize(("log", "num_drafts", "lower"), ALONE.values(), ids=ALONE)
def test_greedy_with_one_token_that_may_have_been_sampled(log, num_drafts, lower):
    """It is the only one that both sides know; behind the most likely it counts in proportion."""
    interval = Truncated({0: 0.7}, (log,)).interval("greedy", num_drafts)
    assert interval.lower == pytest.approx(min(0.7, lower), abs=1e-11)
    assert interval.upper == 1.0


# --- the check of completions can fail -----------------------------------------------------------

THEORY = Truncated({0: 0.7, 1: 0.3}, ({0: 0.2, 1: 0.1},))
"""Without replacement the draft's tail of 0.7 may be one token, or very many."""


def test_a_lump_as_lower_end_is_caught(monkeypatch):
    """Without replacement the draft's tail must not be taken as one token."""

    def lump(weights, tail, num_draws):
        return prefix_hits(np.append(weights, tail), num_draws)[:-1]

    found = values(THEORY, "without_replacement", 2, np.random.default_rng(0))
    assert violation(THEORY.interval("without_replacement", 2), found) <= 0.0
    monkeypatch.setattr(split_tail, "prefix_hits_beside_split_tail", lump)
    wrong = THEORY.interval("without_replacement", 2)
    assert wrong.lower == pytest.approx(0.988889, abs=1e-6)
    assert violation(wrong, found) > 0.4


@pytest.mark.parametrize("kind", SINGLE)
def test_one_sided_tokens_taken_as_0_are_caught(kind):
    """A token known to one side only may have what the other does not know."""
    case = Truncated({0: 0.5, 1: 0.3}, ({0: 0.5, 2: 0.3},))
    zeros = Truncated({0: 0.5, 1: 0.3, 2: 0.0}, ({0: 0.5, 2: 0.3, 1: 0.0},))
    found = values(case, kind, 2, np.random.default_rng(0))
    assert violation(case.interval(kind, 2), found) <= 0.0
    assert violation(zeros.interval(kind, 2), found) > 0.1


@pytest.mark.parametrize("shift", [(1e-3, 1.0), (0.0, -1e-3)], ids=["lower", "upper"])
def test_an_end_moved_inwards_is_caught(shift):
    case = Truncated({0: 0.4, 1: 0.3}, ({0: 0.3, 1: 0.4},))
    interval = case.interval("with_replacement", 2)
    moved = mdsd.AcceptanceInterval(interval.lower + shift[0], interval.upper + min(shift[1], 0))
    found = values(case, "with_replacement", 2, np.random.default_rng(0))
    assert violation(interval, found) <= 0.0
    assert violation(moved, found) > 5e-4


# --- completions come close to the ends ----------------------------------------------------------


def apart(case, parts=3000):
    """Tails that miss each other, the draft's in very many parts: the lower end in the limit."""
    tokens = case.tokens
    known = [[log.get(token, 0.0) for token in tokens] for log in (case.target, *case.drafts)]
    tails = [max(0.0, 1.0 - math.fsum(row)) for row in known]
    target = np.array([*known[0], tails[0], *np.zeros(parts)])
    drafts = [
        np.array([*row, 0.0, *np.full(parts, tail / parts)])
        for row, tail in zip(known[1:], tails[1:], strict=True)
    ]
    return target[np.newaxis], [draft[np.newaxis] for draft in drafts]


def aligned(case):
    """Tails on what only the other side knows, in one ratio if they can have one."""
    target, draft = case.target, case.drafts[0]
    only_target = sum(p for token, p in target.items() if token not in draft)
    only_draft = sum(q for token, q in draft.items() if token not in target)
    target_tail = max(0.0, 1.0 - math.fsum(target.values()))
    draft_tail = max(0.0, 1.0 - math.fsum(draft.values()))
    onto_draft, onto_target = target_tail, draft_tail
    if only_target * only_draft <= target_tail * draft_tail and draft_tail > 0.0:
        ratio = (only_target + target_tail) / (only_draft + draft_tail)
        onto_draft, onto_target = ratio * only_draft, only_target / max(ratio, 1e-300)
    p, q = [], []
    for token in case.tokens:
        one_sided_p = onto_draft * draft.get(token, 0.0) / only_draft if only_draft else 0.0
        one_sided_q = onto_target * target.get(token, 0.0) / only_target if only_target else 0.0
        p.append(target.get(token, one_sided_p))
        q.append(draft.get(token, one_sided_q))
    p.append(max(0.0, 1.0 - math.fsum(p)))
    q.append(max(0.0, 1.0 - math.fsum(q)))
    return np.array([p]), [np.array([q])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(15))
def test_the_lower_end_is_approached(kind, seed):
    num_drafts = 1 + seed % 3
    case = random_truncated(np.random.default_rng(seed), num_drafts if kind == "independent" else 1)
    target, drafts = apart(case)
    if interval_or_none(case, kind, num_drafts) is None or (
        kind == "greedy" and not possible_apart(case, drafts[0], num_drafts)
    ):
        return
    (value,) = bounds(target, drafts, kind, num_drafts)
    searched = 5e-5 if kind == "independent" else 0.0  # half the gap of a search
    assert -searched <= value - case.interval(kind, num_drafts).lower <= 1e-3


def possible_apart(case, draft, num_drafts):
    """Whether the top of a draft whose tail is in many parts is what is known for certain."""
    log = case.drafts[0]
    positive = sum(q > 0.0 for q in log.values())
    return positive >= num_drafts and np.sort(list(log.values()))[-num_drafts] > draft[0, -1]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("num_drafts", [1, 2, 4])
def test_the_upper_end_with_replacement_is_attained(seed, num_drafts):
    case = random_truncated(np.random.default_rng(seed))
    (value,) = bounds(*aligned(case), "with_replacement", num_drafts)
    upper = case.interval("with_replacement", num_drafts).upper
    assert value <= upper <= value + 2e-12


@pytest.mark.parametrize("kind", ["without_replacement", "greedy", "independent"])
def test_the_upper_end_is_often_approached(kind):
    near = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        case = random_truncated(rng, 2 if kind == "independent" else 1)
        found = values(case, kind, 2, rng)
        interval = interval_or_none(case, kind, 2)
        if interval is not None and len(found):
            near.append(interval.upper - found.max() <= 1e-3)
    assert np.mean(near) >= 0.5


def test_greedy_with_a_doubtful_token_is_attained():
    """Token 1 is the second of the draft, or was sampled: then one unknown token surpasses it."""
    log = {0: 0.5, 1: 0.1}
    target = np.array([[0.3, 0.4, 0.0, 0.3, *np.zeros(400)]])
    draft = np.array([[0.5, 0.1, 0.1 + 1e-9, 0.0, *np.full(400, (0.3 - 1e-9) / 400)]])
    case = Truncated({0: 0.3, 1: 0.4}, (log,))
    (value,) = bounds(target, [draft], "greedy", 3)
    interval = case.interval("greedy", 3)
    assert interval.lower == pytest.approx(0.55, abs=1e-9)
    assert value == pytest.approx(0.55, abs=1e-6)
    assert interval.lower <= value
    assert interval.upper == 1.0


# --- ends by other means -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_lower_end_with_replacement_is_the_bound_of_the_reduced_laws(seed, num_drafts):
    case = random_truncated(np.random.default_rng(seed))
    target, drafts = apart(case, parts=1)
    bound = mdsd.acceptance_bound(target[0], mdsd.WithReplacement(drafts[0][0], num_drafts))
    lower = case.interval("with_replacement", num_drafts).lower
    assert lower == pytest.approx(bound.value, abs=SLACK)


@pytest.mark.parametrize("kind", ["with_replacement", "without_replacement", "independent"])
@pytest.mark.parametrize("seed", range(15))
def test_upper_end_is_at_most_that_of_one_merged_token(kind, seed):
    """Merging all that is not known on every side gives an upper end, too: a simpler one."""
    num_drafts = 2 + seed % 2
    rng = np.random.default_rng(seed)
    case = random_truncated(rng, num_drafts if kind == "independent" else 1)
    shared = set(case.target).intersection(*case.drafts)
    laws = [np.array([log[t] for t in sorted(shared)]) for log in (case.target, *case.drafts)]
    target, *drafts = [np.append(law, max(0.0, 1.0 - law.sum())) for law in laws]
    if kind == "independent":
        law = mdsd.IndependentDrafts(drafts)
    elif kind == "with_replacement":
        law = mdsd.WithReplacement(drafts[0], num_drafts)
    elif np.count_nonzero(drafts[0]) >= num_drafts:
        law = mdsd.WithoutReplacement(drafts[0], num_drafts)
    else:
        return
    interval = interval_or_none(case, kind, num_drafts)
    if interval is not None:
        assert interval.upper <= mdsd.acceptance_bound(target, law).value + 1e-5


@pytest.mark.parametrize("seed", range(6))
def test_the_same_independent_draft_n_times_is_drawing_with_replacement(seed):
    case = random_truncated(np.random.default_rng(seed))
    several = Truncated(case.target, case.drafts * 3).interval("independent", 3)
    expected = case.interval("with_replacement", 3)
    assert several.lower == pytest.approx(expected.lower, abs=1e-5)
    assert several.upper == pytest.approx(expected.upper, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_one_draft_is_one_draft(seed):
    case = random_truncated(np.random.default_rng(seed))
    ends = np.array(
        [(one.lower, one.upper) for one in (interval_or_none(case, kind, 1) for kind in KINDS)]
    )
    np.testing.assert_allclose(ends, np.tile(ends[0], (4, 1)), rtol=0, atol=1e-11)


def test_the_example_without_replacement():
    interval = THEORY.interval("without_replacement", 2)
    # f = c (1 + sum over H of q / (1 - q)) with c = 0.3 and a tail of 0.7 split without end.
    assert interval.lower == pytest.approx(0.3 * 1.7, abs=SLACK)
    target = np.array([[0.7, 0.3, 0.0, 0.0, 0.0, 0.0]])
    draft = np.array([[0.2, 0.1, *[0.175] * 4]])
    (value,) = bounds(target, [draft], "without_replacement", 2)
    assert value == pytest.approx(0.554545, abs=1e-6)
    assert interval.lower <= value <= interval.upper


@pytest.mark.parametrize("num_drafts", [3, 5, 10**9])
def test_fewer_known_tokens_than_drafts(num_drafts):
    """The others come from the tail: all that has a mass of its own may be drawn."""
    case = Truncated({0: 0.6, 1: 0.2}, ({0: 0.5, 1: 0.3},))
    interval = case.interval("without_replacement", num_drafts)
    assert interval.upper == 1.0
    assert 0.75 < interval.lower <= 0.8


def test_a_token_known_not_to_be_drafted_is_lost():
    case = Truncated({0: 0.6, 1: 0.4}, ({0: 0.5, 1: 0.0},))
    for kind in SINGLE:
        assert case.interval(kind, 4).upper == pytest.approx(0.6, abs=SLACK)


def test_top_of_the_greedy_draft_unknown_to_the_target():
    """Token 9 is always drafted; the target's tail of 0.2 may lie on it, in full or not at all."""
    case = Truncated({0: 0.5, 1: 0.3}, ({9: 0.6, 0: 0.2, 1: 0.1},))
    interval = case.interval("greedy", 2)
    assert interval.lower == pytest.approx(0.5 + 0.25, abs=SLACK)
    assert interval.upper == pytest.approx(0.5 + 0.25 + 0.2, abs=SLACK)


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        ({3: 0.8}, {5: 0.4, 3: 0.4}, 0.8),
        ({5: 0.8}, {5: 0.4, 3: 0.4}, 0.4 / 0.6),
        ({"b": 0.8}, {"b": 0.4, "a": 0.4}, 0.8),
        ({"a": 0.8}, {"b": 0.4, "a": 0.4}, 0.4 / 0.6),
    ],
    ids=["lowest-id", "not-the-lowest-id", "first-text", "second-text"],
)
def test_ties_of_the_greedy_draft(target, draft, expected):
    """By id, texts in the order of the log: the first is in T, the second sampled off it."""
    interval = Truncated(target, (draft,)).interval("greedy", 2)
    assert interval.lower == pytest.approx(expected, abs=SLACK)


# --- real positions ------------------------------------------------------------------------------

KS = (1, 5, 20, 100)
DATA = mdsd.datasets.load("smollm2")
TARGET = mdsd.probs_from_logits(DATA.target_table)
DRAFTS = {name: mdsd.probs_from_logits(logits) for name, logits in DATA.draft_tables.items()}
INDEPENDENT = slice(0, None, 12)
"""Positions for independent drafts, whose bounds are searched."""
WITH_EXTRA = slice(0, None, 4)
"""Positions for logs with a token more."""


@cache
def logs(model, k, extra):
    """The k most likely tokens at every position, and one more that was drawn from the law."""
    probs = TARGET if model == "target" else DRAFTS[model]
    rng = np.random.default_rng(len(model) + k)
    found = []
    for law in probs:
        tokens = np.argsort(-law, kind="stable")
        listed = tokens[:k].tolist()
        if extra:
            listed.append(int(rng.choice(len(law), p=law)))
        found.append({int(i): float(np.log(law[i])) for i in listed if law[i] > 0.0})
    return found


@cache
def full_bounds(model, kind, num_drafts):
    return mdsd.acceptance_bounds(TARGET, DRAFTS[model], draft=kind, num_drafts=num_drafts)


@cache
def ends(model, kind, num_drafts, k, extra=False):
    """Ends of the interval at every position, or at every one with an extra token, (N, 2)."""
    places = WITH_EXTRA if extra else slice(None)
    pairs = zip(logs("target", k, extra)[places], logs(model, k, extra)[places], strict=True)
    found = [acceptance_interval(p, q, draft=kind, num_drafts=num_drafts) for p, q in pairs]
    return np.array([(interval.lower, interval.upper) for interval in found])


@pytest.mark.parametrize("extra", [False, True], ids=["top", "top-and-one"])
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("model", ["drop2", "ngram"])
def test_holds_the_bound_of_the_full_laws(model, kind, num_drafts, k, extra):
    found = ends(model, kind, num_drafts, k, extra)
    expected = full_bounds(model, kind, num_drafts)[WITH_EXTRA if extra else slice(None)]
    assert (found[:, 0] <= expected).all()
    assert (expected <= found[:, 1]).all()


@cache
def full_independent(num_drafts):
    models = np.stack(list(DRAFTS.values()))[:num_drafts, INDEPENDENT]
    laws = zip(TARGET[INDEPENDENT], models.swapaxes(0, 1), strict=True)
    return [mdsd.acceptance_bound(p, mdsd.IndependentDrafts(q)) for p, q in laws]


@pytest.mark.parametrize("extra", [False, True], ids=["top", "top-and-one"])
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("num_drafts", [1, 2, 3, 4])
def test_holds_the_bound_of_independent_drafts(num_drafts, k, extra):
    names = list(DRAFTS)[:num_drafts]
    targets = logs("target", k, extra)[INDEPENDENT]
    drafts = zip(*(logs(name, k, extra)[INDEPENDENT] for name in names), strict=True)
    positions = zip(targets, drafts, full_independent(num_drafts), strict=True)
    for target, several, bound in islice(positions, 0, None, max(1, k // 20)):
        interval = acceptance_interval(target, several, draft="independent", num_drafts=num_drafts)
        # The bound itself is known up to its gap.
        assert interval.lower <= bound.value
        assert bound.value - bound.gap <= interval.upper


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("model", ["drop2", "ngram"])
def test_more_tokens_shrink_the_interval(model, kind):
    widest, *narrower = (ends(model, kind, 3, k) for k in KS)
    for narrow in narrower:
        assert (narrow[:, 0] >= widest[:, 0] - SLACK).all()
        assert (narrow[:, 1] <= widest[:, 1] + SLACK).all()
        assert np.diff(narrow).mean() < np.diff(widest).mean()
        widest = narrow


@pytest.mark.parametrize("num_drafts", [1, 3])
@pytest.mark.parametrize("kind", SINGLE)
def test_all_tokens_leave_no_width(kind, num_drafts):
    for position in range(0, DATA.num_positions, 12):
        target, draft = (
            {int(i): float(np.log(law[i])) for i in np.flatnonzero(law)}
            for law in (TARGET[position], DRAFTS["drop2"][position])
        )
        interval = acceptance_interval(target, draft, draft=kind, num_drafts=num_drafts)
        assert interval.upper - interval.lower <= 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["flat", "sparse", "ties", "nearly_flat", "target"])
@pytest.mark.parametrize("seed", range(3))
def test_small_laws_known_in_full_leave_no_width(kind, form, seed):
    rng = np.random.default_rng(seed)
    target, *drafts = [random_probs(rng, 6, "flat" if form == "target" else form) for _ in range(3)]
    if form == "target":
        drafts[0] = target
    if np.count_nonzero(drafts[0]) < 2:
        drafts[0] = np.array([0.0, 0.5, 0.0, 0.25, 0.25, 0.0])
    case = Truncated(dict(enumerate(target)), tuple(dict(enumerate(q)) for q in drafts))
    (value,) = bounds(target[np.newaxis], [q[np.newaxis] for q in drafts], kind, 2)
    interval = case.interval(kind, 2)
    assert interval.upper - interval.lower <= 1e-9
    assert interval.lower <= value <= interval.upper


# --- what logs are like --------------------------------------------------------------------------

P, Q = {1: 0.5, 2: 0.3, 3: 0.1}, {2: 0.5, 1: 0.2, 4: 0.1}


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("name", [str, lambda token: f"{token}".encode(), lambda token: (token,)])
def test_tokens_may_be_anything(kind, name):
    named = [{name(token): math.log(p) for token, p in log.items()} for log in (P, Q)]
    expected = Truncated(P, (Q,)).interval(kind, 2)
    assert acceptance_interval(*named, draft=kind, num_drafts=2) == expected


@pytest.mark.parametrize("number", [np.float32, np.float64, np.float16])
def test_values_may_be_numpy_numbers(number):
    log = {token: number(math.log(p)) for token, p in P.items()}
    exact = {token: float(value) for token, value in log.items()}
    assert acceptance_interval(log, log, num_drafts=2) == acceptance_interval(
        exact, exact, num_drafts=2
    )


def test_numpy_token_ids_are_those_of_python():
    named = [{np.int32(token): math.log(p) for token, p in log.items()} for log in (P, Q)]
    mixed = acceptance_interval(named[0], logarithms(Q), num_drafts=2)
    assert mixed == Truncated(P, (Q,)).interval("with_replacement", 2)


def test_mixed_kinds_of_tokens_are_told_apart():
    """Texts and ids on one side: those the other side shares count."""
    log = {1: math.log(0.5), "1": math.log(0.4)}
    interval = acceptance_interval(log, {"1": math.log(0.4)}, num_drafts=1)
    assert interval.lower == pytest.approx(0.4, abs=SLACK)


@pytest.mark.parametrize("kind", SINGLE)
def test_printed_with_few_digits(kind):
    """Laws known in full, with three decimals: their sum is off 1, by less than the tolerance."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        target, draft = rng.dirichlet(np.ones(12), 2)
        printed = [{i: round(math.log(p), 3) for i, p in enumerate(law)} for law in (target, draft)]
        interval = acceptance_interval(*printed, draft=kind, num_drafts=2)
        value = mdsd.acceptance_bounds([target], [draft], draft=kind, num_drafts=2)[0]
        assert interval.lower - 4e-3 <= value <= interval.upper + 4e-3


def test_logs_are_not_modified():
    target, draft = logarithms(P), logarithms(Q)
    for kind in SINGLE:
        acceptance_interval(target, draft, draft=kind, num_drafts=2)
    acceptance_interval(target, [draft, draft], draft="independent", num_drafts=2)
    assert (target, draft) == (logarithms(P), logarithms(Q))


def test_interval_is_frozen():
    interval = Truncated(P, (Q,)).interval("greedy", 2)
    with pytest.raises(AttributeError):
        interval.lower = 0.0


@pytest.mark.parametrize("peak", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("kind", ["without_replacement", "greedy"])
def test_rounding_of_a_small_remainder(kind, peak):
    """The draft leaves next to nothing beside one token: rounding of the tail is no detail."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        draft = np.append(peak * rng.dirichlet(np.ones(6)), 0.0)
        draft[-1] = 1.0 - draft.sum()
        target = rng.dirichlet(np.ones(7))
        known = rng.permutation(6)[: rng.integers(2, 7)].tolist()
        case = Truncated({i: target[i] for i in [6, *known]}, ({i: draft[i] for i in [6, *known]},))
        if kind == "greedy":  # whose log is one of the most likely tokens
            known = np.argsort(-draft)[:4].tolist()
            case = Truncated({i: target[i] for i in known}, ({i: draft[i] for i in known},))
        value = bounds(target[np.newaxis], [draft[np.newaxis]], kind, 2)
        assert violation(case.interval(kind, 2), value) <= 0.0
