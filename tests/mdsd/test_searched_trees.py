"""Trees drawn from recorded positions, and the search for the best shape on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import datasets
from mdsd.analysis import expected_tree_tokens, plan_tree, plan_tree_by_count
from mdsd.decoding import TableModel
from mdsd.decoding.preference import worth_below
from mdsd.decoding.verification import step_verification
from mdsd.drafts import read_kind
from mdsd.studies.output import picture
from mdsd.studies.planning.acceptance import measured_acceptance, measuring_settings
from mdsd.studies.planning.plots import plan_figure
from mdsd.studies.planning.recorded import RecordedTrees, recorded_trees
from mdsd.studies.planning.search import (
    SearchedTree,
    _neighbours,
    _starts,
    optimal_starts,
    searched_tree,
)
from mdsd.studies.planning.trees import PlanLimits
from mdsd.testing import accepted_law
from mdsd.trees import TreeShape

from .analysis.test_planning import forests, height, width

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
Q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.25, 0.5, 0.25]])
DRAFTS = ("with_replacement", "without_replacement")
VERIFIERS = ("layers", "block", "traversal", "optimal", "rrs")


def drawn_from(draft: str, seed: int = 0, positions: int = 3) -> RecordedTrees:
    return RecordedTrees(P[:positions], Q[:positions], read_kind(draft), seed)


def test_trees_know_what_was_planned_below_their_nodes():
    """As those of decoders: `layers` prefers drafts with more below them."""
    shape = TreeShape([-1, 0, 0, 1, 3])
    tree = drawn_from(DRAFTS[0]).draw(shape, 0)
    assert tree.worths.tolist() == worth_below(shape).tolist()


def strings(tree: Any) -> list[tuple[int, ...]]:
    return [
        tuple(tree.token_ids[list(tree.shape.path(node))].tolist())
        for node in range(tree.shape.num_nodes + 1)
    ]


def shape_of(forest: Any) -> TreeShape:
    paths = []

    def walk(below: Any, path: tuple[int, ...]) -> None:
        for rank, tree in enumerate(below):
            paths.append((*path, rank))
            walk(tree, (*path, rank))

    walk(forest, ())
    return TreeShape.from_paths(paths)


# --- drawn trees ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_string_has_one_position(draft):
    """Whatever the shape: trees of one number differ where their shapes do, and nowhere else."""
    trees = drawn_from(draft)
    rows: dict[tuple[int, ...], Any] = {}
    for branching in ([3, 2], [2, 2, 1], [1, 3]):
        tree = trees.draw(TreeShape.from_branching(branching), 5)
        assert tree.shape.branching == tuple(branching)
        for node, string in enumerate(strings(tree)):
            row = rows.setdefault(string, tree.target_probs[node])
            assert (tree.target_probs[node] == row).all()
    assert len({tuple(row) for row in rows.values()}) == 3


@pytest.mark.parametrize("draft", DRAFTS)
def test_shapes_share_what_they_have_in_common(draft):
    trees = drawn_from(draft)
    small, large = TreeShape.from_branching([2, 1, 1]), TreeShape.from_branching([3, 2, 1])
    for number in range(20):
        few, many = (strings(trees.draw(shape, number)) for shape in (small, large))
        assert few[1:3] == many[1:3]  # the first children of the root
        assert few[3] == many[4]  # the first child of the first


def test_numbers_and_seeds_are_independent():
    shape = TreeShape.from_branching([2, 2])
    drawn = {
        (seed, number): tuple(strings(drawn_from("with_replacement", seed).draw(shape, number)))
        for seed in (0, 1)
        for number in range(30)
    }
    assert len(set(drawn.values())) > 40
    again = drawn_from("with_replacement", 1).draw(shape, 3)
    assert tuple(strings(again)) == drawn[1, 3]


def test_where_fewer_tokens_can_be_drawn_the_others_and_all_below_them_are_missing():
    trees = RecordedTrees(P, np.array([[0.5, 0.5, 0.0]] * 3), read_kind(DRAFTS[1]), 0)
    tree = trees.draw(TreeShape([-1, 0, 0, 0, 1, 3, 4]), 0)
    assert tree.shape.parents == (-1, 0, 0, 1, 3)
    assert [law is None for law in tree.laws] == [False, False, True, False, True]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("draft", DRAFTS)
def test_means_are_those_of_a_decoder(draft, verifier):
    """Of one position, whose laws do not depend on the prefix: within 5 standard errors."""
    shape = TreeShape([-1, 0, 0, 1, 1, 2])
    found = drawn_from(draft, 3, positions=1).accepted(
        step_verification(verifier), shape, range(400)
    )
    law = accepted_law(
        TableModel([P[0]] * 3),
        TableModel([Q[0]] * 3),
        [0],
        tree=shape,
        draft=draft,
        verifier=verifier,
    )
    exact = law[:0:-1].cumsum()[::-1]
    error = found.std(axis=0, ddof=1) / 20.0
    assert (np.abs(found.mean(axis=0) - exact) <= 5.0 * error).all()
    assert (np.abs(found.mean(axis=0) - 1.2 * exact) > 5.0 * error).any()


def test_the_mean_over_positions_is_what_planning_by_rank_takes_it_to_be():
    rates = np.mean(
        [
            np.diff(
                [
                    0.0,
                    *(
                        mdsd.get_verifier("rrs").plan(p, mdsd.WithReplacement(q, n)).acceptance_rate
                        for n in (1, 2)
                    ),
                ]
            )
            for p, q in zip(P, Q, strict=True)
        ],
        axis=0,
    )
    shape = TreeShape.from_branching([2, 1])
    found = drawn_from("with_replacement").accepted(step_verification("rrs"), shape, range(800))
    tokens = found.sum(axis=1)
    error = tokens.std(ddof=1) / np.sqrt(800)
    expected = expected_tree_tokens(shape, rates)
    # Tokens drafted twice are the same string, whose second node adds nothing to the first.
    assert abs(1.0 + tokens.mean() - expected) <= 5.0 * error


def test_of_many_positions_some_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("mdsd.studies.planning.recorded._MOST_POSITIONS", 2)
    np.savez(tmp_path / "data.npz", target_probs=P, draft_probs=Q)
    data = datasets.open_source(tmp_path / "data.npz")
    trees = recorded_trees(data, measuring_settings(data, verifier="layers", ranks=2))
    shape = TreeShape.from_branching([2, 1])
    rows = [tuple(trees.draw(shape, n).target_probs[k]) for n in range(20) for k in range(4)]
    assert len(set(rows)) == 2
    assert set(rows) < {tuple(row) for row in P}


# --- neighbours ----------------------------------------------------------------------------------


def moved(forest: Any) -> set[Any]:
    """All forests with one leaf elsewhere or one leaf more; only last children are taken away."""

    def grown(below: Any) -> set[Any]:
        found = {(*below, ())}
        for k, tree in enumerate(below):
            found |= {(*below[:k], more, *below[k + 1 :]) for more in grown(tree)}
        return found

    def pruned(below: Any) -> set[Any]:
        found = {below[:-1]} if below and below[-1] == () else set()
        for k, tree in enumerate(below):
            found |= {(*below[:k], less, *below[k + 1 :]) for less in pruned(tree)}
        return found

    return {more for less in pruned(forest) for more in grown(less)}


@pytest.mark.parametrize("limits", [{}, {"max_depth": 2}, {"max_depth": 3}])
def test_neighbours_are_all_that_have_one_leaf_elsewhere(limits):
    rates = np.array([0.6, 0.2, 0.1])
    for forest in forests(5):
        if height(forest) > limits.get("max_depth", 5) or width(forest) > 3:
            continue
        shape = shape_of(forest)
        found = _neighbours(shape, rates, PlanLimits(budget=5, **limits))
        expected = {
            shape_of(other)
            for other in moved(forest)
            if height(other) <= limits.get("max_depth", 5) and width(other) <= 3
        } - {shape}
        assert set(found) - {shape} == expected


def test_where_nodes_are_to_spare_neighbours_grow():
    found = _neighbours(TreeShape.chain(2), np.array([0.6, 0.2]), PlanLimits(budget=3))
    assert {shape.num_nodes for shape in found} == {2, 3}
    # What loses least by acceptance comes first: here the third node of a chain.
    assert found[0] == TreeShape.chain(3)


# --- search --------------------------------------------------------------------------------------


def searched(folder: Any, verifier: str, draft: str, budget: int, **more: Any) -> SearchedTree:
    np.savez(folder / "data.npz", target_probs=P[:1], draft_probs=Q[:1])
    data = datasets.open_source(folder / "data.npz")
    limits = {key: more.pop(key) for key in ("max_depth", "max_branching") if key in more}
    progress = more.pop("progress", None)
    settings = measuring_settings(data, verifier=verifier, draft=draft, ranks=3, **more)
    acceptance = measured_acceptance(data, settings)
    trees = recorded_trees(data, settings)
    return searched_tree(trees, acceptance, PlanLimits(budget, **limits), settings, progress)


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [
        ("with_replacement", "block"),
        ("without_replacement", "layers"),
        ("without_replacement", "traversal"),
    ],
)
def test_the_best_of_all_trees_is_found(tmp_path, draft, verifier):
    """By exact values of all trees of 4 nodes that can be drafted here, up to noise."""

    def exact(shape: TreeShape) -> float:
        law = accepted_law(
            TableModel(P[[0] * 3]),
            TableModel(Q[[0] * 3]),
            [0],
            tree=shape,
            draft=draft,
            verifier=verifier,
        )
        return float(law @ np.arange(len(law)))

    found = searched(tmp_path, verifier, draft, 4, trees=200)
    values = {
        shape: exact(shape)
        for shape in (shape_of(forest) for forest in forests(4) if width(forest) <= 3)
    }
    assert values[found.plan.tree] >= max(values.values()) - 0.05
    assert min(values.values()) < max(values.values()) - 0.1
    error = found.plan.stderr
    assert abs(found.plan.expected_tokens - 1.0 - values[found.plan.tree]) <= 5.0 * error


@pytest.mark.parametrize("limits", [{}, {"max_depth": 1}, {"max_depth": 3}])
@pytest.mark.parametrize("budget", [1, 2, 7, 16])
def test_starts_are_within_limits(budget, limits):
    rates = np.array([0.6, 0.2, 0.1])
    found = [shape for shape, _ in _starts(rates, PlanLimits(budget, **limits))]
    assert found[0] == plan_tree(rates, budget, **limits).tree
    for shape in found:
        assert 1 <= shape.num_nodes <= budget
        assert shape.depth <= limits.get("max_depth", budget)
        assert max(len(shape.children(n)) for n in range(shape.num_nodes)) <= 3
    if budget == 7 and not limits:
        assert {TreeShape.chain(7), TreeShape([-1, 0, 0, 1, 2, 3, 4, 5])} < set(found)
        assert TreeShape([-1, 0, 0, 0, 1, 2, 3, 4]) in found
        assert TreeShape.from_branching([2, 2]) in found


def test_starts_where_nothing_is_accepted():
    assert {shape for shape, _ in _starts(np.zeros(1), PlanLimits(2))} == {
        TreeShape([-1]),
        TreeShape.chain(2),
    }


def test_starts_planned_for_optimal(tmp_path):
    np.savez(tmp_path / "data.npz", target_probs=P, draft_probs=Q)
    data = datasets.open_source(tmp_path / "data.npz")
    settings = measuring_settings(data, verifier="layers", ranks=3)
    table = measured_acceptance(data, measuring_settings(data, verifier="optimal", ranks=3)).by_rank
    seen: list[tuple[int, int]] = []
    found = optimal_starts(data, settings, PlanLimits(9), lambda *step: seen.append(step))
    assert found[0] == plan_tree_by_count(table, 9).tree
    assert [shape.depth for shape in found] == sorted({shape.depth for shape in found})[::-1]
    for shape in found[1:]:
        assert shape == plan_tree_by_count(table, 9, max_depth=shape.depth).tree
    assert seen[-1] == (3, 3)
    limited = optimal_starts(data, settings, PlanLimits(9, max_depth=2, max_branching=2))
    assert limited == (plan_tree_by_count(table, 9, max_depth=2, max_branching=2).tree,)


def test_given_starts_are_looked_at(tmp_path, monkeypatch):
    """Whose tree is best, where no others are looked at; a worse one is not taken."""
    chain, broad = TreeShape.chain(4), TreeShape.from_branching([2, 1])
    monkeypatch.setattr("mdsd.studies.planning.search._MOST_SHAPES", 0)
    np.savez(tmp_path / "data.npz", target_probs=P, draft_probs=Q)
    data = datasets.open_source(tmp_path / "data.npz")
    settings = measuring_settings(data, verifier="layers", ranks=3, trees=64)
    acceptance = measured_acceptance(data, settings)
    for first, given in ((chain, broad), (broad, chain)):
        monkeypatch.setattr(
            "mdsd.studies.planning.search._starts", lambda rates, _, f=first: iter([(f, rates)])
        )
        found = searched_tree(
            recorded_trees(data, settings), acceptance, PlanLimits(4), settings, starts=[given]
        )
        assert found.plan.tree == broad
        assert found.start.tree == first
        assert found.shapes == 2
        assert (found.gain > 0.0) == (first == chain)


def test_a_search_depends_on_the_seed_and_on_nothing_else(tmp_path):
    def summary(seed: int) -> dict[str, Any]:
        return searched(tmp_path, "layers", DRAFTS[0], 5, trees=24, seed=seed).summary

    assert summary(1) == summary(1)
    assert summary(1)["expected_tokens"] != summary(2)["expected_tokens"]


@pytest.mark.parametrize("limits", [(2, None), (None, 1), (1, 2), (9, 9)])
def test_limits(tmp_path, limits):
    depth, branching = limits
    found = searched(
        tmp_path, "block", DRAFTS[0], 5, trees=8, max_depth=depth, max_branching=branching
    )
    shape = found.plan.tree
    assert shape.depth <= (depth or 5)
    assert max(len(shape.children(node)) for node in range(len(shape.parents))) <= (branching or 3)
    assert 1 <= shape.num_nodes <= 5


def test_rows_are_shares_of_verifications(tmp_path):
    found = searched(tmp_path, "block", DRAFTS[1], 5, trees=400)
    shape = found.plan.tree
    assert [row.parent for row in found.rows] == list(shape.parents[1:])
    for depth in range(1, shape.depth + 1):
        share = sum(row.probability for row in found.rows if row.depth == depth)
        expected = found.plan.accepted_by_depth[depth - 1]
        assert abs(share - expected) <= 5.0 * 0.5 / 20.0
    for row in found.rows:
        above = found.rows[row.parent - 1].probability if row.parent else 1.0
        assert row.probability == pytest.approx(above * row.acceptance)


def test_progress_ends_with_all(tmp_path):
    seen: list[tuple[int, int]] = []
    searched(tmp_path, "block", DRAFTS[0], 4, trees=8, progress=lambda *step: seen.append(step))
    done = [step for step, _ in seen]
    assert done == sorted(done)
    assert len({total for _, total in seen}) == 1
    assert seen[-1][0] == seen[-1][1]


def test_picture(tmp_path):
    found = searched(tmp_path, "block", DRAFTS[0], 4, trees=8)
    assert picture(".png", plan_figure(found)).startswith(b"\x89PNG")
