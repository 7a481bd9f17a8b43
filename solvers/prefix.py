"""Subset selection among the prefixes of an order: exact for q-convex hit functions."""

from __future__ import annotations

import numpy as np

from solvers._typing import FloatArray

__all__ = ["best_prefix", "cut_values"]


def cut_values(ordered_masses: FloatArray, hits: FloatArray) -> FloatArray:
    """Value of formulation (8) at every prefix of an order.

    Parameters
    ----------
    ordered_masses : ndarray, shape (V,)
        Target masses p in the order whose prefixes A_k are meant.
    hits : ndarray, shape (V + 1,)
        Hit probabilities f(A_k) of those prefixes.

    Returns
    -------
    ndarray, shape (V + 1,)
        ``p(H_k) + f(A_k)`` with H_k the complement of A_k, which is 1 + p(H) - Q(H): a sum of two
        masses, so that a value near 0 keeps its digits.

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding", eq. (8).
    """
    outside = np.concatenate([np.cumsum(ordered_masses[::-1])[::-1], [0.0]])
    return outside + hits


def best_prefix(ordered_masses: FloatArray, hits: FloatArray) -> tuple[float, int]:
    """Smallest value over the prefixes of an order, and the length of the shortest that has it.

    The values are not unimodal along the prefixes, so all of them are looked at.

    Parameters
    ----------
    ordered_masses, hits : ndarray
        As for `cut_values`.

    Returns
    -------
    tuple of (float, int)
        The value, at most 1, and the prefix length k.

    Examples
    --------
    >>> import numpy as np
    >>> value, length = best_prefix(np.array([0.5, 0.3, 0.2]), np.array([0, 0.36, 0.91, 1.0]))
    >>> round(value, 12), length
    (0.86, 1)
    """
    values = cut_values(ordered_masses, hits)
    values[0] = 1.0
    length = int(np.argmin(values))
    return float(min(values[length], 1.0)), length
