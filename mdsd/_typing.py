"""Array types used across the package, and what is taken for an array."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]


class DeviceArray(Protocol):
    """An array of any library, on any device: torch's tensors, among others."""

    def __dlpack_device__(self) -> object:
        """Tell where it lives."""


TensorLike: TypeAlias = ArrayLike | DeviceArray
"""Whatever numpy can read, or an array of another library."""

Tensor: TypeAlias = Any
"""An array of the library, and on the device, that an argument came from: of its own type."""
