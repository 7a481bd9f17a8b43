"""Random chains for simulations, and by name those that formulas stumble on."""

from __future__ import annotations

from typing import Any

import numpy as np

Setting = tuple[np.ndarray, np.ndarray, int, np.ndarray]
"""Target chain, draft chain, horizon, initial law: the first four arguments of all functions."""


def random_setting(seed: Any, *, sizes: tuple[int, int] = (2, 6), longest: int = 8) -> Setting:
    """Chains with flat Dirichlet rows, stationary or not."""
    rng = np.random.default_rng([41, seed])
    size = int(rng.integers(*sizes, endpoint=True))
    horizon = int(rng.integers(3, longest, endpoint=True))
    shapes = [(horizon, size) if rng.random() < 0.5 else (size,) for _ in range(2)]
    target, draft = (rng.dirichlet(np.ones(size), shape) for shape in shapes)
    return target, draft, horizon, rng.dirichlet(np.ones(size))


ABSORBING = np.array([[1.0, 0.0, 0.0], [0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
CYCLE = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
MIXED = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])
THIRDS = np.full(3, 1.0 / 3.0)

EDGES: dict[str, Setting] = {
    "two_states": (
        np.array([[0.7, 0.3], [0.4, 0.6]]),
        np.full((2, 2), 0.5),
        4,
        np.array([1.0, 0.0]),
    ),
    "absorbing_target": (ABSORBING, MIXED, 4, THIRDS),
    "absorbing_draft": (MIXED, ABSORBING, 4, THIRDS),
    "absorbing_both": (ABSORBING, ABSORBING[::-1, ::-1].copy(), 4, THIRDS),
    "deterministic_target": (CYCLE, MIXED, 4, THIRDS),
    "deterministic_draft": (MIXED, CYCLE, 4, THIRDS),
    "deterministic_both": (CYCLE, np.array([CYCLE[0], CYCLE[2], CYCLE[2]]), 4, THIRDS),
    "partly_disjoint": (
        np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]),
        np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]),
        4,
        np.array([0.0, 1.0, 0.0]),
    ),
    "tiny_difference": (MIXED, MIXED + 1e-9 * np.array([1.0, -1.0, 0.0]), 4, THIRDS),
}
