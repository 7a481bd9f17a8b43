"""Rows without the tokens that neither side can produce: padding, and what filters took away."""

from __future__ import annotations

from numba import njit

from mdsd._typing import AnyArray, FloatArray

__all__ = ["gather_live"]


@njit(cache=True, error_model="numpy")
def gather_live(
    x: AnyArray, x_mass: float, y: AnyArray, y_mass: float, p: FloatArray, q: FloatArray
) -> int:
    """Gather the probabilities of the tokens that one side at least can produce, in their order.

    Parameters
    ----------
    x, y : ndarray of float64 or float32, shape (V,)
        Unnormalised rows of target and draft.
    x_mass, y_mass : float
        Their masses.
    p, q : ndarray, shape (V,)
        Filled from the front with probabilities.

    Returns
    -------
    int
        How many tokens there are.
    """
    count = 0
    for i in range(len(x)):
        p[count], q[count] = x[i], y[i]
        # Counted on instead of branched on, which a processor would have to guess.
        count += (x[i] > 0.0) | (y[i] > 0.0)
    for i in range(count):
        p[i] /= x_mass
        q[i] /= y_mass
    return count
