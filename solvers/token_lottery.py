"""Lotteries over priority orders of tokens, found over orders of groups of tokens.

Large vocabularies are searched in groups (`solvers.groups`), at a cost that hardly depends on their
size; what the lottery selects is then known token by token, lazily, and certified token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from solvers._typing import BoolArray, FloatArray, IntArray
from solvers.certificates import certified_gap
from solvers.groups import TokenGroups, single_tokens
from solvers.polymatroid import OrderLottery, minimum_norm_lottery, norm_weights
from solvers.prefix import cut_values


class Effort(NamedTuple):
    """How long to search, by default, where tokens share groups.

    Attributes
    ----------
    share : float
        Of the groups that a law begins with.
    content : tuple of (int, float)
        Enough orders, if the gap is then at most the second number.
    limit : int
        Most orders.
    """

    share: float
    content: tuple[int, float]
    limit: int


EXACT = Effort(1.0, (40, 1e-4), 160)
FAST = Effort(0.25, (0, 3e-4), 60)


class Selection(Protocol):
    """What a lottery over orders of groups selects."""

    def of_group(self, group: int) -> FloatArray:
        """Give the selection masses of the tokens of a group, in its order."""

    def of_all(self) -> FloatArray:
        """Give the selection masses of the tokens of all groups, (S,), group by group."""


class GroupedLaw(Protocol):
    """The law of the draws as orders of groups of tokens see it.

    Attributes
    ----------
    groups : TokenGroups
        Groups of all tokens that can be drawn.
    """

    groups: TokenGroups

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Order of the groups, (G,), to start from: by target mass (G,) over mass of the draws."""

    def group_hits(self) -> FloatArray:
        """Probability, (G,), that some draw is in each group, or a bound on it."""

    def prefix_hits(self, order: IntArray) -> FloatArray:
        """Probability, (G + 1,), that some draw is in the first k groups of an order."""

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> Selection:
        """Say with what mass each token is selected by a lottery over orders of the groups.

        Parameters
        ----------
        orders : ndarray of int32, shape (K, G)
        weights : ndarray, shape (K, G)
            What each order counts for each group: its probability, times that of whatever else has
            to happen for a draw of that group to be selected.
        """


class SingleTokens:
    """A law of which only prefix hits are known, a group for each token.

    Parameters
    ----------
    hits : callable
        Maps an order of all tokens (V,) to its prefix hit probabilities (V + 1,).
    token_hits : ndarray, shape (V,)
        Probability that each token is drawn, or a bound on it.
    order : ndarray of int64, shape (V,)
        Where to start the search.
    """

    def __init__(
        self,
        hits: Callable[[IntArray], FloatArray],
        token_hits: FloatArray,
        order: IntArray,
    ) -> None:
        self.groups = single_tokens(len(token_hits))
        self.prefix_hits = hits
        self._token_hits, self._order = token_hits, order

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Give the order to start from."""
        return self._order

    def group_hits(self) -> FloatArray:
        """Probability, (V,), that each token is drawn, or a bound on it."""
        return self._token_hits

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> KnownSelection:
        """Say with what mass each token is selected by a lottery over their orders."""
        selected = np.zeros(len(self.groups))
        for order, counting in zip(orders, weights, strict=True):
            # Rounding may let a prefix value fall by an ulp.
            gains = np.maximum(np.diff(self.prefix_hits(order.astype(np.int64))), 0.0)
            selected[order] += counting[order] * gains
        return KnownSelection(selected)


class KnownSelection:
    """Selection masses of tokens that are groups by themselves.

    Parameters
    ----------
    selected : ndarray, shape (G,)
    """

    def __init__(self, selected: FloatArray) -> None:
        self._selected = selected

    def of_group(self, group: int) -> FloatArray:
        """Give the selection mass of the one token of a group."""
        return self._selected[group : group + 1]

    def of_all(self) -> FloatArray:
        """Give the selection masses of all of them."""
        return self._selected


class TokenLottery:
    """A lottery over priority orders of groups of tokens, with a certificate.

    Draw an order of the groups; in each group the tokens stand in the group's order or in its
    reverse, with probability 1/2 each; the drawn token that comes first is selected. What costs a
    pass over all tokens is computed when it is first asked for.

    Attributes
    ----------
    groups : TokenGroups
        Tokens in no group are never drawn.
    orders : ndarray of int32, shape (K, G)
        Orders of the groups.
    weights : ndarray, shape (K,)
        Their probabilities.
    """

    def __init__(
        self,
        target_masses: FloatArray,
        hits: Callable[[IntArray], FloatArray],
        law: GroupedLaw,
        lottery: OrderLottery,
    ) -> None:
        self.groups = law.groups
        self.orders: NDArray[np.int32] = lottery.orders
        self.weights = lottery.weights
        self._target, self._hits = target_masses, hits
        self._law, self._lottery = law, lottery
        self._known: dict[int, FloatArray] = {}

    @cached_property
    def _selection(self) -> Selection:
        return self._law.select(self.orders, self._lottery.weights_by_token)

    def selected_of(self, token: int) -> float:
        """m^ of one token: the work of its group alone, or none if `selected` is known."""
        if "selected" in vars(self):
            return float(self.selected[token])
        group = int(self.groups.group[token])
        if group < 0:
            return 0.0
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._selection.of_group(group)
        return float(known[self.groups.place[token]])

    @cached_property
    def selected(self) -> FloatArray:
        """m^, (V,): probability that each token is selected."""
        selected = np.zeros(self.groups.vocab_size)
        selected[self.groups.members] = self._selection.of_all()
        return selected

    @cached_property
    def attained(self) -> float:
        """``sum min(p, m^)``."""
        return float(np.minimum(self._target, self.selected).sum())

    @cached_property
    def _cut(self) -> tuple[float, BoolArray]:
        """Least value of subset selection seen, and its H."""
        upper, subset = self._lottery.upper, self._target == 0.0
        subset[self.groups.members] = False
        subset[self.groups.tokens(np.flatnonzero(self._lottery.subset))] = True
        if not self.groups.single.all():
            # Where the search would go next, token by token.
            order = np.argsort(self.selected - self._target)
            values = cut_values(self._target[order], self._hits(order))
            length = int(np.argmin(values))
            if values[length] < upper:
                upper = float(values[length])
                subset[:] = True
                subset[order[:length]] = False
        return min(upper, 1.0), subset

    @property
    def upper(self) -> float:
        """Certified upper bound: no rule accepts more."""
        return self._cut[0]

    @property
    def subset(self) -> BoolArray:
        """The H of subset selection that gives `upper`, (V,)."""
        return self._cut[1]

    @property
    def gap(self) -> float:
        """Certified distance of the attained acceptance from the optimum."""
        return certified_gap(self.upper, self.attained, method="order lottery")


def find_token_lottery(
    target_masses: FloatArray,
    hits: Callable[[IntArray], FloatArray],
    laws: Iterable[GroupedLaw],
    *,
    tolerance: float = 1e-9,
    max_iterations: int | None = None,
    effort: Effort = EXACT,
) -> TokenLottery:
    """Find a lottery over priority orders whose acceptance is close to the optimum.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, summing to 1.
    hits : callable
        Maps an order of all tokens (V,) to its prefix hit probabilities (V + 1,): it certifies.
    laws : iterable of GroupedLaw
        From coarse groups to fine ones. The first is searched; the others only where
        `max_iterations` is given and not used up at a gap above `tolerance`.
    tolerance : float, default 1e-9
        Gap over orders of groups at which a search stops.
    max_iterations : int, optional
        Most orders to evaluate; by default those of `effort` where tokens share groups, else what
        `minimum_norm_lottery` takes.
    effort : Effort, default EXACT
        EXACT ends after 40 to 160 orders, depending on the gap; FAST at a gap of 3e-4.

    Returns
    -------
    TokenLottery
        Valid, and certified by its gap, wherever the search stopped.

    Raises
    ------
    SolverFailure
        If what is certified is less than what is attained.
    """
    best: TokenLottery | None = None
    left = max_iterations
    for law in laws:
        shared = not law.groups.single.all()
        target = law.groups.sums(target_masses)
        by_default = left is None and shared
        lottery = minimum_norm_lottery(
            target,
            law.prefix_hits,
            law.first_order(target),
            norm_weights(target, law.group_hits()),
            tolerance=tolerance,
            max_iterations=effort.limit if by_default else left,
            content=effort.content if by_default else None,
        )
        found = TokenLottery(target_masses, hits, law, lottery)
        if left is None:
            return found
        if best is None or found.gap < best.gap:
            best = found
        left -= lottery.iterations
        if left <= 0 or best.gap <= tolerance:
            break
    if best is None:
        raise ValueError("laws is empty; expected at least one")
    return best
