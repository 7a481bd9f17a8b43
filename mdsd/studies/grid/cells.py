"""The cells of a grid: what is drafted from which models, under which filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mdsd.drafts import (
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
    read_kind,
)
from mdsd.studies.positions import Case, applies

__all__ = ["Cell", "Construction", "grid_cells"]

_OF_ONE_MODEL = (
    WithReplacement.name,
    WithoutReplacement.name,
    GreedyDraft.name,
    SpecHubDraft.name,
    TopKDraft.name,
)


@dataclass(frozen=True)
class Construction:
    """A way of drafting n tokens from draft models.

    Attributes
    ----------
    draft : str
        Name of the draft distribution.
    draft_models : tuple of str
        The one draft model, or those of independent drafts.
    """

    draft: str
    draft_models: tuple[str, ...]

    @property
    def draws_distinct(self) -> bool:
        """Whether the drafts of a step differ, so that it takes n tokens to draw."""
        return read_kind(self.draft).distinct

    @property
    def label(self) -> str:
        """What it is called in files.

        Examples
        --------
        >>> Construction("independent", ("small", "tiny")).label
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
class Cell:
    """One point of a grid: all that shares draft models, number of drafts and filters.

    Attributes
    ----------
    draft_models : tuple of str
        One, or the n of independent drafts.
    num_drafts : int
    temperature : float
    top_k : int or None
    top_p : float
    judged : tuple of (Construction, tuple of str)
        The draft distributions asked for, with the names of the verifiers that support each.
    """

    draft_models: tuple[str, ...]
    num_drafts: int
    temperature: float
    top_k: int | None
    top_p: float
    judged: tuple[tuple[Construction, tuple[str, ...]], ...]

    @property
    def constructions(self) -> tuple[Construction, ...]:
        """All ways of drafting n tokens from these models: the best of them is a yardstick."""
        single = [
            Construction(draft, (model,))
            for model in self.draft_models
            for draft in _OF_ONE_MODEL
            if applies(draft, self.num_drafts, 1)
        ]
        asked = [construction for construction, _ in self.judged]
        return tuple(dict.fromkeys([*asked, *single]))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of its file."""
        asked = dict(self.judged)
        return tuple(
            column
            for construction in self.constructions
            for column in (
                construction.drawable_column,
                construction.bound_column,
                *map(construction.acceptance_column, asked.get(construction, ())),
            )
        )

    @property
    def filters(self) -> dict[str, Any]:
        """Options of `mdsd.probs_from_logits`."""
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}

    @property
    def label(self) -> dict[str, Any]:
        """The columns that say which cell a row is about."""
        models = "+".join(self.draft_models)
        return {"draft_model": models, "num_drafts": self.num_drafts, **self.filters}


def grid_cells(
    cases: Sequence[tuple[Case, Sequence[str]]],
    filters: Sequence[tuple[int | None, float]],
) -> tuple[Cell, ...]:
    """Arrange cases and filters as cells.

    Parameters
    ----------
    cases : sequence of (Case, sequence of str)
        In the order of the rows, each with the names of the verifiers that support it.
    filters : sequence of (int or None, float)
        Pairs of top-k and top-p.

    Returns
    -------
    tuple of Cell
    """
    cells: dict[tuple[bool, Cell], list[tuple[Construction, tuple[str, ...]]]] = {}
    for top_k, top_p in filters:
        for case, verifiers in cases:
            construction = Construction(case.draft, case.draft_models)
            # Independent drafts of one model are a cell of their own, as those of several are.
            joint = case.draft == IndependentDrafts.name
            empty = Cell(
                case.draft_models, case.num_drafts, case.temperature, top_k, top_p, judged=()
            )
            cells.setdefault((joint, empty), []).append((construction, tuple(verifiers)))
    return tuple(replace(empty, judged=tuple(judged)) for (_, empty), judged in cells.items())
