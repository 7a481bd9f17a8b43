"""Hit probabilities without replacement beside a mass that is split without end.

The arrival form of `solvers.hitting`, with one part of the mass spread over so many tokens that
each of them is next to nothing. Arrivals among them are then a Poisson process, so the number of
arrivals outside A starts from truncated Poisson probabilities and is updated token by token for
the others. This is the limit of cutting the mass into ever more equal parts: each cut brings more
distinct tokens that may arrive before A, so no other way to spread the mass hits A less often.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from solvers._typing import FloatArray
from solvers.hitting import MASS_SCALE, arrival_nodes, is_last_node

_WIDTH = 16
"""Nodes asked for at a time."""


@njit(cache=True)
def _poisson(counts: FloatArray, mean: float) -> None:
    """Fill in the probabilities of 0, 1, ... arrivals with this mean."""
    # By logarithms: the chance of none may be no number where that of hundreds is one.
    log_mean = math.log(mean) if mean > 0.0 else -math.inf
    for j in range(len(counts)):
        log_count = j * log_mean if j > 0 else 0.0
        counts[j] = math.exp(log_count - mean - math.lgamma(j + 1.0))


@njit(cache=True)
def _add_nodes(
    weights: FloatArray,
    masses: FloatArray,
    tail: float,
    num_draws: int,
    times: FloatArray,
    node_weights: FloatArray,
    hits: FloatArray,
) -> float:
    """Add nodes to the hits of every prefix; give Pr[fewer than n of all arrived] at the last."""
    counts = np.empty(num_draws)
    fewer = 0.0
    for m in range(len(times)):
        t = times[m]
        _poisson(counts, tail * t)
        fewer = counts.sum()
        hits[len(weights)] += node_weights[m] * math.exp(-masses[len(weights)] * t) * fewer
        for k in range(len(weights) - 1, -1, -1):
            if weights[k] > 0.0:
                stay, come = math.exp(-weights[k] * t), -math.expm1(-weights[k] * t)
                for j in range(num_draws - 1, 0, -1):
                    counts[j] = counts[j] * stay + counts[j - 1] * come
                counts[0] *= stay
                fewer = counts.sum()
            hits[k] += node_weights[m] * math.exp(-masses[k] * t) * fewer
    return fewer


def prefix_hits_beside_split_tail(weights: FloatArray, tail: float, num_draws: int) -> FloatArray:
    """Probability that n draws without replacement meet each prefix, beside a split tail.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Weights >= 0 of the tokens that are told apart, in the order whose prefixes are asked for.
    tail : float
        Mass > 0 of the tokens that are split without end; with `weights` it sums to 1.
    num_draws : int
        n >= 1.

    Returns
    -------
    ndarray, shape (V + 1,)
        Entry k is the probability that some draw is among the first k.

    Notes
    -----
    ``f(A) = c integral of exp(-c t) Pr[fewer than n arrivals outside A by t] dt``, c the mass of A.
    O(V n M) operations for M nodes (about 100), O(V + n) memory.

    Examples
    --------
    Two draws from 0.5 and a tail of 0.5: either the first is the token, or the second.

    >>> import numpy as np
    >>> prefix_hits_beside_split_tail(np.array([0.5]), 0.5, 2).round(12).tolist()
    [0.0, 0.75]
    """
    masses = np.concatenate([[0.0], np.cumsum(weights)])
    hits = np.zeros(len(weights) + 1)
    for times, node_weights in arrival_nodes(num_draws, _WIDTH):
        fewer = _add_nodes(
            weights * MASS_SCALE,
            masses * MASS_SCALE,
            tail * MASS_SCALE,
            num_draws,
            times,
            node_weights,
            hits,
        )
        if is_last_node(times[-1], fewer):
            break
    return np.minimum(hits * (masses * MASS_SCALE), 1.0)
