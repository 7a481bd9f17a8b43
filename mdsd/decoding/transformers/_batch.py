"""The rows of a batch while they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.results import StepCount
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
    steps : list of StepCount
        What its steps came to.
    """

    def __init__(
        self, index: int, prefix: list[int], seed: int, sequence: Any, length: int, stop: Stop
    ) -> None:
        super().__init__(prefix, len(sequence) - length, RandomChoices(seed))
        self.index, self.ended = index, False
        self.steps: list[StepCount] = []
        self._num_read = len(prefix)
        self._sequence, self._stop = sequence, stop

    @property
    def length(self) -> int:
        """Tokens so far, padding included."""
        return len(self._sequence) - self.left

    @property
    def text(self) -> Any:
        """Its tokens so far, padding included: (L,), on the host."""
        return self._sequence[: self.length]

    @property
    def new_tokens(self) -> list[int]:
        """Its tokens so far, without the prompt."""
        return self.prefix[self._num_read :]

    def nodes(self, prefixes: list[list[int]]) -> list[Node]:
        """Give prefixes of its tree as logits processors see them."""
        known = len(self.prefix)
        return [self._node(prefix[known:]) for prefix in prefixes]

    def _node(self, tail: list[int]) -> Node:
        ends = [k for k, token in enumerate(tail) if token in self._stop.end_tokens]
        if ends:
            behind = len(tail) - ends[0] - 1
            tail = tail[: ends[0] + 1] + [self._stop.padding] * behind
        return Node(self.index, self.text, tail, bool(ends) or len(tail) >= self.left)

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens, up to the one after which the row is to stop."""
        for token_id in token_ids:
            self._sequence[self.length] = token_id
            super().append([token_id])
            self.ended = self.left == 0 or self._stop(self.text)
            if self.ended:
                break

    def end_at(self, length: int) -> None:
        """End the row, taking back the tokens beyond a length."""
        surplus = self.length - length
        self._sequence[length : self.length] = self._stop.padding
        self.prefix = self.prefix[: len(self.prefix) - surplus]
        self.left += surplus
        self.ended = True


class Stop:
    """The stopping criteria of transformers in a call of ``generate``, asked about single texts.

    Parameters
    ----------
    criteria : list of StoppingCriteria
        To which all rows of a batch are alike.
    padding : int
        The token that stands behind the end of a text.

    Attributes
    ----------
    padding : int
    end_tokens : frozenset of int
        Tokens that end a text.
    """

    def __init__(self, criteria: Sequence[Any], padding: int) -> None:
        self._criteria, self.padding = criteria, padding
        ends = [each.eos_token_id.tolist() for each in criteria if hasattr(each, "eos_token_id")]
        self.end_tokens = frozenset(token for own in ends for token in own)

    def __call__(self, text: Any) -> bool:
        """Tell whether a text, (L,), is complete."""
        return any(bool(criterion(text[None], None)) for criterion in self._criteria)


class Batch:
    """Prompts and what has been generated behind them.

    Parameters
    ----------
    rows : list of BatchRow
    sequences : tensor of int64, shape (B, M)
        What the rows write to, with padding behind them; on the host, where single tokens cost no
        time.
    prompt_length : int
    criteria : list of StoppingCriteria
        Those that are asked about all rows together, as they may look at a row's place in the
        batch, or remember what they have seen.
    device : torch.device
        Where these expect the tokens.
    padded_ends : bool
        Whether a row that they end holds padding from there on. Else it goes on, until they have
        ended all rows.

    Attributes
    ----------
    settled : int
        Length up to which no criterion can take anything back.
    """

    def __init__(
        self,
        rows: list[BatchRow],
        sequences: Any,
        prompt_length: int,
        criteria: Sequence[Any],
        device: Any,
        *,
        padded_ends: bool,
    ) -> None:
        self.rows, self.padded = rows, sequences
        self.settled = self._streamed = prompt_length
        self._criteria, self._device = criteria, device
        self._padded_ends, self._complete = padded_ends, [False] * len(rows)

    def sequences(self) -> Any:
        """Give the tokens of all rows, as far as the longest: (B, L), on the host."""
        return self.padded[:, : max(row.length for row in self.rows)]

    def settle(self) -> None:
        """Ask the criteria about each length that all rows have reached, or ended before.

        They are called as in plain generation: once for each length, in order, with all rows. Rows
        that come ahead of others wait for nobody, but lose what is behind the end.
        """
        while True:
            going = [row for row in self.rows if not row.ended or row.length > self.settled]
            if min((row.length for row in going), default=0) <= self.settled:
                return
            self.settled += 1
            self._ask(self.padded[:, : self.settled])
            if self._padded_ends or all(self._complete):
                for row in going:
                    if self._complete[row.index]:
                        row.end_at(self.settled)

    def _ask(self, texts: Any) -> None:
        """Ask the criteria which texts, (B, L), are complete."""
        import torch

        if not self._criteria:
            return
        found = torch.tensor(self._complete)
        shown = texts.to(self._device, copy=True)
        for criterion in self._criteria:
            found |= torch.as_tensor(criterion(shown, None)).cpu().bool()
        self._complete = found.tolist()

    def stream(self, streamer: Any) -> None:
        """Give a streamer the tokens of each place that is settled."""
        for place in range(self._streamed, self.settled):
            streamer.put(self.padded[:, place].clone())
        self._streamed = self.settled


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
    # Without an end token ``generate`` lets rows go on until all of them are complete.
    padded_ends = any(hasattr(each, "eos_token_id") for each in criteria)
    if padding is None and num_rows > 1 and padded_ends:
        raise InvalidArgumentError(
            "pad_token_id is not set; it fills up rows that stop before others"
        )
    padding = padding or 0
    sequences = torch.full((num_rows, config.max_length), padding, dtype=torch.int64)
    sequences[:, :prompt_length] = input_ids
    early = [each for each in criteria if type(each).__name__ != "MaxLengthCriteria"]
    own = "transformers.generation.stopping_criteria"
    alike = [each for each in early if padded_ends and type(each).__module__ == own]
    stop = Stop(alike, padding)
    prefixes = [row[seen].tolist() for row, seen in zip(input_ids, read, strict=True)]
    rows = [
        BatchRow(index, prefix, own_seed, sequences[index], prompt_length, stop)
        for index, (prefix, own_seed) in enumerate(
            zip(prefixes, row_seeds(seed, prefixes), strict=True)
        )
    ]
    together = [each for each in early if each not in alike]
    return Batch(
        rows, sequences, prompt_length, together, input_ids.device, padded_ends=padded_ends
    )


def _read_padding(config: Any) -> int | None:
    padding = getattr(config, "_pad_token_tensor", None)
    if padding is None:
        padding = config.pad_token_id
    return None if padding is None else int(padding)
