"""Expected tokens of a step: by enumeration of acceptances, and from measured steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mdsd.analysis import (
    expected_tokens,
    expected_tree_tokens,
    iid_expected_tokens,
    measure_acceptance,
)
from mdsd.trees import TreeShape


def enumerated_tokens(rates):
    """Over all outcomes of K tests: accepted drafts up to the first rejection, and one more."""
    total = 0.0
    for outcome in itertools.product((True, False), repeat=len(rates)):
        prob = np.prod([a if passed else 1.0 - a for a, passed in zip(rates, outcome, strict=True)])
        accepted = outcome.index(False) if False in outcome else len(outcome)
        total += prob * (accepted + 1)
    return total


@pytest.mark.parametrize("rates", [[], [0.3], [0.9, 0.2, 0.7], [1.0, 1.0], [0.0, 1.0], [0.5] * 6])
def test_tokens_by_enumeration(rates):
    assert abs(expected_tokens(rates) - enumerated_tokens(rates)) <= 1e-12


@pytest.mark.parametrize("rate", [0.0, 1e-300, 0.2, 0.5, 0.999, 1.0 - 1e-9, 1.0 - 1e-16, 1.0])
@pytest.mark.parametrize("depth", [0, 1, 3, 40])
def test_closed_form_is_the_sum(rate, depth):
    found = iid_expected_tokens(rate, depth)
    assert found == pytest.approx(expected_tokens([rate] * depth), rel=1e-13)
    assert 1.0 <= found <= depth + 1


def test_no_independence_is_assumed():
    # Half of the steps are easy throughout (0.9), half are hard (0.1).
    depth = 5
    shares = [0.5 * 0.9**k + 0.5 * 0.1**k for k in range(depth + 1)]
    conditional = [after / before for before, after in itertools.pairwise(shares)]
    exact = 0.5 * iid_expected_tokens(0.9, depth) + 0.5 * iid_expected_tokens(0.1, depth)
    assert abs(expected_tokens(conditional) - exact) <= 1e-12
    # The mean rate of a first draft, taken for every depth, misjudges it.
    assert abs(iid_expected_tokens(0.5, depth) - exact) > 0.5


# --- trees ---------------------------------------------------------------------------------------


def walk(tree, acceptance, node=0):
    """Expected tokens below a node, from the definition: at most one child is accepted."""
    total = 0.0
    for rank, child in enumerate(c for c, parent in enumerate(tree.parents) if parent == node):
        row = acceptance if acceptance.ndim == 1 else acceptance[tree.depths[node]]
        total += row[rank] * (1.0 + walk(tree, acceptance, child))
    return total


@pytest.mark.parametrize("parents", [[-1], [-1, 0], [-1, 0, 0, 1, 1, 2], [-1, 0, 0, 0, 2, 4, 4]])
@pytest.mark.parametrize("by_depth", [False, True], ids=["by_rank", "by_depth_and_rank"])
def test_tree_by_walking_it(parents, by_depth):
    tree = TreeShape(parents)
    rng = np.random.default_rng(67)
    acceptance = rng.dirichlet(np.ones(4), 5)[:, :3] if by_depth else rng.dirichlet(np.ones(3))
    found = expected_tree_tokens(tree, acceptance)
    assert abs(found - 1.0 - walk(tree, acceptance)) <= 1e-12


def test_a_chain_is_a_tree():
    assert expected_tree_tokens([1, 1, 1], [0.7]) == pytest.approx(2.533, abs=1e-12)
    by_depth = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.1]]
    found = expected_tree_tokens([1, 1, 1], by_depth)
    assert found == pytest.approx(expected_tokens([0.9, 0.5, 0.2]), abs=1e-12)


# --- measured ------------------------------------------------------------------------------------


def test_measured_acceptance_gives_back_the_mean():
    rng = np.random.default_rng(71)
    for depth in (1, 2, 6):
        accepted = rng.integers(0, depth + 1, 200)
        found = measure_acceptance(accepted, depth)
        assert found.tokens == 1.0 + accepted.mean()
        assert abs(expected_tokens(found.acceptance_by_depth) - found.tokens) <= 1e-12
        assert found.tokens_stderr == pytest.approx(accepted.std(ddof=1) / math.sqrt(200))
        for shorter in range(depth):
            cut = 1.0 + np.minimum(accepted, shorter).mean()
            assert abs(expected_tokens(found.acceptance_by_depth[:shorter]) - cut) <= 1e-12


def test_depths_that_no_step_reached():
    found = measure_acceptance([0, 1, 1], depth=4)
    assert found.acceptance_by_depth.tolist() == [2 / 3, 0.0, 0.0, 0.0]
    assert found.steps_by_depth.tolist() == [3, 2, 0, 0]
    assert math.isnan(measure_acceptance([2], depth=2).tokens_stderr)
