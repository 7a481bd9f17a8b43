"""Ends for n draws from one draft distribution, with and without replacement.

The bound is the least value of p(H) + f(A) over all sets A of tokens, H the others (formulation
(8) of Hu et al.). Of every set the known part decides p and f up to the tails, so the least and
the greatest value it may have are known, and the least of each over all sets is an end. For the
greatest value there are three kinds of sets that matter: those of tokens known on both sides; those
that hold the tokens only the target knows as well, onto which the draft's tail may fall; and those
that hold everything not known on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mdsd._probabilities import ratio_order
from mdsd._typing import BoolArray, FloatArray
from mdsd.drafts.independent import hit_of_independent
from mdsd.intervals.known import Overlap

_MOST_DRAWS = 1000
"""Draws counted in the lower end without replacement: each costs time, and more only raise it."""

PrefixHits = Callable[[FloatArray], FloatArray]
"""Maps draft masses (V,) in an order to the hit probabilities of its prefixes (V + 1,)."""


def ends_with_replacement(known: Overlap, num_drafts: int) -> tuple[float, float]:
    """Give the ends of the interval for draws with replacement."""

    def hits(masses: FloatArray) -> FloatArray:
        return hit_of_independent(masses[np.newaxis], repeats=num_drafts)

    def hits_beside(masses: FloatArray, tail: float) -> FloatArray:
        return hits(np.append(masses, tail))[:-1]

    return _lower_end(known, hits_beside), _upper_end(known, hits)


def ends_without_replacement(known: Overlap, num_drafts: int) -> tuple[float, float]:
    """Give the ends of the interval for draws without replacement."""
    from mdsd._solvers.hitting import prefix_hits
    from mdsd._solvers.split_tail import prefix_hits_beside_split_tail

    def hits(masses: FloatArray) -> FloatArray:
        # Once all tokens with a mass of their own are drawn, the others, however little they have,
        # hit nothing that is not hit yet.
        return prefix_hits(masses, min(num_drafts, int(np.count_nonzero(masses))))

    def hits_beside(masses: FloatArray, tail: float) -> FloatArray:
        return prefix_hits_beside_split_tail(masses, tail, min(num_drafts, _MOST_DRAWS))

    return _lower_end(known, hits_beside), _upper_end(known, hits)


def _lower_end(known: Overlap, hits_beside: Callable[[FloatArray, float], FloatArray]) -> float:
    """Let the tails miss each other, and the draft's be split without end.

    What the draft does not know, it never proposes; what the target does not know, it never emits.
    """
    from mdsd._solvers.prefix import best_prefix

    free = known.target_only + known.target_tail
    target = np.concatenate([[free], known.target, np.zeros(len(known.draft_only))])
    draft = np.concatenate([[0.0], known.draft, known.draft_only])
    order = ratio_order(target, draft)
    return best_prefix(target[order], hits_beside(draft[order], known.draft_tail_range[1]))[0]


def _upper_end(known: Overlap, hits: PrefixHits) -> float:
    """Let each tail lie, as one lump, on the tokens that only the other side knows."""
    from mdsd._solvers.prefix import best_prefix

    layout = _lay_out(known)
    with_least, with_most = (
        hits(np.where(layout.is_tail, tail, layout.draft)) for tail in known.draft_tail_range
    )
    # More tail helps the sets that hold it and hinders the others.
    holds_tail = np.concatenate([[False], np.logical_or.accumulate(layout.is_tail)])
    return best_prefix(layout.target, np.where(holds_tail, with_most, with_least))[0]


@dataclass(frozen=True, eq=False)
class _Layout:
    """Masses in an order whose prefixes hold a set of least value; which of them is the tail."""

    target: FloatArray
    draft: FloatArray
    is_tail: BoolArray


def _lay_out(known: Overlap) -> _Layout:
    count, rest = len(known.target), len(known.draft_only)
    rest_mass = float(known.draft_only.sum())
    # The tokens known on both sides; the draft's tail on tokens that only the target knows; tokens
    # that only the draft knows, and behind them the target's tail that may lie on them.
    target = np.concatenate(
        [known.target, [known.target_only], np.zeros(rest), [known.target_tail]]
    )
    draft = np.concatenate([known.draft, [known.draft_tail], known.draft_only, [0.0]])
    group = np.concatenate([np.arange(count + 1), np.full(rest + 1, count + 1)])
    group_target = np.concatenate([known.target, [known.target_only, known.target_tail]])
    group_draft = np.concatenate([known.draft, [known.draft_tail, rest_mass]])
    if known.target_only * rest_mass <= known.target_tail * known.draft_tail:
        # The tails can give all of these tokens one ratio: they stand or fall together.
        group[count:] = count
        group_target = np.append(known.target, known.target_only + known.target_tail)
        group_draft = np.append(known.draft, known.draft_tail + rest_mass)
    rank = np.empty(len(group_target), dtype=np.int64)
    rank[ratio_order(group_target, group_draft)] = np.arange(len(group_target))
    order = np.argsort(rank[group], kind="stable")
    is_tail = np.zeros(len(group), dtype=np.bool_)
    is_tail[count] = True
    return _Layout(target[order], draft[order], is_tail[order])
