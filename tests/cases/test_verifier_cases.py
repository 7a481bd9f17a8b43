"""Cases that verifiers decide: exact laws, forced uniforms, frequencies, precision, seeds.

numpy warns by default and pytest turns warnings into errors here, so that every test also states
that no warning is given.
"""

from __future__ import annotations

import itertools
import pickle
from fractions import Fraction

import numpy as np
import pytest

import mdsd

from .. import verifiers
from .reading import (
    CASES,
    assert_is_law,
    assert_law,
    attained_acceptance,
    covers,
    covers_drafts,
    covers_plans,
    covers_row_verifiers,
    covers_rows,
    draft_of,
    drafts_with_counts,
    dtype_named,
    forced_uniforms,
    make_draft,
    mean_law,
    named_verifiers,
    recipe_vector,
    supporting_verifiers,
    tuple_law,
    vector,
)

LARGEST = 1.0 - 2.0**-53
"""Largest float64 below 1: no draw of a uniform can exceed it."""


def law_of(case, name, num_drafts):
    key = "draft_probs_list" if name == "IndependentDrafts" else "draft_probs"
    return tuple_law(name, case.vector(key), num_drafts)


def plan_of(case, name, num_drafts, verifier):
    draft = draft_of(case, name, num_drafts)
    return mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)


def assert_lossless(plan, law, target, tolerance=1e-12):
    """The laws given the drafts add up to the target, and the plan's own marginal law too."""
    assert_is_law(plan.output_law(list(law)))
    assert_law(mean_law(law, plan.output_law), target, tolerance)
    assert_law(plan.marginal_law(), target, tolerance)


def assert_rate(plan, law, expected, tolerance):
    """The rate is as expected, never above 1, and what the laws given the drafts add up to."""
    assert 0.0 <= plan.acceptance_rate <= 1.0
    assert plan.acceptance_rate == pytest.approx(expected, rel=0, abs=tolerance)
    assert plan.acceptance_stderr == 0.0
    attained = attained_acceptance(law, plan.output_law)
    assert plan.acceptance_rate - 1e-12 <= attained <= plan.acceptance_rate + plan.gap + 1e-12


def expected_rate(expected, verifier, bound=None):
    """Look up the rate of a verifier: `single` is rrs at n = 1, `optimal` attains the bound."""
    rates = expected["acceptance_rate"]
    if not isinstance(rates, dict):
        return rates
    if verifier in rates:
        return rates[verifier]
    return rates["rrs"] if verifier == "single" else bound


# --- tables --------------------------------------------------------------------------------------


TABLES = (
    "residual-emitted-never-impossible",
    "law-standard-case",
    "law-five-tokens",
    "law-without-replacement-second-draft",
    "law-three-different-drafts",
    "law-reduced-draft-vocabulary",
    "law-support-ends",
    "invalid-inputs-left-alone",
    "dtype-views-and-strides",
    "lp-thirteenths",
)


@covers_rows(*TABLES)
def test_table_lists_the_supported_verifiers(case, row):
    supporting = supporting_verifiers(row["draft"], row["num_drafts"])
    assert set(row["acceptance_rate"]) == supporting - {"single", "optimal"}
    draft = draft_of(case, row["draft"], row["num_drafts"])
    assert set(verifiers.supporting(draft)) == supporting


@covers_row_verifiers(*TABLES)
def test_table_acceptance_rate(case, row, verifier):
    name, n = row["draft"], row["num_drafts"]
    plan = plan_of(case, name, n, verifier)
    expected = expected_rate(row, verifier, row["bound"])
    assert_rate(plan, law_of(case, name, n), expected, case.tolerance)
    exact = row.get("acceptance_rate_exact", {}).get(verifier)
    if exact is not None:
        assert plan.acceptance_rate == pytest.approx(float(Fraction(exact)), rel=0, abs=1e-12)
    if verifier == "kseq":
        assert plan.rho == pytest.approx(row["kseq_rho"], rel=0, abs=case.tolerance)


@covers_row_verifiers(*TABLES)
def test_table_output_law_is_the_target(case, row, verifier):
    name, n = row["draft"], row["num_drafts"]
    target = case.vector("target_probs")
    plan = plan_of(case, name, n, verifier)
    # The case's law may be rounded to fewer digits than the sum must have.
    assert_lossless(plan, law_of(case, name, n), target / target.sum())
    assert_law(plan.marginal_law(), case.expected.get("output_law", target), case.tolerance)


@covers_rows(*TABLES)
def test_table_draft_law(case, row):
    name, n = row["draft"], row["num_drafts"]
    draft = draft_of(case, name, n)
    law = law_of(case, name, n)
    listed = dict(draft.tuples())
    assert listed == pytest.approx(law, rel=0, abs=1e-15)
    np.testing.assert_allclose(draft.prob(list(law)), list(law.values()), rtol=0, atol=1e-15)


# --- laws of one instance ------------------------------------------------------------------------


@covers_plans(
    "residual-subtracts-every-token",
    "residual-not-the-target",
    "residual-zero-mass-through-all-paths",
    "law-argmax-draft-declared-softmax",
    "law-deterministic-one",
    "law-deterministic-two-in-order",
    "law-top-two-draft-declared-raw",
    "law-exact-match-versus-rejection",
    "rng-accept-and-recovery-separate",
)
def test_output_law_and_rate(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    law = law_of(case, draft_name, num_drafts)
    assert_lossless(plan, law, case.vector("target_probs"))
    assert_law(mean_law(law, plan.output_law), case.expected["output_law"], case.tolerance)
    if "acceptance_rate" in case.expected:
        assert_rate(plan, law, expected_rate(case.expected, verifier), case.tolerance)


@covers(
    "residual-subtracts-every-token",
    "residual-not-the-target",
    "law-top-two-draft-declared-raw",
    "law-argmax-draft-declared-softmax",
    "law-without-replacement-second-draft",
    "rng-accept-and-recovery-separate",
)
def test_wrong_output_law_would_be_noticed(case):
    """The law of the faulty rule fails the check that ours passes."""
    with pytest.raises(AssertionError):
        assert_law(case.expected["wrong_output_law"], case.expected["output_law"], case.tolerance)


@covers("residual-subtracts-every-token")
def test_residual_of_the_rejected_token_only_is_the_wrong_law(case):
    p, q = case.vector("target_probs"), case.vector("draft_probs")
    accept = np.minimum(1.0, p / q)
    emitted = q * accept
    for token in range(len(p)):
        residual = np.where(np.arange(len(p)) == token, np.maximum(p - q, 0.0), p)
        emitted = emitted + q[token] * (1.0 - accept[token]) * residual / residual.sum()
    np.testing.assert_allclose(emitted, case.expected["wrong_output_law"], rtol=0, atol=1e-12)


@covers("residual-not-the-target")
def test_redrawing_from_the_target_is_the_wrong_law(case):
    p, q = case.vector("target_probs"), case.vector("draft_probs")
    kept = np.minimum(p, q)
    emitted = kept + (1.0 - kept.sum()) * p
    np.testing.assert_allclose(emitted, case.expected["wrong_output_law"], rtol=0, atol=1e-12)


@covers_plans("residual-normalised-by-its-sum")
def test_residual_is_divided_by_its_sum(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    for given in case.expected["output_law_given"]:
        assert_law(plan.output_law(given["draft_token_ids"]), given["law"], case.tolerance)
    drafted = case.input["draft_token_ids"]
    found = plan.verify(drafted, uniforms=forced_uniforms(plan, case.input["uniform"]))
    assert (found.token_id, found.accept_index) == (
        case.expected["token_id"],
        case.expected["accept_index"],
    )
    # Token 1 has no residual mass, so all that is not token 1 was drawn from the residual.
    residual = np.where([0, 1, 0], 0.0, plan.output_law(drafted))
    assert_law(residual / residual.sum(), [1.0, 0.0, 0.0], case.tolerance)


@covers("residual-normalised-by-its-sum")
def test_softmax_of_the_residual_is_the_wrong_one(case):
    left = np.maximum(case.vector("target_probs") - case.vector("draft_probs"), 0.0)
    wrong = np.exp(left) / np.exp(left).sum()
    np.testing.assert_allclose(wrong, case.expected["wrong_residual"], rtol=0, atol=1e-5)
    with pytest.raises(AssertionError):
        assert_law(wrong, left / left.sum(), 0.1)


@pytest.mark.parametrize("residual", [0.0, 0.5, LARGEST])
@covers_plans("residual-zero-probability-at-u-zero")
def test_strict_accept_test_at_zero(case, draft_name, num_drafts, verifier, residual):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    drafted = case.input["draft_token_ids"] * num_drafts
    found = plan.verify(drafted, uniforms=forced_uniforms(plan, case.input["uniform"], residual))
    assert found.token_id == case.expected["token_id"]
    assert found.accept_index == case.expected["accept_index"]
    assert plan.acceptance_rate == case.expected["acceptance_rate"]
    (given,) = case.expected["output_law_given"]
    assert plan.output_law(drafted).tolist() == given["law"]


@covers_plans("residual-cdf-edge-inside", "residual-cdf-edge-last")
def test_recovery_draw_on_an_edge(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    drafted = case.input["draft_token_ids"]
    found = plan.verify(drafted, uniforms=case.input["uniforms"])
    assert found.token_id != case.expected["token_id_not"]
    # Both behaviours name the token of an inverse-CDF draw with half-open buckets: 2 and 3.
    assert found.token_id == {"residual-cdf-edge-inside": 2, "residual-cdf-edge-last": 3}[case.id]
    assert found.token_id < case.expected.get("token_id_below", 3)
    assert found.accept_index == case.expected["accept_index"]
    assert plan.acceptance_rate == pytest.approx(
        case.expected["acceptance_rate"], rel=0, abs=case.tolerance
    )
    (given,) = case.expected["output_law_given"]
    assert_law(plan.output_law(drafted), given["law"], case.tolerance)
    assert plan.output_law(drafted)[case.expected["token_id_not"]] == 0.0


@covers("residual-cdf-edge-last")
def test_plain_search_would_run_past_the_end(case):
    """The negative control: the running sum does stop short of this draw."""
    sums = np.cumsum(case.vector("target_probs"))
    draw = case.input["uniforms"][-1]
    assert np.searchsorted(sums, draw, side="right") == case.expected["wrong_index"]


@covers_plans("residual-emitted-never-impossible")
def test_impossible_token_is_never_emitted(case, draft_name, num_drafts, verifier):
    law = law_of(case, draft_name, num_drafts)
    (never,) = case.expected["never_emitted"]
    plan = plan_of(case, draft_name, num_drafts, verifier)
    given = plan.output_law(list(law))
    assert_is_law(given)
    assert (given[:, never] == 0.0).all()
    edges = [0.0, 0.25, 0.5, 0.75, LARGEST]
    grid = np.array(list(itertools.product(edges, repeat=plan.num_uniforms)))
    rows = np.repeat(np.array(list(law)), len(grid), axis=0)
    found = plan.verify_many(rows, uniforms=np.tile(grid, (len(law), 1)))
    assert (found.token_id != never).all()


# --- laws agree up to rounding -------------------------------------------------------------------


ULP_FORMS = {
    "float32": ("float32", None),
    "target-cast-to-float64": ("float32", "float64"),
    "float16": ("float16", None),
}


def one_ulp_below(case, dtype, target_dtype):
    q = case.vector("draft_probs").astype(dtype)
    p = np.nextafter(q, np.dtype(dtype).type(0))
    assert (p < q).all()
    return (p if target_dtype is None else p.astype(target_dtype)), q


@pytest.mark.parametrize("form", ULP_FORMS)
@covers_plans("residual-one-ulp-below")
def test_target_one_ulp_below(case, draft_name, num_drafts, verifier, form):
    p, q = one_ulp_below(case, *ULP_FORMS[form])
    # float16 differs by 1e-3 at one unit in the last place.
    loose = 1e-3 if form == "float16" else None
    plan = mdsd.get_verifier(verifier).plan(p, make_draft(draft_name, q, num_drafts))
    assert plan.acceptance_rate <= case.expected["acceptance_rate_at_most"]
    floor = 1.0 - loose if loose else case.expected["acceptance_rate_at_least"]
    assert plan.acceptance_rate >= floor
    assert plan.acceptance_rate == pytest.approx(
        case.expected["acceptance_rate"], rel=0, abs=loose or case.tolerance
    )
    law = tuple_law(draft_name, q.astype(float) / q.astype(float).sum(), num_drafts)
    emitted = mean_law(law, plan.output_law)
    expected = case.expected["output_law"]
    assert_law(emitted, expected, loose or case.expected["output_law_tolerance"])
    assert_lossless(plan, law, p.astype(float) / p.astype(float).sum())


@pytest.mark.parametrize("form", ULP_FORMS)
@covers_plans("residual-one-ulp-below")
def test_rejection_one_ulp_below_emits_a_possible_token(
    case, draft_name, num_drafts, verifier, form
):
    p, q = one_ulp_below(case, *ULP_FORMS[form])
    plan = mdsd.get_verifier(verifier).plan(p, make_draft(draft_name, q, num_drafts))
    drafted = case.input["draft_token_ids"] * num_drafts
    for uniform, residual in itertools.product(
        [case.input["uniform"], LARGEST], [0.0, 0.5, LARGEST]
    ):
        found = plan.verify(drafted, uniforms=forced_uniforms(plan, uniform, residual))
        assert p[found.token_id] > 0.0


@covers_plans("residual-target-equals-draft")
def test_equal_laws_are_always_accepted(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    law = law_of(case, draft_name, num_drafts)
    assert_lossless(plan, law, case.vector("target_probs"))
    if verifier != "naive":
        assert_rate(plan, law, case.expected["acceptance_rate"][verifier], case.tolerance)
    elif draft_name == "WithReplacement":
        rate = case.expected["acceptance_rate_naive"][f"{draft_name}/{num_drafts}"]
        assert_rate(plan, law, rate, case.tolerance)
    if verifier in ("single", "rrs", "naive_tree"):
        for drafts in law:
            uniforms = forced_uniforms(plan, case.input["uniform"])
            found = plan.verify(drafts, uniforms=uniforms)
            assert (found.token_id, found.accept_index) == (drafts[0], 0)


@covers("residual-target-equals-draft")
def test_equal_laws_are_tested_with_every_verifier(case):
    tested = {v for pair in drafts_with_counts(case) for v in supporting_verifiers(*pair)}
    assert tested == {*case.expected["acceptance_rate"], "naive"} == set(mdsd.verifier_names())


@covers_plans("dtype-uniform-thirds")
def test_equal_fractions_are_accepted(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    assert plan.acceptance_rate <= 1.0
    if verifier in case.expected["acceptance_rate"]:
        expected = case.expected["acceptance_rate"][verifier]
        assert plan.acceptance_rate == pytest.approx(expected, rel=0, abs=1e-15)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("verifier", sorted(supporting_verifiers("WithReplacement", 2)))
@covers("dtype-uniform-thirteen-and-nine")
def test_float_sums_off_one_do_not_leak(case, which, verifier):
    entry = case.input["vectors"][which]
    probs = entry["probs"]
    assert sum(probs) == entry["float_sum"] != 1.0
    draft = make_draft(case.input["draft"], probs, case.input["num_drafts"])
    plan = mdsd.get_verifier(verifier).plan(probs, draft)
    assert plan.acceptance_rate <= case.expected["acceptance_rate_at_most"]
    if verifier != "naive":
        assert plan.acceptance_rate == pytest.approx(1.0, rel=0, abs=case.tolerance)


# --- what the drafts were drawn from -------------------------------------------------------------


def given_tables():
    case = CASES["law-five-tokens-by-tuple"]
    for key, entries in case.expected["output_law_given"].items():
        verifier, draft_name = key.split("/")
        for entry in entries:
            label = "".join(map(str, entry["draft_token_ids"]))
            yield pytest.param(verifier, draft_name, entry, id=f"{verifier}-{draft_name}-{label}")


@pytest.mark.parametrize(("verifier", "draft_name", "given"), list(given_tables()))
@covers("law-five-tokens-by-tuple")
def test_law_given_the_drafts(case, verifier, draft_name, given):
    plan = plan_of(case, draft_name, case.input["num_drafts"], verifier)
    assert_law(plan.output_law(given["draft_token_ids"]), given["law"], case.tolerance)


@covers("law-top-two-draft-declared-raw")
def test_drafts_and_declared_law_come_from_one_array(case):
    before = case.input["draft_probs_before_filter"]
    filtered = mdsd.filter_probs(before, top_k=case.input["top_k"])
    np.testing.assert_allclose(filtered, case.vector("draft_probs"), rtol=0, atol=case.tolerance)
    draft = mdsd.WithReplacement(filtered, 1)
    np.testing.assert_allclose(draft.draft_probs, filtered, rtol=0, atol=1e-16)
    drawn = draft.sample(0, size=1000)
    assert set(drawn.ravel().tolist()) == {0, 1}
    assert (draft.prob(drawn) > 0.0).all()


@pytest.mark.parametrize("verifier", ["single", "rrs"])
@covers("law-top-two-draft-declared-raw")
def test_declaring_the_unfiltered_law_is_the_wrong_law(case, verifier):
    declared = mdsd.WithReplacement(case.input["draft_probs_before_filter"], 1)
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), declared)
    emitted = mean_law(law_of(case, "WithReplacement", 1), plan.output_law)
    np.testing.assert_allclose(emitted, case.expected["wrong_output_law"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("verifier", ["single", "rrs"])
@covers("law-argmax-draft-declared-softmax")
def test_declaring_the_softmax_of_an_argmax_draft_is_the_wrong_law(case, verifier):
    declared = mdsd.WithReplacement(case.vector("draft_probs"), 1)
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), declared)
    emitted = plan.output_law(case.input["draft_token_ids"])
    np.testing.assert_allclose(emitted, case.expected["wrong_output_law"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("verifier", ["single", "rrs"])
@covers("law-argmax-draft-declared-softmax")
def test_one_hot_draft_states_an_argmax_draft(case, verifier):
    one_hot = [1.0, 0.0, 0.0]
    plan = mdsd.get_verifier(verifier).plan(
        case.vector("target_probs"), mdsd.WithReplacement(one_hot, 1)
    )
    law = tuple_law("WithReplacement", one_hot, 1)
    assert list(law) == [tuple(case.input["draft_token_ids"])]
    assert_rate(plan, law, case.expected["acceptance_rate"], case.tolerance)
    assert_lossless(plan, law, case.expected["output_law"])


@covers("law-argmax-draft-declared-softmax", "law-deterministic-one")
def test_deterministic_draft_has_a_one_point_law(case):
    draft = draft_of(case, "TopKDraft", 1)
    assert list(draft.tuples()) == [(tuple(case.input["draft_token_ids"]), 1.0)]
    assert "one-point law" in mdsd.TopKDraft.__doc__


@covers("law-without-replacement-second-draft")
def test_judging_the_second_draft_by_the_original_law_is_the_wrong_law(case):
    p, q = case.vector("target_probs"), case.vector("draft_probs")
    judged = mdsd.RRSVerifier().plan(p, mdsd.WithReplacement(q, 2))
    emitted = mean_law(tuple_law("WithoutReplacement", q, 2), judged.output_law)
    np.testing.assert_allclose(emitted, case.expected["wrong_output_law"], rtol=0, atol=1e-12)


@covers("law-deterministic-two-in-order")
def test_second_of_two_fixed_drafts_is_judged_by_what_is_left(case):
    plan = plan_of(case, "IndependentDrafts", 2, "rrs")
    first, second = case.input["draft_token_ids"]
    emitted = plan.output_law([first, second])
    accepted = [emitted[first], emitted[second] / (1.0 - emitted[first])]
    expected = case.expected["accept_probability_in_order_rrs"]
    assert accepted == pytest.approx(expected, rel=0, abs=case.tolerance)
    # The sweep over the first uniform finds the same accept probability in `verify`.
    for step, accepts in zip((-1e-9, 1e-9), (True, False), strict=True):
        found = plan.verify([first, second], uniforms=[expected[0] + step, LARGEST, 0.5])
        assert (found.token_id == first) is accepts
        found = plan.verify([first, second], uniforms=[LARGEST, expected[1] + step, 0.5])
        assert (found.token_id == second) is accepts


@covers_plans("law-draft-probabilities-passed")
def test_draft_probabilities_raise_acceptance(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    law = law_of(case, draft_name, num_drafts)
    assert_rate(plan, law, case.expected["acceptance_rate"], case.tolerance)
    residual = np.where([1, 0, 0, 0], 0.0, plan.output_law([0]))
    assert_law(residual / residual.sum(), case.expected["residual"], case.tolerance)
    one_hot = mdsd.WithReplacement([1.0, 0.0, 0.0, 0.0], 1)
    assumed = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), one_hot)
    assert assumed.acceptance_rate == pytest.approx(
        case.expected["acceptance_rate_one_hot_draft"], rel=0, abs=case.tolerance
    )


@covers("law-exact-match-versus-rejection")
def test_naive_says_that_exact_matching_is_unbiased(case):
    assert "unbiased" in mdsd.NaiveVerifier.__doc__
    assert set(case.input["verifiers"]) == {"naive", "single"}


@pytest.mark.parametrize("verifier", ["single", "rrs", "optimal"])
@pytest.mark.parametrize("draft_name", CASES["law-reduced-draft-vocabulary"].input["draft"])
@covers("law-reduced-draft-vocabulary")
def test_reduced_vocabulary_is_scattered(case, draft_name, verifier):
    scattered = np.zeros(5)
    scattered[case.input["kept_token_ids"]] = case.input["draft_probs_kept"]
    assert scattered.tolist() == case.input["draft_probs"]
    emitted = plan_of(case, draft_name, 1, verifier).output_law([0])
    residual = np.where(np.arange(5) == 0, 0.0, emitted)
    expected = case.expected["residual_first_round"]
    assert_law(residual / residual.sum(), expected, case.tolerance)


@pytest.mark.parametrize("verifier", sorted(supporting_verifiers("WithReplacement", 1)))
@covers("law-reduced-draft-vocabulary")
def test_unscattered_draft_vector_is_refused(case, verifier):
    draft = mdsd.WithReplacement(case.input["draft_probs_kept"], 1)
    with pytest.raises(mdsd.InvalidDistributionError, match=r"\b5\b.*\b3\b"):
        mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)


@covers_drafts("law-support-ends")
def test_support_ends(case, draft_name, num_drafts):
    draft = draft_of(case, draft_name, num_drafts)
    listed = [ids for ids, _ in draft.tuples()]
    assert len(listed) == len(set(listed)) == 6
    drawn = draft.sample(0, size=3000)
    never = case.expected["never_drafted"]
    assert not np.isin(drawn, never).any()
    assert not np.isin(listed, never).any()
    assert all(len(set(row)) == num_drafts for row in drawn.tolist())
    assert {tuple(row) for row in drawn.tolist()} == set(listed)
    assert (draft.prob(drawn) > 0.0).all()


# --- random numbers ------------------------------------------------------------------------------


def emitted_frequencies(case, plan, seed, trials):
    drafts = plan.draft.sample(seed, size=trials)
    found = plan.verify_many(drafts, seed)
    counts = np.bincount(found.token_id, minlength=plan.draft.vocab_size)
    return counts / trials, int((found.accept_index >= 0).sum())


@covers_plans("rng-accept-and-recovery-separate")
def test_recovery_draw_is_its_own(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    frequencies, _ = emitted_frequencies(case, plan, case.input["seed"], case.input["trials"])
    tolerance = np.array(case.expected["frequency_tolerance"])
    assert (np.abs(frequencies - case.expected["output_law"]) <= tolerance).all()
    assert (np.abs(frequencies - case.expected["wrong_output_law"]) > tolerance).any()
    residual = np.where([0, 0, 1, 0], 0.0, plan.output_law([2]))
    assert_law(residual / residual.sum(), case.expected["residual"], case.tolerance)


@covers_plans("rng-accept-and-recovery-separate")
def test_shared_draw_would_be_noticed(case, draft_name, num_drafts, verifier):
    """Feeding one number to both decisions gives a law that the frequencies do tell apart."""
    plan = plan_of(case, draft_name, num_drafts, verifier)
    drafts = plan.draft.sample(case.input["seed"], size=case.input["trials"])
    shared = np.random.default_rng(case.input["seed"]).random((len(drafts), 1))
    found = plan.verify_many(drafts, uniforms=np.repeat(shared, plan.num_uniforms, axis=1))
    frequencies = np.bincount(found.token_id, minlength=4) / len(drafts)
    tolerance = np.array(case.expected["frequency_tolerance"])
    assert (np.abs(frequencies - case.expected["output_law"]) > tolerance).any()


@covers_plans("rng-same-integer-seed")
def test_same_seed_for_drafting_and_verifying(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    trials = case.input["positions"]
    drafts = plan.draft.sample(case.input["seed_draft"], size=trials)
    found = plan.verify_many(drafts, case.input["seed_verify"])
    expected = case.expected
    token_0_rate = float((found.token_id == 0).mean())
    rate = float((found.accept_index >= 0).mean())
    assert abs(token_0_rate - expected["token_0_rate"]) <= expected["token_0_rate_tolerance"]
    assert abs(rate - expected["acceptance_rate"]) <= expected["acceptance_rate_tolerance"]


@covers_plans("rng-same-integer-seed")
def test_same_seed_for_each_single_step(case, draft_name, num_drafts, verifier):
    """In batches the numbers of a row need not meet its own draft; in single steps they would."""
    plan = plan_of(case, draft_name, num_drafts, verifier)
    steps = 2000
    found = [plan.verify(plan.draft.sample(seed), seed) for seed in range(steps)]
    wider = np.sqrt(case.input["positions"] / steps)
    for name, rate in (
        ("token_0_rate", np.mean([step.token_id == 0 for step in found])),
        ("acceptance_rate", np.mean([step.accept_index >= 0 for step in found])),
    ):
        tolerance = wider * case.expected[f"{name}_tolerance"]
        assert abs(rate - case.expected[name]) <= tolerance
        assert abs(rate - case.expected[f"wrong_{name}"]) > tolerance


@covers("rng-same-integer-seed")
def test_shared_stream_would_be_noticed(case):
    """Accept tests that see the number that chose the draft give the wrong rates of the case."""
    plan = plan_of(case, "WithReplacement", 1, "single")
    numbers = np.random.default_rng(case.input["seed_draft"]).random(case.input["positions"])
    drafts = np.searchsorted(np.cumsum(case.vector("draft_probs")), numbers, side="right")
    fresh = np.random.default_rng(0).random(len(numbers))
    found = plan.verify_many(drafts[:, np.newaxis], uniforms=np.stack([numbers, fresh], axis=1))
    expected = case.expected
    token_0_rate = float((found.token_id == 0).mean())
    rate = float((found.accept_index >= 0).mean())
    assert abs(token_0_rate - expected["wrong_token_0_rate"]) <= expected["token_0_rate_tolerance"]
    assert abs(rate - expected["wrong_acceptance_rate"]) <= expected["acceptance_rate_tolerance"]


@covers_plans("rng-acceptance-frequency")
def test_acceptance_frequency(case, draft_name, num_drafts, verifier):
    plan = plan_of(case, draft_name, num_drafts, verifier)
    _, accepted = emitted_frequencies(case, plan, case.input["seed"], case.input["trials"])
    assert abs(accepted - case.expected["accepted"]) <= case.expected["accepted_tolerance"]


@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "optimal"])
@covers("rng-acceptance-frequency")
def test_impossible_drafts_are_never_accepted(case, verifier):
    plan = mdsd.get_verifier(verifier).plan([0.0, 1.0], mdsd.WithReplacement([1.0, 0.0], 1))
    frequencies, accepted = emitted_frequencies(case, plan, case.input["seed"], 1000)
    assert accepted == 0
    assert frequencies.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "optimal"])
@pytest.mark.parametrize("position", [0, 1])
@covers("rng-rows-independent")
def test_rows_of_one_position_are_independent(case, verifier, position):
    """The half that `verify_many` decides; rows with different targets wait for verify_batch."""
    ids = np.array(case.input["draft_token_ids"])[[position, position + 2]]
    n = 1 if verifier == "single" else 2
    draft = mdsd.WithReplacement(case.input["draft_probs"][position], n)
    plan = mdsd.get_verifier(verifier).plan(case.input["target_probs"][position], draft)
    rows = np.repeat(ids[:, :n], 8, axis=0)
    half = np.random.default_rng(1).random((8, plan.num_uniforms))
    uniforms = np.concatenate([half, half])
    found = plan.verify_many(rows, uniforms=uniforms)
    assert found.token_id[:8].tolist() == found.token_id[8:].tolist()
    backwards = plan.verify_many(rows[::-1], uniforms=uniforms[::-1])
    assert backwards.token_id[::-1].tolist() == found.token_id.tolist()
    assert backwards.accept_index[::-1].tolist() == found.accept_index.tolist()
    for k, row in enumerate(rows):
        alone = plan.verify(row, uniforms=uniforms[k])
        assert alone.token_id == found.token_id[k]
        assert alone.accept_index == found.accept_index[k]


@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "optimal"])
@covers("rng-rows-independent")
def test_no_seed_means_fresh_entropy(case, verifier):
    n = 1 if verifier == "single" else 2
    draft = mdsd.WithReplacement(case.input["draft_probs"][0], n)
    plan = mdsd.get_verifier(verifier).plan(case.input["target_probs"][0], draft)
    # A draft that is rejected at times and followed by one of two tokens leaves 64 rows no real
    # chance to agree by accident.
    rows = np.full((64, n), 1)
    np.random.seed(0)  # noqa: NPY002 - the global state is what must not matter
    before = np.random.get_state()  # noqa: NPY002
    first = plan.verify_many(rows)
    drawn = draft.sample(None, size=64)
    np.random.seed(0)  # noqa: NPY002
    second = plan.verify_many(rows)
    after = np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert (before[1] == after[1]).all()
    assert before[2:] == after[2:]
    assert first.token_id.tolist() != second.token_id.tolist()
    assert drawn.tolist() != draft.sample(None, size=64).tolist()


def table_tokens(case, seed, verifier, *, pickled=False):
    """Draft and verify at each context of the table, on one stream for each of the two."""
    drafting = np.random.default_rng([seed, 1])
    verifying = np.random.default_rng([seed, 2])
    tokens = []
    for target, draft_probs in zip(
        case.input["target_table"], case.input["draft_table"], strict=True
    ):
        draft = mdsd.WithReplacement(draft_probs, 2)
        plan = mdsd.get_verifier(verifier).plan(target, draft)
        if pickled:
            plan = pickle.loads(pickle.dumps(plan))
        drafts = plan.draft.sample(drafting, size=case.input["max_new_tokens"])
        found = plan.verify_many(drafts, verifying)
        tokens.append((found.token_id.tolist(), found.accept_index.tolist()))
    return tokens


@pytest.mark.parametrize("verifier", sorted(supporting_verifiers("WithReplacement", 2)))
@covers("rng-same-seed-same-output")
def test_same_seed_same_tokens(case, verifier):
    seed = case.input["seed"]
    first = table_tokens(case, seed, verifier)
    assert table_tokens(case, seed, verifier) == first
    assert table_tokens(case, seed, verifier, pickled=True) == first
    assert table_tokens(case, seed + 1, verifier) != first


# --- precision and memory layout -----------------------------------------------------------------


@pytest.mark.parametrize(
    "index", CASES["dtype-float16-one-hot"].input["draft_probs_recipe"]["index"]
)
@covers("dtype-float16-one-hot")
def test_one_hot_draws_its_index(case, index):
    recipe = {**case.input["draft_probs_recipe"], "index": index, "dtype": case.input["dtype"]}
    draft = make_draft(case.input["draft"], recipe_vector(recipe), case.input["num_drafts"])
    drawn = draft.sample(case.input["seed"], size=case.input["draws"])
    assert (drawn == index).all()
    assert (draft.prob(drawn) == 1.0).all()


SOFTMAX_FORMS = {
    "float32": (None, "float32", None),
    "float32 cast to float64": (None, "float32", "float64"),
    "float16": (1000, "float16", None),
    "bfloat16": (1000, "bfloat16", None),
}


def softmax_pair(case, form):
    """Target and draft in one of the four forms, and as the float64 softmax."""
    size, dtype, cast = SOFTMAX_FORMS[form]
    pair, exact = [], []
    for name in ("target_probs", "draft_probs"):
        recipe = dict(case.input[f"{name}_recipe"])
        recipe["size"] = size or recipe["size"]
        probs = recipe_vector({**recipe, "dtype": dtype})
        pair.append(probs if cast is None else probs.astype(cast))
        exact.append(recipe_vector({**recipe, "dtype": "float64"}))
    return pair, exact


@pytest.mark.parametrize("form", SOFTMAX_FORMS)
@pytest.mark.parametrize("verifier", sorted(supporting_verifiers("WithReplacement", 2)))
@covers("dtype-float32-softmax-accepted")
def test_low_precision_softmax_is_planned(case, form, verifier):
    (p, q), (exact_p, exact_q) = softmax_pair(case, form)
    n = case.input["num_drafts"]
    chosen = mdsd.get_verifier(verifier)
    plan = chosen.plan(p, mdsd.WithReplacement(q, n))
    exact = chosen.plan(exact_p, mdsd.WithReplacement(exact_q, n))
    tolerance = case.expected["tolerance"][form]
    assert plan.acceptance_rate == pytest.approx(exact.acceptance_rate, rel=0, abs=tolerance)
    assert_law(plan.marginal_law(), p.astype(float) / p.astype(float).sum(), 1e-12)


def strided_forms(case):
    target, draft_probs = case.vector("target_probs"), case.vector("draft_probs")
    columns = np.zeros((4, 5))
    columns[:, 2] = target
    rows = np.zeros((3, 4), order="F")
    rows[1] = draft_probs
    broadcast = np.broadcast_to(draft_probs, (6, 4))
    forms = {
        "reversed": np.array(draft_probs[::-1])[::-1],
        "fortran-row": rows[1],
        "broadcast-row": broadcast[3],
    }
    assert columns[:, 2].strides == (40,)
    assert [form.strides for form in forms.values()] == [(-8,), (24,), (8,)]
    return columns[:, 2], forms


@pytest.mark.parametrize("form", ["reversed", "fortran-row", "broadcast-row"])
@covers_drafts("dtype-views-and-strides")
def test_views_are_read_as_they_look(case, draft_name, num_drafts, form):
    column, forms = strided_forms(case)
    contiguous = draft_of(case, draft_name, num_drafts)
    strided = make_draft(draft_name, forms[form], num_drafts)
    ids = [list(t) for t, _ in contiguous.tuples()]
    assert list(strided.tuples()) == list(contiguous.tuples())
    for verifier in supporting_verifiers(draft_name, num_drafts):
        chosen = mdsd.get_verifier(verifier)
        expected = chosen.plan(case.vector("target_probs"), contiguous)
        found = chosen.plan(column, strided)
        assert found.acceptance_rate == expected.acceptance_rate
        assert (found.output_law(ids) == expected.output_law(ids)).all()
        drafts = contiguous.sample(0, size=50)
        assert (strided.sample(0, size=50) == drafts).all()
        given = [plan.verify_many(drafts, 1).token_id.tolist() for plan in (found, expected)]
        assert given[0] == given[1]


# --- large vocabularies --------------------------------------------------------------------------


class ConstantGenerator(np.random.Generator):
    """A generator whose uniforms are all the same number."""

    def __new__(cls, number):
        return super().__new__(cls, np.random.PCG64(0))

    def __init__(self, number):
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, size=None):
        return np.full(size, self.number)


def tail_vectors():
    for name, wanted in (("large-float32-tail-short", 201087), ("large-float32-tail-long", 149999)):
        case = CASES[name]
        assert case.expected["token_id"] == wanted
        yield pytest.param(case, case.input["probs_recipe"], wanted, id=name)
    case = CASES["large-float32-tail-short"]
    yield pytest.param(
        case, case.input["also"], case.expected["token_id_also"], id=f"{case.id}-also"
    )


@covers("large-float32-tail-short", "large-float32-tail-long")
def test_float32_running_sum_would_miss(case):
    """The negative control: summed in float32, this draw gives the case's wrong token."""
    probs = recipe_vector(case.input["probs_recipe"])
    sums = np.cumsum(probs, dtype=np.float32)
    assert sums[-1] == pytest.approx(case.input["float32_running_sum"], rel=0, abs=1e-6)
    wrong = np.searchsorted(sums, np.float32(case.input["recovery_draw"]), side="right")
    assert wrong == case.expected["wrong_token_id"]


@pytest.mark.parametrize(("case", "recipe", "token_id"), list(tail_vectors()))
def test_largest_draw_gives_the_last_token(case, recipe, token_id):
    probs = recipe_vector(recipe)
    rng = ConstantGenerator(case.input["recovery_draw"])
    for draft in (mdsd.WithReplacement(probs, 2), mdsd.IndependentDrafts([probs, probs])):
        assert draft.sample(rng).tolist() == [token_id, token_id]
        assert draft.sample(rng, size=3).tolist() == [[token_id, token_id]] * 3


@pytest.mark.parametrize(("case", "recipe", "token_id"), list(tail_vectors()))
@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "optimal", "naive"])
def test_largest_recovery_draw_gives_the_last_token(case, recipe, token_id, verifier):
    probs = recipe_vector(recipe)
    draft = mdsd.WithReplacement(np.eye(1, len(probs))[0], 1)
    plan = mdsd.get_verifier(verifier).plan(probs, draft)
    uniforms = forced_uniforms(plan, 0.9, case.input["recovery_draw"])
    found = plan.verify([0], uniforms=uniforms)
    assert (found.token_id, found.accept_index) == (token_id, -1)


@pytest.mark.parametrize("verifier", ["single", "rrs", "kseq", "optimal", "naive"])
@covers("large-float32-tail-short", "large-float32-tail-long")
def test_draws_in_the_middle_of_a_bucket_give_its_token(case, verifier):
    """Sums in float64: the middle of the k-th of V equal buckets gives token k, for all k."""
    probs = recipe_vector(case.input["probs_recipe"])
    tokens = np.linspace(1, len(probs) - 1, 200).astype(np.int64)
    plan = mdsd.get_verifier(verifier).plan(
        probs, mdsd.WithReplacement(np.eye(1, len(probs))[0], 1)
    )
    draft = mdsd.WithReplacement(probs, 1)
    for token in tokens[::20]:
        middle = ConstantGenerator((token + 0.5) / len(probs))
        assert draft.sample(middle).tolist() == [token]
    # The drafted token 0 has no residual mass, so its bucket is empty for all but `naive`.
    offset = 0 if verifier == "naive" else 1
    uniforms = np.full((len(tokens), plan.num_uniforms), 0.9)
    uniforms[:, -1] = (tokens - offset + 0.5) / (len(probs) - offset)
    found = plan.verify_many(np.zeros((len(tokens), 1), dtype=np.int64), uniforms=uniforms)
    assert found.token_id.tolist() == tokens.tolist()


@covers_plans("large-pair-codes")
def test_pair_codes_do_not_wrap(case, draft_name, num_drafts, verifier):
    # The sparse vectors are long, so the law is not summed tuple by tuple over all 50,000 ids.
    draft = make_draft(draft_name, case.vector("draft_probs"), num_drafts)
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)
    short = [case.input[f"{name}_probs_recipe"]["probs"] for name in ("target", "draft")]
    small = mdsd.get_verifier(verifier).plan(short[0], mdsd.WithReplacement(short[1], num_drafts))
    expected = case.expected["acceptance_rate"].get(verifier, case.expected["bound"])
    assert plan.acceptance_rate == pytest.approx(expected, rel=0, abs=case.tolerance)
    assert plan.acceptance_rate == pytest.approx(small.acceptance_rate, rel=0, abs=case.tolerance)


@pytest.mark.parametrize("verifier", ["rrs", "naive_tree"])
@pytest.mark.parametrize("dtype", CASES["large-pair-codes"].input["token_dtype"])
@pytest.mark.parametrize("uniform", [0.0, 0.5, LARGEST])
@covers("large-pair-codes")
def test_large_ids_are_emitted(case, verifier, dtype, uniform):
    ids = np.array(case.input["draft_token_ids"], dtype=dtype)
    with np.errstate(over="ignore"):
        code = np.int32(49999) * np.int32(50000) + np.int32(49999)
    assert code == case.input["int32_code"]
    draft = mdsd.WithReplacement(case.vector("draft_probs"), 2)
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)
    found = plan.verify(ids, uniforms=forced_uniforms(plan, uniform))
    assert found.token_id == case.expected["token_id"]
    assert found.accept_index == case.expected["accept_index"]


ONE_POINT_PLANS = [
    pytest.param(n, verifier, id=f"{n}-{verifier}")
    for n in CASES["large-vocabulary-of-one"].input["calls"][0]["num_drafts"]
    for verifier in named_verifiers(CASES["large-vocabulary-of-one"], "WithReplacement", n)
]


@pytest.mark.parametrize("call", [0, 1, 2])
@pytest.mark.parametrize(("num_drafts", "verifier"), ONE_POINT_PLANS)
@covers("large-vocabulary-of-one")
def test_one_point_laws(case, num_drafts, verifier, call):
    entry = case.input["calls"][call]
    assert num_drafts in entry["num_drafts"]
    token_id = case.expected["token_ids"][call]
    draft = make_draft(case.input["draft"], entry["draft_probs"], num_drafts)
    drafted = [token_id] * num_drafts
    assert draft.sample(0).tolist() == drafted
    plan = mdsd.get_verifier(verifier).plan(vector(entry, "target_probs"), draft)
    assert plan.acceptance_rate == case.expected["acceptance_rate"]
    for uniform, residual in itertools.product([0.0, LARGEST], repeat=2):
        found = plan.verify(drafted, uniforms=forced_uniforms(plan, uniform, residual))
        assert found == mdsd.Verification(token_id, case.expected["accept_index"])
    assert plan.verify_many([drafted] * 100, 0).token_id.tolist() == [token_id] * 100


# --- the helpers, with wrong answers -------------------------------------------------------------


class TestHelpers:
    def test_law_that_does_not_add_up(self):
        with pytest.raises(AssertionError):
            assert_is_law([0.5, 0.4])

    def test_negative_entry(self):
        with pytest.raises(AssertionError):
            assert_is_law([1.1, -0.1])

    def test_law_given_nan(self):
        with pytest.raises(AssertionError):
            assert_is_law([np.nan, 1.0])

    def test_biased_plan(self):
        plan = mdsd.get_verifier("single").plan([0.5, 0.5], mdsd.WithReplacement([0.2, 0.8], 1))
        with pytest.raises(AssertionError):
            assert_lossless(plan, tuple_law("WithReplacement", [0.8, 0.2], 1), [0.5, 0.5])

    def test_rate_of_another_verifier(self):
        draft = mdsd.WithReplacement([0.2, 0.5, 0.3], 2)
        law = tuple_law("WithReplacement", [0.2, 0.5, 0.3], 2)
        plan = mdsd.get_verifier("rrs").plan([0.5, 0.3, 0.2], draft)
        with pytest.raises(AssertionError):
            assert_rate(plan, law, 0.507, 1e-9)

    def test_tuple_law_by_hand(self):
        assert tuple_law("WithoutReplacement", [0.5, 0.25, 0.25], 2)[1, 2] == pytest.approx(
            0.25 * 0.25 / 0.75
        )
        assert tuple_law("GreedyDraft", [0.25, 0.5, 0.25], 2) == {(1, 0): 0.5, (1, 2): 0.5}
        assert tuple_law("SpecHubDraft", [0.25, 0.5, 0.25], 2)[1, 0] == 0.25
        assert tuple_law("TopKDraft", [0.25, 0.5, 0.25], 2) == {(1, 0): 1.0}

    def test_unknown_dtype(self):
        with pytest.raises(TypeError):
            dtype_named("float12")

    def test_unknown_recipe(self):
        with pytest.raises(ValueError, match="no such recipe"):
            recipe_vector({"recipe": "no such recipe", "size": 2, "seed": 0, "scale": 1})
