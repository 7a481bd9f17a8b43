"""Files of a simulation: a table and a picture of each of its figures."""

from __future__ import annotations

from dataclasses import fields

from mdsd.studies.output import picture, to_csv
from mdsd.studies.simulation.plots import simulation_figures
from mdsd.studies.simulation.runs import Simulation
from mdsd.studies.simulation.simulation_settings import SimulationSettings

FILE_NAMES = tuple(
    f"{table.name}{ending}" for table in fields(Simulation) for ending in (".csv", ".png")
)
"""Names of all files."""


def simulation_files(found: Simulation, settings: SimulationSettings, dpi: int) -> dict[str, bytes]:
    """Give the content of each file.

    Parameters
    ----------
    found : Simulation
    settings : SimulationSettings
    dpi : int
        Dots per inch of the pictures.

    Returns
    -------
    dict of (str, bytes)
        By the names of `FILE_NAMES`.
    """
    tables = {f"{name}.csv": to_csv(rows).encode() for name, rows in found.tables.items()}
    figures = simulation_figures(found, settings)
    pictures = {f"{name}.png": picture(".png", each, dpi) for name, each in figures.items()}
    return tables | pictures
