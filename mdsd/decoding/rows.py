"""Sequences that are generated side by side, and models that are asked about all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mdsd._typing import Tensor
from mdsd.decoding.choices import Choices
from mdsd.decoding.models import Model, model_logits

Prefixes = Sequence[list[list[int]]]
"""For each row the prefixes after which logits are wanted; none for a row that wants none."""


@dataclass(eq=False)
class Row:
    """One sequence while it is generated.

    Attributes
    ----------
    prefix : list of int
        Its tokens so far, prompt included.
    left : int
        Most tokens that may follow.
    choices : Choices
        What its steps leave to chance is asked of it.
    """

    prefix: list[int]
    left: int
    choices: Choices

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens, at most as many as are left."""
        self.prefix = [*self.prefix, *token_ids]
        self.left -= len(token_ids)


class RowModel(Protocol):
    """A model that is asked about several rows together."""

    @property
    def name(self) -> str:
        """What to call the model in an error."""

    def logits(self, prefixes: Prefixes) -> list[Tensor]:
        """Give the logits after some prefixes of each row.

        Parameters
        ----------
        prefixes : sequence of lists of lists of int, length B

        Returns
        -------
        list of ndarray or tensor, or anything indexed like one, length B
            Of shape (number of the row's prefixes, V); empty for a row that wants none.
        """

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:
        """Go on with some of the rows, each from a prefix.

        Parameters
        ----------
        rows : list of int
        prefixes : list of lists of int, as many
        """


class PlainRows:
    """Any model of `mdsd.decoding`, asked about one row after the other.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : Model

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> rows = PlainRows("target", TableModel([[0.25, 0.75], [1.0, 0.0]]))
    >>> [len(logits) for logits in rows.logits([[[0], [0, 1]], [], [[1]]])]
    [2, 0, 1]
    """

    def __init__(self, name: str, model: Model) -> None:
        self.name, self._model = name, model

    def logits(self, prefixes: Prefixes) -> list[Tensor]:
        """Ask the model once for each row that wants logits."""
        return [model_logits(self.name, self._model, asked) if asked else [] for asked in prefixes]

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:
        """Do nothing: whatever the model keeps is its own affair."""
