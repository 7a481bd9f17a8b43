"""Acceptance bounds: the largest acceptance probability of any lossless verifier."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_name, check_number, check_whole, one_line
from mdsd._frozen import FrozenArrays
from mdsd._probabilities import check_probs, check_same_vocab, ratio_order
from mdsd._shown import Shown, cut
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.drafts.base import (
    MAX_DEFAULT_TOKEN_HITS,
    check_draft,
    checked_hit_probs,
    count_in_words,
)
from mdsd.drafts.declared import DeclaredDraft
from mdsd.errors import MdsdError, SolverError, UnsupportedError, solver_errors

if TYPE_CHECKING:
    from mdsd._solvers.token_lottery import TokenLottery
    from mdsd._solvers.transport import TransportInstance, TransportSolution

MAX_PAIRS = 300_000
"""Most pairs (drafted token, tuple) in an explicit formulation."""

MAX_SUBSET_TOKENS = 18
"""Most tokens among which subset selection is exhaustive."""


@dataclass(frozen=True, eq=False, repr=False)
class AcceptanceBound(Shown, FrozenArrays):
    """The largest acceptance probability of a lossless verifier, with its certificate.

    Attributes
    ----------
    value : float
        alpha*, in [0, 1]; where a search stopped early, the certified upper bound.
    subset : ndarray of int64
        Ascending token ids of the H of formulation (8) with ``1 + p(H) - Q(H) = value``.
    method : str
        Formulation that gave it.
    gap : float
        Certified distance to an acceptance that is attained; 0.0 for closed forms and for explicit
        formulations, whose solutions are verified.

    Examples
    --------
    >>> from mdsd import GreedyDraft, acceptance_bound
    >>> bound = acceptance_bound([0.5, 0.3, 0.2], GreedyDraft([0.2, 0.5, 0.3], 2))
    >>> round(bound.value, 12), bound.subset, bound.method, bound.gap
    (0.9, array([1, 2]), 'prefix', 0.0)
    """

    value: float
    subset: IntArray
    method: str
    gap: float

    def _facts(self) -> dict[str, object]:
        return {**vars(self), "subset": cut(self.subset, "tokens")}


def acceptance_bound(
    target_probs: ArrayLike,
    draft: DraftDistribution,
    *,
    method: str = "auto",
    tolerance: float = 1e-9,
    max_iterations: int | None = None,
) -> AcceptanceBound:
    """Compute the acceptance bound alpha* of a draft distribution.

    Parameters
    ----------
    target_probs : array_like, shape (V,)
        Distribution of the next token under the target model.
    draft : DraftDistribution
        Joint law of the drafts.
    method : str, default "auto"
        ``prefix``: best prefix of tokens by target/draft ratio (q-convex laws and the greedy,
        SpecHub and top-k drafts, any vocabulary). ``lp``: relaxed transport LP with HiGHS.
        ``cvxpy``: the same LP stated in cvxpy. ``matching``: b-matching by maximum flow. ``cover``:
        its dual, the weighted vertex cover. ``subset``: exhaustive, in exact arithmetic.
        ``submodular``: minimum-norm point of the base polytope. ``auto`` takes ``prefix`` where it
        applies, else ``submodular``, which applies to every law.
    tolerance : float, default 1e-9
        Gap at which ``submodular`` stops.
    max_iterations : int, optional
        Most orders ``submodular`` evaluates. By default ``20 V + 100`` for up to 512 tokens that
        can be drafted. Beyond, tokens of small mass and nearly the same ratio share a group, and up
        to 120 orders are evaluated while the gap over groups is above 2e-5. Where it is given, the
        groups are refined until the gap is at most `tolerance` or the orders are used up. A user's
        own law is searched token by token, with 60 orders for up to 20,000 tokens and 8 beyond.

    Returns
    -------
    AcceptanceBound
        Explicit methods have checked their solution against the original problem.

    Raises
    ------
    InvalidDistributionError
        If `target_probs` is not a probability vector of the draft's length.
    InvalidArgumentError
        If `method`, `tolerance` or `max_iterations` is out of range.
    UnsupportedError
        If `method` does not apply to this draft distribution at this size; names those that do.
    SolverError
        If a solver found no solution that passes verification.

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding": eq. (7) transport, (8) subset
    selection, (9) relaxed LP, (10) vertex cover.

    Examples
    --------
    >>> from mdsd import WithReplacement, acceptance_bound
    >>> bound = acceptance_bound([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 2))
    >>> round(bound.value, 12), bound.subset.tolist(), bound.method
    (0.86, [1, 2], 'prefix')
    """
    check_name("method", method, ("auto", *_METHODS))
    check_search_options(tolerance, max_iterations)
    check_draft(draft)
    target = check_probs(target_probs, "target_probs")
    check_same_vocab(target, draft.vocab_size, "draft.draft_probs")
    problem = _Problem(target, draft, tolerance, max_iterations)
    if method == "auto":
        method = next(name for name in _AUTO if _obstacle(name, problem) is None)
    obstacle = _obstacle(method, problem)
    if obstacle is not None:
        others = [name for name in _METHODS if _obstacle(name, problem) is None]
        raise UnsupportedError(
            f"method {method!r} does not apply to the {draft.name} draft distribution here: "
            f"{obstacle}; methods that apply: {', '.join(others) or 'none at this size'}"
        )
    return _METHODS[method](problem)


@dataclass(frozen=True, eq=False)
class _Problem:
    """A checked request."""

    target: FloatArray
    draft: DraftDistribution
    tolerance: float
    max_iterations: int | None

    @cached_property
    def prefix(self) -> tuple[float, BoolArray] | None:
        """Best prefix and its H, found once however many methods ask; None where none is exact."""
        return self.draft.best_prefix(self.target)


def check_search_options(tolerance: Any, max_iterations: Any) -> None:
    """Check the options of a search.

    Raises
    ------
    InvalidArgumentError
        If `tolerance` is not a finite number >= 0 or `max_iterations` not an integer >= 1 or None.
    """
    check_number("tolerance", tolerance)
    if max_iterations is not None:
        check_whole("max_iterations", max_iterations, 1, otherwise=" or None")


# --- what each formulation needs, and how it is called -----------------------------------------


def _prefix(problem: _Problem) -> AcceptanceBound:
    if problem.prefix is None:  # _obstacle has seen to it
        raise UnsupportedError(f"no prefix order for {problem.draft.name}")
    value, subset = problem.prefix
    return AcceptanceBound(value, np.flatnonzero(subset), "prefix", 0.0)


_last_search: WeakKeyDictionary[DeclaredDraft, tuple[tuple[object, ...], TokenLottery]] = (
    WeakKeyDictionary()
)
"""The last search of each built-in draft alive: the bound and the verifier share one.

A user's own draft distribution may change, and need not be hashable: it is searched every time.
"""


def find_lottery(
    target_probs: FloatArray,
    draft: DraftDistribution,
    *,
    tolerance: float,
    max_iterations: int | None,
    fast: bool = False,
) -> TokenLottery:
    """Search the minimum-norm lottery over priority orders for a checked target and draft.

    Parameters
    ----------
    target_probs : ndarray of float64, shape (V,)
    draft : DraftDistribution
    tolerance, max_iterations
        As for `acceptance_bound`.
    fast : bool, default False
        Whether to search few groups, by default, and to end at a gap of 3e-4.

    Returns
    -------
    solvers.token_lottery.TokenLottery
    """
    if fast or not isinstance(draft, DeclaredDraft):
        return _search(target_probs, draft, tolerance, max_iterations, fast)
    request = target_probs.tobytes(), tolerance, max_iterations
    known = _last_search.get(draft)
    if known is not None and known[0] == request:
        return known[1]
    # Of a twin: what is found keeps the law, and would keep its own key in the table alive.
    found = _search(target_probs, copy(draft), tolerance, max_iterations, fast)
    _last_search[draft] = request, found
    return found


def _search(
    target_probs: FloatArray,
    draft: DraftDistribution,
    tolerance: float,
    max_iterations: int | None,
    fast: bool,
) -> TokenLottery:
    """Search by the parts of a law, or token by token where it does not tell them."""
    from mdsd._solvers.token_lottery import EXACT, FAST, find_group_lottery, find_single_lottery

    parts = draft.law_parts()
    with solver_errors():
        if parts:
            return find_group_lottery(
                target_probs,
                draft.hit_probs,
                parts,
                # Orders that are given are not spent on digits that a fast search does not want.
                tolerance=max(tolerance, FAST.tolerance) if fast and max_iterations else tolerance,
                max_iterations=max_iterations,
                effort=FAST if fast else EXACT,
            )
        # Checked once, not at every order of the search.
        checked_hit_probs(draft, np.arange(draft.vocab_size))
        default = type(draft).token_hit_probs is DraftDistribution.token_hit_probs
        if default and draft.vocab_size > MAX_DEFAULT_TOKEN_HITS:
            token_hits = np.ones(draft.vocab_size)  # V calls of hit_probs would outlast the search
        else:
            token_hits = draft.token_hit_probs()
        first = draft.prefix_order(target_probs)
        return find_single_lottery(
            target_probs,
            draft.hit_probs,
            token_hits,
            ratio_order(target_probs, token_hits) if first is None else first,
            tolerance=tolerance,
            max_iterations=max_iterations,
        )


def _submodular(problem: _Problem) -> AcceptanceBound:
    found = find_lottery(
        problem.target,
        problem.draft,
        tolerance=problem.tolerance,
        max_iterations=problem.max_iterations,
    )
    with solver_errors():
        return AcceptanceBound(found.upper, np.flatnonzero(found.subset), "submodular", found.gap)


def _instance(problem: _Problem) -> TransportInstance:
    from mdsd._solvers.transport import merge_tuples

    ids, probs = problem.draft.tuple_arrays()
    # What rounding left of the tuples' total would look like unfairness to an exact solver.
    return merge_tuples(problem.target, ids, probs / probs.sum())


def _explicit(name: str, module: str, function: str) -> Callable[[_Problem], AcceptanceBound]:
    def solve(problem: _Problem) -> AcceptanceBound:
        from importlib import import_module

        solver: Callable[[TransportInstance], TransportSolution]
        solver = getattr(import_module(f"mdsd._solvers.{module}"), function)
        try:
            with solver_errors(name):
                solution = solver(_instance(problem))
        except MdsdError:
            raise
        except ValueError as failure:
            raise SolverError(name, one_line(failure)) from failure
        value = min(max(solution.value, 0.0), 1.0)
        return AcceptanceBound(value, np.flatnonzero(solution.subset), name, 0.0)

    return solve


_METHODS: dict[str, Callable[[_Problem], AcceptanceBound]] = {
    "prefix": _prefix,
    "submodular": _submodular,
    "lp": _explicit("lp", "lp", "solve_lp"),
    "cvxpy": _explicit("cvxpy", "lp", "solve_cvxpy"),
    "matching": _explicit("matching", "matching", "solve_matching"),
    "cover": _explicit("cover", "lp", "solve_cover"),
    "subset": _explicit("subset", "subsets", "solve_subsets"),
}
_AUTO = ("prefix", "submodular")


def _obstacle(method: str, problem: _Problem) -> str | None:
    """Say why a method does not apply, or None where it does."""
    draft = problem.draft
    if method == "prefix":
        if problem.prefix is None:
            return "its optimal subset need not be a prefix of tokens sorted by target/draft"
        return None
    if method == "submodular":
        return None
    obstacle = _too_many_pairs(draft)
    if obstacle is None and method == "subset":
        # Those whose side is not settled by a zero mass.
        count = np.count_nonzero((problem.target > 0.0) & (draft.token_hit_probs() > 0.0))
        if count > MAX_SUBSET_TOKENS:
            return f"{count} tokens would give 2**{count} subsets; the limit is {MAX_SUBSET_TOKENS}"
    return obstacle


def _too_many_pairs(draft: DraftDistribution) -> str | None:
    try:
        if isinstance(draft, DeclaredDraft):
            pairs = draft.count_pairs()
            if pairs > MAX_PAIRS:
                count = count_in_words(pairs)
                return f"it has {count} pairs (token, set); the limit is {MAX_PAIRS:,}"
            draft.check_tuples()
        else:
            draft.tuples()
    except UnsupportedError as error:
        return str(error)
    return None
