"""Lotteries over priority orders: the minimum-norm point of a base polytope, and what it decides.

Fix an order of the tokens and always select the drafted token that comes first in it: token i is
then selected with mass ``f(A_k) - f(A_{k-1})``, a vertex of the base polytope of the hit function
f. A lottery over orders selects with a convex combination m^ of vertices. If m^ - p has minimum
Euclidean norm, the lottery accepts ``sum min(p, m^) = alpha*`` and {m^ < p} solves subset selection
(Fujishige; Edmonds' min-max theorem). Wolfe's algorithm finds the point from prefix values of f
along one order at a time, and every stop on the way is a valid lottery with a certified gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr_delete, qr_insert, solve_triangular

from solvers._typing import BoolArray, FloatArray, IntArray
from solvers.prefix import cut_values

__all__ = ["OrderLottery", "minimum_norm_lottery"]

_DROP = 1e-14
"""Weights of orders below this are dropped; the rest is renormalised."""


@dataclass(frozen=True, eq=False)
class OrderLottery:
    """A lottery over priority orders, with a certificate.

    Attributes
    ----------
    orders : ndarray of int64, shape (K, V)
        Priority orders, first token first.
    weights : ndarray, shape (K,)
        Probability of each order.
    selected : ndarray, shape (V,)
        m^: probability that each token is selected.
    attained : float
        ``sum min(p, m^)``.
    upper : float
        Least value of subset selection seen: no rule accepts more.
    subset : ndarray of bool, shape (V,)
        The H that gives `upper`.
    iterations : int
        Orders evaluated.
    """

    orders: IntArray
    weights: FloatArray
    selected: FloatArray
    attained: float
    upper: float
    subset: BoolArray
    iterations: int

    @property
    def gap(self) -> float:
        """Certified distance of the attained acceptance from the optimum."""
        return max(0.0, self.upper - self.attained)


class _Corral:
    """The affinely independent vertices of Wolfe's algorithm, with a maintained factorisation.

    One vertex is the base; the differences of the others to it are kept as a thin QR factorisation,
    updated in O(V K) when a vertex enters or leaves and made anew when the base itself leaves. The
    point of least norm in the affine hull is then a plain least-squares problem, with the condition
    number of the differences and not its square.
    """

    def __init__(self, vertex: FloatArray) -> None:
        self.vertices = vertex[np.newaxis].copy()
        self.weights = np.ones(1)
        self._factorise()

    def _factorise(self) -> None:
        self.base = int(np.argmax(self.weights))
        others = np.delete(self.vertices, self.base, axis=0)
        self.q, self.r = np.linalg.qr((others - self.vertices[self.base]).T)

    def point(self) -> FloatArray:
        return np.asarray(self.weights @ self.vertices)

    def add(self, vertex: FloatArray) -> bool:
        """Let a vertex enter; False if it is affinely dependent on the others."""
        column = vertex - self.vertices[self.base]
        rest = column - self.q @ (self.q.T @ column)
        rest -= self.q @ (self.q.T @ rest)
        too_many = self.q.shape[1] >= len(column)
        if too_many or np.linalg.norm(rest) <= 1e-13 * np.linalg.norm(column):
            return False
        if self.q.shape[1] == 0:
            norm = float(np.linalg.norm(column))
            self.q, self.r = (column / norm)[:, np.newaxis], np.array([[norm]])
        else:
            self.q, self.r = qr_insert(
                self.q, self.r, column, self.q.shape[1], which="col", check_finite=False
            )
        self.vertices = np.vstack([self.vertices, vertex])
        self.weights = np.append(self.weights, 0.0)
        return True

    def remove(self, index: int) -> None:
        self.vertices = np.delete(self.vertices, index, axis=0)
        self.weights = np.delete(self.weights, index)
        if index == self.base or len(self.weights) <= 2:
            self._factorise()
            return
        column = index - (index > self.base)
        self.base -= index < self.base
        self.q, self.r = qr_delete(self.q, self.r, column, which="col", check_finite=False)

    def affine_minimiser(self) -> FloatArray:
        """Weights, summing to 1 but of any sign, of the point of least norm in the affine hull."""
        goal = self.q.T @ self.vertices[self.base]
        others = -solve_triangular(self.r, goal, check_finite=False) if len(goal) else goal
        return np.insert(others, self.base, 1.0 - others.sum())

    def descend(self) -> list[int]:
        """Move to the point of least norm in the hull; give the indices that left, in sequence."""
        left: list[int] = []
        while True:
            goal = self.affine_minimiser()
            if (goal > _DROP).all():
                self.weights = goal
                return left
            falling = goal <= _DROP
            drop = self.weights[falling] - goal[falling]
            ratios = np.divide(
                self.weights[falling], drop, out=np.zeros_like(drop), where=drop > 0.0
            )
            step = float(min(1.0, ratios.min()))
            self.weights = (1.0 - step) * self.weights + step * goal
            # At least one leaves, so the loop ends however rounding falls.
            blocking = np.flatnonzero(falling)[int(np.argmin(ratios))]
            self.weights[blocking] = 0.0
            for index in np.flatnonzero(self.weights <= _DROP)[::-1]:
                self.remove(int(index))
                left.append(int(index))
            self.weights = np.maximum(self.weights, 0.0)
            self.weights /= self.weights.sum()


def minimum_norm_lottery(
    target_masses: FloatArray,
    hits: Callable[[IntArray], FloatArray],
    first_order: IntArray,
    *,
    tolerance: float = 1e-9,
    max_iterations: int | None = None,
) -> OrderLottery:
    """Find a lottery over priority orders whose acceptance is within `tolerance` of the optimum.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, summing to 1.
    hits : callable
        Maps an order (V,) to its prefix hit probabilities (V + 1,).
    first_order : ndarray of int64, shape (V,)
        Where to start; for q-convex laws the tokens by p/q, whose prefixes already give the bound.
    tolerance : float, default 1e-9
        Stop as soon as the certified gap is at most this.
    max_iterations : int, optional
        Most orders to evaluate; ``20 V + 100`` by default.

    Returns
    -------
    OrderLottery
        Valid, and certified by its gap, even if the search stopped early.

    Notes
    -----
    Wolfe, "Finding the nearest point in a polytope" (1976); Fujishige, "Submodular Functions and
    Optimization". One iteration costs one call of `hits` and O(V K) for K orders alive.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> def hits(order):
    ...     return 1 - (1 - np.concatenate([[0.0], np.cumsum(q[order])])).clip(0) ** 2
    >>> lottery = minimum_norm_lottery(p, hits, np.arange(3))
    >>> round(lottery.attained, 9), round(lottery.upper, 9)
    (0.86, 0.86)
    """
    vocab_size = len(target_masses)
    limit = 20 * vocab_size + 100 if max_iterations is None else max_iterations
    best_upper, best_subset = np.inf, np.ones(vocab_size, dtype=np.bool_)

    def evaluate(order: IntArray) -> FloatArray:
        """Vertex of the base polytope at an order; its prefixes may improve the bound."""
        nonlocal best_upper, best_subset
        values = hits(order)
        cuts = cut_values(target_masses[order], values)
        length = int(np.argmin(cuts))
        if cuts[length] < best_upper:
            best_upper = float(cuts[length])
            best_subset = np.ones(vocab_size, dtype=np.bool_)
            best_subset[order[:length]] = False
        vertex = np.empty(vocab_size)
        # Rounding may let a prefix value fall by an ulp; a selection mass is never negative.
        vertex[order] = np.maximum(np.diff(values), 0.0)
        return vertex

    def attained(selected: FloatArray) -> float:
        return float(np.minimum(target_masses, selected).sum())

    masses = [evaluate(first_order)]
    orders = [first_order]
    corral = _Corral(masses[0] - target_masses)
    best = (attained(masses[0]), np.array([masses[0]]), np.array([first_order]), np.ones(1))
    iterations = 1
    while iterations < limit and best_upper - best[0] > tolerance:
        point = corral.point()
        order = np.argsort(point, kind="stable")
        vertex = evaluate(order)
        iterations += 1
        shifted = vertex - target_masses
        # Wolfe's criterion: no vertex lies on the near side of the point, up to rounding.
        length = float(np.linalg.norm(point))
        reach = max(length, float(np.linalg.norm(shifted)))
        no_progress = point @ point - point @ shifted <= 1e-15 * length * reach
        if no_progress or not corral.add(shifted):
            break
        masses.append(vertex)
        orders.append(order)
        for index in corral.descend():
            del masses[index], orders[index]
        reached = attained(corral.weights @ np.array(masses))
        if reached > best[0]:
            best = (reached, np.array(masses), np.array(orders), corral.weights.copy())

    value, alive, kept, weights = best
    return OrderLottery(
        orders=kept,
        weights=weights,
        selected=weights @ alive,
        attained=value,
        upper=min(best_upper, 1.0),
        subset=best_subset,
        iterations=iterations,
    )
