"""Ends for one token from each of n draft models.

As for draws from one model, each end is the least, over all sets of tokens, of the least or the
greatest value that a set may have. Neither needs a prefix of any order: both are found by the
search that `acceptance_bound` makes for independent drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from mdsd._probabilities import ratio_order
from mdsd._typing import FloatArray, IntArray
from mdsd.bounds import acceptance_bound
from mdsd.drafts import IndependentDrafts
from mdsd.drafts.independent import hit_of_independent, token_hits_of_independent
from mdsd.errors import solver_errors
from mdsd.intervals.draws import ends_with_replacement
from mdsd.intervals.known import KnownProbs, overlap

_ORDERS, _SHARE = 100, 1e-5
"""Orders a search evaluates at most, and the share of the unknown mass at which it may stop.

On 72 real positions, n = 3 and 4, k = 20 and 100, the ends were within 2e-5 of those of a full
search, which takes up to 20 times as long. Stopped anywhere, a search gives a valid end.
"""


def ends_independent(target: KnownProbs, drafts: Sequence[KnownProbs]) -> tuple[float, float]:
    """Give the ends of the interval for independent drafts."""
    if len(drafts) == 1:
        return ends_with_replacement(overlap(target, drafts[0]), 1)
    unknown = target.tail + sum(draft.tail for draft in drafts)
    effort = _Effort(tolerance=max(1e-9, _SHARE * unknown))
    if unknown > 1e-9:  # else the ends are to meet
        effort["max_iterations"] = _ORDERS
    return _lower_end(target, drafts, effort), _upper_end(target, drafts, effort)


class _Effort(TypedDict, total=False):
    """Options of a search."""

    tolerance: float
    max_iterations: int


def _lower_end(target: KnownProbs, drafts: Sequence[KnownProbs], effort: _Effort) -> float:
    """Let the tails miss each other.

    What a draft does not know, it never proposes; what the target does not know, it never emits.
    """
    proposed = set().union(*(draft.probs for draft in drafts))
    shared = [token for token in target.probs if token in proposed]
    p = np.array([target.probs[token] for token in shared])
    q = np.array([[draft.probs.get(token, 0.0) for token in shared] for draft in drafts])
    # Behind these a token that is never proposed, and one that is never emitted.
    never_proposed = sum(x for token, x in target.probs.items() if token not in proposed)
    target_probs = np.concatenate([p, [never_proposed + target.tail, 0.0]])
    never_emitted = [
        draft.tail + sum(x for token, x in draft.probs.items() if token not in target.probs)
        for draft in drafts
    ]
    draft_probs = np.column_stack([q, np.zeros(len(drafts)), never_emitted])
    bound = acceptance_bound(target_probs, IndependentDrafts(list(draft_probs)), **effort)
    return bound.value - bound.gap


def _upper_end(target: KnownProbs, drafts: Sequence[KnownProbs], effort: _Effort) -> float:
    """Let the tail of each draft count for every set that holds a token unknown to that draft.

    So counted, the chance to hit a set is at least that of any completion, and still submodular.
    """
    from mdsd._solvers.polymatroid import minimum_norm_lottery, norm_weights

    tokens = list(target.probs)
    p = np.array([*target.probs.values(), target.tail])
    # The last token is everything that the target does not know.
    known = np.array([[token in draft.probs for token in tokens] + [False] for draft in drafts])
    q = np.array([[draft.probs.get(token, 0.0) for token in tokens] + [0.0] for draft in drafts])
    q[:, -1] = [sum(x for t, x in d.probs.items() if t not in target.probs) for d in drafts]
    tails = np.array([draft.tail for draft in drafts])

    def hits(order: IntArray) -> FloatArray:
        ordered = q[:, order]
        ordered[np.arange(len(drafts)), np.argmin(known[:, order], axis=1)] += tails
        return hit_of_independent(ordered)

    alone = np.minimum(q + np.where(known, 0.0, tails[:, np.newaxis]), 1.0)
    token_hits = token_hits_of_independent(alone)
    first = ratio_order(p, token_hits)
    with solver_errors():
        return minimum_norm_lottery(p, hits, first, norm_weights(p, token_hits), **effort).upper
