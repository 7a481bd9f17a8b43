"""Certificates that check themselves."""

import math

import pytest

from mdsd._solvers.certificates import certified_gap
from mdsd._solvers.errors import SolverFailure


@pytest.mark.parametrize(
    ("upper", "attained", "gap"),
    [(0.75, 0.5, 0.25), (0.5, 0.5, 0.0), (0.5, 0.5 + 5e-10, 0.0), (math.inf, -math.inf, math.inf)],
)
def test_gap(upper, attained, gap):
    assert certified_gap(upper, attained, method="search") == gap


@pytest.mark.parametrize(
    ("upper", "attained"), [(0.5, 0.5 + 2e-9), (0.4261, 0.4768), (math.nan, 0.5), (0.5, math.nan)]
)
def test_a_bound_below_what_is_attained(upper, attained):
    with pytest.raises(SolverFailure) as caught:
        certified_gap(upper, attained, method="search")
    message = f"search failed: the upper bound {upper!r} is below the attained {attained!r}"
    assert str(caught.value) == message
