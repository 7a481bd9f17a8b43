"""The conformance suite itself: every check must notice a verifier that breaks what it checks."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings

import mdsd
from mdsd import (
    DraftDistribution,
    ExplicitDraft,
    GreedyVerifier,
    KSeqVerifier,
    NaiveVerifier,
    SingleDraftVerifier,
    TopKDraft,
    Verification,
    WithoutReplacement,
    WithReplacement,
)
from mdsd._random import draw_tokens, generator
from mdsd._tokens import check_token_ids
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import (
    CheckFailure,
    Instance,
    check_plan,
    check_verifier,
    chi_square_p_value,
    draft_distributions,
    drafts_of,
    enumerated_acceptance,
    enumerated_law,
    instances,
    probability_vectors,
    problems,
    random_probs,
)
from mdsd.testing._instances import DraftRecipe
from mdsd.verifiers.base import SelectionPlan, Verifier
from mdsd.verifiers.kseq import KSeqPlan
from mdsd.verifiers.naive import NaivePlan
from mdsd.verifiers.single import SingleDraftPlan

from .. import commands
from ..verifiers import NAMES

COUNT = 12
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


# --- broken verifiers, one flaw each -------------------------------------------------------------

MUTANTS: dict[str, tuple[type[Verifier], str]] = {}


def mutant(label: str, message: str) -> Any:
    """Register a broken verifier with a pattern of what the suite must say of it."""

    def register(kind: type[Verifier]) -> type[Verifier]:
        MUTANTS[label] = (kind, message)
        return kind

    return register


def single_mutant(label: str, message: str) -> Any:
    """Register a single-draft verifier whose plans are of the decorated class."""

    def register(plan: type[SingleDraftPlan]) -> type[SingleDraftPlan]:
        class Broken(SingleDraftVerifier):
            def _plan(self, target_probs: Any, draft: Any) -> Any:
                return plan(target_probs, draft, draft.token_hit_probs())

        MUTANTS[label] = (Broken, message)
        return plan

    return register


def naive_mutant(label: str, message: str) -> Any:
    """Register a naive verifier whose plans are of the decorated class."""

    def register(plan: type[NaivePlan]) -> type[NaivePlan]:
        class Broken(NaiveVerifier):
            def _plan(self, target_probs: Any, draft: Any) -> Any:
                return plan(target_probs, draft)

        MUTANTS[label] = (Broken, message)
        return plan

    return register


def kseq_mutant(label: str, message: str) -> Any:
    """Register a K-SEQ verifier whose plans are of the decorated class."""

    def register(plan: type[KSeqPlan]) -> type[KSeqPlan]:
        class Broken(KSeqVerifier):
            def _plan(self, target_probs: Any, draft: Any) -> Any:
                return plan(target_probs, draft)

        MUTANTS[label] = (Broken, message)
        return plan

    return register


# The law is wrong.


@single_mutant("residual-is-the-target", "not the target")
class ResidualIsTarget(SingleDraftPlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.residual = self.target_probs


@single_mutant("residual-is-a-softmax", "probability 0|not the target")
class ResidualIsSoftmax(SingleDraftPlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.residual = np.exp(np.maximum(self.target_probs - self.tested, 0.0))


@single_mutant("residual-is-absolute", "probability 0|not the target")
class ResidualIsAbsolute(SingleDraftPlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        left = np.abs(self.target_probs - self.tested)
        self.residual = left if left.any() else self.target_probs


@kseq_mutant("residual-of-a-single-draft", "not the target")
class ResidualOfSingle(KSeqPlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        left = np.maximum(self.target_probs - self.draft.draft_probs, 0.0)
        self.residual = left if left.any() else self.target_probs


@kseq_mutant("the-same-draft-twice", "not the target")
class FirstDraftTwice(KSeqPlan):
    def _tests(self, ids: Any) -> Any:
        return super()._tests(np.repeat(ids[:, :1], ids.shape[1], axis=1))


@single_mutant("law-is-not-normalised", "sum to 1")
class NotNormalised(SingleDraftPlan):
    def _law(self, ids: Any) -> Any:
        return super()._law(ids) * (1 - 1e-9)


@naive_mutant("law-has-a-negative-entry", "negative")
class NegativeEntry(NaivePlan):
    def _law(self, ids: Any) -> Any:
        law = super()._law(ids)
        law[:, 0] -= 2.0
        law[:, -1] += 2.0
        return law


@naive_mutant("law-of-the-wrong-shape", "shape|sum to 1")
class WrongShape(NaivePlan):
    def output_law(self, draft_token_ids: Any) -> Any:
        return super().output_law(draft_token_ids)[..., :1]


@single_mutant("biased-by-1e-9", "not the target")
class SlightlyBiased(SingleDraftPlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.chances = self.chances * (1 - 1e-9)


@naive_mutant("emits-a-token-of-probability-0", "target probability 0")
class EmitsZero(NaivePlan):
    def _law(self, ids: Any) -> Any:
        law = super()._law(ids)
        off = np.flatnonzero(self.target_probs == 0.0)
        law[:, off] = 1e-15
        return law


# What is emitted is not what the law says.


@single_mutant("accept-test-not-strict", "probability 0")
class NotStrict(SingleDraftPlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        emitted = draw_tokens(self.residual, uniforms[:, 1])
        return np.where(uniforms[:, 0] <= self.chances[ids[:, 0]], ids[:, 0], emitted)


@single_mutant("one-number-for-test-and-residual", "do not follow|does not follow")
class SharedNumber(SingleDraftPlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        return super()._emit(ids, uniforms[:, [0, 0]])


@single_mutant("never-accepts", "do not follow|does not follow")
class NeverAccepts(SingleDraftPlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        return draw_tokens(self.residual, uniforms[:, 1])


@single_mutant("right-on-average-only", "does not follow output_law")
class RightOnAverage(SingleDraftPlan):
    """Emits from the target whatever was drafted, while its law speaks of accept tests."""

    def _emit(self, ids: Any, uniforms: Any) -> Any:
        return draw_tokens(self.target_probs, uniforms[:, 1])


@naive_mutant("last-bucket-is-a-token-without-mass", "probability 0")
class LastBucket(NaivePlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        found = np.searchsorted(np.cumsum(self.residual), uniforms[:, 0], side="left")
        return np.minimum(found, len(self.residual) - 1)


@naive_mutant("ignores-its-uniforms", "same uniforms")
class IgnoresUniforms(NaivePlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        return draw_tokens(self.residual, np.random.default_rng().random(len(ids)))


@naive_mutant("ignores-its-seed", "same seed")
class IgnoresSeed(NaivePlan):
    def _numbers(self, rng: Any, uniforms: Any, batch: Any) -> Any:
        return super()._numbers(None if uniforms is None else rng, uniforms, batch)


@naive_mutant("one-uniform-for-the-whole-batch", "same uniforms")
class OneUniform(NaivePlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        return super()._emit(ids, np.broadcast_to(uniforms[:1], uniforms.shape))


@single_mutant("drafting-and-verifying-share-a-stream", "not independent")
class SharedStream(SingleDraftPlan):
    def _numbers(self, rng: Any, uniforms: Any, batch: Any) -> Any:
        if uniforms is None:
            return generator(rng, "draft").random((*batch, self.num_uniforms))
        return super()._numbers(rng, uniforms, batch)


# The index is wrong.


class IndexPlan(NaivePlan):
    """A naive plan that reports some other index."""

    def index(self, ids: Any, tokens: Any) -> Any:
        raise NotImplementedError

    def verify(self, draft_token_ids: Any, rng: Any = None, *, uniforms: Any = None) -> Any:
        seen = super().verify(draft_token_ids, rng, uniforms=uniforms)
        ids = np.asarray(draft_token_ids)
        index = self.index(ids[np.newaxis], np.array([seen.token_id]))
        return Verification(seen.token_id, int(index[0]))

    def verify_many(self, draft_token_ids: Any, rng: Any = None, *, uniforms: Any = None) -> Any:
        seen = super().verify_many(draft_token_ids, rng, uniforms=uniforms)
        return Verification(seen.token_id, self.index(np.asarray(draft_token_ids), seen.token_id))


@naive_mutant("index-of-the-last-match", "accept_index")
class LastMatch(IndexPlan):
    def index(self, ids: Any, tokens: Any) -> Any:
        matches = ids == tokens[:, np.newaxis]
        last = ids.shape[1] - 1 - matches[:, ::-1].argmax(axis=1)
        return np.where(matches.any(axis=1), last, -1)


@naive_mutant("index-0-where-nothing-matches", "accept_index")
class NoMinusOne(IndexPlan):
    def index(self, ids: Any, tokens: Any) -> Any:
        return (ids == tokens[:, np.newaxis]).argmax(axis=1)


@naive_mutant("residual-never-counts", "accept_index")
class NeverCounts(IndexPlan):
    def index(self, ids: Any, tokens: Any) -> Any:
        return np.full(len(ids), -1)


@naive_mutant("verify-has-another-index", "verify and verify_many differ")
class AloneDiffers(IndexPlan):
    def index(self, ids: Any, tokens: Any) -> Any:
        matches = ids == tokens[:, np.newaxis]
        right = np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
        return np.array([-1]) if len(ids) == 1 else right


# What the plan says of itself is wrong.


@single_mutant("rate-too-high-by-1e-6", "acceptance_rate|a rate")
class RateTooHigh(SingleDraftPlan):
    @property
    def acceptance_rate(self) -> float:
        return super().acceptance_rate + 1e-6


@single_mutant("rate-too-low-by-1e-6", "acceptance_rate|a rate")
class RateTooLow(SingleDraftPlan):
    @property
    def acceptance_rate(self) -> float:
        return max(0.0, super().acceptance_rate - 1e-6)


@single_mutant("negative-gap", "gap")
class NegativeGap(SingleDraftPlan):
    gap = -1e-3


@single_mutant("marginal-law-is-wrong", "marginal_law")
class WrongMarginal(SingleDraftPlan):
    def marginal_law(self) -> Any:
        return np.roll(super().marginal_law(), 1)


@single_mutant("marginal-law-without-residual", "marginal_law")
class HalfMarginal(SingleDraftPlan):
    def marginal_law(self) -> Any:
        return self.tested * self.chances


@mutant("claims-the-bound", "misses")
class ClaimsBound(NaiveVerifier):
    attains_bound = True


@mutant("num-uniforms-differ", "num_uniforms")
class OtherNumUniforms(NaiveVerifier):
    def _num_uniforms(self, draft: Any) -> int:
        return 2


@mutant("supports-everything-but-is-for-one-draft", "not the target")
class SupportsTooMuch(SingleDraftVerifier):
    def supports(self, draft: Any) -> bool:
        return isinstance(draft, DraftDistribution)


@mutant("greedy-rule-for-drafts-with-replacement", "not the target")
class GreedyForAll(GreedyVerifier):
    def supports(self, draft: Any) -> bool:
        return isinstance(draft, WithReplacement)

    def _plan(self, target_probs: Any, draft: Any) -> Any:
        return SingleDraftPlanOfLast(target_probs, draft, draft.token_hit_probs())


class SingleDraftPlanOfLast(SingleDraftPlan):
    def _tests(self, ids: Any) -> Any:
        return self.chances[ids[:, -1:]], ids[:, -1:]


@mutant("supports-nothing", "supports none")
class SupportsNothing(NaiveVerifier):
    def supports(self, draft: Any) -> bool:
        return False


@mutant("plans-what-it-denies", "denies")
class PlansAnyway(NaiveVerifier):
    draft_types = (WithReplacement,)

    def _refuse_unsupported(self, draft: Any) -> None:
        pass


@mutant("refuses-without-a-name", "does not name")
class RefusesNamelessly(NaiveVerifier):
    draft_types = (WithReplacement,)

    def _refuse_unsupported(self, draft: Any) -> None:
        if not self.supports(draft):
            raise UnsupportedError("not supported")


@mutant("refuses-with-another-error", "raised")
class RefusesOtherwise(NaiveVerifier):
    draft_types = (WithReplacement,)

    def _refuse_unsupported(self, draft: Any) -> None:
        if not self.supports(draft):
            raise InvalidArgumentError(f"not for {draft.name}")


# It depends on what it must not depend on, or changes what is not its own.


class FirstIdPlan(SelectionPlan):
    """Always select the drafted token of the lowest id: lossless, and not the same for others."""

    num_uniforms = 2

    def __init__(self, target_probs: Any, draft: Any) -> None:
        masses = np.diff(draft.hit_probs(np.arange(draft.vocab_size)))
        super().__init__(target_probs, draft)
        self._masses = np.maximum(masses, 0.0)

    @property
    def selected(self) -> Any:
        return self._masses

    @property
    def upper(self) -> float:
        return 1.0

    def _select(self, ids: Any, uniforms: Any) -> Any:
        return ids.min(axis=1)

    def _selection_probs(self, ids: Any) -> Any:
        probs = np.zeros(ids.shape)
        probs[np.arange(len(ids)), ids.argmin(axis=1)] = 1.0
        return probs


@mutant("depends-on-token-ids", "relabelling")
class DependsOnIds(NaiveVerifier):
    def _num_uniforms(self, draft: Any) -> int:
        return 2

    def _plan(self, target_probs: Any, draft: Any) -> Any:
        return FirstIdPlan(target_probs, draft)


@mutant("sorts-its-target", "modified|off by")
class SortsTarget(NaiveVerifier):
    def plan(self, target_probs: Any, draft: Any) -> Any:
        made = super().plan(target_probs, draft)
        if isinstance(target_probs, np.ndarray) and target_probs.flags.writeable:
            target_probs.sort()
        return made


@mutant("normalises-its-target-in-place", "modified|off by")
class ScalesTarget(NaiveVerifier):
    def plan(self, target_probs: Any, draft: Any) -> Any:
        if isinstance(target_probs, np.ndarray) and target_probs.flags.writeable:
            target_probs *= 0.999999
            target_probs /= target_probs.sum(dtype=np.float64)
        return super().plan(target_probs, draft)


@mutant("rolls-its-target", "modified|another law")
class RollsTarget(NaiveVerifier):
    def plan(self, target_probs: Any, draft: Any) -> Any:
        made = super().plan(target_probs, draft)
        if isinstance(target_probs, np.ndarray) and target_probs.flags.writeable:
            target_probs[:] = np.roll(target_probs, 1)
        return made


@naive_mutant("modifies-its-uniforms", "modified|differ")
class ModifiesUniforms(NaivePlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        tokens = super()._emit(ids, uniforms)
        if uniforms.flags.writeable:
            uniforms[:] = 0.5
        return tokens


@kseq_mutant("sorts-its-drafts", "do not follow|differ|modified")
class SortsDrafts(KSeqPlan):
    """Tests the drafts by id, as the caller will find them afterwards."""

    def _emit(self, ids: Any, uniforms: Any) -> Any:
        ids.sort(axis=1)
        return super()._emit(ids, uniforms)


@kseq_mutant("overwrites-its-drafts", "differ|modified")
class OverwritesDrafts(KSeqPlan):
    def _emit(self, ids: Any, uniforms: Any) -> Any:
        tokens = super()._emit(ids, uniforms)
        ids.sort(axis=1)
        return tokens


@mutant("keeps-a-reference-to-its-target", "another|modified|not the target")
class KeepsReference(NaiveVerifier):
    """The plan changes when the caller's array does."""

    def plan(self, target_probs: Any, draft: Any) -> Any:
        made = super().plan(target_probs, draft)
        if isinstance(target_probs, np.ndarray) and target_probs.dtype == np.float64:
            made.target_probs = made.residual = target_probs
        return made


@mutant("float32-is-not-renormalised-in-float64", "float")
class KeepsFloat32(NaiveVerifier):
    def plan(self, target_probs: Any, draft: Any) -> Any:
        made = super().plan(target_probs, draft)
        if getattr(target_probs, "dtype", None) == np.float32:
            made.residual = np.asarray(target_probs) / np.asarray(target_probs).sum() + np.float32(
                0
            )
            made.marginal_law = lambda: made.residual
        return made


# Wrong drafts are not refused.


@naive_mutant("ids-out-of-range-are-clipped", "not refused")
class ClipsIds(NaivePlan):
    def _checked_ids(self, draft_token_ids: Any, *, ndim: int | None) -> Any:
        ids = np.clip(np.asarray(draft_token_ids), 0, self.draft.vocab_size - 1)
        return super()._checked_ids(ids.astype(np.int64), ndim=ndim)


@naive_mutant("float-ids-are-cut", "not refused")
class CutsIds(NaivePlan):
    def _checked_ids(self, draft_token_ids: Any, *, ndim: int | None) -> Any:
        return super()._checked_ids(np.asarray(draft_token_ids).astype(np.int64), ndim=ndim)


@naive_mutant("too-many-drafts-are-cut", "not refused")
class CutsDrafts(NaivePlan):
    def _checked_ids(self, draft_token_ids: Any, *, ndim: int | None) -> Any:
        ids = np.asarray(draft_token_ids)[..., : self.draft.num_drafts]
        return super()._checked_ids(ids, ndim=ndim)


@naive_mutant("tuples-that-cannot-be-drawn-pass", "not refused")
class PassesImpossible(NaivePlan):
    def _checked_ids(self, draft_token_ids: Any, *, ndim: int | None) -> Any:
        return check_token_ids(
            draft_token_ids,
            num_drafts=self.draft.num_drafts,
            vocab_size=self.draft.vocab_size,
            ndim=ndim,
        )


@naive_mutant("plans-cannot-be-pickled", "pickle")
class NotPicklable(NaivePlan):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hook = lambda: None


@pytest.mark.parametrize("label", list(MUTANTS))
def test_broken_verifier_is_noticed(label):
    kind, message = MUTANTS[label]
    with pytest.raises(CheckFailure, match=message):
        check_verifier(kind(), count=COUNT)


@pytest.mark.parametrize("name", NAMES)
def test_right_verifier_passes(name):
    check_verifier(mdsd.get_verifier(name), seed=5, count=2)


def test_failure_names_verifier_and_instance():
    kind, _ = MUTANTS["residual-is-the-target"]
    with pytest.raises(CheckFailure, match=r"^Broken\(\) on with_replacement-1-0: "):
        check_verifier(kind(), count=COUNT)


def test_failure_is_an_assertion():
    assert issubclass(CheckFailure, AssertionError)


def test_unexpected_errors_of_the_library_are_failures_too():
    class Raises(NaiveVerifier):
        def _plan(self, target_probs: Any, draft: Any) -> Any:
            raise UnsupportedError("after all")

    with pytest.raises(CheckFailure, match=r"raised .*after all"):
        check_verifier(Raises(), count=1)


# --- check_plan ----------------------------------------------------------------------------------


def plan_of(verifier: str, draft: DraftDistribution) -> Any:
    return mdsd.get_verifier(verifier).plan(P, draft)


def test_check_plan_passes():
    check_plan(plan_of("kseq", WithReplacement(Q, 2)))


def test_check_plan_notices_a_missed_bound():
    plan = plan_of("kseq", WithReplacement(Q, 2))
    with pytest.raises(CheckFailure, match="misses"):
        check_plan(plan, attains_bound=True)


def test_check_plan_allows_a_certified_gap():
    plan = plan_of("kseq", WithReplacement(Q, 2))
    plan.gap = 0.1
    check_plan(plan, attains_bound=True)


@pytest.mark.parametrize("off", [-1e-6, 1e-6])
def test_check_plan_notices_a_wrong_rate(off):
    class Wrong(SingleDraftPlan):
        @property
        def acceptance_rate(self) -> float:
            return super().acceptance_rate + off

    with pytest.raises(CheckFailure, match="acceptance_rate is"):
        check_plan(Wrong(P, WithReplacement(Q, 1), Q))


def test_check_plan_notices_drafts_that_count_twice():
    """Acceptance above the bound: the draft distribution declared is not the one planned for."""
    plan = mdsd.get_verifier("greedy").plan(P, mdsd.GreedyDraft(Q, 2))
    plan.draft = TopKDraft(Q, 2)
    with pytest.raises(CheckFailure):
        check_plan(plan)


# --- exact laws ----------------------------------------------------------------------------------


def hand_plan() -> Any:
    return SingleDraftVerifier().plan(P, WithReplacement(Q, 1))


def test_enumerated_law_by_hand():
    # Draft 0 is accepted; 1 with 0.6, 2 with 2/3; the residual is all on 0.
    law = hand_plan().output_law([[0], [1], [2]])
    np.testing.assert_allclose(law, [[1, 0, 0], [0.4, 0.6, 0], [1 / 3, 0, 2 / 3]], atol=1e-15)
    np.testing.assert_allclose(enumerated_law(hand_plan()), P, atol=1e-15)


def test_enumerated_law_of_a_wrong_plan_by_hand():
    # Residual = target: 0.2 + 0.3 * 0.5 on token 0, and so on.
    plan = ResidualIsTarget(P, WithReplacement(Q, 1), Q)
    np.testing.assert_allclose(enumerated_law(plan), [0.35, 0.39, 0.26], atol=1e-15)


def test_enumerated_acceptance_by_hand():
    assert enumerated_acceptance(hand_plan()) == pytest.approx(0.7, abs=1e-15)


def test_enumerated_acceptance_counts_a_drafted_residual_once():
    # NSS with two drafts: sum p_i (1 - (1 - q_i)**2), and (1, 1) counts token 1 once.
    plan = NaiveVerifier().plan(P, WithReplacement(Q, 2))
    expected = float(P @ (1 - (1 - Q) ** 2))
    assert enumerated_acceptance(plan) == pytest.approx(expected, abs=1e-15)


# --- chi-square ----------------------------------------------------------------------------------


class TestChiSquare:
    def test_by_hand(self):
        # (60 - 50)**2 / 50 + (40 - 50)**2 / 50 = 4 at one degree of freedom.
        assert chi_square_p_value([60, 40], np.array([0.5, 0.5])) == pytest.approx(
            0.0455003, abs=1e-7
        )

    def test_expected_counts(self):
        assert chi_square_p_value([50, 50], np.array([0.5, 0.5])) == 1.0

    def test_wrong_counts(self):
        assert chi_square_p_value([700, 300], np.array([0.5, 0.5])) < 1e-12

    def test_an_impossible_token(self):
        assert chi_square_p_value([99, 1], np.array([1.0, 0.0])) == 0.0

    def test_one_cell(self):
        assert chi_square_p_value([100, 0], np.array([1.0, 0.0])) == 1.0

    def test_rare_cells_are_pooled(self):
        # Expected 96, 2, 2: the last two make one cell of 4.
        found = chi_square_p_value([96, 4, 0], np.array([0.96, 0.02, 0.02]))
        assert found == pytest.approx(1.0)

    def test_many_of_a_rare_cell(self):
        assert chi_square_p_value([50, 50, 0], np.array([0.96, 0.02, 0.02])) < 1e-12

    def test_p_values_are_uniform(self):
        """Under the law itself: the mean of 400 p-values is 0.5 within 5 standard errors."""
        rng = np.random.default_rng(0)
        law = np.array([0.1, 0.2, 0.3, 0.4])
        found = [chi_square_p_value(rng.multinomial(1000, law), law) for _ in range(400)]
        assert np.mean(found) == pytest.approx(0.5, abs=5 / np.sqrt(12 * 400))


# --- instances -----------------------------------------------------------------------------------

KINDS = ("flat", "peaked", "sparse", "ties", "point", "nearly_flat", "one_heavy", "scales")


class TestRandomProbs:
    @pytest.mark.parametrize("kind", [None, *KINDS])
    @pytest.mark.parametrize("size", [1, 2, 7])
    def test_is_a_law(self, kind, size):
        rng = np.random.default_rng(3)
        for _ in range(20):
            probs = random_probs(rng, size, kind)
            assert probs.shape == (size,)
            assert probs.dtype == np.float64
            assert (probs >= 0).all()
            assert probs.sum() == pytest.approx(1.0, abs=1e-14)

    @pytest.mark.parametrize(
        ("kind", "holds"),
        [
            pytest.param("point", lambda p: np.count_nonzero(p) == 1, id="point"),
            pytest.param("one_heavy", lambda p: p.max() > 1 - 1e-11, id="one_heavy"),
            pytest.param("one_heavy", lambda p: (p > 0).all(), id="one_heavy-no-zeros"),
            pytest.param("nearly_flat", lambda p: np.ptp(p) < 1e-8, id="nearly_flat"),
            pytest.param("flat", lambda p: (p > 0).all(), id="flat"),
            pytest.param("scales", lambda p: p.min() < 1e-3 * p.max(), id="scales"),
        ],
    )
    def test_kind(self, kind, holds):
        rng = np.random.default_rng(4)
        assert all(holds(random_probs(rng, 6, kind)) for _ in range(20))

    def test_sparse_has_zeros(self):
        rng = np.random.default_rng(5)
        assert any((random_probs(rng, 6, "sparse") == 0).any() for _ in range(20))

    def test_ties_has_ties(self):
        rng = np.random.default_rng(5)
        assert any(len(np.unique(random_probs(rng, 6, "ties"))) < 6 for _ in range(20))

    def test_unknown_kind(self):
        with pytest.raises(ValueError, match="'odd'"):
            random_probs(np.random.default_rng(0), 3, "odd")


class TestDraftsOf:
    @pytest.mark.parametrize("n", [1, 2])
    def test_every_draft_distribution(self, n):
        found = drafts_of([Q, P], n, np.random.default_rng(0))
        expected = {kind.label for kind in mdsd.drafts.registry.example_kinds(n)} | {"explicit"}
        assert {draft.own_kind.label for draft in found} == expected
        assert ("spechub" in expected) == (n == 2)
        assert {draft.num_drafts for draft in found} == {n}

    def test_too_few_tokens_leave_some_out(self):
        point = np.array([0.0, 1.0, 0.0])
        found = drafts_of([point, P], 2, np.random.default_rng(0))
        assert {draft.name for draft in found} == {"with_replacement", "independent", "explicit"}


class TestInstances:
    def test_same_seed_same_instances(self):
        first, second = list(instances(2, 6)), list(instances(2, 6))
        assert [found.label for found in first] == [found.label for found in second]
        assert [found.target_probs.tolist() for found in first] == [
            found.target_probs.tolist() for found in second
        ]

    def test_labels_are_unique(self):
        labels = [found.label for found in instances()]
        assert len(set(labels)) == len(labels)

    def test_every_draft_distribution_occurs_generic_and_degenerate(self):
        found = list(instances())
        names = {*mdsd.drafts.draft_names(), "explicit"}
        assert {one.draft.name for one in found} == names
        assert {one.draft.name for one in found if one.tie_free} == names - {"explicit"}
        assert {one.draft.num_drafts for one in found} == {1, 2, 3}

    def test_degenerate_ones_occur(self):
        found = list(instances())
        assert any((one.target_probs == 0).any() for one in found)
        assert any(one.draft.vocab_size == 1 for one in found)
        same = [one for one in found if one.draft.name == "with_replacement"]
        assert any(one.target_probs.tolist() == one.draft.draft_probs.tolist() for one in same)

    def test_number_of_pairs(self):
        numbers = {found.label.rsplit("-", 1)[1] for found in instances(0, 7)}
        assert numbers == set(map(str, range(7)))

    def test_is_lazy(self):
        found = instances(0, 10**9)
        assert isinstance(found, Iterator)
        assert len(list(itertools.islice(found, 3))) == 3

    def test_instance_is_frozen(self):
        one = next(instances())
        assert isinstance(one, Instance)
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.label = "other"


def test_explicit_draft_of_one_tuple_is_checked():
    """The smallest plan there is: one tuple, one token."""
    check_plan(NaiveVerifier().plan([1.0], ExplicitDraft([[0]], [1.0], vocab_size=1)))


def test_without_replacement_over_the_whole_support_is_checked():
    plan = mdsd.get_verifier("optimal").plan(P, WithoutReplacement(Q, 3))
    check_plan(plan, attains_bound=True)
    assert plan.acceptance_rate == pytest.approx(1.0, abs=1e-9)


# --- strategies ----------------------------------------------------------------------------------

SEARCH = settings(
    max_examples=5000,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def first_with(strategy: Any, condition: Any) -> Any:
    """The example that a strategy shrinks to."""
    return find(strategy, condition, settings=SEARCH)


class TestProbabilityVectors:
    @given(probability_vectors())
    @settings(derandomize=True, database=None, deadline=None)
    def test_is_a_law(self, probs):
        assert probs.dtype == np.float64
        assert probs.shape[0] in range(1, 7)
        assert (probs >= 0.0).all()
        assert probs.sum() == pytest.approx(1.0, abs=1e-14)
        mdsd.WithReplacement(probs, 1)

    @pytest.mark.parametrize(
        "condition",
        [
            pytest.param(lambda p: (p == 0.0).sum() == 2, id="exact-zeros"),
            pytest.param(lambda p: len(np.unique(p[p > 0])) < (p > 0).sum(), id="exact-ties"),
            pytest.param(lambda p: p.max() == 1.0 and (p == 0.0).sum() == 3, id="point-mass"),
            pytest.param(lambda p: p[2] == 1.0 and (p == 0.0).sum() == 3, id="another-point-mass"),
            pytest.param(lambda p: 1e-13 < 1 - p.max() < 1e-11, id="peaked"),
            pytest.param(lambda p: p.min() > 1e-99 and p.max() / p.min() > 1e29, id="30-decades"),
            pytest.param(lambda p: ((p > 0) & (p < 2.2e-308)).any(), id="subnormal"),
            pytest.param(lambda p: ((p > 0) & (p < 2.2e-308)).sum() == 3, id="three-subnormal"),
            pytest.param(lambda p: 0.0 < np.ptp(p) < 1e-8, id="nearly-flat"),
            pytest.param(lambda p: np.ptp(p) == 0.0, id="flat"),
            pytest.param(lambda p: len(np.unique(np.round(p, 3))) == 4, id="generic"),
        ],
    )
    def test_every_kind_occurs(self, condition):
        assert condition(first_with(probability_vectors(4), condition))

    def test_every_size_occurs(self):
        for size in (1, 6):
            assert len(first_with(probability_vectors(), lambda p, size=size: len(p) == size))

    def test_shrinks_to_one_token(self):
        assert first_with(probability_vectors(), lambda p: True).tolist() == [1.0]

    def test_shrinks_to_small_fractions(self):
        # Two tokens of which the second is likelier, and neither impossible.
        found = first_with(probability_vectors(), lambda p: len(p) > 1 and p[1] > p[0] > 0)
        assert found.tolist() == pytest.approx([1 / 3, 2 / 3])

    @given(probability_vectors(4, min_support=3))
    @settings(derandomize=True, database=None, deadline=None)
    def test_support(self, probs):
        assert np.count_nonzero(probs) >= 3

    def test_impossible_support(self):
        with pytest.raises(InvalidArgumentError, match="min_support is 3"):
            probability_vectors(2, min_support=3)


class TestDraftDistributions:
    @pytest.mark.parametrize(
        ("name", "n"),
        [
            *((name, 3) for name in ("with_replacement", "without_replacement", "independent")),
            *((name, 3) for name in ("greedy", "top_k", "explicit")),
            ("spechub", 2),
        ],
    )
    def test_every_kind_occurs(self, name, n):
        def wanted(draft):
            return draft.name == name and draft.num_drafts == n

        assert wanted(first_with(draft_distributions(), wanted))

    @given(draft_distributions(4, 2, kinds=("top_k", "spechub")))
    @settings(derandomize=True, database=None, deadline=None)
    def test_sizes_and_kinds(self, draft):
        assert draft.vocab_size == 4
        assert draft.num_drafts == 2
        assert draft.name in ("top_k", "spechub")

    @given(draft_distributions(2, max_num_drafts=5))
    @settings(derandomize=True, database=None, deadline=None)
    def test_distinct_drafts_fit_the_vocabulary(self, draft):
        if draft.name in ("without_replacement", "greedy", "top_k", "spechub"):
            assert draft.num_drafts <= 2

    def test_shrinks_to_the_least(self):
        found = first_with(draft_distributions(), lambda draft: True)
        assert (found.name, found.num_drafts, found.vocab_size) == ("with_replacement", 1, 1)

    def test_prints_the_call_that_makes_it(self):
        @settings(SEARCH, report_multiple_bugs=False)
        @given(draft_distributions(kinds=("with_replacement",)))
        def fails(draft):
            assert draft.num_drafts < 2

        with pytest.raises(AssertionError) as caught:
            fails()
        assert "WithReplacement([1.0], 2)" in "".join(caught.value.__notes__)

    def test_unknown_kind(self):
        with pytest.raises(InvalidArgumentError, match="kinds holds 'beam'"):
            draft_distributions(kinds=("beam",))

    @pytest.mark.parametrize(
        "sizes",
        [{"num_drafts": 3, "kinds": ("spechub",)}, {"vocab_size": 1, "kinds": ("spechub",)}],
    )
    def test_impossible_sizes(self, sizes):
        with pytest.raises(InvalidArgumentError, match="none of the draft distributions"):
            draft_distributions(**sizes)


class TestProblems:
    def test_target_can_be_the_draft(self):
        def same(problem):
            return len(problem.target_probs) == 3 and (
                problem.target_probs.tolist() == problem.draft.draft_probs.tolist() != [1 / 3] * 3
            )

        first_with(problems(kinds=("with_replacement",)), same)

    def test_target_can_be_next_to_the_draft(self):
        def near(problem):
            return 0.0 < np.abs(problem.target_probs - problem.draft.draft_probs).max() < 1e-11

        first_with(problems(kinds=("with_replacement",)), near)

    @given(problems())
    @settings(derandomize=True, database=None, deadline=None)
    def test_label_makes_the_same_problem(self, problem):
        assert isinstance(problem, Instance)
        target, draft = eval(problem.label, {"mdsd": mdsd})
        assert target == problem.target_probs.tolist()
        assert type(draft) is type(problem.draft)
        assert [list(part) for part in draft.tuple_arrays()[0]] == [
            list(part) for part in problem.draft.tuple_arrays()[0]
        ]
        assert draft.tuple_arrays()[1].tolist() == problem.draft.tuple_arrays()[1].tolist()

    def test_shrinks_to_a_problem_to_read(self):
        """K-SEQ misses the bound first on two tokens, two drafts and plain fractions."""

        def misses(problem):
            plan = KSeqVerifier().plan(problem.target_probs, problem.draft)
            bound = mdsd.acceptance_bound(problem.target_probs, problem.draft)
            return plan.acceptance_rate < bound.value - 1e-3

        found = first_with(problems(kinds=("with_replacement",)), misses)
        assert found.draft.num_drafts == 2
        assert len(found.target_probs) <= 3
        numbers = [*found.target_probs, *found.draft.draft_probs]
        assert all(Fraction(float(x)).limit_denominator(12) == pytest.approx(x) for x in numbers)


class TestWithoutHypothesis:
    @pytest.mark.parametrize("strategy", [probability_vectors, draft_distributions, problems])
    def test_strategies_say_what_to_install(self, strategy, monkeypatch):
        # Hypothesis' own plugin of pytest needs it again as soon as the test is over.
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "hypothesis", None)
            with pytest.raises(ImportError, match="pip install hypothesis"):
                strategy()

    def test_everything_else_works(self):
        code = (
            "import sys; sys.modules['hypothesis'] = None; import mdsd; "
            "mdsd.testing.check_verifier(mdsd.get_verifier('naive'), count=1); "
            "from mdsd.testing import *; print(problems.__name__)"
        )
        assert commands.run_python(code).stdout == "problems\n"


@pytest.mark.parametrize(
    ("kind", "args", "options", "expected"),
    [
        (WithReplacement, ([0.1, 0.9], 2), {}, "mdsd.WithReplacement([0.1, 0.9], 2)"),
        (
            ExplicitDraft,
            ([[0, 1]], [1.0]),
            {"vocab_size": 2},
            "mdsd.ExplicitDraft([[0, 1]], [1.0], vocab_size=2)",
        ),
    ],
)
def test_recipe_is_source_code(kind, args, options, expected):
    recipe = DraftRecipe(kind, args, options)
    assert str(recipe) == expected
    assert recipe.build().tuple_arrays()[1].tolist() == (
        eval(expected, {"mdsd": mdsd}).tuple_arrays()[1].tolist()
    )


def test_names_that_were_there_before_are_still_there():
    for name in ("EXACT", "FALSE_ALARM", "CheckFailure", "Instance", "check_plan", "random_probs"):
        assert hasattr(mdsd.testing, name)
    assert set(mdsd.testing.__all__) <= set(dir(mdsd.testing))
    assert callable(mdsd.testing.instances)


# --- bad arguments -------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
VECTORS = [np.array([0.5, 0.5])]
BAD_ARGUMENTS = {
    "random_probs-rng": (mdsd.testing.random_probs, ("seed", 3), {}, "rng is 'seed'"),
    "random_probs-size-0": (mdsd.testing.random_probs, (RNG, 0), {}, "vocab_size is 0"),
    "random_probs-size-float": (mdsd.testing.random_probs, (RNG, 2.5), {}, "vocab_size is 2.5"),
    "random_probs-kind": (mdsd.testing.random_probs, (RNG, 3, "flatt"), {}, "did you mean 'flat'"),
    "drafts_of-rng": (mdsd.testing.drafts_of, (VECTORS, 1, -1), {}, "rng is -1"),
    "drafts_of-num_drafts": (mdsd.testing.drafts_of, (VECTORS, 0, RNG), {}, "num_drafts is 0"),
    "instances-seed": (mdsd.testing.instances, (-1,), {}, "seed is -1"),
    "instances-count": (mdsd.testing.instances, (0, 0), {}, "count is 0"),
    "enumerated_law": (mdsd.testing.enumerated_law, ("plan",), {}, "plan is str"),
    "enumerated_acceptance": (mdsd.testing.enumerated_acceptance, (None,), {}, "plan is NoneType"),
    "check_plan": (mdsd.testing.check_plan, (3,), {}, "plan is int"),
    "check_verifier": (mdsd.testing.check_verifier, ("naive",), {}, "verifier is str"),
    "check_verifier-seed": (
        mdsd.testing.check_verifier,
        (mdsd.NaiveVerifier(),),
        {"seed": 1.5},
        "seed is 1.5",
    ),
    "chi_square-counts-float": (
        mdsd.testing.chi_square_p_value,
        ([0.5, 0.5], VECTORS[0]),
        {},
        "counts is",
    ),
    "chi_square-counts-negative": (
        mdsd.testing.chi_square_p_value,
        ([-1, 2], VECTORS[0]),
        {},
        "counts is",
    ),
    "chi_square-counts-length": (
        mdsd.testing.chi_square_p_value,
        ([1, 2, 3], VECTORS[0]),
        {},
        "expected 2 integers",
    ),
}


@pytest.mark.parametrize(
    ("call", "arguments", "options", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS
)
def test_bad_arguments(call, arguments, options, message):
    with pytest.raises(mdsd.InvalidArgumentError, match=message):
        call(*arguments, **options)


BAD_VECTORS = {
    "drafts_of": (mdsd.testing.drafts_of, ([[0.5, 0.4]], 1, RNG), "sums to 0.9"),
    "drafts_of-too-few": (mdsd.testing.drafts_of, (VECTORS, 2, RNG), "has 1 vectors"),
    "chi_square": (mdsd.testing.chi_square_p_value, ([1, 2], [0.5, 0.6]), "expected_probs sums to"),
}


@pytest.mark.parametrize(("call", "arguments", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_bad_vectors(call, arguments, message):
    with pytest.raises(mdsd.InvalidDistributionError, match=message):
        call(*arguments)


def test_an_integer_seeds_random_probs():
    first, again = mdsd.testing.random_probs(4, 5), mdsd.testing.random_probs(4, 5)
    assert first.tolist() == again.tolist()
    assert first.tolist() != mdsd.testing.random_probs(5, 5).tolist()
