"""Gumbel-max lists: drafts and output are drawn by the same noise, so that they often agree.

n exponential times for each token. Draft k is the token whose k-th time over its draft probability
is least; the output is the token whose least time over its target probability is. The output is
drawn from the target and does not depend on the draft model, only its being drafted does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._probabilities import ratios
from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.engines.base import EngineRule, RuleOutcome

ACCURACY = 1e-9
"""What the acceptance of two drafts and more is off by at most; of one it is exact."""


@dataclass(frozen=True)
class GumbelLists(EngineRule):
    """Accept if the token that shared noise draws from the target was drafted by the same noise.

    Lossless, for n drafts with replacement: the output depends on the noise and the target alone.

    Notes
    -----
    Rowan, Phan and Khisti, "List-Level Distribution Coupling with Applications to Speculative
    Decoding and Lossy Compression"; for one draft Daliri et al., "Coupling without Communication
    and Drafter-Invariant Speculative Decoding". The acceptance is that of
    `mdsd.analysis.gumbel_acceptance`.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 1)
    >>> found = GumbelLists().outcome([0.5, 0.3, 0.2], draft)
    >>> round(found.acceptance, 6), found.total_variation
    (0.693548, 0.0)
    """

    name = "gumbel"
    source = 'Rowan et al., "List-Level Distribution Coupling", arXiv 2506.05632'
    used_by = "none; its output does not depend on the draft model"
    drafts = ("with_replacement",)
    supported = "drafts with replacement"

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return (cls(),)

    @property
    def lossless(self) -> bool:  # noqa: D102
        return True

    def supports(self, draft: DraftDistribution) -> bool:  # noqa: D102
        return isinstance(draft, WithReplacement)

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        hits = hit_masses(target, draft.draft_probs, draft.num_drafts)  # type: ignore[attr-defined]
        return RuleOutcome(target, target, min(1.0, float(hits.sum())))


def hit_masses(target: FloatArray, probs: FloatArray, num_drafts: int) -> FloatArray:
    """Give the probability that each token is emitted and was drafted.

    Parameters
    ----------
    target, probs : ndarray of float64, shape (V,)
        p and q.
    num_drafts : int
        n.

    Returns
    -------
    ndarray of float64, shape (V,)

    Notes
    -----
    Let ``F(x) = sum_i max(p_i, x q_i)`` and ``x_j = p_j / q_j``. Token j wins the target's race at
    its time t/p_j and is missed by every draft with probability::

        n p_j int_0^inf (e^-t - e^(-t F(x_j))) (e^-t - q_j t int_(x_j)^inf e^(-t F(x)) dx)^(n-1) dt

    For one draft that leaves ``p_j / F(x_j)`` hits. F is piecewise linear, so the inner integral is
    a sum; the outer one, over t = e^v, is a trapezoidal sum over v, whose integrand is analytic in
    a strip: its error falls exponentially as the step is halved.
    """
    hits = np.zeros_like(target)
    both = np.flatnonzero((target > 0.0) & (probs > 0.0))
    if not len(both):
        return hits
    found = ratios(target[both], probs[both])
    places = np.argsort(found, kind="stable")
    order = both[places]
    p, q = target[order], probs[order]
    # Sums of what each token sees above and below its ratio; those only one side has are first and
    # last of all.
    slopes = q.cumsum() + probs[target == 0.0].sum()
    above = p[::-1].cumsum()[::-1] + target[probs == 0.0].sum()
    # Of draft probabilities next to 0 they are infinite: tokens that are never drafted.
    with np.errstate(over="ignore"):
        values = above + found[places] * (slopes - q)
    if num_drafts == 1:
        hits[order] = p / values
        return hits
    hits[order] = np.clip(p - _missed(p, q, values, slopes, num_drafts), 0.0, p)
    return hits


def _missed(
    p: FloatArray, q: FloatArray, values: FloatArray, slopes: FloatArray, num_drafts: int
) -> FloatArray:
    """Integrate the probability that each token is emitted and was not drafted."""
    lowest, highest = np.log(_LEAST_TIME / num_drafts), np.log(_GREATEST_TIME / num_drafts)
    step = _FIRST_STEP

    def summed(places: FloatArray) -> FloatArray:
        total = np.zeros_like(p)
        for time in np.exp(places):
            alone = np.exp(-time * values)
            falls = (alone - np.append(alone[1:], 0.0)) / slopes
            later = q * falls[::-1].cumsum()[::-1]
            survived = np.exp(-time)
            missed = np.maximum(survived - later, 0.0)
            total += time * np.maximum(survived - alone, 0.0) * missed ** (num_drafts - 1)
        return total * (num_drafts * p)

    total = summed(np.arange(lowest, highest, step))
    for _ in range(_MOST_HALVINGS):
        between = summed(np.arange(lowest + step / 2.0, highest, step))
        change = abs(float((between - total).sum()) * step) / 2.0
        total, step = total + between, step / 2.0
        # Halving the step squares the error, roughly.
        if change <= _SMALL_CHANGE:
            break
    return total * step


_LEAST_TIME = 1e-11
"""Times below it have less than so much of the probability."""

_GREATEST_TIME = 40.0
"""Times above it have e**-40 of it."""

_FIRST_STEP = 0.6
_SMALL_CHANGE = 1e-7
_MOST_HALVINGS = 6
