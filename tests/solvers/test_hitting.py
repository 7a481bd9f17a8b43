"""Hit probabilities without replacement, against enumeration in exact arithmetic."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from mdsd._solvers import hitting
from mdsd._solvers.group_hits import hits_of_groups
from mdsd._solvers.hitting import mean_token_hit, prefix_hits, token_hits
from mdsd._solvers.law_parts import draws_without_replacement

from .two_weights import FAULTS, TwoWeights, family


def exact_tuples(weights: np.ndarray, n: int) -> dict[tuple[int, ...], Fraction]:
    """Law of n successive draws without replacement, in fractions, from the definition."""
    masses = [Fraction(float(w)) for w in weights]
    law = {}
    for row in itertools.permutations(range(len(masses)), n):
        prob, left = Fraction(1), sum(masses)
        for i in row:
            if masses[i] == 0:
                prob = Fraction(0)
                break
            prob *= masses[i] / left
            left -= masses[i]
        if prob:
            law[row] = prob
    return law


def exact_hit(law: dict[tuple[int, ...], Fraction], chosen: set[int]) -> float:
    return float(sum(prob for row, prob in law.items() if chosen & set(row)))


def one_heavy(size: int, tiny: float) -> np.ndarray:
    weights = np.full(size, tiny) * np.arange(1, size + 1)
    weights[1] = 1.0 - np.delete(weights, 1).sum()
    return weights


WEIGHTS = {
    "flat": np.array([0.2, 0.5, 0.3]),
    "five": np.array([0.05, 0.4, 0.15, 0.3, 0.1]),
    "six": np.array([0.01, 0.04, 0.15, 0.2, 0.25, 0.35]),
    "peaked-1e-12": one_heavy(5, 1e-12),
    "peaked-1e-3": one_heavy(5, 1e-3),
    "entries-1e-25": np.array([0.5, 1e-25, 0.5, 2e-25, 3e-25]),
    "one-and-1e-25": one_heavy(4, 1e-25),
    "scales": np.array([1e-30, 1e-20, 1e-10, 1e-3, 1 - 1e-3 - 1e-10]),
    "zeros": np.array([0.0, 0.6, 0.0, 0.1, 0.3, 0.0]),
    "zeros-and-peak": np.array([0.0, 1.0 - 3e-12, 1e-12, 0.0, 2e-12]),
    "zeros-and-1e-300": np.array([0.0, 1.0, 1e-300, 3e-300, 0.0]),
    "two": np.array([1e-9, 1 - 1e-9]),
}


def accuracy(weights: np.ndarray) -> float:
    """Relative error allowed: time t = exp(s) has s near 700 where a mass of 1e-300 is awaited."""
    return 1e-13 if weights[weights > 0].min() > 1e-100 else 1e-12


CASES = [
    pytest.param(weights, n, id=f"{name}-n{n}")
    for name, weights in WEIGHTS.items()
    for n in range(1, 5)
    if np.count_nonzero(weights) >= n
]


@pytest.mark.parametrize(("weights", "n"), CASES)
class TestAgainstEnumeration:
    def test_prefix_hits(self, weights, n):
        law = exact_tuples(weights, n)
        expected = [exact_hit(law, set(range(k))) for k in range(len(weights) + 1)]
        np.testing.assert_allclose(
            prefix_hits(weights, n), expected, rtol=accuracy(weights), atol=0
        )

    def test_prefix_hits_backwards(self, weights, n):
        law = exact_tuples(weights, n)
        size = len(weights)
        expected = [exact_hit(law, set(range(size - k, size))) for k in range(size + 1)]
        # A strided view on purpose.
        np.testing.assert_allclose(
            prefix_hits(weights[::-1], n), expected, rtol=accuracy(weights), atol=0
        )

    def test_token_hits(self, weights, n):
        law = exact_tuples(weights, n)
        expected = [exact_hit(law, {i}) for i in range(len(weights))]
        np.testing.assert_allclose(token_hits(weights, n), expected, rtol=accuracy(weights), atol=0)

    def test_mean_token_hit(self, weights, n):
        law = exact_tuples(weights, n)
        expected = [exact_hit(law, {i}) for i in range(len(weights))]
        found = [mean_token_hit(masses, weights, n) for masses in np.eye(len(weights))]
        np.testing.assert_allclose(found, expected, rtol=accuracy(weights), atol=0)

    def test_token_hits_sum_to_n(self, weights, n):
        assert token_hits(weights, n).sum() == pytest.approx(n, abs=accuracy(weights) * n, rel=0)

    def test_token_hits_are_prefix_hits_with_the_token_first(self, weights, n):
        alone = [prefix_hits(np.roll(weights, -i), n)[1] for i in range(len(weights))]
        np.testing.assert_allclose(token_hits(weights, n), alone, rtol=accuracy(weights), atol=0)

    def test_prefix_hits_increase_from_0_to_1(self, weights, n):
        hits = prefix_hits(weights, n)
        assert hits[0] == 0.0
        assert hits[-1] == 1.0
        assert np.diff(hits).min() >= -1e-15

    def test_input_is_not_modified(self, weights, n):
        before = weights.copy()
        prefix_hits(weights, n)
        token_hits(weights, n)
        mean_token_hit(weights, weights, n)
        assert weights.tolist() == before.tolist()


@pytest.mark.parametrize("spare", [0, 1, 40])
@pytest.mark.parametrize("n", [1, 2, 8, 16, 64, 200])
class TestUniformWeights:
    def test_prefix_hits(self, n, spare):
        size = n + spare
        expected = [float(1 - Fraction(comb(size - k, n), comb(size, n))) for k in range(size + 1)]
        found = prefix_hits(np.full(size, 1 / size), n)
        # Equal weights round alike at every update, so rounding adds up with their number.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15 * max(100, 2 * size))

    def test_token_hits(self, n, spare):
        size = n + spare
        found = token_hits(np.full(size, 1 / size), n)
        np.testing.assert_allclose(found, n / size, rtol=0, atol=1e-13)

    def test_mean_token_hit(self, n, spare):
        size = n + spare
        masses = np.random.default_rng(n).dirichlet(np.ones(size))
        found = mean_token_hit(masses, np.full(size, 1 / size), n)
        assert found == pytest.approx(n / size, rel=0, abs=1e-13)


FAMILIES = {
    "faults": FAULTS,
    "to-16": family(0, 60, 16),
    "to-64": family(1, 60, 64),
    "every-n": [TwoWeights(n, max(1, n - 2), n, 30.0 * n) for n in range(1, 65)],
    "beyond": [TwoWeights(110, 105, 60, 40.0), TwoWeights(200, 199, 30, 1e6)],
}


def places(size: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Give a random order, or that of the weights or its reverse, and two lengths."""
    rng = np.random.default_rng(seed)
    order = (np.arange(size), np.arange(size)[::-1], rng.permutation(size))[seed % 3]
    return order, sorted({1, size // 2, int(rng.integers(1, size))} - {0})


@pytest.mark.parametrize("laws", FAMILIES.values(), ids=FAMILIES)
class TestTwoWeights:
    def test_prefix_hits(self, laws):
        for seed, law in enumerate(laws):
            order, lengths = places(len(law.weights), seed)
            found = prefix_hits(law.weights[order], law.n)[lengths]
            np.testing.assert_allclose(
                found, law.prefix_hits(order, lengths), rtol=1e-12, atol=0, err_msg=str(law)
            )

    def test_hits_of_one_token(self, laws):
        for law in laws:
            expected = law.token_hits()
            for order in (np.arange(len(expected)), np.arange(len(expected))[::-1]):
                weights = law.weights[order]
                found = prefix_hits(weights, law.n)[1]
                assert found == pytest.approx(expected[order[0]], rel=1e-12, abs=0), law
            np.testing.assert_allclose(
                token_hits(law.weights, law.n), expected, rtol=1e-12, atol=0, err_msg=str(law)
            )
            p = np.random.default_rng(law.n).dirichlet(np.ones(len(expected)))
            mean = mean_token_hit(p, law.weights, law.n)
            assert mean == pytest.approx(p @ expected, rel=1e-12, abs=0), law

    def test_groups(self, laws):
        for seed, law in enumerate(law for law in laws if law.n > 1):
            size = len(law.weights)
            target = np.random.default_rng(seed).dirichlet(np.ones(size))
            grouped = draws_without_replacement(law.weights, law.n).group(target, size, size)
            order, lengths = places(size, seed)
            found, _ = hits_of_groups(order, grouped)
            expected = law.prefix_hits(order, lengths)
            np.testing.assert_allclose(found[lengths], expected, rtol=1e-12, err_msg=str(law))


def test_a_wrong_law_of_two_weights_is_noticed():
    """Negative control: one more heavy token, another ratio, another n."""
    law = FAULTS[0]
    found = prefix_hits(law.weights[::-1], law.n)[1]
    assert found == pytest.approx(law.hit(0, 1), rel=1e-12, abs=0)
    for wrong in (
        TwoWeights(20, 19, 5, 100.0),
        TwoWeights(20, 18, 5, 101.0),
        TwoWeights(19, 18, 5, 100.0),
    ):
        assert abs(wrong.hit(0, 1) / found - 1.0) > 1e-6


def test_the_chain_of_two_weights_is_the_definition():
    law = TwoWeights(3, 2, 3, 7.5)
    tuples = exact_tuples(law.weights, law.n)
    for heavy, light in itertools.product(range(3), range(4)):
        chosen = {*range(heavy), *range(2, 2 + light)}
        assert law.hit(heavy, light) == pytest.approx(
            exact_hit(tuples, chosen), rel=1e-15, abs=1e-170
        )


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_n_equal_to_the_support_hits_whatever_has_mass(n):
    weights = np.array([0.0, 0.7, 0.1, 0.15, 0.05, 0.0])
    weights[n + 1 :] = 0.0
    weights /= weights.sum()
    np.testing.assert_allclose(token_hits(weights, n), weights > 0, rtol=0, atol=1e-14)
    assert prefix_hits(weights, n).tolist() == [0.0, 0.0, *[1.0] * 5]


def test_n_1_is_the_running_sum():
    weights = np.random.default_rng(1).dirichlet(np.ones(30))
    expected = np.concatenate([[0.0], np.cumsum(weights)])
    np.testing.assert_allclose(prefix_hits(weights, 1), expected, rtol=1e-13, atol=0)
    np.testing.assert_allclose(token_hits(weights, 1), weights, rtol=1e-13, atol=0)


def test_n_2_closed_form():
    # f(A) = c (1 + sum over H of q / (1 - q)), c = q(A).
    weights = np.random.default_rng(2).dirichlet(np.ones(40))
    ratios = weights / (1 - weights)
    behind = np.append(np.cumsum(ratios[::-1])[::-1], 0.0)
    inside = np.append(0.0, np.cumsum(weights))
    np.testing.assert_allclose(prefix_hits(weights, 2), inside * (1 + behind), rtol=1e-13, atol=0)


def test_one_token():
    assert prefix_hits(np.ones(1), 1).tolist() == [0.0, 1.0]
    assert token_hits(np.ones(1), 1) == pytest.approx([1.0], abs=1e-15)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_submodular_on_a_random_triple(seed, n):
    """f(A + i) - f(A) >= f(B + i) - f(B) for A inside B and i outside, strictly where it can."""
    rng = np.random.default_rng([seed, n])
    weights = rng.dirichlet(np.full(9, 0.5))
    order = rng.permutation(9)
    a, b = 2, 5
    token, inner, outer = order[-1], order[:a], order[:b]

    def hit(chosen: np.ndarray) -> float:
        rest = np.setdiff1d(order, chosen)
        return float(prefix_hits(weights[np.concatenate([chosen, rest])], n)[len(chosen)])

    small = hit(np.append(inner, token)) - hit(inner)
    large = hit(np.append(outer, token)) - hit(outer)
    assert small >= large - 1e-14


@pytest.mark.parametrize(
    ("n", "size"), [(4, 300), (8, 12), (16, 40), (32, 60), (64, 80), (64, 100), (64, 1000)], ids=str
)
@pytest.mark.parametrize("concentration", [0.3, 1.0])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0], ids=["rarest", "median", "likeliest"])
def test_many_draws_of_uneven_weights(n, size, concentration, place):
    """Late draws wait long while many tokens are still out: nothing may underflow meanwhile."""
    weights = np.random.default_rng([n, size]).dirichlet(np.full(size, concentration))
    token = np.argsort(weights)[int(place * (size - 1))]
    alone = prefix_hits(np.roll(weights, -token), n)[1]
    assert alone == pytest.approx(token_hits(weights, n)[token], rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("n", "concentration"), [(1, 1.0), (2, 0.05), (4, 1.0), (4, 0.01)], ids=str
)
def test_half_the_step_changes_nothing_at_20_000_tokens(n, concentration):
    weights = np.random.default_rng(n).dirichlet(np.full(20_000, concentration))
    fine = hitting._prefix_hits(weights * hitting.MASS_SCALE, n, hitting._step(n) / 2)
    np.testing.assert_allclose(prefix_hits(weights, n), fine, rtol=0, atol=1e-12)
    fine = hitting._token_hits(weights * hitting.MASS_SCALE, n, hitting._step(n) / 2)
    np.testing.assert_allclose(token_hits(weights, n), fine, rtol=1e-12, atol=1e-15)
    masses = np.random.default_rng(n + 1).dirichlet(np.full(20_000, concentration))
    expected = masses @ token_hits(weights, n)
    assert mean_token_hit(masses, weights, n) == pytest.approx(expected, rel=1e-12, abs=0)


def test_four_times_the_step_is_noticed():
    """Negative control of the comparison with half the step."""
    weights = np.random.default_rng(0).dirichlet(np.ones(50))
    coarse = hitting._prefix_hits(weights * hitting.MASS_SCALE, 4, 8 * hitting._step(4))
    assert np.abs(coarse - prefix_hits(weights, 4)).max() > 1e-9


@pytest.mark.parametrize(
    ("function", "expected"),
    [("prefix_hits", [0.0, 1.0, 1.0, 1.0]), ("token_hits", [1.0, 0.5, 0.5])],
    ids=["prefix_hits", "token_hits"],
)
def test_masses_near_the_smallest_double_end(function, expected):
    """Time overflows where the second draw waits for a mass of 1e-306; in a process of its own,
    because it may not come back.
    """
    code = (
        f"import numpy as np; from mdsd._solvers.hitting import {function}; "
        f"print([{function}(np.array([1.0, x, x]), 2).tolist() for x in (1e-306, 1e-310, 5e-324)])"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=10, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{function} does not end")
    assert done.returncode == 0, done.stderr
    # A mass of 5e-324 has no digits: what matters is that the answer is a law.
    np.testing.assert_allclose(json.loads(done.stdout), [expected] * 3, rtol=0, atol=1e-12)
