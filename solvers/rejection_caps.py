"""Recursive rejection of equal draws, in time that does not grow with their number.

Of the masses p that n draws of law q are offered in turn, ``(p - c q)+`` are left after some of
them, and the next one takes ``Z q`` with Z their sum: the cap c rises by Z. Between two ratios p/q
nothing but Z changes, by the factor 1 - q(A) with A the tokens of which something is left, so that
c follows a geometric series however many draws pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray
from .sorting import falling_order


class RejectionCaps(NamedTuple):
    """Stretches of draws that leave something of the same tokens; the last is after all draws.

    Attributes
    ----------
    starts : ndarray of int64, shape (S,)
        Number of the first draw of each.
    caps, lefts : ndarray, shape (S,)
        c and Z before that draw.
    shares : ndarray, shape (S,)
        q(A): what a draw takes of Z.
    """

    starts: IntArray
    caps: FloatArray
    lefts: FloatArray
    shares: FloatArray


@compiled(nogil=True, error_model="numpy")
def rejection_caps(p: FloatArray, q: FloatArray, count: int) -> RejectionCaps:
    """Follow the cap over n draws.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    count : int
        n >= 1.

    Examples
    --------
    >>> found = rejection_caps(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), 10**9)
    >>> found.starts.tolist(), found.caps.round(12).tolist()
    ([0, 1, 1000000000], [0.0, 1.0, 2.5])
    """
    drawn = np.flatnonzero(q)
    ratios = np.empty(len(drawn))
    for k in range(len(drawn)):
        ratios[k] = p[drawn[k]] / q[drawn[k]]
    order = falling_order(ratios)
    above_p, above_q = np.zeros(len(order) + 1), np.zeros(len(order) + 1)
    for k in range(len(order)):
        above_p[k + 1] = above_p[k] + p[drawn[order[k]]]
        above_q[k + 1] = above_q[k] + q[drawn[order[k]]]
    never = 0.0
    for i in range(len(p)):
        never += p[i] if q[i] == 0.0 else 0.0
    starts, states = [0][:0], [(0.0, 1.0, 0.0)][:0]  # empty, of these types
    done, cap, live = 0, 0.0, len(order)
    while True:
        while live > 0 and ratios[order[live - 1]] <= cap:
            live -= 1
        share = min(above_q[live], 1.0)
        left = max(never + above_p[live] - cap * above_q[live], 0.0)
        starts.append(done)
        states.append((cap, left, share))
        if done == count:
            break
        if share == 0.0 or left == 0.0:  # nothing changes any more
            done = count
            continue
        steps, reach = float(count - done), (ratios[order[live - 1]] - cap) * share / left
        if share == 1.0:
            steps = 1.0
        elif reach < 1.0:  # else the next ratio is never reached
            steps = min(steps, max(math.ceil(math.log1p(-reach) / math.log1p(-share)), 1.0))
        cap += left * _taken(share, steps)
        done += int(steps)
    table = np.array(states)
    return RejectionCaps(
        np.array(starts), table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
    )


@compiled(inner=True, error_model="numpy")
def _taken(share: float, steps: float) -> float:
    """``1 + r + r**2 + ... + r**(steps - 1)``, r = 1 - share."""
    return -math.expm1(steps * math.log1p(-share)) / share if share < 1.0 else 1.0


def before_draws(found: RejectionCaps, draws: IntArray) -> tuple[FloatArray, FloatArray]:
    """Give the cap and what is left before some draws, both of the shape of their numbers.

    Examples
    --------
    >>> found = rejection_caps(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), 10)
    >>> [x.round(6).tolist() for x in before_draws(found, np.array([0, 1, 2]))]
    [[0.0, 1.0, 1.3], [1.0, 0.3, 0.24]]
    """
    place = np.searchsorted(found.starts, draws, side="right") - 1
    share, left = found.shares[place], found.lefts[place]
    steps = (draws - found.starts[place]).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_kept = np.where(steps > 0.0, steps * np.log1p(-share), 0.0)
        taken = np.where(share > 0.0, -np.expm1(log_kept) / share, steps)
    return found.caps[place] + left * taken, left * np.exp(log_kept)
