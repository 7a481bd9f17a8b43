"""Which acceptance functions leave the output unbiased, and what they lose to the best of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_number
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray
from mdsd.analysis._chains import read_chain_pair
from mdsd.analysis._rule_chains import RuleOnChain
from mdsd.analysis.rejections import single_rejection_probs
from mdsd.analysis.rules import (
    excess,
    read_accept_probs,
    read_pair,
    rejection_probabilities,
)
from mdsd.rules.biased import redraw_laws


@dataclass(frozen=True, eq=False)
class AcceptanceAssessment(FrozenArrays):
    """What an acceptance function costs in bias and in rejections.

    Attributes
    ----------
    unbiased : bool
        Whether some rejection law makes the output the target.
    rejection_law : ndarray of float64, shape (V,), (V, V) or (T, V, V)
        That law; for a biased function the one that comes closest. For a chain one in each row.
    rejections : float
        Rejection probability of the position, or expected rejections up to the horizon of a chain.
    least_total_variation : float
        Least distance of the output from the target, over all rejection laws. For a chain, the
        expected distances of its positions added up.
    excess_rejections : float
        `rejections` less those of ``b = min(1, p / q)``: >= 0 up to rounding for an unbiased
        function, below 0 for one that buys speed with bias.
    """

    unbiased: bool
    rejection_law: FloatArray
    rejections: float
    least_total_variation: float
    excess_rejections: float


def assess_acceptance(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    accept_probs: ArrayLike,
    *,
    tolerance: float = 1e-12,
) -> AcceptanceAssessment:
    """Say whether an acceptance function is unbiased at one position, and what it loses.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    accept_probs : array_like, shape (V,)
        b, in [0, 1]: the probability of accepting each token when it is drafted. That of a token
        with draft probability 0 does not matter.
    tolerance : float, default 1e-12
        Distance from the target up to which the output counts as unbiased.

    Returns
    -------
    AcceptanceAssessment

    Raises
    ------
    InvalidDistributionError
        If a distribution is no probability vector, or their lengths differ.
    InvalidArgumentError
        If `accept_probs` has another shape or leaves [0, 1], or `tolerance` is no number >= 0.

    Notes
    -----
    Yin et al., Theorem 2: the output can be unbiased if and only if ``b <= min(1, p / q)`` wherever
    q > 0, and then only with the rejection law ``(p - b q) / (1 - sum b q)``. The rejection
    probability ``1 - sum b q`` is least for the largest b, that of speculative decoding, where it
    is the total variation between p and q.

    Examples
    --------
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    >>> half = assess_acceptance(p, q, [0.5, 0.3, 1 / 3])
    >>> half.unbiased, round(half.rejections, 12), round(half.excess_rejections, 12)
    (True, 0.65, 0.35)
    >>> always = assess_acceptance(p, q, [1.0, 1.0, 1.0])
    >>> always.unbiased, round(always.least_total_variation, 12)
    (False, 0.3)
    """
    allowed = check_number("tolerance", tolerance)
    target, draft = read_pair(target_probs, draft_probs)
    accept = read_accept_probs(accept_probs, target.shape)
    distance = float(excess(accept * draft, target))
    return AcceptanceAssessment(
        distance <= allowed,
        redraw_laws(target, draft, accept),
        float(rejection_probabilities(draft, accept)),
        distance,
        float((np.minimum(target, draft) - accept * draft).sum()),
    )


def assess_acceptance_on_chain(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    accept_probs: ArrayLike,
    *,
    tolerance: float = 1e-12,
) -> AcceptanceAssessment:
    """Say whether an acceptance function is unbiased along a Markov chain, and what it loses.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial
        As for `expected_rejections`.
    accept_probs : array_like, shape (V, V) or (T, V, V)
        Row a is the acceptance function of the next token when the last one is a.
    tolerance : float, default 1e-12
        Sum of the distances of all positions up to which the output counts as unbiased.

    Returns
    -------
    AcceptanceAssessment
        Along the prefixes that the rule emits, with the rejection law that comes closest to the
        target at each position; rows that no prefix reaches do not count.

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `expected_rejections` and `assess_acceptance`.

    Notes
    -----
    Yin et al., Theorem 2. Where the function is unbiased these prefixes are those of the target,
    and no unbiased function has fewer expected rejections than speculative decoding.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> timid = [[0.5, 0.3], [0.4, 0.5]]
    >>> found = assess_acceptance_on_chain(target, draft, 3, [0.5, 0.5], timid)
    >>> found.unbiased, round(found.rejections, 12), round(found.excess_rejections, 12)
    (True, 1.73075, 1.26925)
    """
    allowed = check_number("tolerance", tolerance)
    pair = read_chain_pair(target_chain, draft_chain, horizon, initial)
    size = len(pair.initial)
    accept = read_accept_probs(accept_probs, (size, size), (pair.horizon, size, size))
    if accept.ndim == 2:
        accept = accept[np.newaxis]
    redraw = redraw_laws(pair.target, pair.draft, accept)
    rejections, distance = RuleOnChain(pair, accept, redraw).expected()
    return AcceptanceAssessment(
        distance <= allowed,
        redraw if len(redraw) > 1 else redraw[0],
        rejections,
        distance,
        rejections - float(single_rejection_probs(pair).sum()),
    )
