"""Expected tokens of one step of speculative decoding, from acceptance rates.

Nothing here assumes that acceptances at different depths are independent or alike: an acceptance at
a depth is the share of steps that accept there among those that came so far. `iid_expected_tokens`
alone takes one rate for every depth instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, read_array, read_number, read_numbers, row_name, shown
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray
from mdsd.analysis._simulation import mean_and_stderr
from mdsd.errors import InvalidArgumentError
from mdsd.trees import TreeLike, read_tree

RANK_SLACK = 1e-9
"""How far above 1 rounding may take the sum of the acceptances of one node's children."""


# --- from given acceptances ----------------------------------------------------------------------


def expected_tokens(acceptance_by_depth: ArrayLike) -> float:
    """Compute the expected tokens of one step of a chain: the accepted drafts and one more.

    Parameters
    ----------
    acceptance_by_depth : array_like, shape (K,)
        Probability that the draft at depth k is accepted, given that all before it were; measured
        or assumed. Of an empty one nothing is drafted.

    Returns
    -------
    float
        ``1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_K``.

    Raises
    ------
    InvalidArgumentError
        If it holds something else than numbers in [0, 1].

    Notes
    -----
    Exact whatever the dependence between depths, as every acceptance is conditional on those
    before. With the same rate a at every depth it is ``(1 - a**(K + 1)) / (1 - a)``, as in
    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", eq. (1).

    Examples
    --------
    >>> round(expected_tokens([0.7, 0.7, 0.7]), 12)
    2.533
    >>> round(expected_tokens([0.9, 0.7, 0.5]), 12)
    2.845
    """
    return float(tokens_by_depth(acceptance_by_depth)[-1])


def iid_expected_tokens(acceptance: float, depth: int) -> float:
    """Compute the expected tokens of one step when every draft is accepted at the same rate.

    Parameters
    ----------
    acceptance : float
        Probability of accepting a draft, **assumed to be the same at every depth** whatever was
        accepted before. Real acceptances differ from prefix to prefix: hard places come in runs,
        so a mean rate misjudges long drafts; `expected_tokens` needs no such assumption.
    depth : int
        K >= 0, the drafts of a step.

    Returns
    -------
    float
        ``(1 - a**(K + 1)) / (1 - a)``, and ``K + 1`` for a = 1.

    Raises
    ------
    InvalidArgumentError
        If `acceptance` is no number in [0, 1], or `depth` no integer >= 0.

    Notes
    -----
    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", eq. (1).

    Examples
    --------
    >>> round(iid_expected_tokens(0.7, 3), 12), iid_expected_tokens(1.0, 3)
    (2.533, 4.0)
    """
    rate = read_number(acceptance)
    if not 0.0 <= rate <= 1.0:
        raise InvalidArgumentError(
            f"acceptance is {shown(acceptance)}; expected a number in [0, 1]"
        )
    count = check_whole("depth", depth, 0) + 1
    if rate in (0.0, 1.0):
        return float(count) if rate else 1.0
    # 1 - a**n without cancellation as a approaches 1.
    return -math.expm1(count * math.log(rate)) / (1.0 - rate)


def expected_tree_tokens(tree: TreeLike, acceptance_by_rank: ArrayLike) -> float:
    """Compute the expected tokens of one step of a tree: the accepted drafts and one more.

    Parameters
    ----------
    tree : TreeShape, list of int (branching by level) or object with a ``tree``
    acceptance_by_rank : array_like, shape (R,) or (D, R)
        Probability that the child of rank r is the one accepted, given that its parent was. In the
        second form row d is for the children at depth d + 1. Rows sum to at most 1.

    Returns
    -------
    float
        1 plus, over all drafted nodes, the product of the acceptances on the way to it.

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range, or the tree has more children or levels than
        `acceptance_by_rank`.

    Notes
    -----
    The objective of Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative
    Decoding". The acceptances of a node depend on its rank and depth alone, and are conditional on
    its parent.

    Examples
    --------
    >>> round(expected_tree_tokens([2, 1], [0.6, 0.2]), 12)
    2.28
    """
    shape, acceptance = read_tree(tree), read_acceptance_by_rank(acceptance_by_rank)
    by_depth = acceptance.ndim == 2
    if by_depth and shape.depth > len(acceptance):
        raise InvalidArgumentError(
            f"acceptance_by_rank has {len(acceptance)} depths; the tree has {shape.depth}"
        )
    reached = [1.0]
    for node, depth in enumerate(shape.depths):
        children = shape.children(node)
        if len(children) > acceptance.shape[-1]:
            raise InvalidArgumentError(
                f"acceptance_by_rank has {acceptance.shape[-1]} ranks; "
                f"node {node} of the tree has {len(children)} children"
            )
        ranks = acceptance[depth] if by_depth and children else acceptance
        reached += [reached[node] * float(ranks[rank]) for rank in range(len(children))]
    return math.fsum(reached)


# --- from measured steps --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeasuredAcceptance(FrozenArrays):
    """Acceptance by depth from the steps of a decoder.

    Attributes
    ----------
    acceptance_by_depth : ndarray of float64, shape (K,)
        Share of the steps that accepted at each depth among those that had accepted all before it;
        0 where no step came so far, as then nothing was gained there.
    steps_by_depth : ndarray of int64, shape (K,)
        How many came so far.
    tokens : float
        Mean tokens of a step, the one that is always emitted included.
    tokens_stderr : float
        Its standard error over steps (N - 1), as if they were independent; NaN for a single step.
    """

    acceptance_by_depth: FloatArray
    steps_by_depth: IntArray
    tokens: float
    tokens_stderr: float


def measure_acceptance(accepted: ArrayLike, depth: int) -> MeasuredAcceptance:
    """Estimate acceptance by depth from the number of drafts that each step accepted.

    Parameters
    ----------
    accepted : array_like of int, shape (N,)
        Drafts accepted in each step, in ``0 .. depth``.
    depth : int
        K >= 1, the drafts of every step.

    Returns
    -------
    MeasuredAcceptance
        `expected_tokens` of its acceptances is its mean number of tokens, and of the first k of
        them what the same steps would have given with k drafts, if the verifier decides depth by
        depth.

    Raises
    ------
    InvalidArgumentError
        If `accepted` is no list of integers in ``0 .. depth``, or `depth` no integer >= 1.

    Examples
    --------
    >>> found = measure_acceptance([3, 0, 1, 3], depth=3)
    >>> found.acceptance_by_depth.round(6).tolist(), found.tokens
    ([0.75, 0.666667, 1.0], 2.75)
    >>> round(expected_tokens(found.acceptance_by_depth), 12)
    2.75
    """
    levels = check_whole("depth", depth, 1)
    counts = read_array(accepted, "accepted", InvalidArgumentError)
    if counts.ndim != 1 or not len(counts) or counts.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"accepted is {shown(accepted)}; expected a list of integers in 0..{levels}"
        )
    outside = (counts < 0) | (counts > levels)
    if outside.any():
        index = int(np.argmax(outside))
        raise InvalidArgumentError(
            f"accepted[{index}] is {counts[index]}; expected an integer in 0..{levels}"
        )
    came = np.array([np.count_nonzero(counts >= k) for k in range(levels + 1)], dtype=np.int64)
    share = np.divide(came[1:], came[:-1], out=np.zeros(levels), where=came[:-1] > 0)
    return MeasuredAcceptance(share, came[:-1], *mean_and_stderr(1.0 + counts))


# --- arguments -----------------------------------------------------------------------------------


def tokens_by_depth(acceptance_by_depth: ArrayLike) -> FloatArray:
    """Give the expected tokens, (K + 1,), of a step with 0 to K drafts.

    Raises
    ------
    InvalidArgumentError
        If `acceptance_by_depth` holds something else than numbers in [0, 1] or is not (K,).
    """
    rates = read_numbers(
        acceptance_by_depth, "acceptance_by_depth", lambda shape: len(shape) == 1, "(K,)"
    )
    return np.cumsum(np.concatenate([[1.0], np.cumprod(rates)]))


def read_acceptance_by_rank(values: ArrayLike) -> FloatArray:
    """Check acceptances by rank, or by depth and rank.

    Returns
    -------
    ndarray of float64, shape (R,) or (D, R)

    Raises
    ------
    InvalidArgumentError
        If it holds something else than numbers in [0, 1], has no rank, or a row sums to more
        than 1: only one child of a node can be the accepted one.

    Examples
    --------
    >>> read_acceptance_by_rank([0.8, 0.7])
    Traceback (most recent call last):
    ...
    mdsd.errors.InvalidArgumentError: acceptance_by_rank sums to 1.5; expected at most 1: the \
probability of each child to be the accepted one, not that of its test once the others failed
    """
    name = "acceptance_by_rank"
    rates = read_numbers(
        values, name, lambda shape: len(shape) in (1, 2) and 0 not in shape, "(R,) or (D, R)"
    )
    sums = np.atleast_1d(rates.sum(axis=-1))
    over = sums > 1.0 + RANK_SLACK
    if over.any():
        row = int(np.argmax(over))
        raise InvalidArgumentError(
            f"{row_name(name, [row] if rates.ndim == 2 else [])} sums to {float(sums[row]):.10g}; "
            "expected at most 1: the probability of each child to be the accepted one, not that of "
            "its test once the others failed"
        )
    return rates
