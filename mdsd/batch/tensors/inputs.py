"""Checks of batch arguments on their device, answered by one number that the host waits for.

Nothing is named here: arguments that fail go to the host, where the checks of numpy arrays say
what is wrong, or that all is well where rounding fell otherwise there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mdsd._probabilities import MASS_TOLERANCE
from mdsd._typing import Tensor
from mdsd.batch.tensors.spaces import Space, dtype_name, is_whole

_NUMBERS_AT_ONCE = 2**23
"""Most entries of a matrix worked on at a time, which bounds the memory for what is in between."""


@dataclass(frozen=True, eq=False)
class DeviceProbs:
    """Probability vectors as they came in, with the masses that normalise them.

    Attributes
    ----------
    space : Space
    given : array, shape (B, V)
        The caller's array.
    masses : array, shape (B, 1)
        Sum of each row; a probability is an entry divided by the mass of its row.
    good : array of bool, without axes
        Whether no row has a bad entry or mass.
    """

    space: Space
    given: Tensor
    masses: Tensor
    good: Tensor

    def probs(self, rows: slice) -> Tensor:
        """Normalise some rows."""
        return self.space.as_real(self.given[rows, :]) / self.masses[rows, :]


def pieces(shape: tuple[int, ...]) -> Iterator[slice]:
    """Cut the rows of a matrix into pieces of bounded size."""
    rows, size = shape
    step = max(1, _NUMBERS_AT_ONCE // size)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def is_real(values: Tensor) -> bool:
    """Tell whether an array holds numbers of a type that is read as probabilities."""
    return dtype_name(values) in MASS_TOLERANCE or is_whole(values)


def read_probs(space: Space, values: Tensor) -> DeviceProbs | None:
    """Sum the rows of a matrix of probabilities and look for bad entries.

    Parameters
    ----------
    space : Space
    values : array, shape (B, V)

    Returns
    -------
    DeviceProbs or None
        None where shape or type already say that something is wrong.
    """
    xp = space.xp
    if values.ndim != 2 or values.shape[1] == 0 or not is_real(values):
        return None
    tolerance = MASS_TOLERANCE.get(dtype_name(values), MASS_TOLERANCE["float64"])
    masses, good = [space.zeros(0, 1)], space.true()
    for rows in pieces(values.shape):
        entries = space.as_real(values[rows, :])
        mass = xp.sum(entries, axis=-1, keepdims=True)
        # NaN fails both comparisons, an infinite entry the second.
        least = xp.min(entries, axis=-1, keepdims=True)
        good = good & xp.all((least >= 0.0) & (abs(mass - 1.0) <= tolerance))
        masses.append(mass)
    return DeviceProbs(space, values, xp.concat(masses, axis=0), good)
