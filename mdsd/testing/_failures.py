"""How the conformance suites say that something broke its contract."""

from __future__ import annotations

from typing import Any

import numpy as np

EXACT = 1e-12
"""Tolerance of exact laws and rates."""

FALSE_ALARM = 1e-6
"""Probability that one sampling check fails for what is right; seeds are fixed."""


class CheckFailure(AssertionError):
    """A verifier or a draft distribution broke its contract; the message says where and how."""


def require(condition: bool, message: str) -> None:
    """Fail with a message unless a condition holds."""
    if not condition:
        raise CheckFailure(message)


def close(found: Any, expected: Any, tolerance: float, message: str) -> None:
    """Fail unless all numbers are within a distance of those expected."""
    distance = float(np.max(np.abs(np.asarray(found) - np.asarray(expected)), initial=0.0))
    require(distance <= tolerance, f"{message}: off by {distance:.3g}, allowed {tolerance:.3g}")
