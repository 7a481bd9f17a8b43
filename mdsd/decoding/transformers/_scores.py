"""The logits processors of ``generate``, at the nodes of trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from mdsd._typing import AnyArray

_OWN_MODULE = "transformers.generation.logits_process"
_BLIND_TO_ROWS = frozenset(
    {
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "ExponentialDecayLengthPenalty",
        "ForcedBOSTokenLogitsProcessor",
        "ForcedEOSTokenLogitsProcessor",
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MinLengthLogitsProcessor",
        "MinNewTokensLengthLogitsProcessor",
        "MinPLogitsWarper",
        "NoBadWordsLogitsProcessor",
        "NoRepeatNGramLogitsProcessor",
        "SequenceBiasLogitsProcessor",
        "SuppressTokensAtBeginLogitsProcessor",
        "SuppressTokensLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopHLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "TypicalLogitsWarper",
        "WatermarkLogitsProcessor",
    }
)
"""Processors of transformers to which all rows of a batch are alike, however many there are."""


class Node(NamedTuple):
    """A prefix of a tree, as logits processors see it.

    Attributes
    ----------
    row : int
        Of the batch.
    text : tensor of int64, shape (L,)
        Tokens of the row so far, padding included; on the host.
    tail : list of int
        What follows on the way to the node.
    """

    row: int
    text: Any
    tail: list[int]


class Processors:
    """The logits processors of one call of ``generate``.

    Parameters
    ----------
    processors : LogitsProcessorList
    num_rows : int
        B, the rows of the batch.
    device : torch.device
        Where they are to work.
    """

    def __init__(self, processors: Any, num_rows: int, device: Any) -> None:
        self._processors, self._device, self._num_rows = processors, device, num_rows
        self._see_rows = not all(
            type(each).__module__ == _OWN_MODULE and type(each).__name__ in _BLIND_TO_ROWS
            for each in processors
        )

    def __call__(self, nodes: Sequence[Node], logits: Any) -> AnyArray:
        """Process the logits after some prefixes.

        Parameters
        ----------
        nodes : sequence of Node, length m
        logits : tensor or ndarray, shape (m, V)

        Returns
        -------
        ndarray of float32, shape (m, V)
        """
        import torch

        scores = torch.as_tensor(logits).to(self._device, torch.float32)
        if self._processors:
            by_length = defaultdict(list)
            for place, node in enumerate(nodes):
                by_length[len(node.text) + len(node.tail)].append(place)
            for places in by_length.values():
                self._process([nodes[place] for place in places], scores, places)
        found: AnyArray = scores.cpu().numpy()
        return found

    def _process(self, nodes: list[Node], scores: Any, places: list[int]) -> None:
        """Process, in place, the scores of nodes whose prefixes are equally long."""
        import torch

        found = [torch.cat([node.text, torch.tensor(node.tail).long()]) for node in nodes]
        prefixes = torch.stack(found).to(self._device)
        if not self._see_rows:
            scores[places] = self._processors(prefixes, scores[places]).float()
            return
        # They are shown a batch that has the prefix in every row, and what they make of the row it
        # belongs to is used.
        for node, prefix, place in zip(nodes, prefixes, places, strict=True):
            same = prefix.repeat(self._num_rows, 1)
            processed = self._processors(same, scores[place].repeat(self._num_rows, 1))
            scores[place] = processed[node.row]


class NodeScores:
    """Processed logits of the nodes of one tree, worked out for those that are asked for.

    Parameters
    ----------
    processors : Processors
    nodes : list of Node, length N + 1
    logits : tensor, shape (N + 1, V)
    """

    def __init__(self, processors: Processors, nodes: list[Node], logits: Any) -> None:
        self._processors, self._nodes, self._logits = processors, nodes, logits

    def __getitem__(self, node: int) -> AnyArray:
        found: AnyArray = self._processors([self._nodes[node]], self._logits[node : node + 1])[0]
        return found
