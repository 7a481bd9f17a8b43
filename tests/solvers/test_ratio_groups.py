"""Groups of tokens by the leading bits of their ratios."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mdsd._solvers.ratio_groups import (
    HEAVY,
    NUM_BUCKETS,
    RatioGroups,
    bucket_of,
    choose_singles,
    group_by_ratio,
    group_of,
    groups_of_tokens,
    join_buckets,
    spread_over_tokens,
    sum_buckets,
    sure_overlap,
)

LOWEST, HIGHEST = 2.0**-16, 2.0**24
"""Ratios between which buckets tell them apart."""


def masses_of(rng: np.random.Generator, kind: str, size: int) -> np.ndarray:
    if kind == "flat":
        masses = rng.dirichlet(np.ones(size))
    elif kind == "equal":
        masses = np.full(size, 1 / size)
    elif kind == "zeros":
        masses = rng.dirichlet(np.full(size, 0.1)) * (rng.random(size) < 0.7)
    elif kind == "point":
        masses = np.zeros(size)
        masses[rng.integers(size)] = 1.0
    elif kind == "heavy":
        masses = np.full(size, 1e-12 / size)
        masses[rng.integers(size)] = 1.0
    else:
        masses = 10.0 ** rng.uniform(-323, 0, size)
    return masses


KINDS = ["flat", "equal", "zeros", "point", "heavy", "scales"]
PAIRS = list(itertools.product(KINDS, KINDS))


def bucket_by_hand(ratio: float) -> int:
    """128 equal parts of every octave."""
    if ratio < LOWEST:
        return 0
    if ratio >= HIGHEST:
        return NUM_BUCKETS - 1
    mantissa, exponent = math.frexp(ratio)
    return (exponent - 1 + 16) * 128 + int((2.0 * mantissa - 1.0) * 128)


EDGES = [
    edge
    for base in (0.5, 1.0, 1.0 + 1 / 128, 1.5, LOWEST, HIGHEST, 3.0e-5, 12345.0)
    for edge in (math.nextafter(base, 0.0), base, math.nextafter(base, math.inf))
]


class TestBuckets:
    @pytest.mark.parametrize("ratio", EDGES, ids=str)
    def test_at_the_ends_of_buckets(self, ratio):
        assert bucket_of(ratio, 1.0) == bucket_by_hand(ratio)

    def test_anywhere(self):
        ratios = 2.0 ** np.random.default_rng(0).uniform(-20, 28, 3000)
        assert [bucket_of(r, 1.0) for r in ratios] == [bucket_by_hand(r) for r in ratios]

    def test_grow_with_the_ratio(self):
        ratios = np.concatenate([EDGES, 10.0 ** np.random.default_rng(1).uniform(-323, 308, 2000)])
        keys = [bucket_of(r, 1.0) for r in np.sort(ratios)]
        assert keys == sorted(keys)
        assert (keys[0], keys[-1]) == (0, NUM_BUCKETS - 1)

    @pytest.mark.parametrize(
        ("target", "draw", "key"),
        [
            (0.0, 1.0, 0),
            (0.0, 5e-324, 0),
            (5e-324, 1.0, 0),
            (5e-324, 5e-324, bucket_by_hand(1.0)),
            (2.0**-1040, 2.0**-1041, bucket_by_hand(2.0)),
            (1.0, 5e-324, NUM_BUCKETS - 1),
            (1.0, 0.0, NUM_BUCKETS - 1),
        ],
        ids=str,
    )
    def test_of_extreme_masses(self, target, draw, key):
        assert bucket_of(target, draw) == key

    def test_what_is_neither_has_one_all_the_same(self):
        """0 / 0, where a scaled mass underflows."""
        key = bucket_of(0.0, 0.0)
        assert key in (0, NUM_BUCKETS - 1)
        assert bucket_of(0.0, 0.0 * 1.0) == key

    def test_are_no_wider_than_a_hundred_and_twenty_eighth(self):
        """The width is what a group may lose: 1/128 of a ratio at most."""
        ratios = 2.0 ** np.linspace(-15.9, 23.9, 100_000)
        keys = np.array([bucket_by_hand(r) for r in ratios[::20]])
        assert keys.tolist() == [bucket_of(r, 1.0) for r in ratios[::20]]
        for first, last in itertools.pairwise(np.flatnonzero(np.diff(keys, prepend=-1))):
            assert ratios[20 * (last - 1)] / ratios[20 * first] <= 1.0 + 1 / 128


def check_groups(groups: RatioGroups, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Check that it is a partition of the tokens with draw mass, by ratio; give each group."""
    found = np.array([group_of(groups, i, p[i], q[i]) for i in range(len(p))])
    assert ((found == -1) == (q == 0.0)).all()
    assert set(found[q > 0.0].tolist()) == set(range(groups.size))
    for g, token in enumerate(groups.singles):
        assert np.flatnonzero(found == g).tolist() == [token]
    assert (np.diff(groups.singles) > 0).all()
    shared = np.flatnonzero(found >= len(groups.singles))
    keys = np.array([bucket_of(p[i], q[i] * groups.scale) for i in shared], dtype=np.int64)
    # The larger the ratio, the earlier the group; a bucket is never split.
    for i, key in zip(shared, keys, strict=True):
        assert found[i] == groups.table[key]
    order = np.argsort(-keys, kind="stable")
    assert (np.diff(found[shared[order]]) >= 0).all()
    return found


@pytest.mark.parametrize(("target", "draw"), PAIRS)
@pytest.mark.parametrize("scale", [1.0, 1 / 3, 2.0**900])
class TestGroupByRatio:
    def masses(self, target, draw):
        rng = np.random.default_rng([*target.encode(), *draw.encode()])
        return masses_of(rng, target, 60), masses_of(rng, draw, 60)

    def test_is_a_partition_by_ratio(self, target, draw, scale):
        p, q = self.masses(target, draw)
        for num_singles, num_buckets in [(0, 1), (2, 3), (7, 2), (16, 16), (0, 59)]:
            groups = group_by_ratio(p, q, scale, num_singles, num_buckets, 3.0)
            found = check_groups(groups, p, q)
            live = np.count_nonzero(q)
            assert groups.size <= num_singles + num_buckets
            if live <= num_singles + num_buckets:
                assert groups.singles.tolist() == np.flatnonzero(q).tolist()
            assert groups.scale == scale
            assert found.max() == groups.size - 1

    def test_one_by_one_as_in_a_pass(self, target, draw, scale):
        p, q = self.masses(target, draw)
        groups = group_by_ratio(p, q, scale, 5, 4, 3.0)
        found = [group_of(groups, i, p[i], q[i]) for i in range(60)]
        assert groups_of_tokens(groups, np.arange(60), p, q).tolist() == found
        ratios = np.arange(1.0, groups.size + 1)
        expected = np.where(np.array(found) < 0, 0.0, q * ratios[found])
        assert spread_over_tokens(groups, ratios, p, q).tolist() == expected.tolist()


@pytest.mark.parametrize("wrong", ["swapped", "left out", "twice", "empty"])
def test_check_notices_what_is_no_partition(wrong):
    """Negative controls of `check_groups`."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(60)), rng.dirichlet(np.ones(60))
    groups = group_by_ratio(p, q, 1.0, 3, 4, 3.0)
    check_groups(groups, p, q)
    table, singles, size = groups.table.copy(), groups.singles.copy(), groups.size
    if wrong == "swapped":
        table[table == 4], table[table == 3] = -2, 4
        table[table == -2] = 3
    elif wrong == "left out":
        table[table == 4] = -1
    elif wrong == "twice":
        singles = singles[[0, 0]]
    else:
        size += 1
    with pytest.raises(AssertionError):
        check_groups(RatioGroups(singles, table, 1.0, size), p, q)


def test_a_mass_that_underflows_has_a_group_of_its_own():
    """Half of 5e-324 is 0: the token is drawn all the same, and its target mass is its own."""
    p, q = np.full(40, 1 / 40), np.full(40, 1 / 39)
    q[7] = 5e-324
    groups = group_by_ratio(p, q, 0.5, 2, 2, 2.0)
    found = check_groups(groups, p, q)
    assert np.flatnonzero(found == found[7]).tolist() == [7]


class TestSingles:
    def choose(self, p, q, num_singles, largest=np.inf, scale=1.0):
        _, heavy = sum_buckets(p, q, scale, HEAVY)
        return choose_singles(heavy, p, q, scale, num_singles, largest)

    @pytest.mark.parametrize("num_singles", [0, 1, 5, 20, 100])
    @pytest.mark.parametrize("scale", [1.0, 0.25])
    def test_are_the_largest(self, num_singles, scale):
        rng = np.random.default_rng(num_singles)
        p, q = rng.dirichlet(np.full(300, 0.2)), rng.dirichlet(np.full(300, 0.2))
        singles = self.choose(p, q, num_singles, scale=scale)
        assert len(singles) <= num_singles
        assert (np.diff(singles) > 0).all()
        largest = np.maximum(p, q * scale)
        others = np.setdiff1d(np.arange(300), singles)
        if len(singles):
            # By quarters of an octave: which of nearly equal ones does not matter.
            assert largest[singles].min() >= largest[others].max() / 1.25
        heavy = np.count_nonzero(largest >= HEAVY)
        if heavy <= num_singles:
            assert len(singles) == heavy

    def test_of_masses_that_are_all_alike_none_is_chosen(self):
        flat = np.full(300, 1 / 300)
        assert len(self.choose(flat, flat, 299)) == 0
        assert len(self.choose(flat, flat, 300)) == 300

    def test_too_large_a_draw_mass_is_in_any_case(self):
        rng = np.random.default_rng(0)
        p, q = rng.dirichlet(np.ones(300)), rng.dirichlet(np.ones(300))
        singles = self.choose(p, q, 3, largest=0.004)
        assert set(np.flatnonzero(q > 0.004)) <= set(singles.tolist())
        assert len(singles) < 300

    def test_light_tokens_are_not_among_them(self):
        p = np.array([1.0 - HEAVY, HEAVY / 2, HEAVY / 2])
        assert self.choose(p, p, 3).tolist() == [0]


class TestJoin:
    def sums(self, rng: np.random.Generator, filled: int) -> np.ndarray:
        sums = np.zeros((NUM_BUCKETS, 2))
        keys = rng.permutation(NUM_BUCKETS)[:filled]
        sums[keys] = rng.dirichlet(np.full(filled, 0.3), 2).T + 1e-300
        return sums

    @pytest.mark.parametrize("filled", [1, 2, 30, 700, NUM_BUCKETS])
    @pytest.mark.parametrize("most", [1, 2, 30, 600, NUM_BUCKETS])
    def test_order_count_and_loss(self, filled, most):
        rng = np.random.default_rng([filled, most])
        sums = self.sums(rng, filled)
        table, stop = join_buckets(sums, most, 7, 3.0)
        has_mass = sums[:, 1] > 0.0
        assert ((table >= 0) == has_mass).all()
        found = table[has_mass]
        assert set(found.tolist()) == set(range(7, stop))
        assert (np.diff(found) <= 0).all()
        assert stop - 7 <= most
        if filled <= most:
            assert stop - 7 == filled

    def test_none(self):
        table, stop = join_buckets(np.zeros((NUM_BUCKETS, 2)), 5, 3, 2.0)
        assert stop == 3
        assert (table == -1).all()

    def test_no_target_mass_at_all(self):
        sums = np.zeros((NUM_BUCKETS, 2))
        sums[0, 1], sums[9, 1] = 0.5, 0.5
        table, stop = join_buckets(sums, 1, 0, 2.0)
        assert (table[0], table[9], stop) == (0, 0, 1)

    def test_groups_are_as_dense_as_the_root_of_the_mass(self):
        rng = np.random.default_rng(0)
        sums = np.zeros((NUM_BUCKETS, 2))
        keys = np.arange(1000, 2000)
        sums[keys, 0] = rng.random(1000)
        sums[keys, 1] = 1.0
        table, stop = join_buckets(sums, 50, 0, 1e9)
        shares = np.bincount(table[keys], np.sqrt(sums[keys, 0]), stop)
        np.testing.assert_allclose(shares, shares.mean(), rtol=0.1)

    def test_target_mass_beyond_the_cap_draws_no_groups(self):
        sums = np.zeros((NUM_BUCKETS, 2))
        sums[500:1000, 0] = sums[500:1000, 1] = 1.0
        sums[3000:3500, 0], sums[3000:3500, 1] = 1e6, 1e-6
        few, many = (len(set(join_buckets(sums, 40, 0, cap)[0][3000:3500])) for cap in (4.0, 1e12))
        assert few == 1
        assert many >= 38


def overlap_by_hand(p, q, slopes_of_tokens) -> float:
    return math.fsum(np.minimum(p, slopes_of_tokens * q))


def random_pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two laws whose ratios span anything from a bucket to all numbers there are."""
    size = int(rng.integers(1, 40))
    q = rng.dirichlet(np.full(size, 10.0 ** rng.uniform(-1, 1)))
    spread = 10.0 ** rng.uniform(-4, 2.4)
    ratios = np.exp(np.clip(spread * rng.normal(size=size), -600, 600))
    ratios[rng.random(size) < 0.1] = 0.0
    return np.minimum(q * ratios, 1.0), q * (rng.random(size) < 0.95)


class TestSureOverlap:
    def slopes(self, rng, table, p, q):
        """Slopes of groups: near their ratios, or anything."""
        count = int(table.max()) + 1
        slopes = 10.0 ** rng.uniform(-3, 3, count)
        near = rng.random(count) < 0.7
        for i in np.flatnonzero(q):
            g = table[bucket_of(p[i], q[i])]
            if near[g]:
                slopes[g] = p[i] / q[i]
        return slopes

    def found_and_true(self, seed: int) -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        p, q = random_pair(rng)
        sums, _ = sum_buckets(p, q, 1.0, np.inf)
        table, _ = join_buckets(sums, int(rng.integers(1, 60)), 0, 3.0)
        slopes = self.slopes(rng, table, p, q)
        drawn = np.flatnonzero(q)
        per_token = np.zeros(len(p))
        per_token[drawn] = slopes[[table[bucket_of(p[i], q[i])] for i in drawn]]
        return sure_overlap(sums, table, slopes), overlap_by_hand(p, q, per_token)

    def test_is_below_the_true_one(self):
        for seed in range(4000):
            found, true = self.found_and_true(seed)
            assert 0.0 <= found <= true * (1.0 + 1e-13), seed

    def test_is_close(self):
        """Within a quarter of a bucket where ratios are told apart."""
        slack = []
        for seed in range(1000):
            rng = np.random.default_rng(seed)
            size = int(rng.integers(2, 400))
            q = rng.dirichlet(np.ones(size))
            p = q * np.exp(rng.normal(size=size))
            p /= p.sum()
            sums, _ = sum_buckets(p, q, 1.0, np.inf)
            table, count = join_buckets(sums, 60, 0, 3.0)
            slopes = np.exp(rng.normal(size=count))
            true = overlap_by_hand(
                p, q, slopes[[table[bucket_of(*x)] for x in zip(p, q, strict=True)]]
            )
            slack.append(1.0 - sure_overlap(sums, table, slopes) / true)
        assert max(slack) <= 1 / 512
        assert max(slack) > 1e-7

    @pytest.mark.parametrize("bias", [1e-2, 1e-3])
    def test_a_little_more_would_not_be_sure(self, bias):
        """Negative control: what is claimed, a hundredth or a thousandth larger."""
        exceeds = [
            found * (1.0 + bias) > true for found, true in map(self.found_and_true, range(200))
        ]
        assert any(exceeds)

    @pytest.mark.parametrize("ratio", [0.0, 1e-300, 1e-6, 1.0, 1e6, 1e9, 1e300], ids=str)
    @pytest.mark.parametrize("slope", [0.0, 1e-8, 1.0, 1e8], ids=str)
    def test_of_one_token(self, ratio, slope):
        q = 1e-3
        p = min(q * ratio, 1.0)
        sums, _ = sum_buckets(np.array([p]), np.array([q]), 1.0, np.inf)
        table, _ = join_buckets(sums, 4, 0, 3.0)
        found, true = sure_overlap(sums, table, np.array([slope])), min(p, slope * q)
        assert found <= true * (1.0 + 1e-15)
        if LOWEST <= ratio < HIGHEST:
            assert found >= true * (1.0 - 1 / 512)


def test_sums_are_those_of_the_tokens():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(500, 0.1)), rng.dirichlet(np.full(500, 0.1))
    q[:20] = 0.0
    sums, heavy = sum_buckets(p, q, 0.5, HEAVY)
    largest = np.maximum(p, 0.5 * q)
    assert heavy.tolist() == np.flatnonzero((largest >= HEAVY) & (q > 0.0)).tolist()
    light = np.flatnonzero((largest < HEAVY) & (q > 0.0))
    expected = np.zeros((NUM_BUCKETS, 2))
    for i in light:
        expected[bucket_by_hand(p[i] / (0.5 * q[i]))] += p[i], 0.5 * q[i]
    np.testing.assert_allclose(sums, expected, rtol=1e-13)


def test_nothing_can_be_drawn():
    nothing = group_by_ratio(np.ones(3) / 3, np.zeros(3), 1.0, 4, 4, 2.0)
    assert nothing.size == 0
    assert groups_of_tokens(nothing, np.arange(3), np.ones(3) / 3, np.zeros(3)).tolist() == [-1] * 3


def test_the_masses_are_not_modified():
    p, q = np.random.default_rng(0).dirichlet(np.ones(90), 2)
    before = p.tolist(), q.tolist()
    groups = group_by_ratio(p, q, 1.0, 4, 4, 2.0)
    spread_over_tokens(groups, np.ones(groups.size), p, q)
    assert (p.tolist(), q.tolist()) == before
