"""The lottery where tokens share groups, at sizes that can be enumerated."""

import copy
import pickle
import weakref

import numpy as np
import pytest

import mdsd
from mdsd._solvers import group_selection, hitting, token_lottery
from mdsd.drafts import IndependentDrafts, WithoutReplacement
from mdsd.testing import (
    CheckFailure,
    check_plan,
    check_verifier,
    enumerated_acceptance,
    random_probs,
)

from ..shared_groups import DRAFTS, heavy_and_tiny, share_groups, shares, target_for
from ..solvers.two_weights import FAULTS

BELOW = r"the upper bound 0\.\d+ is below the attained"

each_draft = pytest.mark.parametrize("name", DRAFTS)
each_effort = pytest.mark.parametrize("effort", ["exact", "fast"])


@pytest.fixture(autouse=True)
def few_groups(monkeypatch):
    """One token by itself and one group, where there would be hundreds."""
    share_groups(monkeypatch)


def plan_of(name, seed=0, **options):
    rng = np.random.default_rng(seed)
    draft = DRAFTS[name](rng)
    return mdsd.OptimalVerifier(**options).plan(target_for(rng, draft), draft)


def enumerated_bound(plan):
    """The bound by a method that knows nothing of groups."""
    for method in ("prefix", "lp"):
        try:
            return mdsd.acceptance_bound(plan.target_probs, plan.draft, method=method).value
        except mdsd.UnsupportedError:
            continue
    raise AssertionError("no method")


def check_certificate(plan):
    """Check that the bound lies between what is attained and what is certified."""
    bound = enumerated_bound(plan)
    assert plan.upper >= bound - 1e-12
    assert bound - plan.gap - 1e-12 <= enumerated_acceptance(plan) <= bound + 1e-12
    assert plan.gap == pytest.approx(plan.upper - plan.acceptance_rate, abs=1e-15)


def enumerated_selection(plan):
    """m^ over all tuples, from the selection probabilities of each."""
    ids, probs = plan.draft.tuple_arrays()
    return np.bincount(
        ids.ravel(),
        weights=(probs[:, np.newaxis] * plan._selection_probs(ids)).ravel(),
        minlength=plan.draft.vocab_size,
    )


def check_selection(plan):
    """Check that what a plan says of its selection is what it selects."""
    tokens = np.arange(plan.draft.vocab_size)
    stated = plan.selected_of(tokens)
    np.testing.assert_allclose(stated, enumerated_selection(plan), rtol=0, atol=1e-14)
    np.testing.assert_allclose(plan.selected, stated, rtol=1e-14, atol=0)
    kept = plan._keep_probs(tokens)
    assert 0.0 <= kept.min() <= kept.max() <= 1.0
    # A draft that is not kept selects none.
    assert plan.selected.sum() <= 1.0 + 1e-14


@each_draft
@each_effort
@pytest.mark.parametrize("seed", range(4))
def test_lossless(name, effort, seed):
    plan = plan_of(name, seed, effort=effort)
    assert shares(plan)
    check_plan(plan)
    check_certificate(plan)
    check_selection(plan)


@pytest.mark.parametrize("name", ["without_replacement", "independent"])
@pytest.mark.parametrize("block", range(4))
def test_lossless_on_random_instances(name, block):
    """Zeros, ties, point masses, one token at 1 - 1e-12, masses from 1e-30: exact laws."""
    rng = np.random.default_rng(block)
    shared = 0
    for number in range(60):
        num_drafts = 2 + number % 2
        vocab_size = int(rng.integers(5, 8))
        target = random_probs(rng, vocab_size)
        vectors = [random_probs(rng, vocab_size) for _ in range(num_drafts)]
        if number % 7 == 6:
            vectors[0] = target
        if name == "independent":
            draft = IndependentDrafts(vectors)
        elif np.count_nonzero(vectors[0]) < num_drafts:
            continue
        else:
            draft = WithoutReplacement(vectors[0], num_drafts)
        limit = None if number % 3 else 1 + number % 5
        effort = "fast" if number % 2 else "exact"
        verifier = mdsd.OptimalVerifier(max_iterations=limit, effort=effort)
        plan = verifier.plan(target, draft)
        check_plan(plan)
        check_certificate(plan)
        check_selection(plan)
        shared += shares(plan)
    assert shared >= (15 if name == "independent" else 1)


class TestTheChecksNotice:
    """Negative controls: what is checked above fails where it must."""

    def test_a_bound_that_is_passed(self):
        plan = plan_of("independent")
        check_certificate(plan)
        rate, upper = plan.acceptance_rate, plan.acceptance_rate - 0.02
        vars(plan._lottery)["_cut"] = (upper, plan._lottery.subset)
        with pytest.raises(AssertionError):
            check_certificate(plan)
        del plan.gap
        message = f"the upper bound {upper!r} is below the attained {rate!r}"
        with pytest.raises(mdsd.SolverError, match=message):
            _ = plan.gap

    @each_draft
    def test_orders_from_the_last_group_to_the_first(self, name):
        plan = plan_of(name)
        assert plan.selected.sum() > 0.99
        plan._lottery.orders = np.ascontiguousarray(plan._lottery.orders[:, ::-1])
        with pytest.raises(CheckFailure):
            check_plan(plan)

    @pytest.mark.parametrize("name", ["without_replacement", "hybrid"])
    def test_drafts_that_are_kept_although_they_are_dropped(self, name, monkeypatch):
        plan = plan_of(name)
        plan._keep_probs = lambda tokens: np.ones(len(tokens))
        with pytest.raises(CheckFailure, match="summed over the tuples"):
            check_plan(plan)

    @each_draft
    def test_the_first_draft_of_a_group_in_place_of_each_with_equal_chances(
        self, name, monkeypatch
    ):
        plan = plan_of(name)
        even = group_selection.selection_probs

        def uneven(orders, weights, groups):
            probs = even(orders, weights, groups)
            for k in range(1, groups.shape[1]):
                for j in range(k):
                    same = groups[:, j] == groups[:, k]
                    probs[same, j] += probs[same, k]
                    probs[same, k] = 0.0
            return probs

        monkeypatch.setattr(group_selection, "selection_probs", uneven)
        with pytest.raises(CheckFailure, match="summed over the tuples"):
            check_plan(plan)


@pytest.mark.parametrize("name", ["without_replacement", "independent", "hybrid"])
@each_effort
def test_conformance(name, effort):
    kind = type(DRAFTS[name](np.random.default_rng(0)))

    class Lottery(mdsd.OptimalVerifier):
        draft_types = (kind,)

    check_verifier(Lottery(effort=effort), seed=5, count=3)


@each_draft
@pytest.mark.parametrize("seed", range(2))
class TestUniforms:
    """What is emitted for given uniforms is the law that the plan states."""

    def test_the_first_is_cut_into_orders_and_into_drafts_of_a_group(self, name, seed):
        plan = plan_of(name, seed)
        ids, _ = plan.draft.tuple_arrays()
        groups = plan._lottery.groups_of(ids.ravel()).reshape(ids.shape)
        ends = np.concatenate([[0.0], np.cumsum(plan.weights)])
        assert ends[-1] == pytest.approx(1.0, abs=1e-15)
        found = np.zeros(ids.shape)
        for order, start, weight in zip(plan._lottery.orders, ends, plan.weights, strict=False):
            ranks = np.argsort(order)[groups]
            first = ranks == ranks.min(axis=1, keepdims=True)
            met = first.sum(axis=1)
            nth = np.where(first, np.cumsum(first, axis=1) - 1, -1)
            for piece in range(met.max()):
                rows = np.flatnonzero(met > piece)
                wanted = ids[rows, (nth[rows] == piece).argmax(axis=1)]
                length = weight / met[rows]
                for inside in (1e-7, 0.5, 1.0 - 1e-7):
                    uniforms = start + length * (piece + inside)
                    selected = plan._select(ids[rows], uniforms[:, np.newaxis])
                    np.testing.assert_array_equal(selected, wanted)
                found[rows, (nth[rows] == piece).argmax(axis=1)] += length
        kept = plan._keep_probs(ids.ravel()).reshape(ids.shape)
        np.testing.assert_allclose(plan._selection_probs(ids), kept * found, rtol=0, atol=1e-15)

    def test_what_is_emitted_has_the_stated_law(self, name, seed):
        """The second uniform is cut at one place, which is found to 1e-13, row by row."""
        plan = plan_of(name, seed)
        rng = np.random.default_rng(seed)
        ids, _ = plan.draft.tuple_arrays()
        ids = ids[rng.permutation(len(ids))[:60]]
        orders = rng.random((len(ids), 1))
        selected = plan._select(ids, orders)
        # A residual that does not emit the token selected.
        ends = np.cumsum(plan.residual / plan.residual.sum())
        lasts = np.flatnonzero(plan.residual)[[0, -1]]
        last = np.where(selected == lasts[1], ends[lasts[0]] / 2, 1.0 - 1e-12)
        low, high = np.zeros(len(ids)), np.ones(len(ids))
        for _ in range(45):
            middle = (low + high) / 2
            uniforms = np.column_stack([orders, middle, last])
            passed = plan.verify_many(ids, uniforms=uniforms).token_id == selected
            low, high = np.where(passed, middle, low), np.where(passed, high, middle)
        emitted = plan._keep_probs(selected) * plan.chances[selected]
        np.testing.assert_allclose(low, emitted, rtol=0, atol=1e-12)
        shares_of_drafts = plan._selection_probs(ids) * plan.chances[ids]
        law = np.zeros((len(ids), plan.draft.vocab_size))
        for j in range(ids.shape[1]):
            law[np.arange(len(ids)), ids[:, j]] += shares_of_drafts[:, j]
        law += (1.0 - law.sum(axis=1, keepdims=True)) * plan.residual / plan.residual.sum()
        np.testing.assert_allclose(plan.output_law(ids), law, rtol=0, atol=1e-12)


@each_draft
class TestPlans:
    def test_one_by_one_as_all_together(self, name):
        """Rows one by one, each with a plan that knows nothing yet, and in one batch."""
        plan = plan_of(name)
        drafts = plan.draft.sample(1, 40)
        uniforms = np.random.default_rng(2).random((40, 3))
        uniforms[::8, 1] = 0.999999
        together = plan.verify_many(drafts, uniforms=uniforms)
        for row, numbers, token, index in zip(
            drafts, uniforms, together.token_id, together.accept_index, strict=True
        ):
            alone = plan_of(name).verify(row, uniforms=numbers)
            assert (alone.token_id, alone.accept_index) == (token, index)

    @pytest.mark.parametrize("used", [False, True], ids=["before use", "after use"])
    def test_pickle(self, name, used):
        plan = plan_of(name)
        drafts = plan.draft.sample(1, 50)
        if used:
            plan.verify(drafts[0], 0)
            plan.marginal_law()
            assert plan.gap >= 0.0
        again = pickle.loads(pickle.dumps(plan))
        assert again.verify(drafts[0], 3) == plan.verify(drafts[0], 3)
        assert again.verify_many(drafts, 3) == plan.verify_many(drafts, 3)
        assert again.selected.tolist() == plan.selected.tolist()
        assert (again.gap, again.upper) == (plan.gap, plan.upper)
        for kept in (plan, again):
            assert not any(
                array.flags.writeable
                for array in (kept.selected, kept.weights, kept.chances, kept.residual)
            )

    def test_nothing_of_all_tokens_before_one_is_rejected(self, name):
        plan = plan_of(name)
        drafts = plan.draft.sample(4)
        accepted = plan.verify(drafts, uniforms=[0.3, 0.0, 0.5])
        assert accepted.token_id in drafts
        of_all = {"selected", "chances", "residual"}
        assert not of_all & {*vars(plan), *vars(plan._lottery)}
        plan.marginal_law()
        assert of_all <= set(vars(plan))

    def test_orders_given_are_spent_on_finer_groups(self, name):
        # Laws of every kind on which the coarse groups leave something.
        coarse = max((plan_of(name, seed) for seed in range(8)), key=lambda plan: plan.gap)
        assert coarse.gap > 1e-3
        fine = mdsd.OptimalVerifier(max_iterations=1000).plan(coarse.target_probs, coarse.draft)
        assert fine.gap <= 1e-9
        assert fine.acceptance_rate > coarse.acceptance_rate
        check_plan(fine)
        check_certificate(fine)

    def test_a_plan_and_its_search_are_forgotten_with_the_draft(self, name):
        rng = np.random.default_rng(0)
        draft = DRAFTS[name](rng)
        target = target_for(rng, draft)
        plan = mdsd.OptimalVerifier().plan(target, draft)
        plan.verify(draft.sample(0), 0)
        assert plan.gap >= 0.0
        known, lottery = weakref.ref(draft), weakref.ref(plan._lottery)
        assert mdsd.OptimalVerifier().plan(target, draft)._lottery is lottery()
        del plan, draft
        assert known() is None
        assert lottery() is None


@each_draft
def test_a_few_tokens_are_searched_to_the_last_digit_at_any_effort(name, monkeypatch):
    monkeypatch.undo()
    plan = plan_of(name, effort="fast")
    assert not shares(plan)
    assert plan.gap <= 1e-9
    check_plan(plan)
    check_certificate(plan)


@each_draft
@pytest.mark.parametrize("seed", [0, 1])
def test_the_certificate_is_cut_token_by_token(name, seed):
    """Where that costs little: with effort "fast" there are sets of whole groups alone."""
    plan, fast = plan_of(name, seed), plan_of(name, seed, effort="fast")
    assert shares(plan)
    assert plan.upper <= plan._lottery._found.upper
    assert fast.upper == fast._lottery._found.upper
    if name == "independent":
        # Those alone certify 0.02 more than there is.
        bound = enumerated_bound(plan)
        assert fast.upper > bound + 0.015
        assert plan.upper == pytest.approx(bound, abs=1e-12)


@each_draft
def test_another_target_is_searched_anew(name):
    """The last search of a draft object is remembered with the target it was made for."""
    first = plan_of(name, 0)
    target = target_for(np.random.default_rng(9), first.draft)
    other = mdsd.OptimalVerifier().plan(target, first.draft)
    fresh = mdsd.OptimalVerifier().plan(target, copy.copy(first.draft))
    assert np.abs(other.selected - first.selected).max() > 1e-3
    assert other.selected.tolist() == fresh.selected.tolist()
    check_plan(other)
    check_certificate(other)


def test_the_search_of_a_listed_law_is_forgotten_too():
    draft = mdsd.ExplicitDraft([[0, 1], [1, 2], [0, 2]], [0.5, 0.25, 0.25], vocab_size=3)
    mdsd.OptimalVerifier().plan([0.5, 0.3, 0.2], draft).verify([0, 1], 0)
    kept = weakref.ref(draft)
    del draft
    assert kept() is None


def draws_of(name, q):
    """Two drafts of that law; the second half of the tokens are a thousand times rarer."""
    if name == "without_replacement":
        return WithoutReplacement(q, 2)
    return IndependentDrafts([q, np.where(q > 0.0, q[::-1].mean(), 0.0) / (q > 0.0).mean()])


SIDES = ["without_replacement", "independent"]


@pytest.mark.parametrize("name", SIDES)
@each_effort
def test_target_on_tokens_never_drafted(name, effort):
    rng = np.random.default_rng(0)
    q = heavy_and_tiny(rng, 3, 20)
    never = np.flatnonzero(q == 0.0)
    target = rng.dirichlet(np.ones(len(q)))
    draft = draws_of(name, q)
    plan = mdsd.OptimalVerifier(effort=effort).plan(target, draft)
    assert shares(plan)
    check_plan(plan)
    check_certificate(plan)
    assert plan.selected[never].tolist() == plan.selected_of(never).tolist() == [0.0]
    # What is never drafted is emitted by the residual.
    seen = plan.verify_many(draft.sample(0, 500), 1)
    assert set(never.tolist()) <= set(seen.token_id.tolist())


@pytest.mark.parametrize("name", SIDES)
@each_effort
def test_nothing_in_common(name, effort):
    q = heavy_and_tiny(np.random.default_rng(0), 3, 20)
    target = np.append(np.zeros(len(q)), [0.5, 0.5])
    plan = mdsd.OptimalVerifier(effort=effort).plan(target, draws_of(name, np.append(q, [0, 0])))
    assert shares(plan)
    check_plan(plan)
    check_certificate(plan)
    assert (plan.acceptance_rate, plan.gap) == (0.0, 0.0)


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("kind", ["flat", "peaked", "ties", "one_heavy", "scales", "nearly_flat"])
def test_thousands_of_tokens_in_a_few_groups(name, kind):
    rng = np.random.default_rng(0)
    target, *vectors = (random_probs(rng, 3000, kind) for _ in range(4))
    draft = WithoutReplacement(vectors[0], 3) if name == SIDES[0] else IndependentDrafts(vectors)
    plan = mdsd.OptimalVerifier().plan(target, draft)
    assert shares(plan)
    missing = 1.0 - plan.selected.sum()
    if name == "independent":
        assert missing == pytest.approx(0.0, abs=1e-13)
    else:
        assert -1e-13 < missing < 2e-3  # what is selected and not kept
    assert np.abs(plan.marginal_law() - plan.target_probs).sum() / 2 < 1e-13
    best = mdsd.OptimalVerifier(max_iterations=100).plan(target, draft)
    assert best.acceptance_rate <= plan.upper + 1e-12
    assert best.upper >= plan.acceptance_rate - 1e-12


@each_effort
@pytest.mark.parametrize("num_drafts", [5, 6])
def test_as_many_draws_as_tokens(num_drafts, effort):
    """Six draws of six tokens meet whatever they can; five miss one token."""
    rng = np.random.default_rng(num_drafts)
    target = rng.dirichlet(np.ones(7))
    q = np.append(rng.dirichlet(np.ones(6)), 0.0)
    plan = mdsd.OptimalVerifier(effort=effort).plan(target, WithoutReplacement(q, num_drafts))
    assert not shares(plan)  # no token is small beside the last one that is drawn
    check_plan(plan)
    check_certificate(plan)
    if num_drafts == 6:
        best = mdsd.OptimalVerifier(max_iterations=1000).plan(target, plan.draft)
        assert best.acceptance_rate == pytest.approx(target[:6].sum(), abs=1e-9)


@pytest.mark.parametrize("law", FAULTS, ids=["20 draws", "64 draws"])
class TestManyDrawsOfTwoWeights:
    """Every token alone, as each is heavy: a bound without replacement was once too low."""

    def problem(self, law):
        rng = np.random.default_rng(law.n)
        q = law.weights * rng.uniform(0.9, 1.1, len(law.weights))
        target = np.full(len(q), 1e-4 / (len(q) - 1))
        target[-1] = 1.0 - target[:-1].sum()
        return target, WithoutReplacement(q / q.sum(), law.n)

    def test_the_certificate_holds(self, law):
        target, draft = self.problem(law)
        plan = mdsd.OptimalVerifier().plan(target, draft)
        assert 0.2 < plan.acceptance_rate <= plan.upper + 1e-12
        assert plan.gap < 1e-3
        assert plan.acceptance_rate <= mdsd.acceptance_bound(target, draft).value + 1e-12

    def test_a_lower_bound_would_be_an_error(self, law, monkeypatch):
        """Negative control: a search that loses a twentieth of the prefix hits."""
        target, draft = self.problem(law)
        hits = token_lottery.hits_of_groups
        monkeypatch.setattr(
            token_lottery, "hits_of_groups", lambda *args: (hits(*args)[0] * 0.95, None)
        )
        plan = mdsd.OptimalVerifier().plan(target, draft)
        with pytest.raises(mdsd.SolverError, match=BELOW):
            _ = plan.gap
        with pytest.raises(mdsd.SolverError, match="is below the attained"):
            mdsd.acceptance_bound(target, draft, method="submodular")


def test_a_certificate_below_what_groups_attain_is_an_error(monkeypatch):
    """Negative control: what certifies, token by token, is not what the search made of groups."""
    plan = plan_of("without_replacement")
    assert shares(plan)
    hits = hitting.prefix_hits
    monkeypatch.setattr(hitting, "prefix_hits", lambda *args: hits(*args) * 0.95)
    with pytest.raises(mdsd.SolverError, match=BELOW):
        _ = plan.gap


def test_a_bound_below_what_the_marks_attain_is_an_error():
    plan = mdsd.OptimalVerifier().plan([0.5, 0.3, 0.2], mdsd.WithReplacement([0.2, 0.5, 0.3], 2))
    assert plan.gap < 1e-12
    del plan.gap
    plan._marks = plan._marks._replace(upper=plan.acceptance_rate - 1e-6)
    message = r"'optimal'.*0\.85999\d* is below the attained 0\.8[56]"
    with pytest.raises(mdsd.SolverError, match=message):
        _ = plan.gap


@pytest.mark.parametrize("effort", ["exact", "fast"])
def test_no_rows_at_all(effort):
    target, draft = np.random.default_rng(0).dirichlet(np.ones(800), size=2)
    plan = mdsd.OptimalVerifier(effort=effort).plan(target, mdsd.WithoutReplacement(draft, 2))
    none = np.empty((0, 2), dtype=np.int64)
    assert plan.verify_many(none, 0).token_id.shape == (0,)
    assert plan.output_law(none).shape == (0, 800)


def test_a_class_derived_from_the_optimal_verifier_is_fast_for_many():
    class Mine(mdsd.OptimalVerifier):
        def __init__(self):
            super().__init__()

    made = Mine().for_many()
    assert (type(made), made.effort) == (Mine, "fast")
