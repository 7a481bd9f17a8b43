"""Planned trees are the best of all trees: exhaustive search, greedy search, and limits."""

from __future__ import annotations

import heapq
import itertools
from functools import cache

import numpy as np
import pytest

from mdsd.analysis import expected_tree_tokens, plan_tree
from mdsd.trees import TreeShape, read_tree


@cache
def forests(nodes):
    """All ordered forests of a number of nodes, as tuples of the forests below each root."""
    if nodes == 0:
        return ((),)
    return tuple(
        (first, *others)
        for below in range(nodes)
        for first in forests(below)
        for others in forests(nodes - 1 - below)
    )


def height(forest):
    return max((1 + height(tree) for tree in forest), default=0)


def width(forest):
    return max([len(forest), *(width(tree) for tree in forest)])


def worth(forest, acceptance, depth=0):
    """Expected accepted drafts of a forest below one node, from the definition."""
    row = acceptance if acceptance.ndim == 1 or not forest else acceptance[depth]
    total = 0.0
    for rank, tree in enumerate(forest):
        total += row[rank] * (1.0 + worth(tree, acceptance, depth + 1))
    return total


def exhaustive(acceptance, budget, max_depth=None, max_branching=None):
    """Most expected tokens over all trees up to a budget."""
    ranks = acceptance.shape[-1]
    depths = len(acceptance) if acceptance.ndim == 2 else budget
    depths = min(depths, max_depth or budget)
    ranks = min(ranks, max_branching or ranks)
    return max(
        1.0 + worth(forest, acceptance)
        for nodes in range(budget + 1)
        for forest in forests(nodes)
        if height(forest) <= depths and width(forest) <= ranks
    )


def rates(kind, rng, ranks, depths=None):
    """Acceptances by rank that rise or fall, with zeros or without."""
    found = rng.dirichlet(np.full(ranks + 1, 0.7), depths)[..., :ranks]
    if kind == "falling":
        return -np.sort(-found, axis=-1)
    if kind == "rising":
        return np.sort(found, axis=-1)
    if kind == "zeros":
        return np.where(rng.random(found.shape) < 0.4, 0.0, found)
    return found


def test_the_exhaustive_search_knows_all_trees():
    assert [len(forests(n)) for n in range(8)] == [1, 1, 2, 5, 14, 42, 132, 429]  # Catalan numbers


KINDS = ("any", "falling", "rising", "zeros")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_equals_exhaustive_search(kind, seed):
    rng = np.random.default_rng([73, seed])
    acceptance = rates(kind, rng, ranks=4)
    for budget in (1, 2, 5, 7):
        found = plan_tree(acceptance, budget)
        assert abs(found.expected_tokens - exhaustive(acceptance, budget)) <= 1e-12
        assert found.tree.num_nodes <= budget


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_equals_exhaustive_search_by_depth(kind, seed):
    rng = np.random.default_rng([79, seed])
    for depths in (1, 2, 4):
        acceptance = rates(kind, rng, ranks=3, depths=depths)
        found = plan_tree(acceptance, 6)
        assert abs(found.expected_tokens - exhaustive(acceptance, 6)) <= 1e-12
        assert found.tree.depth <= depths


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", [(1, None), (2, None), (None, 1), (None, 2), (3, 2), (9, 9)])
def test_equals_exhaustive_search_within_limits(kind, limits):
    rng = np.random.default_rng(83)
    depth, branching = limits
    for depths in (None, 5):
        acceptance = rates(kind, rng, ranks=4, depths=depths)
        found = plan_tree(acceptance, 6, max_depth=depth, max_branching=branching)
        assert abs(found.expected_tokens - exhaustive(acceptance, 6, *limits)) <= 1e-12
        assert found.tree.depth <= (depth or 6)
        counts = [len(found.tree.children(node)) for node in range(found.tree.num_nodes + 1)]
        assert max(counts) <= (branching or 4)


def test_the_tree_is_worth_what_is_said():
    rng = np.random.default_rng(89)
    for depths, budget in itertools.product((None, 6), (1, 13, 64)):
        acceptance = rates("any", rng, ranks=7, depths=depths)
        found = plan_tree(acceptance, budget)
        tokens = expected_tree_tokens(found.tree, acceptance)
        assert found.expected_tokens == pytest.approx(tokens, rel=1e-13)
        assert read_tree(found) == found.tree


def test_every_smaller_budget_is_planned_too():
    acceptance = rates("any", np.random.default_rng(97), ranks=5)
    found = plan_tree(acceptance, 20)
    assert found.tokens_by_budget.shape == (21,)
    assert found.tokens_by_budget[0] == 1.0
    for budget in range(1, 21):
        alone = plan_tree(acceptance, budget).expected_tokens
        assert abs(found.tokens_by_budget[budget] - alone) <= 1e-13


def greedy(acceptance, budget):
    """The nodes that are worth most: a tree where acceptance falls with rank."""
    total, heap = 1.0, [(-acceptance[0], 1.0, 0)]
    for _ in range(budget):
        negative, above, rank = heapq.heappop(heap)
        total -= negative
        heapq.heappush(heap, (negative * acceptance[0], -negative, 0))
        if rank + 1 < len(acceptance):
            heapq.heappush(heap, (-above * acceptance[rank + 1], above, rank + 1))
    return total


@pytest.mark.parametrize("budget", [64, 256])
@pytest.mark.parametrize("ranks", [1, 3, 32, 256])
def test_large_budgets_equal_greedy_search_where_acceptance_falls(budget, ranks):
    rng = np.random.default_rng([101, ranks])
    acceptance = 0.95 * -np.sort(-rng.dirichlet(np.full(ranks, 0.2)))
    found = plan_tree(acceptance, budget)
    assert found.expected_tokens == pytest.approx(greedy(acceptance, budget), rel=1e-12)


def test_limits_that_do_not_bind_change_nothing():
    acceptance = rates("any", np.random.default_rng(103), ranks=6)
    free = plan_tree(acceptance, 40)
    by_depth = plan_tree(np.tile(acceptance, (40, 1)), 40)
    nearly = plan_tree(acceptance, 40, max_depth=39, max_branching=6)
    for other in (by_depth, nearly):
        np.testing.assert_allclose(other.tokens_by_budget, free.tokens_by_budget, rtol=1e-14)


def test_no_node_is_drafted_in_vain():
    assert plan_tree([0.0, 0.0], 5).tree == TreeShape([-1])
    assert plan_tree([1.0, 0.0], 5, max_depth=2).tree == TreeShape.chain(2)
    # The second child is worth something, so the first must be there, but has no children.
    assert plan_tree([0.0, 0.5], 4).tree.parents == (-1, 0, 0, 2, 2)


def test_one_rank_is_a_chain():
    found = plan_tree([0.7], 3)
    assert found.tree == TreeShape.chain(3)
    assert found.expected_tokens == pytest.approx(2.533, abs=1e-12)
