"""The lottery where tokens share groups, at sizes that can be enumerated."""

import pickle
import weakref

import numpy as np
import pytest

import mdsd
from mdsd.drafts import IndependentDrafts, WithoutReplacement
from mdsd.testing import (
    CheckFailure,
    check_plan,
    check_verifier,
    enumerated_acceptance,
    random_probs,
)
from solvers import grouped_draws, grouped_independent, hitting
from solvers.grouped_draws import DrawsSelection
from solvers.grouped_independent import IndependentSelection

from ..solvers.two_weights import FAULTS


@pytest.fixture(autouse=True)
def few_groups(monkeypatch):
    """One token by itself and two buckets, where there would be hundreds."""
    for module in (grouped_draws, grouped_independent):
        monkeypatch.setattr(module, "_SINGLES", 1)
        monkeypatch.setattr(module, "_BUCKETS", 2)
    monkeypatch.setattr(grouped_draws, "_FEWEST_BUCKETS", 2)


def without_replacement(vectors):
    return WithoutReplacement(vectors[0], len(vectors))


DRAFTS = {"without_replacement": without_replacement, "independent": IndependentDrafts}


def plan_of(name, seed=0, *, vocab_size=6, num_drafts=2, kind="flat", **options):
    rng = np.random.default_rng(seed)
    target = random_probs(rng, vocab_size, kind)
    vectors = [random_probs(rng, vocab_size, kind) for _ in range(num_drafts)]
    return mdsd.OptimalVerifier(**options).plan(target, DRAFTS[name](vectors))


def shares_groups(plan):
    return not plan._lottery.groups.single.all()


@pytest.mark.parametrize("name", DRAFTS)
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
        if name == "without_replacement" and np.count_nonzero(vectors[0]) < num_drafts:
            continue
        limit = None if number % 3 else 1 + number % 5
        verifier = mdsd.OptimalVerifier(max_iterations=limit)
        plan = verifier.plan(target, DRAFTS[name](vectors))
        check_plan(plan)
        check_certificate(plan)
        np.testing.assert_allclose(plan.selected, enumerated_selection(plan), rtol=0, atol=1e-14)
        shared += shares_groups(plan)
    assert shared >= 15


def check_certificate(plan):
    """Check that the bound lies between what is attained and what is certified."""
    bound = mdsd.acceptance_bound(plan.target_probs, plan.draft, method="lp").value
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


@pytest.mark.parametrize("wrong", ["upper", "ranks"])
def test_the_checks_notice_a_wrong_plan(wrong):
    """Negative control: a bound that is passed, and orders from the last group to the first."""
    plan = plan_of("independent")
    check_plan(plan)
    check_certificate(plan)
    if wrong == "upper":
        rate, upper = plan.acceptance_rate, plan.acceptance_rate - 0.02
        vars(plan._lottery)["_cut"] = (upper, plan._lottery.subset)
        with pytest.raises(AssertionError):
            check_certificate(plan)
        del plan.gap
        message = f"the upper bound {upper!r} is below the attained {rate!r}"
        with pytest.raises(mdsd.SolverError, match=message):
            _ = plan.gap
    else:
        plan._group_ranks = -plan._group_ranks
        with pytest.raises(CheckFailure):
            check_plan(plan)


@pytest.mark.parametrize("name", DRAFTS)
def test_conformance(name):
    class Lottery(mdsd.OptimalVerifier):
        draft_types = (type(plan_of(name).draft),)

    check_verifier(Lottery(), seed=5, count=10)


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("seed", range(4))
class TestTheFirstUniform:
    """Its unit interval is cut into the orders of the groups, each as it stands and reversed."""

    def spelled(self, plan, order):
        """Spell out one order of the tokens."""
        groups = plan._lottery.groups
        pieces = np.split(groups.members, groups.starts[1:-1])
        step = -1 if order % 2 else 1
        return [t for g in plan._lottery.orders[order // 2] for t in pieces[g][::step].tolist()]

    def test_each_order_has_its_part(self, name, seed):
        plan = plan_of(name, seed)
        assert shares_groups(plan)
        ids, _ = plan.draft.tuple_arrays()
        ends = np.concatenate([[0.0], np.cumsum(plan.weights)])
        assert ends[-1] == pytest.approx(1.0, abs=1e-15)
        found = np.zeros(ids.shape)
        for order, weight in enumerate(plan.weights):
            tokens = self.spelled(plan, order)
            first = [min(row, key=tokens.index) for row in ids.tolist()]
            inside = ends[order] + weight * np.array([1e-9, 0.5, 1.0 - 1e-9])
            for uniform in inside:
                uniforms = np.full((len(ids), 1), uniform)
                assert plan._select(ids, uniforms).tolist() == first
            # A token drawn twice is selected as the first of both.
            found[np.arange(len(ids)), (ids == np.array(first)[:, np.newaxis]).argmax(axis=1)] += (
                weight
            )
        np.testing.assert_allclose(plan._selection_probs(ids), found, rtol=0, atol=1e-15)

    def test_both_halves_of_an_order_are_equally_likely(self, name, seed):
        plan = plan_of(name, seed)
        assert (plan.weights[::2] == plan.weights[1::2]).all()
        np.testing.assert_allclose(plan.weights[::2] * 2.0, plan._lottery.weights, rtol=1e-15)

    def test_one_direction_alone_would_be_noticed(self, name, seed):
        """Negative control: m^ is not that of the orders as they stand."""
        plan = plan_of(name, seed)
        ids, probs = plan.draft.tuple_arrays()
        forward = np.zeros(plan.draft.vocab_size)
        for order in range(0, len(plan.weights), 2):
            tokens = self.spelled(plan, order)
            first = [min(row, key=tokens.index) for row in ids.tolist()]
            forward += 2.0 * plan.weights[order] * np.bincount(first, probs, len(forward))
        assert np.abs(forward - plan.selected).max() > 1e-3


@pytest.mark.parametrize("name", DRAFTS)
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

    def test_the_work_of_one_group_is_done_once(self, name, monkeypatch):
        kind = DrawsSelection if name == "without_replacement" else IndependentSelection
        calls = []
        of_group, of_all = kind.of_group, kind.of_all
        monkeypatch.setattr(
            kind, "of_group", lambda self, group: calls.append(group) or of_group(self, group)
        )
        monkeypatch.setattr(kind, "of_all", lambda self: calls.append("all") or of_all(self))
        plan = plan_of(name)
        assert calls == []
        accepted = [0.3, 0.0, 0.5]
        drafts = plan.draft.sample(4)
        first = plan.verify(drafts, uniforms=accepted)
        assert calls == [plan._lottery.groups.group[first.token_id]]
        plan.verify(drafts, uniforms=accepted)
        assert len(calls) == 1
        assert plan.selected_of(first.token_id) == plan_of(name).selected[first.token_id]
        calls.clear()
        plan.marginal_law()
        assert calls[0] == "all"
        calls.clear()
        plan.verify(drafts, uniforms=accepted)
        assert plan.acceptance_rate <= 1.0
        assert calls == []

    def test_selection_is_at_hand_once_known(self, name):
        plan = plan_of(name)
        assert not plan.selected_at_hand
        one = [plan.selected_of(token) for token in range(6)]
        assert not plan.selected_at_hand
        assert plan.selected.tolist() == one
        assert plan.selected_at_hand
        assert [plan.selected_of(token) for token in range(6)] == one

    def test_orders_given_are_spent_on_finer_groups(self, name):
        # Laws of both kinds on which the coarse groups leave something.
        coarse = max((plan_of(name, seed) for seed in range(8)), key=lambda plan: plan.gap)
        assert coarse.gap > 1e-3
        fine = mdsd.OptimalVerifier(max_iterations=1000).plan(coarse.target_probs, coarse.draft)
        assert fine.gap <= 1e-9
        assert fine.acceptance_rate > coarse.acceptance_rate
        check_plan(fine)
        check_certificate(fine)

    def test_a_plan_and_its_search_are_forgotten_with_the_draft(self, name):
        plan = plan_of(name)
        plan.verify(plan.draft.sample(0), 0)
        assert plan.gap >= 0.0
        draft = weakref.ref(plan.draft)
        lottery = weakref.ref(plan._lottery)
        assert mdsd.OptimalVerifier().plan(plan.target_probs, plan.draft)._lottery is lottery()
        del plan
        assert draft() is None
        assert lottery() is None


def test_the_search_of_a_listed_law_is_forgotten_too():
    draft = mdsd.ExplicitDraft([[0, 1], [1, 2], [0, 2]], [0.5, 0.25, 0.25], vocab_size=3)
    mdsd.OptimalVerifier().plan([0.5, 0.3, 0.2], draft).verify([0, 1], 0)
    kept = weakref.ref(draft)
    del draft
    assert kept() is None


@pytest.mark.parametrize("name", DRAFTS)
def test_target_on_tokens_never_drafted(name):
    target = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    q = np.array([0.0, 0.4, 0.2, 0.0, 0.3, 0.1])
    draft = DRAFTS[name]([q, q])
    plan = mdsd.OptimalVerifier().plan(target, draft)
    assert shares_groups(plan)
    check_plan(plan)
    check_certificate(plan)
    assert plan.selected[[0, 3]].tolist() == [0.0, 0.0]
    # What is never drafted is emitted by the residual.
    seen = plan.verify_many(draft.sample(0, 500), 1)
    assert {0, 3} <= set(seen.token_id.tolist())


@pytest.mark.parametrize("name", DRAFTS)
def test_nothing_in_common(name):
    target = np.array([0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
    q = np.array([0.0, 0.0, 0.1, 0.2, 0.3, 0.4])
    plan = mdsd.OptimalVerifier().plan(target, DRAFTS[name]([q, q[[0, 1, 5, 4, 3, 2]]]))
    assert shares_groups(plan)
    check_plan(plan)
    check_certificate(plan)
    assert (plan.acceptance_rate, plan.gap) == (0.0, 0.0)


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("kind", ["flat", "peaked", "ties", "one_heavy", "scales", "nearly_flat"])
def test_thousands_of_tokens_in_three_groups(name, kind):
    rng = np.random.default_rng(0)
    target, *vectors = (random_probs(rng, 3000, kind) for _ in range(4))
    draft = DRAFTS[name](vectors)
    plan = mdsd.OptimalVerifier().plan(target, draft)
    assert len(plan._lottery.groups) <= 3
    assert plan.selected.sum() == pytest.approx(1.0, abs=1e-13)
    assert np.abs(plan.marginal_law() - plan.target_probs).sum() / 2 < 1e-13
    best = mdsd.OptimalVerifier(max_iterations=100).plan(target, draft)
    assert best.acceptance_rate <= plan.upper + 1e-12
    assert best.upper >= plan.acceptance_rate - 1e-12


@pytest.mark.parametrize("num_drafts", [5, 6])
def test_as_many_draws_as_tokens(num_drafts):
    """Six draws of six tokens meet whatever they can; five miss one token."""
    rng = np.random.default_rng(num_drafts)
    target = rng.dirichlet(np.ones(7))
    q = np.append(rng.dirichlet(np.ones(6)), 0.0)
    plan = mdsd.OptimalVerifier().plan(target, WithoutReplacement(q, num_drafts))
    assert shares_groups(plan)
    check_plan(plan)
    check_certificate(plan)
    if num_drafts == 6:
        best = mdsd.OptimalVerifier(max_iterations=1000).plan(target, plan.draft)
        assert best.acceptance_rate == pytest.approx(target[:6].sum(), abs=1e-9)


@pytest.mark.parametrize("law", FAULTS, ids=["20 draws", "64 draws"])
class TestManyDrawsOfTwoWeights:
    """Tokens in groups, certified token by token: a bound without replacement once too low."""

    def problem(self, law):
        rng = np.random.default_rng(law.n)
        q = law.weights * rng.uniform(0.9, 1.1, len(law.weights))
        target = np.full(len(q), 1e-4 / (len(q) - 1))
        target[-1] = 1.0 - target[:-1].sum()
        return target, WithoutReplacement(q / q.sum(), law.n)

    def test_the_certificate_holds(self, law):
        target, draft = self.problem(law)
        plan = mdsd.OptimalVerifier().plan(target, draft)
        assert shares_groups(plan)
        assert 0.2 < plan.acceptance_rate <= plan.upper + 1e-12
        assert plan.gap < 1e-3
        assert plan.acceptance_rate <= mdsd.acceptance_bound(target, draft).value + 1e-12

    def test_a_lower_bound_would_be_an_error(self, law, monkeypatch):
        """Negative control: prefix hits that lose a twentieth."""
        target, draft = self.problem(law)
        hits = hitting.prefix_hits
        monkeypatch.setattr(hitting, "prefix_hits", lambda *args: hits(*args) * 0.95)
        plan = mdsd.OptimalVerifier().plan(target, draft)
        with pytest.raises(mdsd.SolverError, match=r"the upper bound 0\.\d+ is below the attained"):
            _ = plan.gap
        with pytest.raises(mdsd.SolverError, match="is below the attained"):
            mdsd.acceptance_bound(target, draft, method="submodular")


def test_a_bound_below_what_the_marks_attain_is_an_error():
    plan = mdsd.OptimalVerifier().plan([0.5, 0.3, 0.2], mdsd.WithReplacement([0.2, 0.5, 0.3], 2))
    assert plan.gap < 1e-12
    del plan.gap
    plan._upper = plan.acceptance_rate - 1e-6
    message = r"'optimal'.*0\.85999\d* is below the attained 0\.8[56]"
    with pytest.raises(mdsd.SolverError, match=message):
        _ = plan.gap
