"""Records and arrays stay as they are, also after a copy and a trip through pickle."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import mdsd
from mdsd import Verification

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
THINGS = {
    "with_replacement": mdsd.WithReplacement(Q, 2),
    "independent": mdsd.IndependentDrafts([Q, P]),
    "greedy": mdsd.GreedyDraft(Q, 2),
    "spechub": mdsd.SpecHubDraft(Q),
    "top_k": mdsd.TopKDraft(Q, 2),
    "explicit": mdsd.ExplicitDraft([[0, 1], [2, 1]], [0.25, 0.75], vocab_size=3),
    "bound": mdsd.acceptance_bound(P, mdsd.WithReplacement(Q, 2)),
    "bound-lp": mdsd.acceptance_bound(P, mdsd.WithReplacement(Q, 2), method="lp"),
    "plan": mdsd.RRSVerifier().plan(P, mdsd.WithReplacement(Q, 2)),
    "plan-greedy": mdsd.GreedyVerifier().plan(P, mdsd.GreedyDraft(Q, 2)),
}
TRIPS = {
    "itself": lambda thing: thing,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def arrays(thing):
    for value in vars(thing).values():
        if isinstance(value, np.ndarray):
            yield value
        elif hasattr(value, "__dict__"):
            yield from arrays(value)


@pytest.mark.parametrize("trip", TRIPS)
@pytest.mark.parametrize("label", THINGS)
def test_arrays_are_read_only(label, trip):
    found = list(arrays(TRIPS[trip](THINGS[label])))
    assert found
    assert [array for array in found if array.flags.writeable] == []


class TestEquality:
    def test_of_one_verification(self):
        assert Verification(1, 0) == Verification(1, 0) == Verification(np.int64(1), np.int64(0))
        assert Verification(1, 0) != Verification(1, -1)
        assert Verification(1, 0) != Verification(2, 0)
        assert len({Verification(1, 0), Verification(1, 0), Verification(1, -1)}) == 2

    def test_of_a_batch(self):
        one = Verification(np.array([1, 2]), np.array([0, -1]))
        assert one == Verification(np.array([1, 2]), np.array([0, -1]))
        assert one != Verification(np.array([1, 2]), np.array([0, 0]))
        assert one != Verification(np.array([1]), np.array([0]))
        assert one != Verification(1, 0)
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)

    def test_with_something_else(self):
        assert Verification(1, 0) != (1, 0)

    def test_the_same_seed_gives_equal_batches(self):
        plan = THINGS["plan"]
        ids = plan.draft.sample(0, 50)
        assert plan.verify_many(ids, 3) == plan.verify_many(ids, 3)
        assert plan.verify_many(ids, 3) != plan.verify_many(ids, 4)
