"""The rule of the SpecHub pair: per case the other token, then the hub for what that test left."""

from __future__ import annotations

from typing import Any

from mdsd.rules.accepting import Reader, Tests, accept_probs, everywhere, residual_or_target
from mdsd.rules.arrays import namespace, number

TESTED = slice(None)
"""Both tokens are tested: the other one, then the hub."""


def tested_in_turn(ids: Any, hub_first: Any) -> Any:
    """Give the other token and the hub of each pair (B, 2); `hub_first` is of shape (B, 1)."""
    return namespace(ids).where(hub_first, namespace(ids).flip(ids, axis=-1), ids)


def case_masses(q: Any, is_hub: Any) -> tuple[Any, Any]:
    """Mass of the pair (i, a), and of (a, i), at every other token i; 0 at the hub a.

    Parameters
    ----------
    q : array, shape (..., V)
        Output distribution of the draft model.
    is_hub : array of bool, shape (..., V)
    """
    xp, zero = namespace(q), number(q, 0.0)
    others = xp.where(is_hub, zero, q)
    hub = xp.sum(xp.where(is_hub, q, zero), axis=-1, keepdims=True)
    return others, hub * (others / xp.sum(others, axis=-1, keepdims=True))


def spechub_tests(p: Any, is_hub: Any, cases: tuple[Any, Any], at: Reader = everywhere) -> Tests:
    """Test the other token, then the hub, each against what earlier cases left of p.

    Parameters
    ----------
    p : array, shape (..., V)
        The target.
    is_hub : array of bool, shape (..., V)
        True at the hub a.
    cases : tuple of two arrays, shape (..., V)
        Of `case_masses`.
    at : callable, optional
        Reads the tokens of the pair; all by default.

    Returns
    -------
    Tests
        Chances of each case: of the other token and, where it is asked next, of the hub.
    """
    xp = namespace(p)
    zero, chances, left = number(p, 0.0), [], p
    for drawn in cases:
        # The hub is reached with the mass that its partners left.
        reached = xp.sum(xp.maximum(drawn - left, zero), axis=-1, keepdims=True)
        offered = xp.where(is_hub, reached, drawn)
        chances.append(accept_probs(at(left, TESTED), at(offered, TESTED)))
        left = xp.maximum(left - offered, zero)
    return Tests(chances, residual_or_target(left, p))
