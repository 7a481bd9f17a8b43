"""The single-draft rule: one test of p against q, then what q leaves of p.

The naive tree follows it too, and the naive rule is the one without a test.
"""

from __future__ import annotations

from typing import Any

from mdsd.rules.accepting import Reader, Tests, accept_probs, everywhere, left_over

TESTED = slice(0, 1)
"""The draft that is tested."""


def single_tests(p: Any, q: Any, at: Reader = everywhere, drafts: slice = TESTED) -> Tests:
    """Accept with probability ``min(1, p / q)``, else emit from ``(p - q)+``.

    Parameters
    ----------
    p, q : array, shape (..., V)
        The target, and the law of the tested draft.
    at : callable, optional
        Reads the tested tokens; all of them by default.
    drafts : slice, optional
        The draft that is tested.

    Returns
    -------
    Tests

    Examples
    --------
    >>> import numpy as np
    >>> (chances,), residual = single_tests(np.array([0.5, 0.5]), np.array([0.25, 0.75]))
    >>> chances.round(3).tolist(), residual.tolist()
    ([1.0, 0.667], [0.25, 0.0])
    """
    return Tests([accept_probs(at(p, drafts), at(q, drafts))], left_over(p, q))
