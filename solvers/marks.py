"""The mark coupling: an optimal selection rule for independent draws from one distribution.

Every token gets a law of marks on [0, 1]. Each of n draws shows a mark of its token; the smallest
mark wins. If the draws' marks are uniform (mass-weighted), the winner's mark has density
``g'(u) = n (1 - u)**(n - 1)``, and token i wins with probability q_i times the mean of g' over its
own marks. The construction below spreads the marks so that this *selection mass* covers
``m_i = min(p_i, c q_i)``, the accepted mass of the optimum: the left-curtain coupling of martingale
transport, with tokens taken by decreasing m_i / q_i, each occupying the free part of [0, 1] around
the place where g', cut off at the accepted total, has the right mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray
from .prefix import prefix_with_replacement
from .ratio_groups import (
    RatioGroups,
    alone,
    bucket_of,
    groups_alone,
    join_buckets,
    place_among,
    sum_buckets,
    sums_of_groups,
    sure_overlap,
)

FEWEST_GROUPS = 384
"""Groups to begin with; so many tokens stand alone. On real positions the gap is then 1e-4."""


_MULTIPLIED = 64
"""Draws up to which powers are multiplied out, which keeps their last digit."""


class MarkCoupling(NamedTuple):
    """Marks of every token, as uniform pieces that groups of tokens share.

    Attributes
    ----------
    group : ndarray of int64, shape (V,)
        Group of each token; -1 for tokens that are never drawn.
    starts : ndarray of int64, shape (G + 1,)
        Pieces of group g are ``starts[g] .. starts[g + 1] - 1``, ascending in position.
    left, right : ndarray, shape (P,)
        Ends of each piece. All pieces together tile [0, 1].
    levels : ndarray, shape (P,)
        Probability of the pieces of the group up to and with each; 1 at its last piece.
    selected : ndarray, shape (V,)
        m^: probability that each token is selected, recomputed from the pieces as stored.
    """

    group: IntArray
    starts: IntArray
    left: FloatArray
    right: FloatArray
    levels: FloatArray
    selected: FloatArray


@compiled(nogil=True)
def _mean_slope(left: float, right: float, power: int) -> float:
    """Mean of ``g'(u) = n (1 - u)**(n - 1)`` over [left, right], without cancellation."""
    a, b = 1.0 - left, 1.0 - right
    if power > _MULTIPLIED:
        # (a**n - b**n) / (a - b) by logarithms, whatever n is.
        length = right - left
        if length <= 0.0 or a <= 0.0:
            return power * a ** (power - 1)
        share = -math.expm1(power * math.log1p(-length / a)) if length < a else 1.0
        return a**power * share / length
    # The same by Horner's rule in homogeneous form.
    total = 1.0
    power_of_b = 1.0
    for _ in range(power - 1):
        power_of_b *= b
        total = total * a + power_of_b
    return total


@compiled(nogil=True)
def _mass(left: float, length: float, power: int, cut: float) -> float:
    """Integral over [left, left + length] of g' cut off at `cut`."""
    if left >= cut:
        return 0.0
    right = left + length
    if right <= cut:
        # The length itself: the difference of the ends is noise where it is below their last digit.
        return length * _mean_slope(left, right, power)
    return (cut - left) * _mean_slope(left, cut, power)


@compiled(nogil=True)
def _place(length: float, mass: float, lowest: float, power: int, cut: float) -> float:
    """Leftmost start >= `lowest` at which an interval of that length has at most that mass."""
    low, high = lowest, max(lowest, 1.0 - length)
    if _mass(low, length, power, cut) <= mass:
        return low
    # Newton from the midpoint rule, safeguarded by bisection; the mass falls with the start.
    slope = mass / (power * length)
    guess = 1.0 - 0.5 * length - (slope ** (1.0 / (power - 1)) if power > 1 else 0.5)
    if guess + length > cut:
        # The interval reaches beyond the cut: g(cut) - g(start) = mass has a closed form.
        guess = 1.0 - (mass + (1.0 - cut) ** power) ** (1.0 / power)
    start = min(max(guess, low), high)
    for _ in range(200):
        excess = _mass(start, length, power, cut) - mass
        # Within the rounding of the mass itself there is nothing more to find.
        if abs(excess) <= (2.0 + power) * 2.0**-53 * mass:
            return start
        if excess > 0.0:
            low = start
        else:
            high = start
        end = start + length
        if end < cut:
            # g'(start) - g'(end), which would cancel for short intervals.
            derivative = 0.0
            if power > 1:
                derivative = power * length * _mean_slope(start, end, power - 1)
        else:
            derivative = power * (1.0 - start) ** (power - 1)
        step = excess / derivative if derivative > 0.0 else 0.0
        following = start + step
        if not low <= following <= high or step == 0.0:
            following = 0.5 * (low + high)
        if abs(following - start) <= 4e-16 or high - low <= 1e-16 * high:
            return following
        start = following
    return start


@compiled(nogil=True)
def _curtain(
    lengths: FloatArray, masses: FloatArray, power: int, cut: float
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Pieces (left end, length, group) of groups given by decreasing mass / length.

    Blocks of occupied ground stand on a stack from left to right. A group either stands free to the
    right of the last block or straddles it, and then swallows further blocks leftwards for as long
    as its left end would reach into them. A block knows the sums of what it holds, so a wrong last
    digit in one placement does not move the next.
    """
    count = len(lengths)
    block_start = np.empty(count)
    block_length = np.empty(count)
    block_mass = np.empty(count)
    depth = 0
    left = np.empty(2 * count + 1)
    size = np.empty(2 * count + 1)
    owner = np.empty(2 * count + 1, dtype=np.int64)
    pieces = 0
    for g in range(count):
        length, mass = lengths[g], masses[g]
        last = g == count - 1
        before = pieces
        right_edge = -1.0  # left end of the ground swallowed last, once there is some
        swallowed_end = 0.0
        while depth > 0:
            edge = block_start[depth - 1] + block_length[depth - 1]
            # Free if the ground right of the block still slopes enough; a tie needs a tolerance,
            # because where g' is flat rounding would decide.
            room = _mass(edge, length, power, cut)
            if not last and room >= mass * (1.0 - 1e-14) and edge + length <= 1.0 + 1e-15:
                break
            depth -= 1
            if right_edge < 0.0:
                swallowed_end = edge
            elif right_edge > edge:
                left[pieces], size[pieces], owner[pieces] = edge, right_edge - edge, g
                pieces += 1
            right_edge = block_start[depth]
            length += block_length[depth]
            mass += block_mass[depth]
        lowest = block_start[depth - 1] + block_length[depth - 1] if depth > 0 else 0.0
        start = 0.0 if last else _place(length, mass, lowest, power, cut)
        if right_edge < 0.0:
            left[pieces], size[pieces], owner[pieces] = start, length, g
            pieces += 1
        else:
            start = min(start, right_edge)
            if right_edge > start:
                left[pieces], size[pieces], owner[pieces] = start, right_edge - start, g
                pieces += 1
            if start + length > swallowed_end:
                left[pieces] = swallowed_end
                size[pieces] = start + length - swallowed_end
                owner[pieces] = g
                pieces += 1
            if pieces == before:
                # Too short to show between its neighbours: it keeps a point of its own.
                left[pieces], size[pieces], owner[pieces] = right_edge, lengths[g], g
                pieces += 1
        block_start[depth], block_length[depth], block_mass[depth] = start, length, mass
        depth += 1
    return left[:pieces], size[:pieces], owner[:pieces]


@compiled(nogil=True)
def _slope_groups(slopes: FloatArray, order: IntArray) -> tuple[IntArray, int]:
    """Count off the groups of equal slope along an order of decreasing slope.

    Slopes that differ by rounding alone count as equal: kept apart, the later group would be placed
    by the noise in what the earlier ones left.
    """
    group = np.empty(len(order), dtype=np.int64)
    count = 0
    head = slopes[order[0]]
    for k in range(len(order)):
        slope = slopes[order[k]]
        if slope < head * (1.0 - 1e-14):
            count += 1
            head = slope
        group[k] = count
    return group, count + 1


@compiled(nogil=True)
def _group_levels(starts: IntArray, shares: FloatArray) -> FloatArray:
    levels = np.empty(len(shares))
    for g in range(len(starts) - 1):
        level = 0.0
        for k in range(starts[g], starts[g + 1]):
            level += shares[k]
            levels[k] = level
        levels[starts[g + 1] - 1] = 1.0
    return levels


def couple_marks(
    target_masses: FloatArray, draw_probs: FloatArray, num_draws: int, cap: float, total: float
) -> MarkCoupling:
    """Spread the marks so that the selection masses cover ``min(p, cap * q)``.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, summing to 1.
    draw_probs : ndarray, shape (V,)
        q, summing to 1.
    num_draws : int
        n >= 1.
    cap : float
        c*, the smallest c with ``sum min(p, c q)`` equal to the optimum.
    total : float
        alpha*, the optimum.

    Returns
    -------
    MarkCoupling
        Its `selected` is recomputed from the stored pieces: thinning by ``min(1, p / selected)``
        is lossless whatever rounding did to the construction, which can only cost acceptance.

    Notes
    -----
    O(V log V) for the sort, O(V) for the rest. Beiglboeck and Juillet, "On a problem of optimal
    transport under marginal martingale constraints", describe the left-curtain coupling.
    """
    order = _falling_ratio(target_masses, draw_probs)
    return _couple(target_masses, draw_probs, order, num_draws, cap, total)


@compiled(nogil=True)
def _stable_argsort(keys: FloatArray) -> IntArray:
    """Sort ascending, ties by place: an unstable sort and a look at its ties beat a stable one."""
    order = np.argsort(keys)
    begin = 0
    for k in range(1, len(order) + 1):
        if k == len(order) or keys[order[k]] != keys[order[begin]]:
            if k - begin > 1:
                order[begin:k] = np.sort(order[begin:k])
            begin = k
    return order


@compiled(nogil=True, error_model="numpy")
def _cap_with_overlap(p: FloatArray, q: FloatArray, order: IntArray, overlap: float) -> float:
    """Smallest c with ``sum min(p, c q) >= overlap``, or the largest ratio p/q where none has it.

    `order` holds the tokens with q > 0 by descending ratio.
    """
    largest = np.finfo(np.float64).max
    count = len(order)
    capped = np.empty(count)  # mass of q at and above each ratio
    total = 0.0
    for k in range(count):
        total += q[order[k]]
        capped[k] = total
    # At c = ratio k the overlap is uncapped + c capped, falling with k; between two ratios it is
    # linear in c.
    uncapped, lowest = 0.0, 0.0  # mass of p below ratio k, and the ratio below it
    for k in range(count - 1, -1, -1):
        ratio = min(p[order[k]] / q[order[k]], largest)
        if uncapped + ratio * capped[k] >= overlap:
            return min(max((overlap - uncapped) / capped[k], lowest), ratio)
        uncapped += p[order[k]]
        lowest = ratio
    return lowest


@compiled(nogil=True, error_model="numpy")
def _falling_ratio(p: FloatArray, q: FloatArray) -> IntArray:
    """Tokens with q > 0 by descending p/q, ties to the lowest id."""
    tokens = np.flatnonzero(q)
    falling = np.empty(len(tokens))
    for k in range(len(tokens)):
        falling[k] = -(p[tokens[k]] / q[tokens[k]])
    return tokens[_stable_argsort(falling)]


@compiled(nogil=True, error_model="numpy")
def optimal_coupling(p: FloatArray, q: FloatArray, num_draws: int) -> tuple[float, MarkCoupling]:
    """Find the optimum and spread the marks for it, in one go and callable from compiled code.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    num_draws : int
        n >= 1.

    Returns
    -------
    tuple of (float, MarkCoupling)
        alpha*, and what `couple_marks` gives for the cap and the total that belong to it.
    """
    upper = prefix_with_replacement(p, q, num_draws)[0]
    order = _falling_ratio(p, q)
    cap = _cap_with_overlap(p, q, order, upper)
    total = np.minimum(p, cap * q).sum()
    return upper, _couple(p, q, order, num_draws, cap, total)


class GroupedMarks(NamedTuple):
    """Marks of groups of tokens of nearly the same ratio.

    Attributes
    ----------
    groups : RatioGroups
    coupling : MarkCoupling
        With the groups for tokens.
    slopes : ndarray, shape (G,)
        Selection mass over draw mass, the same for all tokens of a group.
    upper : float
        Certified upper bound: the value of a union of groups in subset selection.
    lower : float
        No more than is attained: what the sums of the buckets say for certain.
    """

    groups: RatioGroups
    coupling: MarkCoupling
    slopes: FloatArray
    upper: float
    lower: float


def grouped_coupling(
    p: FloatArray, q: FloatArray, num_draws: int, tolerance: float
) -> GroupedMarks:
    """Spread the marks over groups, finer ones until the certified gap is at most `tolerance`.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    num_draws : int
        n >= 1.
    tolerance : float
        Where the finest groups have a larger gap, it is left at that. At 0 no groups are formed.

    Returns
    -------
    GroupedMarks
        Of single tokens where only a few can be drawn.

    Notes
    -----
    Inside a group every token has the same marks, so that it is selected in proportion to its own
    mass: thinning by that is lossless, and a drafted token needs to know nothing but its group.
    """
    few = alone(q, FEWEST_GROUPS if tolerance > 0.0 else len(q))
    if len(few) > 0:
        found = couple_tokens(p[few], q[few], num_draws)
        groups = groups_alone(few, 1.0)
        return GroupedMarks(groups, found.coupling, found.slopes, found.upper, found.lower)
    sums, _ = sum_buckets(p, q, 1.0, np.inf)
    return couple_buckets(sums, num_draws, tolerance)


def couple_tokens(p: FloatArray, q: FloatArray, num_draws: int) -> GroupedMarks:
    """Give each of a few tokens, which are all that can be drawn, marks of its own.

    Parameters
    ----------
    p, q : ndarray, shape (K,)
        Their target and draw probabilities.
    num_draws : int
        n >= 1.
    """
    upper, coupling = optimal_coupling(p, q, num_draws)
    lower = np.minimum(p, coupling.selected).sum()
    groups = groups_alone(np.arange(len(p)), 1.0)
    return GroupedMarks(groups, coupling, coupling.selected / q, upper, lower)


def couple_buckets(sums: FloatArray, num_draws: int, tolerance: float) -> GroupedMarks:
    """Spread the marks over groups of buckets of which only the sums of p and q are known.

    Parameters
    ----------
    sums : ndarray, shape (buckets, 2)
        Target and draw probabilities of the tokens whose ratio has each key.
    num_draws, tolerance
        As for `grouped_coupling`.
    """
    most = FEWEST_GROUPS
    while True:
        table, count = join_buckets(sums, most, 0, float(num_draws))
        target_sums, draw_sums = sums_of_groups(sums, table, count)
        upper, coupling = optimal_coupling(target_sums, draw_sums, num_draws)
        slopes = coupling.selected / draw_sums
        lower = sure_overlap(sums, table, slopes)
        if upper - lower <= tolerance or most >= len(table):
            empty = np.empty(0, dtype=np.int64)
            return GroupedMarks(
                RatioGroups(empty, table, 1.0, count), coupling, slopes, upper, lower
            )
        most *= 4


@compiled(nogil=True, error_model="numpy")
def _couple(
    p: FloatArray, q: FloatArray, order: IntArray, num_draws: int, cap: float, total: float
) -> MarkCoupling:
    """Give the `MarkCoupling` that `couple_marks` describes.

    `order` is that of `_falling_ratio`; its tokens at the cap are put in order of their ids.
    """
    vocab_size = len(q)
    slopes = np.empty(vocab_size)
    for i in range(vocab_size):
        slopes[i] = min(p[i] / q[i], cap) if q[i] > 0.0 else 0.0
    # Tokens of equal slope (all those at the cap above all) share one part: on their own, tokens
    # of mass 1e-17 would be placed by rounding.
    at_cap = 0
    while at_cap < len(order) and slopes[order[at_cap]] == cap:
        at_cap += 1
    order[:at_cap] = np.sort(order[:at_cap])
    numbers, count = _slope_groups(slopes, order)
    lengths, masses = np.zeros(count), np.zeros(count)
    for k in range(len(order)):
        i = order[k]
        lengths[numbers[k]] += q[i]
        masses[numbers[k]] += min(p[i], cap * q[i])
    cut = -math.expm1(math.log1p(-total) / num_draws) if total < 1.0 else 1.0
    left, size, owner = _curtain(lengths, masses, num_draws, cut)

    # Lengths decide; positions are their running sums, so the marks are uniform by construction.
    position = _stable_argsort(left)
    owner, size = owner[position], size[position]
    pieces = len(owner)
    held = np.zeros(count)
    for k in range(pieces):
        held[owner[k]] += size[k]
    shares, right = np.empty(pieces), np.empty(pieces)
    reached = 0.0
    for k in range(pieces):
        shares[k] = size[k] / held[owner[k]]
        reached += shares[k] * lengths[owner[k]]
        right[k] = reached
    right /= reached
    left = np.zeros(pieces)
    left[1:] = right[:-1]
    group_selected = np.zeros(count)
    starts = np.zeros(count + 1, dtype=np.int64)
    for k in range(pieces):
        group_selected[owner[k]] += shares[k] * _mean_slope(left[k], right[k], num_draws)
        starts[owner[k] + 1] += 1
    starts = np.cumsum(starts)
    filled = starts[:-1].copy()
    by_owner = np.empty(pieces, dtype=np.int64)
    for k in range(pieces):
        by_owner[filled[owner[k]]] = k
        filled[owner[k]] += 1
    group = np.full(vocab_size, -1, dtype=np.int64)
    selected = np.zeros(vocab_size)
    for k in range(len(order)):
        i = order[k]
        group[i] = numbers[k]
        selected[i] = q[i] * group_selected[numbers[k]]
    levels = _group_levels(starts, shares[by_owner])
    return MarkCoupling(group, starts, left[by_owner], right[by_owner], levels, selected)


@compiled(nogil=True)
def _mark(coupling: MarkCoupling, token: int, uniform: float) -> float:
    """Mark at which the law of a token reaches `uniform`."""
    group, levels = coupling.group[token], coupling.levels
    first = coupling.starts[group]
    low, high = first, coupling.starts[group + 1] - 1
    while low < high:  # the first piece whose level exceeds the number
        k = (low + high) // 2
        if levels[k] > uniform:
            high = k
        else:
            low = k + 1
    before = levels[low - 1] if low > first else 0.0
    share = levels[low] - before
    inside = min(max((uniform - before) / share, 0.0), 1.0) if share > 0.0 else 0.0
    left = coupling.left[low]
    return float(left + inside * (coupling.right[low] - left))


@compiled(nogil=True)
def draw_marks(coupling: MarkCoupling, ids: IntArray, uniforms: FloatArray) -> FloatArray:
    """Draw the mark of each drawn token by inverting its law.

    Parameters
    ----------
    coupling : MarkCoupling
    ids : ndarray of int64, shape (B, n)
        Tokens of positive probability.
    uniforms : ndarray, shape (B, n)
        Numbers in [0, 1).

    Returns
    -------
    ndarray, shape (B, n)
        Marks in [0, 1]; the smallest of a row selects.
    """
    marks = np.empty(ids.shape)
    for row in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            marks[row, j] = _mark(coupling, ids[row, j], uniforms[row, j])
    return marks


@compiled(nogil=True)
def select_smallest(coupling: MarkCoupling, ids: IntArray, uniforms: FloatArray) -> IntArray:
    """Draw the mark of each drawn token, and find the smallest of each row.

    Parameters
    ----------
    coupling : MarkCoupling
    ids : ndarray of int64, shape (B, n)
        Tokens of positive probability.
    uniforms : ndarray, shape (B, n)
        Numbers in [0, 1), as for `draw_marks`.

    Returns
    -------
    ndarray of int64, shape (B,)
        Its place; the first one where marks are equal.
    """
    selected = np.empty(len(ids), dtype=np.int64)
    for row in range(ids.shape[0]):
        smallest = np.inf
        for j in range(ids.shape[1]):
            mark = _mark(coupling, ids[row, j], uniforms[row, j])
            if mark < smallest:  # the first of equal marks
                smallest, selected[row] = mark, j
    return selected


@compiled(nogil=True, error_model="numpy")
def accept_smallest(
    groups: RatioGroups,
    coupling: MarkCoupling,
    slopes: FloatArray,
    p: FloatArray,
    q: FloatArray,
    ids: IntArray,
    uniforms: FloatArray,
) -> IntArray:
    """Select the token with the smallest mark of each row, and test it against the target.

    Parameters
    ----------
    groups, coupling, slopes
        As in `GroupedMarks`.
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    ids : ndarray of int64, shape (B, n)
        Tokens of positive probability.
    uniforms : ndarray, shape (B, n + 1) or more
        Numbers in [0, 1): one for each mark, then one for the test.

    Returns
    -------
    ndarray of int64, shape (B,)
        The tokens, -1 where one does not pass.
    """
    count = ids.shape[1]
    singles, table, scale = groups.singles, groups.table, groups.scale
    found = np.empty(len(ids), dtype=np.int64)
    for row in range(len(ids)):
        smallest, token, slope = np.inf, 0, 0.0
        for j in range(count):
            i = ids[row, j]
            group = place_among(singles, i) if len(singles) > 0 else -1
            if group < 0:
                group = table[bucket_of(p[i], q[i] * scale)]
            mark = _mark(coupling, group, uniforms[row, j])
            if mark < smallest:  # the first of equal marks
                smallest, token, slope = mark, i, slopes[group]
        selected = q[token] * slope
        chance = 0.0
        if p[token] > 0.0:
            chance = p[token] / selected if selected > p[token] else 1.0
        found[row] = token if uniforms[row, count] < chance else -1
    return found


@compiled(nogil=True)
def _level(coupling: MarkCoupling, group: int, mark: float) -> float:
    """Probability that a mark of that group is at most `mark`."""
    left, right, levels = coupling.left, coupling.right, coupling.levels
    first = coupling.starts[group]
    low, high = first, coupling.starts[group + 1]
    while low < high:  # the first piece that starts beyond the mark
        k = (low + high) // 2
        if left[k] > mark:
            high = k
        else:
            low = k + 1
    k = low - 1
    if k < first:
        return 0.0
    before = levels[k - 1] if k > first else 0.0
    if mark >= right[k]:
        return float(levels[k])
    return float(before + (levels[k] - before) * (mark - left[k]) / (right[k] - left[k]))


@compiled(nogil=True)
def _smallest_mark_probs(
    coupling: MarkCoupling, groups: IntArray, nodes: FloatArray, node_weights: FloatArray
) -> FloatArray:
    starts, levels = coupling.starts, coupling.levels
    left, right = coupling.left, coupling.right
    batch, count = groups.shape
    probs = np.zeros(groups.shape)
    for row in range(batch):
        mine = groups[row]
        ends = [0.0, 1.0]
        for j in range(count):
            for k in range(starts[mine[j]], starts[mine[j] + 1]):
                ends.append(left[k])
                ends.append(right[k])
        breaks = np.unique(np.array(ends))
        for j in range(count):
            for k in range(starts[mine[j]], starts[mine[j] + 1]):
                before = levels[k - 1] if k > starts[mine[j]] else 0.0
                share = levels[k] - before
                # Between two breaks the others' levels are linear, so Gauss-Legendre is exact. A
                # piece too short to have a length is a point.
                begin = np.searchsorted(breaks, left[k])
                end = max(np.searchsorted(breaks, right[k]), begin + 1)
                for b in range(begin, end):
                    low = breaks[b]
                    high = breaks[min(b + 1, len(breaks) - 1)]
                    part = share
                    if right[k] > left[k]:
                        part *= (high - low) / (right[k] - left[k])
                    else:
                        high = low
                    for x in range(len(nodes)):
                        mark = low + 0.5 * (1.0 + nodes[x]) * (high - low)
                        beaten = 0.5 * node_weights[x] * part
                        for other in range(count):
                            if other != j:
                                beaten *= 1.0 - _level(coupling, mine[other], mark)
                        probs[row, j] += beaten
        # Points that coincide are counted in neither's favour; a selection is certain.
        total = probs[row].sum()
        if total > 0.0:
            probs[row] /= total
        else:
            probs[row, 0] = 1.0
    return probs


def smallest_mark_probs(coupling: MarkCoupling, ids: IntArray) -> FloatArray:
    """Exact probability that each draw of a row has the smallest mark.

    Parameters
    ----------
    coupling : MarkCoupling
    ids : ndarray of int64, shape (B, n)
        Tokens of positive probability.

    Returns
    -------
    ndarray, shape (B, n)
        Rows sum to 1. Integrated piece by piece: a polynomial of degree n - 1 on each.
    """
    nodes, weights = np.polynomial.legendre.leggauss((ids.shape[1] + 1) // 2)
    return _smallest_mark_probs(coupling, coupling.group[ids], nodes, weights)
