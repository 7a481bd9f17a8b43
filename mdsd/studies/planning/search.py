"""A search for the tree that is best where whole paths are verified.

There what a node is worth depends on what else was drafted, and no dynamic programming over nodes
gives the value of a tree. It is measured on drawn trees instead, the same ones for all shapes, and
the search goes from the best of several starts to neighbours until none is better beyond noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray
from mdsd.analysis import plan_tree, plan_tree_by_count
from mdsd.analysis._simulation import mean_and_stderr
from mdsd.datasets import Source
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.verification import step_verification
from mdsd.studies.cases import Progress
from mdsd.studies.planning.acceptance import (
    MeasuringSettings,
    RankAcceptance,
    measured_acceptance,
)
from mdsd.studies.planning.recorded import RecordedTrees
from mdsd.studies.planning.trees import NodeRow, PlanLimits
from mdsd.trees import TreeShape
from mdsd.verifiers import OptimalVerifier

_MOST_SHAPES = 200
"""Neighbours that are looked at, all rounds of a search together."""

_FIRST_TREES = 16
"""Trees on which a shape is looked at first; those of the next looks are twice as many each."""

_SAMPLED_POSITIONS = 32
"""First positions at which `optimal` is measured for starts: they need not be the best."""

_FLATTENED = (1.0, 0.75, 0.5, 0.25)
"""Powers of acceptances, at an equal sum, whose best trees are starts: ever broader ones."""


@dataclass(frozen=True, eq=False)
class MeasuredTree(FrozenArrays):
    """A tree, and what is accepted of it on drawn trees.

    Attributes
    ----------
    tree : TreeShape
    expected_tokens : float
        Mean tokens of a step, the one that is always emitted included.
    stderr : float
        Its standard error over drawn trees.
    accepted_by_depth : ndarray of float64, shape (D,)
        Mean chance that so many drafted tokens are accepted.
    """

    tree: TreeShape
    expected_tokens: float
    stderr: float
    accepted_by_depth: FloatArray


@dataclass(frozen=True, eq=False)
class SearchedTree:
    """The tree that a search has found, and what it was looked for with.

    Attributes
    ----------
    plan : MeasuredTree
        On fresh trees, which had no part in the search.
    rows : tuple of NodeRow
        Of all drafted nodes: how often one verification of each fresh tree accepted them.
    start : MeasuredTree
        The best tree for recursive rejection, on the same fresh trees.
    gain, gain_stderr : float
        Mean tokens by which the one that was found is better, and the standard error of that.
    acceptance : RankAcceptance
        Of recursive rejection, from which the starts are planned.
    limits : PlanLimits
    verifier : str
    trees : int
        Fresh ones; the search has had as many others.
    shapes : int
        Shapes looked at.
    """

    plan: MeasuredTree
    rows: tuple[NodeRow, ...]
    start: MeasuredTree
    gain: float
    gain_stderr: float
    acceptance: RankAcceptance
    limits: PlanLimits
    verifier: str
    trees: int
    shapes: int

    @property
    def summary(self) -> dict[str, Any]:
        """What is written beside settings and rows."""
        branching = self.plan.tree.branching
        return {
            "expected_tokens": self.plan.expected_tokens,
            "stderr": self.plan.stderr,
            "accepted_by_depth": self.plan.accepted_by_depth.tolist(),
            "branching": None if branching is None else list(branching),
            "parents": list(self.plan.tree.parents),
            "start_expected_tokens": self.start.expected_tokens,
            "start_parents": list(self.start.tree.parents),
            "gain": self.gain,
            "gain_stderr": self.gain_stderr,
            "shapes": self.shapes,
        }


def optimal_starts(
    source: Source,
    settings: MeasuringSettings,
    limits: PlanLimits,
    progress: Progress | None = None,
) -> tuple[TreeShape, ...]:
    """Plan the best trees for `optimal`, at ever smaller depths, for a search to start from.

    Parameters
    ----------
    source : Source
    settings : MeasuringSettings
    limits : PlanLimits
    progress : callable, optional
        Called with (positions done, all positions): the first ones only, as the acceptance of many
        drafts takes long to measure and a start need not be the best.

    Returns
    -------
    tuple of TreeShape
    """
    positions = min(settings.study.positions, _SAMPLED_POSITIONS)
    study = replace(settings.study, asked=replace(settings.study.asked, positions=positions))
    sampled = replace(settings, verifier=OptimalVerifier.name, study=study)
    table = measured_acceptance(source, sampled, progress).by_rank
    found = []
    depth = limits.max_depth
    while depth is None or depth >= 1:
        shape = plan_tree_by_count(
            table, limits.budget, max_depth=depth, max_branching=limits.max_branching
        ).tree
        found.append(shape)
        depth = _shallower(shape)
    return tuple(found)


def searched_tree(
    trees: RecordedTrees,
    acceptance: RankAcceptance,
    limits: PlanLimits,
    settings: MeasuringSettings,
    progress: Progress | None = None,
    *,
    starts: Sequence[TreeShape] = (),
) -> SearchedTree:
    """Search for the tree with the most expected tokens under a verification of paths.

    Parameters
    ----------
    trees : RecordedTrees
    acceptance : RankAcceptance
        By rank, of recursive rejection.
    limits : PlanLimits
    settings : MeasuringSettings
    progress : callable, optional
        Called with (shapes looked at, most shapes).
    starts : sequence of TreeShape, optional
        More of them, as `optimal_starts` gives.

    Returns
    -------
    SearchedTree

    Notes
    -----
    Starts are the best trees for acceptances by rank, as measured and ever more alike, at ever
    smaller depths, chains side by side, and trees that branch alike at every level. A neighbour has
    one leaf elsewhere. It is compared on 16 trees first and, unless it is worse by two standard
    errors of the paired difference, on ever more; it is taken if it is better by two on all of
    them. Neighbours come in the order of what they lose by acceptances by rank.
    """
    verification = step_verification(settings.verifier)
    values = _Values(trees, verification, settings.trees)
    rates = acceptance.by_rank[: limits.max_branching]
    planned: dict[TreeShape, FloatArray] = {}
    for shape, weights in _starts(rates, limits):
        planned.setdefault(shape, weights)
    for shape in starts:
        planned.setdefault(shape, rates)
    total = len(planned) + _MOST_SHAPES
    shapes = 1

    def look() -> None:
        nonlocal shapes
        shapes += 1
        if progress is not None:
            progress(shapes, total)

    best, *others = planned
    first = best
    for shape in others:
        look()
        if values.better(shape, best, 0.0):
            best = shape
    seen = {best}
    weights = planned[best]
    searching = True
    while searching:
        searching = False
        for shape in _neighbours(best, weights, limits):
            if shapes >= total:
                break
            if shape in seen:
                continue
            seen.add(shape)
            look()
            if values.better(shape, best, 2.0):
                best, searching = shape, True
                break
    if progress is not None:
        progress(total, total)
    # What was chosen on the trees of the search looks better there than it is.
    fresh = range(settings.trees, 2 * settings.trees)
    chances = [trees.accepted(verification, shape, fresh) for shape in (best, first)]
    found, start = (chance.sum(axis=1) for chance in chances)
    return SearchedTree(
        _measured(best, chances[0]),
        _rows(trees, verification, best, fresh),
        _measured(first, chances[1]),
        *mean_and_stderr(found - start),
        acceptance,
        limits,
        settings.verifier,
        settings.trees,
        shapes,
    )


def _measured(shape: TreeShape, chances: FloatArray) -> MeasuredTree:
    tokens, stderr = mean_and_stderr(1.0 + chances.sum(axis=1))
    return MeasuredTree(shape, tokens, stderr, chances.mean(axis=0))


class _Values:
    """Accepted tokens of shapes on the trees of a search, each worked out once."""

    def __init__(self, trees: RecordedTrees, verification: StepVerification, count: int) -> None:
        self._trees, self._verification, self._count = trees, verification, count
        self._found: dict[TreeShape, FloatArray] = {}

    def better(self, shape: TreeShape, than: TreeShape, errors: float) -> bool:
        """Tell whether a shape is better by some standard errors of the paired difference."""
        count = min(_FIRST_TREES, self._count)
        while True:
            difference = self._first(shape, count) - self._first(than, count)
            mean, error = mean_and_stderr(difference)
            if count == self._count:
                return mean > errors * error
            if mean < -2.0 * error:
                return False
            count = min(2 * count, self._count)

    def _first(self, shape: TreeShape, count: int) -> FloatArray:
        known = self._found.get(shape, np.zeros(0))
        if len(known) < count:
            numbers = range(len(known), count)
            more = self._trees.accepted(self._verification, shape, numbers).sum(axis=1)
            known = self._found[shape] = np.concatenate([known, more])
        return known[:count]


def _starts(rates: FloatArray, limits: PlanLimits) -> Iterator[tuple[TreeShape, FloatArray]]:
    """Give shapes to start from, that of recursive rejection first, each with its acceptances."""
    for power in _FLATTENED:
        flat = rates**power
        # Of no acceptance at all nothing can be made more alike.
        flat *= rates.sum() / max(float(flat.sum()), np.finfo(float).tiny)
        depth = limits.max_depth
        while depth is None or depth >= 1:
            shape = plan_tree(flat, limits.budget, max_depth=depth).tree
            yield shape, flat
            depth = _shallower(shape)
    for count in range(1, min(len(rates), limits.budget) + 1):
        nodes = limits.budget
        if limits.max_depth is not None:
            nodes = min(nodes, count * limits.max_depth)
        # Chains side by side: a node is followed by the one as many places on as there are chains.
        yield TreeShape((-1, *[0] * count, *range(1, nodes - count + 1))), rates
        levels: list[int] = []
        while limits.max_depth is None or len(levels) < limits.max_depth:
            if sum(count**k for k in range(1, len(levels) + 2)) > limits.budget:
                break
            levels.append(count)
        if count > 1:
            yield TreeShape.from_branching(levels), rates


def _shallower(shape: TreeShape) -> int:
    """Depth at which to plan next; 0 where that is hardly worth it."""
    if shape.depth <= 2:
        return 0
    return shape.depth - (1 if shape.depth <= 4 else shape.depth // 4)


def _neighbours(shape: TreeShape, rates: FloatArray, limits: PlanLimits) -> list[TreeShape]:
    """Give the shapes with one leaf elsewhere, those that lose least by acceptances first."""
    paths = _paths(shape)
    reached = {path: float(np.prod(rates[list(path)])) for path in paths}
    places = set(paths)
    last = [path for path in paths if path and _after(path) not in places]
    removed = [path for path in last if (*path, 0) not in places]
    added = [
        path
        for path in {(*parent, _count(parent, places)) for parent in paths}
        if path[-1] < len(rates) and (limits.max_depth is None or len(path) <= limits.max_depth)
    ]
    spare = shape.num_nodes < limits.budget
    moves: list[tuple[float, list[tuple[int, ...]]]] = []
    for new in added:
        gain = reached[new[:-1]] * float(rates[new[-1]])
        if spare:
            moves.append((gain, [*paths, new]))
        moves += [
            (gain - reached[old], [*(path for path in paths if path != old), new])
            for old in removed
            # Neither below the leaf that is taken away, nor in its place.
            if new[:-1] != old and new != _after(old)
        ]
    moves.sort(key=lambda move: (-move[0], move[1]))
    return [TreeShape.from_paths(path for path in made if path) for _, made in moves]


def _paths(shape: TreeShape) -> list[tuple[int, ...]]:
    """Ranks on the way to each node."""
    paths: list[tuple[int, ...]] = [()]
    for node in range(1, shape.num_nodes + 1):
        parent = shape.parents[node]
        paths.append((*paths[parent], node - shape.children(parent).start))
    return paths


def _after(path: tuple[int, ...]) -> tuple[int, ...]:
    return (*path[:-1], path[-1] + 1)


def _count(parent: tuple[int, ...], places: set[tuple[int, ...]]) -> int:
    count = 0
    while (*parent, count) in places:
        count += 1
    return count


def _rows(
    trees: RecordedTrees, verification: StepVerification, shape: TreeShape, numbers: Sequence[int]
) -> tuple[NodeRow, ...]:
    """Count how often each node is accepted, in one verification of each tree."""
    paths = _paths(shape)
    counts = dict.fromkeys(paths, 0)
    for number in numbers:
        tree = trees.draw(shape, number)
        outcome = verification(tree, RandomChoices(number))
        accepted = outcome.path[-1] if outcome.path else 0
        own = _paths(tree.shape)[accepted]
        for depth in range(len(own) + 1):
            counts[own[:depth]] += 1
    rows = []
    for node, path in enumerate(paths[1:], 1):
        above, here = counts[path[:-1]], counts[path]
        rows.append(
            NodeRow(
                node,
                shape.parents[node],
                len(path),
                path[-1],
                here / above if above else 0.0,
                here / len(numbers),
            )
        )
    return tuple(rows)
