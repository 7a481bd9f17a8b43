"""The draft tree with the most expected tokens where acceptances depend on the number of siblings.

With n children at a node, the one of rank r is accepted with probability a_{n,r}. Let S'(m) be the
most that m nodes below a node of the next level are worth, themselves counted. Below one node with
exactly n children let F_n(r, m) be the most that those of rank r and higher are worth with m nodes,

    F_n(r, m) = max over k = 1..m of a_{n,r} (1 + S'(k - 1)) + F_n(r + 1, m - k),

F_n(n, m) = 0, and minus infinity where m < n - r. Then S(m) is the largest of 0 and all F_n(0, m):
the best over n of a knapsack over ranks, O(R^2 N^2) on each level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_numbers, row_name
from mdsd._ranks import RANK_SLACK
from mdsd._typing import FloatArray, IntArray
from mdsd.analysis.planning import TreePlan, read_limits
from mdsd.errors import InvalidArgumentError
from mdsd.trees import TreeShape


def plan_tree_by_count(
    acceptance_by_count: ArrayLike,
    node_budget: int,
    *,
    max_depth: int | None = None,
    max_branching: int | None = None,
) -> TreePlan:
    """Find the tree with the most expected tokens where siblings share what can be accepted.

    Recursive rejection tries the children of a node in turn, and a further child takes nothing from
    those before it: `plan_tree`. Optimal transport and K-SEQ look at all children together, so that
    the acceptance of each depends on how many there are.

    Parameters
    ----------
    acceptance_by_count : array_like, shape (R, R)
        Row n - 1 is for nodes with n children: entry r is the probability that the child of rank r
        is the one accepted, given that its parent was. Entries with r >= n are zero. Rows sum to at
        most 1.
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
        If an argument is out of range, a row sums to more than 1, or has an entry for a rank that
        it lacks.

    Notes
    -----
    Exact, as `plan_tree` is: no tree within the limits is worth more. Where all rows are alike up
    to n it is the plan of `plan_tree`.

    Examples
    --------
    Of two children either is accepted as often, and less often than an only child:

    >>> plan = plan_tree_by_count([[0.5, 0.0], [0.4, 0.4]], 4)
    >>> plan.tree.parents, round(plan.expected_tokens, 12)
    ((-1, 0, 0, 1, 2), 2.2)
    """
    acceptance = _read_acceptance(acceptance_by_count)
    budget, depth, ranks = read_limits(node_budget, max_depth, max_branching)
    table = acceptance[:ranks, :ranks]
    if depth == budget:  # no limit: all levels are alike
        levels = [_level(table, budget, None)] * depth
    else:
        levels = []
        below = np.zeros(budget + 1)
        for above in reversed(range(depth)):
            # A node at this depth has as many above it, without the root.
            left = budget - above
            levels.append(_level(table[:left, :left], left, below))
            below = levels[-1].best
        levels.reverse()
    tokens = 1.0 + np.maximum.accumulate(levels[0].best)
    used = int(np.argmax(tokens == tokens[-1]))
    return TreePlan(TreeShape(_parents(levels, used)), float(tokens[-1]), tokens)


@dataclass(frozen=True, eq=False)
class _Level:
    """Best choices below a node of one level.

    Attributes
    ----------
    best : ndarray of float64, shape (N + 1,)
        S(m).
    counts : ndarray of int64, shape (N + 1,)
        Children of a node with m nodes below it.
    choices : ndarray of int64, shape (R, R, N + 1)
        By n - 1 and r: nodes that the child of rank r takes for itself and all below it.
    """

    best: FloatArray
    counts: IntArray
    choices: IntArray


def _level(table: FloatArray, budget: int, below: FloatArray | None) -> _Level:
    """Fill F_n(r, m) for all n and r at once, by rising m."""
    ranks = len(table)
    counts = np.arange(1, ranks + 1)
    values = np.full((ranks, ranks + 1, budget + 1), -np.inf)
    values[np.arange(ranks), counts] = 0.0  # F_n(n, m)
    choices = np.zeros((ranks, ranks, budget + 1), dtype=np.int64)
    best = np.zeros(budget + 1)
    chosen_counts = np.zeros(budget + 1, dtype=np.int64)
    next_level = best if below is None else below
    exists = np.tril(np.ones((ranks, ranks), dtype=np.bool_))
    for m in range(1, budget + 1):
        worth = (
            table[:, :, np.newaxis] * (1.0 + next_level[:m]) + values[:, 1:, m - 1 :: -1][..., :m]
        )
        chosen = worth.argmax(axis=2)
        found = np.take_along_axis(worth, chosen[..., np.newaxis], axis=2)[..., 0]
        values[:, :-1, m] = np.where(exists, found, values[:, :-1, m])
        choices[:, :, m] = chosen + 1
        n = int(values[:, 0, m].argmax())
        if values[n, 0, m] > 0.0:
            best[m], chosen_counts[m] = values[n, 0, m], n + 1
    return _Level(best, chosen_counts, choices)


def _parents(levels: list[_Level], budget: int) -> tuple[int, ...]:
    """Read the tree off the choices, breadth first."""
    parents = [-1]
    budgets = [budget]  # nodes below each node
    depths = [0]
    for node in range(budget + 1):
        if node == len(parents):
            break
        left = budgets[node]
        count = int(levels[depths[node]].counts[left]) if left else 0
        for rank in range(count):
            taken = int(levels[depths[node]].choices[count - 1, rank, left])
            parents.append(node)
            budgets.append(taken - 1)
            depths.append(depths[node] + 1)
            left -= taken
    return tuple(parents)


def _read_acceptance(values: ArrayLike) -> FloatArray:
    name = "acceptance_by_count"
    table = read_numbers(
        values, name, lambda shape: len(shape) == 2 and shape[0] == shape[1] > 0, "(R, R)"
    )
    for row, rates in enumerate(table):
        if rates[row + 1 :].any():
            rank = row + 1 + int(np.argmax(rates[row + 1 :] != 0.0))
            raise InvalidArgumentError(
                f"{row_name(name, [row])} has {rates[rank]:.10g} for rank {rank}; expected 0: it "
                f"is for nodes with {row + 1} children"
            )
        if rates.sum() > 1.0 + RANK_SLACK:
            raise InvalidArgumentError(
                f"{row_name(name, [row])} sums to {float(rates.sum()):.10g}; expected at most 1: "
                "the probability of each child to be the accepted one"
            )
    return table
