"""Where paths of draft trees end, and the rows that a verification of whole paths asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd._probabilities import check_probs
from mdsd._typing import FloatArray, IntArray
from mdsd.batch.tensors.spaces import to_host
from mdsd.decoding.layouts._inputs import PADDING, ProbRows


@dataclass(frozen=True, eq=False)
class Paths:
    """Where the verification of each tree of a batch ended.

    Attributes
    ----------
    nodes : ndarray of int64, shape (B, L)
        The path of accepted nodes of each tree, the root first, padded with -1.
    lengths : ndarray of int64, shape (B,)
        Number of these nodes, the root included.
    token_ids : ndarray of int64, shape (B,)
        The token emitted after it: a residual token, or the target's own where it ends in a leaf.
    """

    nodes: IntArray
    lengths: IntArray
    token_ids: IntArray

    def emitted(self, ids: IntArray) -> IntArray:
        """Tokens emitted by each tree, (B, L), padded with -1: those of its path, then the last.

        Parameters
        ----------
        ids : ndarray of int64, shape (B, N)
            Token of each node.
        """
        tokens = np.full(self.nodes.shape, PADDING, dtype=np.int64)
        rows, columns = np.nonzero(self.nodes[:, 1:] != PADDING)
        tokens[rows, columns] = ids[rows, self.nodes[rows, columns + 1]]
        tokens[np.arange(len(tokens)), self.lengths - 1] = self.token_ids
        return tokens


class HostRows:
    """Distributions after the nodes of one tree, brought to the host when they are asked for.

    Parameters
    ----------
    probs : ProbRows, shape (B, N, V)
        Checked.
    b : int
        Which tree.
    numbers : sequence of int
        Number that each node has in `probs`.
    """

    def __init__(self, probs: ProbRows, b: int, numbers: Sequence[int]) -> None:
        self._probs, self._b, self._numbers = probs, b, numbers
        self._known: dict[int, FloatArray] = {}

    def __getitem__(self, node: int) -> FloatArray:
        """Give the distribution, (V,), of the token after a node."""
        if node not in self._known:
            row = self._probs.values[self._b, self._numbers[node], ...]
            self._known[node] = check_probs(to_host(row), self._probs.name)
        return self._known[node]
