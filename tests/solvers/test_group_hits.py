"""Hit probabilities of groups of tokens, against enumeration in fractions and closed forms."""

from __future__ import annotations

import functools
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from mdsd._solvers.group_hits import hits_of_groups
from mdsd._solvers.grouped_law import with_fewer_nodes
from mdsd._solvers.hitting import prefix_hits
from mdsd._solvers.law_parts import certain_tokens, draws_without_replacement, independent_draws

from . import exact_laws
from .grouped_laws import (
    FAINT_DRAWS,
    PARTS,
    Grouped,
    grouped,
    heavy_and_faint,
    instances,
    random_target,
)


def product_hits(laws: np.ndarray, order: np.ndarray) -> np.ndarray:
    """1 - prod (1 - q_j(A)) for every prefix A, with the masses left summed from the back."""
    left = np.cumsum(laws[:, order][:, ::-1], axis=1)[:, ::-1]
    return 1.0 - np.append(left, np.zeros((len(laws), 1)), axis=1).prod(axis=0)


def accuracy(name: str) -> float:
    """Relative error allowed: time t = exp(s) has s near 700 where subnormal masses are awaited."""
    return 1e-12 if "subnormal" in name else 1e-13


def in_order(case: Grouped, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens by the groups of an order, and how many there are in the first k groups."""
    members = [np.flatnonzero(case.groups == g) for g in order]
    return np.concatenate(members), np.cumsum([0, *map(len, members)])


@pytest.mark.parametrize("name", PARTS)
class TestAgainstEnumeration:
    def test_hits(self, name):
        for case in instances(name):
            exact, groups = case.exact, case.groups
            rng = np.random.default_rng(case.size)
            for order in (np.arange(case.size), rng.permutation(case.size)):
                found, _ = hits_of_groups(order, case.law)
                expected = exact_laws.group_hits(exact, groups, order)
                np.testing.assert_allclose(found, expected, rtol=accuracy(name), atol=1e-320)
                assert found[0] == 0.0
                assert (np.diff(found) >= -1e-15).all()

    def test_no_other_part_was_met(self, name):
        for case in instances(name):
            order = np.random.default_rng(case.size).permutation(case.size)
            _, missed = hits_of_groups(order, case.law)
            part = np.searchsorted(case.law.firsts, order, side="right") - 1
            for k in range(case.size):
                others = order[:k][part[:k] != part[k]]
                chosen = set(np.flatnonzero(np.isin(case.groups, others)).tolist())
                expected = 1.0 - float(exact_laws.hit(case.exact, chosen))
                assert missed[k] == pytest.approx(expected, abs=1e-14)


def test_groups_that_hold_several_tokens_are_among_those_enumerated():
    for name in FAINT_DRAWS:
        coarse = instances(f"draws-{name}")[0]
        assert np.bincount(coarse.groups[coarse.groups >= 0]).max() > 1


@pytest.mark.parametrize("wrong", ["a draw more", "another law", "another order", "other groups"])
def test_enumeration_tells_laws_apart(wrong):
    """Negative control of the comparison above."""
    weights, n = FAINT_DRAWS["faint-n3"]
    target = random_target(np.random.default_rng(1), len(weights))
    case = grouped(target, [draws_without_replacement(weights, n)], 0, 2)
    order = np.arange(case.size)
    found, _ = hits_of_groups(order, case.law)
    exact, groups = case.exact, case.groups
    np.testing.assert_allclose(found, exact_laws.group_hits(exact, groups, order), rtol=1e-13)
    if wrong == "a draw more":
        exact = exact_laws.draws_without_replacement(weights, n + 1)
    elif wrong == "another law":
        exact = exact_laws.independent_draws(np.tile(weights, (n, 1)))
    elif wrong == "another order":
        order = order[::-1]
    else:
        groups = np.roll(groups, 1)
    assert np.abs(found - exact_laws.group_hits(exact, groups, order)).max() > 1e-9


@pytest.mark.parametrize(
    "weights", [np.array([1e-9, 1 - 1e-9]), np.array([0.7, 0.3, 0.0])], ids=str
)
def test_as_many_draws_as_tokens_hit_whatever_has_mass(weights):
    case = grouped(
        np.full(len(weights), 1 / len(weights)), [draws_without_replacement(weights, 2)], 4, 4
    )
    np.testing.assert_allclose(hits_of_groups(np.array([1, 0]), case.law)[0], [0, 1, 1], atol=1e-14)


def test_one_token():
    for part in (certain_tokens(np.array([0]), 1), independent_draws(np.ones((1, 1)), 3)):
        case = grouped(np.ones(1), [part], 4, 4)
        assert hits_of_groups(np.array([0]), case.law)[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("size", [200, 400])
@pytest.mark.parametrize("kind", ["faint", "peaked", "flat", "1e-300"])
def test_two_draws_by_formula(size, kind):
    """f(A) = q(A) (1 + sum over the others of q / (1 - q)), all numbers of one sign."""
    rng = np.random.default_rng([size, *kind.encode()])
    if kind == "faint":
        weights = heavy_and_faint(rng, 2, size - 2, 1e-3)
    elif kind == "peaked":
        weights = np.exp(3.0 * rng.normal(size=size))
    elif kind == "flat":
        weights = np.exp(0.3 * rng.normal(size=size))
    else:
        weights = heavy_and_faint(rng, 2, size - 2, 1e-300)
    weights /= weights.sum()
    case = grouped(random_target(rng, size), [draws_without_replacement(weights, 2)], 10, 12)
    order = rng.permutation(case.size)
    tokens, ends = in_order(case, order)
    mass = np.concatenate([[0.0], np.cumsum(weights[tokens])])
    rest = np.array([weights.sum() - w for w in weights])
    heaviest = weights.argmax()
    rest[heaviest] = np.delete(weights, heaviest).sum()
    behind = np.append(np.cumsum((weights / rest)[tokens][::-1])[::-1], 0.0)
    expected = np.minimum(mass * (1.0 + behind), 1.0)[ends]
    np.testing.assert_allclose(hits_of_groups(order, case.law)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_groups", [5, 1000], ids=["shared", "single"])
@pytest.mark.parametrize(
    ("n", "size"), [(2, 700), (3, 700), (16, 500), (64, 64), (64, 65), (64, 150)], ids=str
)
def test_equal_weights(n, size, num_groups):
    """1 - C(V - k, n) / C(V, n) for k tokens."""
    target = random_target(np.random.default_rng(n), size)
    parts = [draws_without_replacement(np.full(size, 1 / size), n)]
    case = grouped(target, parts, num_groups, num_groups)
    order = np.random.default_rng(size).permutation(case.size)
    _, ends = in_order(case, order)
    missed = [Fraction(comb(size - k, n), comb(size, n)) for k in ends.tolist()]
    expected = [float(1 - miss) for miss in missed]
    np.testing.assert_allclose(hits_of_groups(order, case.law)[0], expected, rtol=0, atol=1e-13)


LARGE = {
    "n2": (20_000, 2, 3.0),
    "n4": (20_000, 4, 3.0),
    "n4-flat": (20_000, 4, 0.3),
    "n4-steep": (3000, 4, 12.0),
    "n16": (4000, 16, 3.0),
    "n64": (600, 64, 2.0),
    "n250": (400, 250, 1.0),
    "n-all": (24, 24, 2.0),
}


@functools.lru_cache
def peaked(size: int, n: int, spread: float, singles: int = 40) -> Grouped:
    rng = np.random.default_rng(size + n)
    masses = np.exp(spread * rng.normal(size=(2, size)))
    target, weights = masses / masses.sum(axis=1, keepdims=True)
    return grouped(target, [draws_without_replacement(weights, n)], singles, singles)


@pytest.mark.parametrize(("size", "n", "spread"), LARGE.values(), ids=LARGE)
def test_large_vocabularies_token_by_token(size, n, spread):
    case = peaked(size, n, spread)
    order = np.random.default_rng(0).permutation(case.size)
    tokens, ends = in_order(case, order)
    expected = prefix_hits(case.parts[0].probs[0][tokens], n)[ends]
    np.testing.assert_allclose(hits_of_groups(order, case.law)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "size"), [(2, 20_000), (3, 20_000), (16, 3000), (64, 600)], ids=str)
@pytest.mark.parametrize("same", [False, True], ids=["laws", "one-law"])
def test_large_vocabularies_of_independent_draws(n, size, same):
    rng = np.random.default_rng(size + n)
    laws = np.exp(3.0 * rng.normal(size=(n + 1, size)))
    laws /= laws.sum(axis=1, keepdims=True)
    rows = laws[:1] if same else laws[:n]
    case = grouped(laws[n], [independent_draws(rows, n)], 40, 40)
    order = rng.permutation(case.size)
    tokens, ends = in_order(case, order)
    expected = product_hits(np.broadcast_to(rows, (n, size)), tokens)[ends]
    np.testing.assert_allclose(hits_of_groups(order, case.law)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("every", "error"), [(2, 5e-6), (3, 1e-3)], ids=str)
@pytest.mark.parametrize(("size", "n", "spread"), LARGE.values(), ids=LARGE)
def test_fewer_nodes_are_near(every, error, size, n, spread):
    """Far from the last digit: a bound may not be taken from them."""
    law = peaked(size, n, spread).law
    order = np.random.default_rng(0).permutation(len(law.targets))
    fewer = hits_of_groups(order, with_fewer_nodes(law, every))[0]
    assert np.abs(fewer - hits_of_groups(order, law)[0]).max() < error


def test_fewer_nodes_are_not_exact():
    law = peaked(300, 8, 2.0).law
    order = np.random.default_rng(0).permutation(len(law.targets))
    exact = hits_of_groups(order, law)[0]
    errors = [
        np.abs(hits_of_groups(order, with_fewer_nodes(law, every))[0] - exact).max()
        for every in (2, 3)
    ]
    assert 1e-9 < errors[0] < 1e-2 * errors[1]


def test_nothing_is_modified():
    case = instances("three")[0]
    before = [np.copy(field) for field in case.law]
    hits_of_groups(np.arange(case.size), case.law)
    for field, kept in zip(case.law, before, strict=True):
        np.testing.assert_array_equal(field, kept)
