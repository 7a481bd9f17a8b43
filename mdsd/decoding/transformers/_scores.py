"""The logits processors of ``generate``, at the nodes of trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from mdsd._arguments import shown
from mdsd._typing import AnyArray
from mdsd.errors import InvalidArgumentError

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

_CONSTRAINED = "PrefixConstrainedLogitsProcessor"


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
    over : bool
        Whether the text ends in it, and goes on in padding: what would follow is not looked at.
    """

    row: int
    text: Any
    tail: list[int]
    over: bool

    @property
    def length(self) -> int:
        """Tokens of the prefix, padding included."""
        return len(self.text) + len(self.tail)


class Processors:
    """The logits processors of one call of ``generate``.

    Parameters
    ----------
    processors : LogitsProcessorList
    sequences : tensor of int64, shape (B, M)
        The tokens of all rows so far, with padding behind them.
    device : torch.device
        Where they are to work.

    Notes
    -----
    As in plain generation each is asked about rows of the batch and texts of theirs, equally long
    in one call; those that are functions of a text are asked about any number of them together.

    Attributes
    ----------
    in_step : bool
        Whether one of them may have a say about whole batches: then all rows are to be equally
        long, so that each has a text of its own wherever one is asked about.
    """

    def __init__(self, processors: Any, sequences: Any, device: Any) -> None:
        self._processors, self._device, self._sequences = list(processors), device, sequences
        self.in_step = len(sequences) > 1 and not all(map(is_own, processors))

    def __call__(self, nodes: Sequence[Node], logits: Any, others: Sequence[Node]) -> AnyArray:
        """Process the logits after some prefixes.

        Parameters
        ----------
        nodes : sequence of Node, length m
        logits : tensor or ndarray, shape (m, V)
        others : sequence of Node
            What may stand in the rows that are not asked about.

        Returns
        -------
        ndarray of float32, shape (m, V)
        """
        import torch

        scores = torch.as_tensor(logits).to(self._device, torch.float32)
        if self._processors:
            by_length = defaultdict(list)
            for place, node in enumerate(nodes):
                if not node.over:
                    by_length[node.length].append(place)
            for places in by_length.values():
                self._process([nodes[place] for place in places], scores, places, others)
        found: AnyArray = scores.cpu().numpy()
        return found

    def _process(
        self, nodes: list[Node], scores: Any, places: list[int], others: Sequence[Node]
    ) -> None:
        """Process, in place, the scores of nodes whose prefixes are equally long."""
        import torch

        texts = torch.stack([_text(node) for node in nodes]).to(self._device)
        rows = [node.row for node in nodes]
        processed = scores[places]
        for processor in self._processors:
            name = type(processor).__name__ if is_own(processor) else None
            if name in _BLIND_TO_ROWS:
                processed = _call(processor, texts, processed)
            elif name == _CONSTRAINED:
                processed = _constrain(processor, rows, texts, processed)
            else:
                shown = self._texts(texts.shape[1], others).to(self._device)
                processed = _by_rows(processor, rows, texts, processed, shown)
        scores[places] = processed.float()

    def _texts(self, length: int, others: Sequence[Node]) -> Any:
        """Give a text of each row, (B, L): drafted where it has not come so far yet."""
        shown = self._sequences[:, :length].clone()
        known = [node for node in others if node.length == length]
        for node in sorted(known, key=lambda node: node.over, reverse=True):
            shown[node.row] = _text(node)
        return shown


def _text(node: Node) -> Any:
    import torch

    return torch.cat([node.text, torch.tensor(node.tail).long()])


def _by_rows(processor: Any, rows: list[int], texts: Any, scores: Any, shown: Any) -> Any:
    """Ask a processor about whole batches, in which every row has a text of its own.

    Parameters
    ----------
    processor : LogitsProcessor
    rows : list of int, length m
    texts, scores : tensor, shape (m, L) and (m, V)
    shown : tensor, shape (B, L)
        Texts of the rows that there is none of to ask about.
    """
    import torch

    processed = torch.empty_like(scores)
    by_row = [[k for k, row in enumerate(rows) if row == b] for b in range(len(shown))]
    logits = scores[:1].repeat(len(shown), 1)
    for turn in range(max(map(len, by_row))):
        asked = [(row, own[turn]) for row, own in enumerate(by_row) if turn < len(own)]
        own_rows, places = map(list, zip(*asked, strict=True))
        shown[own_rows], logits[own_rows] = texts[places], scores[places]
        processed[places] = _call(processor, shown.clone(), logits.clone())[own_rows].float()
    return processed


def is_own(processor: Any) -> bool:
    return type(processor).__module__ == _OWN_MODULE


def _call(processor: Any, texts: Any, scores: Any) -> Any:
    """Call a processor as ``generate`` does."""
    from transformers import LogitsProcessorList

    return LogitsProcessorList([processor])(texts, scores)


def _constrain(processor: Any, rows: list[int], texts: Any, scores: Any) -> Any:
    """Apply a ``prefix_allowed_tokens_fn``, asked about each text as one of the row it is of."""
    allowed = processor._prefix_allowed_tokens_fn

    def of_text(place: int, text: Any) -> Any:
        found = allowed(rows[place], text)
        if len(found) == 0:
            raise InvalidArgumentError(
                f"prefix_allowed_tokens_fn allows no token in row {rows[place]} after "
                f"{shown(text.tolist())}"
            )
        return found

    return _call(type(processor)(of_text, 1), texts, scores)


class NodeScores:
    """Processed logits of the nodes of one tree, worked out for those that are asked for.

    Parameters
    ----------
    processors : Processors
    nodes : list of Node, length N + 1
    logits : tensor, shape (N + 1, V)
    others : list of Node
        Those of the trees of all rows.
    """

    def __init__(
        self, processors: Processors, nodes: list[Node], logits: Any, others: list[Node]
    ) -> None:
        self._processors, self._nodes, self._others = processors, nodes, others
        self._logits = logits

    def __getitem__(self, node: int) -> AnyArray:
        asked, logits = [self._nodes[node]], self._logits[node : node + 1]
        found: AnyArray = self._processors(asked, logits, self._others)[0]
        return found
