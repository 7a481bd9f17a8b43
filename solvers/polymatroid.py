"""Lotteries over priority orders: the minimum-norm point of a base polytope, and what it decides.

Fix an order of the tokens and always select the drafted token that comes first in it: token i is
then selected with mass ``f(A_k) - f(A_{k-1})``, a vertex of the base polytope of the hit function
f. A lottery over orders selects with a convex combination m^ of vertices. If m^ - p has minimum
Euclidean norm, the lottery accepts ``sum min(p, m^) = alpha*`` and H = {m^ > p} solves subset
selection (Fujishige; Edmonds' min-max theorem). Wolfe's algorithm finds the point from prefix
values of f along one order at a time; every stop on the way is a valid lottery, its gap certified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr_delete, solve_triangular

from ._typing import BoolArray, FloatArray, IntArray
from .certificates import certified_gap
from .prefix import cut_values

_METHOD = "minimum-norm point"
"""Name in errors."""

_DROP = 1e-14
"""Weights of orders below this are dropped; the rest is renormalised."""


@dataclass(frozen=True, eq=False)
class OrderLottery:
    """A lottery over priority orders, with a certificate.

    Attributes
    ----------
    orders : ndarray of int32, shape (K, V)
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

    orders: NDArray[np.int32]
    weights: FloatArray
    selected: FloatArray
    attained: float
    upper: float
    subset: BoolArray
    iterations: int

    @property
    def weights_by_token(self) -> FloatArray:
        """What each order counts for each token, (K, V): the same for all."""
        return np.broadcast_to(self.weights[:, np.newaxis], self.orders.shape)

    @property
    def gap(self) -> float:
        """Certified distance of the attained acceptance from the optimum."""
        return certified_gap(self.upper, self.attained, method=_METHOD)


class _Corral:
    """The affinely independent vertices of Wolfe's algorithm, with a maintained factorisation.

    One vertex is the base; the scaled differences of the others to it are kept as a thin QR
    factorisation, updated in O(V K) when a vertex enters or leaves and made anew when the base
    itself leaves. The point of least norm in the affine hull is then a plain least-squares problem,
    with the condition number of the differences and not its square.
    """

    def __init__(self, vertex: FloatArray, order: IntArray, origin: FloatArray, scale: FloatArray):
        self._origin, self._scale = origin, scale
        self.vertices = [vertex]
        self.orders = [order.astype(np.int32)]  # the search holds one for every vertex
        self.weights = np.ones(1)
        # Q stands in a buffer with room for further columns, so that adding one copies no others.
        self._buffer = np.empty((len(vertex), 8), order="F")
        self._factorise()

    def _factorise(self) -> None:
        self._base = int(np.argmax(self.weights))
        self._q = self._buffer[:, :0]
        self._r = np.empty((0, 0))
        for k in range(len(self.vertices)):
            if k != self._base:
                self._append(self.vertices[k], dependent_at=-1.0)

    def _append(self, vertex: FloatArray, *, dependent_at: float) -> bool:
        """Extend the factorisation by a vertex, unless it is dependent to that relative degree."""
        column = (vertex - self.vertices[self._base]) * self._scale
        norm, count = float(np.linalg.norm(column)), self._q.shape[1]
        share = self._q.T @ column
        column -= self._q @ share
        again = self._q.T @ column
        column -= self._q @ again
        length = float(np.linalg.norm(column))
        if count >= len(column) or length <= dependent_at * norm:
            return False
        if count == self._buffer.shape[1]:
            self._buffer = np.empty((len(column), 2 * count), order="F")
            self._buffer[:, :count] = self._q
        length = max(length, np.finfo(np.float64).tiny)
        self._buffer[:, count] = column / length
        self._q = self._buffer[:, : count + 1]
        enlarged = np.zeros((count + 1, count + 1))
        enlarged[:count, :count], enlarged[:count, count] = self._r, share + again
        enlarged[count, count] = length
        self._r = enlarged
        return True

    def selected(self) -> FloatArray:
        """Give the point as a vector of selection masses."""
        total = np.zeros(len(self._scale))
        for weight, vertex in zip(self.weights, self.vertices, strict=True):
            total += weight * vertex
        return total

    def add(self, vertex: FloatArray, order: IntArray) -> bool:
        """Let a vertex enter; False if it is affinely dependent on the others."""
        if not self._append(vertex, dependent_at=1e-13):
            return False
        self.vertices.append(vertex)
        self.orders.append(order.astype(np.int32))
        self.weights = np.append(self.weights, 0.0)
        return True

    def remove(self, index: int) -> None:
        del self.vertices[index], self.orders[index]
        self.weights = np.delete(self.weights, index)
        if index == self._base or len(self.weights) <= 2:
            self._factorise()
            return
        column = index - (index > self._base)
        self._base -= index < self._base
        q, self._r = qr_delete(
            self._q, self._r, column, which="col", overwrite_qr=True, check_finite=False
        )
        count = q.shape[1]
        if not np.shares_memory(q, self._buffer[:, :count]):
            self._buffer[:, :count] = q
        self._q = self._buffer[:, :count]

    def affine_minimiser(self) -> FloatArray:
        """Weights, summing to 1 but of any sign, of the point of least norm in the affine hull."""
        base = (self.vertices[self._base] - self._origin) * self._scale
        goal = self._q.T @ base
        others = -solve_triangular(self._r, goal, check_finite=False) if len(goal) else goal
        return np.insert(others, self._base, 1.0 - others.sum())

    def descend(self) -> None:
        """Move to the point of least norm in the hull; vertices that lose their weight leave."""
        while True:
            goal = self.affine_minimiser()
            if not np.isfinite(goal).all():
                return  # nearly dependent vertices: what was reached is kept
            if (goal > _DROP).all():
                self.weights = goal
                return
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
            self.weights = np.maximum(self.weights, 0.0)
            self.weights /= self.weights.sum()


def minimum_norm_lottery(
    target_masses: FloatArray,
    hits: Callable[[IntArray], FloatArray],
    first_order: IntArray,
    token_weights: FloatArray,
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
    token_weights : ndarray, shape (V,)
        w > 0: the norm minimised is ``sum (m^ - p)**2 / w``. Any positive weights end in an
        optimal lottery; those of `norm_weights` do so many times sooner than equal ones.
    tolerance : float, default 1e-9
        Stop as soon as the certified gap is at most this.
    max_iterations : int, optional
        Most orders to evaluate; by default ``20 V + 100`` for up to 512 tokens, 60 for up to
        20,000 and 8 beyond, which keeps memory under 40 arrays of length V.

    Returns
    -------
    OrderLottery
        Valid, and certified by its gap, even if the search stopped early.

    Raises
    ------
    SolverFailure
        If a lottery attains more than a prefix value allows: `hits` is no hit function.

    Notes
    -----
    Wolfe, "Finding the nearest point in a polytope" (1976); Fujishige, "Submodular Functions and
    Optimization". One iteration costs one call of `hits` and O(V K) for K orders alive, which are
    kept: about 3 K arrays of length V.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> def hits(order):
    ...     return 1 - (1 - np.concatenate([[0.0], np.cumsum(q[order])])).clip(0) ** 2
    >>> lottery = minimum_norm_lottery(p, hits, np.arange(3), q)
    >>> round(lottery.attained, 9), round(lottery.upper, 9)
    (0.86, 0.86)
    """
    limit = _default_limit(len(target_masses)) if max_iterations is None else max_iterations
    search = _Search(target_masses, hits, tolerance, limit)
    for power in (1.0, 0.5, 0.25, 0.75, 0.1, 0.9, 1.25, 0.0):
        # Rounding can end a descent above the tolerance; another norm takes another way.
        search.descend(first_order, token_weights**power)
        if search.finished():
            break
    return search.lottery()


def norm_weights(target_masses: FloatArray, token_hits: FloatArray) -> FloatArray:
    """Weights under which Wolfe's algorithm needs few iterations.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p.
    token_hits : ndarray, shape (V,)
        f({i}), the most that token i can be selected with.

    Returns
    -------
    ndarray, shape (V,)
        ``max(p, f({i}))**0.75``. On 26 instances, real positions of 1,700 tokens and synthetic
        ones, without replacement and independent, the geometric mean of the gaps after 60
        iterations was 5e-7 with equal weights, 1e-7, 3e-8 and 4e-7 with powers 0.5, 0.75 and 1.
    """
    # The floor keeps hopelessly small tokens from drowning all others in rounding.
    return np.asarray(np.maximum(np.maximum(target_masses, token_hits) ** 0.75, 1e-15))


def _default_limit(vocab_size: int) -> int:
    if vocab_size <= 512:
        return 20 * vocab_size + 100
    return 60 if vocab_size <= 20_000 else 8


class _Search:
    """What successive descents have found: the best lottery, and the least upper bound."""

    def __init__(
        self,
        target_masses: FloatArray,
        hits: Callable[[IntArray], FloatArray],
        tolerance: float,
        limit: int,
    ) -> None:
        self._target, self._hits = target_masses, hits
        self._tolerance, self._limit = tolerance, limit
        self._iterations = 0
        self._upper = np.inf
        self._subset = np.ones(len(target_masses), dtype=np.bool_)
        self._attained = -np.inf

    def finished(self) -> bool:
        gap = certified_gap(self._upper, self._attained, method=_METHOD)
        return gap <= self._tolerance or self._iterations >= self._limit

    def descend(self, first_order: IntArray, token_weights: FloatArray) -> None:
        """Follow Wolfe's algorithm under one norm until it is finished or makes no progress."""
        target, scale = self._target, 1.0 / np.sqrt(token_weights)
        corral = _Corral(self._vertex(first_order), first_order, target, scale)
        selected = self._note(corral)
        shortest, stalled = np.inf, 0
        while not self.finished():
            point = (selected - target) * scale
            order = np.argsort(point * scale)
            vertex = self._vertex(order)
            shifted = (vertex - target) * scale
            # Wolfe's criterion: no vertex lies on the near side of the point, up to rounding.
            length = float(np.linalg.norm(point))
            reach = max(length, float(np.linalg.norm(shifted)))
            no_progress = point @ point - point @ shifted <= 1e-15 * length * reach
            # The norm falls at every step, except where rounding goes round in circles.
            stalled = stalled + 1 if length >= shortest * (1.0 - 1e-14) else 0
            shortest = min(shortest, length)
            if no_progress or stalled > 3 or not corral.add(vertex, order):
                return
            corral.descend()
            selected = self._note(corral)

    def _vertex(self, order: IntArray) -> FloatArray:
        """Vertex of the base polytope at an order, whose prefixes may improve the bound."""
        self._iterations += 1
        values = self._hits(order)
        cuts = cut_values(self._target[order], values)
        length = int(np.argmin(cuts))
        if cuts[length] < self._upper:
            self._upper = float(cuts[length])
            self._subset[:] = True
            self._subset[order[:length]] = False
        vertex = np.empty(len(order))
        # Rounding may let a prefix value fall by an ulp; a selection mass is never negative.
        vertex[order] = np.maximum(np.diff(values), 0.0)
        return vertex

    def _note(self, corral: _Corral) -> FloatArray:
        """Keep the corral's lottery if it is the best so far; give its selection masses."""
        selected = corral.selected()
        attained = float(np.minimum(self._target, selected).sum())
        if attained > self._attained:
            self._attained, self._selected = attained, selected
            self._weights, self._orders = corral.weights.copy(), list(corral.orders)
        return selected

    def lottery(self) -> OrderLottery:
        return OrderLottery(
            orders=np.array(self._orders),
            weights=self._weights,
            selected=self._selected,
            attained=self._attained,
            upper=min(self._upper, 1.0),
            subset=self._subset,
            iterations=self._iterations,
        )
