"""Planned trees are the best of all trees where acceptances depend on the number of siblings."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.analysis import plan_tree, plan_tree_by_count
from mdsd.decoding import TableModel
from mdsd.testing import accepted_law
from mdsd.trees import TreeShape

from .test_planning import KINDS, forests, height, rates, width


def worth(forest, table):
    """Expected accepted drafts of a forest below one node, from the definition."""
    row = table[len(forest) - 1]
    return sum(row[rank] * (1.0 + worth(tree, table)) for rank, tree in enumerate(forest))


def exhaustive(table, budget, max_depth=None, max_branching=None):
    most = min(len(table), max_branching or len(table))
    return max(
        1.0 + worth(forest, table)
        for nodes in range(budget + 1)
        for forest in forests(nodes)
        if height(forest) <= (max_depth or budget) and width(forest) <= most
    )


def tables(kind, seed, ranks):
    rng = np.random.default_rng([107, seed])
    found = np.zeros((ranks, ranks))
    for n in range(1, ranks + 1):
        found[n - 1, :n] = rates(kind, rng, n)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_equals_exhaustive_search(kind, seed):
    table = tables(kind, seed, 4)
    for budget in (1, 2, 5, 7):
        found = plan_tree_by_count(table, budget)
        assert abs(found.expected_tokens - exhaustive(table, budget)) <= 1e-12
        assert found.tree.num_nodes <= budget
        assert abs(tokens_of(found.tree, table) - found.expected_tokens) <= 1e-12
        assert found.tokens_by_budget.shape == (budget + 1,)


def tokens_of(shape, table):
    reached = [1.0]
    for node in range(shape.num_nodes + 1):
        children = shape.children(node)
        reached += [reached[node] * table[len(children) - 1, r] for r in range(len(children))]
    return sum(reached)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limits", [(1, None), (2, None), (None, 1), (None, 2), (3, 2), (9, 9)])
def test_equals_exhaustive_search_within_limits(kind, limits):
    table = tables(kind, 11, 4)
    depth, branching = limits
    found = plan_tree_by_count(table, 6, max_depth=depth, max_branching=branching)
    assert abs(found.expected_tokens - exhaustive(table, 6, *limits)) <= 1e-12
    assert found.tree.depth <= (depth or 6)
    counts = [len(found.tree.children(node)) for node in range(found.tree.num_nodes + 1)]
    assert max(counts) <= (branching or 4)


@pytest.mark.parametrize("budget", [1, 8, 40])
def test_alike_rows_are_planned_as_by_rank(budget):
    by_rank = rates("any", np.random.default_rng(109), 5)
    found = plan_tree_by_count(np.tril(np.tile(by_rank, (5, 1))), budget)
    expected = plan_tree(by_rank, budget)
    np.testing.assert_allclose(found.tokens_by_budget, expected.tokens_by_budget, rtol=1e-14)


def test_the_plan_by_rank_of_the_widest_nodes_is_worse():
    """Rows that differ matter: what is right for two children misleads about one."""
    table = np.array([[0.6, 0.0], [0.4, 0.4]])
    by_rank = plan_tree(table[1], 5)
    assert tokens_of(by_rank.tree, table) < plan_tree_by_count(table, 5).expected_tokens - 0.01


def test_no_node_is_drafted_in_vain():
    assert plan_tree_by_count([[0.0]], 5).tree == TreeShape([-1])
    # Two children are worse than one, three better than both.
    found = plan_tree_by_count([[0.5, 0, 0], [0.2, 0.2, 0], [0.3, 0.3, 0.3]], 3, max_depth=1)
    assert found.tree == TreeShape([-1, 0, 0, 0])
    found = plan_tree_by_count([[0.5, 0, 0], [0.2, 0.2, 0], [0.3, 0.3, 0.3]], 2, max_depth=1)
    assert found.tree == TreeShape([-1, 0])


@pytest.mark.parametrize("verifier", ["optimal", "kseq"])
@pytest.mark.parametrize("budget", [2, 4, 5])
def test_expected_tokens_are_exactly_those_of_a_decoder(verifier, budget):
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    table = np.zeros((3, 3))
    for n in (1, 2, 3):
        draft = mdsd.WithReplacement(q, n)
        plan = mdsd.get_verifier(verifier).plan(p, draft)
        for ids in np.ndindex(*(3,) * n):
            law = plan.output_law(list(ids))
            for token in set(ids):
                table[n - 1, ids.index(token)] += draft.prob(list(ids)) * law[token]
    found = plan_tree_by_count(table, budget)
    law = accepted_law(
        TableModel([p] * 3),
        TableModel([q] * 3),
        [0],
        tree=found,
        draft="with_replacement",
        verifier=verifier,
    )
    assert 1.0 + law @ np.arange(len(law)) == pytest.approx(found.expected_tokens, abs=1e-12)
