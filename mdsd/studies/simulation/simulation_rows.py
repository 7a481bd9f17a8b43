"""Rows of a simulation: what theory says, and what was counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mdsd.studies.study_rows import Row


@dataclass(frozen=True)
class RejectionsRow(Row):
    """Rejections up to a horizon.

    Attributes
    ----------
    batch_size : int
        Draft sequences of a round.
    horizon : int
        Tokens decoded.
    theory : float
        Expected rejections.
    simulation : float
        Their mean over runs.
    stderr : float
        Its standard error (runs - 1 in the variance).
    z : float or None
        ``(simulation - theory) / stderr``; None where all runs agree.
    """

    batch_size: int
    horizon: int
    theory: float
    simulation: float
    stderr: float
    z: float | None


@dataclass(frozen=True)
class SavedRow(Row):
    """Rejections that a batch saves against a single sequence, up to the last position.

    Attributes
    ----------
    batch_size : int
    limit : float
        What a batch that grows without end saves.
    theory : float
    simulation, stderr, z : float or None
        As in `RejectionsRow`, from simulations that are independent of each other; None where the
        batch size was not simulated.
    """

    batch_size: int
    limit: float
    theory: float
    simulation: float | None
    stderr: float | None
    z: float | None


@dataclass(frozen=True)
class BiasRow(Row):
    """One coordinate of a point that a biased rule reaches.

    Attributes
    ----------
    scope : {"position", "chain"}
        A single token, or all positions of the chain added up, along the tokens emitted.
    redraw : {"optimal", "target"}
        Rejection law: Decoding-OPT or Decoding-UNO.
    epsilon : float
        Over-acceptance.
    quantity : {"rejections", "total_variation"}
    theory : float
    simulation, stderr, z : float or None
        As in `SavedRow`.
    """

    scope: str
    redraw: str
    epsilon: float
    quantity: str
    theory: float
    simulation: float | None
    stderr: float | None
    z: float | None


def compared(
    theory: float, simulation: float | None = None, stderr: float | None = None
) -> dict[str, Any]:
    """Give the columns that set a simulation beside theory.

    Parameters
    ----------
    theory : float
    simulation, stderr : float, optional
        Nothing if it was not simulated.

    Returns
    -------
    dict
        With the keys theory, simulation, stderr and z.

    Examples
    --------
    >>> compared(2.0, 2.5, 0.25)
    {'theory': 2.0, 'simulation': 2.5, 'stderr': 0.25, 'z': 2.0}
    >>> compared(2.0, 2.0, 0.0)["z"]
    """
    known = simulation is not None and stderr is not None and stderr > 0.0
    z = (simulation - theory) / stderr if known else None  # type: ignore[operator]
    return {"theory": theory, "simulation": simulation, "stderr": stderr, "z": z}
