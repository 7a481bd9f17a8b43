"""Draws without replacement seen by groups of tokens: prefix hits at group ends, selection masses.

The arrival form of `solvers.hitting`, with the truncated law of the number of arrivals kept for
every group at every node in time: a group joins a set by one convolution, however many tokens it
holds. Selection masses are integrals of their own, not differences of prefix hits: a token of mass
1e-12 keeps its digits, and losslessness rests on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers._compiled import compiled
from solvers._typing import BoolArray, FloatArray, IntArray
from solvers.groups import TokenGroups, falling_ratio, refined_groups, shared_out
from solvers.hitting import MASS_SCALE, arrival_chances, arrival_nodes, is_last_node

_SINGLES, _BUCKETS, _FEWEST_BUCKETS = 256, 256, 32
"""Groups to start with.

On 29 instances of 2,000 to 128,000 tokens, 20 of them real positions, the worst gap after 40
orders was 2.2e-4 with these, 2.1e-4 with 512 single tokens and 1.7e-4 with 128 buckets; the
geometric mean over the synthetic ones 7.5e-7, 7.1e-7 and 2.3e-6. With 8 and 16 draws, 256 buckets
instead of 128 and 64 make the gap half to a quarter, and the search at most twice as long.
"""

_BLOCK = 24
"""Nodes handled together while it is not known yet how many there are."""

_ARRIVED = 800.0
"""A rate times a time above this: exp(-800) is no number any more."""

_UNBORN = 1e-30
"""A rate times a time below this: the token adds nothing to any sum of doubles near 1."""

_FAINT = 1.0 / 128.0
"""Tokens of a group with a rate times a time up to this are counted by power sums alone."""

_POWERS = 8
"""Power sums kept: with the next one, 128**-9 of a token would be noticed."""

_MANY = 500.0
"""Arrivals expected of tokens counted together: of many more, exp(-x) for none is no number."""

_STRETCH = 32
"""Tokens or groups handled between two fresh exponentials; each product in between rounds once."""


class _Arrivals(NamedTuple):
    """What is known of the arrivals in G groups at M nodes.

    Attributes
    ----------
    masses : ndarray, shape (G,)
        Rate of each group.
    times, node_weights : ndarray, shape (M,)
        The nodes.
    counts : ndarray, shape (G, n, M)
        Chance that j tokens of a group have arrived by each node; for a single token that it has
        not, and that it has.
    single : ndarray of bool, shape (G,)
        Which groups are one token.
    """

    masses: FloatArray
    times: FloatArray
    node_weights: FloatArray
    counts: FloatArray
    single: BoolArray


def _expm1_powers() -> FloatArray:
    """Coefficients of ``expm1(x)**k`` in x, up to `_POWERS` on both sides."""
    series = np.array([0.0] + [1.0 / math.factorial(k) for k in range(1, _POWERS + 1)])
    powers = np.zeros((_POWERS + 1, _POWERS + 1))
    powers[0, 0] = 1.0
    for k in range(1, _POWERS + 1):
        powers[k] = np.convolve(powers[k - 1], series)[: _POWERS + 1]
    return powers


_EXPM1_POWERS = _expm1_powers()


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _join_token(counts: FloatArray, stay: FloatArray, come: FloatArray) -> None:
    """Let one token join the set whose arrivals ``counts[j, m]`` counts."""
    j = len(counts) - 1
    while j > 1:  # two rows in one pass over memory
        for m in range(len(stay)):
            lower = counts[j - 1, m]
            counts[j, m] = counts[j, m] * stay[m] + lower * come[m]
            counts[j - 1, m] = lower * stay[m] + counts[j - 2, m] * come[m]
        j -= 2
    if j == 1:
        for m in range(len(stay)):
            counts[1, m] = counts[1, m] * stay[m] + counts[0, m] * come[m]
    for m in range(len(stay)):
        counts[0, m] *= stay[m]


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _join_group(counts: FloatArray, joining: FloatArray, single: bool) -> None:
    """Let a group with counts of its own join."""
    num_draws, width = counts.shape
    if single and num_draws > 1:
        _join_token(counts, joining[0], joining[1])
        return
    for j in range(num_draws - 1, 0, -1):
        for m in range(width):
            counts[j, m] = counts[j, m] * joining[0, m] + counts[j - 1, m] * joining[1, m]
        for k in range(2, j + 1):
            for m in range(width):
                counts[j, m] += counts[j - k, m] * joining[k, m]
    for m in range(width):
        counts[0, m] *= joining[0, m]


@compiled()
def _nothing_arrived(num_draws: int, width: int) -> FloatArray:
    counts = np.zeros((num_draws, width))
    counts[0] = 1.0
    return counts


@compiled()
def _add_powers(x: float, sums: FloatArray) -> None:
    """Add x, x**2, ... to sums[1], sums[2], ..."""
    sums[1] += x
    if x > _UNBORN:  # else the powers would sink into slow subnormal numbers
        power = x
        for k in range(2, len(sums)):
            power *= x
            sums[k] += power


@compiled()
def _count_faint(sums: FloatArray, shares: FloatArray, counts: FloatArray) -> None:
    """Fill ``counts[j, m]`` for tokens known by the power sums of their x at the latest time.

    With ``x_i`` at the m-th time the share of that, j of them have arrived with the chance
    ``exp(-sum x_i)`` times the elementary symmetric polynomial of the ``expm1(x_i)``: Newton's
    identities on their power sums, which are series in those of the x_i.
    """
    size = len(sums)
    growth = np.zeros(size)
    for m in range(len(shares)):
        for k in range(1, size):
            growth[k] = 0.0
            for degree in range(size - 1, k - 1, -1):
                growth[k] = (growth[k] + _EXPM1_POWERS[k, degree] * sums[degree]) * shares[m]
            growth[k] *= shares[m] ** (k - 1)
        counts[0, m] = math.exp(-sums[1] * shares[m])
        for j in range(1, len(counts)):
            total, sign = 0.0, 1.0
            for k in range(1, min(j, size - 1) + 1):
                total += sign * growth[k] * counts[j - k, m]
                sign = -sign
            counts[j, m] = max(total / j, 0.0)


@compiled()
def _count_arrivals(
    rates: FloatArray, starts: IntArray, times: FloatArray, counts: FloatArray
) -> None:
    """Fill ``counts[g, j, m]``, the chance that j tokens of group g have arrived by t_m."""
    num_draws, width = counts.shape[1], len(times)
    stay, come = np.empty(width), np.empty(width)
    shares = times / times[-1]
    sums, faint = np.empty(_POWERS + 1), np.empty((num_draws, width))
    for g in range(len(starts) - 1):
        counts[g] = 0.0
        counts[g, 0] = 1.0
        sums[:] = 0.0
        joined, single = 0, starts[g + 1] - starts[g] == 1
        for i in range(starts[g], starts[g + 1]):
            x = rates[i] * times[-1]
            if x <= _FAINT and not single:
                _add_powers(x, sums)
            else:
                joined += 1
                arrival_chances(rates[i], times, stay, come)
                _join_token(counts[g, : min(num_draws, joined + 1)], stay, come)
            if sums[1] > _MANY or (sums[1] > 0.0 and i == starts[g + 1] - 1):
                _count_faint(sums, shares, faint)
                _join_group(counts[g], faint, False)
                joined, sums[:] = num_draws, 0.0


@compiled()
def _fewer_of_all(counts: FloatArray, single: BoolArray) -> float:
    """Chance that fewer than n of all tokens have arrived by the last time."""
    joined = _nothing_arrived(counts.shape[1], counts.shape[2])
    for g in range(len(counts)):
        _join_group(joined, counts[g], single[g])
    return float(joined[:, -1].sum())


@compiled()
def _reach(order: IntArray, tables: _Arrivals) -> tuple[FloatArray, FloatArray]:
    """Mass ahead of each group; weight of each node times the chance that none of it has arrived.

    That none has arrived is as likely as ``exp(-mass * t)``; most of those are had as products.
    """
    masses, times, node_weights, counts, _ = tables
    size, width = len(order), len(times)
    ahead, reach = np.empty(size), np.empty((size, width))
    mass = 0.0
    for k in range(size):
        ahead[k] = mass
        if k % _STRETCH == 0:
            for m in range(width):
                reach[k, m] = node_weights[m] * math.exp(-mass * times[m])
        else:
            for m in range(width):
                reach[k, m] = reach[k - 1, m] * counts[order[k - 1], 0, m]
        mass += masses[order[k]]
    return ahead, reach


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _prefix_hits(order: IntArray, tables: _Arrivals) -> FloatArray:
    counts, single = tables.counts, tables.single
    size, num_draws, width = len(order), counts.shape[1], counts.shape[2]
    ahead, reach = _reach(order, tables)
    hits = np.zeros(size + 1)
    hits[size] = 1.0
    behind = _nothing_arrived(num_draws, width)
    for k in range(size - 1, 0, -1):
        _join_group(behind, counts[order[k]], single[order[k]])
        total = 0.0
        for j in range(num_draws):
            for m in range(width):
                total += reach[k, m] * behind[j, m]
        hits[k] = min(1.0, ahead[k] * total)
    return hits


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _add_selection(
    weights: FloatArray,
    order: IntArray,
    tables: _Arrivals,
    selected: FloatArray,
    slot: IntArray,
    around: FloatArray,
    drained: FloatArray,
) -> None:
    """Add what one order of the lottery selects; it counts ``weights[g]`` for group g.

    Groups of one token get their mass outright, in `selected`. Of the others, ``around[slot]``
    collects at each node its weight times the chance that nothing ahead of the group and j tokens
    behind it have arrived, and ``drained[slot]`` the same times the mass ahead: all that the order
    has to do with the tokens inside.
    """
    masses, counts, single = tables.masses, tables.counts, tables.single
    size, num_draws, width = len(order), counts.shape[1], counts.shape[2]
    ahead, reach = _reach(order, tables)
    behind = _nothing_arrived(num_draws, width)
    for k in range(size - 1, -1, -1):
        g = order[k]
        if single[g]:
            chosen, displaced = 0.0, 0.0
            for j in range(num_draws):
                for m in range(width):
                    chosen += reach[k, m] * counts[g, 0, m] * behind[j, m]
            for j in range(num_draws - 1):
                for m in range(width):
                    displaced += reach[k, m] * counts[g, 1, m] * behind[j, m]
            selected[g] += weights[g] * max(masses[g] * chosen - ahead[k] * displaced, 0.0)
        else:
            s = slot[g]
            for j in range(num_draws):
                for m in range(width):
                    reached = weights[g] * reach[k, m] * behind[j, m]
                    around[s, j, m] += reached
                    drained[s, j, m] += ahead[k] * reached
        _join_group(behind, counts[g], single[g])


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _select_in_order(
    rates: FloatArray, times: FloatArray, around: FloatArray, drained: FloatArray
) -> FloatArray:
    """Find the selection mass of each token of a group whose tokens stand in the order given.

    ``around[r]`` is to be the weight of each node times the chance that nothing ahead of the group
    and fewer than r tokens behind it have arrived, and ``drained[r]`` the same times the mass
    ahead.
    """
    size, num_draws, width = len(rates), len(around) - 1, len(times)
    ahead = np.empty(size)
    mass = 0.0
    for i in range(size):
        ahead[i] = mass
        mass += rates[i]
    stay, come = np.empty((_STRETCH, width)), np.empty((_STRETCH, width))
    wait = np.empty((_STRETCH, width))
    reach, fails, drains = np.empty(width), np.empty(width), np.empty(width)
    behind = _nothing_arrived(num_draws, width)
    selected = np.empty(size)
    for first in range((size - 1) // _STRETCH * _STRETCH, -1, -_STRETCH):
        count = min(_STRETCH, size - first)
        for m in range(width):
            wait[0, m] = math.exp(-ahead[first] * times[m])
        for i in range(count):
            arrival_chances(rates[first + i], times, stay[i], come[i])
            if i > 0:
                for m in range(width):
                    wait[i, m] = wait[i - 1, m] * stay[i - 1, m]
        for i in range(count - 1, -1, -1):
            rate, before = rates[first + i], ahead[first + i]
            for m in range(width):
                reach[m] = wait[i, m] * stay[i, m]
                fails[m] = wait[i, m] * come[i, m]
                # Not later: a mass times the weight of a late node may be no number.
                drains[m] = before * fails[m]
            chosen, displaced = 0.0, 0.0
            for j in range(num_draws):
                r = num_draws - j
                for m in range(width):
                    chosen += reach[m] * behind[j, m] * around[r, m]
                    short = drains[m] * around[r - 1, m] + fails[m] * drained[r - 1, m]
                    displaced += behind[j, m] * short
            selected[first + i] = max(rate * chosen - displaced, 0.0)
            _join_token(behind, stay[i], come[i])
    return selected


@compiled()
def _select_within(
    rates: FloatArray, times: FloatArray, around: FloatArray, drained: FloatArray
) -> FloatArray:
    """Find the selection mass of each token, its group standing as given or in reverse."""
    num_draws = len(around)
    # Until one of the group may have arrived, every node counts for each token alike; a node that
    # weighs nothing beside those weighs nothing for any.
    total = np.zeros(len(times))
    for j in range(num_draws):
        total += around[j]
    early = total[times * rates.sum() <= 1.0].sum()
    kept = np.flatnonzero(total > 1e-20 * early)
    fewer = np.zeros((num_draws + 1, len(kept)))
    fewer_drained = np.zeros((num_draws + 1, len(kept)))
    for j in range(num_draws):
        fewer[j + 1] = fewer[j] + around[j][kept]
        fewer_drained[j + 1] = fewer_drained[j] + drained[j][kept]
    there = _select_in_order(rates, times[kept], fewer, fewer_drained)
    back = _select_in_order(rates[::-1].copy(), times[kept], fewer, fewer_drained)
    return (there + back[::-1]) / 2.0


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _group_hits(tables: _Arrivals) -> FloatArray:
    """Hits of each group alone, from the arrivals in the groups before it and behind it."""
    masses, _, node_weights, counts, single = tables
    size, num_draws, width = counts.shape
    before = np.empty(counts.shape)
    joined = _nothing_arrived(num_draws, width)
    for g in range(size):
        before[g] = joined
        _join_group(joined, counts[g], single[g])
    hits = np.empty(size)
    behind = _nothing_arrived(num_draws, width)
    at_most, fewer = np.empty(width), np.empty(width)
    for g in range(size - 1, -1, -1):
        at_most[:] = 0.0
        fewer[:] = 0.0
        for j in range(num_draws):
            for m in range(width):
                at_most[m] += behind[j, m]
                fewer[m] += before[g, num_draws - 1 - j, m] * at_most[m]
        total = 0.0
        for m in range(width):
            total += node_weights[m] * counts[g, 0, m] * fewer[m]
        hits[g] = min(1.0, masses[g] * total)
        _join_group(behind, counts[g], single[g])
    return hits


class GroupedDraws:
    """n draws without replacement, as orders of groups of tokens see them.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Weights >= 0 summing to 1, at least n of them positive.
    num_draws : int
        n >= 1.
    groups : TokenGroups
        Groups of the tokens with positive weight; no other tokens.

    Notes
    -----
    Memory: G n M numbers for G groups and M nodes (48 for n = 4; more where few tokens hold nearly
    all the mass). One order costs O(n M) for each group of one token, O(n**2 M) for any other.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.groups import TokenGroups
    >>> groups = TokenGroups(3, np.array([0, 2, 1]), np.array([0, 1, 3]))
    >>> draws = GroupedDraws(np.array([0.2, 0.5, 0.3]), 2, groups)
    >>> draws.prefix_hits(np.array([0, 1])).round(6).tolist()
    [0.0, 0.485714, 1.0]
    """

    def __init__(self, weights: FloatArray, num_draws: int, groups: TokenGroups) -> None:
        self.groups = groups
        self._num_draws = num_draws
        self._rates = weights[groups.members] * MASS_SCALE
        self._tables = self._tabulate()

    def _tabulate(self) -> _Arrivals:
        exponents = np.frexp(self._rates)[1]
        lowest = exponents.min()
        exponents = np.flatnonzero(np.bincount(exponents - lowest)) + float(lowest)
        blocks = []
        for times, node_weights in arrival_nodes(self._num_draws, _BLOCK):
            # While no token is about to arrive, nothing happens that any set could notice.
            latest = exponents + math.log2(times[-1])
            earliest = exponents + math.log2(times[0])
            if (earliest > math.log2(_ARRIVED) + 1.0).all():
                break
            if not ((earliest < math.log2(_ARRIVED)) & (latest > math.log2(_UNBORN))).any():
                continue
            counts = np.empty((len(self.groups), self._num_draws, len(times)))
            _count_arrivals(self._rates, self.groups.starts, times, counts)
            blocks.append((times, node_weights, counts))
            if is_last_node(times[-1], _fewer_of_all(counts, self.groups.single)):
                break
        masses = np.add.reduceat(self._rates, self.groups.starts[:-1])
        times, weights, counts = (np.concatenate(x, axis=-1) for x in zip(*blocks, strict=True))
        return _Arrivals(masses, times, weights, counts, self.groups.single)

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Order of the groups by target mass (G,) over mass of the draws, largest first."""
        return falling_ratio(target_masses, self._tables.masses)

    def group_hits(self) -> FloatArray:
        """Probability, (G,), that some draw is in each group."""
        return _group_hits(self._tables)

    def prefix_hits(self, order: IntArray) -> FloatArray:
        """Probability, (G + 1,), that some draw is in the first k groups of an order."""
        return _prefix_hits(order, self._tables)

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> DrawsSelection:
        """Say with what mass each token is selected by a lottery over orders of the groups."""
        return DrawsSelection(self, orders, weights)


def refined_draws(
    target_masses: FloatArray, weights: FloatArray, num_draws: int, *, share: float = 1.0
) -> Iterator[GroupedDraws]:
    """Give draws without replacement as groups see them, from coarse groups to single tokens.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, by whose ratio to the weights tokens are grouped.
    weights, num_draws
        As for `GroupedDraws`. Joining a bucket costs O(n**2): many draws get fewer of them.
    share : float, default 1.0
        Of the groups to begin with, where others are searched beside these.
    """
    buckets = max(_BUCKETS * 16 // max(num_draws, 16), _FEWEST_BUCKETS)
    for groups in refined_groups(target_masses, weights, *shared_out(share, _SINGLES, buckets)):
        yield GroupedDraws(weights, num_draws, groups)


class DrawsSelection:
    """Selection masses of a lottery over orders of groups, worked out group by group when asked.

    Within a group the tokens stand in the group's order or in the reverse, with probability 1/2
    each.

    Parameters
    ----------
    draws : GroupedDraws
    orders : ndarray of int32, shape (K, G)
        Orders of the groups of `draws`.
    weights : ndarray, shape (K, G)
        What each order counts for each group.
    """

    def __init__(self, draws: GroupedDraws, orders: NDArray[np.int32], weights: FloatArray) -> None:
        groups, counts = draws.groups, draws._tables.counts
        self._draws = draws
        self._shared = np.flatnonzero(~groups.single)
        self._slot = np.zeros(len(groups), dtype=np.int64)
        self._slot[self._shared] = np.arange(len(self._shared))
        self._selected = np.zeros(len(groups))
        self._around = np.zeros((len(self._shared), *counts.shape[1:]))
        self._drained = np.zeros_like(self._around)
        for order, counting in zip(orders, np.ascontiguousarray(weights), strict=True):
            found = self._selected, self._slot, self._around, self._drained
            _add_selection(counting, order, draws._tables, *found)

    def of_group(self, group: int) -> FloatArray:
        """Give the selection masses of the tokens of a group, in its order."""
        draws = self._draws
        start, stop = draws.groups.starts[group : group + 2]
        if stop - start == 1:
            return self._selected[group : group + 1]
        slot = self._slot[group]
        return _select_within(
            draws._rates[start:stop], draws._tables.times, self._around[slot], self._drained[slot]
        )

    def of_all(self) -> FloatArray:
        """Give the selection masses of the tokens of all groups, group by group."""
        starts = self._draws.groups.starts
        selected = np.empty(starts[-1])
        selected[starts[:-1]] = self._selected
        for group in self._shared.tolist():
            selected[starts[group] : starts[group + 1]] = self.of_group(group)
        return selected
