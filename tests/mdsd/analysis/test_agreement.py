"""The test of simulations against theory passes right numbers and fails wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from .agreement import FALSE_ALARM, agreement, z_scores

STUDIES = 2000


def studies(scale=1.0, shift=0.0):
    z = np.random.default_rng(23).normal(shift, scale, size=(STUDIES, 96))
    return sum(not agreement(row).holds for row in z)


def test_false_alarms_are_as_rare_as_stated():
    # Two expected at most; ten or more have probability 5e-5.
    assert studies() < 10
    assert STUDIES * FALSE_ALARM <= 2


@pytest.mark.parametrize(("scale", "shift"), [(1.6, 0.0), (0.5, 0.0), (1.0, 0.6)])
def test_wrong_numbers_are_noticed(scale, shift):
    assert studies(scale, shift) > 0.9 * STUDIES


def test_z_scores():
    assert z_scores(1.5, 0.25, 1.0) == [2.0]
    assert z_scores(3.0, 0.0, 3.0 + 1e-15) == []
    with pytest.raises(AssertionError):
        z_scores(3.0, 0.0, 2.9)
