"""The table of a simulation for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType

from mdsd.studies.fitting import FittedTable, Paragraph
from mdsd.studies.simulation.runs import Simulation
from mdsd.studies.simulation.simulation_rows import BiasRow, RejectionsRow, SavedRow
from mdsd.studies.simulation.simulation_settings import SimulationSettings
from mdsd.studies.terminal import NONE, counted

_Row = RejectionsRow | SavedRow | BiasRow


def simulation_report(found: Simulation, settings: SimulationSettings) -> RenderableType:
    """Lay out what was counted up to the last position beside what theory says.

    Parameters
    ----------
    found : Simulation
    settings : SimulationSettings
    """
    table = FittedTable("quantity", "setting", "theory", "simulation", "s.e.", "z", shared=1)
    for quantity, rows in _sections(found, settings):
        for row in (row for row in rows if row.simulation is not None):
            numbers = [f"{number:.4f}" for number in (row.theory, row.simulation, row.stderr)]
            z = NONE if row.z is None else f"{row.z:.2f}"
            table.add(quantity, _setting(row), *numbers, z)
    return Group(table, "", *(Paragraph(note, "dim") for note in _notes(found, settings)))


def _sections(found: Simulation, settings: SimulationSettings) -> list[tuple[str, Sequence[_Row]]]:
    """Rows of the last position, and along the chain, with the names of their quantities."""
    best = [row for row in found.pareto_front if (row.scope, row.redraw) == ("chain", "optimal")]
    return [
        ("rejections", [row for row in found.rejections if row.horizon == settings.horizon]),
        ("saved", found.batch_improvement),
        ("rejections", [row for row in best if row.quantity == "rejections"]),
        ("total variation", [row for row in best if row.quantity == "total_variation"]),
    ]


def _setting(row: _Row) -> str:
    return f"epsilon {row.epsilon:g}" if isinstance(row, BiasRow) else sequences(row.batch_size)


def sequences(batch_size: int) -> str:
    """Name a batch by its size."""
    return "1 sequence" if batch_size == 1 else f"batch of {batch_size}"


def chain_name(settings: SimulationSettings) -> str:
    """Name the chains by their kind and their tokens."""
    kind = "stationary" if settings.stationary else "non-stationary"
    return f"{kind} chain of {counted(settings.vocab_size, 'token')}"


def _notes(found: Simulation, settings: SimulationSettings) -> list[str]:
    notes = [
        f"{chain_name(settings)}, {counted(settings.horizon, 'position')}, seed {settings.seed}; "
        f"{counted(settings.runs, 'run')} for each number",
        f"a batch that grows without end saves {found.batch_improvement[0].limit:.4f}",
        "epsilon: biased decoding, best rejection law; total variation added up over positions",
    ]
    if found.single > 0.0:
        faster = settings.horizon / found.single
        notes.insert(1, f"acceleration, positions over rejections: {faster:.2f} for 1 sequence")
    scores = [abs(row.z) for rows in found.tables.values() for row in rows if row.z is not None]
    return [*notes, _largest(scores)] if scores else notes


def _largest(scores: list[float]) -> str:
    """Say how far simulation is from theory at most, and how often chance takes it as far.

    By Sidak's inequality independent normal scores come as far more often than dependent ones.
    """
    alone = math.erfc(max(scores) / math.sqrt(2.0))
    chance = -math.expm1(len(scores) * math.log1p(-alone)) if alone < 1.0 else 1.0
    return (
        f"{counted(len(scores), 'comparison')} in all, |z| at most {max(scores):.2f}; as large by "
        f"chance in at most {chance:.0%}"
    )
