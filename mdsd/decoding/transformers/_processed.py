"""Models whose logits go through the logits processors of ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mdsd.decoding.rows import Prefixes, RowModel
from mdsd.decoding.transformers._batch import BatchRow
from mdsd.decoding.transformers._scores import Node, NodeScores, Processors


class ProcessedRows:
    """A model whose logits are processed for the nodes of all rows together.

    Parameters
    ----------
    model : RowModel
    processors : Processors
    rows : sequence of BatchRow
        Those that the model is asked about.
    """

    def __init__(self, model: RowModel, processors: Processors, rows: Sequence[BatchRow]) -> None:
        self.name = model.name
        self._model, self._processors, self._rows = model, processors, rows

    def _nodes(self, prefixes: Prefixes) -> list[list[Node]]:
        return [row.nodes(asked) for row, asked in zip(self._rows, prefixes, strict=True)]

    def logits(self, prefixes: Prefixes) -> list[Any]:
        nodes = self._nodes(prefixes)
        together = [node for own in nodes for node in own]
        logits = _joined(self._model.logits(prefixes))
        # Where a model leaves no token possible there is nothing to process.
        empty = (logits == -float("inf")).all(-1).tolist()
        pairs = zip(together, empty, strict=True)
        asked = [node._replace(over=node.over or nothing) for node, nothing in pairs]
        scores = self._processors(asked, logits, together)
        return np.split(scores, np.cumsum([len(own) for own in nodes])[:-1])

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:
        self._rows = [self._rows[row] for row in rows]
        self._model.keep(rows, prefixes)


class LazyRows(ProcessedRows):
    """A model whose logits are processed for the nodes that a verification asks about."""

    def logits(self, prefixes: Prefixes) -> list[Any]:
        found, by_row = self._model.logits(prefixes), self._nodes(prefixes)
        together = [node for own in by_row for node in own]
        return [
            NodeScores(self._processors, nodes, logits, together)
            for nodes, logits in zip(by_row, found, strict=True)
        ]


def _joined(logits: list[Any]) -> Any:
    """Put the logits of all rows, (m, V) each, below each other."""
    import torch

    found = [own for own in logits if len(own)]
    return torch.cat(found) if isinstance(found[0], torch.Tensor) else np.concatenate(found)
