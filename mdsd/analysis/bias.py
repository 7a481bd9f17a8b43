"""Biased decoding: fewer rejections for an output that is not quite the target.

**Not lossless.** A drafted token is accepted with ``b = min(1, (p + eps) / q)``, more often than
the exact rule allows. The rejection law is the best one for this b (Decoding-OPT) or the target
itself (Decoding-UNO).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_name, check_number, check_whole, read_array, shown
from mdsd._frozen import FrozenArrays
from mdsd._random import RandomSource, generator
from mdsd._typing import FloatArray
from mdsd.analysis._chains import ChainPair, read_chain_pair
from mdsd.analysis._rule_chains import Prefixes, RuleOnChain
from mdsd.analysis._simulation import DEFAULT_RUNS
from mdsd.analysis.rules import AcceptRule, read_pair, rule_of
from mdsd.errors import InvalidArgumentError
from mdsd.rules.biased import REDRAWS, Redraw, accept_and_redraw

# --- the rule at one position --------------------------------------------------------------------


def over_acceptance(target_probs: ArrayLike, draft_probs: ArrayLike, epsilon: float) -> FloatArray:
    """Give the accept probabilities ``b = min(1, (p + eps) / q)``.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    epsilon : float
        Over-acceptance, finite and >= 0: 0 is the exact rule, from 1 on every draft is accepted.

    Returns
    -------
    ndarray of float64, shape (V,)
        1 where the draft has probability 0 and `epsilon` > 0.

    Raises
    ------
    InvalidDistributionError
        If a distribution is no probability vector, or their lengths differ.
    InvalidArgumentError
        If `epsilon` is no finite number >= 0.

    Notes
    -----
    The over-acceptance of Yin et al., "A Theoretical Perspective for Speculative Decoding
    Algorithm".

    Examples
    --------
    >>> over_acceptance([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.1).round(12).tolist()
    [1.0, 0.8, 1.0]
    """
    return biased_rule(target_probs, draft_probs, epsilon).accept_probs


def biased_rule(
    target_probs: ArrayLike, draft_probs: ArrayLike, epsilon: float, *, redraw: Redraw = "optimal"
) -> AcceptRule:
    """Work out the over-accepting rule at one position. **Not lossless** for `epsilon` > 0.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    epsilon : float
        Over-acceptance, finite and >= 0.
    redraw : {"optimal", "target"}
        Rejection law: ``(p - b q)+``, normalised (Decoding-OPT), or the target (Decoding-UNO),
        which is biased even at ``epsilon=0``.

    Returns
    -------
    AcceptRule

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `over_acceptance`, and if `redraw` is not known.

    Examples
    --------
    >>> rule = biased_rule([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.1)
    >>> rule.output_law.round(12).tolist()
    [0.3, 0.4, 0.3]
    >>> round(rule.rejection_probability, 12), round(rule.total_variation, 12)
    (0.1, 0.2)
    """
    check_name("redraw", redraw, REDRAWS)
    step = check_number("epsilon", epsilon)
    target, draft = read_pair(target_probs, draft_probs)
    return rule_of(target, draft, *accept_and_redraw(target, draft, step, redraw))


# --- fronts --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ParetoFront(FrozenArrays):
    """Rejections against bias, one entry for each over-acceptance.

    Attributes
    ----------
    epsilons : ndarray of float64, shape (E,)
    rejections, total_variation : ndarray of float64, shape (E,)
        Rejection probability and distance from the target with the best rejection law
        (Decoding-OPT). Along a chain: expected rejections, and the expected distances of all
        positions added up.
    uno_rejections, uno_total_variation : ndarray of float64, shape (E,)
        The same with the target as rejection law (Decoding-UNO).
    """

    epsilons: FloatArray
    rejections: FloatArray
    total_variation: FloatArray
    uno_rejections: FloatArray
    uno_total_variation: FloatArray


def pareto_front(
    target_probs: ArrayLike, draft_probs: ArrayLike, epsilons: ArrayLike
) -> ParetoFront:
    """Compute what bias buys at one position: rejection probability against total variation.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    epsilons : array_like, shape (E,)
        Over-acceptances, finite and >= 0.

    Returns
    -------
    ParetoFront

    Raises
    ------
    InvalidDistributionError
        If a distribution is no probability vector, or their lengths differ.
    InvalidArgumentError
        If `epsilons` is no list of finite numbers >= 0.

    Notes
    -----
    Yin et al., Theorem 5: with the best rejection law, rejection probability and total variation
    add up to the total variation between target and draft, for every ``b >= min(1, p / q)``. So the
    front is a straight line, and no rule of the family lies below it.

    Examples
    --------
    >>> front = pareto_front([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.0, 0.1, 0.2])
    >>> front.rejections.round(12).tolist()
    [0.3, 0.1, 0.0]
    >>> (front.rejections + front.total_variation).round(12).tolist()
    [0.3, 0.3, 0.3]
    >>> front.uno_total_variation.round(12).tolist()
    [0.15, 0.25, 0.3]
    """
    return _front(ChainPair.one_position(*read_pair(target_probs, draft_probs)), epsilons, "output")


def chain_pareto_front(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    epsilons: ArrayLike,
    *,
    prefixes: Prefixes = "output",
) -> ParetoFront:
    """Compute what bias buys along a Markov chain: expected rejections against total variation.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial
        As for `expected_rejections`.
    epsilons : array_like, shape (E,)
        Over-acceptances, finite and >= 0.
    prefixes : {"output", "target"}
        Whose tokens each position follows: those that the biased rule emitted, as in decoding, or
        those of the target.

    Returns
    -------
    ParetoFront
        Along the output, the added distances bound the total variation between the sequences of T
        tokens that are emitted and those of the target.

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `expected_rejections` and `pareto_front`, and if `prefixes` is not known.

    Notes
    -----
    Along the target's prefixes the front is the average of those of the positions, hence as
    straight: rejections and distances add up to the expected rejections of speculative decoding.
    Along the output's own prefixes a biased rule may drift to where target and draft agree better,
    or worse, and the line bends.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> front = chain_pareto_front(target, draft, 3, [0.5, 0.5], [0.0, 0.15], prefixes="target")
    >>> front.rejections.round(12).tolist(), front.total_variation.round(12).tolist()
    ([0.4615, 0.08075], [0.0, 0.38075])
    """
    check_name("prefixes", prefixes, ("output", "target"))
    return _front(read_chain_pair(target_chain, draft_chain, horizon, initial), epsilons, prefixes)


def _front(pair: ChainPair, epsilons: ArrayLike, prefixes: Prefixes) -> ParetoFront:
    steps = _read_epsilons(epsilons)
    points = [
        [_rule(pair, step, redraw).expected(prefixes) for redraw in REDRAWS] for step in steps
    ]
    return ParetoFront(steps, *np.reshape(points, (len(steps), -1)).T.copy())


# --- simulation ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SimulatedFront(FrozenArrays):
    """A front as simulated, one entry for each over-acceptance.

    Attributes
    ----------
    epsilons : ndarray of float64, shape (E,)
    rejections, rejections_stderr : ndarray of float64, shape (E,)
        Mean number of rejections and its standard error (runs - 1 in the variance).
    total_variation, total_variation_stderr : ndarray of float64, shape (E,)
        The same of the distance from the target, from counts of the emitted tokens; along a chain,
        of the distances of all positions added up.
    runs : int
        Independent sequences simulated for each entry.
    """

    epsilons: FloatArray
    rejections: FloatArray
    rejections_stderr: FloatArray
    total_variation: FloatArray
    total_variation_stderr: FloatArray
    runs: int


def simulate_pareto_front(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    epsilons: ArrayLike,
    *,
    redraw: Redraw = "optimal",
    runs: int = DEFAULT_RUNS,
    rng: RandomSource = None,
) -> SimulatedFront:
    """Simulate the over-accepting rule at one position.

    Parameters
    ----------
    target_probs, draft_probs, epsilons
        As for `pareto_front`.
    redraw : {"optimal", "target"}
        Rejection law: Decoding-OPT or Decoding-UNO.
    runs : int, default 100,000
        Tokens to emit for each over-acceptance, at least 2.
    rng : numpy.random.Generator, torch.Generator, int or None

    Returns
    -------
    SimulatedFront

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `pareto_front`, and if `redraw`, `runs` or `rng` is out of range.

    Examples
    --------
    >>> found = simulate_pareto_front(
    ...     [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1], runs=10_000, rng=0
    ... )
    >>> bool(abs(found.rejections[0] - 0.1) < 4 * found.rejections_stderr[0] < 0.02)
    True
    >>> bool(abs(found.total_variation[0] - 0.2) < 4 * found.total_variation_stderr[0] < 0.02)
    True
    """
    pair = ChainPair.one_position(*read_pair(target_probs, draft_probs))
    return _simulated_front(pair, epsilons, redraw, runs, rng)


def simulate_chain_pareto_front(
    target_chain: ArrayLike,
    draft_chain: ArrayLike,
    horizon: int,
    initial: ArrayLike,
    epsilons: ArrayLike,
    *,
    redraw: Redraw = "optimal",
    runs: int = DEFAULT_RUNS,
    rng: RandomSource = None,
) -> SimulatedFront:
    """Simulate the over-accepting rule along a Markov chain, on the tokens that it emits.

    Parameters
    ----------
    target_chain, draft_chain, horizon, initial, epsilons
        As for `chain_pareto_front`.
    redraw : {"optimal", "target"}
        Rejection law: Decoding-OPT or Decoding-UNO.
    runs : int, default 100,000
        Sequences of T tokens to decode for each over-acceptance, at least 2.
    rng : numpy.random.Generator, torch.Generator, int or None

    Returns
    -------
    SimulatedFront

    Raises
    ------
    InvalidDistributionError, InvalidArgumentError
        As for `chain_pareto_front`, and if `redraw`, `runs` or `rng` is out of range.

    Examples
    --------
    >>> target, draft = [[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.5, 0.5]]
    >>> found = simulate_chain_pareto_front(
    ...     target, draft, 3, [0.5, 0.5], [0.0], runs=10_000, rng=0
    ... )
    >>> bool(abs(found.rejections[0] - 0.4615) < 4 * found.rejections_stderr[0] < 0.03)
    True
    """
    pair = read_chain_pair(target_chain, draft_chain, horizon, initial)
    return _simulated_front(pair, epsilons, redraw, runs, rng)


def _simulated_front(
    pair: ChainPair, epsilons: ArrayLike, redraw: Redraw, runs: int, rng: RandomSource
) -> SimulatedFront:
    check_name("redraw", redraw, REDRAWS)
    steps, count = _read_epsilons(epsilons), check_whole("runs", runs, 2)
    stream = generator(rng, "study")
    points = np.array([_rule(pair, step, redraw).simulated(count, stream) for step in steps])
    columns = points.T.copy()
    return SimulatedFront(steps, columns[0], columns[1], columns[2], columns[3], count)


# --- what both share -----------------------------------------------------------------------------


def _rule(pair: ChainPair, epsilon: float, redraw: Redraw) -> RuleOnChain:
    return RuleOnChain(pair, *accept_and_redraw(pair.target, pair.draft, epsilon, redraw))


def _read_epsilons(values: ArrayLike) -> FloatArray:
    array = read_array(values, "epsilons", InvalidArgumentError)
    if array.dtype.kind not in "fiu" or array.ndim != 1 or not len(array):
        raise InvalidArgumentError(
            f"epsilons is {shown(values)}; expected a list of finite numbers >= 0"
        )
    with np.errstate(over="ignore"):
        steps = array.astype(np.float64)
    return np.array([check_number(f"epsilons[{k}]", step) for k, step in enumerate(steps.tolist())])
