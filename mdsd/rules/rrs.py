"""Recursive rejection: the drafts in turn, each against what the rejections before it left.

Of the masses that are left, of sum Z, the k-th draft of law q_k is offered ``Z q_k``: where it is
rejected, ``(masses - Z q_k)+`` are left. Their sum is the probability that all tests so far failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mdsd.rules.accepting import Reader, Tests, accept_probs, everywhere, left_over
from mdsd.rules.arrays import concat, namespace, number, take
from mdsd.rules.sums import marked

TESTED = slice(None)
"""All drafts are tested, in draft order."""

FOLLOWED = 64
"""Drafts with replacement up to which all are followed in turn; more have a closed form."""


def rrs_tests(p: Any, laws: Iterable[Any], at: Reader = everywhere) -> Tests:
    """Test every draft in turn.

    Parameters
    ----------
    p : array, shape (..., V)
        The target.
    laws : iterable of array, shape (..., V)
        Law of each draft given those before it. Wherever one of those was rejected nothing is left,
        so the law may say anything there.
    at : callable, optional
        Reads the tested tokens; all of them by default.

    Returns
    -------
    Tests

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> chances, residual = rrs_tests(p, [q, q])
    >>> [x.round(3).tolist() for x in chances], residual.round(3).tolist()
    ([[1.0, 0.6, 0.667], [1.0, 0.0, 0.0]], [0.24, 0.0, 0.0])
    """
    xp = namespace(p)
    chances: list[Any] = []
    for law in laws:
        k = len(chances)
        draft = slice(k, k + 1)
        offered = law if k == 0 else law * xp.sum(p, axis=-1, keepdims=True)
        chances.append(accept_probs(at(p, draft), at(offered, draft)))
        p = left_over(p, offered)
    return Tests(chances, p)


def laws_without_replacement(q: Any, ids: Any) -> Iterable[Any]:
    """Give q over what is left of it when each of some distinct tokens is drawn.

    Parameters
    ----------
    q : array, shape (..., V)
    ids : array of int64, shape (..., n)

    Yields
    ------
    array, shape (..., V)
        Not 0 on the tokens drawn before; infinite there where hardly anything is left.
    """
    left = _masses_left(q, ids)
    for k in range(ids.shape[-1]):
        with np.errstate(over="ignore"):
            law = q if k == 0 else q / left[..., k : k + 1]
        yield law


def _masses_left(q: Any, ids: Any) -> Any:
    """Mass of q when each token is drawn, (..., n): sums of what remains, however little it is."""
    xp = namespace(q)
    others = xp.where(marked(ids, q.shape[-1]), number(q, 0.0), q)
    left, found = xp.sum(others, axis=-1, keepdims=True), []
    for k in range(ids.shape[-1] - 1, -1, -1):
        left = left + take(q, ids[..., k : k + 1])
        found.append(left)
    return concat(found[::-1])
