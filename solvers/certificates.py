"""Certificates that check themselves."""

from __future__ import annotations

from .errors import SolverFailure

_ROUNDING = 1e-9
"""How far rounding may lift what is attained above its bound: measured, it is some 1e-13."""


def certified_gap(upper: float, attained: float, *, method: str) -> float:
    """Distance of what is attained from a certified upper bound.

    Parameters
    ----------
    upper : float
        Upper bound on what anything attains.
    attained : float
        What something attains.
    method : str
        Who says so, for the error.

    Returns
    -------
    float
        ``upper - attained``, or 0.0 where rounding made that negative.

    Raises
    ------
    SolverFailure
        If more than 1e-9 above the bound is attained, or either is no number: it bounds nothing.

    Examples
    --------
    >>> certified_gap(0.75, 0.5, method="search")
    0.25
    >>> certified_gap(0.5, 0.75, method="lp")
    Traceback (most recent call last):
        ...
    mdsd._solvers.errors.SolverFailure: lp failed: the upper bound 0.5 is below the attained 0.75
    """
    if not upper - attained >= -_ROUNDING:
        status = f"the upper bound {float(upper)!r} is below the attained {float(attained)!r}"
        raise SolverFailure(method, status)
    return max(0.0, upper - attained)
