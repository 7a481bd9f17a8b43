"""Drafted trees whose nodes are recorded positions, drawn at random.

A tree needs distributions at every node, but a data set records positions along texts, and not what
would follow other tokens. Here recorded positions stand in: which one stands at a node is drawn at
random, whatever was drafted on the way to it. That keeps how target and draft differ from each
other and how much this varies from position to position; it loses that hard positions come in runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.datasets import Source
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.preference import worth_below
from mdsd.decoding.steps import StepVerification
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.studies.planning.acceptance import MeasuringSettings
from mdsd.studies.values import FilteredBlock, study_blocks
from mdsd.trees import TreeShape

_MOST_POSITIONS = 512
"""Positions in memory at once; of more than that so many are drawn."""


class RecordedTrees:
    """Draws trees of any shape from recorded positions.

    Parameters
    ----------
    target_probs, draft_probs : ndarray of float64, shape (P, V)
    kind : DraftKind
    seed : int

    Notes
    -----
    Trees of the same number have common random numbers: the same string stands at the same
    position in all shapes, and the children of the node at the same place are drawn from the same
    stream. Where shapes agree, so do their trees, and their difference is known far better than
    either.

    Examples
    --------
    >>> import mdsd
    >>> p, q = np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([[0.25, 0.75], [0.5, 0.5]])
    >>> trees = RecordedTrees(p, q, mdsd.WithReplacement.kind(), seed=0)
    >>> trees.draw(TreeShape.from_branching([2, 1]), 0).shape.num_nodes
    4
    """

    def __init__(
        self, target_probs: FloatArray, draft_probs: FloatArray, kind: DraftKind, seed: int
    ) -> None:
        self._target, self._seed = target_probs, seed

        @cache
        def law(position: int, count: int) -> DraftDistribution:
            return kind.make_at_most(draft_probs[position], count)

        self._law = law

    def draw(self, shape: TreeShape, number: int) -> DraftedTree:
        """Draw a tree.

        Parameters
        ----------
        shape : TreeShape
        number : int
            Trees of other numbers are independent.

        Returns
        -------
        DraftedTree
            Where fewer tokens can be drawn at a node than it has children, without the others and
            what is below them.
        """
        places: list[tuple[int, ...]] = [()]
        strings: list[tuple[int, ...]] = [()]
        planned = [0]
        parents = [-1]
        laws: list[DraftDistribution | None] = []
        rows: list[FloatArray] = []
        for node in range(shape.num_nodes + 1):
            if node == len(planned):
                break
            position = int(self._stream(number, 0, strings[node]).integers(len(self._target)))
            rows.append(self._target[position])
            children = shape.children(planned[node])
            if not children:
                laws.append(None)
                continue
            law = self._law(position, len(children))
            laws.append(law)
            rng = self._stream(number, 1, places[node])
            for rank, token in enumerate(law.sample(rng).tolist()):
                parents.append(node)
                planned.append(children[rank])
                places.append((*places[node], rank))
                strings.append((*strings[node], token))
        return DraftedTree(
            TreeShape(tuple(parents)),
            np.array([string[-1] if string else 0 for string in strings]),
            tuple(laws),
            rows,
            worth_below(shape)[planned],
        )

    def accepted(
        self, verification: StepVerification, shape: TreeShape, numbers: Sequence[int]
    ) -> FloatArray:
        """Give the chances that so many tokens are accepted, of some trees.

        Parameters
        ----------
        verification : StepVerification
        shape : TreeShape
        numbers : sequence of int

        Returns
        -------
        ndarray of float64, shape (N, D)
            `StepVerification.accepted_by_depth` of each.
        """
        found = np.zeros((len(numbers), shape.depth))
        for row, number in zip(found, numbers, strict=True):
            chances = verification.accepted_by_depth(self.draw(shape, number))
            row[: len(chances)] = chances
        return found

    def _stream(self, number: int, use: int, key: tuple[int, ...]) -> np.random.Generator:
        seed = np.random.SeedSequence(self._seed, spawn_key=(number, use, *key))
        return np.random.default_rng(seed)


def recorded_trees(source: Source, settings: MeasuringSettings) -> RecordedTrees:
    """Read the positions of a data set, to draw trees from.

    Parameters
    ----------
    source : Source
    settings : MeasuringSettings

    Returns
    -------
    RecordedTrees
        Over the tokens that some position has.
    """
    case, (model,), seed = settings.case, settings.case.draft_models, settings.study.seed
    total = settings.study.positions
    kept = np.arange(total)
    if total > _MOST_POSITIONS:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(total,)))
        kept = np.sort(rng.choice(total, _MOST_POSITIONS, replace=False))
    target: list[Any] = []
    draft: list[Any] = []
    for start, stop in study_blocks(source, total):
        rows = kept[(kept >= start) & (kept < stop)] - start
        if len(rows):
            block = FilteredBlock(source.read(start, stop), case.filters)
            target.append(block.target[rows])
            draft.append(block.draft(model)[rows])
    p, q = np.concatenate(target), np.concatenate(draft)
    if case.kind.draft_type.declared:
        live = (p > 0.0).any(axis=0) | (q > 0.0).any(axis=0)
        p, q = p[:, live], q[:, live]
    return RecordedTrees(p, q, case.kind, seed)
