"""Verifiers: the whole registry through the conformance suite, exact cases, edges and sizes."""

import dataclasses
import inspect
import pickle

import numpy as np
import pytest

import mdsd
from mdsd._random import draw_tokens
from mdsd.testing import check_plan, check_verifier, drafts_of, enumerated_law, random_probs
from mdsd.verifiers._rejection_paths import draw_residuals, path_caps, path_tables

from ..verifiers import NAMES

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name):
    """One seed; `make fuzz` goes through more."""
    check_verifier(mdsd.get_verifier(name), seed=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", range(6))
def test_exact_laws_on_many_instances(name, block):
    """Degenerate vectors of every kind, V 1..6, n 1..4: exact laws, without the sampling checks."""
    verifier = mdsd.get_verifier(name)
    rng = np.random.default_rng(100 + block)
    checked = 0
    for number in range(60):
        num_drafts = number % 4 + 1
        vocab_size = int(rng.integers(1, 7))
        target = random_probs(rng, vocab_size)
        vectors = [random_probs(rng, vocab_size) for _ in range(num_drafts)]
        if number % 7 == 6:
            vectors[0] = target.copy()
        for draft in drafts_of(vectors, num_drafts, rng):
            if verifier.supports(draft):
                check_plan(verifier.plan(target, draft), attains_bound=verifier.attains_bound)
                checked += 1
    assert checked >= 5


RATES = {
    "rrs-with-2": ("rrs", mdsd.WithReplacement(Q, 2), 0.76),
    "rrs-with-3": ("rrs", mdsd.WithReplacement(Q, 3), 0.808),
    "rrs-without-2": ("rrs", mdsd.WithoutReplacement(Q, 2), 283 / 350),
    "rrs-without-3": ("rrs", mdsd.WithoutReplacement(Q, 3), 1.0),
    "kseq-2": ("kseq", mdsd.WithReplacement(Q, 2), 0.7913552872566004),
    "kseq-3": ("kseq", mdsd.WithReplacement(Q, 3), 0.8585186056537497),
    "greedy-2": ("greedy", mdsd.GreedyDraft(Q, 2), 0.9),
    "greedy-3": ("greedy", mdsd.GreedyDraft(Q, 3), 1.0),
    "spechub": ("spechub", mdsd.SpecHubDraft(Q), 0.9),
    "naive_tree-2": ("naive_tree", mdsd.WithReplacement(Q, 2), 0.76),
    "optimal-with-2": ("optimal", mdsd.WithReplacement(Q, 2), 0.86),
    "optimal-with-3": ("optimal", mdsd.WithReplacement(Q, 3), 0.988),
    "optimal-without-2": ("optimal", mdsd.WithoutReplacement(Q, 2), 69 / 70),
    "optimal-top_k-2": ("optimal", mdsd.TopKDraft(Q, 2), 0.5),
}


@pytest.mark.parametrize(("name", "draft", "rate"), RATES.values(), ids=RATES)
def test_exact_rates(name, draft, rate):
    plan = mdsd.get_verifier(name).plan(P, draft)
    assert plan.acceptance_rate == pytest.approx(rate, abs=1e-12)
    assert plan.acceptance_stderr == 0.0


@pytest.mark.parametrize(
    ("num_drafts", "target", "draft_probs", "rate"),
    [
        (2, np.array([309, 177, 14]) / 500, np.array([373, 580, 47]) / 1000, 169277 / 200000),
        (
            3,
            np.array([469, 124, 407]) / 1000,
            np.array([201, 275, 524]) / 1000,
            207227133 / 250000000,
        ),
    ],
    ids=["n2", "n3"],
)
def test_rrs_misses_a_reachable_optimum(num_drafts, target, draft_probs, rate):
    draft = mdsd.WithReplacement(draft_probs, num_drafts)
    plan = mdsd.get_verifier("rrs").plan(target, draft)
    assert plan.acceptance_rate == pytest.approx(rate, abs=1e-13)
    assert mdsd.acceptance_bound(target, draft).value > rate + 0.1


def test_caps_are_ordered():
    """1 <= RRS <= K-SEQ <= optimum, as all with replacement are caps on the same family."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        target, draft_probs = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8))
        draft = mdsd.WithReplacement(draft_probs, 3)
        rates = [
            mdsd.get_verifier(name).plan(target, draft).acceptance_rate
            for name in ("naive_tree", "rrs", "kseq", "optimal")
        ]
        assert (np.diff(rates) >= -1e-12).all()


class TestRRSWithoutReplacement:
    def test_enumerated_rate_is_exact(self):
        rng = np.random.default_rng(0)
        target, draft_probs = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        plan = mdsd.RRSVerifier().plan(target, mdsd.WithoutReplacement(draft_probs, 4))
        check_plan(plan)
        assert plan.acceptance_stderr == 0.0

    @pytest.mark.parametrize("heavy", [0.3, 0.999, 1 - 1e-9])
    def test_monte_carlo_agrees_with_enumeration(self, heavy, monkeypatch):
        rng = np.random.default_rng(1)
        target = rng.dirichlet(np.ones(12))
        draft_probs = np.append(heavy, (1 - heavy) * rng.dirichlet(np.ones(11)))
        draft = mdsd.WithoutReplacement(draft_probs, 4)
        exact = mdsd.RRSVerifier().plan(target, draft)
        assert exact.acceptance_stderr == 0.0
        expected = exact.acceptance_rate
        monkeypatch.setattr("mdsd.verifiers._path_rrs._MAX_PATHS", 1)
        sampled = mdsd.RRSVerifier(monte_carlo_paths=20_000, seed=3).plan(target, draft)
        # Behind a heavy token so few paths are likely that all of them are followed.
        assert (sampled.acceptance_stderr > 0.0) == (heavy < 0.5)
        # Five standard errors: a false alarm in 1.7 million, and the seed is fixed.
        assert abs(sampled.acceptance_rate - expected) < 5 * sampled.acceptance_stderr + 1e-9

    def test_seed_and_paths_are_options(self):
        rng = np.random.default_rng(2)
        target, draft_probs = rng.dirichlet(np.ones(2000)), rng.dirichlet(np.ones(2000))
        draft = mdsd.WithoutReplacement(draft_probs, 4)
        rates = {
            (seed, paths): mdsd.get_verifier("rrs", seed=seed, monte_carlo_paths=paths)
            .plan(target, draft)
            .acceptance_rate
            for seed, paths in [(0, 500), (1, 500), (0, 600)]
        }
        assert len(set(rates.values())) == 3
        again = mdsd.get_verifier("rrs", seed=0, monte_carlo_paths=500).plan(target, draft)
        assert again.acceptance_rate == rates[0, 500]

    def test_later_tests_see_the_tokens_rejected_before(self):
        """Two paths with other rejected tokens end in other residuals."""
        target = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
        draft_probs = np.array([0.05, 0.05, 0.3, 0.25, 0.35])
        plan = mdsd.RRSVerifier().plan(target, mdsd.WithoutReplacement(draft_probs, 2))
        laws = plan.output_law([[2, 3], [3, 4]])
        # Tokens 0 and 1 are in neither pair: they are emitted by the residual alone.
        ratios = laws[:, 0] / laws[:, 1]
        assert abs(ratios[0] - ratios[1]) > 1e-3
        np.testing.assert_allclose(enumerated_law(plan), target, atol=1e-15)


LARGE = {
    "single": lambda q: mdsd.WithReplacement(q, 1),
    "naive": lambda q: mdsd.WithoutReplacement(q, 3),
    "naive_tree": lambda q: mdsd.WithReplacement(q, 3),
    "rrs": lambda q: mdsd.WithoutReplacement(q, 4),
    "kseq": lambda q: mdsd.WithReplacement(q, 4),
    "spechub": mdsd.SpecHubDraft,
    "greedy": lambda q: mdsd.GreedyDraft(q, 4),
    "optimal": lambda q: mdsd.WithReplacement(q, 4),
}


@pytest.mark.parametrize("name", LARGE)
def test_full_vocabulary(name):
    """V = 50,000: marginal law within 1e-12 in total variation, verification, optimality."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=50_000) * 3
    target = mdsd.probs_from_logits(logits)
    draft = LARGE[name](mdsd.probs_from_logits(logits + rng.normal(size=50_000)))
    plan = mdsd.get_verifier(name).plan(target, draft)
    assert np.abs(plan.marginal_law() - target).sum() / 2 < 1e-12
    assert 0.0 < plan.acceptance_rate <= 1.0
    drafts = draft.sample(rng, 200)
    seen = plan.verify_many(drafts, rng)
    assert (target[seen.token_id] > 0).all()
    # 200 draws at five standard deviations.
    rate = plan.acceptance_rate
    slack = 5 * np.sqrt(rate * (1 - rate) / 200) + 1e-9
    assert abs((seen.accept_index >= 0).mean() - rate) < slack
    if mdsd.get_verifier(name).attains_bound:
        bound = mdsd.acceptance_bound(target, draft).value
        assert bound - 1e-9 <= rate <= bound + 1e-12


@pytest.mark.parametrize("num_drafts", [1, 2, 5, 64])
@pytest.mark.parametrize("kind", ["flat", "peaked", "ties", "one_heavy", "scales", "nearly_flat"])
def test_optimal_with_replacement_attains_the_bound(num_drafts, kind):
    rng = np.random.default_rng(num_drafts)
    for vocab_size in (1, 2, 40, 3000):
        target = random_probs(rng, vocab_size, kind)
        draft = mdsd.WithReplacement(random_probs(rng, vocab_size, kind), num_drafts)
        plan = mdsd.OptimalVerifier().plan(target, draft)
        bound = mdsd.acceptance_bound(target, draft).value
        assert plan.gap <= 1e-9
        assert plan.acceptance_rate == pytest.approx(bound, abs=1e-9)
        assert np.abs(plan.marginal_law() - plan.target_probs).sum() < 2e-12


@pytest.mark.parametrize("name", ["without_replacement", "independent"])
def test_optimal_lottery_at_a_few_thousand_tokens(name):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=3000) * 3
    target = mdsd.probs_from_logits(logits)
    vectors = [mdsd.probs_from_logits(logits + rng.normal(size=3000)) for _ in range(3)]
    if name == "independent":
        draft = mdsd.IndependentDrafts(vectors)
    else:
        draft = mdsd.WithoutReplacement(vectors[0], 3)
    plan = mdsd.OptimalVerifier().plan(target, draft)
    bound = mdsd.acceptance_bound(target, draft)
    # Groups by the ratio to all draft models together tell less of tokens that these disagree on.
    assert plan.gap < (3e-4 if name == "independent" else 1e-4)
    assert bound.value - plan.acceptance_rate <= plan.gap + 1e-12
    assert np.abs(plan.marginal_law() - target).sum() / 2 < 1e-12
    seen = plan.verify_many(draft.sample(1, 2000), 2)
    rate = plan.acceptance_rate
    # Five standard deviations, and the seeds are fixed.
    slack = 5 * np.sqrt(rate * (1 - rate) / 2000) + plan.gap
    assert abs((seen.accept_index >= 0).mean() - rate) < slack


IN_TURN = {
    "single": ("single", lambda vectors: mdsd.WithReplacement(vectors[0], 1)),
    "naive": ("naive", lambda vectors: mdsd.WithReplacement(vectors[0], 3)),
    "naive_tree": ("naive_tree", lambda vectors: mdsd.WithReplacement(vectors[0], 3)),
    "rrs-with": ("rrs", lambda vectors: mdsd.WithReplacement(vectors[0], 3)),
    "rrs-without": ("rrs", lambda vectors: mdsd.WithoutReplacement(vectors[0], 3)),
    "rrs-independent": ("rrs", mdsd.IndependentDrafts),
    "kseq": ("kseq", lambda vectors: mdsd.WithReplacement(vectors[0], 3)),
    "greedy": ("greedy", lambda vectors: mdsd.GreedyDraft(vectors[0], 3)),
    "spechub": ("spechub", lambda vectors: mdsd.SpecHubDraft(vectors[0])),
}


@pytest.mark.parametrize("kind", ["flat", "peaked", "ties", "equal"])
@pytest.mark.parametrize("label", IN_TURN)
class TestTestsInTurn:
    """Rows emitted together, against one test after the other by hand."""

    def plan(self, label, kind):
        name, draft = IN_TURN[label]
        rng = np.random.default_rng(5)
        target, *vectors = (random_probs(rng, 9, kind.replace("equal", "flat")) for _ in range(4))
        if kind == "equal":
            vectors[0] = target
        return mdsd.get_verifier(name).plan(target, draft(vectors))

    def residual(self, plan, row):
        return np.broadcast_to(plan._residual_masses(row[np.newaxis]), (1, 9))[0]

    def test_the_first_that_passes_counts(self, label, kind):
        plan = self.plan(label, kind)
        ids = plan.draft.sample(0, 300)
        uniforms = np.random.default_rng(1).random((300, plan.num_uniforms))

        def by_hand(row, numbers):
            chances, tested = plan._tests(row[np.newaxis])
            for chance, token, number in zip(chances[0], tested[0], numbers[:-1], strict=True):
                if number < chance:
                    return int(token)
            return int(draw_tokens(self.residual(plan, row), numbers[-1]))

        expected = [by_hand(*row) for row in zip(ids, uniforms, strict=True)]
        assert plan.verify_many(ids, uniforms=uniforms).token_id.tolist() == expected

    def test_residual_draws_follow_the_residual_masses(self, label, kind):
        plan = self.plan(label, kind)
        ids = plan.draft.sample(0, 100)
        uniforms = np.random.default_rng(1).choice([0.0, 0.3, 0.8, 1.0 - 2.0**-53], 100)
        drawn = plan._draw_residual(ids, uniforms)
        expected = [
            int(draw_tokens(self.residual(plan, row), number))
            for row, number in zip(ids, uniforms, strict=True)
        ]
        assert drawn.tolist() == expected


ONE_DRAFT = {
    "with": mdsd.WithReplacement(Q, 1),
    "without": mdsd.WithoutReplacement(Q, 1),
    "independent": mdsd.IndependentDrafts([Q]),
    "greedy": mdsd.GreedyDraft(Q, 1),
    "explicit": mdsd.ExplicitDraft([[0], [1], [2]], Q, vocab_size=3),
}


class TestOneDraft:
    """With one draft its own law is all that counts, whatever class declares it."""

    @pytest.mark.parametrize("draft", ONE_DRAFT.values(), ids=ONE_DRAFT)
    def test_optimal_is_single_draft_verification(self, draft):
        plan = mdsd.OptimalVerifier().plan(P, draft)
        assert plan.num_uniforms == mdsd.OptimalVerifier().num_uniforms(draft) == 2
        assert plan.gap == 0.0
        assert plan.acceptance_rate == pytest.approx(0.7, abs=1e-15)
        check_plan(plan, attains_bound=True)


def test_rrs_without_replacement_when_nothing_is_left():
    """Target and draft an ulp apart: rounding leaves a residual of zeros."""
    rng = np.random.default_rng(11)
    for _ in range(300):
        draft_probs = rng.dirichlet(np.ones(int(rng.integers(4, 9))))
        target = np.nextafter(draft_probs, rng.integers(0, 2, len(draft_probs)).astype(float))
        plan = mdsd.RRSVerifier().plan(target, mdsd.WithoutReplacement(draft_probs, 3))
        check_plan(plan)


def test_rrs_without_replacement_then_draws_from_the_target():
    # Excess and residual disagree by rounding only; here draft masses ten times too large do it.
    tables = path_tables(P, Q)
    tables = tables._replace(drafted=10.0 * tables.drafted)
    ids, uniforms = np.array([[1, 2]] * 50), np.linspace(0.0, 0.99, 50)
    assert (path_caps(tables, ids)[1][0] * tables.drafted >= P).all()
    assert draw_residuals(tables, ids, uniforms).tolist() == draw_tokens(P, uniforms).tolist()


def test_subnormal_residual_ends_at_the_last_token_with_mass():
    """Half of the least positive number is that number again, and so the total is reached."""
    tables = path_tables(np.array([5e-324, 0.0]), np.array([0.5, 0.5]))
    no_drafts = np.empty((1, 0), dtype=np.int64)
    assert draw_residuals(tables, no_drafts, np.array([0.9])).tolist() == [0]


def test_rrs_without_replacement_of_many_drafts():
    q = np.full(2000, 1 / 2000)
    plan = mdsd.RRSVerifier(monte_carlo_paths=10).plan(q, mdsd.WithoutReplacement(q, 300))
    assert plan.acceptance_rate == pytest.approx(1.0, abs=1e-12)


def test_lottery_stopped_early_is_lossless_and_honest():
    rng = np.random.default_rng(3)
    target, draft_probs = rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(7))
    draft = mdsd.WithoutReplacement(draft_probs, 3)
    bound = mdsd.acceptance_bound(target, draft).value
    gaps = []
    for iterations in (1, 2, 3, 50):
        plan = mdsd.OptimalVerifier(max_iterations=iterations).plan(target, draft)
        check_plan(plan, attains_bound=True)
        assert plan.gap >= bound - plan.acceptance_rate - 1e-12
        gaps.append(plan.gap)
    assert gaps[0] > 1e-3
    assert gaps[-1] <= 1e-9


class TestPlans:
    @pytest.mark.parametrize("name", NAMES)
    def test_arrays_are_read_only_also_after_pickling(self, name):
        target, draft_probs = np.full(5, 0.2), np.array([0.1, 0.4, 0.2, 0.2, 0.1])
        plan = mdsd.get_verifier(name).plan(target, LARGE[name](draft_probs))
        plan.verify_many(plan.draft.sample(0, 200), 0)  # what is kept from the first rejection on
        for kept in (plan, pickle.loads(pickle.dumps(plan))):
            arrays = [value for value in vars(kept).values() if isinstance(value, np.ndarray)]
            assert arrays
            assert not any(array.flags.writeable for array in arrays)

    def test_verification_is_frozen(self):
        seen = mdsd.get_verifier("naive").plan(P, _without()).verify([1, 0], 0)
        with pytest.raises(dataclasses.FrozenInstanceError):
            seen.token_id = 3

    def test_types_of_one_and_of_many(self):
        plan = mdsd.get_verifier("rrs").plan(P, _without())
        one, many = plan.verify([1, 0], 0), plan.verify_many([[1, 0], [2, 1]], 0)
        assert (type(one.token_id), type(one.accept_index)) == (int, int)
        assert many.token_id.dtype == many.accept_index.dtype == np.int64

    def test_empty_batch(self):
        plan = mdsd.get_verifier("rrs").plan(P, _without())
        many = plan.verify_many(np.empty((0, 2), dtype=int), 0)
        assert many.token_id.shape == many.accept_index.shape == (0,)

    def test_output_law_keeps_leading_axes(self):
        plan = mdsd.get_verifier("rrs").plan(P, _without())
        assert plan.output_law([1, 0]).shape == (3,)
        assert plan.output_law(np.array([[[1, 0]], [[0, 2]]])).shape == (2, 1, 3)

    def test_accept_index_of_a_token_drafted_twice_is_the_first(self):
        plan = mdsd.get_verifier("rrs").plan(P, mdsd.WithReplacement(Q, 2))
        assert plan.verify([0, 0], uniforms=[0.5, 0.5, 0.5]) == mdsd.Verification(0, 0)

    def test_residual_token_that_was_drafted_counts(self):
        # The first draft fails, the residual emits token 0, which is the second draft.
        plan = mdsd.get_verifier("naive_tree").plan(P, mdsd.WithReplacement(Q, 2))
        assert plan.verify([1, 0], uniforms=[0.99, 0.5]) == mdsd.Verification(0, 1)


def _without():
    return mdsd.WithoutReplacement(Q, 2)


BAD_UNIFORMS = {
    "short": ([0.5, 0.5], "expected"),
    "one": ([0.5, 0.5, 1.0], r"\[0, 1\)"),
    "negative": ([0.5, -0.1, 0.5], r"\[0, 1\)"),
    "nan": ([0.5, float("nan"), 0.5], "nan"),
    "text": (["a", "b", "c"], "numbers"),
}


@pytest.mark.parametrize(("uniforms", "message"), BAD_UNIFORMS.values(), ids=BAD_UNIFORMS)
def test_bad_uniforms(uniforms, message):
    plan = mdsd.get_verifier("rrs").plan(P, _without())
    with pytest.raises(mdsd.InvalidArgumentError, match=message):
        plan.verify([1, 0], uniforms=uniforms)


def test_rng_and_uniforms_exclude_each_other():
    plan = mdsd.get_verifier("rrs").plan(P, _without())
    with pytest.raises(mdsd.InvalidArgumentError, match="both given"):
        plan.verify([1, 0], 3, uniforms=[0.5, 0.5, 0.5])


@pytest.mark.parametrize("rng", [-1, 1.5, "seed", True], ids=repr)
def test_bad_rng(rng):
    plan = mdsd.get_verifier("rrs").plan(P, _without())
    with pytest.raises(mdsd.InvalidArgumentError, match="rng is"):
        plan.verify([1, 0], rng)


UNSUPPORTED = {
    "kseq-without": ("kseq", mdsd.WithoutReplacement(Q, 2)),
    "greedy-with": ("greedy", mdsd.WithReplacement(Q, 2)),
    "spechub-greedy": ("spechub", mdsd.GreedyDraft(Q, 2)),
    "kseq-independent": ("kseq", mdsd.IndependentDrafts([Q, Q])),
    "rrs-greedy": ("rrs", mdsd.GreedyDraft(Q, 2)),
    "single-two": ("single", mdsd.WithReplacement(Q, 2)),
    "naive_tree-top_k": ("naive_tree", mdsd.TopKDraft(Q, 2)),
}


@pytest.mark.parametrize(("name", "draft"), UNSUPPORTED.values(), ids=UNSUPPORTED)
@pytest.mark.parametrize("call", ["plan", "num_uniforms"])
def test_unsupported_pairs_are_named(name, draft, call):
    verifier = mdsd.get_verifier(name)
    assert not verifier.supports(draft)
    arguments = (P, draft) if call == "plan" else (draft,)
    with pytest.raises(mdsd.UnsupportedError, match=f"{draft.name}.*it supports") as caught:
        getattr(verifier, call)(*arguments)
    assert verifier.supported in str(caught.value)


class TestRegistry:
    def test_names(self):
        expected = ["single", "naive", "naive_tree", "rrs", "kseq", "spechub", "greedy", "optimal"]
        assert list(NAMES[: len(expected)]) == expected

    @pytest.mark.parametrize("name", NAMES)
    def test_class_is_exported_and_described(self, name):
        verifier = mdsd.get_verifier(name)
        kind = type(verifier)
        assert verifier.name == name
        assert getattr(mdsd, kind.__name__) is kind
        assert len(inspect.getdoc(kind).splitlines()[0]) > 20

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("optimum", {}, "did you mean 'optimal'"),
            (None, {}, "verifier is None"),
            ("rrs", {"tolerance": 1e-9}, "tolerance"),
            ("optimal", {"tolerance": -1}, "tolerance is -1"),
            ("optimal", {"max_iterations": 0}, "max_iterations is 0"),
            ("rrs", {"seed": -1}, "seed is -1"),
            ("rrs", {"monte_carlo_paths": 1}, "monte_carlo_paths is 1"),
        ],
        ids=str,
    )
    def test_unknown_names_and_options(self, name, options, message):
        with pytest.raises(mdsd.InvalidArgumentError, match=message):
            mdsd.get_verifier(name, **options)


def test_kseq_root_where_nothing_can_be_accepted():
    plan = mdsd.KSeqVerifier().plan([0.0, 1.0], mdsd.WithReplacement([1.0, 0.0], 3))
    assert (plan.rho, plan.acceptance_rate) == (3.0, 0.0)


@pytest.mark.parametrize("exponent", range(-16, -7))
def test_optimal_with_replacement_where_target_and_draft_nearly_agree(exponent):
    """Ratios apart by little more than rounding, on masses down to 1e-30: nothing may be lost."""
    rng = np.random.default_rng(-exponent)
    for _ in range(300):
        draft_probs = random_probs(rng, int(rng.integers(1, 9)))
        target = draft_probs * (1.0 + 10.0**exponent * rng.normal(size=len(draft_probs)))
        draft = mdsd.WithReplacement(draft_probs, int(rng.integers(2, 6)))
        plan = mdsd.OptimalVerifier().plan(target / target.sum(), draft)
        assert plan.gap <= 1e-13


def test_rrs_without_replacement_of_subnormal_masses():
    target = [6.03e-321, 5.39e-321, 4.106e-321, 0.5997598559135481, 0.0, 0.40024014408645187]
    draft_probs = [6.02e-321, 5.39e-321, 4.11e-321, 0.6000000000000001, 0.0, 0.4]
    check_plan(mdsd.RRSVerifier().plan(target, mdsd.WithoutReplacement(draft_probs, 4)))
