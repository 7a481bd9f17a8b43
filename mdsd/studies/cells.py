"""The cells of a grid: what is drafted from which models, under which filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mdsd.drafts import DraftKind
from mdsd.filters import Filtered, Filters
from mdsd.studies.cases import Case

TEXT_COLUMN = "text"
"""Name of the column that says which text each position is of."""


@dataclass(frozen=True)
class DraftedFrom:
    """A way of drafting n tokens from draft models.

    Attributes
    ----------
    draft : str
        Label of the kind of draft.
    draft_models : tuple of str
        The one draft model, or those of drafts that have one each.
    """

    draft: str
    draft_models: tuple[str, ...]

    @property
    def label(self) -> str:
        """What it is called in files.

        Examples
        --------
        >>> DraftedFrom("independent", ("small", "tiny")).label
        'independent of small+tiny'
        """
        return f"{self.draft} of {'+'.join(self.draft_models)}"

    @property
    def drawable_column(self) -> str:
        """Name of the column that says where its n tokens can be drafted."""
        return f"drawable, {self.label}"

    @property
    def bound_column(self) -> str:
        """Name of the column of its bounds."""
        return f"bound, {self.label}"

    def acceptance_column(self, verifier: str) -> str:
        """Name of the column of a verifier's acceptance."""
        return f"{verifier}, {self.label}"


@dataclass(frozen=True)
class Cell(Filtered):
    """One point of a grid: all that shares draft models, number of drafts and filters.

    Attributes
    ----------
    draft_models : tuple of str
        One, or the n of drafts that have one each.
    num_drafts : int
    filters : Filters
    joint : bool
        Whether each draft has a model of its own.
    asked : tuple of (DraftedFrom, tuple of str)
        The drafts asked for, with the names of the verifiers that support each.
    yardsticks : tuple of DraftedFrom
        The other ways of drafting n tokens from these models, to compare their bounds.
    """

    draft_models: tuple[str, ...]
    num_drafts: int
    filters: Filters
    joint: bool = False
    asked: tuple[tuple[DraftedFrom, tuple[str, ...]], ...] = ()
    yardsticks: tuple[DraftedFrom, ...] = ()

    @property
    def drafted(self) -> tuple[DraftedFrom, ...]:
        """All ways of drafting that are looked at, those asked for first."""
        return (*(each for each, _ in self.asked), *self.yardsticks)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of its file."""
        asked = dict(self.asked)
        numbers = (
            column
            for each in self.drafted
            for column in (
                each.drawable_column,
                each.bound_column,
                *map(each.acceptance_column, asked.get(each, ())),
            )
        )
        return (TEXT_COLUMN, *numbers)


def grid_cells(
    cases: Sequence[tuple[Case, tuple[str, ...]]], yardsticks: Sequence[DraftKind] = ()
) -> tuple[Cell, ...]:
    """Arrange cases as cells.

    Parameters
    ----------
    cases : sequence of (Case, tuple of str)
        In the order of the rows, each with the names of the verifiers that support it.
    yardsticks : sequence of DraftKind
        Kinds of one draft model, to compare the drafts of every cell to.

    Returns
    -------
    tuple of Cell
    """
    cells: dict[Cell, list[tuple[DraftedFrom, tuple[str, ...]]]] = {}
    for case, verifiers in cases:
        # Independent drafts of one model are a cell of their own, as those of several are.
        joint = case.kind.one_model_each
        empty = Cell(case.draft_models, case.num_drafts, case.filters, joint)
        drafted = DraftedFrom(case.kind.label, case.draft_models)
        cells.setdefault(empty, []).append((drafted, verifiers))
    found = []
    for empty, asked in cells.items():
        known = {each for each, _ in asked}
        others = (
            DraftedFrom(kind.label, (model,))
            for model in empty.draft_models
            for kind in yardsticks
            if kind.applies(empty.num_drafts, 1)
        )
        left = tuple(each for each in others if each not in known)
        found.append(replace(empty, asked=tuple(asked), yardsticks=left))
    return tuple(found)
