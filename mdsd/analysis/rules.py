"""Rules that accept a draft with some probability and else redraw: distributions of one position.

The family of Yin et al.: draft x from q, accept it with probability b(x), else emit from a
distribution P of one's own choice. The emitted token is distributed as ``b q + (1 - sum b q) P``.
Speculative decoding is the member with ``b = min(1, p / q)`` and P the residual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_numbers
from mdsd._frozen import FrozenArrays
from mdsd._probabilities import check_probs, check_same_vocab
from mdsd._typing import FloatArray
from mdsd.errors import InvalidDistributionError
from mdsd.rules.biased import redraw_laws


@dataclass(frozen=True, eq=False)
class AcceptRule(FrozenArrays):
    """Accept a drafted token with probability b, else emit from the rejection law.

    Attributes
    ----------
    accept_probs : ndarray of float64, shape (V,)
        b: a drafted token x is accepted if a uniform in [0, 1) lies strictly below ``b[x]``.
    rejection_law : ndarray of float64, shape (V,)
        Distribution of the token emitted after a rejection.
    output_law : ndarray of float64, shape (V,)
        Distribution of the emitted token.
    rejection_probability : float
    total_variation : float
        Distance of the output law from the target, in [0, 1]; 0 for a lossless rule.

    Examples
    --------
    >>> rule = accept_rule([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [1.0, 1.0, 1.0])
    >>> rule.output_law.tolist(), round(rule.total_variation, 12)
    ([0.2, 0.5, 0.3], 0.3)
    """

    accept_probs: FloatArray
    rejection_law: FloatArray
    output_law: FloatArray
    rejection_probability: float
    total_variation: float


def accept_rule(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    accept_probs: ArrayLike,
    rejection_law: ArrayLike | None = None,
) -> AcceptRule:
    """Work out what an acceptance function and a rejection law do at one position.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    accept_probs : array_like, shape (V,)
        b, in [0, 1]: the probability of accepting each token when it is drafted.
    rejection_law : array_like, shape (V,), optional
        Distribution of the token emitted after a rejection; by default the best one for this b, as
        `optimal_rejection_law` gives it.

    Returns
    -------
    AcceptRule

    Raises
    ------
    InvalidDistributionError
        If a distribution is no probability vector, or their lengths differ.
    InvalidArgumentError
        If `accept_probs` has another shape or leaves [0, 1].

    Examples
    --------
    Redrawing from the target after the exact test is not lossless:

    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    >>> rule = accept_rule(p, q, [1.0, 3 / 5, 2 / 3], rejection_law=p)
    >>> rule.output_law.round(12).tolist(), round(rule.total_variation, 12)
    ([0.35, 0.39, 0.26], 0.15)
    """
    target, draft = read_pair(target_probs, draft_probs)
    accept = read_accept_probs(accept_probs, target.shape)
    if rejection_law is None:
        redraw = redraw_laws(target, draft, accept)
    else:
        redraw = check_probs(rejection_law, "rejection_law")
        if redraw.shape != target.shape:
            raise InvalidDistributionError(
                f"rejection_law has {len(redraw)} tokens but target_probs has {len(target)}"
            )
    return rule_of(target, draft, accept, redraw)


def rule_of(
    target: FloatArray, draft: FloatArray, accept: FloatArray, redraw: FloatArray
) -> AcceptRule:
    """Work out a rule from checked vectors."""
    output = output_laws(draft, accept, redraw)
    return AcceptRule(
        accept,
        redraw,
        output,
        float(rejection_probabilities(draft, accept)),
        float(excess(output, target)),
    )


def optimal_rejection_law(
    target_probs: ArrayLike, draft_probs: ArrayLike, accept_probs: ArrayLike
) -> FloatArray:
    """Give the rejection law that brings the output closest to the target (Decoding-OPT).

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    accept_probs : array_like, shape (V,)
        b, in [0, 1]: the probability of accepting each token when it is drafted.

    Returns
    -------
    ndarray of float64, shape (V,)
        ``(p - b q)+``, normalised; the target where nothing of it is left, which takes a draft
        equal to the target and no rejections.

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `accept_rule`.

    Notes
    -----
    Yin et al., Theorem 4. The distance left is ``sum (b q - p)+``: that much is emitted too often
    whatever the rejection law, and this one adds nothing to it. Others may do as well where b is
    not everywhere at least ``min(1, p / q)`` or exceeds it.

    Examples
    --------
    >>> optimal_rejection_law([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [1.0, 0.8, 1.0]).tolist()
    [1.0, 0.0, 0.0]
    """
    return accept_rule(target_probs, draft_probs, accept_probs).rejection_law


# --- the same on arrays of any shape, tokens along the last axis ---------------------------------


def rejection_probabilities(draft: FloatArray, accept: FloatArray) -> FloatArray:
    """``sum (1 - b) q``."""
    return np.asarray(((1.0 - accept) * draft).sum(axis=-1))


def output_laws(draft: FloatArray, accept: FloatArray, redraw: FloatArray) -> FloatArray:
    """``b q + (sum (1 - b) q) P``."""
    rejected = rejection_probabilities(draft, accept)[..., np.newaxis]
    return np.asarray(accept * draft + rejected * redraw)


def excess(masses: FloatArray, target: FloatArray) -> FloatArray:
    """``sum (m - p)+``: total variation of a distribution m; of m = b q, the least that is left."""
    return np.asarray(np.maximum(masses - target, 0.0).sum(axis=-1))


# --- arguments -----------------------------------------------------------------------------------


def read_pair(target_probs: ArrayLike, draft_probs: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check the distributions of target and draft at one position.

    Raises
    ------
    InvalidDistributionError
        If one of them is no probability vector, or their lengths differ.
    """
    target = check_probs(target_probs, "target_probs")
    draft = check_probs(draft_probs, "draft_probs")
    check_same_vocab(target, len(draft))
    return target, draft


def read_accept_probs(values: ArrayLike, *shapes: tuple[int, ...]) -> FloatArray:
    """Check probabilities of acceptance.

    Parameters
    ----------
    values : array_like
    *shapes : tuple of int
        Those that are allowed.

    Returns
    -------
    ndarray of float64
        A copy.

    Raises
    ------
    InvalidArgumentError
        If it holds something else than numbers in [0, 1] or has another shape; names the row.
    """
    expected = " or ".join(str(shape) for shape in shapes)
    return read_numbers(values, "accept_probs", lambda shape: shape in shapes, expected).copy()
