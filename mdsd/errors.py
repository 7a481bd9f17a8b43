"""Exceptions of the library: every error a caller can cause or meet derives from `MdsdError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mdsd._solvers.errors import SolverFailure


class MdsdError(Exception):
    """Base class of every exception raised by mdsd on purpose."""


class InvalidDistributionError(MdsdError, ValueError):
    """A probability vector (or logits) cannot be read as a distribution over one token."""


class InvalidTokenError(MdsdError, ValueError):
    """A drafted token id is out of range, of the wrong type, or cannot have been drafted."""


class InvalidArgumentError(MdsdError, ValueError):
    """An option is out of its range, or a name is not known."""


class UnsupportedError(MdsdError):
    """The request is well-formed but this method, verifier or size does not apply to it."""


class SolverError(MdsdError):
    """A numerical solver stopped without a solution that passes verification.

    Parameters
    ----------
    method : str
        Name of the formulation that failed.
    status : str
        What the solver or the verification reported.
    """

    def __init__(self, method: str, status: str) -> None:
        super().__init__(f"method {method!r} found no verified solution: {status}")
        self.method = method
        self.status = status

    def __reduce__(self) -> tuple[type[SolverError], tuple[str, str]]:
        return type(self), (self.method, self.status)


@contextmanager
def solver_errors(method: str | None = None) -> Iterator[None]:
    """Raise the failure of a solver as a `SolverError` of that method, or the solver's own."""
    try:
        yield
    except SolverFailure as failure:
        raise SolverError(method or failure.method, failure.status) from failure
