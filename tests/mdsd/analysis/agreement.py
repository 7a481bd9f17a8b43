"""The one test of simulations against theory: all comparisons of a study judged together.

A single comparison may miss by three standard errors by chance (one in 370), so a study of many
compares their number with what chance allows, and the whole of their squares and their mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, chi2

FALSE_ALARM = 1e-3
"""Probability that a study of right numbers fails, at most: a third for each of its three tests."""


@dataclass(frozen=True)
class Agreement:
    """P-values of a study's z-scores.

    Attributes
    ----------
    beyond : int
        Comparisons more than three standard errors off.
    p_values : tuple of float
        Of that number, of the sum of squares (both tails), and of the mean (both tails).
    """

    beyond: int
    p_values: tuple[float, float, float]

    @property
    def holds(self) -> bool:
        return min(self.p_values) > FALSE_ALARM / 3


def agreement(scores: Sequence[float]) -> Agreement:
    """Judge the z-scores of independent simulations, which are standard normal if all is right."""
    z = np.array(scores)
    count = len(z)
    beyond = int(np.count_nonzero(np.abs(z) > 3.0))
    share = math.erfc(3.0 / math.sqrt(2.0))
    squares = float(z @ z)
    tails = chi2.cdf(squares, count), chi2.sf(squares, count)
    return Agreement(
        beyond,
        (
            float(binom.sf(beyond - 1, count, share)),
            min(1.0, 2.0 * float(min(tails))),
            math.erfc(abs(z.sum()) / math.sqrt(2.0 * count)),
        ),
    )


def z_scores(mean: float, stderr: float, expected: float) -> list[float]:
    """Distance in standard errors; none of what never varies, which must be right as it is."""
    if stderr == 0.0:
        assert math.isclose(mean, expected, rel_tol=0.0, abs_tol=1e-9), (mean, expected)
        return []
    return [(mean - expected) / stderr]
