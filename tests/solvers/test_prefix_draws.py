"""Prefixes for draws without replacement that are found without a sort, against all prefixes."""

from __future__ import annotations

from itertools import combinations
from math import inf

import numpy as np
import pytest

from mdsd import WithoutReplacement, acceptance_bound, acceptance_bounds
from mdsd._solvers import prefix_draws
from mdsd._solvers.hitting import MASS_SCALE, _step, prefix_hits
from mdsd._solvers.prefix import best_prefix
from mdsd._solvers.prefix_draws import (
    FEWEST_TOKENS,
    MOST_DRAWS,
    best_cut,
    prefix_without_replacement,
)

EXACT = 3e-13
"""What hits may differ by between the two sums over nodes, with some thousand tokens."""


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def noisy(rng, size, spread, noise):
    logits = spread * rng.normal(size=size)
    return softmax(logits), softmax(logits + noise * rng.normal(size=size))


def tied(rng, size):
    p, q = rng.integers(1, 6, size=(2, size)).astype(float)
    return p / p.sum(), q / q.sum()


def with_zeros(rng, size):
    p, q = rng.dirichlet(np.ones(size), size=2)
    p[rng.random(size) < 0.4] = 0.0
    q[rng.random(size) < 0.2] = 0.0
    return p / p.sum(), q / q.sum()


def one_heavy(rng, size, rest):
    p, q = noisy(rng, size, 2.0, 1.0)
    q *= rest
    q[0] = 1.0 - q[1:].sum()
    return p, q


def subnormal(rng, size):
    """Half of the masses as small as can be, with what that does to ratios."""
    p, q = noisy(rng, size, 2.0, 1.0)
    q[::2] = rng.integers(1, 1000, size=len(q[::2])) * 5e-324
    p[::3] = rng.integers(1, 1000, size=len(p[::3])) * 5e-324
    return p / p.sum(), q / q.sum()


def one_ratio_and_others(rng, size):
    """Half of the tokens all but tied: a cell that single ratios have to be split from."""
    q = rng.dirichlet(np.ones(size))
    p = q * np.where(rng.random(size) < 0.5, 10.0 ** rng.uniform(-12, 0), 1.0)
    return p / p.sum(), q


def nearly_the_draft(rng, size):
    q = rng.dirichlet(np.ones(size))
    p = q * (1.0 + 1e-9 * rng.normal(size=size))
    return p / p.sum(), q


FAMILIES = {
    "noisy": lambda rng, size: noisy(rng, size, 3.0, 1.0),
    "flat": lambda rng, size: noisy(rng, size, 0.1, 0.01),
    "steep": lambda rng, size: noisy(rng, size, 8.0, 3.0),
    "tied": tied,
    "zeros": with_zeros,
    "heavy": lambda rng, size: one_heavy(rng, size, 1e-12),
    "heavier than all": lambda rng, size: one_heavy(rng, size, 1e-14),
    "subnormal": subnormal,
    "one ratio": one_ratio_and_others,
    "nearly p = q": nearly_the_draft,
    "p = q": lambda rng, size: (rng.dirichlet(np.ones(size)),) * 2,
    "uniform q": lambda rng, size: (rng.dirichlet(np.full(size, 0.3)), np.full(size, 1 / size)),
    "uniform both": lambda rng, size: (np.full(size, 1 / size), np.full(size, 1 / size)),
    "one token of p": lambda rng, size: (np.eye(1, size)[0], rng.dirichlet(np.ones(size))),
    "apart": lambda rng, size: (np.eye(1, size)[0], np.append(0.0, np.full(size - 1, 1 / size))),
}


def best_of(p, q, n):
    """Value and membership of H, however many tokens have to join one by one."""
    value, cut = best_cut(p, q * MASS_SCALE, n, _step(n), len(p))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = p / (q * MASS_SCALE)
    return value, np.where(q > 0.0, ratios <= cut, p == 0.0)


def over_all_prefixes(p, q, n):
    order = WithoutReplacement(q, n).prefix_order(p)
    return best_prefix(p[order], prefix_hits(q[order], n))[0]


def value_of(subset, p, q, n):
    """p(H) + f(A), with f from an order that has A ahead."""
    order = np.argsort(subset, kind="stable")
    return p[subset].sum() + prefix_hits(q[order], n)[np.count_nonzero(~subset)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, MOST_DRAWS])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("size", [2 * FEWEST_TOKENS, 7001])
def test_against_all_prefixes(name, n, size):
    p, q = FAMILIES[name](np.random.default_rng([n, size]), size)
    q = q / q.sum()
    value, subset = best_of(p, q, n)
    assert value == pytest.approx(over_all_prefixes(p, q, n), abs=EXACT)
    found = prefix_without_replacement(p, q, n)
    assert found is None or (found[0] == value and (found[1] == subset).all())
    assert min(value_of(subset, p, q, n), 1.0) == pytest.approx(value, abs=EXACT)
    assert value <= 1.0


def test_a_value_near_0_keeps_its_digits():
    rng = np.random.default_rng(0)
    p, q = noisy(rng, 4000, 1.0, 1.0)
    few = np.arange(4000) < 50
    p, q = np.where(few, p, 1e-13 * p), np.where(few, 1e-13 * q, q)
    p, q = p / p.sum(), q / q.sum()
    value, _ = best_of(p, q, 4)
    assert 1e-14 < value < 1e-11
    assert value == pytest.approx(over_all_prefixes(p, q, 4), rel=1e-11)


@pytest.mark.parametrize("fault", ["slope", "chord"])
def test_a_wrong_floor_is_noticed(monkeypatch, fault):
    """With floors too high, cells are not opened and cuts inside them missed."""
    p, q = FAMILIES["noisy"](np.random.default_rng(1), 20_000)
    is_open = prefix_draws._is_open

    def closed(cell, lower, upper, below, hits, best):
        if fault == "chord":
            return is_open(cell, lower, upper, below, hits + 1e-3, best)
        middle = (lower + upper) / 2.0
        return is_open(cell, 0.9999 * middle, 1.0001 * middle, below, hits, best)

    monkeypatch.setattr(prefix_draws, "_is_open", closed)
    value, _ = best_cut.py_func(p, q * MASS_SCALE, 4, _step(4), len(p))
    assert value - over_all_prefixes(p, q, 4) > 1e-9


def test_few_cells_are_opened(monkeypatch):
    """The cost of a bound: of 100,000 tokens a few hundred are looked at one by one."""
    p, q = FAMILIES["noisy"](np.random.default_rng(2), 100_000)
    gather, sizes = prefix_draws._gather, []

    def counted(*args):
        found = gather(*args)
        sizes.append(len(found[0]))
        return found

    monkeypatch.setattr(prefix_draws, "_gather", counted)
    value, _ = best_cut.py_func(p, q * MASS_SCALE, 4, _step(4), len(p))
    assert value == best_cut(p, q * MASS_SCALE, 4, _step(4), len(p))[0]
    assert len(sizes) == 2  # the heavy tokens, and those of open cells
    assert sizes[1] < 3000


@pytest.mark.parametrize(
    ("size", "n"), [(FEWEST_TOKENS - 1, 2), (FEWEST_TOKENS, MOST_DRAWS + 1)], ids=["few", "draws"]
)
def test_where_it_does_not_apply(size, n):
    p, q = FAMILIES["noisy"](np.random.default_rng(3), size)
    assert prefix_without_replacement(p, q, n) is None
    assert prefix_without_replacement(
        *FAMILIES["noisy"](np.random.default_rng(3), FEWEST_TOKENS), 2
    )
    bound = acceptance_bound(p, WithoutReplacement(q, n))
    assert bound.value == pytest.approx(over_all_prefixes(p, q, n), abs=1e-15)


def test_flat_drafts_are_left_to_all_prefixes():
    """Of 4,000 equal tokens none is faint: each would have to join at every level."""
    q = np.full(4000, 1 / 4000)
    p = softmax(np.random.default_rng(6).normal(size=4000))
    assert np.isnan(best_cut(p, q * MASS_SCALE, 4, _step(4), 2000)[0])
    assert prefix_without_replacement(p, q, 4) is None
    expected = over_all_prefixes(p, q, 4)
    assert acceptance_bound(p, WithoutReplacement(q, 4)).value == expected
    found = acceptance_bounds([p], [q], draft="without_replacement", num_drafts=4)
    assert found[0] == pytest.approx(expected, abs=1e-14)


def test_bounds_alone_and_in_batches():
    rng = np.random.default_rng(4)
    rows = [FAMILIES[name](rng, 5000) for name in ("noisy", "zeros", "tied")]
    p, q = (np.array(side) for side in zip(*rows, strict=True))
    found = acceptance_bounds(p, q, draft="without_replacement", num_drafts=4)
    for row in range(3):
        alone = acceptance_bound(p[row], WithoutReplacement(q[row], 4))
        assert found[row] == pytest.approx(alone.value, abs=1e-14)
        assert alone.value == pytest.approx(over_all_prefixes(p[row], q[row], 4), abs=EXACT)


def test_inputs_are_not_modified():
    p, q = FAMILIES["zeros"](np.random.default_rng(5), 5000)
    before = p.copy(), q.copy()
    p.flags.writeable = False
    prefix_without_replacement(p, q, 3)
    np.testing.assert_array_equal((p, q), before)


def chains(size):
    """All triples of sets A < B < C among so many tokens."""
    for labels in np.ndindex(*(4,) * size):
        found = np.array(labels)
        if 1 in labels and 2 in labels:
            yield found == 0, found <= 1, found <= 2


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_hits_are_concave_along_chains(n, seed):
    """What the floor rests on: f over its chord between any A < C, drawn over q."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(5, 0.5)) + 1e-6
    q /= q.sum()
    hits = {0: 0.0}
    for size in range(1, 6):
        for chosen in combinations(range(5), size):
            order = np.array([*chosen, *(i for i in range(5) if i not in chosen)])
            hits[sum(1 << i for i in chosen)] = prefix_hits(q[order], n)[size]
    bits, least, count = 1 << np.arange(5), inf, 0
    for a, b, c in chains(5):
        low, middle, high = q[a].sum(), q[b].sum(), q[c].sum()
        chord = (hits[bits[a].sum()] * (high - middle) + hits[bits[c].sum()] * (middle - low)) / (
            high - low
        )
        least, count = min(least, hits[bits[b].sum()] - chord), count + 1
    assert count > 100
    assert least >= -1e-14
