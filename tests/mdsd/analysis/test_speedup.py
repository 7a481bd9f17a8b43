"""Wall-time factors and what to draft: against sums written out, at every size tried."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd import InvalidArgumentError
from mdsd.analysis import (
    best_depth,
    best_num_drafts,
    expected_tokens,
    expected_tree_tokens,
    iid_expected_tokens,
    speedup,
    tree_speedup,
)
from mdsd.trees import TreeShape

TABLE = {1: 20.0, 4: 23.0, 16: 41.0, 64: 90.0}


def measured(tokens):
    """The table above, interpolated by hand."""
    low = max(count for count in TABLE if count <= tokens)
    if low == tokens:
        return TABLE[low]
    high = min(count for count in TABLE if count > tokens)
    share = (tokens - low) / (high - low)
    return TABLE[low] * (1 - share) + TABLE[high] * share


def test_constant_costs_are_the_published_formula():
    for rate in (0.1, 0.7, 0.95):
        for depth in (1, 3, 9):
            found = speedup([rate] * depth, draft_cost=0.1)
            wanted = (1 - rate ** (depth + 1)) / ((1 - rate) * (1 + depth * 0.1))
            assert found == pytest.approx(wanted, rel=1e-13)


def test_costs_are_added_up():
    rates = [0.9, 0.7, 0.5]
    tokens = expected_tokens(rates)
    found = speedup(rates, draft_cost=2.0, verification_cost=1.5, target_cost=TABLE)
    assert found == pytest.approx(tokens * 20.0 / (3 * 2.0 + 1.5 + 23.0), rel=1e-13)
    by_call = speedup(rates, draft_cost=2.0, verification_cost=1.5, target_cost=measured)
    assert by_call == pytest.approx(found, rel=1e-13)


def test_the_unit_of_time_does_not_matter():
    rates = [0.9, 0.7, 0.5]
    found = speedup(rates, draft_cost=2.0, target_cost=TABLE)
    in_seconds = {tokens: cost / 1000 for tokens, cost in TABLE.items()}
    assert speedup(rates, draft_cost=0.002, target_cost=in_seconds) == pytest.approx(found)


def test_trees_pass_whole_levels():
    tree = TreeShape([-1, 0, 0, 0, 1, 1, 3, 4])
    rates = [0.5, 0.2, 0.1]
    tokens = expected_tree_tokens(tree, rates)
    # The draft passes the root, then nodes 1 and 3, then node 4; the target seven drafts and one.
    cost = {1: 1.0, 2: 1.5, 3: 9.0}
    found = tree_speedup(tree, rates, draft_cost=cost, target_cost=TABLE, verification_cost=0.5)
    assert found == pytest.approx(tokens * 20.0 / (1.0 + 1.5 + 1.0 + 0.5 + measured(8)))
    chain = tree_speedup([1, 1], [0.6], draft_cost=0.2)
    assert chain == pytest.approx(speedup([0.6, 0.6], draft_cost=0.2))


def test_drafting_nothing_is_plain_decoding():
    assert speedup([], draft_cost=3.0, target_cost=TABLE) == 1.0
    assert tree_speedup(TreeShape([-1]), [0.5], draft_cost=3.0) == 1.0


# --- depth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("costs", [{"draft_cost": 0.05}, {"draft_cost": 1.0, "target_cost": TABLE}])
def test_best_depth_tries_all(costs):
    rates = np.linspace(0.95, 0.3, 12)
    found = best_depth(rates, **costs)
    factors = [1.0] + [speedup(rates[:depth], **costs) for depth in range(1, 13)]
    np.testing.assert_allclose(found.speedups, factors, rtol=1e-13)
    assert found.depth == int(np.argmax(factors))
    assert 0 < found.depth < 12
    assert found.speedup == max(found.speedups)
    np.testing.assert_allclose(found.tokens, [expected_tokens(rates[:k]) for k in range(13)])


def test_a_hopeless_draft_is_not_used():
    found = best_depth([0.1] * 5, draft_cost=0.5)
    assert (found.depth, found.speedup) == (0, 1.0)
    assert best_depth([], draft_cost=0.5).depth == 0


# --- number of drafts ----------------------------------------------------------------------------


def test_best_number_of_drafts_in_trees():
    rates, depth = [0.6, 0.75, 0.8, 0.82], 3
    found = best_num_drafts(rates, depth, draft_cost=TABLE, target_cost=TABLE_LONG)
    for n, rate in enumerate(rates, start=1):
        widths = [n, n**2, n**3]
        step = sum(measured(count) for count in [1, *widths[:-1]])
        step += float(np.interp(1 + sum(widths), list(TABLE_LONG), list(TABLE_LONG.values())))
        wanted = iid_expected_tokens(rate, depth) * TABLE_LONG[1] / step
        assert found.speedups[n] == pytest.approx(wanted, rel=1e-12)
    assert found.num_drafts == int(np.argmax(found.speedups))


TABLE_LONG = {1: 500.0, 20: 520.0, 200: 600.0}


def test_best_number_of_chains():
    rates = [0.6, 0.75, 0.8]
    found = best_num_drafts(
        rates, 3, layout="chains", draft_cost=1.0, target_cost=TABLE_LONG, verification_cost=2.0
    )
    for n, first in enumerate(rates, start=1):
        tokens = expected_tokens([first, 0.6, 0.6])
        step = 3.0 + 2.0 + float(np.interp(1 + 3 * n, list(TABLE_LONG), list(TABLE_LONG.values())))
        assert found.tokens[n] == pytest.approx(tokens)
        assert found.speedups[n] == pytest.approx(tokens * 500.0 / step, rel=1e-12)


@pytest.mark.parametrize("layout", ["tree", "chains"])
def test_measured_acceptances_by_depth_are_taken_as_they_are(layout):
    measured_rates = [[0.6, 0.5], [0.8, 0.55]]
    found = best_num_drafts(measured_rates, 2, layout=layout, draft_cost=0.1)
    np.testing.assert_allclose(found.tokens, [1.0, *map(expected_tokens, measured_rates)])
    assert found.num_drafts == 2


def test_no_number_of_drafts_may_be_best():
    found = best_num_drafts([0.1, 0.15], 2, draft_cost=0.5)
    assert (found.num_drafts, found.speedup) == (0, 1.0)


# --- costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "word"),
    [
        ({2: 1.0, 8: 2.0}, "target_cost starts at 2 tokens; the cost of 1 is needed"),
        ({1: 1.0, 2: 2.0}, "target_cost ends at 2 tokens; the cost of 4 is needed"),
        ({1: 1.0}, "target_cost ends at 1 token; the cost of 4 is needed"),
        ({1: 1.0, 4: 0.0}, "target_cost[4] is 0.0; expected a finite number > 0"),
        ({1.5: 1.0}, "number of tokens in target_cost is 1.5; expected an integer >= 1"),
        ({}, "target_cost is empty"),
        (lambda tokens: -tokens, "target_cost(4) is -4; expected a finite number > 0"),
        (lambda tokens: None, "target_cost(4) is None"),
        (0.0, "target_cost is 0.0; expected a finite number > 0, a table or a function"),
    ],
)
def test_costs_that_do_not_serve(cost, word):
    with pytest.raises(InvalidArgumentError) as caught:
        speedup([0.5] * 3, draft_cost=0.1, target_cost=cost)
    assert word in str(caught.value)


def test_a_free_draft_is_allowed():
    assert speedup([0.5], draft_cost=0.0) == 1.5
    assert speedup([0.5], draft_cost={1: 0.0}) == 1.5
