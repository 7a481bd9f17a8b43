"""Draws without replacement from clocks: the law of every draw, and the memory it takes."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

import mdsd
from mdsd import WithoutReplacement
from mdsd._random import find_tokens
from mdsd.drafts import arrivals
from mdsd.drafts.arrivals import Clocks, clock_each, set_clocks

FALSE_ALARM = 1e-6
"""Chance that one sampling check fails for a right law; seeds are fixed, so once for all."""

LARGE = 128_000
SMALL = {
    "ties": np.full(20, 1 / 20),
    "falling": 0.7 ** np.arange(20),
    "zeros": np.tile([0.0, 3.0, 0.0, 1.0, 2.0], 8),
    "one-heavy": np.r_[np.full(9, 1e-13), 1 - 1.9e-12, np.full(10, 1e-13)],
    "subnormal": np.r_[1.0, np.arange(1, 20) * 5e-324],
    "subnormal-beside-others": np.r_[np.full(8, 1e-310), 0.5, 1e-305, 1e-5, np.full(9, 1e-308)],
}
HUGE = {
    "uniform": np.ones(LARGE),
    "peaked": np.exp(3.0 * np.random.default_rng(0).normal(size=LARGE)),
    "zeros": np.arange(LARGE) % 3 * 1.0,
    "one-heavy": np.r_[np.full(LARGE - 1, 1e-12 / (LARGE - 1)), 1 - 1e-12],
    "subnormal": np.r_[1.0, np.random.default_rng(0).integers(1, 99, LARGE - 1) * 5e-324],
}


@pytest.fixture
def few_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tokens share a clock at any vocabulary, and only 2n have their own."""
    monkeypatch.setattr(arrivals, "FEW", 0)
    monkeypatch.setattr(arrivals, "_ALONE", 1)


def weights_of(clocks: Clocks, size: int) -> list[Fraction]:
    """How often the clocks ring for each token, exactly: a shared one by lengths of intervals."""
    weights = [Fraction(0)] * size
    if clocks.shared_sums is not None:
        ends = [Fraction(0), *map(Fraction, clocks.shared_sums.tolist())]
        weights = [after - before for before, after in itertools.pairwise(ends)]
    for token, rate in zip(clocks.alone.tolist(), clocks.rates.tolist(), strict=True):
        assert weights[token] == 0
        weights[token] = Fraction(rate)
    return weights


def without(weights: list[Fraction], removed: tuple[int, ...]) -> list[Fraction]:
    left = [Fraction(0) if i in removed else weight for i, weight in enumerate(weights)]
    total = sum(left)
    return [weight / total for weight in left]


def distance(clocks: Clocks, draft_probs: np.ndarray, num_drafts: int) -> float:
    """Largest total variation of the law of the next token, over all that may come before it."""
    exact = [Fraction(q) for q in draft_probs.tolist()]
    found = weights_of(clocks, len(exact))
    histories = itertools.chain.from_iterable(
        itertools.combinations(np.flatnonzero(draft_probs).tolist(), k) for k in range(num_drafts)
    )
    return max(
        float(
            sum(abs(a - b) for a, b in zip(without(found, h), without(exact, h), strict=True)) / 2
        )
        for h in histories
    )


class TestEveryDrawHasItsLaw:
    """The clocks give each next token its declared probability, whatever was drawn before."""

    @pytest.mark.parametrize("num_drafts", [2, 3])
    @pytest.mark.parametrize("label", SMALL)
    @pytest.mark.usefixtures("few_alone")
    def test_of_shared_clocks(self, label, num_drafts):
        q = WithoutReplacement(SMALL[label] / SMALL[label].sum(), num_drafts).draft_probs
        clocks = set_clocks(q, num_drafts)
        assert len(clocks.alone) == 2 * num_drafts
        assert clocks.shared_sums is not None
        assert distance(clocks, q, num_drafts) <= 1e-15

    @pytest.mark.parametrize("label", SMALL)
    def test_of_a_clock_each(self, label):
        q = WithoutReplacement(SMALL[label] / SMALL[label].sum(), 3).draft_probs
        assert distance(clock_each(q), q, 3) == 0.0

    @pytest.mark.usefixtures("few_alone")
    def test_the_law_of_another_q_is_noticed(self):
        q = SMALL["one-heavy"] / SMALL["one-heavy"].sum()
        other = q.copy()
        other[0] *= 1 + 1e-9
        assert distance(set_clocks(other, 2), q, 2) > 1e-12

    def test_a_heavy_token_in_the_running_sum_is_noticed(self):
        q = SMALL["one-heavy"] / SMALL["one-heavy"].sum()
        in_one_sum = Clocks(np.zeros(0, np.int64), np.zeros(0), np.cumsum(q))
        assert distance(in_one_sum, q, 2) > 1e-6

    @pytest.mark.parametrize("label", HUGE)
    def test_at_full_vocabulary(self, label):
        """What shares a clock has less to come than what is alone, whatever was drawn before."""
        q = WithoutReplacement(HUGE[label] / HUGE[label].sum(), 4).draft_probs
        clocks = set_clocks(q, 4)
        shared = q.copy()
        shared[clocks.alone] = 0.0
        assert (clocks.rates == q[clocks.alone] * 2.0**512).all()
        assert q[clocks.alone].min() >= shared.max()
        exact = shared * 2.0**512
        total, intervals = math.fsum(exact), np.diff(clocks.shared_sums, prepend=0.0)
        # That is of all that is left, too: of n - 1 draws, what they can take from the shared
        # tokens is left of the 2n that are alone.
        assert len(clocks.alone) >= 2 * 4
        assert sums_off(clocks.shared_sums, exact) <= 1e-13 * total
        assert math.fsum(np.abs(intervals - exact)) / 2 <= 5e-12 * total
        assert (intervals[shared == 0.0] == 0.0).all()

    def test_a_plain_running_sum_is_noticed(self):
        exact = np.full(LARGE, 1 / LARGE)
        assert sums_off(np.cumsum(exact), exact) > 1e-12


def sums_off(sums: np.ndarray, weights: np.ndarray) -> float:
    """How far a running sum is off, at most, at every 6,400th place and the last."""
    places = [*range(0, LARGE, 6400), LARGE - 1]
    return max(abs(float(sums[k]) - math.fsum(weights[: k + 1])) for k in places)


class TestInverse:
    """A shared clock gives uniforms to tokens in proportion, on a grid finer than any token."""

    @pytest.mark.parametrize("label", SMALL)
    @pytest.mark.usefixtures("few_alone")
    def test_tokens_on_a_grid(self, label):
        q = WithoutReplacement(SMALL[label] / SMALL[label].sum(), 3).draft_probs
        clocks = set_clocks(q, 3)
        shares = np.array([float(w) for w in without(weights_of(clocks, len(q)), ())])
        shares[clocks.alone] = 0.0
        grid = 1 << 18
        found = find_tokens(clocks.shared_sums, (np.arange(grid) + 0.5) / grid)
        counts = np.bincount(found, minlength=len(q))
        assert np.abs(counts - grid * shares / shares.sum()).max() <= 1.0
        assert (counts[shares == 0.0] == 0).all()

    @pytest.mark.parametrize("label", HUGE)
    def test_the_ends_have_mass(self, label):
        q = HUGE[label] / HUGE[label].sum()
        clocks = set_clocks(q, 4)
        found = find_tokens(clocks.shared_sums, [0.0, 1 - 2.0**-53])
        assert (q[found] > 0.0).all()
        assert not np.isin(found, clocks.alone).any()


class Recorder:
    """A generator that keeps what it gave."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.exponentials: list[np.ndarray] = []
        self.uniforms: list[np.ndarray] = []

    def standard_exponential(self, shape: tuple[int, int]) -> np.ndarray:
        self.exponentials.append(self.rng.standard_exponential(shape))
        return self.exponentials[-1]

    def random(self, shape: tuple[int, int]) -> np.ndarray:
        self.uniforms.append(self.rng.random(shape))
        return self.uniforms[-1]


def rings_of(clocks: Clocks, recorder: Recorder) -> list[tuple[float, int]]:
    """All that rang in the one row that was drawn, in time."""
    first, *later = recorder.exponentials
    rings = list(zip((first[0] / clocks.rates).tolist(), clocks.alone.tolist(), strict=True))
    now = 0.0
    for gap, uniform in zip(np.ravel(later), np.ravel(recorder.uniforms), strict=True):
        now += gap / clocks.shared_sums[-1]
        rings.append((now, int(find_tokens(clocks.shared_sums, uniform))))
    return sorted(rings)


REPEATING = np.r_[np.full(5, 1 - 1e-6), np.full(9, 1e-6 / 9)] / (5 - 4e-6)
"""Four tokens have their own clocks; among those that share one, a fifth is as likely."""


@pytest.mark.usefixtures("few_alone")
class TestRows:
    @pytest.mark.parametrize(
        ("draft_probs", "num_drafts"),
        [(REPEATING, 2), (np.repeat([2.0, 1.0], 24) / 72, 6)],
        ids=["repeating", "two-levels"],
    )
    def test_a_row_is_the_first_tokens_to_ring(self, draft_probs, num_drafts):
        clocks, rounds = set_clocks(draft_probs, num_drafts), []
        own = set(clocks.alone.tolist())
        for seed in range(2000):
            recorder = Recorder(seed)
            (row,) = clocks.draw(recorder, 1, num_drafts).tolist()
            rings = rings_of(clocks, recorder)
            assert row == list(dict.fromkeys(token for _, token in rings))[:num_drafts]
            # Nothing was drawn that could have been forestalled by a ring not yet known.
            last = max(time for time, token in rings if token not in own)
            assert next(time for time, token in rings if token == row[-1]) <= last
            rounds.append(len(recorder.uniforms))
        assert max(rounds) > 1

    @pytest.mark.parametrize("count", [1, 2, 20, 999])
    def test_the_earliest_come_in_order(self, count):
        times = np.random.default_rng(0).random((30, 1000))
        found = arrivals._earliest(times, count)
        assert found.tolist() == times.argsort(axis=1)[:, :count].tolist()

    def test_many_rows_follow_the_law(self):
        drawn = WithoutReplacement(REPEATING, 2).sample(5, 20_000)
        assert p_value(drawn) > FALSE_ALARM

    def test_rows_of_one_round_only_are_noticed(self):
        """Drawing a row anew instead of going on with it would be another law."""
        clocks, rows, one_round = set_clocks(REPEATING, 2), [], []
        for seed in range(10_000):
            recorder = Recorder(seed)
            rows.append(clocks.draw(recorder, 1, 2)[0])
            one_round.append(len(recorder.uniforms) == 1)
        assert p_value(np.array(rows)) > FALSE_ALARM
        assert p_value(np.array(rows)[one_round]) < FALSE_ALARM

    @pytest.mark.parametrize("label", SMALL)
    def test_edges_follow_the_law(self, label):
        draft = WithoutReplacement(SMALL[label] / SMALL[label].sum(), 2)
        assert p_value(draft.sample(6, 20_000), draft.draft_probs) > FALSE_ALARM


def p_value(drawn: np.ndarray, probs: np.ndarray = REPEATING) -> float:
    """P-value of drawn pairs, cells expected fewer than 5 times pooled."""
    exact = [Fraction(q) for q in probs.tolist()]
    size, support = len(exact), np.flatnonzero(probs).tolist()
    law = np.zeros((size, size))
    for i in support:
        law[i] = [float(exact[i] * weight) for weight in without(exact, (i,))]
    counts = np.zeros((size, size))
    np.add.at(counts, tuple(drawn.T), 1)
    expected = law * len(drawn)
    if counts[expected == 0.0].any():
        return 0.0
    common = expected >= 5
    pooled = [counts[~common].sum()], [expected[~common].sum()]
    counts, expected = np.append(counts[common], pooled[0]), np.append(expected[common], pooled[1])
    if expected[-1] < 1e-3:
        counts, expected = counts[:-1], expected[:-1]
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected) - 1))


class TestEdges:
    def test_subnormal_masses_are_drawn_in_proportion(self):
        draft = WithoutReplacement([5e-324, 1.0, 5e-324, 1e-323], 2)
        drawn = draft.sample(0, 20_000)
        assert (drawn[:, 0] == 1).all()
        assert p_value(drawn, draft.draft_probs) > FALSE_ALARM

    @pytest.mark.parametrize("size", [3, 200])
    def test_all_of_the_support(self, size):
        q = np.tile([0.0, 1.0, 3.0], size)[: 2 * size]
        support = np.flatnonzero(q)
        drawn = WithoutReplacement(q / q.sum(), len(support)).sample(0, 50)
        assert (np.sort(drawn, axis=1) == support).all()

    @pytest.mark.parametrize("num_drafts", [1, 4, 20])
    @pytest.mark.parametrize("label", HUGE)
    def test_tokens_differ_and_have_mass(self, label, num_drafts):
        draft = WithoutReplacement(HUGE[label] / HUGE[label].sum(), num_drafts)
        drawn = draft.sample(0, 1000)
        ascending = np.sort(drawn, axis=1)
        assert (ascending[:, 1:] > ascending[:, :-1]).all()
        assert (draft.draft_probs[drawn] > 0.0).all()

    def test_what_is_kept_travels(self):
        draft = WithoutReplacement(HUGE["peaked"] / HUGE["peaked"].sum(), 2)
        drawn = draft.sample(3, 5).tolist()
        again = pickle.loads(pickle.dumps(draft))
        assert again.sample(3, 5).tolist() == drawn
        assert not any(array.flags.writeable for array in again._clocks)


KINDS = {
    "with_replacement": lambda q: mdsd.WithReplacement(q, 4),
    "without_replacement": lambda q: WithoutReplacement(q, 4),
    "hybrid": lambda q: mdsd.HybridDraft(q, 4, 1),
    "greedy": lambda q: mdsd.GreedyDraft(q, 4),
    "spechub": mdsd.SpecHubDraft,
    "independent": lambda q: mdsd.IndependentDrafts([q, q, q]),
    "joint": lambda q: mdsd.JointDrafts([WithoutReplacement(q, 2), mdsd.WithReplacement(q, 2)]),
}


def arrays_of(call) -> float:
    """Most memory that a call holds, in arrays of the length of the vocabulary."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / (8 * LARGE)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("label", ["uniform", "peaked"])
class TestMemory:
    def test_a_thousand_rows(self, kind, label):
        draft = KINDS[kind](HUGE[label] / HUGE[label].sum())
        assert arrays_of(lambda: draft.sample(0, 1000)) <= 4.0

    def test_a_row_after_the_first_looks_at_few_tokens(self, kind, label):
        draft = KINDS[kind](HUGE[label] / HUGE[label].sum())
        assert arrays_of(lambda: draft.sample(0)) >= 0.9
        assert arrays_of(lambda: draft.sample(0)) <= 0.05


def test_a_clock_for_each_token_is_noticed():
    clocks = clock_each(np.full(LARGE, 1 / LARGE))
    assert arrays_of(lambda: clocks.draw(np.random.default_rng(0), 2, 4)) > 2.0
