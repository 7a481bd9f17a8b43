"""Which library an array belongs to, where it lives, and the way to the host and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mdsd._typing import AnyArray, FloatArray, Tensor
from mdsd.errors import InvalidDistributionError, MdsdError


@dataclass(frozen=True)
class Space:
    """One array library on one device.

    Attributes
    ----------
    xp : module
        Functions of the library, by the names of the array API standard.
    device : object
        The device, as the library names it.
    """

    xp: Any
    device: Any

    @property
    def on_host(self) -> bool:
        """Whether numpy reads arrays that live here without a copy."""
        return _is_host(self.device)

    @cached_property
    def real(self) -> Any:
        """The widest type of real numbers that the device computes in: float64 or float32."""
        known = self.xp.__array_namespace_info__().dtypes(device=self.device, kind="real floating")
        return known["float64" if "float64" in known else "float32"]

    @property
    def is_double(self) -> bool:
        """Whether `real` is float64."""
        return bool(self.real == self.xp.float64)

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next number of type `real`."""
        return 2.0**-52 if self.is_double else 2.0**-23

    def zeros(self, *shape: int) -> Tensor:
        """Make zeros of type `real` on the device."""
        return self.xp.zeros(shape, dtype=self.real, device=self.device)

    def true(self) -> Tensor:
        """Make a true value without axes on the device."""
        return self.xp.ones((), dtype=self.xp.bool, device=self.device)

    def as_real(self, values: Tensor) -> Tensor:
        """Convert an array that lives here to type `real`."""
        return self.xp.astype(values, self.real, copy=False)

    def send(self, values: AnyArray) -> Tensor:
        """Copy an array of the host here; here on the host, hand over its memory."""
        if values.dtype == np.float64 and not self.is_double:
            values = values.astype(np.float32)
        if not values.flags.writeable:
            values = values.copy()  # a tensor of borrowed memory could be written to
        return self.xp.asarray(values, device=self.device)

    def receive(self, values: Tensor) -> FloatArray:
        """Copy an array of type `real` that lives here to the host, in float64."""
        return np.asarray(Located(values, self).on_host(), dtype=np.float64)


def is_tensor(values: object) -> bool:
    """Tell whether an argument is an array of another library than numpy.

    Examples
    --------
    >>> import numpy as np
    >>> is_tensor(np.ones(3)), is_tensor([1.0])
    (False, False)
    """
    if isinstance(values, (np.ndarray, np.generic)) or not hasattr(values, "__dlpack_device__"):
        return False
    from array_api_compat import is_array_api_obj

    return bool(is_array_api_obj(values))


def space_of(values: Tensor) -> Space:
    """Find out where an array lives, for which `is_tensor` holds."""
    from array_api_compat import array_namespace, device

    return Space(array_namespace(values), device(values))


def device_space(values: object) -> Space | None:
    """Find out where an argument lives; None for the host, where numpy reads it."""
    return Located.of(values).device


def _is_host(device: object) -> bool:
    # "cpu" or device(type='cpu') or Device('CPU_DEVICE'): of a device the standard promises
    # nothing that tells its kind, so this goes by its name.
    return "cpu" in str(device).lower()


def to_host(values: object) -> Any:
    """Copy a tensor to the host, in the kind it has; anything else is given back."""
    return Located.of(values).on_host()


@dataclass(frozen=True, eq=False)
class Located:
    """An argument of a batch call, and where it lives: asked once.

    Attributes
    ----------
    values : object
        The argument.
    home : Space or None
        Of a tensor; None for anything that numpy reads.
    """

    values: Any
    home: Space | None

    @classmethod
    def of(cls, values: object) -> Located:
        """Find out where an argument lives."""
        return cls(values, space_of(values) if is_tensor(values) else None)

    @property
    def device(self) -> Space | None:
        """Where it lives, if that is not the host."""
        return None if self.home is None or self.home.on_host else self.home

    def on_host(self) -> Any:
        """Copy it to the host, in the kind it has, unless it is there."""
        if self.device is None:
            return self.values
        from array_api_compat import to_device

        default = self.device.xp.__array_namespace_info__().default_device()
        return to_device(self.values, default if _is_host(default) else "cpu")

    def answer(self, values: AnyArray) -> Tensor:
        """Send what was computed on the host to where the argument came from, in its kind."""
        return values if self.home is None else self.home.send(values)


def dtype_name(values: Tensor) -> str:
    """Name the type of a tensor's entries, as numpy does."""
    return str(values.dtype).rpartition(".")[2]


def is_whole(values: Tensor) -> bool:
    """Tell whether an array holds integers; bool is none."""
    return dtype_name(values).startswith(("int", "uint"))


def check_device(
    name: str,
    given: Located,
    owner: str,
    space: Space | None,
    *,
    error: type[MdsdError] = InvalidDistributionError,
) -> None:
    """Refuse an array that lives elsewhere than the rest, or that nothing can be computed from.

    Parameters
    ----------
    name : str
        What to call the argument in an error.
    given : Located
        The argument.
    owner : str
        Name of the argument whose device counts.
    space : Space or None
        That device; None for the host.
    error : type, default InvalidDistributionError

    Raises
    ------
    MdsdError
        Of the class given, naming both devices; or if a tensor on a device requires a gradient,
        is not dense, or has no memory. On the host that is for numpy to say.
    """
    own, values = given.device, given.values
    if own != space:
        places = (str(place.device) if place else "the host" for place in (own, space))
        raise error(
            f"{name} is on {next(places)} but {owner} is on {next(places)}; expected one device"
        )
    if own is None:
        return
    layout = str(getattr(values, "layout", "torch.strided"))
    reason = None
    if getattr(values, "requires_grad", False):
        reason = "it requires a gradient; detach() it first"
    elif layout != "torch.strided":
        reason = f"its layout is {layout}; to_dense() it first"
    elif str(own.device) == "meta":
        reason = "it is on the meta device, which holds no values"
    if reason is not None:
        raise error(f"{name} cannot be read as an array: {reason}")


def locate_sides(target_probs: Any, draft_probs: Any) -> tuple[Located, Located]:
    """Find out where target and draft probabilities live.

    Raises
    ------
    InvalidDistributionError
        As `check_device` does, if that is not one device.
    """
    target, drafted = Located.of(target_probs), Located.of(draft_probs)
    check_device("target_probs", target, "target_probs", target.device)
    check_device("draft_probs", drafted, "target_probs", target.device)
    return target, drafted
