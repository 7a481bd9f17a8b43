"""The over-accepting rule of Yin et al.: fewer rejections, and an output that is not the target's.

**Not lossless.** A single draft is accepted with ``b = min(1, (p + eps) / q)``, more often than the
exact rule allows.
"""

from __future__ import annotations

from typing import Any, Literal

from mdsd.rules.accepting import accept_probs, residual_or_target
from mdsd.rules.arrays import namespace, number

Redraw = Literal["optimal", "target"]
"""Rejection law: the best one for the acceptance function (Decoding-OPT), or the target (UNO)."""

REDRAWS: tuple[Redraw, ...] = ("optimal", "target")


def redraw_laws(p: Any, q: Any, accept: Any) -> Any:
    """``(p - b q)+``, normalised; the target where nothing of it is left.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> redraw_laws(p, q, np.array([1.0, 0.8, 1.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    xp = namespace(p)
    left = residual_or_target(xp.maximum(p - accept * q, number(p, 0.0)), p)
    return left / xp.sum(left, axis=-1, keepdims=True)


def accept_and_redraw(p: Any, q: Any, epsilon: float, redraw: Redraw) -> tuple[Any, Any]:
    """Accept probabilities and rejection laws of the over-accepting rule.

    Parameters
    ----------
    p, q : array, shape (..., V)
        Target and draft.
    epsilon : float
        Over-acceptance, at least 0.
    redraw : {"optimal", "target"}
        Rejection law.

    Returns
    -------
    accept, laws : array, shape (..., V)

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> accept, law = accept_and_redraw(p, q, 0.1, "optimal")
    >>> accept.round(12).tolist(), law.round(12).tolist()
    ([1.0, 0.8, 1.0], [1.0, 0.0, 0.0])
    """
    accept = accept_probs(p + epsilon, q)
    return accept, redraw_laws(p, q, accept) if redraw == "optimal" else p
