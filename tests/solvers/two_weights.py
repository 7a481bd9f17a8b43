"""Draws without replacement from tokens of two weights, in whole numbers to 600 binary places.

What counts of the drawn tokens is how many were heavy and how many light: a Markov chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class TwoWeights:
    """So many heavy tokens, and behind them so many light ones, in draws of n.

    Where the light ones are `split`, without end, what is drawn of them leaves as much.
    """

    n: int
    heavy: int
    light: int
    ratio: float
    split: bool = False

    @property
    def weights(self) -> np.ndarray:
        total = self.heavy * self.ratio + self.light
        return np.repeat([self.ratio / total, 1.0 / total], [self.heavy, self.light])

    @property
    def is_heavy(self) -> np.ndarray:
        return np.arange(self.heavy + self.light) < self.heavy

    def hit(self, heavy: int, light: int) -> float:
        """Probability that some draw is among so many heavy and light tokens."""
        exact = Fraction(float(self.weights[0])) / Fraction(float(self.weights[-1]))
        heavier, lighter = exact.numerator, exact.denominator
        # Exact fractions would grow with every draw; rounded down to 600 places, all in all they
        # lose less than n**2 * 2**-599.
        misses = {0: 1 << 600}
        for drawn in range(self.n):
            after: dict[int, int] = {}
            for k, miss in misses.items():
                gone = 0 if self.split else drawn - k
                left = (self.heavy - k) * heavier + (self.light - gone) * lighter
                ways = (
                    (k + 1, (self.heavy - heavy - k) * heavier),
                    (k, (self.light - light - gone) * lighter),
                )
                for state, mass in ways:
                    if mass > 0:
                        after[state] = after.get(state, 0) + miss * mass // left
            misses = after
        return float(1 - Fraction(sum(misses.values()), 1 << 600))

    def prefix_hits(self, order: np.ndarray, lengths: list[int]) -> list[float]:
        """Exact hits of some prefixes of an order."""
        heavy = np.concatenate([[0], np.cumsum(self.is_heavy[order])])
        return [self.hit(int(heavy[k]), k - int(heavy[k])) for k in lengths]

    def token_hits(self) -> np.ndarray:
        return np.where(self.is_heavy, self.hit(1, 0), self.hit(0, 1))


FAULTS = [TwoWeights(20, 18, 5, 100.0), TwoWeights(64, 29, 127, 238.0)]
"""Where a start of 0 once lost whole nodes: .3799 for .4001 and .2456 for .2756."""


def family(seed: int, count: int, most_draws: int) -> list[TwoWeights]:
    """Random laws of the family, half of them with about as many heavy tokens as draws."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        n = int(rng.integers(1, most_draws + 1))
        around = (max(1, n - 4), n + 3) if number % 2 else (1, 2 * n + 2)
        heavy = int(rng.integers(*around))
        light = max(1, n - heavy) + int(rng.integers(3 * n))
        found.append(TwoWeights(n, heavy, light, float(10.0 ** rng.uniform(np.log10(3.0), 6.0))))
    return found
