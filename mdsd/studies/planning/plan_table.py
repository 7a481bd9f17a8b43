"""A planned tree for the terminal: node by node, and depth by depth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from mdsd.studies.fitting import FittedTable, Paragraph
from mdsd.studies.planning.acceptance import RankAcceptance
from mdsd.studies.planning.search import SearchedTree
from mdsd.studies.planning.trees import NodeRow, PlannedTree
from mdsd.studies.terminal import counted
from mdsd.trees import TreeShape

_INDENT = 13
"""Columns before the root."""

_BRANCHES = {
    step: (("├─ "[:step], "│  "[:step]), ("└─ "[:step], "   "[:step])) for step in (1, 2, 3)
}
"""What leads to a node and to those below it: to others, and to the last of its siblings."""


def plan_report(found: PlannedTree | SearchedTree) -> RenderableType:
    """Lay out a plan: its tree with the probability of each node, its levels, its tokens.

    Parameters
    ----------
    found : PlannedTree or SearchedTree
    """
    shape, rows = found.plan.tree, found.rows
    table = FittedTable("depth", "nodes", "children", "accepted")
    for depth in range(shape.depth + 1):
        nodes = shape.level(depth)
        if isinstance(found, SearchedTree):
            share = float(found.plan.accepted_by_depth[depth - 1]) if depth else 1.0
        else:
            share = math.fsum(rows[node - 1].probability if node else 1.0 for node in nodes)
        table.add(str(depth), str(len(nodes)), _children(shape, depth), f"{share:.4f}")
    words = _search_notes(found) if isinstance(found, SearchedTree) else _notes(found)
    notes = (Paragraph(note, "dim") for note in words)
    return Group(Text("probability  node", "bold"), _Drawing(shape, rows), "", table, "", *notes)


class _Drawing:
    """A tree in characters, its levels as far apart as they fit."""

    def __init__(self, shape: TreeShape, rows: Sequence[NodeRow]) -> None:
        self._shape, self._rows = shape, rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawings = (list(tree_lines(self._shape, self._rows, step)) for step in (3, 2, 1))
        for lines in drawings:
            if max(map(len, lines)) <= options.max_width:
                break
        for line in lines:
            # Of a tree too deep to be drawn, the ends of its branches.
            over = len(line) - options.max_width
            whole = line if over <= 0 else f"{line[:_INDENT]}…{line[_INDENT + 1 + over :]}"
            yield Text(whole, no_wrap=True, overflow="ignore")


def tree_lines(shape: TreeShape, rows: Sequence[NodeRow], step: int = 3) -> Iterator[str]:
    """Draw a tree in characters, one node a line, its children below it.

    Parameters
    ----------
    shape : TreeShape
    rows : sequence of NodeRow
        All drafted nodes in order.
    step : int, default 3
        Columns from one level to the next.

    Yields
    ------
    str
        Probability and rank of a node.
    """
    yield f"{1.0:11.4f}  root"
    # Of each open node the children still to come, and what stands before them.
    waiting = [(iter(shape.children(0)), shape.children(0).stop - 1, "")]
    while waiting:
        children, last, indent = waiting[-1]
        node = next(children, None)
        if node is None:
            waiting.pop()
            continue
        row = rows[node - 1]
        corner, below = _BRANCHES[step][node == last]
        yield f"{row.probability:11.4f}  {indent}{corner}{row.rank}"
        own = shape.children(node)
        waiting.append((iter(own), own.stop - 1, indent + below))


def _children(shape: TreeShape, depth: int) -> str:
    counts = {len(shape.children(node)) for node in shape.level(depth)}
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


def _notes(found: PlannedTree) -> list[str]:
    shape, tokens = found.plan.tree, found.plan.expected_tokens
    size = f"{counted(shape.num_nodes, 'node')}, depth {shape.depth}"
    notes = [
        f"{tokens:.4f} expected tokens for a call of the target: {size}; no tree within the limits "
        "has more"
    ]
    if shape.num_nodes < found.limits.budget:
        allowed = counted(found.limits.budget, "node")
        notes.append(f"{allowed} allowed: more than {shape.num_nodes:,} add nothing")
    notes.append(f"acceptance by {_shown(found.acceptance)}")
    if found.acceptance.by_count:
        depends = "and the number of siblings"
    else:
        depends = "and the depth" if found.acceptance.by_rank.ndim == 2 else "alone"
    notes.append(
        "node: rank among its siblings, in the order tried; accepted: probability that a step "
        f"comes as deep. Acceptance is taken to depend on the rank {depends}"
    )
    return notes


def _search_notes(found: SearchedTree) -> list[str]:
    shape, plan = found.plan.tree, found.plan
    size = f"{counted(shape.num_nodes, 'node')}, depth {shape.depth}"
    return [
        f"{plan.expected_tokens:.4f} ± {plan.stderr:.4f} expected tokens for a call of the target "
        f"with {found.verifier}: {size}; the best of {counted(found.shapes, 'shape')}, compared on "
        f"{counted(found.trees, 'tree')} drawn from recorded positions and measured on as many "
        "others",
        f"{found.gain:+.4f} ± {found.gain_stderr:.4f} against the best tree for rrs on the same "
        f"trees; acceptance by {_shown(found.acceptance)}",
        "node: rank among its siblings; probability: how often one verification of each tree "
        "accepts it; accepted: probability that a step comes as deep, given the trees",
    ]


def _shown(acceptance: RankAcceptance) -> str:
    rates = acceptance.by_rank
    if rates.ndim == 2:
        if acceptance.by_count:
            return f"rank and number of siblings, up to {len(rates)}, from {acceptance.source}"
        depths, ranks = rates.shape
        size = f"{counted(ranks, 'rank')} at {counted(depths, 'depth')}"
        return f"rank and depth, {size}, from {acceptance.source}"
    if acceptance.stderr is None:
        numbers = ", ".join(f"{rate:.4g}" for rate in rates)
    else:
        numbers = ", ".join(
            f"{rate:.4f} ± {error:.4f}"
            for rate, error in zip(rates, acceptance.stderr, strict=True)
        )
    return f"rank ({acceptance.source}): {numbers}"
