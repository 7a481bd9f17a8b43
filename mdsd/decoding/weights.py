"""Weights of prefixes: with what probability one may be accepted, given its tokens.

What block and traversal verification have in common.
"""

from __future__ import annotations


def child_weight(weight: float, target_prob: float, draft_prob: float) -> float:
    """Give the weight ``min(1, w p / q)`` of a prefix that is longer by one token.

    Parameters
    ----------
    weight : float
        w, that of the shorter prefix.
    target_prob, draft_prob : float
        p and q of the token after it.

    Returns
    -------
    float
        0 where w p = 0, whatever q is.

    Examples
    --------
    >>> child_weight(1.0, 0.2, 0.8), child_weight(0.5, 0.2, 0.0), child_weight(1.0, 0.0, 0.0)
    (0.25, 1.0, 0.0)
    """
    mass = weight * target_prob
    if mass == 0.0:
        return 0.0
    return 1.0 if mass >= draft_prob else mass / draft_prob


def passing_probability(weight: float, left: float) -> float:
    """Give the probability ``S / (S + 1 - w)`` that a prefix is accepted once no longer one is.

    Parameters
    ----------
    weight : float
        w.
    left : float
        S, the sum of ``(w p - q)+``: the mass to be emitted after this very prefix.

    Returns
    -------
    float
        1 for weight 1, even where nothing is left.

    Examples
    --------
    >>> passing_probability(0.75, 0.25), passing_probability(1.0, 0.0)
    (0.5, 1.0)
    """
    return 1.0 if weight >= 1.0 else left / (left + (1.0 - weight))
