"""A picture of a planned tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd.studies.panels import STYLE
from mdsd.studies.planning.search import SearchedTree
from mdsd.studies.planning.trees import PlannedTree
from mdsd.studies.terminal import counted
from mdsd.trees import TreeShape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAF_WIDTH, _LEVEL_HEIGHT = 0.42, 0.62
_MOST_WIDTH, _MOST_HEIGHT = 20.0, 20.0
"""Inches; larger trees are drawn closer together, and at last without ranks."""

_LEAST_LABELLED = 0.2
"""Distance of leaves, in inches, at which a rank still fits into its node."""


def plan_figure(found: PlannedTree | SearchedTree) -> Figure:
    """Draw a tree level by level, nodes coloured by the probability that a step accepts them.

    Parameters
    ----------
    found : PlannedTree or SearchedTree

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib as mpl
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    shape, rows = found.plan.tree, found.rows
    places = leaf_places(shape)
    leaves = len(shape.leaves)
    width = min(max(_LEAF_WIDTH * leaves, 3.6), _MOST_WIDTH)
    height = min(max(_LEVEL_HEIGHT * shape.depth, 2.4), _MOST_HEIGHT)
    apart = min(width / max(leaves, 1), height / max(shape.depth, 1), _LEAF_WIDTH)
    probs = [1.0, *(row.probability for row in rows)]
    # What is never accepted has no logarithm, and gets the colour of the least that is.
    least = min(*(prob for prob in probs if prob > 0.0), 0.1)
    probs = [max(prob, least) for prob in probs]
    scale = LogNorm(least, 1.0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width + 1.9, height + 1.2), layout="constrained")
        axis = figure.subplots()
        for row in rows:
            ends = (row.parent, row.node)
            axis.plot(
                [places[node] for node in ends],
                [shape.depths[node] for node in ends],
                color="0.6",
                linewidth=0.9,
                zorder=1,
            )
        dots = axis.scatter(
            places,
            shape.depths,
            s=(0.62 * 72.0 * apart) ** 2,
            c=probs,
            cmap="cividis_r",
            norm=scale,
            edgecolors="black",
            linewidths=0.6,
            zorder=2,
        )
        if apart >= _LEAST_LABELLED:
            for row in rows:
                axis.text(
                    places[row.node],
                    row.depth,
                    str(row.rank),
                    ha="center",
                    va="center_baseline",
                    fontsize=8,
                    color="white" if scale(probs[row.node]) > 0.5 else "black",
                    zorder=3,
                )
        axis.set_ylim(shape.depth + 0.5, -0.5)
        axis.set_xlim(-0.6, max(leaves - 1, 0) + 0.6)
        axis.set_yticks(range(shape.depth + 1))
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.set_ylabel("depth (drafted tokens)")
        bar = figure.colorbar(dots, ax=axis, format=lambda prob, _: f"{prob:g}")
        bar.set_label("probability that a step accepts the node")
        figure.suptitle(
            f"{counted(shape.num_nodes, 'node')}: {found.plan.expected_tokens:.3f} expected tokens "
            "for a call of the target\nnumbers: rank among siblings, in the order tried",
            fontsize=9,
        )
    return figure


def leaf_places(shape: TreeShape) -> Sequence[float]:
    """Horizontal places of all nodes: leaves side by side, a parent midway between its children.

    Parameters
    ----------
    shape : TreeShape

    Returns
    -------
    list of float

    Examples
    --------
    >>> leaf_places(TreeShape([-1, 0, 0, 1, 1]))
    [1.25, 0.5, 2.0, 0.0, 1.0]
    """
    places = [0.0] * (shape.num_nodes + 1)
    taken = 0
    # Depth first, children from the left; parents once all below them are placed.
    waiting = [(0, False)]
    while waiting:
        node, placed_below = waiting.pop()
        children = shape.children(node)
        if not children:
            places[node] = float(taken)
            taken += 1
        elif placed_below:
            places[node] = (places[children[0]] + places[children[-1]]) / 2.0
        else:
            waiting += [(node, True), *((child, False) for child in reversed(children))]
    return places
