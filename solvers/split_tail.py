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

from ._compiled import compiled
from ._typing import FloatArray
from .hitting import MASS_SCALE, add_node, arrival_nodes, is_last_node

_WIDTH = 16
"""Nodes asked for at a time."""


@compiled()
def _poisson(counts: FloatArray, mean: float) -> None:
    """Fill in the probabilities of 0, 1, ... arrivals with this mean."""
    # By logarithms: the chance of none may be no number where that of hundreds is one.
    log_mean = math.log(mean) if mean > 0.0 else -math.inf
    for j in range(len(counts)):
        log_count = j * log_mean if j > 0 else 0.0
        counts[j] = math.exp(log_count - mean - math.lgamma(j + 1.0))


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
    masses = np.concatenate([[0.0], np.cumsum(weights)]) * MASS_SCALE
    hits, counts = np.zeros(len(weights) + 1), np.empty(num_draws)
    weights, tail = weights * MASS_SCALE, tail * MASS_SCALE
    for times, node_weights in arrival_nodes(num_draws, _WIDTH):
        for t, node_weight in zip(times, node_weights, strict=True):
            _poisson(counts, tail * t)
            add_node(weights, masses, counts, t, node_weight, hits)
        if is_last_node(times[-1], counts.sum()):
            break
    return np.minimum(hits * masses, 1.0)
