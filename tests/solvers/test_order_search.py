"""The compiled search for lotteries over orders of groups, against exact optima."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mdsd._solvers.group_hits import hits_of_groups
from mdsd._solvers.grouped_law import GroupedLaw, with_fewer_nodes
from mdsd._solvers.law_parts import draws_without_replacement, independent_draws
from mdsd._solvers.order_search import FoundOrders, search_orders
from mdsd._solvers.polymatroid import minimum_norm_lottery, norm_weights

from .grouped_laws import PARTS, grouped, instances


def search(law: GroupedLaw, tolerance: float, limit: int, every: int) -> FoundOrders:
    """Search with one node in time of so many."""
    coarse = with_fewer_nodes(law, every) if every > 1 else law
    return search_orders(law, coarse, tolerance, limit)


def cut_of(law: GroupedLaw, subset: np.ndarray) -> float:
    """Value of subset selection at a union of groups, with all the nodes there are."""
    order = np.argsort(subset, kind="stable")
    return law.targets[subset].sum() + hits_of_groups(order, law)[0][np.count_nonzero(~subset)]


def least_cut(law: GroupedLaw) -> float:
    """Least value of subset selection, over all unions of groups."""
    size = len(law.targets)
    subsets = itertools.product([False, True], repeat=size)
    return min(cut_of(law, np.array(subset)) for subset in subsets)


def attained_by(law: GroupedLaw, found: FoundOrders) -> float:
    """``sum min(p, m^)`` over groups, of the lottery as it is."""
    # With few nodes, or in the last digit, hits need not grow.
    mixed = np.zeros(len(law.targets))
    for order, weight in zip(found.orders.astype(np.int64), found.weights, strict=True):
        gains = np.diff(hits_of_groups(order, law)[0])
        mixed[order] += weight * np.maximum(gains, 0.0)
    return np.minimum(mixed, law.targets).sum()


def check_found(law: GroupedLaw, found: FoundOrders, every: int) -> None:
    """Check that it is a lottery, and that its bound is one."""
    size = len(law.targets)
    assert found.weights.min() > 0.0
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.orders.shape == (len(found.weights), size)
    assert (np.sort(found.orders, axis=1) == np.arange(size)).all()
    coarse = with_fewer_nodes(law, every) if every > 1 else law
    assert found.attained == pytest.approx(attained_by(coarse, found), abs=1e-12)
    assert found.subset.shape == (size,)
    assert found.upper == pytest.approx(cut_of(law, found.subset), abs=1e-12)
    assert attained_by(law, found) <= found.upper + 1e-12


def random_law(seed: int, kind: str, most: int = 6) -> GroupedLaw:
    """Up to twelve groups or so of a law of 40 tokens."""
    rng = np.random.default_rng([seed, *kind.encode()])
    masses = np.exp(rng.choice([0.5, 1.5, 3.0]) * rng.normal(size=(4, 40)))
    masses /= masses.sum(axis=1, keepdims=True)
    target = masses[3]
    if kind == "draws":
        # All but ten in one group or two.
        masses[0, 10:] *= 1e-3
        part = draws_without_replacement(masses[0] / masses[0].sum(), 2)
    else:
        part = independent_draws(masses[:3], 3)
    return grouped(target, [part], most, most - 1).law


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("name", PARTS)
def test_small_laws(name, every):
    for case in instances(name, 2):
        found = search(case.law, 1e-9, 60, every)
        check_found(case.law, found, every)
        optimum = least_cut(case.law)
        assert found.upper >= optimum - 1e-12
        assert attained_by(case.law, found) <= optimum + 1e-12
        if every == 1:
            assert found.upper == pytest.approx(optimum, abs=1e-8)
            assert found.attained == pytest.approx(optimum, abs=1e-8)


@pytest.mark.parametrize("kind", ["draws", "independent"])
@pytest.mark.parametrize("seed", range(6))
class TestAgainstTheMinimumNorm:
    def exact(self, law):
        return minimum_norm_lottery(
            law.targets,
            lambda order: hits_of_groups(order, law)[0],
            np.argsort(-law.targets / law.likely),
            norm_weights(law.targets, np.minimum(law.likely, 1.0)),
            tolerance=1e-11,
        )

    def test_to_the_tolerance(self, kind, seed):
        law = random_law(seed, kind)
        exact = self.exact(law)
        for tolerance in (1e-2, 1e-4, 1e-6):
            found = search(law, tolerance, 200, 1)
            check_found(law, found, 1)
            assert found.upper - found.attained <= tolerance
            assert found.attained <= exact.upper + 1e-12
            assert found.upper >= exact.attained - 1e-12

    def test_a_wide_tolerance_takes_fewer_orders(self, kind, seed):
        law = random_law(seed, kind)
        counts = [search(law, tolerance, 200, 1).iterations for tolerance in (1.0, 1e-6)]
        assert counts[0] == 1
        assert counts[0] <= counts[1] <= 200

    def test_no_more_orders_than_given(self, kind, seed):
        law = random_law(seed, kind)
        for limit in (1, 2, 5):
            found = search(law, 0.0, limit, 1)
            assert found.iterations <= limit
            check_found(law, found, 1)

    @pytest.mark.parametrize("every", [2, 3, 4])
    def test_the_bound_is_one_with_few_nodes_too(self, kind, seed, every):
        law = random_law(seed, kind)
        found = search(law, 1e-4, 80, every)
        check_found(law, found, every)
        assert found.upper >= self.exact(law).attained - 1e-12


def test_with_few_nodes_alone_the_bound_would_be_none():
    """Why the bound is found with all of them: the least cut of the others may be too low."""
    below = []
    for seed in range(12):
        law = random_law(seed, "draws")
        fewer = search(with_fewer_nodes(law, 4), 1e-4, 80, 1)
        below.append(cut_of(law, fewer.subset) - fewer.upper)
        assert search(law, 1e-4, 80, 4).upper >= fewer.upper - 1e-2
    assert max(below) > 1e-6


@pytest.mark.parametrize("wrong", ["weights", "attained", "upper", "subset", "orders"])
def test_check_notices_a_wrong_answer(wrong):
    """Negative controls of `check_found`."""
    law = random_law(4, "independent")
    found = search(law, 1e-6, 100, 1)
    check_found(law, found, 1)
    assert len(found.weights) > 1
    value = getattr(found, wrong)
    if wrong == "subset":
        changed = ~value
    elif wrong == "orders":
        changed = value[::-1]
    elif wrong == "weights":
        changed = np.append(value[0] - 0.5 + 0.6, value[1:])
    else:
        changed = value - 1e-9
    with pytest.raises(AssertionError):
        check_found(law, found._replace(**{wrong: changed}), 1)


@pytest.mark.parametrize("n", [2, 4, 16])
@pytest.mark.parametrize("every", [1, 3])
def test_a_large_vocabulary(n, every):
    rng = np.random.default_rng(n)
    logits = 3.0 * rng.normal(size=20_000)
    masses = np.exp([logits, logits + rng.normal(size=20_000)])
    target, weights = masses / masses.sum(axis=1, keepdims=True)
    law = draws_without_replacement(weights, n).group(target, 48, 48)
    found = search(law, 3e-4, 80, every)
    check_found(law, found, every)
    assert found.upper - found.attained <= (4e-4 if n < 16 else 1e-2)


def test_target_and_draws_have_nothing_in_common():
    target, weights = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.4, 0.6])
    law = draws_without_replacement(weights, 2).group(target, 9, 9)
    found = search(law, 1e-9, 20, 1)
    assert (found.attained, found.upper) == (0.0, 0.0)
    assert found.subset.all()


def test_one_group():
    law = independent_draws(np.ones((1, 1)), 2).group(np.ones(1), 4, 4)
    found = search(law, 1e-9, 20, 1)
    assert found.orders.tolist() == [[0]]
    assert (found.attained, found.upper, found.iterations) == (1.0, 1.0, 1)
