"""Trees that grow where the draft model says that drafts are most likely to be accepted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_number, check_type, check_whole, shown
from mdsd._ranks import read_acceptance_by_rank
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.growth import DraftedLevel, TreeGrowth
from mdsd.drafts import DraftKind
from mdsd.errors import InvalidArgumentError
from mdsd.trees import MAX_NODES

DEFAULT_ACCEPTANCE = (0.67, 0.18, 0.06, 0.03)
"""At a place of average difficulty, where nothing has been measured."""

AVERAGE_SPREAD = 0.5
"""`DraftedLevel.spread` of such a place."""


class GrowingTree(TreeGrowth):
    """Spend a budget of drafts where they are most likely to be accepted.

    Parameters
    ----------
    budget : int
        Most drafted tokens, at least 1.
    depth : int
        Most levels, at least 1.
    max_children : int, optional
        Most children of a node; by default, and at most, as many as `acceptance_by_rank` has.
    acceptance_by_rank : array_like, shape (R,), default (0.67, 0.18, 0.06, 0.03)
        On average over places, the acceptance of a single draft, and what each further draft adds
        to it. For `rrs` that is the acceptance of the child of rank r, as for
        `mdsd.analysis.plan_tree`.
    ordered : bool, optional
        Whether to reckon with drafts that are tried in the order drawn, as by `rrs`, `kseq` and
        `traversal`, and not all drafts of a node together; by default as the verifier has it.
    min_value : float, default 0
        Drafts that are less likely than this to be accepted are left out, and some of the budget
        with them.

    Attributes
    ----------
    budget, depth, max_children, ordered, min_value
        As given.
    acceptance_by_rank : tuple of float

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range.

    Notes
    -----
    Before each level is drawn the rest of the tree is planned, for the budget that is left: what is
    below the next level as if every place were of average difficulty. A node with n children is
    worth what all of them are accepted, the sum of n acceptances, each child a share of it, and so
    on below; the best number of children and the best budgets of all nodes are found by dynamic
    programming, with gains that do not rise taken for what they are on average. Of this plan the
    next level is drawn, and then all is planned anew.

    *A place.* With G the probability that two draws from the draft model differ, models agree the
    better the smaller G: the acceptance ``a_0`` of the first child is taken for
    ``1 - sqrt(2 G) (1 - a_0)``, and what those of other ranks add for ``sqrt(2 G) a_r``. At a point
    mass G = 0, and one child is enough; at the average place G = 1/2. Of the recorded positions of
    SmolLM2 (`mdsd.datasets.load`), drafted by the model without two layers at temperature 1 and
    top-k 50, the fifths by G of 0.21, 0.57, 0.74, 0.85 and 0.93 reject 0.21, 0.31, 0.38, 0.37 and
    0.40 of single drafts, and by the square root 0.21, 0.35, 0.40, 0.43 and 0.45.

    *A token.* Where verifiers try drafts in order, the child of rank r is worth ``a_r`` of its
    parent. Else a drafted token x has a share of what all children are worth in proportion to
    ``q(x) / f(x)``, f(x) the probability that it is drafted at all. That is what it gets of a
    verifier that sees a set of drafts and not their order, where models agree: of the mass
    ``c p(x)`` accepted with x, every draw of x has its part. So a token of small q that came up is
    not as unlikely to be accepted as q says. f is estimated by ``1 - (1 - q)^n``, and is 1 for
    drafts that are certain. Of a token drafted twice the first node has it all.

    Nothing depends on tokens of the level that is to be drawn, so that decoders are lossless with
    any verifier.

    Examples
    --------
    >>> import numpy as np, mdsd
    >>> tree, kind = GrowingTree(8, 3), mdsd.WithoutReplacement.kind()
    >>> def root(*probs):
    ...     return DraftedLevel(kind, None, (-1,), (0,), (np.array([probs]),), 3, 8)
    >>> tree.children(root(0.98, 0.01, 0.01)), tree.children(root(0.4, 0.3, 0.3))
    ([1], [2])
    """

    def __init__(
        self,
        budget: int,
        depth: int,
        *,
        max_children: int | None = None,
        acceptance_by_rank: ArrayLike = DEFAULT_ACCEPTANCE,
        ordered: bool | None = None,
        min_value: float = 0.0,
    ) -> None:
        self.budget = check_whole("budget", budget, 1, MAX_NODES)
        self.depth = check_whole("depth", depth, 1, MAX_NODES)
        rates = read_acceptance_by_rank(acceptance_by_rank)
        if rates.ndim != 1:
            raise InvalidArgumentError(
                f"acceptance_by_rank has shape {rates.shape}; expected one number for each rank"
            )
        most = len(rates) if max_children is None else max_children
        self.max_children = check_whole("max_children", most, 1, len(rates), otherwise=" or None")
        self.acceptance_by_rank: tuple[float, ...] = tuple(rates[: self.max_children].tolist())
        if ordered is not None:
            check_type("ordered", ordered, bool)
        self.ordered = ordered
        self._known: dict[tuple[tuple[int, ...], bool], list[FloatArray]] = {}
        self.min_value = check_number("min_value", min_value)
        if self.min_value > 1.0:
            raise InvalidArgumentError(f"min_value is {shown(min_value)}; expected at most 1")

    def __repr__(self) -> str:
        return f"GrowingTree(budget={self.budget}, depth={self.depth})"

    def children(self, level: DraftedLevel) -> Sequence[int]:  # noqa: D102
        counts = [c for c in range(1, self.max_children + 1) if level.can_draft(c)]
        if not counts:
            return [0] * len(level.parents)
        values, rates = np.array(self._values(level)), np.array(self._rates(level))
        worths = self._worths(level, counts, rates)
        found = []
        for place, budget in enumerate(_budgets(values, worths.max(axis=1)).tolist()):
            chosen = counts[int(worths[place, :, budget].argmax())] if budget >= counts[0] else 0
            while chosen and values[place] * rates[place, chosen - 1] < self.min_value:
                chosen = max((c for c in counts if c < chosen), default=0)
            found.append(chosen)
        return found

    def _worths(self, level: DraftedLevel, counts: Sequence[int], rates: FloatArray) -> FloatArray:
        """Estimate the tokens accepted below each node, (B, C, drafts left + 1).

        By number of children and budget: that of an average node, times how much more often a
        child is accepted here.
        """
        below = self._gains(level.levels_left - 1, counts, self._by_order(level))
        average = np.array([self._worth(c, below, self._by_order(level)) for c in counts])
        last = np.array(counts) - 1
        usual = np.cumsum(self.acceptance_by_rank)[last]
        scales = np.cumsum(rates, axis=1)[:, last] / np.where(usual > 0.0, usual, 1.0)
        if level.kind.distinct:
            # No more different tokens can be drawn than there are, but one at least.
            scales[np.maximum(level.support, counts[0])[:, np.newaxis] < counts] = 0.0
        return np.asarray(scales[:, :, np.newaxis] * average[:, : level.drafts_left + 1])

    def _by_order(self, level: DraftedLevel) -> bool:
        return level.in_draft_order if self.ordered is None else self.ordered

    def _gains(self, levels: int, counts: Sequence[int], by_order: bool) -> FloatArray:
        """Give what each further draft below an average node adds, (budget,)."""
        known = self._known.setdefault((tuple(counts), by_order), [np.zeros(self.budget)])
        while len(known) <= levels:
            best = np.max([self._worth(c, known[-1], by_order) for c in counts], axis=0)
            known.append(np.diff(_envelope(best)))
        return known[levels]

    def _worth(self, count: int, below: FloatArray, by_order: bool) -> FloatArray:
        """Estimate the tokens accepted below an average node with so many children, by budget.

        Of shape (budget + 1,); 0 where the budget is too small. ``below`` are the gains below each
        child.
        """
        rates = np.array(self.acceptance_by_rank[:count])
        shares = rates if by_order else np.full(count, rates.mean())
        gains = np.sort(np.outer(shares, below), axis=None)[::-1]
        worth = np.zeros(self.budget + 1)
        worth[count:] = rates.sum()
        worth[count + 1 :] += np.cumsum(gains)[: max(self.budget - count, 0)]
        return worth

    def _rates(self, level: DraftedLevel) -> list[list[float]]:
        """Estimate the acceptance by rank after each node."""
        first = self.acceptance_by_rank[0]
        hardest = 1.0 / (1.0 - first) if first < 1.0 else np.inf
        hardness = np.minimum(np.sqrt(level.spread / AVERAGE_SPREAD), hardest)
        rates = np.outer(hardness, self.acceptance_by_rank)
        rates[:, 0] = 1.0 - hardness * (1.0 - first)
        if level.kind.distinct:
            # No more different tokens can be drawn than there are.
            rates[np.arange(self.max_children) >= level.support[:, np.newaxis]] = 0.0
        found: list[list[float]] = rates.tolist()
        return found

    def _values(self, level: DraftedLevel) -> list[float]:
        """Estimate how likely it is that a step comes to each node."""
        levels = [level]
        while (above := levels[-1].above) is not None:
            levels.append(above)
        values = [1.0]
        for above, below in pairwise(reversed(levels)):
            values = self._values_below(above, below, values)
        return values

    def _values_below(
        self, above: DraftedLevel, level: DraftedLevel, values: list[float]
    ) -> list[float]:
        """Give those of a level from those of the one above."""
        rates = self._rates(above)
        families: dict[int, list[int]] = {}
        for place, parent in enumerate(level.parents):
            families.setdefault(parent, []).append(place)
        found = [0.0] * len(level.parents)
        for parent, places in families.items():
            tokens = [level.token_ids[place] for place in places]
            probs = np.array([each[parent, tokens] for each in above.draft_probs])
            by_rank = np.array(rates[parent][: len(places)])
            alike = probs.mean(axis=0) / _drafted(level.kind, probs)
            shares = by_rank if self._by_order(level) else alike
            first = [tokens.index(token) == rank for rank, token in enumerate(tokens)]
            shares = np.where(first, shares, 0.0)
            if shares.any():
                worth = values[parent] * by_rank.sum() * shares / shares.sum()
                for place, value in zip(places, worth.tolist(), strict=True):
                    found[place] = value
        return found


def _budgets(values: FloatArray, worths: FloatArray) -> IntArray:
    """Share drafts among nodes, (B,), one by one where the next is worth most.

    Parameters
    ----------
    values : ndarray, shape (B,)
        How likely it is that a step comes to each node.
    worths : ndarray, shape (B, N + 1)
        What the drafts below each of them are worth then, by their number.
    """
    drafts = worths.shape[1] - 1
    gains = values[:, np.newaxis] * np.array([np.diff(_envelope(curve)) for curve in worths])
    taken = np.argsort(-gains, axis=None, kind="stable")[:drafts]
    taken = taken[gains.ravel()[taken] > 0.0]
    return np.bincount(taken // drafts, minlength=len(values))


def _envelope(values: FloatArray) -> FloatArray:
    """Give the least concave sequence that is nowhere below a sequence.

    Examples
    --------
    >>> _envelope(np.array([0.0, 0.0, 1.0, 1.25])).tolist()
    [0.0, 0.5, 1.0, 1.25]
    """
    kept: list[int] = []
    for place, value in enumerate(values.tolist()):
        while len(kept) > 1:
            first, last = kept[-2:]
            slope = (value - values[first]) / (place - first)
            if values[last] > values[first] + slope * (last - first):
                break
            kept.pop()
        kept.append(place)
    return np.interp(np.arange(len(values)), kept, values[kept])


def _drafted(kind: DraftKind, draft_probs: FloatArray) -> FloatArray:
    """Estimate how likely each drafted token was to be drafted, from the probabilities of all."""
    count = draft_probs.shape[1]
    if kind.one_model_each:
        drafted = 1.0 - np.prod(1.0 - draft_probs[:count], axis=0)
        return np.asarray(np.maximum(drafted, draft_probs[:count].max(axis=0)))
    probs = draft_probs[0]
    certain = count if kind.refusal(count) else min(kind.num_certain(count), count)
    found, others = np.ones(count), np.argsort(-probs, kind="stable")[certain:]
    left = max(1.0 - (probs.sum() - probs[others].sum()), probs[others].max(initial=0.0))
    drafted = 1.0 - (1.0 - probs[others] / left) ** (count - certain)
    found[others] = np.maximum(drafted, probs[others])  # of the smallest 1 - q is 1
    return found
