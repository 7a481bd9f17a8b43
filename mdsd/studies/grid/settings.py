"""What a study of a grid is asked to do, checked before anything is computed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from mdsd._arguments import check_whole
from mdsd._typing import IntArray
from mdsd.datasets import Source
from mdsd.errors import InvalidArgumentError
from mdsd.studies.grid.cells import Cell, grid_cells
from mdsd.studies.positions import Case, probe_draft
from mdsd.studies.settings import (
    SEARCH_TOLERANCE,
    listed,
    make_verifier,
    settle,
    supporting,
    verifier_label,
)
from mdsd.verifiers import Verifier

__all__ = ["PATHS", "GridSettings", "grid_settings"]

PATHS = 256
"""Rejection paths where an acceptance rate is estimated: thousands of positions average them."""


@dataclass(frozen=True)
class GridSettings:
    """A checked request.

    Attributes
    ----------
    verifiers : mapping of str to (str or Verifier)
        By name.
    positions : int
        How many positions, counted from the first.
    seed : int
    cells : tuple of Cell
        The grid, in the order of the rows.
    axes : mapping of str to list
        The values on each axis, as they are written next to the rows.
    """

    verifiers: Mapping[str, str | Verifier]
    positions: int
    seed: int
    cells: tuple[Cell, ...]
    axes: Mapping[str, list[Any]]

    def describe(self) -> dict[str, Any]:
        """Give the settings as they are written next to the rows."""
        given = {
            name: _described(verifier)
            for name, verifier in self.verifiers.items()
            if not isinstance(verifier, str)
        }
        return {
            "positions": self.positions,
            **self.axes,
            **({"given_verifiers": given} if given else {}),
            "monte_carlo_paths": PATHS,
            "seed": self.seed,
        }

    def verifier(self, name: str, tolerance: float) -> Verifier:
        """Make a verifier whose searches stop at a certified gap."""
        options = {"tolerance": tolerance, "monte_carlo_paths": PATHS, "seed": self.seed}
        return make_verifier(self.verifiers[name], options)

    def seeds(self, positions: Iterable[int]) -> IntArray:
        """Make the seed of what is estimated at each of some positions.

        It depends on the seed and the position only: not on the cell, nor on what else is asked.
        """
        sequences = (np.random.SeedSequence(self.seed, spawn_key=(p,)) for p in positions)
        states = [int(sequence.generate_state(1, np.uint64)[0]) >> 1 for sequence in sequences]
        return np.array(states, dtype=np.int64)


def grid_settings(
    source: Source,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[str] | None = None,
    draft_models: Iterable[str] | None = None,
    verifiers: Iterable[str | Verifier] | None = None,
    temperatures: Iterable[float] = (1.0,),
    top_k: Iterable[int | None] = (None,),
    top_p: Iterable[float] = (1.0,),
    positions: int | None = None,
    seed: int = 0,
) -> GridSettings:
    """Check the options of a study; they are those of `mdsd.studies.study`.

    Returns
    -------
    GridSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    counts, heats = listed("num_drafts", num_drafts), listed("temperatures", temperatures)
    # Each is gone through once for every filter.
    laws = None if drafts is None else listed("draft distributions", drafts)
    models = None if draft_models is None else listed("draft models", draft_models)
    judging = None if verifiers is None else listed("verifiers", verifiers)
    filters = list(product(listed("top_k", top_k), listed("top_p", top_p)))
    if not filters:
        raise InvalidArgumentError("top_k or top_p is empty; expected at least one of each")
    plans = [
        supporting(
            settle(
                source.draft_models,
                source.num_positions,
                SEARCH_TOLERANCE,
                num_drafts=counts,
                drafts=laws,
                draft_models=models,
                temperatures=heats,
                top_k=count,
                top_p=nucleus,
                positions=positions,
                seed=seed,
            ),
            judging,
        )
        for count, nucleus in filters
    ]
    plan = plans[0]
    judges = {verifier_label(verifier): verifier for verifier in plan.verifiers}
    kept = tuple(dict.fromkeys((_count(each.top_k), each.top_p) for each in plans))
    cells = grid_cells([(case, _supported(case, judges)) for case in plan.cases], kept)
    _refuse_shared_columns(cells)
    return GridSettings(
        verifiers=judges,
        positions=plan.positions,
        seed=plan.seed,
        cells=cells,
        axes={
            "draft_models": list(plan.draft_models),
            "drafts": list(plan.drafts),
            "num_drafts": list(plan.num_drafts),
            "temperatures": list(plan.temperatures),
            "top_k": list(dict.fromkeys(top_k for top_k, _ in kept)),
            "top_p": list(dict.fromkeys(top_p for _, top_p in kept)),
            "verifiers": list(judges),
        },
    )


def _count(top_k: int | None) -> int | None:
    """Check that the column of a filter can hold it."""
    return None if top_k is None else check_whole("top_k", top_k, 1)


def _refuse_shared_columns(cells: Iterable[Cell]) -> None:
    """Refuse verifiers named as the other columns of a cell are."""
    for cell in cells:
        for column, times in Counter(cell.columns).items():
            if times > 1:
                raise InvalidArgumentError(
                    f"verifiers holds one whose column {column!r} has the name of another; set "
                    "another `name` on it"
                )


def _described(verifier: Verifier) -> str:
    """Tell a verifier that was given as it is from others of its name, in every process alike."""
    kind, options = type(verifier), sorted(vars(verifier).items())
    values = ", ".join(f"{name}={value!r}" for name, value in options)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", f"{kind.__module__}.{kind.__qualname__}({values})")


def _supported(case: Case, judges: Mapping[str, str | Verifier]) -> tuple[str, ...]:
    probe = probe_draft(case)
    return tuple(name for name, judge in judges.items() if make_verifier(judge, {}).supports(probe))
