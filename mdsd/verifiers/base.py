"""What every verifier is made of: `Verifier`, its `Plan`, and the `Verification` a plan returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import FrozenArrays, frozen
from mdsd._probabilities import check_probs, check_same_vocab
from mdsd._random import RandomSource, Uniforms, find_tokens, read_uniforms
from mdsd._shown import Shown
from mdsd._solvers.certificates import certified_gap
from mdsd._tokens import check_token_ids, refuse_impossible
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.drafts.base import check_draft
from mdsd.drafts.registry import draft_types
from mdsd.errors import UnsupportedError, solver_errors
from mdsd.rules.accepting import accept_probs, left_over

_Ids = TypeVar("_Ids", int, IntArray)


@dataclass(frozen=True, eq=False)
class Verification(Generic[_Ids]):
    """Outcome of one verification, or of a batch of them.

    Attributes
    ----------
    token_id : int, or ndarray of int64, shape (B,)
        The emitted token: its law is the target.
    accept_index : int, or ndarray of int64, shape (B,)
        Position of the emitted token among the drafts (the first, if it was drafted twice), -1
        where it was not drafted. A residual token that happens to be drafted counts.

    Examples
    --------
    >>> from mdsd import NaiveVerifier, TopKDraft
    >>> plan = NaiveVerifier().plan([0.5, 0.3, 0.2], TopKDraft([0.2, 0.5, 0.3], 2))
    >>> plan.verify([1, 2], rng=0)
    Verification(token_id=2, accept_index=1)
    >>> plan.verify_many([[1, 2], [1, 2]], uniforms=[[0.9], [0.6]])
    Verification(token_id=array([2, 1]), accept_index=array([1, 0]))
    """

    token_id: _Ids
    accept_index: _Ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Verification):
            return NotImplemented
        return np.array_equal(self.token_id, other.token_id) and np.array_equal(
            self.accept_index, other.accept_index
        )

    def __hash__(self) -> int:
        # Of a batch there is none, as of every array.
        return hash((self.token_id, self.accept_index))


class Plan(Shown, FrozenArrays, ABC):
    """All work of a verifier for one position that does not depend on the drawn tokens.

    Plans are immutable, picklable and reusable.

    Attributes
    ----------
    target_probs : ndarray of float64, shape (V,)
        The checked target.
    draft : DraftDistribution
        The law of the drafts.
    num_uniforms : int
        Random numbers that one verification takes.
    acceptance_stderr : float
        Standard error of `acceptance_rate`; 0.0 where that is exact.
    gap : float
        Certified distance of `acceptance_rate` from the bound, for optimal verifiers.
    canonical : bool
        Whether relabelling the tokens relabels every output law; where a search may end in one of
        several equally good plans, only the acceptance rate is kept.

    Examples
    --------
    >>> from mdsd import RRSVerifier, WithReplacement
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 2)
    >>> plan = RRSVerifier().plan([0.5, 0.3, 0.2], draft)
    >>> round(plan.acceptance_rate, 12), plan.num_uniforms
    (0.76, 3)
    >>> outcome = plan.verify_many(draft.sample(rng=0, size=1000), rng=0)
    >>> outcome.token_id.shape
    (1000,)
    """

    canonical: ClassVar[bool] = True

    def __init__(self, target_probs: FloatArray, draft: DraftDistribution) -> None:
        self.target_probs = target_probs
        self.draft = draft

    @property
    @abstractmethod
    def num_uniforms(self) -> int:
        """Random numbers that one verification takes."""

    @property
    @abstractmethod
    def acceptance_rate(self) -> float:
        """Probability that the emitted token is one of the drafts, in [0, 1]."""

    @property
    def acceptance_stderr(self) -> float:
        """Standard error of `acceptance_rate`; 0.0 where that is exact."""
        return 0.0

    @cached_property
    def gap(self) -> float:
        """Certified distance of `acceptance_rate` from the bound, for optimal verifiers.

        Raises
        ------
        SolverError
            If that bound is below the rate.
        """
        return 0.0

    @abstractmethod
    def marginal_law(self) -> FloatArray:
        """Law of the emitted token over the draft distribution, from what the plan stores.

        Returns
        -------
        ndarray of float64, shape (V,)
            Equal to the target up to rounding, at any vocabulary size.
        """

    @abstractmethod
    def _emit(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        """Emit one token for each row of checked ids (B, n), from uniforms (B, num_uniforms)."""

    @abstractmethod
    def _law(self, ids: IntArray) -> FloatArray:
        """Law of the emitted token, (B, V), for each row of checked ids (B, n)."""

    def verify(
        self, draft_token_ids: ArrayLike, rng: RandomSource = None, *, uniforms: Uniforms = None
    ) -> Verification[int]:
        """Verify the drafts of one step.

        Parameters
        ----------
        draft_token_ids : array_like of int, shape (n,)
            Tokens drawn from the plan's draft distribution, in draft order.
        rng : numpy.random.Generator, torch.Generator, int or None
            Source of randomness; an integer seeds the verifying stream.
        uniforms : array_like, shape (num_uniforms,), optional
            Numbers in [0, 1) to use instead: entry k feeds the k-th random decision.

        Returns
        -------
        Verification

        Raises
        ------
        InvalidTokenError
            If an id is out of range, or the draft distribution cannot have drawn the tuple.
        InvalidArgumentError
            If `uniforms` has the wrong shape or leaves [0, 1).
        """
        ids = self._checked_ids(draft_token_ids, ndim=1)
        numbers = self._numbers(rng, uniforms, ())
        token = int(self._emit(ids[np.newaxis], numbers[np.newaxis])[0])
        drafts = ids.tolist()
        return Verification(token, drafts.index(token) if token in drafts else -1)

    def verify_many(
        self, draft_token_ids: ArrayLike, rng: RandomSource = None, *, uniforms: Uniforms = None
    ) -> Verification[IntArray]:
        """Verify the drafts of many independent steps at the same position.

        Parameters
        ----------
        draft_token_ids : array_like of int, shape (B, n)
            One row of drafts for each step.
        rng : numpy.random.Generator, torch.Generator, int or None
            Source of randomness; an integer seeds the verifying stream.
        uniforms : array_like, shape (B, num_uniforms), optional
            Numbers in [0, 1) to use instead.

        Returns
        -------
        Verification
            With arrays of length B.

        Raises
        ------
        InvalidTokenError, InvalidArgumentError
            As for `verify`, naming the row; nothing is drawn then.
        """
        ids = self._checked_ids(draft_token_ids, ndim=2)
        numbers = self._numbers(rng, uniforms, (len(ids),))
        tokens = self._emit(ids, numbers)
        return Verification(tokens, accept_index(ids, tokens))

    def output_law(self, draft_token_ids: ArrayLike) -> FloatArray:
        """Exact law of the emitted token given the drafts.

        Parameters
        ----------
        draft_token_ids : array_like of int, shape (..., n)
            Tokens in draft order.

        Returns
        -------
        ndarray of float64, shape (..., V)
            Summed over all tuples with their probabilities it is the target.

        Raises
        ------
        InvalidTokenError
            If an id is out of range, or the draft distribution cannot have drawn a tuple.
        """
        ids = self._checked_ids(draft_token_ids, ndim=None)
        law = self._law(ids.reshape(-1, self.draft.num_drafts))
        return law.reshape(*ids.shape[:-1], self.draft.vocab_size)

    def _checked_ids(self, draft_token_ids: ArrayLike, *, ndim: int | None) -> IntArray:
        ids = check_token_ids(
            draft_token_ids,
            num_drafts=self.draft.num_drafts,
            vocab_size=self.draft.vocab_size,
            ndim=ndim,
        )
        refuse_impossible(ids, self.draft.is_possible(ids), self.draft.name)
        return ids

    def _numbers(self, rng: RandomSource, uniforms: Uniforms, batch: tuple[int, ...]) -> FloatArray:
        return read_uniforms(rng, uniforms, (*batch, self.num_uniforms))

    def _facts(self) -> dict[str, object]:
        # Not the acceptance rate, which may take long.
        return {"draft": self.draft, "uniforms of a verification": self.num_uniforms}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.draft!r})"


class SequentialPlan(Plan):
    """A plan of accept tests made in turn, with one residual law after the last of them.

    Subclasses give `_tests`, and `residual`; where that depends on the drafts, `_residual_masses`
    and `_draw_residual`. The uniforms are the accept tests in the order they are made, then the
    residual.
    """

    num_tests: int
    residual: FloatArray

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return self.num_tests + 1

    @abstractmethod
    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        """Accept probabilities and token ids of the tests, both (B, num_tests), in order."""

    @cached_property
    def _residual_sums(self) -> FloatArray:
        # Every rejection draws along the same running sum, which takes longer than the draw.
        return frozen(np.cumsum(self.residual))

    def _residual_masses(self, ids: IntArray) -> FloatArray:
        """Masses of the residual after every test failed: (V,) for all rows alike, or (B, V)."""
        return self.residual

    def _draw_residual(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        """Draw from the residual of each row, (B,), in token order."""
        return find_tokens(self._residual_sums, uniforms)

    def _emit(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        chances, tested = self._tests(ids)
        passed = uniforms[:, :-1] < chances
        tokens = np.full(len(ids), -1, dtype=np.int64)
        # Backwards, so that the first test of a row that passed is written last and stays.
        tokens[passed.nonzero()[0][::-1]] = tested[passed][::-1]
        (rejected,) = (tokens < 0).nonzero()
        if len(rejected):
            tokens[rejected] = self._draw_residual(ids[rejected], uniforms[:, -1][rejected])
        return tokens

    def _law(self, ids: IntArray) -> FloatArray:
        chances, tested = self._tests(ids)
        law = np.zeros((len(ids), self.draft.vocab_size))
        rows = np.arange(len(ids))
        reached = np.ones(len(ids))
        for k in range(self.num_tests):
            law[rows, tested[:, k]] += reached * chances[:, k]
            reached = reached * (1.0 - chances[:, k])
        masses = self._residual_masses(ids)
        law += reached[:, np.newaxis] * (masses / masses.sum(axis=-1, keepdims=True))
        return law


class OneResidualPlan(SequentialPlan):
    """A plan of tests whose marginal law follows from what they accept: the residual is one."""

    @property
    @abstractmethod
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        """Masses that the tests accept, (V,), and the probability that they all fail."""

    def marginal_law(self) -> FloatArray:  # noqa: D102
        return closing_law(*self._accepted_and_rejected, self.residual)


class SelectionPlan(Plan):
    """A plan that selects one draft by lot, tests it once, and else emits from one residual.

    Whatever the selection rule, thinning its mass m^ to ``min(p, m^)`` is lossless. Subclasses give
    `_select` and `_selection_probs`. The uniforms are those of the selection, the accept test, the
    residual.

    Attributes
    ----------
    selected : ndarray of float64, shape (V,)
        m^: probability that each token is selected and kept.
    upper : float
        Certified upper bound on the acceptance of any rule.
    """

    @property
    @abstractmethod
    def selected(self) -> FloatArray:
        """m^, (V,): probability that each token is selected and kept."""

    @property
    @abstractmethod
    def upper(self) -> float:
        """Certified upper bound on the acceptance of any rule."""

    def selected_of(self, tokens: IntArray) -> FloatArray:
        """m^ of some tokens, (K,)."""
        return np.asarray(self.selected[tokens])

    def _keep_probs(self, tokens: IntArray) -> FloatArray:
        """Chance, (K,), that a token that is selected is kept; else none is selected."""
        return np.ones(len(tokens))

    @cached_property
    def gap(self) -> float:  # noqa: D102
        with solver_errors():
            return certified_gap(self.upper, self.acceptance_rate, method="optimal")

    @cached_property
    def chances(self) -> FloatArray:
        """Probability, (V,), that each token is accepted when it is selected."""
        return frozen(accept_probs(self.target_probs, self.selected))

    @cached_property
    def residual(self) -> FloatArray:
        """Masses, (V,), of the token emitted when the selected one is not accepted."""
        return frozen(left_over(self.target_probs, self.selected))

    @cached_property
    def _residual_sums(self) -> FloatArray:
        return frozen(np.cumsum(self.residual))

    @property
    def acceptance_rate(self) -> float:
        """``sum min(p, m^)``; the true rate lies above it by at most `gap`."""
        return float(min(1.0, np.minimum(self.target_probs, self.selected).sum()))

    def _chances_of(self, tokens: IntArray) -> FloatArray:
        return np.asarray(self.chances[tokens])

    @abstractmethod
    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        """Select one token, (B,), of each row."""

    @abstractmethod
    def _selection_probs(self, ids: IntArray) -> FloatArray:
        """Probability, (B, n), that each draft of a row is selected and kept."""

    def marginal_law(self) -> FloatArray:  # noqa: D102
        accepted = self.selected * self.chances
        return closing_law(accepted, max(0.0, 1.0 - float(accepted.sum())), self.residual)

    def _emit(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        tokens = self._accept(ids, uniforms[:, :-1])
        (rejected,) = (tokens < 0).nonzero()
        if len(rejected):
            tokens[rejected] = find_tokens(self._residual_sums, uniforms[:, -1][rejected])
        return tokens

    def _accept(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        """Select one token, (B,), of each row and test it: -1 where it does not pass."""
        tokens = self._select(ids, uniforms[:, :-1])
        tokens[uniforms[:, -1] >= self._chances_of(tokens)] = -1
        return tokens

    def _law(self, ids: IntArray) -> FloatArray:
        emitted = self._selection_probs(ids) * self.chances[ids]
        law = np.zeros((len(ids), self.draft.vocab_size))
        np.add.at(law, (np.arange(len(ids))[:, np.newaxis], ids), emitted)
        rejected = 1.0 - emitted.sum(axis=1, keepdims=True)
        law += np.maximum(rejected, 0.0) * (self.residual / self.residual.sum())
        return law


def accept_index(ids: IntArray, tokens: IntArray) -> IntArray:
    """Position of each token, (B,), among the drafts of its row, (B, n); -1 where it is not."""
    matches = ids == tokens[:, np.newaxis]
    return np.where(matches.any(axis=1), matches.argmax(axis=1), -1).astype(np.int64)


def closing_law(accepted: FloatArray, rejected: float, residual: FloatArray) -> FloatArray:
    """Law of the emitted token: accepted masses, and the rejected mass spread over the residual."""
    return np.asarray(accepted + rejected * (residual / residual.sum()))


def accepted_and_rejected(
    laws: Iterable[FloatArray], chances: Iterable[FloatArray]
) -> tuple[FloatArray, float]:
    """Masses that tests in turn accept, (V,), and the probability that they all fail.

    Each test is of a token of its own law, (V,), independent of the others, and passes with the
    chance of that token.
    """
    accepted, reached = np.zeros(()), 1.0
    for law, passed in zip(laws, chances, strict=True):
        accepted = accepted + reached * law * passed
        reached *= float(law @ (1.0 - passed))
    return accepted, reached


class Verifier(ABC):
    """A rule that turns drafted tokens into one token whose law is exactly the target.

    Attributes
    ----------
    name : str
        Name in the registry.
    draft_types : tuple of type
        The draft distributions it supports; `supports` may narrow them.
    takes_successive : bool
        Whether it supports, instead, every draft that says how each of its tokens is drawn.
    in_draft_order : bool
        Whether it tries drafts in the order drawn, the first being the likeliest to be accepted.
    attains_bound : bool
        Whether it claims to accept with probability alpha*, up to `Plan.gap`.
    source : str
        Where the rule was published, for listings.

    Examples
    --------
    >>> from mdsd import GreedyDraft, GreedyVerifier, WithReplacement
    >>> verifier = GreedyVerifier()
    >>> verifier.supports(WithReplacement([0.2, 0.5, 0.3], 2)), verifier.supported
    (False, 'greedy')
    >>> plan = verifier.plan([0.5, 0.3, 0.2], GreedyDraft([0.2, 0.5, 0.3], 2))
    >>> round(plan.acceptance_rate, 12)
    0.9
    """

    name: ClassVar[str]
    draft_types: ClassVar[tuple[type[DraftDistribution], ...]] = ()
    takes_successive: ClassVar[bool] = False
    in_draft_order: ClassVar[bool] = False
    attains_bound: ClassVar[bool] = False
    source: ClassVar[str] = ""

    def supports(self, draft: DraftDistribution) -> bool:
        """Tell whether this verifier is lossless for drafts of that law.

        Parameters
        ----------
        draft : DraftDistribution

        Returns
        -------
        bool
        """
        return draft.successive if self.takes_successive else isinstance(draft, self.draft_types)

    @property
    def supported(self) -> str:
        """The draft distributions it supports, in words."""
        if DraftDistribution in self.draft_types:
            return "every draft distribution"
        if self.takes_successive:
            return ", ".join(kind.name for kind in draft_types() if kind.successive)
        return ", ".join(kind.name for kind in self.draft_types)

    def for_many(self) -> Verifier:
        """Give the verifier of that name that is meant where nothing is said, for many positions.

        Returns
        -------
        Verifier
            One that plans faster, if there is such a choice.
        """
        return self

    def plan(self, target_probs: ArrayLike, draft: DraftDistribution) -> Plan:
        """Do all work that does not depend on the drawn tokens.

        Parameters
        ----------
        target_probs : array_like, shape (V,)
            Distribution of the next token under the target model.
        draft : DraftDistribution
            Law the drafts are drawn from.

        Returns
        -------
        Plan

        Raises
        ------
        UnsupportedError
            If the verifier does not support this draft distribution; names those it supports.
        InvalidDistributionError
            If `target_probs` is not a probability vector of the draft's length.
        """
        self._refuse_unsupported(draft)
        target = check_probs(target_probs, "target_probs")
        check_same_vocab(target, draft.vocab_size, "draft.draft_probs")
        return self._plan(target, draft)

    def num_uniforms(self, draft: DraftDistribution) -> int:
        """Random numbers that one verification takes, for callers without a plan.

        Parameters
        ----------
        draft : DraftDistribution

        Returns
        -------
        int

        Raises
        ------
        UnsupportedError
            If the verifier does not support this draft distribution.
        """
        self._refuse_unsupported(draft)
        return self._num_uniforms(draft)

    def _refuse_unsupported(self, draft: DraftDistribution) -> None:
        check_draft(draft)
        if not self.supports(draft):
            raise UnsupportedError(
                f"verifier {self.name!r} does not support the {draft.name} draft distribution "
                f"with num_drafts={draft.num_drafts}; it supports {self.supported}"
            )

    @abstractmethod
    def _num_uniforms(self, draft: DraftDistribution) -> int:
        """Count the uniforms for a supported draft."""

    @abstractmethod
    def _plan(self, target_probs: FloatArray, draft: Any) -> Plan:
        """Plan for a checked target and a supported draft."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
