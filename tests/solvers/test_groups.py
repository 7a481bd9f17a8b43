"""Groups of tokens: partitions, ordered by ratio, from coarse to fine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solvers.groups import (
    TokenGroups,
    falling_ratio,
    group_by_ratio,
    refined_groups,
    single_tokens,
)


def check_groups(groups: TokenGroups, drafted: np.ndarray) -> None:
    """Check that the drafted tokens, and no others, are each in one group and at one place."""
    sizes = np.diff(groups.starts)
    assert len(groups) == len(sizes)
    assert groups.starts[0] == 0
    assert groups.starts[-1] == len(groups.members)
    assert (sizes > 0).all()
    assert groups.members.dtype == groups.starts.dtype == np.int64
    np.testing.assert_array_equal(np.sort(groups.members), drafted)
    np.testing.assert_array_equal(groups.single, sizes == 1)
    expected_group, expected_place = np.full((2, groups.vocab_size), -1)
    for g in range(len(groups)):
        for place, token in enumerate(groups.members[groups.starts[g] : groups.starts[g + 1]]):
            expected_group[token], expected_place[token] = g, place
    np.testing.assert_array_equal(groups.group, expected_group)
    np.testing.assert_array_equal(groups.place[drafted], expected_place[drafted])


THREE = TokenGroups(7, np.array([5, 2, 0, 6, 3]), np.array([0, 1, 3, 5]))
BROKEN = {
    "left-out": TokenGroups(7, THREE.members[:-1], np.array([0, 1, 3, 4])),
    "twice": TokenGroups(7, np.array([5, 2, 0, 5, 3]), THREE.starts),
    "empty-group": TokenGroups(7, THREE.members, np.array([0, 1, 1, 5])),
    "short": TokenGroups(7, THREE.members, np.array([0, 1, 3])),
}


def test_check_accepts_a_partition():
    check_groups(THREE, np.array([0, 2, 3, 5, 6]))


@pytest.mark.parametrize("groups", BROKEN.values(), ids=BROKEN)
def test_check_notices_what_is_none(groups):
    with pytest.raises((AssertionError, ValueError)):
        check_groups(groups, np.array([0, 2, 3, 5, 6]))


def test_sums_and_orders():
    assert THREE.sums(np.arange(7.0)).tolist() == [5.0, 2.0, 9.0]
    assert THREE.tokens(np.array([2, 0, 1])).tolist() == [6, 3, 5, 2, 0]
    assert THREE.tokens(np.array([1])).tolist() == [2, 0]
    assert THREE.tokens(np.array([], dtype=np.int64)).tolist() == []


def test_single_tokens():
    check_groups(single_tokens(4), np.arange(4))
    check_groups(single_tokens(4, np.array([1, 3])), np.array([1, 3]))
    check_groups(single_tokens(1), np.arange(1))


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


@pytest.mark.parametrize(("num_singles", "num_buckets"), [(1, 1), (2, 3), (7, 2), (16, 16)])
@pytest.mark.parametrize(("target", "hit"), list(itertools.product(KINDS, KINDS)))
def test_group_by_ratio(target, hit, num_singles, num_buckets):
    rng = np.random.default_rng([num_singles, *target.encode(), *hit.encode()])
    p, f = masses_of(rng, target, 60), masses_of(rng, hit, 60)
    groups = group_by_ratio(p, f, num_singles, num_buckets)
    drafted = np.flatnonzero(f)
    check_groups(groups, drafted)
    if len(drafted) <= num_singles + num_buckets:
        assert groups.single.all()
        return
    assert num_singles < len(groups) <= num_singles + num_buckets
    assert groups.starts[: num_singles + 1].tolist() == list(range(num_singles + 1))
    alone, shared = np.split(groups.members, [num_singles])
    half = num_singles // 2
    assert np.count_nonzero(f[alone] >= f[shared].max()) >= half
    assert np.count_nonzero(p[alone] >= p[shared].max()) >= num_singles - half
    with np.errstate(over="ignore"):
        ratio = p[shared] / f[shared]
    assert (ratio[:-1] >= ratio[1:]).all()


def test_buckets_are_quantiles_of_both_shares():
    rng = np.random.default_rng(0)
    p, f = rng.dirichlet(np.ones(5000), 2)
    groups = group_by_ratio(p, 1e-6 * f, 10, 20)
    assert len(groups) == 30
    shares = groups.sums(p)[10:] / groups.sums(p)[10:].sum()
    shares += groups.sums(f)[10:] / groups.sums(f)[10:].sum()
    np.testing.assert_allclose(shares, 0.1, rtol=0.1)


@pytest.mark.parametrize("size", [1, 2, 9, 10, 200, 700])
def test_refined_groups_end_with_every_token_by_itself(size):
    rng = np.random.default_rng(size)
    p, f = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    f[: size // 10] = 0.0
    levels = list(refined_groups(p, f, 2, 8))
    assert len(levels) == max(1, 1 + int(np.ceil(np.log(np.count_nonzero(f) / 10) / np.log(4))))
    for groups in levels:
        check_groups(groups, np.flatnonzero(f))
    assert [bool(groups.single.all()) for groups in levels] == [False] * (len(levels) - 1) + [True]
    counts = [len(groups) for groups in levels]
    assert counts == sorted(set(counts))


def test_falling_ratio_of_extremes():
    numerators = np.array([0.0, 1.0, 1e-300, 5e-324, 0.5])
    denominators = np.array([1e-300, 5e-324, 1e-300, 1e-10, 0.25])
    assert falling_ratio(numerators, denominators).tolist() == [1, 4, 2, 3, 0]
