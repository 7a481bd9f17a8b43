"""Errors raised by the solvers."""

from __future__ import annotations


class SolverFailure(RuntimeError):
    """A solver gave no answer, or an answer that did not survive the re-check.

    Parameters
    ----------
    method : str
        Name of the method that failed, such as ``"lp (highs-ipm)"``.
    status : str
        What the solver reported, or which check failed and by how much.

    Examples
    --------
    >>> from solvers.errors import SolverFailure
    >>> str(SolverFailure("matching", "status BAD_INPUT"))
    'matching failed: status BAD_INPUT'
    """

    method: str
    status: str

    def __init__(self, method: str, status: str) -> None:
        super().__init__(method, status)  # both in args, so that the error can be pickled
        self.method = method
        self.status = status

    def __str__(self) -> str:
        """Return the message, naming method and status."""
        return f"{self.method} failed: {self.status}"
