"""Trees that grow where the draft model says that drafts are most likely to be accepted."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count as counter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_number, check_type, check_whole, shown
from mdsd._ranks import read_acceptance_by_rank
from mdsd._typing import FloatArray
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
    Before each level is drawn the rest of the tree is planned: of all nodes that could be added,
    those most likely to be accepted are taken until the budget is spent. Of this plan the next
    level is drawn, and then all is planned anew. Nodes of the next level have a parent that was
    drafted; what comes below them is expected to be of average difficulty.

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
    >>> tree, kind = GrowingTree(4, 3), mdsd.WithoutReplacement.kind()
    >>> def root(*probs):
    ...     return DraftedLevel(kind, None, (-1,), (0,), (np.array([probs]),), 3, 4)
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
        self.min_value = check_number("min_value", min_value)
        if self.min_value > 1.0:
            raise InvalidArgumentError(f"min_value is {shown(min_value)}; expected at most 1")

    def __repr__(self) -> str:
        return f"GrowingTree(budget={self.budget}, depth={self.depth})"

    def children(self, level: DraftedLevel) -> Sequence[int]:  # noqa: D102
        counts = [c for c in range(1, self.max_children + 1) if level.can_draft(c)]
        found = [0] * len(level.parents)
        below = level.levels_left - 1
        order = counter()
        heap: list[tuple[float, int, _Offer]] = []

        def offer(value: float, rates: Sequence[float], step: int, left: int, place: int) -> None:
            """Offer the next children of a node, by what one of them is worth on average."""
            if step == len(counts):
                return
            first = counts[step - 1] if step else 0
            worth = value * sum(rates[first : counts[step]]) / (counts[step] - first)
            if worth > 0.0 and worth >= self.min_value:
                heappush(heap, (-worth, next(order), _Offer(value, rates, step, left, place)))

        rates_by_place = self._rates(level)
        for place, value in enumerate(self._values(level)):
            offer(value, rates_by_place[place], 0, below, place)
        drafts = level.drafts_left
        while heap and drafts:
            _, _, (value, rates, step, left, place) = heappop(heap)
            first, stop = counts[step - 1] if step else 0, counts[step]
            if stop - first > drafts:
                continue
            drafts -= stop - first
            offer(value, rates, step + 1, left, place)
            if left == below:
                found[place] = stop
            for rate in rates[first:stop] if left else ():
                offer(value * rate, self.acceptance_by_rank, 0, left - 1, place)
        return found

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
        above = level.above
        if above is None:
            return [1.0]
        values, rates = self._values(above), self._rates(above)
        families: dict[int, list[int]] = {}
        for place, parent in enumerate(level.parents):
            families.setdefault(parent, []).append(place)
        found = [0.0] * len(level.parents)
        for parent, places in families.items():
            tokens = [level.token_ids[place] for place in places]
            probs = np.array([each[parent, tokens] for each in above.draft_probs])
            by_rank = np.array(rates[parent][: len(places)])
            by_order = level.in_draft_order if self.ordered is None else self.ordered
            shares = by_rank if by_order else probs.mean(axis=0) / _drafted(level.kind, probs)
            first = [tokens.index(token) == rank for rank, token in enumerate(tokens)]
            shares = np.where(first, shares, 0.0)
            if shares.any():
                worth = values[parent] * by_rank.sum() * shares / shares.sum()
                for place, value in zip(places, worth.tolist(), strict=True):
                    found[place] = value
        return found


class _Offer(NamedTuple):
    """Children that a node could get: what it is worth, and which of its ranks are next."""

    value: float
    rates: Sequence[float]
    step: int
    levels_left: int
    place: int


def _drafted(kind: DraftKind, draft_probs: FloatArray) -> FloatArray:
    """Estimate how likely each drafted token was to be drafted, from the probabilities of all."""
    count = draft_probs.shape[1]
    if kind.one_model_each:
        return np.asarray(1.0 - np.prod(1.0 - draft_probs[:count], axis=0))
    probs = draft_probs[0]
    certain = count if kind.refusal(count) else min(kind.num_certain(count), count)
    found, others = np.ones(count), np.argsort(-probs, kind="stable")[certain:]
    left = max(1.0 - (probs.sum() - probs[others].sum()), probs[others].max(initial=0.0))
    found[others] = 1.0 - (1.0 - probs[others] / left) ** (count - certain)
    return found
