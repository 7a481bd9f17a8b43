"""What a simulation is asked to do, checked before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_number, check_whole
from mdsd._random import generator
from mdsd.analysis._simulation import DEFAULT_RUNS
from mdsd.errors import InvalidArgumentError
from mdsd.studies.simulation.chains import RandomChains, random_chains

DEFAULT_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.4)

_MOST_ENTRIES = 2**25
"""Entries of one chain, all positions together: 0.25 GB."""

_LARGEST_BATCH = 4096
"""Beyond it, what a batch saves is its limit for all that a figure can show."""

_STREAMS = {"chains": 0, "batch": 1, "position": 2, "chain": 3}


@dataclass(frozen=True)
class SimulationSettings:
    """A request, checked and completed.

    Parameters
    ----------
    vocab_size : int, default 8
        V, the tokens of the chains.
    horizon : int, default 50
        T, the positions.
    stationary : bool, default False
        Whether the chains are the same at every position.
    batch_sizes : iterable of int
        Kept as a rising tuple; a single sequence is always simulated.
    epsilons : iterable of float
        Over-acceptances, kept as a rising tuple.
    runs : int, default 100,000
        Sequences of T tokens to decode for each number, at least 2.
    seed : int, default 0
        Of the chains and of the simulations.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, or the chains would be too large.

    Examples
    --------
    >>> SimulationSettings(batch_sizes=(8, 2)).batch_sizes
    (1, 2, 8)
    """

    vocab_size: int = 8
    horizon: int = 50
    stationary: bool = False
    batch_sizes: tuple[int, ...] = DEFAULT_BATCH_SIZES
    epsilons: tuple[float, ...] = DEFAULT_EPSILONS
    runs: int = DEFAULT_RUNS
    seed: int = 0

    def __post_init__(self) -> None:
        size = check_whole("vocab_size", self.vocab_size, 1)
        length = check_whole("horizon", self.horizon, 1)
        entries = size * size * (1 if self.stationary else length)
        if entries > _MOST_ENTRIES:
            hint = "" if self.stationary else ", which a stationary chain needs less of"
            raise InvalidArgumentError(
                f"vocab_size is {size} and horizon {length}: a chain of {entries:,} entries; "
                f"at most {_MOST_ENTRIES:,}{hint}"
            )
        sizes = [
            check_whole(f"batch_sizes[{k}]", m, 1, _LARGEST_BATCH)
            for k, m in enumerate(self.batch_sizes)
        ]
        if not sizes:
            raise InvalidArgumentError("batch_sizes is empty; expected integers >= 1")
        steps = [check_number(f"epsilons[{k}]", e) for k, e in enumerate(self.epsilons)]
        if not steps:
            raise InvalidArgumentError("epsilons is empty; expected finite numbers >= 0")
        self.__dict__.update(
            vocab_size=size,
            horizon=length,
            stationary=bool(self.stationary),
            batch_sizes=tuple(sorted({1, *sizes})),
            epsilons=tuple(sorted(set(steps))),
            runs=check_whole("runs", self.runs, 2),
            seed=check_whole("seed", self.seed, 0, math.inf),
        )

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
