"""Rejections, batches and bias on one pair of chains: each number expected and simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd.analysis import (
    ParetoFront,
    SimulatedFront,
    SimulatedRejections,
    batch_improvement,
    chain_pareto_front,
    pareto_front,
    rejection_probs,
    simulate_chain_pareto_front,
    simulate_pareto_front,
    simulate_rejections,
)
from mdsd.studies.cases import Progress, Steps
from mdsd.studies.simulation.chains import RandomChains
from mdsd.studies.simulation.simulation_rows import BiasRow, RejectionsRow, SavedRow, compared
from mdsd.studies.simulation.simulation_settings import SimulationSettings

SCOPES = ("position", "chain")
_REDRAWS = {"optimal": "", "target": "uno_"}
"""Rejection laws, and how the attributes of a `ParetoFront` that are of them begin."""

_LINE = 24
"""Points of a line between those that are simulated."""


@dataclass(frozen=True)
class Simulation:
    """Rows of the three figures.

    Attributes
    ----------
    rejections : tuple of RejectionsRow
        By batch size and horizon.
    batch_improvement : tuple of SavedRow
        By batch size: of those simulated and of others between them.
    pareto_front : tuple of BiasRow
        By scope, rejection law, over-acceptance and quantity; likewise.
    """

    rejections: tuple[RejectionsRow, ...]
    batch_improvement: tuple[SavedRow, ...]
    pareto_front: tuple[BiasRow, ...]

    @property
    def single(self) -> float:
        """Expected rejections of a single sequence up to the last position."""
        return [row.theory for row in self.rejections if row.batch_size == 1][-1]

    @property
    def tables(self) -> dict[str, tuple[Any, ...]]:
        """The three by name."""
        return dict(vars(self))


def run_simulation(settings: SimulationSettings, progress: Progress | None = None) -> Simulation:
    """Compute and simulate as settings that were checked before say.

    Parameters
    ----------
    settings : SimulationSettings
    progress : callable, optional
        Called with (simulations done, all simulations).

    Returns
    -------
    Simulation
        Depends on the settings alone; the numbers of one simulation do not depend on which others
        were asked for.

    Examples
    --------
    >>> found = run_simulation(
    ...     SimulationSettings(vocab_size=3, horizon=2, batch_sizes=(4,), runs=500)
    ... )
    >>> [(row.batch_size, row.horizon) for row in found.rejections]
    [(1, 1), (1, 2), (4, 1), (4, 2)]
    >>> all(abs(row.z) < 4 for row in found.rejections)
    True
    """
    chains = settings.chains()
    points = len(SCOPES) * len(_REDRAWS) * len(settings.epsilons)
    step = Steps(len(settings.batch_sizes) + points, progress)
    counts = {}
    for size in settings.batch_sizes:
        counts[size] = simulate_rejections(
            *chains.setting, batch_size=size, runs=settings.runs, rng=settings.rng("batch", size)
        )
        step()
    return Simulation(
        tuple(row for size, found in counts.items() for row in _by_horizon(chains, size, found)),
        _saved(chains, counts),
        tuple(row for scope in SCOPES for row in _front(scope, chains, settings, step)),
    )


def _by_horizon(chains: RandomChains, size: int, found: SimulatedRejections) -> list[RejectionsRow]:
    expected = np.cumsum(rejection_probs(*chains.setting, batch_size=size))
    counted = zip(expected, found.mean_by_horizon, found.stderr_by_horizon, strict=True)
    return [
        RejectionsRow(size, horizon, **compared(*map(float, numbers)))
        for horizon, numbers in enumerate(counted, start=1)
    ]


def _saved(chains: RandomChains, counts: dict[int, SimulatedRejections]) -> tuple[SavedRow, ...]:
    largest = max(counts)
    between = np.rint(np.geomspace(1, largest, _LINE)).astype(int).tolist()
    sizes = sorted({*counts, *between})
    theory = batch_improvement(*chains.setting, batch_sizes=sizes)
    single, limit = counts[1], theory.single - theory.limit
    rows = []
    for size, saved in zip(sizes, theory.saved.tolist(), strict=True):
        found = counts.get(size) if size > 1 else None
        counted = found and (single.mean - found.mean, math.hypot(single.stderr, found.stderr))
        rows.append(SavedRow(size, limit, **compared(saved, *(counted or ()))))
    return tuple(rows)


def _front(
    scope: str, chains: RandomChains, settings: SimulationSettings, step: Callable[[], None]
) -> list[BiasRow]:
    between = np.linspace(0.0, max(settings.epsilons), _LINE).tolist()
    epsilons = sorted({*settings.epsilons, *between})
    expect: Callable[..., ParetoFront] = chain_pareto_front
    simulate: Callable[..., SimulatedFront] = simulate_chain_pareto_front
    arguments: tuple[Any, ...] = chains.setting
    if scope == "position":
        expect, simulate = pareto_front, simulate_pareto_front
        arguments = chains.one_position
    theory = expect(*arguments, epsilons)
    rows = []
    for place, (redraw, prefix) in enumerate(_REDRAWS.items()):
        for index, epsilon in enumerate(epsilons):
            found = None
            if epsilon in settings.epsilons:
                rng = settings.rng(scope, place, settings.epsilons.index(epsilon))
                found = simulate(*arguments, [epsilon], redraw=redraw, runs=settings.runs, rng=rng)
                step()
            for quantity in ("rejections", "total_variation"):
                numbers = [getattr(theory, prefix + quantity)[index]]
                if found is not None:
                    numbers += [*getattr(found, quantity), *getattr(found, f"{quantity}_stderr")]
                columns = compared(*map(float, numbers))
                rows.append(BiasRow(scope, redraw, epsilon, quantity, **columns))
    return rows
