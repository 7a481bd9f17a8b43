"""The optimal verifier in two parts: which of the drafts it selects, and whether that one passes.

A verification along a path needs the first part alone, with the law of the token selected.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import numpy as np

from mdsd._frozen import frozen
from mdsd._random import draw_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.rules.accepting import accept_probs
from mdsd.verifiers import OptimalVerifier
from mdsd.verifiers.base import SelectionPlan
from mdsd.verifiers.lottery import LotteryPlan

_MOST_STEPS = 100
_MOST_SCALE = 1e300


class SelectingVerifier(OptimalVerifier):
    """An optimal verifier all of whose plans select one draft by lot and then test it.

    It accepts as often as `OptimalVerifier`, whose marks and lotteries it uses. The draft
    distributions that have a closed form there get one that selects: `OnlyDraftPlan` and
    `TopDraftsPlan`.

    Parameters
    ----------
    tolerance, max_iterations, effort
        As for `OptimalVerifier`.

    Examples
    --------
    >>> from mdsd import GreedyDraft
    >>> plan = SelectingVerifier().plan([0.5, 0.3, 0.2], GreedyDraft([0.2, 0.5, 0.3], 2))
    >>> plan.selected.round(12).tolist(), round(plan.acceptance_rate, 12)
    ([0.4, 0.36, 0.24], 0.9)
    """

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        if draft.num_drafts == 1:
            return OnlyDraftPlan.num_uniforms
        return TopDraftsPlan.num_uniforms if _has_top(draft) else super()._num_uniforms(draft)

    def _plan(self, target_probs: FloatArray, draft: Any) -> SelectionPlan:
        if draft.num_drafts == 1:
            return OnlyDraftPlan(target_probs, draft)
        if _has_top(draft):
            return TopDraftsPlan(target_probs, draft)
        return cast(SelectionPlan, super()._plan(target_probs, draft))


class LotteryVerifier(OptimalVerifier):
    """An optimal verifier all of whose plans are lotteries over priority orders.

    Parameters
    ----------
    tolerance, max_iterations, effort
        As for `OptimalVerifier`.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> plan = LotteryVerifier().plan([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 2))
    >>> round(plan.acceptance_rate, 9)
    0.86
    """

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return LotteryPlan.num_uniforms

    def _plan(self, target_probs: FloatArray, draft: Any) -> LotteryPlan:
        return LotteryPlan(
            target_probs,
            draft,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            fast=self.effort == "fast",
        )


def selection_law(plan: SelectionPlan, draft_token_ids: IntArray) -> FloatArray:
    """Give the probability that each draft is selected and kept; of equal tokens the first.

    Parameters
    ----------
    plan : SelectionPlan
    draft_token_ids : ndarray of int64, shape (n,)

    Returns
    -------
    ndarray of float64, shape (n,)

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> plan = SelectingVerifier().plan([0.5, 0.5], WithReplacement([0.5, 0.5], 2))
    >>> selection_law(plan, np.array([1, 1])).tolist()
    [1.0, 0.0]
    """
    firsts = (draft_token_ids[:, np.newaxis] == draft_token_ids).argmax(axis=1)
    probs = plan._selection_probs(draft_token_ids[np.newaxis])[0]
    by_first = np.zeros(len(probs))
    np.add.at(by_first, firsts, probs)
    return by_first


def _has_top(draft: DraftDistribution) -> bool:
    """Tell whether all tokens but one, which is another, are drafted whatever chance does."""
    return draft.distinct and 0 < _num_certain(draft) >= draft.num_drafts - 1


def _num_certain(draft: DraftDistribution) -> int:
    return draft.own_kind.num_certain(draft.num_drafts)


class _OptimalPlan(SelectionPlan):
    """A selection known to be optimal: no rule accepts more than it attains."""

    @property
    def upper(self) -> float:
        return self.acceptance_rate


class OnlyDraftPlan(_OptimalPlan):
    """Select the draft, as there is but one: m^ is its law.

    Uniforms: the accept test, the residual.
    """

    num_uniforms = 2

    def __init__(self, target_probs: FloatArray, draft: DraftDistribution) -> None:
        super().__init__(target_probs, draft)
        self._draft_probs = frozen(np.array(draft.token_hit_probs()))

    @property
    def selected(self) -> FloatArray:  # noqa: D102
        return self._draft_probs

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        return ids[:, 0].copy()

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        return np.ones(ids.shape)


class TopDraftsPlan(_OptimalPlan):
    """Select among tokens T that are always drafted and one that is drawn from q~ off T.

    The drawn token is kept with probability ``min(1, k p / q~)``, else a token of T is taken in
    proportion to p. Uniforms: whether the drawn token is kept, the token of T, the accept test, the
    residual.

    Notes
    -----
    For the greedy draft, the SpecHub pair (T is the hub) and the top-k draft (no token is drawn).
    Selected is ``m^ = min(k p, q~)`` off T and ``k p`` on T, with the k >= 1 for which these masses
    sum to 1; so ``sum min(p, m^) = p(T) + sum off T of min(p, q~)``, the optimum. Any k is
    lossless. This one makes p / m^ as even as the drafts allow: along a path that is worth more
    than the same acceptance with some tokens certain and others hopeless.
    """

    num_uniforms = 4

    def __init__(self, target_probs: FloatArray, draft: DraftDistribution) -> None:
        super().__init__(target_probs, draft)
        hits = draft.token_hit_probs()
        sure = hits == 1.0
        if np.count_nonzero(sure) < _num_certain(draft):  # a user's own may be rounded
            sure[np.argsort(-hits)[: _num_certain(draft)]] = True
        top, tail = np.flatnonzero(sure), np.where(sure, 0.0, hits)
        self._top, self._tail = top, tail
        scale = _even_scale(target_probs, top, tail)
        self._kept = frozen(accept_probs(scale * target_probs, tail) * (tail > 0.0))
        masses = target_probs[top]
        if not masses.any():
            masses = np.ones(len(top))
        shares = np.zeros(draft.vocab_size)
        shares[top] = masses / masses.sum()
        self._top_shares = frozen(shares)

    @cached_property
    def selected(self) -> FloatArray:  # noqa: D102
        left = float((self._tail * (1.0 - self._kept)).sum()) if self._tail.any() else 1.0
        return frozen(self._tail * self._kept + left * self._top_shares)

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        kept = uniforms[:, :1] < self._kept[ids]  # never one of T
        taken = self._top[draw_tokens(self._top_shares[self._top], uniforms[:, 1])]
        drawn = ids[np.arange(len(ids)), kept.argmax(axis=1)]
        return np.where(kept.any(axis=1), drawn, taken)

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        kept = self._kept[ids]
        return np.asarray(kept + (1.0 - kept.sum(axis=1, keepdims=True)) * self._top_shares[ids])


def _even_scale(target_probs: FloatArray, top: IntArray, tail: FloatArray) -> float:
    """Find k >= 1 such that ``min(k p, q~)`` off T and ``k p`` on T sum to 1.

    The sum is concave and piecewise linear in k: Newton's steps rise from k = 1 to the root and get
    there after a few.
    """
    top_mass = float(target_probs[top].sum())
    scale = 1.0
    for _ in range(_MOST_STEPS):
        free = scale * target_probs < tail
        slope = top_mass + float(target_probs[free].sum())
        missing = float(tail[free].sum())
        if slope == 0.0 or missing <= scale * slope:
            break
        scale = missing / slope if missing < _MOST_SCALE * slope else _MOST_SCALE
    return scale
