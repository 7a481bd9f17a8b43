"""Independent draws seen by groups, against enumeration in fractions and plain products."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.grouped_independent import GroupedIndependent, refined_independent
from solvers.groups import TokenGroups, group_by_ratio, single_tokens

from . import exact_laws
from .exact_laws import lottery_of, random_groups, random_lottery, token_orders


def product_hits(laws: np.ndarray, order: np.ndarray) -> np.ndarray:
    """1 - prod (1 - q_j(A)) for every prefix A, with the masses left summed from the back."""
    left = np.cumsum(laws[:, order][:, ::-1], axis=1)[:, ::-1]
    return 1.0 - np.append(left, np.zeros((len(laws), 1)), axis=1).prod(axis=0)


def point(size: int, token: int) -> np.ndarray:
    masses = np.zeros(size)
    masses[token] = 1.0
    return masses


RNG = np.random.default_rng(0)
LAWS = {
    "flat": RNG.dirichlet(np.ones(5), 3),
    "peaked": RNG.dirichlet(np.full(5, 0.1), 3),
    "two": RNG.dirichlet(np.ones(5), 2),
    "four": RNG.dirichlet(np.ones(4), 4),
    "alone": RNG.dirichlet(np.ones(5), 1),
    "same": np.tile(RNG.dirichlet(np.ones(5)), (3, 1)),
    "equal": np.full((3, 5), 0.2),
    "disjoint": np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]),
    "points": np.array([point(4, 1), point(4, 1), point(4, 3)]),
    "one-heavy": np.array([[1 - 2e-12, 1e-12, 1e-12, 0.0], [1e-12, 0.0, 1 - 2e-12, 1e-12]]),
    "scales": np.array([[1e-300, 1e-100, 0.5, 0.5], [0.5, 5e-324, 1e-20, 0.5]]),
    "zeros": np.array([[0.0, 0.3, 0.0, 0.7, 0.0], [0.4, 0.0, 0.0, 0.6, 0.0]]),
    "one": np.ones((3, 1)),
}


def instances(laws, count=4):
    """Random groups of the tokens that can be drawn, with a random lottery over their orders."""
    for seed in range(count):
        rng = np.random.default_rng([seed, *laws.shape])
        groups = random_groups(rng, np.flatnonzero(laws.sum(axis=0)), laws.shape[1])
        yield GroupedIndependent(laws, groups), random_lottery(rng, len(groups))


def token_selection(law: GroupedIndependent, lottery) -> np.ndarray:
    selected = np.zeros(law.groups.vocab_size)
    selected[law.groups.members] = law.select(lottery.orders, lottery.weights_by_token).of_all()
    return selected


@pytest.mark.parametrize("laws", LAWS.values(), ids=LAWS)
class TestAgainstEnumeration:
    def test_selection(self, laws):
        exact = exact_laws.independent_draws(laws)
        for law, lottery in instances(laws):
            expected = exact_laws.selection(exact, law.groups, lottery)
            # A sum of positive terms throughout: small masses keep their digits too.
            np.testing.assert_allclose(
                token_selection(law, lottery), expected, rtol=2e-15, atol=1e-320
            )

    def test_prefix_hits(self, laws):
        exact = exact_laws.independent_draws(laws)
        for law, lottery in instances(laws):
            order = lottery.orders[0].astype(np.int64)
            ahead = [set(law.groups.tokens(order[:k]).tolist()) for k in range(len(order) + 1)]
            expected = [float(exact_laws.hit(exact, tokens)) for tokens in ahead]
            np.testing.assert_allclose(law.prefix_hits(order), expected, rtol=2e-15, atol=1e-320)

    def test_group_hits(self, laws):
        exact = exact_laws.independent_draws(laws)
        for law, _ in instances(laws):
            starts, members = law.groups.starts, law.groups.members.tolist()
            alone = [set(members[starts[g] : starts[g + 1]]) for g in range(len(law.groups))]
            expected = [float(exact_laws.hit(exact, tokens)) for tokens in alone]
            np.testing.assert_allclose(law.group_hits(), expected, rtol=0, atol=1e-15)

    def test_group_by_group(self, laws):
        for law, lottery in instances(laws):
            selection, starts = (
                law.select(lottery.orders, lottery.weights_by_token),
                law.groups.starts,
            )
            pieces = [selection.of_group(g) for g in range(len(starts) - 1)]
            assert [len(piece) for piece in pieces] == np.diff(starts).tolist()
            assert np.concatenate(pieces).tolist() == selection.of_all().tolist()


@pytest.mark.parametrize("wrong", ["one direction", "other weights", "other draws"])
def test_the_enumeration_tells_lotteries_apart(wrong):
    """Negative control of the comparison above."""
    laws = LAWS["flat"]
    exact = exact_laws.independent_draws(laws)
    groups = TokenGroups(5, np.array([4, 0, 1, 2, 3]), np.array([0, 3, 4, 5]))
    orders, chances = np.array([[2, 0, 1], [1, 2, 0]]), np.array([0.3, 0.7])
    found = token_selection(GroupedIndependent(laws, groups), lottery_of(orders, chances))
    if wrong == "one direction":
        split = single_tokens(5, groups.members)
        orders = np.array([[4, 0, 1, 2, 3], [3, 4, 0, 1, 2]])
        expected = exact_laws.selection(exact, split, lottery_of(orders, chances))
    elif wrong == "other weights":
        expected = exact_laws.selection(exact, groups, lottery_of(orders, chances[::-1]))
    else:
        fewer = exact_laws.independent_draws(laws[:2])
        expected = exact_laws.selection(fewer, groups, lottery_of(orders, chances))
    assert np.abs(found - expected).max() > 1e-3
    assert expected.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize(("n", "size"), [(2, 20_000), (3, 20_000), (16, 3000), (64, 600)], ids=str)
class TestLargeVocabularies:
    def problem(self, n, size):
        rng = np.random.default_rng(size + n)
        laws = np.exp(3.0 * rng.normal(size=(n + 1, size)))
        laws /= laws.sum(axis=1, keepdims=True)
        groups = group_by_ratio(laws[n], laws[:n].sum(axis=0), size // 20, size // 20)
        return GroupedIndependent(laws[:n], groups), rng.permutation(len(groups)), laws[:n]

    def test_selection_is_a_law(self, n, size):
        law, order, _ = self.problem(n, size)
        orders = np.array([order, order[::-1]])
        found = token_selection(law, lottery_of(orders, np.array([0.4, 0.6])))
        assert found.sum() == pytest.approx(1.0, abs=1e-13)

    def test_selection_of_an_order_is_differences_of_prefix_hits(self, n, size):
        law, order, laws = self.problem(n, size)
        expected = np.zeros(size)
        for spelled in token_orders(law.groups, order):
            expected[spelled] += np.diff(product_hits(laws, np.array(spelled))) / 2.0
        found = token_selection(law, lottery_of(order[np.newaxis], np.ones(1)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
        assert np.abs(found - expected).sum() < 1e-11

    def test_prefix_hits(self, n, size):
        law, order, laws = self.problem(n, size)
        ends = np.concatenate([[0], np.cumsum(np.diff(law.groups.starts)[order])])
        expected = product_hits(laws, law.groups.tokens(order))[ends]
        np.testing.assert_allclose(law.prefix_hits(order), expected, rtol=0, atol=1e-13)


def test_refined_independent_ends_with_single_tokens():
    rng = np.random.default_rng(0)
    laws = np.exp(2.0 * rng.normal(size=(3, 4000)))
    laws[:2, :90] = 0.0
    laws[1, :50] = 0.0
    laws /= laws.sum(axis=1, keepdims=True)
    levels = list(refined_independent(laws[2], laws[:2]))
    counts = [len(law.groups) for law in levels]
    assert len(counts) == 2
    assert 1024 < counts[0] <= 2048
    assert counts[1] == 3910
    assert levels[-1].groups.single.all()


def test_the_laws_are_not_modified():
    laws = LAWS["flat"].copy()
    laws.setflags(write=False)
    groups = TokenGroups(5, np.array([3, 1, 2, 0, 4]), np.array([0, 2, 5]))
    law = GroupedIndependent(laws, groups)
    order = np.array([1, 0])
    order.setflags(write=False)
    first = token_selection(law, lottery_of(order[np.newaxis], np.ones(1))).tolist()
    law.prefix_hits(order)
    assert token_selection(law, lottery_of(order[np.newaxis], np.ones(1))).tolist() == first
