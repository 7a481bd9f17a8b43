"""The rows of a batch while they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.rows import Row
from mdsd.decoding.transformers._scores import Node
from mdsd.decoding.transformers._seeds import row_seeds
from mdsd.decoding.transformers._support import check_positions
from mdsd.errors import InvalidArgumentError, InvalidTokenError


class BatchRow(Row):
    """One row of a batch.

    Its prefix is without padding, as models read it, and its random streams are its own.

    Attributes
    ----------
    index : int
        In the batch.
    ended : bool
        Whether it has come to its end.
    """

    def __init__(
        self, index: int, prefix: list[int], seed: int, sequence: Any, length: int, stop: Stop
    ) -> None:
        super().__init__(prefix, len(sequence) - length, RandomChoices(seed))
        self.index, self.ended = index, False
        self._sequence, self._stop = sequence, stop

    @property
    def length(self) -> int:
        """Tokens so far, padding included."""
        return len(self._sequence) - self.left

    @property
    def text(self) -> Any:
        """Its tokens so far, padding included: (L,), on the host."""
        return self._sequence[: self.length]

    def nodes(self, prefixes: list[list[int]]) -> list[Node]:
        """Give prefixes of its tree as logits processors see them."""
        known = len(self.prefix)
        return [Node(self.index, self.text, prefix[known:]) for prefix in prefixes]

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens, up to the one after which the row is to stop."""
        for token_id in token_ids:
            self._sequence[self.length] = token_id
            super().append([token_id])
            self.ended = self.left == 0 or self._stop(self.index, self.text)
            if self.ended:
                break


class Stop:
    """The stopping criteria of one call of ``generate``, asked about one row at a time.

    Parameters
    ----------
    criteria : StoppingCriteriaList
    num_rows : int
        B, the rows of the batch.
    device : torch.device
        Where criteria from elsewhere expect the tokens.
    """

    def __init__(self, criteria: Any, num_rows: int, device: Any) -> None:
        own = "transformers.generation.stopping_criteria"
        self._own = [each for each in criteria if type(each).__module__ == own]
        self._others = [each for each in criteria if type(each).__module__ != own]
        self._num_rows, self._device = num_rows, device

    def __call__(self, row: int, text: Any) -> bool:
        """Tell whether a text, (L,), is complete."""
        if any(bool(criterion(text[None], None)) for criterion in self._own):
            return True
        if not self._others:
            return False
        # They may look at a row's place in the batch: the text is in every row of what they are
        # shown, and what they say of its own row counts.
        import torch

        texts = text.repeat(self._num_rows, 1).to(self._device)
        found = (torch.as_tensor(criterion(texts, None)) for criterion in self._others)
        return any(bool(each.expand(self._num_rows)[row]) for each in found)


class Batch:
    """Prompts and what has been generated behind them.

    Parameters
    ----------
    rows : list of BatchRow
    sequences : tensor of int64, shape (B, L)
        What the rows write to; on the host, where single tokens cost no time.
    prompt_length : int
    """

    def __init__(self, rows: list[BatchRow], sequences: Any, prompt_length: int) -> None:
        self.rows = rows
        self._sequences, self._streamed = sequences, prompt_length

    def sequences(self) -> Any:
        """Give the tokens of all rows, as far as the longest: (B, L), on the host."""
        return self._sequences[:, : max(row.length for row in self.rows)]

    def stream(self, streamer: Any) -> None:
        """Give a streamer the tokens of each place that all rows have reached, or ended before."""
        longest = max(row.length for row in self.rows)
        reached = min((row.length for row in self.rows if not row.ended), default=longest)
        for place in range(self._streamed, reached):
            streamer.put(self._sequences[:, place].clone())
        self._streamed = max(self._streamed, reached)


def read_batch(
    input_ids: Any, criteria: Any, config: Any, arguments: dict[str, Any], seed: int
) -> Batch:
    """Read the prompts of a call of ``generate``.

    Parameters
    ----------
    input_ids : tensor of int, shape (B, P)
    criteria : StoppingCriteriaList
    config : GenerationConfig
    arguments : dict
        For the model; of them the attention mask is read.
    seed : int

    Returns
    -------
    Batch

    Raises
    ------
    InvalidTokenError
        If a row has no token.
    InvalidArgumentError
        If there is no length to stop at, or no token to fill up rows with that stop early.
    UnsupportedError
        If position ids are given that are not those of the attention mask.
    """
    import torch

    num_rows, prompt_length = input_ids.shape
    given = arguments.get("attention_mask")
    mask = torch.ones_like(input_ids) if given is None else given.to(input_ids.device)
    read = mask[:, :prompt_length] != 0
    empty = ~read.any(dim=1)
    if prompt_length == 0 or empty.any():
        raise InvalidTokenError(
            f"input_ids row {int(empty.int().argmax()) if len(empty) else 0} has no token that the "
            "attention mask lets be read"
        )
    positions = arguments.get("position_ids")
    if positions is not None:
        check_positions(positions.to(read.device), read.long().cumsum(-1) - 1, read)
    if config.max_length is None or config.max_length <= prompt_length:
        raise InvalidArgumentError(
            f"max_length is {config.max_length}; expected more than the {prompt_length} tokens of "
            "the prompt"
        )
    padding = _read_padding(config)
    early = [each for each in criteria if type(each).__name__ != "MaxLengthCriteria"]
    if padding is None and num_rows > 1 and early:
        raise InvalidArgumentError(
            "pad_token_id is not set; it fills up rows that stop before others"
        )
    shape = (num_rows, config.max_length)
    sequences = torch.full(shape, 0 if padding is None else padding, dtype=torch.int64)
    sequences[:, :prompt_length] = input_ids
    stop = Stop(criteria, num_rows, input_ids.device)
    prefixes = [row[seen].tolist() for row, seen in zip(input_ids, read, strict=True)]
    rows = [
        BatchRow(index, prefix, own_seed, sequences[index], prompt_length, stop)
        for index, (prefix, own_seed) in enumerate(
            zip(prefixes, row_seeds(seed, prefixes), strict=True)
        )
    ]
    return Batch(rows, sequences, prompt_length)


def _read_padding(config: Any) -> int | None:
    padding = getattr(config, "_pad_token_tensor", None)
    if padding is None:
        padding = config.pad_token_id
    return None if padding is None else int(padding)
