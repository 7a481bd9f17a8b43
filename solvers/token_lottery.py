"""Lotteries over priority orders, found over orders of groups of tokens or of the tokens.

Large vocabularies are searched in groups, at a cost that hardly depends on their size; what the
lottery selects is then known token by token from a few numbers of each group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._typing import BoolArray, FloatArray, IntArray
from .certificates import certified_gap
from .group_hits import hits_of_groups
from .group_selection import (
    GroupSelection,
    find_groups,
    find_masses,
    select_groups,
    spread_selection,
)
from .grouped_law import GroupedLaw, join_parts, single_groups, with_fewer_nodes
from .law_parts import LawPart
from .order_search import FoundOrders, search_orders
from .polymatroid import OrderLottery, minimum_norm_lottery, norm_weights
from .prefix import cut_values

FEWEST_GROUPS = 16
"""Of each part, however many there are."""

FEW = 32
"""So many tokens are searched to the last digit at any effort."""


class Effort(NamedTuple):
    """How long to search, by default.

    Attributes
    ----------
    groups : int
        About how many tokens stand alone, and most groups of the others; for each part of the law.
    tolerance : float
        Gap at which the search ends where tokens share groups.
    limit : int
        Most orders that are then evaluated.
    every : int
        Orders are compared with one node in time of so many.
    several : int
        Times as many groups where drafts have different laws.
    """

    groups: int
    tolerance: float
    limit: int
    every: int
    several: int = 1


EXACT = Effort(groups=256, tolerance=2e-5, limit=120, every=1, several=4)
FAST = Effort(groups=48, tolerance=3e-4, limit=80, every=3, several=4)


def groups_of_each(effort: Effort, parts: int) -> int:
    """Share the groups among the parts of a law."""
    return max(effort.groups // parts, FEWEST_GROUPS)


class TokenLottery(ABC):
    """A lottery over priority orders of groups of tokens, with a certificate.

    Draw an order; of the drafts in the first group that was met one is selected, with equal
    chances, and kept with a probability that depends on its token alone.

    Attributes
    ----------
    orders : ndarray of int32, shape (K, G)
        Orders of the groups.
    weights : ndarray, shape (K,)
        Their probabilities.
    """

    orders: NDArray[np.int32]
    weights: FloatArray

    def __init__(self, target_masses: FloatArray, hits: Callable[[IntArray], FloatArray]) -> None:
        self._target, self._hits = target_masses, hits

    @abstractmethod
    def groups_of(self, tokens: IntArray) -> IntArray:
        """Group of each token, (K,); -1 for those that cannot be drafted."""

    @abstractmethod
    def masses_of(self, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
        """Give the entry of `selected`, and the chance to be kept, of each token, (K,) and (K,)."""

    @property
    @abstractmethod
    def selected(self) -> FloatArray:
        """m^, (V,): probability that each token is selected and kept."""

    @property
    @abstractmethod
    def _found_cut(self) -> tuple[float, BoolArray]:
        """Least value of subset selection that the search has seen, and its H, (V,)."""

    @property
    def _is_exhausted(self) -> bool:
        """Whether no order of tokens tells more than those that the search has seen."""
        return True

    @cached_property
    def attained(self) -> float:
        """``sum min(p, m^)``."""
        return float(np.minimum(self._target, self.selected).sum())

    @cached_property
    def _cut(self) -> tuple[float, BoolArray]:
        """Least value of subset selection known, and its H."""
        upper, subset = self._found_cut
        if not self._is_exhausted:
            # Where the search would go next, token by token.
            order = np.argsort(self.selected - self._target)
            values = cut_values(self._target[order], self._hits(order))
            length = int(np.argmin(values))
            if values[length] < upper:
                upper = float(values[length])
                subset = np.ones(len(order), dtype=np.bool_)
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


class SingleTokenLottery(TokenLottery):
    """A lottery over orders of tokens, of a law of which only prefix hits are known."""

    def __init__(
        self,
        target_masses: FloatArray,
        hits: Callable[[IntArray], FloatArray],
        lottery: OrderLottery,
    ) -> None:
        super().__init__(target_masses, hits)
        self.orders, self.weights, self._lottery = lottery.orders, lottery.weights, lottery

    def groups_of(self, tokens: IntArray) -> IntArray:
        """Group of each token: itself."""
        return tokens

    def masses_of(self, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
        """Give `selected` at each token, and 1: all of them are kept."""
        return self.selected[tokens], np.ones(len(tokens))

    @cached_property
    def selected(self) -> FloatArray:
        """m^, (V,), from the hits of the orders found."""
        selected = np.zeros(len(self._target))
        for order, weight in zip(self.orders, self.weights, strict=True):
            # Rounding may let a prefix value fall by an ulp.
            gains = np.maximum(np.diff(self._hits(order.astype(np.int64))), 0.0)
            selected[order] += weight * gains
        return selected

    @property
    def _found_cut(self) -> tuple[float, BoolArray]:
        return self._lottery.upper, self._lottery.subset


class GroupLottery(TokenLottery):
    """A lottery over orders of groups of tokens, of a law of known parts."""

    def __init__(
        self,
        target_masses: FloatArray,
        hits: Callable[[IntArray], FloatArray],
        parts: Sequence[LawPart],
        law: GroupedLaw,
        found: FoundOrders | OrderLottery,
        *,
        exhaustive: bool,
    ) -> None:
        super().__init__(target_masses, hits)
        self.orders, self.weights = found.orders, found.weights
        self._parts, self._law, self._found = parts, law, found
        self._exhaustive = exhaustive
        self._asked: tuple[int, GroupSelection] | None = None  # of the last group asked about

    @cached_property
    def _selection(self) -> GroupSelection:
        return select_groups(self.orders, self.weights, self._law, -1)

    def _selection_of(self, groups: IntArray) -> GroupSelection:
        """Give the selection of some groups: of one alone where that is all that is asked for."""
        if "_selection" in vars(self) or groups[0] < 0 or not (groups == groups[0]).all():
            return self._selection
        one = int(groups[0])
        if self._asked is None or self._asked[0] != one:
            self._asked = one, select_groups(self.orders, self.weights, self._law, one)
        return self._asked[1]

    def _own(self, part: LawPart) -> FloatArray:
        """Target masses of the tokens of a part."""
        return self._target[part.offset : part.offset + part.vocab_size]

    def groups_of(self, tokens: IntArray) -> IntArray:
        """Group of each token; -1 for those that cannot be drafted."""
        groups = np.full(len(tokens), -1, dtype=np.int64)
        for place, part in enumerate(self._parts):
            find_groups(self._law, place, tokens, self._own(part), part.probs, groups)
        return groups

    def masses_of(self, tokens: IntArray) -> tuple[FloatArray, FloatArray]:
        """Give `selected` at each token, and the chance that it is kept when it is selected."""
        groups = self.groups_of(tokens)
        kept, chances = np.zeros(len(tokens)), np.ones(len(tokens))
        if not len(tokens):
            return kept, chances
        selection = self._selection_of(groups)
        for place, part in enumerate(self._parts):
            found = tokens, groups, part.probs, kept, chances
            find_masses(self._law, selection, place, *found)
        return kept, chances

    @cached_property
    def selected(self) -> FloatArray:
        """m^, (V,): probability that each token is selected and kept."""
        selected = np.zeros(len(self._target))
        for place, part in enumerate(self._parts):
            own = selected[part.offset : part.offset + part.vocab_size]
            spread_selection(self._law, self._selection, place, self._own(part), part.probs, own)
        return selected

    @property
    def _is_exhausted(self) -> bool:
        return self._exhaustive or bool(single_groups(self._law).all())

    @property
    def _found_cut(self) -> tuple[float, BoolArray]:
        tokens = np.arange(len(self._target))
        groups = self.groups_of(tokens) if len(tokens) else tokens
        # Tokens that are never drafted count for neither side.
        subset = np.where(groups < 0, self._target == 0.0, self._found.subset[groups])
        return self._found.upper, subset


def find_group_lottery(
    target_masses: FloatArray,
    hits: Callable[[IntArray], FloatArray],
    parts: Sequence[LawPart],
    *,
    tolerance: float = 1e-9,
    max_iterations: int | None = None,
    effort: Effort = EXACT,
) -> GroupLottery:
    """Find a lottery over orders of groups whose acceptance is close to the optimum.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
        p, summing to 1.
    hits : callable
        Maps an order of all tokens (V,) to its prefix hit probabilities (V + 1,): it certifies.
    parts : sequence of LawPart
        What is drafted.
    tolerance : float, default 1e-9
        Gap over orders of groups at which a search stops.
    max_iterations : int, optional
        Most orders to evaluate, with groups that are refined until the gap is at most `tolerance`
        or the orders are used up; by default as `effort` says where tokens share groups, else what
        `minimum_norm_lottery` takes.
    effort : Effort, default EXACT

    Returns
    -------
    GroupLottery
        Valid, and certified by its gap, wherever the search stopped.

    Raises
    ------
    SolverFailure
        If what is certified is less than what is attained.
    """
    count = groups_of_each(effort, len(parts))
    problem = target_masses, hits, parts
    if max_iterations is None:
        law = _grouped(target_masses, parts, count, effort.several)
        alone = bool(single_groups(law).all())
        if alone and (effort is EXACT or len(law.targets) <= FEW):
            lottery = minimum_norm_orders(law, tolerance, None)
            return GroupLottery(*problem, law, lottery, exhaustive=True)
        gap = max(tolerance, effort.tolerance)
        coarse = with_fewer_nodes(law, effort.every) if effort.every > 1 else law
        orders = search_orders(law, coarse, gap, effort.limit)
        return GroupLottery(*problem, law, orders, exhaustive=effort is not EXACT)
    best: GroupLottery | None = None
    left = max_iterations
    while True:
        law = _grouped(target_masses, parts, count, effort.several)
        lottery = minimum_norm_orders(law, tolerance, left)
        found = GroupLottery(*problem, law, lottery, exhaustive=False)
        if best is None or found.gap < best.gap:
            best = found
        left -= lottery.iterations
        if left <= 0 or best.gap <= tolerance or single_groups(law).all():
            return best
        count *= 4


def _grouped(
    target_masses: FloatArray, parts: Sequence[LawPart], count: int, several: int
) -> GroupedLaw:
    law: GroupedLaw | None = None
    for part in parts:
        own = target_masses[part.offset : part.offset + part.vocab_size]
        # Tokens of one ratio of masses may differ in their shares of draws from several laws.
        groups = count * several if len(part.probs) > 1 else count
        grouped = part.group(own, groups, groups)
        if part.offset:
            grouped = grouped._replace(tokens=grouped.tokens + part.offset)
        law = grouped if law is None else join_parts(law, grouped)
    if law is None:
        raise ValueError("parts is empty; expected at least one")
    return law


def minimum_norm_orders(
    law: GroupedLaw, tolerance: float, max_iterations: int | None
) -> OrderLottery:
    """Search orders of groups to the last digit, which takes a factorisation that keeps them.

    Parameters
    ----------
    law : GroupedLaw
    tolerance, max_iterations
        As for `minimum_norm_lottery`.
    """
    target = law.targets
    return minimum_norm_lottery(
        target,
        lambda order: hits_of_groups(order, law)[0],
        np.argsort(-target / np.maximum(law.likely, np.finfo(np.float64).tiny)),
        norm_weights(target, np.minimum(law.likely, 1.0)),
        tolerance=tolerance,
        max_iterations=max_iterations,
    )


def find_single_lottery(
    target_masses: FloatArray,
    hits: Callable[[IntArray], FloatArray],
    token_hits: FloatArray,
    first_order: IntArray,
    *,
    tolerance: float = 1e-9,
    max_iterations: int | None = None,
) -> SingleTokenLottery:
    """Find a lottery over orders of tokens, of a law of which only prefix hits are known.

    Parameters
    ----------
    target_masses, hits, tolerance, max_iterations
        As for `find_group_lottery`; by default as many orders as `minimum_norm_lottery` takes.
    token_hits : ndarray, shape (V,)
        Probability that each token is drafted, or a bound on it.
    first_order : ndarray of int64, shape (V,)
        Where to start.
    """
    lottery = minimum_norm_lottery(
        target_masses,
        hits,
        first_order,
        norm_weights(target_masses, token_hits),
        tolerance=tolerance,
        max_iterations=max_iterations,
    )
    return SingleTokenLottery(target_masses, hits, lottery)
