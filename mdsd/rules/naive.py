"""The naive rule: no test at all, the token is drawn from the target."""

from __future__ import annotations

from typing import Any

from mdsd.rules.accepting import Tests

TESTED = slice(0, 0)
"""None of the drafts is tested."""


def naive_tests(p: Any) -> Tests:
    """Emit from the target, whatever was drafted."""
    return Tests([], p)
