"""The draft tree with the most expected tokens for a budget of nodes, by dynamic programming.

A node is worth the probability that a step comes to it, the product of the acceptances on the way;
a child of rank r needs its siblings of lower rank. Below one node let F(r, n) be the most that its
children of rank r and higher are worth with n nodes, themselves and all below counted, and S(n) =
F(0, n) that of all children. With a_r the acceptance of rank r,

    F(r, n) = max over m = 1..n of a_r (1 + S'(m - 1)) + F(r + 1, n - m),

and 0 for n = 0 or beyond the last rank, where S' is the S of the next level. Where acceptances do
not depend on depth, and depth has no limit, S' is S itself, of which only smaller budgets are
needed: O(R N^2) in all, and O(D R N^2) otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays
from mdsd._ranks import read_acceptance_by_rank
from mdsd._shown import Shown
from mdsd._typing import FloatArray, IntArray
from mdsd.trees import MAX_NODES, TreeShape


@dataclass(frozen=True, eq=False, repr=False)
class TreePlan(Shown, FrozenArrays):
    """The best draft tree for a budget of nodes.

    Decoders take it as ``tree=``.

    Attributes
    ----------
    tree : TreeShape
        Without nodes that no step can come to: fewer than the budget where more would not help.
    expected_tokens : float
        Expected tokens of a step with this tree, the one that is always emitted included.
    tokens_by_budget : ndarray of float64, shape (N + 1,)
        The same of the best tree for each budget from 0 to N.
    """

    tree: TreeShape
    expected_tokens: float
    tokens_by_budget: FloatArray

    def _facts(self) -> dict[str, object]:
        return {"tree": self.tree, "expected_tokens": self.expected_tokens}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.tree._drawing()


def plan_tree(
    acceptance_by_rank: ArrayLike,
    node_budget: int,
    *,
    max_depth: int | None = None,
    max_branching: int | None = None,
) -> TreePlan:
    """Find the tree of drafts with the most expected tokens for a number of nodes.

    Parameters
    ----------
    acceptance_by_rank : array_like, shape (R,) or (D, R)
        Probability that the child of rank r is the one accepted, given that its parent was. In the
        second form row d is for the children at depth d + 1, and no tree is deeper than D. Rows sum
        to at most 1 and may rise or fall.
    node_budget : int
        N >= 1, the most drafted nodes.
    max_depth, max_branching : int, optional
        Most levels, and most children of a node.

    Returns
    -------
    TreePlan

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range, or a row sums to more than 1.

    Notes
    -----
    The objective of Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
    Decoding", solved exactly: no tree within the limits has more tokens by `expected_tree_tokens`.

    Examples
    --------
    >>> plan = plan_tree([0.6, 0.2], 5)
    >>> plan.tree.parents, round(plan.expected_tokens, 12)
    ((-1, 0, 0, 1, 3, 4), 2.5056)
    >>> plan_tree([0.6, 0.2], 5, max_depth=2).tree.parents
    (-1, 0, 0, 1, 1, 2)
    """
    acceptance = read_acceptance_by_rank(acceptance_by_rank)
    budget, depth, ranks = read_limits(node_budget, max_depth, max_branching)
    by_depth = acceptance.ndim == 2
    depth = min(depth, len(acceptance)) if by_depth else depth
    rows = np.atleast_2d(acceptance)[:depth, :ranks]
    unlimited = not by_depth and depth == budget
    levels = [_level(rows[0], budget, None)] * depth if unlimited else _levels(rows, depth, budget)
    # More nodes are never worth less, but for the last digit.
    tokens = 1.0 + np.maximum.accumulate(levels[0].best)
    # The least budget that does as well has no node to spare.
    used = int(np.argmax(tokens == tokens[-1]))
    tree = TreeShape(_parents(levels, used))
    return TreePlan(tree, float(tokens[-1]), tokens)


def read_limits(
    node_budget: int, max_depth: int | None, max_branching: int | None
) -> tuple[int, int, int]:
    """Check the limits of a plan: most nodes, most levels, and most children of a node.

    Raises
    ------
    InvalidArgumentError
        If one of them is out of range.
    """
    budget = check_whole("node_budget", node_budget, 1, MAX_NODES)
    # A tree of N nodes has at most N levels, and a node at most N children.
    depth, ranks = (
        budget if most is None else min(budget, check_whole(name, most, 1, otherwise=" or None"))
        for name, most in (("max_depth", max_depth), ("max_branching", max_branching))
    )
    return budget, depth, ranks


@dataclass(frozen=True, eq=False)
class _Level:
    """Best choices below a node of one level.

    Attributes
    ----------
    best : ndarray of float64, shape (N + 1,)
        S(n).
    choices : ndarray of int64, shape (R, N + 1)
        Nodes that the child of each rank takes for itself and all below it, out of n >= 1 for the
        children of this rank and higher.
    """

    best: FloatArray
    choices: IntArray


def _levels(rows: FloatArray, depth: int, budget: int) -> list[_Level]:
    """Levels from the root down, each with the nodes that can be left there."""
    levels: list[_Level] = []
    below = np.zeros(budget + 1)
    for level in reversed(range(depth)):
        # A node at depth `level` has as many above it, without the root.
        row = rows[level if len(rows) > 1 else 0]
        levels.append(_level(row[: budget - level], budget - level, below))
        below = levels[-1].best
    return levels[::-1]


def _level(row: FloatArray, budget: int, below: FloatArray | None) -> _Level:
    """Fill F(r, n) for all ranks at once, by rising n.

    Parameters
    ----------
    row : ndarray, shape (R,)
        Acceptance by rank.
    budget : int
    below : ndarray, shape (N,) or more, or None
        S' of the next level; None where all levels are alike, without limit in depth.
    """
    ranks = len(row)
    # The last row stands for the ranks that do not exist.
    values = np.zeros((ranks + 1, budget + 1))
    choices = np.zeros((ranks, budget + 1), dtype=np.int64)
    next_level = values[0] if below is None else below
    for n in range(1, budget + 1):
        worth = row[:, np.newaxis] * (1.0 + next_level[:n]) + values[1:, n - 1 :: -1][:, :n]
        chosen = worth.argmax(axis=1)
        values[:ranks, n] = worth[np.arange(ranks), chosen]
        choices[:, n] = chosen + 1
    return _Level(values[0], choices)


def _parents(levels: list[_Level], budget: int) -> tuple[int, ...]:
    """Read the tree off the choices, breadth first."""
    parents = [-1]
    budgets = [budget]  # nodes below each node
    depths = [0]
    for node in range(budget + 1):
        left = budgets[node]
        for choices in levels[depths[node]].choices if left else ():
            if left == 0:
                break
            parents.append(node)
            budgets.append(int(choices[left]) - 1)
            depths.append(depths[node] + 1)
            left -= int(choices[left])
    return tuple(parents)
