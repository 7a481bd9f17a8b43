"""The best tree for acceptances by rank, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mdsd._arguments import check_whole
from mdsd.analysis import TreePlan, plan_tree, plan_tree_by_count
from mdsd.studies.planning.acceptance import RankAcceptance
from mdsd.studies.study_rows import Row
from mdsd.trees import MAX_NODES


@dataclass(frozen=True)
class NodeRow(Row):
    """One drafted node.

    Attributes
    ----------
    node, parent : int
        Numbers in breadth-first order; 0 is the root.
    depth : int
        1 for the root's children.
    rank : int
        Place among its siblings, from 0 in the order in which they are tried.
    acceptance : float
        Probability that it is the one accepted, given that its parent was.
    probability : float
        Probability that a step accepts it, and so all on the way to it.
    """

    node: int
    parent: int
    depth: int
    rank: int
    acceptance: float
    probability: float


@dataclass(frozen=True)
class PlanLimits:
    """Limits of a plan, checked before anything is measured for it.

    Parameters
    ----------
    budget : int, default 16
        Most nodes.
    max_depth, max_branching : int, optional

    Raises
    ------
    InvalidArgumentError
        If one of them is out of range.
    """

    budget: int = 16
    max_depth: int | None = None
    max_branching: int | None = None

    def __post_init__(self) -> None:
        check_whole("budget", self.budget, 1, MAX_NODES)
        for name in ("max_depth", "max_branching"):
            if (value := getattr(self, name)) is not None:
                check_whole(name, value, 1)


@dataclass(frozen=True, eq=False)
class PlannedTree:
    """A plan, and what it was made for.

    Attributes
    ----------
    plan : TreePlan
    acceptance : RankAcceptance
    limits : PlanLimits
    """

    plan: TreePlan
    acceptance: RankAcceptance
    limits: PlanLimits

    @cached_property
    def rows(self) -> tuple[NodeRow, ...]:
        """The drafted nodes in breadth-first order."""
        shape = self.plan.tree
        reached = [1.0]
        rows = []
        for node in range(1, shape.num_nodes + 1):
            parent, depth = shape.parents[node], shape.depths[node]
            siblings = shape.children(parent)
            rank = node - siblings.start
            acceptance = self.acceptance.of_child(depth, len(siblings), rank)
            reached.append(reached[parent] * acceptance)
            rows.append(NodeRow(node, parent, depth, rank, acceptance, reached[node]))
        return tuple(rows)

    @property
    def summary(self) -> dict[str, Any]:
        """What is written beside settings and rows."""
        stderr = self.acceptance.stderr
        branching = self.plan.tree.branching
        return {
            self.acceptance.key: self.acceptance.by_rank.tolist(),
            "acceptance_stderr": None if stderr is None else stderr.tolist(),
            "expected_tokens": self.plan.expected_tokens,
            "branching": None if branching is None else list(branching),
            "parents": list(self.plan.tree.parents),
        }


def planned_tree(acceptance: RankAcceptance, limits: PlanLimits) -> PlannedTree:
    """Plan the tree with the most expected tokens.

    Parameters
    ----------
    acceptance : RankAcceptance
    limits : PlanLimits

    Returns
    -------
    PlannedTree

    Raises
    ------
    InvalidArgumentError
        If the acceptances are no probabilities, or those of one node sum to more than 1.

    Examples
    --------
    >>> from mdsd.studies.planning.acceptance import given_acceptance
    >>> found = planned_tree(given_acceptance("0.6,0.2"), PlanLimits(budget=3))
    >>> [(row.parent, row.rank, round(row.probability, 12)) for row in found.rows]
    [(0, 0, 0.6), (1, 0, 0.36), (2, 0, 0.216)]
    """
    planner = plan_tree_by_count if acceptance.by_count else plan_tree
    plan = planner(
        acceptance.by_rank,
        limits.budget,
        max_depth=limits.max_depth,
        max_branching=limits.max_branching,
    )
    return PlannedTree(plan, acceptance, limits)
