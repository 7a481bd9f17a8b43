"""Hit probabilities beside an infinitely split tail, against tails in finitely many parts."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mdsd._solvers.hitting import prefix_hits
from mdsd._solvers.split_tail import prefix_hits_beside_split_tail

from .two_weights import FAULTS, family


def with_parts(weights: np.ndarray, tail: float, parts: int, n: int) -> np.ndarray:
    """Prefix hits where the tail is so many equal tokens."""
    split = np.full(parts, tail / parts)
    return prefix_hits(np.concatenate([weights, split]), n)[: len(weights) + 1]


def random_weights(seed: int, size: int = 12) -> tuple[np.ndarray, float]:
    weights = np.random.default_rng(seed).dirichlet(np.full(size + 1, 0.7))
    return weights[:-1], float(weights[-1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_ever_more_parts_converge_from_above(seed, n):
    weights, tail = random_weights(seed)
    limit = prefix_hits_beside_split_tail(weights, tail, n)
    above = [np.max(with_parts(weights, tail, parts, n) - limit) for parts in (10, 100, 10_000)]
    below = [np.min(with_parts(weights, tail, parts, n) - limit) for parts in (10, 100, 10_000)]
    assert min(below) >= -1e-14
    assert above[0] > above[1] > above[2]
    # The distance is that of first order in the size of the parts.
    assert above[2] == pytest.approx(above[1] / 100, rel=0.1, abs=1e-13)


@pytest.mark.parametrize("law", [*FAULTS, *family(0, 20, 16), *family(1, 20, 64)], ids=str)
def test_a_tail_beside_equal_tokens(law):
    """Against a chain in whole numbers, where as many tokens as are drawn are all but certain."""
    chain = replace(law, split=True)
    weights = law.weights[: law.heavy]
    found = prefix_hits_beside_split_tail(weights, float(law.weights[law.heavy :].sum()), law.n)
    for length in {1, law.heavy // 2, law.heavy} - {0}:
        assert found[length] == pytest.approx(chain.hit(length, 0), rel=1e-12, abs=0)
    assert law.light > 300 or law.hit(law.heavy, 0) > chain.hit(law.heavy, 0) * (1.0 - 1e-15)


def test_one_lump_is_noticed():
    """Negative control: a tail that is drawn once leaves more draws for the prefix."""
    weights, tail = np.array([0.2, 0.1]), 0.7
    lump = with_parts(weights, tail, 1, 2)
    assert lump[2] - prefix_hits_beside_split_tail(weights, tail, 2)[2] > 0.4


@pytest.mark.parametrize("n", [1, 2, 5, 60, 700])
@pytest.mark.parametrize("weight", [0.3, 1e-4])
def test_one_token_beside_the_tail_alone(n, weight):
    """Each draw from a tail that never runs out leaves the token its share."""
    found = prefix_hits_beside_split_tail(np.array([weight]), 1.0 - weight, n)
    expected = -math.expm1(n * math.log1p(-weight))
    np.testing.assert_allclose(found, [0.0, expected], rtol=0, atol=1e-12)


def test_n_1_is_the_running_sum():
    weights, tail = random_weights(1, 30)
    expected = np.concatenate([[0.0], np.cumsum(weights)])
    found = prefix_hits_beside_split_tail(weights, tail, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)


def test_n_2_closed_form():
    # f(A) = c (1 + sum over H of q / (1 - q)), c = q(A): of the tail the sum is its mass.
    weights, tail = random_weights(2, 40)
    ratios = weights / (1 - weights)
    behind = np.append(np.cumsum(ratios[::-1])[::-1], 0.0) + tail
    inside = np.append(0.0, np.cumsum(weights))
    found = prefix_hits_beside_split_tail(weights, tail, 2)
    np.testing.assert_allclose(found, inside * (1 + behind), rtol=1e-13, atol=0)


@pytest.mark.parametrize("tail", [1e-15, 1e-300])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_next_to_no_tail(tail, n):
    weights = np.array([0.4, 0.3, 0.0, 0.2, 0.1])
    found = prefix_hits_beside_split_tail(weights, tail, n)
    np.testing.assert_allclose(found, prefix_hits(weights, n), rtol=0, atol=1e-13)


def test_draws_beyond_the_tokens_come_from_the_tail():
    """However little the tail is, it has enough tokens: what is told apart comes first."""
    found = prefix_hits_beside_split_tail(np.array([0.6, 0.4, 0.0]), 1e-15, 5)
    np.testing.assert_allclose(found, [0.0, 1.0, 1.0, 1.0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "expected"), [(2, 0.3), (3, 0.3 + 0.3 / 9 + 0.6 / 8 + 0.4 * 0.3)])
def test_a_peaked_draft(n, expected):
    """One token holds nearly all: the next draws share the little that is left."""
    weights, tail = np.array([3e-9, 1e-9, 2e-9, 1.0 - 1e-8]), 4e-9
    limit = prefix_hits_beside_split_tail(weights, tail, n)
    assert limit[1] == pytest.approx(expected, abs=1e-7)
    np.testing.assert_allclose(limit, with_parts(weights, tail, 20_000, n), rtol=0, atol=2e-5)


def test_no_token_is_told_apart():
    assert prefix_hits_beside_split_tail(np.zeros(0), 1.0, 3).tolist() == [0.0]


def test_input_is_not_modified():
    weights, tail = random_weights(3)
    before = weights.copy()
    prefix_hits_beside_split_tail(weights, tail, 3)
    assert weights.tolist() == before.tolist()
