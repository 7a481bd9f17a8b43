"""What a capture holds, in a few numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mdsd._files import path_name
from mdsd._frozen import FrozenArrays
from mdsd.datasets.captures import open_capture


@dataclass(frozen=True)
class CaptureSummary(FrozenArrays):
    """What a capture holds.

    Attributes
    ----------
    positions, shards : int
    num_bytes : int
        Of its shards.
    added : int
        Positions that the call has added; 0 for a capture that was complete before.
    target_kept_mass : float
        Probability of the kept tokens under the target, mean over the positions.
    draft_kept_mass : mapping of str to float
        The same for each draft model.
    overlap : mapping of str to float
        Of each draft model: the sum of min(p, q) over the kept tokens, mean over the positions.
        What is not kept adds at most the mass that either model has there.
    """

    positions: int
    shards: int
    num_bytes: int
    added: int
    target_kept_mass: float
    draft_kept_mass: Mapping[str, float]
    overlap: Mapping[str, float]


def summarise(folder: Path, added: int) -> CaptureSummary:
    """Read a capture, a block at a time.

    Parameters
    ----------
    folder : path
    added : int
        Positions that are new.

    Returns
    -------
    CaptureSummary

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        If it cannot be read.
    """
    capture = open_capture(folder)
    names = capture.header.draft_models
    # Of the target, of each draft model, and the overlaps.
    sums = np.zeros(1 + 2 * len(names))
    for start, stop in capture.blocks:
        data = capture.read(start, stop)
        target = np.exp(data.target_table)
        overlaps = [
            np.minimum(target, np.exp(data.draft_tables[name])).sum(axis=1) for name in names
        ]
        masses = [data.target_kept_mass, *(data.draft_kept_mass[name] for name in names)]
        sums += [float(values.sum()) for values in (*masses, *overlaps)]
    target_mass, *means = (sums / capture.num_positions).tolist()
    return CaptureSummary(
        positions=capture.num_positions,
        shards=len(capture.shards),
        num_bytes=sum(shard.size for shard in capture.shards),
        added=added,
        target_kept_mass=target_mass,
        draft_kept_mass=dict(zip(names, means[: len(names)], strict=True)),
        overlap=dict(zip(names, means[len(names) :], strict=True)),
    )


def summary_lines(folder: Path, found: CaptureSummary) -> list[str]:
    r"""Write a summary in words.

    Parameters
    ----------
    folder : path
    found : CaptureSummary

    Examples
    --------
    >>> found = CaptureSummary(2000, 2, 5_250_000, 500, 0.9981, {"small": 0.9954}, {"small": 0.71})
    >>> print(*summary_lines(Path("mine"), found), sep="\n")
    mine: 2,000 positions, 500 of them new, in 2 shards of 5.2 MB
    kept mass: target 0.9981, small 0.9954
    overlap with the target: small 0.7100
    """
    new = f"{found.added:,} of them new, " if 0 < found.added < found.positions else ""
    done = "" if found.added else "; complete, nothing left to do"
    shards = "1 shard" if found.shards == 1 else f"{found.shards:,} shards"
    masses = {"target": found.target_kept_mass, **found.draft_kept_mass}
    return [
        f"{path_name(folder)}: {found.positions:,} positions, {new}in {shards} of "
        f"{_size(found.num_bytes)}{done}",
        f"kept mass: {_listed(masses)}",
        f"overlap with the target: {_listed(found.overlap)}",
    ]


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())
