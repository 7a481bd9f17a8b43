"""What is drafted, as groups of tokens see it: independent parts on disjoint tokens.

A part draws without replacement from one law, draws independently from one or several laws, or
holds tokens that are certain to be there. All numbers of all parts stand in flat arrays, so that
compiled code takes every law of drafts in one type.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._compiled import compiled
from ._typing import BoolArray, FloatArray, IntArray
from .arrivals import POWERS, DrawTables, latest_time, tabulate_draws
from .ratio_groups import RatioGroups, bucket_of, group_with_sums, groups_alone

CERTAIN, INDEPENDENT, DRAWS = 0, 1, 2


class GroupedLaw(NamedTuple):
    """The law of the drafts over G groups of tokens, in C parts.

    Attributes
    ----------
    kinds, draws : ndarray of int64, shape (C,)
        What each part is, and how many drafts are drawn from it.
    tokens : ndarray of int64, shape (C,)
        What to add to the tokens of each part to have them in the vocabulary of all.
    firsts : ndarray of int64, shape (C + 1,)
        First group of each part, and G.
    single_starts, singles : ndarray of int64, shapes (C + 1,) and (S,)
        Tokens of each part that stand alone, as in `solvers.ratio_groups.RatioGroups`.
    tables, scales : ndarray, shapes (C, buckets) and (C,)
        For those that do not: groups by ratio, as there; groups count from the first of the part.
    targets : ndarray, shape (G,)
        Target masses.
    likely : ndarray, shape (G,)
        How many drafts are in each group on average, roughly and at most.
    heads, rates, powers, latest : ndarray, shapes (G,), (G,), (G, powers + 1), (C,)
        Of draws without replacement, as in `solvers.arrivals.DrawTables`.
    time_starts : ndarray of int64, shape (C + 1,)
    times, node_weights : ndarray
        The nodes in time of each part.
    number_starts : ndarray of int64, shape (C + 1,)
    numbers : ndarray
        Of draws without replacement the chances (G, n, M) that so many of a group have arrived by a
        node; of independent draws the masses (G, n) of the groups.
    """

    kinds: IntArray
    draws: IntArray
    tokens: IntArray
    firsts: IntArray
    single_starts: IntArray
    singles: IntArray
    tables: NDArray[np.int32]
    scales: FloatArray
    targets: FloatArray
    likely: FloatArray
    heads: FloatArray
    rates: FloatArray
    powers: FloatArray
    latest: FloatArray
    time_starts: IntArray
    times: FloatArray
    node_weights: FloatArray
    number_starts: IntArray
    numbers: FloatArray


def _one_part(
    kind: int,
    num_draws: int,
    groups: RatioGroups,
    targets: FloatArray,
    likely: FloatArray,
    heads: FloatArray,
    powers: FloatArray,
    latest: float,
    times: FloatArray,
    node_weights: FloatArray,
    numbers: FloatArray,
) -> GroupedLaw:
    return GroupedLaw(
        np.array([kind]),
        np.array([num_draws]),
        np.array([0]),
        np.array([0, groups.size]),
        np.array([0, len(groups.singles)]),
        groups.singles,
        groups.table[np.newaxis],
        np.array([groups.scale]),
        targets,
        likely,
        heads,
        heads + powers[:, 1] / latest,
        powers,
        np.array([latest]),
        np.array([0, len(times)]),
        times,
        node_weights,
        np.array([0, len(numbers)]),
        numbers,
    )


def group_draws(
    target_masses: FloatArray,
    weights: FloatArray,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> GroupedLaw:
    """Group the tokens of n draws without replacement.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p.
    weights : ndarray, shape (V,)
        Weights >= 0, at least n of them positive.
    num_draws : int
        n >= 1.
    num_singles, num_buckets : int
        About how many tokens stand alone, and most groups of others.

    Returns
    -------
    GroupedLaw
        Of one part.
    """
    groups, targets, tables = tabulate_draws(
        target_masses, weights, num_draws, num_singles, num_buckets
    )
    return law_of_draws(groups, targets, tables, num_draws)


def law_of_draws(
    groups: RatioGroups, targets: FloatArray, tables: DrawTables, num_draws: int
) -> GroupedLaw:
    """Make a law of what `tabulate_draws` or `tabulate_sums` of `solvers.arrivals` has found."""
    rates = tables.heads + tables.powers[:, 1] / tables.latest
    with np.errstate(over="ignore"):  # of a heavy token beside others with next to no mass
        likely = rates * (num_draws * tables.latest / latest_time(num_draws))
    return _one_part(
        DRAWS,
        num_draws,
        groups,
        targets,
        likely,
        tables.heads,
        tables.powers,
        tables.latest,
        tables.times,
        tables.node_weights,
        tables.counts.ravel(),
    )


def group_independent(
    target_masses: FloatArray,
    probs: FloatArray,
    num_draws: int,
    num_singles: int,
    num_buckets: int,
) -> GroupedLaw:
    """Group the tokens of one draw from each of n laws, (n, V), or of n from one, (1, V)."""
    rows = len(probs)
    sums = probs[0] if rows == 1 else probs.sum(axis=0)
    groups, targets, drawn = group_with_sums(
        target_masses, sums, 1.0 / rows, num_singles, num_buckets, float(num_draws)
    )
    masses = np.repeat(drawn[:, np.newaxis], num_draws, axis=1)
    if rows > 1:
        masses = _sum_groups(target_masses, probs, sums, *groups)
    return _one_part(
        INDEPENDENT,
        num_draws,
        groups,
        targets,
        masses.sum(axis=1),
        np.zeros(groups.size),
        np.zeros((groups.size, POWERS + 1)),
        1.0,
        np.empty(0),
        np.empty(0),
        masses.ravel(),
    )


@compiled(nogil=True, error_model="numpy")
def _sum_groups(
    target_masses: FloatArray,
    probs: FloatArray,
    sums: FloatArray,
    singles: IntArray,
    table: NDArray[np.int32],
    scale: float,
    count: int,
) -> FloatArray:
    """Sum the masses of each draw over groups, (G, n)."""
    masses, lost = np.zeros((count, len(probs))), np.zeros((count, len(probs)))
    place, following = 0, singles[0] if len(singles) else -1
    for i in range(len(sums)):
        if sums[i] > 0.0:
            if i == following:
                group = place
                place += 1
                following = singles[place] if place < len(singles) else -1
            else:
                group = table[bucket_of(target_masses[i], sums[i] * scale)]
            for j in range(len(probs)):
                # Compensated: the law rests on these, and a group may hold all tokens.
                added = probs[j, i] - lost[group, j]
                total = masses[group, j] + added
                lost[group, j] = (total - masses[group, j]) - added
                masses[group, j] = total
    return masses


def group_certain(target_masses: FloatArray, tokens: IntArray) -> GroupedLaw:
    """Give every token that is drafted for certain a group of its own; `tokens` ascend."""
    count = len(tokens)
    groups = groups_alone(tokens, 1.0)
    return _one_part(
        CERTAIN,
        count,
        groups,
        target_masses[tokens],
        np.ones(count),
        np.zeros(count),
        np.zeros((count, POWERS + 1)),
        1.0,
        np.empty(0),
        np.empty(0),
        np.empty(0),
    )


def _chained(first: IntArray, second: IntArray) -> IntArray:
    """Let the starts of the second follow those of the first."""
    return np.concatenate([first, first[-1] + second[1:]])


def join_parts(first: GroupedLaw, second: GroupedLaw) -> GroupedLaw:
    """Join the parts of two laws that are independent, on disjoint tokens."""
    return GroupedLaw(
        np.concatenate((first.kinds, second.kinds)),
        np.concatenate((first.draws, second.draws)),
        np.concatenate((first.tokens, second.tokens)),
        _chained(first.firsts, second.firsts),
        _chained(first.single_starts, second.single_starts),
        np.concatenate((first.singles, second.singles)),
        np.concatenate((first.tables, second.tables)),
        np.concatenate((first.scales, second.scales)),
        np.concatenate((first.targets, second.targets)),
        np.concatenate((first.likely, second.likely)),
        np.concatenate((first.heads, second.heads)),
        np.concatenate((first.rates, second.rates)),
        np.concatenate((first.powers, second.powers)),
        np.concatenate((first.latest, second.latest)),
        _chained(first.time_starts, second.time_starts),
        np.concatenate((first.times, second.times)),
        np.concatenate((first.node_weights, second.node_weights)),
        _chained(first.number_starts, second.number_starts),
        np.concatenate((first.numbers, second.numbers)),
    )


def with_fewer_nodes(law: GroupedLaw, every: int) -> GroupedLaw:
    """Keep one node in time of so many: enough to compare orders by, not to select by."""
    times, weights, numbers = [], [], []
    for c, kind in enumerate(law.kinds.tolist()):
        own = slice(law.time_starts[c], law.time_starts[c + 1])
        found = law.numbers[law.number_starts[c] : law.number_starts[c + 1]]
        if kind == DRAWS:
            shape = (law.firsts[c + 1] - law.firsts[c], law.draws[c], own.stop - own.start)
            found = found.reshape(shape)[:, :, ::every].ravel()
        times.append(law.times[own][::every])
        weights.append(law.node_weights[own][::every] * every)
        numbers.append(found)
    return law._replace(
        time_starts=np.cumsum([0, *map(len, times)]),
        times=np.concatenate(times),
        node_weights=np.concatenate(weights),
        number_starts=np.cumsum([0, *map(len, numbers)]),
        numbers=np.concatenate(numbers),
    )


@compiled(nogil=True)
def part_of(groups: IntArray, law: GroupedLaw) -> IntArray:
    """Part that each group belongs to."""
    part = np.empty(len(groups), dtype=np.int64)
    for k in range(len(groups)):
        c = 0
        while groups[k] >= law.firsts[c + 1]:
            c += 1
        part[k] = c
    return part


def single_groups(law: GroupedLaw) -> BoolArray:
    """Which groups, (G,), are known to be one token."""
    single = np.asarray(law.powers[:, 1] == 0.0)
    for c in np.flatnonzero(law.kinds == INDEPENDENT):
        # Of independent draws no powers are kept: nothing tells what a group by ratio holds.
        alone = law.single_starts[c + 1] - law.single_starts[c]
        single[law.firsts[c] + alone : law.firsts[c + 1]] = False
    return single
