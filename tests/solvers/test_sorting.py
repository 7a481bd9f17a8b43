"""The order of masses and ratios, against numpy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd._solvers.sorting import falling_order

SIZES = (0, 1, 2, 3, 9, 64, 65, 300, 5000)


def masses_of_kind(rng: np.random.Generator, size: int, kind: str) -> np.ndarray:
    if kind == "ties":
        return rng.integers(0, 5, size) * 0.1
    if kind == "close":
        return 1.0 + 1e-12 * rng.random(size)
    masses = np.exp(rng.normal(0.0, 3.0, size))
    if kind == "extreme":
        masses[rng.random(size) < 0.3] = np.inf
        masses[rng.random(size) < 0.3] = 5e-324
        masses[rng.random(size) < 0.3] = 1e308
        masses[rng.random(size) < 0.3] = 0.0
        masses[rng.random(size) < 0.2] = -0.0
    return masses


@pytest.mark.parametrize("kind", ["spread", "ties", "close", "extreme"])
@pytest.mark.parametrize("size", SIZES)
def test_order_is_that_of_a_stable_sort(size, kind):
    rng = np.random.default_rng(size)
    for _ in range(5):
        masses = masses_of_kind(rng, size, kind)
        before = masses.copy()
        order = falling_order(masses)
        assert order.dtype == np.int64
        assert order.tolist() == np.argsort(-masses, kind="stable").tolist()
        assert masses.tobytes() == before.tobytes()


def test_views_are_sorted_as_they_look():
    masses = np.random.default_rng(0).random((200, 2))
    expected = np.argsort(-masses[:, 1], kind="stable")
    assert falling_order(masses[:, 1]).tolist() == expected.tolist()
    assert falling_order(masses[::-1, 1]).tolist() == (199 - expected).tolist()
