"""Exhaustive subset selection (8) in exact arithmetic.

Hu et al., "Towards Optimal Multi-draft Speculative Decoding": ``alpha* = 1 + min over H of
p(H) - Q(H)``, with Q(H) the mass of the sets wholly inside H. All 2^V subsets are evaluated.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ._typing import FloatArray, IntArray
from .transport import TransportInstance, TransportSolution, canonical_subset


def solve_subsets(instance: TransportInstance, *, limit: int = 18) -> TransportSolution:
    """Find the best subset H by evaluating all of them exactly.

    Masses enter as the exact rationals their floats stand for, so ties and differences of 1e-300
    are decided rightly. Tokens of zero mass (in H) and tokens in no set (not in H, if their mass
    is positive) cost nothing and are decided up front.

    Parameters
    ----------
    instance : TransportInstance
        V tokens, S sets. Time and memory are of order 2^k for k undecided tokens.
    limit : int, optional
        Largest number of undecided tokens.

    Returns
    -------
    TransportSolution
        Without a plan; of several optimal H the largest, which holds all the others; gap 0; the
        value is the exact one, rounded once.

    Raises
    ------
    ValueError
        If there are more undecided tokens than `limit`.

    Examples
    --------
    >>> from solvers.subsets import solve_subsets
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])
    >>> solution = solve_subsets(instance)
    >>> solution.value, solution.subset.tolist()
    (0.75, [True, False])
    """
    nothing = np.zeros(instance.num_tokens, dtype=np.bool_)
    decided_in = canonical_subset(instance, nothing)
    undecided = np.flatnonzero(canonical_subset(instance, ~nothing) & ~decided_in)
    if len(undecided) > limit:
        raise ValueError(
            f"exhaustive subset selection over {len(undecided)} tokens is above its limit of "
            f"{limit}; use solve_lp or solve_matching"
        )
    token_masses, set_masses, denominator = _common_integers(
        instance.token_masses[undecided], instance.set_masses
    )
    set_masks = _set_masks(instance, undecided)
    gains = _gains_of_all_subsets(token_masses, set_masks, set_masses)
    best_gain = gains.max()
    best_mask = int(np.bitwise_or.reduce(np.flatnonzero(gains == best_gain)))
    subset = decided_in.copy()
    subset[undecided] = [bool(best_mask >> bit & 1) for bit in range(len(undecided))]
    value = (sum(set_masses) - int(best_gain)) / denominator
    return TransportSolution(value=value, plan=None, subset=subset, gap=0.0)


def _gains_of_all_subsets(
    token_masses: list[int], set_masks: IntArray, set_masses: list[int]
) -> Any:
    """Return Q(H) - p(H) for each bitmask H, an object array of Python ints of shape (2^k,)."""
    gains = np.zeros(2 ** len(token_masses), dtype=object)
    np.add.at(gains, set_masks, np.array(set_masses, dtype=object))
    for bit, mass in enumerate(token_masses):
        gains[2**bit] -= mass
    # Subset sums (zeta transform): p is additive, so it rides along as negative singletons.
    for bit in range(len(token_masses)):
        halves = gains.reshape(-1, 2, 2**bit)
        halves[:, 1] += halves[:, 0]
    return gains


def _set_masks(instance: TransportInstance, undecided: IntArray) -> IntArray:
    """Return the bitmask of each set over the undecided tokens, shape (S,)."""
    bits = np.zeros(instance.num_tokens, dtype=np.int64)
    bits[undecided] = np.int64(1) << np.arange(len(undecided), dtype=np.int64)
    return np.bitwise_or.reduceat(bits[instance.set_tokens], instance.set_starts[:-1])


def _common_integers(
    token_masses: FloatArray, set_masses: FloatArray
) -> tuple[list[int], list[int], int]:
    """Return both masses as integers over one common power of two, and that power."""
    tokens = [Fraction(mass) for mass in token_masses.tolist()]
    sets = [Fraction(mass) for mass in set_masses.tolist()]
    # Denominators of floats are powers of two, so each divides the largest.
    denominator = max((mass.denominator for mass in tokens + sets), default=1)
    token_integers = [int(mass * denominator) for mass in tokens]
    return token_integers, [int(mass * denominator) for mass in sets], denominator
