"""Exact laws by enumeration, and the one test of counts against a law."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_type, read_array, shown
from mdsd._probabilities import check_probs
from mdsd._typing import FloatArray, IntArray
from mdsd.errors import InvalidArgumentError
from mdsd.testing._failures import FALSE_ALARM, require
from mdsd.verifiers import Plan


def enumerated_law(plan: Plan) -> FloatArray:
    """Law of the emitted token: the output laws summed over all tuples with their probabilities.

    Parameters
    ----------
    plan : Plan
        Of a draft distribution that enumerates its support.

    Returns
    -------
    ndarray of float64, shape (V,)
        The target, if the verifier is lossless.
    """
    check_type("plan", plan, Plan)
    ids, probs = plan.draft.tuple_arrays()
    return np.asarray(probs @ plan.output_law(ids))


def enumerated_acceptance(plan: Plan) -> float:
    """Probability that the emitted token is one of the drafts, over all tuples.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    float
    """
    check_type("plan", plan, Plan)
    ids, probs = plan.draft.tuple_arrays()
    return float(probs @ drafted_mass(plan.output_law(ids), ids))


def drafted_mass(laws: FloatArray, ids: IntArray) -> FloatArray:
    """Mass that each output law, (M, V), puts on the drafts of its tuple, (M, n)."""
    drafted = np.zeros(laws.shape, dtype=np.bool_)
    np.put_along_axis(drafted, ids, True, axis=1)
    return np.asarray(np.where(drafted, laws, 0.0).sum(axis=1))


def follows(counts: ArrayLike, expected_probs: FloatArray, message: str) -> None:
    """Fail, hardly ever by chance, where counts are not those of draws from a distribution."""
    p_value = chi_square_p_value(counts, expected_probs)
    require(p_value > FALSE_ALARM, f"{message} (p = {p_value:.2g})")


def chi_square_p_value(counts: ArrayLike, expected_probs: FloatArray) -> float:
    """P-value of observed counts under a law, with rare cells pooled.

    Parameters
    ----------
    counts : array_like of int, shape (V,)
    expected_probs : ndarray, shape (V,)

    Returns
    -------
    float
        0.0 if a cell of probability 0 was observed; 1.0 where one cell is left.

    Raises
    ------
    InvalidArgumentError
        If `counts` does not hold one integer >= 0 for each cell.
    InvalidDistributionError
        If `expected_probs` is not a probability vector.
    """
    from scipy.stats import chi2

    given = read_array(counts, "counts", InvalidArgumentError)
    expected_probs = check_probs(expected_probs, "expected_probs")
    whole = given.dtype.kind in "iu" and given.shape == expected_probs.shape
    if not whole or (given < 0).any():
        raise InvalidArgumentError(
            f"counts is {shown(counts)}; expected {len(expected_probs)} integers >= 0"
        )
    observed = given.astype(np.float64)
    expected = expected_probs * observed.sum()
    if observed[expected_probs == 0.0].sum() > 0.0:
        return 0.0
    common = expected >= 5.0
    observed = np.append(observed[common], observed[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    used = expected > 0.0
    if used.sum() < 2:
        return 1.0
    statistic = ((observed[used] - expected[used]) ** 2 / expected[used]).sum()
    return float(chi2.sf(statistic, int(used.sum()) - 1))
