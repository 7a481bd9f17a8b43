"""Draws by row: buckets, their ends, and the law they follow."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd._random import draw_tokens
from mdsd.analysis._simulation import RowSampler
from mdsd.testing import random_probs


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 9, 100])
def test_every_row_draws_as_one_vector_does(size):
    rng = np.random.default_rng(107)
    masses = np.array([random_probs(rng, size) for _ in range(6)]) * rng.random((6, 1))
    uniforms = np.concatenate([rng.random(300), [0.0, 0.5, np.nextafter(1.0, 0.0)]])
    sampler = RowSampler(masses)
    for row in range(6):
        found = sampler.draw(np.full(len(uniforms), row), uniforms)
        assert found.tolist() == draw_tokens(masses[row], uniforms).tolist()


def test_buckets_are_half_open_and_empty_ones_never_drawn():
    sampler = RowSampler(np.array([[0.25, 0.0, 0.25, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]))
    uniforms = np.array([0.0, 0.25, 0.5, np.nextafter(0.5, 0.0), np.nextafter(1.0, 0.0)])
    rows = np.zeros(5, dtype=np.int64)
    assert sampler.draw(rows, uniforms).tolist() == [0, 2, 3, 2, 3]
    assert sampler.draw(rows + 1, uniforms).tolist() == [4] * 5
