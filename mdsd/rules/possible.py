"""Which tuples can have been drawn: tokens of positive probability, distinct, the top in order."""

from __future__ import annotations

from typing import Any

from mdsd.rules.arrays import namespace, places, take
from mdsd.rules.sums import marked


def are_distinct(ids: Any) -> Any:
    """Tell which tuples, (..., n), hold no token twice; (...).

    Examples
    --------
    >>> import numpy as np
    >>> are_distinct(np.array([[0, 2], [1, 1]])).tolist()
    [True, False]
    """
    xp = namespace(ids)
    ascending = xp.sort(ids, axis=-1)
    return xp.all(ascending[..., 1:] != ascending[..., :-1], axis=-1)


def are_positive(q: Any, ids: Any) -> Any:
    """Tell in which tuples, (..., n), every token has mass in its own row of q, (..., V)."""
    return namespace(q).all(take(q, ids) > 0.0, axis=-1)


def tops_match(q: Any, top: Any, *, slack: float = 0.0) -> Any:
    """Tell which rows of ids list the most likely tokens, largest first, ties to the lowest id.

    Parameters
    ----------
    q : array, shape (..., V)
        Masses, normalised or not.
    top : array of int64, shape (..., m)
    slack : float, default 0.0
        Numbers that differ by no more than this part of them, and yet differ, stand in any order: a
        division by the sum of the row might make them equal. If negative, they match in none.

    Returns
    -------
    array of bool, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> tops_match(np.tile([0.3, 0.3, 0.4], (2, 1)), np.array([[2, 0], [2, 1]])).tolist()
    [True, False]
    """
    xp, near = namespace(q), 1.0 + slack
    if top.shape[-1] == 0:
        return xp.all(q == q, axis=-1)
    likely = take(q, top)
    before, after = likely[..., :-1], likely[..., 1:]
    wrong = (after > near * before) & (after != before)
    wrong = wrong | ((after == before) & (top[..., :-1] >= top[..., 1:]))
    least, last = likely[..., -1:], top[..., -1:]
    ahead = (q > near * least) & (q != least)
    ahead = ahead | ((q == least) & (places(top, q.shape[-1]) < last))
    ahead = ahead & ~marked(top, q.shape[-1])
    return ~(xp.any(wrong, axis=-1) | xp.any(ahead, axis=-1))
