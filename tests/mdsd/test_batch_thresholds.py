"""Batch calls where a uniform lies next to a threshold, and where a sum of cases decides."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.batch import verify_batch

from .batch_rows import DRAFTS, LARGEST

RULES = [
    ("naive", "with_replacement", 2),
    ("single", "without_replacement", 1),
    ("rrs", "with_replacement", 2),
    ("rrs", "without_replacement", 3),
    ("kseq", "with_replacement", 3),
    ("greedy", "greedy", 3),
    ("spechub", "spechub", 2),
]
THRESHOLDS = 24


def neighbours(plan, ids, which, rng):
    """Uniforms that are neighbouring numbers, between which the token that a plan emits changes.

    Only number `which` is between 0 and 1, those before it fail every test that can be failed.
    """

    def rows(numbers):
        found = np.full((len(numbers), plan.num_uniforms), LARGEST)
        found[:, which], found[:, which + 1 :] = numbers, 0.5
        return found

    def tokens(numbers):
        return plan.verify_many(np.tile(ids, (len(numbers), 1)), uniforms=rows(numbers)).token_id

    low, high = np.sort(rng.random((2, THRESHOLDS)), axis=0)
    low[:2], high[:2] = 0.0, LARGEST
    first, last = tokens(low), tokens(high)
    low, high, first = low[first != last], high[first != last], first[first != last]
    for _ in range(1100):  # as many as there are halves between two doubles, at most
        middle = 0.5 * (low + high)
        if ((middle == low) | (middle == high)).all():
            break
        same = tokens(middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return rows(np.concatenate([low, high]))


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_rows_next_to_a_threshold_are_what_their_plans_give(verifier, draft, n):
    """Sums in another order differ in the last digits, and would cross here."""
    rng = np.random.default_rng(n)
    tried = 0
    for _ in range(3):
        p, q = rng.dirichlet(np.ones(1501), size=2)
        law = DRAFTS[draft](q, n)
        plan, ids = mdsd.get_verifier(verifier).plan(p, law), law.sample(rng)
        for which in range(plan.num_uniforms):
            uniforms = neighbours(plan, ids, which, rng)
            count = len(uniforms)
            rows = np.tile(ids, (count, 1))
            found = verify_batch(
                np.broadcast_to(p, (count, len(p))),
                np.broadcast_to(q, (count, len(q))),
                rows,
                draft=draft,
                verifier=verifier,
                uniforms=uniforms,
            )
            expected = plan.verify_many(rows, uniforms=uniforms)
            assert found.token_ids.tolist() == expected.token_id.tolist()
            tried += count
    assert tried >= THRESHOLDS


def test_a_hub_that_both_cases_used_up_is_not_in_the_residual():
    """The hub is token 0: the first case takes .3 of its .5, the second what is left."""
    p, q = np.array([0.5, 0.3, 0.0, 0.2]), np.array([0.4, 0.3, 0.3, 0.0])
    grid = (np.arange(20) + 0.5) / 20
    uniforms = np.array([[LARGEST, test, residual] for test in grid for residual in grid])
    count = len(uniforms)
    found = verify_batch(
        np.tile(p, (count, 1)),
        np.tile(q, (count, 1)),
        np.tile([0, 2], (count, 1)),
        draft="spechub",
        verifier="spechub",
        uniforms=uniforms,
    )
    # Accepted half of the time; the residual is the one token that is never drafted.
    assert found.token_ids.tolist() == np.where(uniforms[:, 1] < 0.5, 0, 3).tolist()


@pytest.mark.parametrize("alike", ["tenths", "the same", "shuffled", "hub used up"])
def test_hubs_at_uniforms_of_exactly_0(alike):
    """Where a test can be passed by rounding alone, 0 is the number that tells."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        size = int(rng.integers(2, 40))
        p, q = rng.dirichlet(np.full(size, 0.3), size=2)
        if alike == "tenths":
            p, q = rng.multinomial(10, np.ones(size) / size, size=2) / 10.0
        elif alike == "the same":
            p = q
        elif alike == "shuffled":
            p = rng.permutation(q)
        else:
            hub = q.argmax()
            p[hub] = np.delete(np.maximum(q - p, 0.0), hub).sum()
            p /= p.sum()
        if np.count_nonzero(q) < 2:
            continue
        law = mdsd.SpecHubDraft(q)
        plan = mdsd.get_verifier("spechub").plan(p, law)
        numbers = np.array([[0, 0, 0], [0, 0.5, 0.5], [LARGEST, 0, 0.9], [LARGEST, LARGEST, 0]])
        rows = np.repeat(law.sample(rng, 20), len(numbers), axis=0)
        uniforms = np.tile(numbers, (20, 1))
        sides = np.tile(p, (len(rows), 1)), np.tile(q, (len(rows), 1)), rows
        found = verify_batch(*sides, draft="spechub", verifier="spechub", uniforms=uniforms)
        expected = plan.verify_many(rows, uniforms=uniforms)
        assert found.token_ids.tolist() == expected.token_id.tolist()
