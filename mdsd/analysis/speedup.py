"""Wall-time factor of speculative decoding, from acceptance rates and costs; what to draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_name, check_number, check_whole, read_numbers
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray
from mdsd.analysis._costs import Cost, read_cost
from mdsd.analysis.tokens import expected_tree_tokens, tokens_by_depth
from mdsd.trees import TreeLike, read_tree

# --- wall time -----------------------------------------------------------------------------------


def speedup(
    acceptance_by_depth: ArrayLike,
    *,
    draft_cost: Cost,
    verification_cost: float = 0.0,
    target_cost: Cost = 1.0,
) -> float:
    """Compute the wall-time factor of drafting chains: below 1, plain decoding is faster.

    Parameters
    ----------
    acceptance_by_depth : array_like, shape (K,)
        As for `expected_tokens`; the step drafts K tokens.
    draft_cost : float, mapping or callable
        Cost of one forward pass of the draft over one token. All costs are in one unit, that of a
        forward pass of the target over one token unless `target_cost` says otherwise.
    verification_cost : float, default 0
        Further cost of a step: accepting and rejecting, rewinding caches and the like.
    target_cost : float, mapping or callable, default 1
        Cost of one forward pass of the target: the same for any number of tokens, or a measured
        table ``{tokens: cost}`` that is interpolated linearly, or a function of the number of
        tokens. A step passes K + 1 tokens, plain decoding one.

    Returns
    -------
    float
        Tokens of a step times the cost of plain decoding for one, over the cost of the step.

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range, or a table does not reach the number of tokens needed.

    Notes
    -----
    With constant acceptance a, no verification cost and a target whose cost is 1, it is
    ``(1 - a**(K + 1)) / ((1 - a) (1 + K c))``: Leviathan et al., "Fast Inference from Transformers
    via Speculative Decoding", Theorem 3.8.

    Examples
    --------
    >>> round(speedup([0.7, 0.7, 0.7], draft_cost=0.1), 6)
    1.948462
    >>> round(speedup([0.2, 0.2, 0.2], draft_cost=0.1), 6)
    0.96
    >>> table = {1: 20.0, 4: 23.0, 16: 40.0}  # milliseconds
    >>> round(speedup([0.7, 0.7, 0.7], draft_cost=2.0, target_cost=table), 6)
    1.746897
    """
    costs = _Costs(draft_cost, verification_cost, target_cost)
    tokens = tokens_by_depth(acceptance_by_depth)
    depth = len(tokens) - 1
    return costs.factor(float(tokens[-1]), [1] * depth, depth)


def tree_speedup(
    tree: TreeLike,
    acceptance_by_rank: ArrayLike,
    *,
    draft_cost: Cost,
    verification_cost: float = 0.0,
    target_cost: Cost = 1.0,
) -> float:
    """Compute the wall-time factor of drafting a tree: below 1, plain decoding is faster.

    Parameters
    ----------
    tree, acceptance_by_rank
        As for `expected_tree_tokens`.
    draft_cost, verification_cost, target_cost
        As for `speedup`. The draft makes one forward pass for each level, over the nodes that have
        children there; the target makes one over all drafted nodes and the last known token.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgumentError
        As for `expected_tree_tokens` and `speedup`.

    Examples
    --------
    >>> round(tree_speedup([2, 1], [0.6, 0.2], draft_cost=0.1), 12)
    1.9
    """
    costs = _Costs(draft_cost, verification_cost, target_cost)
    shape = read_tree(tree)
    tokens = expected_tree_tokens(shape, acceptance_by_rank)
    inner = set(shape.parents)
    passes = [sum(node in inner for node in shape.level(depth)) for depth in range(shape.depth)]
    return costs.factor(tokens, passes, shape.num_nodes)


class _Costs:
    """Checked costs of a step."""

    def __init__(self, draft_cost: Cost, verification_cost: float, target_cost: Cost) -> None:
        self._draft = read_cost(draft_cost, "draft_cost")
        self._verification = check_number("verification_cost", verification_cost)
        self._target = read_cost(target_cost, "target_cost", positive=True)

    def factor(self, tokens: float, draft_passes: list[int], drafted: int) -> float:
        """Wall-time factor of a step.

        Parameters
        ----------
        tokens : float
            Expected tokens of the step.
        draft_passes : list of int
            Tokens in each forward pass of the draft.
        drafted : int
            Drafted tokens that the target verifies.
        """
        step = sum(self._draft(count) for count in draft_passes)
        step += self._verification + self._target(drafted + 1)
        return tokens * self._target(1) / step


# --- what to draft -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BestDepth(FrozenArrays):
    """The depth of draft chains with the largest wall-time factor.

    Attributes
    ----------
    depth : int
        0 where no depth is faster than plain decoding; of equals the least.
    speedup : float
        Its factor, at least 1.
    tokens : ndarray of float64, shape (K + 1,)
        Expected tokens of a step with 0 to K drafts.
    speedups : ndarray of float64, shape (K + 1,)
        Factor of each; 1 for none, which is plain decoding.
    """

    depth: int
    speedup: float
    tokens: FloatArray
    speedups: FloatArray


def best_depth(
    acceptance_by_depth: ArrayLike,
    *,
    draft_cost: Cost,
    verification_cost: float = 0.0,
    target_cost: Cost = 1.0,
) -> BestDepth:
    """Find how many tokens a chain should draft.

    Parameters
    ----------
    acceptance_by_depth : array_like, shape (K,)
        As for `expected_tokens`, down to the largest depth in question: ``[a] * K`` if acceptance
        is assumed not to depend on depth.
    draft_cost, verification_cost, target_cost
        As for `speedup`.

    Returns
    -------
    BestDepth

    Raises
    ------
    InvalidArgumentError
        As for `speedup`.

    Examples
    --------
    >>> found = best_depth([0.8] * 8, draft_cost=0.1)
    >>> found.depth, round(found.speedup, 6)
    (6, 2.46964)
    >>> best_depth([0.2] * 8, draft_cost=0.3).depth
    0
    """
    costs = _Costs(draft_cost, verification_cost, target_cost)
    tokens = tokens_by_depth(acceptance_by_depth)
    drafted = enumerate(tokens.tolist()[1:], start=1)
    factors = np.array([1.0, *(costs.factor(mean, [1] * depth, depth) for depth, mean in drafted)])
    best = int(np.argmax(factors))
    return BestDepth(best, float(factors[best]), tokens, factors)


@dataclass(frozen=True, eq=False)
class BestNumDrafts(FrozenArrays):
    """The number of drafts with the largest wall-time factor at a given depth.

    Attributes
    ----------
    num_drafts : int
        0 where none is faster than plain decoding; of equals the least.
    speedup : float
        Its factor, at least 1.
    tokens : ndarray of float64, shape (N + 1,)
        Expected tokens of a step with 0 to N drafts.
    speedups : ndarray of float64, shape (N + 1,)
        Factor of each; 1 for none, which is plain decoding.
    """

    num_drafts: int
    speedup: float
    tokens: FloatArray
    speedups: FloatArray


def best_num_drafts(
    acceptance_by_num_drafts: ArrayLike,
    depth: int,
    *,
    layout: Literal["tree", "chains"] = "tree",
    draft_cost: Cost,
    verification_cost: float = 0.0,
    target_cost: Cost = 1.0,
) -> BestNumDrafts:
    """Find how many drafts to draw at each place.

    Parameters
    ----------
    acceptance_by_num_drafts : array_like, shape (N,) or (N, K)
        Row n - 1 is the acceptance with n drafts: by depth, each conditional on those before it; or
        one number, **assumed to be the same at every depth**. Bounds and acceptance rates of
        verifiers at n = 1, ..., N are such numbers.
    depth : int
        K >= 1, the levels of a step.
    layout : {"tree", "chains"}
        ``tree``: every node has n children. ``chains``: n chains from the last known token, one of
        which is followed; then one number per n holds for the first level only, and that of n = 1
        for the others.
    draft_cost, verification_cost, target_cost
        As for `speedup`. The draft makes one forward pass for each level, over all nodes of the
        level before.

    Returns
    -------
    BestNumDrafts

    Raises
    ------
    InvalidArgumentError
        As for `speedup`, and if `depth` or `layout` is out of range.

    Examples
    --------
    >>> found = best_num_drafts(
    ...     [0.7, 0.8, 0.85], 3, draft_cost=0.1, target_cost={1: 1.0, 41: 1.4}
    ... )
    >>> found.num_drafts, found.speedups.round(3).tolist()
    (2, [1.0, 1.905, 2.05, 1.886])
    """
    costs = _Costs(draft_cost, verification_cost, target_cost)
    levels = check_whole("depth", depth, 1)
    check_name("layout", layout, ("tree", "chains"))
    acceptance = _read_by_num_drafts(acceptance_by_num_drafts, levels, layout == "chains")
    tokens, factors = np.ones(len(acceptance) + 1), np.ones(len(acceptance) + 1)
    for n, by_depth in enumerate(acceptance, start=1):
        widths = [n if layout == "chains" else n ** (k + 1) for k in range(levels)]
        tokens[n] = tokens_by_depth(by_depth)[-1]
        factors[n] = costs.factor(float(tokens[n]), [1, *widths[:-1]], sum(widths))
    best = int(np.argmax(factors))
    return BestNumDrafts(best, float(factors[best]), tokens, factors)


def _read_by_num_drafts(values: ArrayLike, depth: int, chains: bool) -> FloatArray:
    """Read acceptance by number of drafts as rows by depth, (N, K)."""

    def fits(shape: tuple[int, ...]) -> bool:
        return len(shape) in (1, 2) and shape[0] > 0 and shape[1:] in ((), (depth,))

    expected = f"(N,) or (N, {depth}), N >= 1"
    rates = read_numbers(values, "acceptance_by_num_drafts", fits, expected)
    if rates.ndim == 2:
        return rates
    by_depth = np.repeat(rates[:, np.newaxis], depth, axis=1)
    if chains:
        by_depth[:, 1:] = rates[0]
    return by_depth
