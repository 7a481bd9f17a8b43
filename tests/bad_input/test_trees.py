"""Bad input of shapes of trees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mdsd
from mdsd.errors import InvalidArgumentError

from .rows import Row, Values, rows
from .values import COUNTS, MATRIX, written


def tree_rows() -> Iterator[list[Row]]:
    shape = mdsd.decoding.TreeShape([-1, 0, 0])
    make = mdsd.decoding.TreeShape
    parents: Values = {
        "none": (None, "None"),
        "string": ("ab", "'ab'"),
        "number": (3, "3"),
        "empty": ([], "[]"),
        "no_root": ([0, 0], "[0, 0]"),
        "two_roots": ([-1, -1], "parents[1]", "-1"),
        "own_parent": ([-1, 1], "parents[1]", "1"),
        "falling": ([-1, 0, 1, 0], "parents[3]", "0"),
        "float": ([-1, 0.0], "parents[1]", "0.0"),
        "bool": ([-1, False], "parents[1]", "False"),
        "beyond_int64": ([-1, 2**70], "parents[1]", str(2**70)),
    }
    branchings: Values = {
        "none": (None, "None"),
        "empty": ([], "empty"),
        "zero": ([2, 0], "tree[1]", "0"),
        "float": ([2.0], "tree[0]", "2.0"),
        "huge": ([10**6], "100,000"),
    }
    paths: Values = {
        "none": (None, "None"),
        "numbers": ([0], "paths[0]", "0"),
        "root": ([()], "paths[0]", "()"),
        "twice": ([(0,), (0,)], "paths[1]", "twice"),
        "no_parent": ([(0, 0)], "paths[0]", "(0,)"),
        "no_sibling": ([(1,)], "paths[0]", "(0,)"),
        "negative": ([(-1,)], "paths[0]", "-1"),
        "float": ([(0.0,)], "paths[0]", "0.0"),
    }
    no_nodes: Values = {**MATRIX, **written(-1, 3, 1.0, True, "1")}
    depths: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    name = "decoding.TreeShape"
    refused = InvalidArgumentError
    yield rows(name, "parents", make, refused, parents)
    yield rows(f"{name}.chain", "depth", make.chain, refused, COUNTS)
    yield rows(f"{name}.k_ary", "num_drafts", lambda n: make.k_ary(n, 2), refused, COUNTS)
    yield rows(f"{name}.k_ary", "depth", lambda depth: make.k_ary(2, depth), refused, COUNTS)
    yield rows(
        f"{name}.from_branching",
        "branching",
        make.from_branching,
        refused,
        branchings,
        named="tree",
    )
    yield rows(f"{name}.from_paths", "paths", make.from_paths, refused, paths)
    for method in ("children", "path"):
        yield rows(f"{name}.{method}", "node", getattr(shape, method), refused, no_nodes)
    for method in ("level", "truncated"):
        yield rows(f"{name}.{method}", "depth", getattr(shape, method), refused, depths)


ROWS = [row for made in tree_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
