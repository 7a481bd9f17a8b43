"""Classes of other packages, found by their entry points."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

__all__ = ["load_plugins"]


def load_plugins(
    group: str, what: str, base: type[Any], known: Mapping[str, type[Any]]
) -> dict[str, type[Any]]:
    """Add the classes of an entry-point group to those known; warn of those that cannot be used.

    Parameters
    ----------
    group : str
    what : str
        What one of them is, for the warning.
    base : type
        Class that they derive from; each has the name of its entry point.
    known : mapping of str to type
        Whose names are taken.
    """
    found = dict(known)
    for entry in entry_points(group=group):
        try:
            kind = entry.load()
            if not (isinstance(kind, type) and issubclass(kind, base)):
                raise TypeError(f"{entry.value} is not a subclass of mdsd.{base.__name__}")
            if entry.name in found:
                raise ValueError(f"the name {entry.name!r} is taken")
            name = getattr(kind, "name", None)
            if name != entry.name:
                raise ValueError(f"its name is {name!r}")
        except Exception as error:  # a stranger's code may fail in any way
            warnings.warn(
                f"{what} {entry.name!r} of another package cannot be used: {error}",
                RuntimeWarning,
                stacklevel=4,
            )
            continue
        found[entry.name] = kind
    return found
