"""The same bound from explicit formulations and from peers, at the sizes they manage."""

import numpy as np
import pytest

import mdsd

NUM_DRAFTS = 2
SIZES = [10, 30, 100, 300]


@pytest.fixture(scope="module", params=SIZES, ids="V={}".format)
def small(request, make_pair):
    return make_pair(request.param)


def off_by(pair, value):
    exact = mdsd.acceptance_bound(pair.target, mdsd.WithoutReplacement(pair.draft, NUM_DRAFTS))
    return f"bound {value:.9f}, off by {abs(value - exact.value):.0e}"


@pytest.mark.parametrize("method", ["prefix", "submodular", "lp", "matching"])
def test_bound(measure, small, method):
    """`lp` is HiGHS; `matching` is OR-tools' maximum flow where it is installed."""

    def solve():
        # A draft made anew: the last search of one that stays is remembered.
        draft = mdsd.WithoutReplacement(small.draft, NUM_DRAFTS)
        return mdsd.acceptance_bound(small.target, draft, method=method)

    measure(
        solve,
        small,
        quality=lambda bound: off_by(small, bound.value),
    )


def test_emd2_of_pot(measure, small):
    """Transport between tokens and all pairs of drafts: cost 0 where the token was drafted."""
    ot = pytest.importorskip("ot")
    draft = mdsd.WithoutReplacement(small.draft, NUM_DRAFTS)
    ids, probs = draft.tuple_arrays()
    sets, place = np.unique(np.sort(ids, axis=1), axis=0, return_inverse=True)
    masses = np.bincount(place.ravel(), weights=probs)
    if small.target.size * len(sets) > 5_000_000:
        pytest.skip("its cost matrix has more than 5,000,000 entries")
    cost = np.ones((len(small.target), len(sets)))
    for column in sets.T:
        cost[column, np.arange(len(sets))] = 0.0
    measure(
        lambda: ot.emd2(small.target, masses / masses.sum(), cost, numItermax=10_000_000),
        small,
        quality=lambda loss: off_by(small, 1.0 - loss),
    )
