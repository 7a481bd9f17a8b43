"""Subset selection among prefixes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mdsd._solvers.prefix import best_prefix, cut_values


def brute_force(ordered_masses: np.ndarray, hits: np.ndarray) -> tuple[Fraction, int]:
    """Least p(H_k) + f(A_k) over the prefixes in fractions, and the shortest that has it."""
    masses = [Fraction(float(p)) for p in ordered_masses]
    values = [sum(masses[k:]) + Fraction(float(hits[k])) for k in range(len(masses) + 1)]
    values[0] = Fraction(1)
    best = min(values)
    return best, values.index(best)


def with_replacement_hits(q: np.ndarray, n: int) -> np.ndarray:
    inside = np.concatenate([[0.0], np.cumsum(q)])
    return -np.expm1(n * np.log1p(-np.minimum(inside, 1 - 1e-16)))


@pytest.mark.parametrize("seed", range(40))
def test_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    size, n = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    p, q = rng.dirichlet(np.full(size, 0.3), size=2) + 1e-12
    p, q = p / p.sum(), q / q.sum()
    order = np.argsort(-p / q)
    hits = with_replacement_hits(q[order], n)
    value, length = best_prefix(p[order], hits)
    expected, expected_length = brute_force(p[order], hits)
    assert value == pytest.approx(float(expected), abs=1e-15, rel=1e-15)
    # Rounding may only prefer a prefix that is as good to the last digit.
    assert cut_values(p[order], hits)[length] <= float(expected) + 1e-15
    if length != expected_length:
        assert abs(cut_values(p[order], hits)[expected_length] - value) <= 2e-16


@pytest.mark.parametrize("seed", range(10))
def test_every_cut_value(seed):
    rng = np.random.default_rng(seed)
    p, hits = rng.dirichlet(np.ones(8)), np.sort(rng.random(9))
    expected = [float(sum(map(Fraction, p[k:].tolist()))) + hits[k] for k in range(9)]
    np.testing.assert_allclose(cut_values(p, hits), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("masses", "hits", "expected"),
    [
        pytest.param([0.5, 0.5], [0.0, 0.25, 0.75], (0.75, 1), id="two-equal"),
        pytest.param([0.25, 0.25, 0.5], [0.0, 0.25, 0.5, 1.0], (1.0, 0), id="all-equal"),
        pytest.param([0.5, 0.25, 0.25], [0.0, 0.25, 0.5, 0.75], (0.75, 1), id="three-equal"),
        pytest.param([0.5, 0.5, 0.0], [0.0, 0.25, 0.5, 0.5], (0.5, 2), id="zero-behind"),
        pytest.param([0.5, 0.5, 0.0], [0.0, 0.5, 1.0, 1.0], (1.0, 0), id="p-equals-q"),
    ],
)
def test_ties_give_the_shortest(masses, hits, expected):
    assert best_prefix(np.array(masses), np.array(hits)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_never_above_1(seed):
    rng = np.random.default_rng(seed)
    masses = rng.dirichlet(np.ones(50))
    # Hits that dominate every prefix mass: nothing is gained by any prefix but the empty one.
    hits = np.minimum(1.0, np.concatenate([[0.0], np.cumsum(masses)]) * (1 + 1e-15) + 1e-15)
    value, length = best_prefix(masses, hits)
    assert value <= 1.0
    assert value == pytest.approx(1.0, abs=1e-14)
    assert (length == 0) == (value == 1.0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_value_near_1e_12_keeps_its_digits(n):
    tiny = 1e-12
    p, q = np.array([1 - tiny, tiny]), np.array([tiny, 1 - tiny])
    value, length = best_prefix(p, with_replacement_hits(q, n))
    exact = Fraction(tiny) + 1 - (1 - Fraction(tiny)) ** n
    assert value == pytest.approx(float(exact), rel=1e-13, abs=0)
    assert length == 1


def test_not_unimodal():
    """Two valleys along the prefixes: the second one is deeper."""
    p = np.array([0.3, 0.1, 0.3, 0.1, 0.2])
    hits = np.array([0.0, 0.1, 0.35, 0.4, 0.75, 1.0])
    values = cut_values(p, hits)
    signs = np.sign(np.diff(values)).tolist()
    assert signs == [-1, 1, -1, 1, 1]
    value, length = best_prefix(p, hits)
    assert (round(value, 12), length) == (0.7, 3)


def test_not_unimodal_for_a_real_law():
    """With replacement, n = 3, tokens by p/q: more than one valley occurs."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        p, q = rng.dirichlet(np.full(6, 0.3), size=2)
        order = np.argsort(-p / q)
        hits = with_replacement_hits(q[order], 3)
        values = cut_values(p[order], hits)
        signs = np.sign(np.diff(values))
        signs = signs[signs != 0]
        found += int((np.diff(signs) != 0).sum() > 1)
        value, _ = best_prefix(p[order], hits)
        assert value == min(1.0, values[1:].min())
    assert found > 0


def test_inputs_are_not_modified():
    masses, hits = np.array([0.5, 0.5]), np.array([0.0, 0.25, 1.0])
    masses.setflags(write=False)
    hits.setflags(write=False)
    assert best_prefix(masses, hits) == (0.75, 1)
