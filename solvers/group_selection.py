"""What a lottery over orders of groups selects, group by group and token by token.

An order selects the first of its groups that was met, and from that group any of its drafts with
equal chances. Of independent draws a token is then selected in proportion to its masses. Of draws
without replacement it is not quite; but the ratio of the mass it is selected with to its rate falls
with the rate, so the heaviest token of a group has the least. If the others are kept as rarely as
to have that ratio, too, what is selected is in proportion to the rates.

Notes
-----
Why the ratio falls: give two tokens of a group the rates a > b, and fix all other clocks, of which
the (n - 1)-th rings at s. Let each be selected with chance w2 if both are drawn, and w1 if it is
alone; one more of the others is drawn then, so ``w1 <= 2 w2``. By how much the ratio of the first
is less than that of the second is linear in w1, and least for ``w1 = 2 w2``; then it has the sign
of ``h(a) - h(b)`` with ``h(q) = q/2 + q / (exp(q s) - 1) = q/2 coth(q s / 2)``, which grows with q.
docs/theory.md has every step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._compiled import compiled
from ._typing import FloatArray, IntArray
from .arrivals import POWERS, arrival_chances, count_faint, flow_of_faint
from .group_hits import hits_of_groups, join_group, reach_groups
from .grouped_law import CERTAIN, DRAWS, INDEPENDENT, GroupedLaw
from .hitting import MASS_SCALE
from .ratio_groups import bucket_of, place_among


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def _add_around(
    order: IntArray,
    counting: FloatArray,
    masses: FloatArray,
    powers: FloatArray,
    times: FloatArray,
    weights: FloatArray,
    counts: FloatArray,
    wanted: int,
    around: FloatArray,
) -> None:
    """Add, for each group or the one wanted, what one order has to do with the tokens inside.

    ``around[0, g, j]`` collects at each node its weight times ``counting[g]`` times the chance that
    nothing ahead of the group and j tokens behind it have arrived, and ``around[1, g, j]`` the same
    times the mass ahead.
    """
    size, num_draws, width = counts.shape
    ahead, reach = reach_groups(order, masses, times, weights, counts)
    behind = np.zeros((num_draws, width))
    behind[0] = 1.0
    for k in range(size - 1, -1, -1):
        g = order[k]
        if wanted < 0 or g == wanted:
            for j in range(num_draws):
                for m in range(width):
                    reached = counting[g] * reach[k, m] * behind[j, m]
                    around[0, g, j, m] += reached
                    around[1, g, j, m] += ahead[k] * reached
        if g == wanted:
            return
        join_group(behind, counts, g, powers[g, 1] == 0.0)


@compiled(nogil=True)
def _add_shares(
    order: IntArray, counting: FloatArray, masses: FloatArray, shares: FloatArray
) -> None:
    """Add, for each group and draw, the chance that this draw is the one selected if it is there.

    None of the others may be ahead; of those in the group each is as likely to be selected.
    """
    size, num_draws = masses.shape
    behind = np.zeros(num_draws)
    ways = np.empty(num_draws)
    for k in range(size - 1, -1, -1):
        g = order[k]
        for j in range(num_draws):
            ways[:] = 0.0
            ways[0] = 1.0
            for other in range(num_draws):
                if other != j:
                    for here in range(num_draws - 1, 0, -1):
                        ways[here] = ways[here] * behind[other] + ways[here - 1] * masses[g, other]
                    ways[0] *= behind[other]
            total = 0.0
            for here in range(num_draws):
                total += ways[here] / (here + 1.0)
            shares[g, j] += counting[g] * total
        for j in range(num_draws):
            behind[j] += masses[g, j]


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def _selected_mass(
    rate: float,
    stay: FloatArray,
    come: FloatArray,
    counts: FloatArray,
    flows: FloatArray,
    around: FloatArray,
    drained: FloatArray,
) -> float:
    """Give the mass with which a token is selected, drawn without replacement with its group.

    Parameters
    ----------
    rate : float
        Of the token.
    stay, come : ndarray, shape (M,)
        The chances that it has not, and has, arrived by each node.
    counts, flows : ndarray, shape (n, M)
        Arrivals of the others of its group (`solvers.arrivals.count_faint`).
    around, drained : ndarray, shape (n, M)
        Of its group: see `_add_around`.

    Notes
    -----
    Let every other token of the group be ahead with probability v, and else behind; the mean over v
    in [0, 1] selects any of the drawn ones with equal chances. At v the token is selected with
    ``f(A + S + i) - f(A + S)`` for the tokens A ahead of the group and those S of it, two integrals
    over the time of the first arrival; of k others behind, the mean of ``(1 - v)**k`` is 1/(k + 1)
    and that of ``v (1 - v)**k`` is 1/((k + 1)(k + 2)).
    """
    num_draws, width = counts.shape
    chosen, displaced = 0.0, 0.0
    fewer, fewer_drained = np.zeros(width), np.zeros(width)  # fewer than r behind have arrived
    for r in range(num_draws):
        k = num_draws - 1 - r
        even, late = 1.0 / (k + 1.0), 1.0 / ((k + 1.0) * (k + 2.0))
        for m in range(width):
            # Here fewer than r, beside k others of the group and the token itself.
            short = even * counts[k, m] * fewer_drained[m] + late * flows[k, m] * fewer[m]
            displaced += come[m] * short
            fewer[m] += around[r, m]
            fewer_drained[m] += drained[r, m]
            chosen += even * stay[m] * counts[k, m] * fewer[m]
    return max(rate * chosen - displaced, 0.0)


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def _mass_alone(
    rate: float, stay: FloatArray, come: FloatArray, around: FloatArray, drained: FloatArray
) -> float:
    """Give the mass with which a token is selected that is a group by itself."""
    num_draws, width = around.shape
    chosen, displaced = 0.0, 0.0
    for r in range(num_draws):
        for m in range(width):
            chosen += stay[m] * around[r, m]
            if r < num_draws - 1:
                displaced += come[m] * drained[r, m]
    return max(rate * chosen - displaced, 0.0)


class GroupSelection(NamedTuple):
    """What a lottery over orders of the groups of a `GroupedLaw` selects.

    Attributes
    ----------
    share_starts : ndarray of int64, shape (C + 1,)
    shares : ndarray
        Of each part: for draws without replacement the ratio (G,) of what is kept of each token to
        its rate; for independent draws the chance (G, n) that a draw in a group is selected; for
        certain tokens that chance (G,).
    around_starts : ndarray of int64, shape (C + 1,)
    around : ndarray
        For draws without replacement, (2, G, n, M): see `_add_around`.
    """

    share_starts: IntArray
    shares: FloatArray
    around_starts: IntArray
    around: FloatArray


def select_groups(
    orders: NDArray[np.int32], weights: FloatArray, law: GroupedLaw, wanted: int
) -> GroupSelection:
    """Say what a lottery over orders of the groups selects.

    Parameters
    ----------
    orders : ndarray of int32, shape (K, G)
    weights : ndarray, shape (K,)
    law : GroupedLaw
        With all its nodes.
    wanted : int
        The one group that is asked about, or -1 for all: of others nothing is said then.
    """
    count, shares, around = len(law.kinds), [], []
    counting = np.broadcast_to(weights[:, np.newaxis], orders.shape)
    if count > 1:
        counting = np.empty(orders.shape)
        for row, order, weight in zip(counting, orders, weights, strict=True):
            row[order] = weight * hits_of_groups(order.astype(np.int64), law)[1]
    for c in range(count):
        first, stop = int(law.firsts[c]), int(law.firsts[c + 1])
        own, counted = orders, np.ascontiguousarray(counting[:, first:stop])
        if count > 1:
            inside = (orders >= first) & (orders < stop)
            own = (orders[inside].reshape(len(orders), stop - first) - first).astype(np.int32)
        around.append(np.empty(0))
        numbers = law.numbers[law.number_starts[c] : law.number_starts[c + 1]]
        if law.kinds[c] == CERTAIN:
            shares.append(np.zeros(stop - first))
            np.add.at(shares[-1], own[:, 0], counted[np.arange(len(own)), own[:, 0]])
        elif law.kinds[c] == INDEPENDENT:
            masses = numbers.reshape((stop - first, law.draws[c]))
            shares.append(_shares_of_orders(own, counted, masses).ravel())
        else:
            nodes = slice(law.time_starts[c], law.time_starts[c + 1])
            given = law.heads[first:stop], law.rates[first:stop], law.powers[first:stop]
            times = law.latest[c], law.times[nodes], law.node_weights[nodes]
            counts = numbers.reshape((stop - first, law.draws[c], nodes.stop - nodes.start))
            one = wanted - first if first <= wanted < stop else -1 if wanted < 0 else stop
            ratios, found = _ratios_of_orders(own, counted, *given, *times, counts, one)
            shares.append(ratios)
            around[-1] = found.ravel()
    return GroupSelection(
        np.cumsum([0, *map(len, shares)]),
        np.concatenate(shares),
        np.cumsum([0, *map(len, around)]),
        np.concatenate(around),
    )


@compiled(nogil=True)
def _shares_of_orders(
    orders: NDArray[np.int32], counting: FloatArray, masses: FloatArray
) -> FloatArray:
    """Chance, (G, n), that a draw in a group is selected, of independent draws."""
    shares, order = np.zeros(masses.shape), np.empty(len(masses), dtype=np.int64)
    for k in range(len(orders)):
        for place in range(len(order)):
            order[place] = orders[k, place]
        _add_shares(order, counting[k], masses, shares)
    return shares


@compiled(nogil=True)
def _ratios_of_orders(
    orders: NDArray[np.int32],
    counting: FloatArray,
    heads: FloatArray,
    rates: FloatArray,
    powers: FloatArray,
    latest: float,
    times: FloatArray,
    node_weights: FloatArray,
    counts: FloatArray,
    wanted: int,
) -> tuple[FloatArray, FloatArray]:
    """Ratio (G,) of what is selected of the heaviest token to its rate; and (2, G, n, M).

    Of one group wanted, or of all if that is -1; see `_add_around`.
    """
    size, num_draws, width = counts.shape
    around, ratios = np.zeros((2, size, num_draws, width)), np.zeros(size)
    order = np.empty(size, dtype=np.int64)
    if wanted < size:
        for k in range(len(orders)):
            for place in range(size):
                order[place] = orders[k, place]
            _add_around(
                order, counting[k], rates, powers, times, node_weights, counts, wanted, around
            )
    for g in range(size):
        if wanted < 0 or g == wanted:
            found = _mass_of_draw(
                heads[g], heads[g], powers[g], latest, times, counts[g], around[:, g]
            )
            ratios[g] = found / heads[g]
    return ratios, around


def mass_of_draw(
    law: GroupedLaw,
    selection: GroupSelection,
    part: int,
    group: int,
    rate: float,
    others: FloatArray,
) -> float:
    """Give the mass with which a token of draws without replacement is selected.

    Parameters
    ----------
    law, selection : GroupedLaw, GroupSelection
    part, group : int
    rate : float
        Of the token.
    others : ndarray, shape (powers + 1,)
        Power sums of the other tokens of its group.
    """
    first, stop = law.firsts[part], law.firsts[part + 1]
    times = law.times[law.time_starts[part] : law.time_starts[part + 1]]
    shape = (stop - first, law.draws[part], len(times))
    around = selection.around[selection.around_starts[part] : selection.around_starts[part + 1]]
    numbers = law.numbers[law.number_starts[part] : law.number_starts[part + 1]]
    found: float = _mass_of_draw(
        rate,
        law.heads[group],
        others,
        law.latest[part],
        times,
        numbers.reshape(shape)[group - first],
        around.reshape((2, *shape))[:, group - first],
    )
    return found


@compiled(nogil=True)
def _mass_of_draw(
    rate: float,
    head: float,
    others: FloatArray,
    latest: float,
    times: FloatArray,
    arrived: FloatArray,
    around: FloatArray,
) -> float:
    num_draws, width = arrived.shape
    own, drained = around[0], around[1]
    alone = not others[1] > 0.0
    if alone and num_draws > 1 and rate == head:
        return _mass_alone(rate, arrived[0], arrived[1], own, drained)
    stay, come = np.empty(width), np.empty(width)
    arrival_chances(rate, times, stay, come)
    if alone:
        return _mass_alone(rate, stay, come, own, drained)
    counts, flows = np.empty((num_draws, width)), np.empty((num_draws, width))
    count_faint(others, latest, times, counts)
    flow_of_faint(others, latest, times, counts, flows)
    return _selected_mass(rate, stay, come, counts, flows, own, drained)


@compiled(nogil=True, error_model="numpy")
def group_of_token(
    law: GroupedLaw, part: int, token: int, target_mass: float, draw_mass: float
) -> int:
    """Give the group of a token of a part, -1 if it is none; `draw_mass` is that of all draws."""
    first = law.single_starts[part]
    singles = law.singles[first : law.single_starts[part + 1]]
    place = place_among(singles, token)
    if place >= 0:
        return int(law.firsts[part] + place)
    if law.kinds[part] == CERTAIN or not draw_mass > 0.0:
        return -1
    return int(
        law.firsts[part] + law.tables[part, bucket_of(target_mass, draw_mass * law.scales[part])]
    )


@compiled(nogil=True, error_model="numpy")
def find_groups(
    law: GroupedLaw,
    part: int,
    tokens: IntArray,
    target_masses: FloatArray,
    probs: FloatArray,
    groups: IntArray,
) -> None:
    """Write down the groups of those tokens that a part can draw.

    Parameters
    ----------
    law : GroupedLaw
    part : int
    tokens : ndarray of int64, shape (K,)
        Any tokens of the whole vocabulary.
    target_masses : ndarray, shape (V,)
        Of the tokens of the part.
    probs : ndarray, shape (n, V)
        Of its draws; one row if they all have the same law.
    groups : ndarray of int64, shape (K,)
        Left as they are where a token is of another part.
    """
    for k in range(len(tokens)):
        token = tokens[k] - law.tokens[part]
        if 0 <= token < len(target_masses):
            mass = 0.0
            for j in range(len(probs)):
                mass += probs[j, token]
            group = group_of_token(law, part, token, target_masses[token], mass)
            if group >= 0:
                groups[k] = group


def find_masses(
    law: GroupedLaw,
    selection: GroupSelection,
    part: int,
    tokens: IntArray,
    groups: IntArray,
    probs: FloatArray,
    kept: FloatArray,
    chances: FloatArray,
) -> None:
    """Write down with what masses those tokens that a part can draw are selected.

    Parameters
    ----------
    law, part, tokens, probs
        As for `find_groups`, which gives `groups`.
    selection : GroupSelection
    kept : ndarray, shape (K,)
        The mass with which a token is selected and kept.
    chances : ndarray, shape (K,)
        The probability that it is kept when it is selected.
    """
    first, stop = law.firsts[part], law.firsts[part + 1]
    shares = selection.shares[selection.share_starts[part] : selection.share_starts[part + 1]]
    for k in range(len(tokens)):
        group, token = groups[k], tokens[k] - law.tokens[part]
        if not first <= group < stop:
            continue
        chances[k], own = 1.0, group - first
        if law.kinds[part] == CERTAIN:
            kept[k] = shares[own]
        elif law.kinds[part] == INDEPENDENT:
            draws = law.draws[part]
            kept[k] = 0.0
            for j in range(draws):
                kept[k] += probs[j % len(probs), token] * shares[own * draws + j]
        else:
            rate = probs[0, token] * MASS_SCALE
            kept[k] = rate * shares[own]
            # A token alone may seem to be lighter than itself, by rounding.
            if law.powers[group, 1] > 0.0 and rate < law.heads[group]:
                others = _without(law, part, group, rate)
                found = mass_of_draw(law, selection, part, group, rate, others)
                # Not more, up to rounding.
                chances[k] = min(kept[k] / found, 1.0) if found > 0.0 else 1.0


def _without(law: GroupedLaw, part: int, group: int, rate: float) -> FloatArray:
    """Power sums of a group without one token that is not its heaviest, but with that."""
    degrees, latest = np.arange(1, POWERS + 1), law.latest[part]
    others = law.powers[group].copy()
    exchanged = (law.heads[group] * latest) ** degrees - (rate * latest) ** degrees
    others[1:] = np.maximum(others[1:] + exchanged, 0.0)
    return np.asarray(others)


@compiled(nogil=True, error_model="numpy")
def spread_selection(
    law: GroupedLaw,
    selection: GroupSelection,
    part: int,
    target_masses: FloatArray,
    probs: FloatArray,
    selected: FloatArray,
) -> None:
    """Fill in the mass with which each token of a part is selected and kept.

    Parameters
    ----------
    law, selection, part, target_masses, probs
        As for `find_groups`.
    selected : ndarray, shape (V,)
        Written at the tokens of the part.
    """
    singles = law.singles[law.single_starts[part] : law.single_starts[part + 1]]
    shares = selection.shares[selection.share_starts[part] : selection.share_starts[part + 1]]
    if law.kinds[part] == CERTAIN:
        for place in range(len(singles)):
            selected[singles[place]] = shares[place]
        return
    table, scale = law.tables[part], law.scales[part]
    draws, unit = law.draws[part], 1.0
    if law.kinds[part] == DRAWS:
        draws, unit = 1, MASS_SCALE
    place, following = 0, singles[0] if len(singles) else -1
    for i in range(len(target_masses)):
        mass = 0.0
        for j in range(len(probs)):
            mass += probs[j, i]
        if mass > 0.0:
            if i == following:
                group = place
                place += 1
                following = singles[place] if place < len(singles) else -1
            else:
                group = table[bucket_of(target_masses[i], mass * scale)]
            total = 0.0
            for j in range(draws):
                total += probs[j % len(probs), i] * unit * shares[group * draws + j]
            selected[i] = total


@compiled(nogil=True)
def _first_group(order: NDArray[np.int32], groups: IntArray) -> int:
    """Give the first group of an order that some draft is of."""
    for group in order:
        for own in groups:
            if own == group:
                return int(group)
    return int(groups[0])


@compiled(nogil=True)
def select_drafts(
    orders: NDArray[np.int32], places: IntArray, groups: IntArray, uniforms: FloatArray
) -> IntArray:
    """Select a draft of each row: of those in the first group of an order, one of equal chances.

    Parameters
    ----------
    orders : ndarray of int32, shape (K, G)
    places : ndarray of int64, shape (B,)
        Which order each row takes.
    groups : ndarray of int64, shape (B, n)
        Group of each draft.
    uniforms : ndarray, shape (B,)
        In [0, 1): which of those it is.

    Returns
    -------
    ndarray of int64, shape (B,)
        Places among the drafts.
    """
    found = np.empty(len(groups), dtype=np.int64)
    for row in range(len(groups)):
        first = _first_group(orders[places[row]], groups[row])
        met = (groups[row] == first).sum()
        left = min(max(int(uniforms[row] * met), 0), met - 1)
        for k in range(groups.shape[1]):
            if groups[row, k] == first:
                if left == 0:
                    found[row] = k
                left -= 1
    return found


@compiled(nogil=True)
def selection_probs(orders: NDArray[np.int32], weights: FloatArray, groups: IntArray) -> FloatArray:
    """Give the probability that each draft, (B, n), of known groups is selected."""
    probs = np.zeros(groups.shape)
    for row in range(len(groups)):
        for k in range(len(orders)):
            first = _first_group(orders[k], groups[row])
            met = (groups[row] == first).sum()
            for j in range(groups.shape[1]):
                if groups[row, j] == first:
                    probs[row, j] += weights[k] / met
    return probs


@compiled(nogil=True)
def draw_orders(weights: FloatArray, uniforms: FloatArray) -> tuple[IntArray, FloatArray]:
    """Draw an order for each number, and give what is left of the number: uniform again.

    Parameters
    ----------
    weights : ndarray, shape (K,)
        Probabilities of the orders.
    uniforms : ndarray, shape (B,)
        In [0, 1).

    Returns
    -------
    tuple of (ndarray of int64, ndarray), shapes (B,) and (B,)
    """
    orders, left = np.empty(len(uniforms), dtype=np.int64), np.empty(len(uniforms))
    total = weights.sum()
    for row in range(len(uniforms)):
        goal, reached, place = uniforms[row] * total, 0.0, 0
        while place < len(weights) - 1 and reached + weights[place] <= goal:
            reached += weights[place]
            place += 1
        orders[row] = place
        left[row] = min(max((goal - reached) / weights[place], 0.0), 1.0)
    return orders, left
