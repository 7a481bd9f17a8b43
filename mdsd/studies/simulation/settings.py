"""What a simulation is asked to do, checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_number, check_whole
from mdsd._random import generator
from mdsd.analysis._simulation import DEFAULT_RUNS
from mdsd.errors import InvalidArgumentError
from mdsd.studies.simulation.chains import RandomChains, random_chains

__all__ = ["DEFAULT_BATCH_SIZES", "DEFAULT_EPSILONS", "SimulationSettings", "simulation_settings"]

DEFAULT_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.4)

_MOST_ENTRIES = 2**25
"""Entries of one chain, all positions together: 0.25 GB."""

_LARGEST_BATCH = 4096
"""Beyond it, what a batch saves is its limit for all that a figure can show."""

_STREAMS = {"chains": 0, "batch": 1, "position": 2, "chain": 3}


@dataclass(frozen=True)
class SimulationSettings:
    """A checked request.

    Attributes
    ----------
    vocab_size : int
        V, the tokens of the chains.
    horizon : int
        T, the positions.
    stationary : bool
        Whether the chains are the same at every position.
    batch_sizes : tuple of int
        Rising, 1 among them.
    epsilons : tuple of float
        Over-acceptances, rising.
    runs : int
        Sequences of T tokens to decode for each number.
    seed : int
    """

    vocab_size: int
    horizon: int
    stationary: bool
    batch_sizes: tuple[int, ...]
    epsilons: tuple[float, ...]
    runs: int
    seed: int

    def describe(self) -> dict[str, Any]:
        """Give the settings as they are written next to the rows."""
        return dict(vars(self))

    def chains(self) -> RandomChains:
        """Draw the chains, which depend on the seed, V and T, and on whether they are stationary.

        Returns
        -------
        RandomChains
        """
        return random_chains(
            self.vocab_size, self.horizon, stationary=self.stationary, rng=self.rng("chains")
        )

    def rng(self, stream: str, *place: int) -> np.random.Generator:
        """Make the generator of one simulation, which does not depend on the others.

        Parameters
        ----------
        stream : {"chains", "batch", "position", "chain"}
        *place : int
            Which simulation of its kind: a batch size, or a rule and the number of its point.
        """
        return generator(self.seed, "study", _STREAMS[stream], *place)


def simulation_settings(
    *,
    vocab_size: int = 8,
    horizon: int = 50,
    stationary: bool = False,
    batch_sizes: Iterable[int] = DEFAULT_BATCH_SIZES,
    epsilons: Iterable[float] = DEFAULT_EPSILONS,
    runs: int = DEFAULT_RUNS,
    seed: int = 0,
) -> SimulationSettings:
    """Check the options of a simulation.

    Parameters
    ----------
    vocab_size : int, default 8
    horizon : int, default 50
    stationary : bool, default False
    batch_sizes : iterable of int
        A single sequence is always simulated.
    epsilons : iterable of float
    runs : int, default 100,000
        At least 2.
    seed : int, default 0
        Of the chains and of the simulations.

    Returns
    -------
    SimulationSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, or the chains would be too large.

    Examples
    --------
    >>> simulation_settings(batch_sizes=[8, 2]).batch_sizes
    (1, 2, 8)
    """
    size = check_whole("vocab_size", vocab_size, 1)
    length = check_whole("horizon", horizon, 1)
    entries = size * size * (1 if stationary else length)
    if entries > _MOST_ENTRIES:
        raise InvalidArgumentError(
            f"vocab_size is {size} and horizon {length}: a chain of {entries:,} entries; at most "
            f"{_MOST_ENTRIES:,}{'' if stationary else ', which a stationary chain needs less of'}"
        )
    sizes = [
        check_whole(f"batch_sizes[{k}]", m, 1, _LARGEST_BATCH) for k, m in enumerate(batch_sizes)
    ]
    if not sizes:
        raise InvalidArgumentError("batch_sizes is empty; expected integers >= 1")
    steps = [check_number(f"epsilons[{k}]", value) for k, value in enumerate(epsilons)]
    if not steps:
        raise InvalidArgumentError("epsilons is empty; expected finite numbers >= 0")
    return SimulationSettings(
        size,
        length,
        bool(stationary),
        tuple(sorted({1, *sizes})),
        tuple(sorted(set(steps))),
        check_whole("runs", runs, 2),
        check_whole("seed", seed, 0, math.inf),
    )
