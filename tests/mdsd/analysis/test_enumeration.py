"""The oracles themselves: they are lossless, agree with each other, and notice wrong algorithms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from .enumeration import (
    chain_law,
    enumerate_lazily,
    enumerate_whole,
    paper_formula,
    random_chain,
    random_row,
)


def instance(seed, size, horizon):
    rng = np.random.default_rng([17, seed])
    chains = random_chain(rng, size, horizon), random_chain(rng, size, horizon)
    return *chains, random_row(rng, size)


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_drawing_late_changes_nothing(seed, batch_size):
    target, draft, initial = instance(seed, size=2, horizon=3)
    whole = enumerate_whole(target, draft, initial, batch_size)
    lazy = enumerate_lazily(target, draft, initial, batch_size)
    assert whole.law == lazy.law == chain_law(target, initial)
    assert (whole.rejections, whole.square) == (lazy.rejections, lazy.square)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_enumerated_algorithm_is_lossless(seed, batch_size):
    target, draft, initial = instance(seed, size=3, horizon=4)
    found = enumerate_lazily(target, draft, initial, batch_size)
    assert found.law == chain_law(target, initial)
    assert found.rejections == paper_formula(target, draft, initial, batch_size)


def test_wrong_residual_is_noticed():
    target, draft, initial = instance(0, size=3, horizon=3)
    wrong = enumerate_lazily(target, draft, initial, 2, residual_of=2)
    assert sum(wrong.law.values()) == 1
    assert wrong.law != chain_law(target, initial)


def test_by_hand():
    half = Fraction(1, 2)
    target = [[[Fraction(3, 4), Fraction(1, 4)]] * 2]
    draft = [[[half, half]] * 2]
    # p^2 is a point mass at token 0: the second draft is accepted if it is that token.
    for batch_size, rejected in ((1, Fraction(1, 4)), (2, Fraction(1, 8)), (3, Fraction(1, 16))):
        found = enumerate_whole(target, draft, [half, half], batch_size)
        assert found.rejections == found.square == rejected
        assert paper_formula(target, draft, [half, half], batch_size) == rejected
