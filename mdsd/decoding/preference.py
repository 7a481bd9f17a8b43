"""Which of some drafts is selected where their order is left to chance: one with more below it.

An optimal selection looks at a set of drafts. In which order they were drawn changes nothing about
it, but it decides which of them has how many drafts of its own. Given the set, the probability of
every order is known: so a draft can be selected more often in the orders that put it at a good
place, and less often in the others, with the same probability on the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.errors import UnsupportedError
from mdsd.trees import TreeShape

_MOST_DRAFTS = 6
"""With more of them, 5,040 orders and up, the order is not looked at."""

_ROUNDS = 8
"""Rounds in which drafts of equal worth share the orders that suit several of them."""

_ACCEPTED, _MISSED = 0.8, 0.5
"""A level counts by how likely it is reached, and by its number of drafts; only which of two trees
is worth more matters."""


def worth_below(shape: TreeShape) -> FloatArray:
    """Estimate what the drafts below each node of a tree are worth.

    Parameters
    ----------
    shape : TreeShape

    Returns
    -------
    ndarray of float64, shape (N + 1,)
        0 at leaves; more for each level, and for each draft in it.

    Examples
    --------
    >>> worth_below(TreeShape([-1, 0, 0, 1])).round(12).tolist()
    [0.92, 0.4, 0.0, 0.0]
    """
    by_level = np.zeros((len(shape.parents), shape.depth + 1))
    for node in range(len(shape.parents) - 1, 0, -1):
        by_level[shape.parents[node], 0] += 1.0
        by_level[shape.parents[node], 1:] += by_level[node, :-1]
    reached = _ACCEPTED ** np.arange(1, shape.depth + 2)
    return np.asarray((reached * (1.0 - _MISSED**by_level)).sum(axis=1))


def preferring(
    laws: Sequence[DraftDistribution], ids: IntArray, probs: FloatArray, worths: FloatArray
) -> FloatArray:
    """Select drafts with more below them more often, each on the whole as often as before.

    Parameters
    ----------
    laws : sequence of DraftDistribution
        Laws of the drafts, drawn independently, one after the other.
    ids : ndarray of int64, shape (n,)
        All drafts as they were drawn.
    probs : ndarray of float64, shape (n,)
        Probability that each is selected, which depends on the set of tokens alone; of equal ones
        the first has it all.
    worths : ndarray of float64, shape (n,)
        What each place is worth, whatever is drafted there.

    Returns
    -------
    ndarray of float64, shape (n,)
        For these drafts in this order. Their sum is that of `probs`; the mean over all orders of
        the same tokens, by their probabilities, is `probs` for each token.

    Notes
    -----
    From the best places down, a token gets its probability from the orders that put it there, as
    far as they last. What is left of tokens and orders is put together at random.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> laws = [WithReplacement([0.5, 0.5], 2)]
    >>> worths = np.array([1.0, 0.0])
    >>> preferring(laws, np.array([0, 1]), np.array([0.75, 0.25]), worths).tolist()
    [1.0, 0.0]
    >>> preferring(laws, np.array([1, 0]), np.array([0.25, 0.75]), worths).tolist()
    [0.5, 0.5]
    """
    total = float(probs.sum())
    if not 1 < len(ids) <= _MOST_DRAFTS or total == 0.0 or np.ptp(worths) == 0.0:
        return probs
    tokens, firsts, kinds = np.unique(ids, return_index=True, return_inverse=True)
    orders = np.array(sorted(set(permutations(kinds.tolist()))))
    try:
        chances = _probs_of(laws, tokens[orders])
    except UnsupportedError:
        return probs
    if chances.sum() == 0.0:  # they underflow
        return probs
    wanted = probs[firsts] / total
    # Worth (M, T) of the best place that each order gives a token.
    places = np.where(orders[:, np.newaxis] == np.arange(len(tokens))[:, np.newaxis], worths, -1.0)
    given = _assigned(chances / chances.sum(), wanted, places.max(axis=-1))
    drawn = int((orders == kinds).all(axis=1).argmax())
    found = np.zeros(len(ids))
    found[firsts] = total * given[drawn]
    return found


def _probs_of(laws: Sequence[DraftDistribution], ids: IntArray) -> FloatArray:
    """Probability of each row of drafts, (M,)."""
    product, start = np.ones(len(ids)), 0
    for law in laws:
        product = product * law.prob(ids[:, start : start + law.num_drafts])
        start += law.num_drafts
    return product


def _assigned(chances: FloatArray, wanted: FloatArray, worths: FloatArray) -> FloatArray:
    """Share each order, (M, T), among the tokens: by `chances` (M,) it comes to `wanted` (T,)."""
    given = np.zeros(worths.shape)
    left, open_ = wanted.copy(), np.ones(len(chances))
    for worth in np.unique(worths)[::-1]:
        fits = worths == worth
        for _ in range(_ROUNDS):
            claims = np.where(fits, left, 0.0)
            sums = claims.sum(axis=1, keepdims=True)
            offered = open_[:, np.newaxis] * claims / np.where(sums > 0.0, sums, 1.0)
            amounts = chances @ offered
            share = np.minimum(1.0, left / np.where(amounts > 0.0, amounts, 1.0))
            taken = offered * np.where(amounts > 0.0, share, 0.0)
            given += taken
            left = np.maximum(left - chances @ taken, 0.0)
            open_ = np.maximum(open_ - taken.sum(axis=1), 0.0)
    rest = left.sum()
    return given + open_[:, np.newaxis] * (left / rest if rest > 0.0 else wanted)
