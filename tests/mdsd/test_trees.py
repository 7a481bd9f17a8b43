"""Shapes of draft trees, against definitions written out node by node."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from mdsd.errors import InvalidArgumentError
from mdsd.trees import MAX_NODES, TreeShape, read_tree

UNEVEN = TreeShape([-1, 0, 0, 1, 1, 2, 3])
SHAPES = {
    "root": TreeShape([-1]),
    "chain": TreeShape.chain(3),
    "k_ary": TreeShape.k_ary(3, 2),
    "branching": TreeShape.from_branching([3, 2, 1]),
    "uneven": UNEVEN,
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@each_shape
def test_structure_follows_from_the_parents(shape):
    parents = shape.parents
    nodes = range(len(parents))
    assert shape.num_nodes == len(parents) - 1
    for node in nodes:
        path, at = [], node
        while at:
            path.insert(0, at)
            at = parents[at]
        assert shape.path(node) == tuple(path)
        assert shape.depths[node] == len(path)
        assert list(shape.children(node)) == [n for n in nodes if parents[n] == node]
    assert shape.depth == max(shape.depths)
    assert shape.leaves == tuple(n for n in nodes if n not in parents)
    for depth in range(shape.depth + 2):
        assert list(shape.level(depth)) == [n for n in nodes if shape.depths[n] == depth]


@each_shape
@pytest.mark.parametrize("depth", range(4))
def test_truncated_keeps_the_upper_levels(shape, depth):
    cut = shape.truncated(depth)
    kept = [node for node, at in enumerate(shape.depths) if at <= depth]
    assert cut.parents == tuple(shape.parents[node] for node in kept)
    assert cut.depth == min(shape.depth, depth)


def test_sizes():
    assert TreeShape.k_ary(3, 4).num_nodes == 3 + 9 + 27 + 81
    assert TreeShape.from_branching([3, 2, 1]).num_nodes == 3 + 6 + 6
    assert TreeShape.chain(5) == TreeShape.from_branching([1] * 5)


def test_branching():
    assert SHAPES["branching"].branching == (3, 2, 1)
    assert SHAPES["root"].branching == ()
    assert UNEVEN.branching is None
    # A level that ends for some of its nodes is uneven, too.
    assert TreeShape([-1, 0, 0, 1]).branching is None


def test_paths_in_any_order():
    paths = [UNEVEN.path(node) for node in range(1, len(UNEVEN.parents))]
    ranks = [tuple(n - UNEVEN.children(UNEVEN.parents[n]).start for n in path) for path in paths]
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert TreeShape.from_paths([ranks[k] for k in rng.permutation(len(ranks))]) == UNEVEN
    assert TreeShape.from_paths([]) == TreeShape([-1])
    assert TreeShape.from_paths(np.array([[1], [0]])) == TreeShape([-1, 0, 0])


def test_is_a_value():
    same = TreeShape(np.array(UNEVEN.parents))
    assert same == UNEVEN
    assert hash(same) == hash(UNEVEN)
    assert same.depths  # a cached value travels through pickle
    assert pickle.loads(pickle.dumps(same)) == UNEVEN
    assert all(type(parent) is int for parent in same.parents)
    with pytest.raises(AttributeError):
        same.parents = (-1,)


@pytest.mark.parametrize(
    "tree",
    [[2, 1], (2, 1), np.array([2, 1]), TreeShape([-1, 0, 0, 1, 2])],
    ids=["list", "tuple", "array", "shape"],
)
def test_forms_of_a_tree(tree):
    assert read_tree(tree).parents == (-1, 0, 0, 1, 2)
    assert read_tree(SimpleNamespace(tree=read_tree(tree))).parents == (-1, 0, 0, 1, 2)


def test_a_tree_attribute_that_is_no_shape_is_refused():
    with pytest.raises(InvalidArgumentError, match="tree"):
        read_tree(SimpleNamespace(tree=[2, 1]))


def test_as_many_nodes_as_allowed():
    assert TreeShape.chain(MAX_NODES).depth == MAX_NODES


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TreeShape([]), "parents is []"),
        (lambda: TreeShape([0]), "parents is [0]"),
        (lambda: TreeShape([-1, -1]), "parents[1] is -1"),
        (lambda: TreeShape([-1, 1]), "parents[1] is 1"),
        (lambda: TreeShape([-1, 0, 1, 0]), "parents[3] is 0"),
        (lambda: TreeShape([-1, 0.0]), "parents[1] is 0.0"),
        (lambda: TreeShape([-1, True]), "parents[1] is True"),
        (lambda: TreeShape(None), "parents is None"),
        (lambda: TreeShape("ab"), "parents is 'ab'"),
        (lambda: TreeShape([-1, *range(MAX_NODES + 1)]), "100001"),
        (lambda: TreeShape.chain(0), "depth is 0"),
        (lambda: TreeShape.k_ary(0, 1), "num_drafts is 0"),
        (lambda: TreeShape.k_ary(10, 6), "100,000"),
        (lambda: TreeShape.k_ary(1, 10**9), "100,000"),
        (lambda: TreeShape.k_ary(10**9, 1), "100,000"),
        (lambda: TreeShape.from_branching([]), "tree is empty"),
        (lambda: TreeShape.from_branching([2, 0]), "tree[1] is 0"),
        (lambda: TreeShape.from_branching(3), "tree is 3"),
        (lambda: TreeShape.from_branching([10**6]), "100,000"),
        (lambda: TreeShape.from_paths([()]), "paths[0] is ()"),
        (lambda: TreeShape.from_paths([(0,), (0,)]), "paths[1] is (0,)"),
        (lambda: TreeShape.from_paths([(1,)]), "paths[0] is (1,)"),
        (lambda: TreeShape.from_paths([(0, 0)]), "paths[0] is (0, 0)"),
        (lambda: TreeShape.from_paths([(-1,)]), "paths[0] is -1"),
        (lambda: TreeShape.from_paths([0]), "paths[0] is 0"),
        (lambda: UNEVEN.children(7), "node is 7"),
        (lambda: UNEVEN.path(-1), "node is -1"),
        (lambda: UNEVEN.level(-1), "depth is -1"),
        (lambda: UNEVEN.truncated(1.0), "depth is 1.0"),
    ],
)
def test_bad_trees_are_named(make, words):
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
