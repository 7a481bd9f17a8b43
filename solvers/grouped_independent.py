"""Independent draws from different laws seen by groups of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from solvers._compiled import compiled
from solvers._typing import FloatArray, IntArray
from solvers.groups import TokenGroups, falling_ratio, refined_groups, shared_out

_SINGLES, _BUCKETS = 1024, 1024
"""Groups to start with.

Tokens of one ratio of masses may differ in each draw's share, so that it takes more groups than
without replacement; an order of them costs little. On 24 instances of real positions and 6 of 5,000
to 128,000 tokens the worst gap after 40 orders was 2.2e-3 with 256 of both, 1.0e-3 with 512 and
3.5e-4 with these; the mean 2.0e-4, 1.0e-4 and 4.4e-5.
"""


@compiled()
def _prefix_hits(order: IntArray, masses: FloatArray) -> FloatArray:
    """Sum up the chances that some draw is of each group and none stands before it.

    Such a chance grows draw by draw, by positive terms: the draws so far were all behind the group,
    and this one is of it; or one of them was of it already, and this one is of it or behind it.
    """
    size, num_draws = len(order), masses.shape[1]
    selected = np.empty(size)
    behind = np.zeros(num_draws)
    for k in range(size - 1, -1, -1):
        g = order[k]
        all_behind, some_here = 1.0, 0.0
        for j in range(num_draws):
            mass = masses[g, j]
            some_here = some_here * (behind[j] + mass) + all_behind * mass
            all_behind *= behind[j]
            behind[j] += mass
        selected[k] = some_here
    hits = np.zeros(size + 1)
    for k in range(size):
        hits[k + 1] = min(1.0, hits[k] + selected[k])
    return hits


@compiled()
def _masses_behind(orders: NDArray[np.int32], masses: FloatArray) -> FloatArray:
    """Sum up the masses of the groups after each group, (G, n, K), in each of the orders (K, G)."""
    (count, size), num_draws = orders.shape, masses.shape[1]
    behind = np.empty((size, num_draws, count))
    for k in range(count):
        total = np.zeros(num_draws)
        for place in range(size - 1, -1, -1):
            behind[orders[k, place], :, k] = total
            total += masses[orders[k, place]]
    return behind


@compiled(fastmath={"contract"})
def _select_in_order(
    probs: FloatArray, order_weights: FloatArray, behind_group: FloatArray
) -> FloatArray:
    """Find the selection mass of each token of a group whose tokens stand in the order given.

    ``behind_group[j, k]`` is the mass of draw j behind the group in the k-th order of the lottery,
    ``order_weights[k]`` what that order counts for this group.
    The recursion is that of `_prefix_hits`, for all orders at once.
    """
    (size, num_draws), count = probs.shape, len(order_weights)
    behind = behind_group.copy()
    all_behind, some_here = np.empty(count), np.empty(count)
    selected = np.empty(size)
    for i in range(size - 1, -1, -1):
        all_behind[:] = order_weights
        some_here[:] = 0.0
        for j in range(num_draws):
            mass = probs[i, j]
            for k in range(count):
                others = behind[j, k]
                behind[j, k] = others + mass
                some_here[k] = some_here[k] * behind[j, k] + all_behind[k] * mass
                all_behind[k] *= others
        selected[i] = some_here.sum()
    return selected


@compiled()
def _select_within(
    probs: FloatArray, order_weights: FloatArray, behind_group: FloatArray
) -> FloatArray:
    """Find the selection mass of each token, its group standing as given or in reverse."""
    there = _select_in_order(probs, order_weights, behind_group)
    if len(probs) == 1:
        return there
    back = _select_in_order(probs[::-1].copy(), order_weights, behind_group)
    return (there + back[::-1]) / 2.0


@compiled()
def _select_all(
    probs: FloatArray, starts: IntArray, weights: FloatArray, behind: FloatArray
) -> FloatArray:
    selected = np.empty(len(probs))
    for g in range(len(starts) - 1):
        start, stop = starts[g], starts[g + 1]
        selected[start:stop] = _select_within(probs[start:stop], weights[g], behind[g])
    return selected


class GroupedIndependent:
    """One draw from each of n laws, independently, as orders of groups of tokens see them.

    Parameters
    ----------
    probs : ndarray, shape (n, V)
        The n laws.
    groups : TokenGroups
        Groups of all tokens that can be drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.groups import TokenGroups
    >>> groups = TokenGroups(3, np.array([0, 2, 1]), np.array([0, 1, 3]))
    >>> probs = np.array([[0.2, 0.5, 0.3], [0.5, 0.5, 0.0]])
    >>> GroupedIndependent(probs, groups).prefix_hits(np.array([0, 1])).round(12).tolist()
    [0.0, 0.6, 1.0]
    """

    def __init__(self, probs: FloatArray, groups: TokenGroups) -> None:
        self.groups = groups
        self._probs = np.ascontiguousarray(probs[:, groups.members].T)
        self._masses = np.add.reduceat(self._probs, groups.starts[:-1], axis=0)

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Order of the groups by target mass (G,) over mass of the draws, largest first."""
        return falling_ratio(target_masses, self._masses.sum(axis=1))

    def group_hits(self) -> FloatArray:
        """Probability, (G,), that some draw is in each group."""
        return np.asarray(1.0 - np.prod(1.0 - np.minimum(self._masses, 1.0), axis=1))

    def prefix_hits(self, order: IntArray) -> FloatArray:
        """Probability, (G + 1,), that some draw is in the first k groups of an order."""
        return _prefix_hits(order, self._masses)

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> IndependentSelection:
        """Say with what mass each token is selected by a lottery over orders of the groups."""
        return IndependentSelection(self, orders, weights)


def refined_independent(
    target_masses: FloatArray, probs: FloatArray, *, share: float = 1.0
) -> Iterator[GroupedIndependent]:
    """Give independent draws as groups see them, from coarse groups to single tokens.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, by whose ratio to the sum of the laws tokens are grouped.
    probs : ndarray, shape (n, V)
        As for `GroupedIndependent`.
    share : float, default 1.0
        Of the groups to begin with, where others are searched beside these.
    """
    counts = shared_out(share, _SINGLES, _BUCKETS)
    for groups in refined_groups(target_masses, probs.sum(axis=0), *counts):
        yield GroupedIndependent(probs, groups)


class IndependentSelection:
    """Selection masses of a lottery over orders of groups, worked out group by group when asked.

    Within a group the tokens stand in the group's order or in the reverse, with probability 1/2
    each.

    Parameters
    ----------
    law : GroupedIndependent
    orders : ndarray of int32, shape (K, G)
        Orders of the groups of `law`.
    weights : ndarray, shape (K, G)
        What each order counts for each group.
    """

    def __init__(
        self, law: GroupedIndependent, orders: NDArray[np.int32], weights: FloatArray
    ) -> None:
        self._law, self._weights = law, np.ascontiguousarray(weights.T)
        self._behind = _masses_behind(orders, law._masses)

    def of_group(self, group: int) -> FloatArray:
        """Give the selection masses of the tokens of a group, in its order."""
        start, stop = self._law.groups.starts[group : group + 2]
        probs = self._law._probs[start:stop]
        return _select_within(probs, self._weights[group], self._behind[group])

    def of_all(self) -> FloatArray:
        """Give the selection masses of the tokens of all groups, group by group."""
        return _select_all(self._law._probs, self._law.groups.starts, self._weights, self._behind)
