"""Cases about bad input: refused before any work, naming the argument and the value."""

from __future__ import annotations

import types

import numpy as np
import pytest

import mdsd
from mdsd.drafts.registry import draft_types

from .reading import (
    CASES,
    METHODS,
    applying_bounds,
    assert_names,
    assert_names_value,
    covers,
    covers_drafts,
    covers_plans,
    draft_of,
    dtype_named,
    make_draft,
    supporting_verifiers,
)

WITH_REPLACEMENT = sorted(supporting_verifiers("WithReplacement", 2))


def calls(case_id):
    """Ask for each of the `calls` of a case."""
    return pytest.mark.parametrize(
        "call",
        [
            pytest.param(entry, id=f"{k}-{entry.get('draft', 'call')}")
            for k, entry in enumerate(CASES[case_id].input["calls"])
        ],
    )


def calls_with_verifiers(case_id):
    return pytest.mark.parametrize(
        ("call", "verifier"),
        [
            pytest.param(entry, verifier, id=f"{k}-{entry['draft']}-{verifier}")
            for k, entry in enumerate(CASES[case_id].input["calls"])
            for verifier in sorted(supporting_verifiers(entry["draft"], entry["num_drafts"]))
        ],
    )


def plan_of_call(call, verifier):
    draft = make_draft(call["draft"], call["draft_probs"], call["num_drafts"])
    return mdsd.get_verifier(verifier).plan(call["target_probs"], draft)


# --- token ids -----------------------------------------------------------------------------------


@calls_with_verifiers("invalid-token-zero-draft-probability")
@covers("invalid-token-zero-draft-probability")
def test_impossible_draft_is_refused_before_any_draw(case, call, verifier):
    plan = plan_of_call(call, verifier)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        plan.verify(call["draft_token_ids"], rng)
    assert_names(caught.value, *case.expected["message_names"], plan.draft.name)
    assert rng.bit_generator.state == before


@calls_with_verifiers("invalid-token-zero-draft-probability")
@covers("invalid-token-zero-draft-probability")
def test_impossible_row_is_named(case, call, verifier):
    plan = plan_of_call(call, verifier)
    possible = plan.draft.sample(0).tolist()
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        plan.verify_many([possible, possible, call["draft_token_ids"]], rng)
    assert_names(caught.value, *case.expected["message_names"], "row 2")
    assert rng.bit_generator.state == before


@calls_with_verifiers("invalid-token-zero-draft-probability")
@covers("invalid-token-zero-draft-probability")
def test_impossible_draft_has_no_output_law(case, call, verifier):
    plan = plan_of_call(call, verifier)
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        plan.output_law(call["draft_token_ids"])
    assert_names(caught.value, *case.expected["message_names"])


@calls("invalid-token-zero-draft-probability")
@covers("invalid-token-zero-draft-probability")
def test_impossible_draft_has_probability_zero(case, call):
    draft = make_draft(call["draft"], call["draft_probs"], call["num_drafts"])
    assert case.expected["raises"] == "InvalidTokenError"
    assert draft.prob(call["draft_token_ids"]) == 0.0


OUT_OF_RANGE = CASES["invalid-token-out-of-range"].input["draft_token_ids"]


def offender(ids):
    return str(next(i for i in ids if not 0 <= i < 3))


@pytest.mark.parametrize("ids", OUT_OF_RANGE, ids=str)
@pytest.mark.parametrize("verifier", WITH_REPLACEMENT)
@covers("invalid-token-out-of-range")
def test_id_out_of_range_is_refused(case, verifier, ids):
    draft = draft_of(case, case.input["draft"], case.input["num_drafts"])
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)
    for call in (plan.verify, plan.output_law, draft.prob):
        with pytest.raises(mdsd.InvalidTokenError) as caught:
            call(ids)
        assert_names(caught.value, "draft_token_ids", offender(ids))
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        plan.verify_many([[0, 1], ids])
    assert_names(caught.value, "draft_token_ids", "row 1", offender(ids))


TOKEN_DTYPES = CASES["invalid-token-dtype"].input


@pytest.mark.parametrize("dtype", TOKEN_DTYPES["token_dtypes_accepted"])
@covers_plans("invalid-token-dtype")
def test_integer_ids_are_accepted(case, draft_name, num_drafts, verifier, dtype):
    draft = make_draft(draft_name, case.vector("draft_probs"), num_drafts)
    assert draft.vocab_size == case.input["vocab_size"]
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)
    ids = np.array(case.input["draft_token_ids"], dtype=dtype)
    # Target and draft agree, so the first draft is accepted whatever is drawn; kseq may pass it by
    # for a large uniform.
    uniforms = [0.25] * plan.num_uniforms
    found = plan.verify(ids, uniforms=uniforms)
    assert found == plan.verify(ids.tolist(), uniforms=uniforms)
    assert (found.token_id, found.accept_index) == (
        case.expected["token_id"],
        case.expected["accept_index"],
    )
    many = plan.verify_many(ids[np.newaxis], uniforms=[uniforms])
    assert many.token_id.dtype == many.accept_index.dtype == np.int64
    assert (many.token_id.tolist(), many.accept_index.tolist()) == ([200], [0])


@pytest.mark.parametrize("dtype", TOKEN_DTYPES["token_dtypes_refused"])
@covers_plans("invalid-token-dtype")
def test_other_ids_are_refused(case, draft_name, num_drafts, verifier, dtype):
    assert case.expected["raises_for_refused"] == "InvalidTokenError"
    draft = make_draft(draft_name, case.vector("draft_probs"), num_drafts)
    plan = mdsd.get_verifier(verifier).plan(case.vector("target_probs"), draft)
    ids = np.array([1, 0] if dtype == "bool" else case.input["draft_token_ids"], dtype=dtype)
    for call in (plan.verify, plan.output_law, draft.prob):
        with pytest.raises(mdsd.InvalidTokenError, match=f"draft_token_ids.*{dtype}"):
            call(ids)
    with pytest.raises(mdsd.InvalidTokenError, match=f"draft_token_ids.*{dtype}"):
        plan.verify_many(ids[np.newaxis])


# --- probability vectors -------------------------------------------------------------------------


BAD_ENTRIES = {
    "all-nan": [np.nan] * 4,
    "one-nan": [0.25, 0.25, np.nan, 0.25],
    "infinite": [0.25, np.inf, 0.25, 0.25],
}
NAMED = {"all-nan": "nan", "one-nan": "nan", "infinite": "inf"}


def use(route, target, draft_probs):
    """Hand a pair over by one of the two ways that take probability vectors."""
    draft = mdsd.WithReplacement(draft_probs, 2)
    if route in METHODS or route == "auto":
        return mdsd.acceptance_bound(target, draft, method=route)
    return mdsd.get_verifier(route).plan(target, draft)


ROUTES = ["auto", *METHODS, *WITH_REPLACEMENT]


@pytest.mark.parametrize("bad", BAD_ENTRIES)
@pytest.mark.parametrize("route", ROUTES)
@covers("invalid-nan-row")
def test_nan_in_the_target_is_refused(case, route, bad):
    """Row 1 of the case by itself; naming the row waits for the batch calls."""
    assert np.isnan(case.input["target_probs"][1]).all()
    draft = mdsd.WithReplacement(case.input["draft_probs"][1], case.input["num_drafts"])
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        use(route, BAD_ENTRIES[bad], draft.draft_probs)
    assert_names(caught.value, "target_probs", NAMED[bad])


@pytest.mark.parametrize("bad", BAD_ENTRIES)
@pytest.mark.parametrize(
    "draft_name",
    ["WithReplacement", "WithoutReplacement", "GreedyDraft", "SpecHubDraft", "TopKDraft"],
)
@covers("invalid-nan-row")
def test_nan_in_the_draft_is_refused(case, draft_name, bad):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        make_draft(draft_name, BAD_ENTRIES[bad], case.input["num_drafts"])
    assert_names(caught.value, "draft_probs", NAMED[bad])


@pytest.mark.parametrize("bad", BAD_ENTRIES)
@covers("invalid-nan-row")
def test_nan_names_the_row_of_a_batch(case, bad):
    batch = np.array(case.input["target_probs"])
    batch[1] = BAD_ENTRIES[bad]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        mdsd.filter_probs(batch)
    assert_names(caught.value, "row 1", NAMED[bad])


@calls("invalid-length-mismatch")
@pytest.mark.parametrize("route", ROUTES)
@covers("invalid-length-mismatch")
def test_length_mismatch_is_refused(case, route, call):
    lengths = [str(len(call[name])) for name in ("target_probs", "draft_probs")]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        use(route, call["target_probs"], call["draft_probs"])
    assert_names(caught.value, *case.expected["message_names"][:2], *lengths)


@covers("invalid-length-mismatch")
def test_lengths_are_those_of_the_case(case):
    first, second = case.input["calls"]
    assert case.expected["message_names"][2:] == ["5", "4"]
    assert (len(first["target_probs"]), len(first["draft_probs"])) == (5, 4)
    assert (len(second["target_probs"]), len(second["draft_probs"])) == (5, 1)


MASS_CALLS = [
    pytest.param(call, dtype, id=f"{k}-{dtype}")
    for k, call in enumerate(CASES["invalid-mass-refused"].input["calls"])
    for dtype in call["dtype"]
]


@pytest.mark.parametrize(("call", "dtype"), MASS_CALLS)
@pytest.mark.parametrize("route", ROUTES)
@covers("invalid-mass-refused")
def test_mass_that_is_off_is_refused(case, route, call, dtype):
    target, draft_probs = (np.array(call[n], dtype) for n in ("target_probs", "draft_probs"))
    sums = {
        "target_probs": float(target.astype(float).sum()),
        "draft_probs": float(draft_probs.astype(float).sum()),
    }
    name = "draft_probs" if abs(sums["draft_probs"] - 1.0) > 0.05 else "target_probs"
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        use(route, target, draft_probs)
    assert_names(caught.value, name)
    assert_names_value(caught.value, sums[name])


MASS_TOLERANCES = {"float64": 1e-5, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}


@pytest.mark.parametrize("dtype", MASS_TOLERANCES)
@pytest.mark.parametrize("route", ROUTES)
@covers("invalid-mass-refused")
def test_tolerance_on_the_mass(case, route, dtype):
    """Half the tolerance is forgiven and twice the tolerance is not, on either side of 1."""
    tolerance = MASS_TOLERANCES[dtype]
    assert f"{dtype} and bfloat16 2e-2" in case.expected["policy"] or dtype != "float16"
    kind = dtype_named(dtype)
    # 1/64 and 3/64 are off by less and by more, and exact in bfloat16.
    inside, outside = (tolerance / 2, tolerance * 2) if kind.itemsize > 2 else (1 / 64, 3 / 64)
    for sign in (1.0, -1.0):
        near = np.array([0.5, 0.5 + sign * inside]).astype(kind)
        far = np.array([0.5, 0.5 + sign * outside]).astype(kind)
        use(route, near, near)
        with pytest.raises(mdsd.InvalidDistributionError, match="target_probs sums to"):
            use(route, far, near)
        with pytest.raises(mdsd.InvalidDistributionError, match="draft_probs sums to"):
            use(route, near, far)


@pytest.mark.parametrize("route", ROUTES)
@covers("invalid-negative-entry")
def test_negative_entry_is_refused(case, route):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        use(route, case.input["target_probs"], case.input["draft_probs"])
    assert_names(caught.value, *case.expected["message_names"])


@pytest.mark.parametrize(
    "draft_name",
    ["WithReplacement", "WithoutReplacement", "GreedyDraft", "SpecHubDraft", "TopKDraft"],
)
@covers("invalid-negative-entry")
def test_negative_draft_entry_is_refused(case, draft_name):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        make_draft(draft_name, [-1e-6, 0.5, 0.500001], case.input["num_drafts"])
    assert_names(caught.value, "draft_probs", "index 0", "-1e-06")


@calls("invalid-too-few-tokens")
@covers("invalid-too-few-tokens")
def test_too_few_tokens(case, call):
    positive = sum(x > 0.0 for x in call["draft_probs"])
    assert positive < call["num_drafts"]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        make_draft(call["draft"], call["draft_probs"], call["num_drafts"])
    assert_names(caught.value, *case.expected["message_names"][:2], str(positive))
    assert_names(caught.value, str(call["num_drafts"]))


@covers("invalid-too-few-tokens")
def test_every_draft_that_needs_tokens_with_mass(case):
    kinds = {call["draft"] for call in case.input["calls"]}
    # The policy says five and the case shows four kinds, one of them twice.
    assert kinds == {"WithoutReplacement", "GreedyDraft", "SpecHubDraft", "TopKDraft"}
    with pytest.raises(mdsd.InvalidDistributionError, match="positive probability"):
        mdsd.TopKDraft([0.5, 0.5, 0.0], 3)


@covers("invalid-missing-draft-law")
def test_missing_draft_law(case):
    call, _ = case.input["calls"]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        make_draft(call["draft"], call["draft_probs"], call["num_drafts"])
    assert_names(caught.value, *case.expected["message_names"])


@pytest.mark.parametrize(
    "draft_name",
    [
        "WithoutReplacement",
        "GreedyDraft",
        "SpecHubDraft",
        "TopKDraft",
        "IndependentDrafts",
    ],
)
@covers("invalid-missing-draft-law")
def test_no_draft_distribution_assumes_a_law(case, draft_name):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        make_draft(draft_name, None, 2)
    assert_names(caught.value, *case.expected["message_names"])


# --- solvers that give up ------------------------------------------------------------------------


STATUSES = {
    "iteration limit": (1, "user_limit"),
    "infeasible": (2, "infeasible"),
    "unbounded": (3, "unbounded"),
    "numerical trouble": (4, "solver_error"),
    "unknown": (-1, "unknown"),
}


def replace_linprog(monkeypatch, status):
    import scipy.optimize

    def stub(*args, **kwargs):
        return scipy.optimize.OptimizeResult(
            status=STATUSES[status][0], message=status, x=None, fun=None, success=False
        )

    monkeypatch.setattr(scipy.optimize, "linprog", stub)
    return status


def replace_cvxpy(monkeypatch, status):
    cvxpy = pytest.importorskip("cvxpy")
    reported = STATUSES[status][1]

    def stub(self, **kwargs):
        if reported == "solver_error":
            raise cvxpy.SolverError("numerical trouble")
        self._status = reported

    monkeypatch.setattr(cvxpy.Problem, "solve", stub)
    return "numerical trouble" if reported == "solver_error" else reported


def replace_max_flow(monkeypatch, status):
    max_flow = pytest.importorskip("ortools.graph.python.max_flow")
    reported = status.upper().replace(" ", "_")

    class Stub:
        OPTIMAL = types.SimpleNamespace(name="OPTIMAL")

        def add_arcs_with_capacity(self, tails, heads, capacities):
            return np.arange(len(tails))

        def solve(self, source, sink):
            return types.SimpleNamespace(name=reported)

        def flows(self, arcs):
            return None

    monkeypatch.setattr(max_flow, "SimpleMaxFlow", Stub)
    return reported


REPLACEMENTS = {"lp": replace_linprog, "cvxpy": replace_cvxpy, "matching": replace_max_flow}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("method", CASES["invalid-solver-status"].input["method"])
@covers("invalid-solver-status")
# OR-tools' compiled modules warn about their own types on import.
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")
def test_solver_that_gives_up(case, method, status, monkeypatch):
    assert all(word in case.input["solver_replaced_by"] for word in STATUSES)
    reported = REPLACEMENTS[method](monkeypatch, status)
    draft = draft_of(case, case.input["draft"], case.input["num_drafts"])
    with pytest.raises(mdsd.MdsdError) as caught:
        mdsd.acceptance_bound(case.vector("target_probs"), draft, method=method)
    assert_names(caught.value, method, reported)
    assert caught.value.method == method
    assert reported in caught.value.status


@pytest.mark.parametrize("missing", ["x", "everything"])
@pytest.mark.parametrize("method", ["lp", "cvxpy"])
@covers("invalid-solver-status")
def test_solver_that_claims_success_without_a_vector(case, method, missing, monkeypatch):
    if method == "lp":
        import scipy.optimize

        result = {"status": 0, "message": "claimed", "x": None}
        if missing == "x":
            result["ineqlin"] = types.SimpleNamespace(marginals=np.zeros(8))
        monkeypatch.setattr(
            scipy.optimize, "linprog", lambda *a, **k: scipy.optimize.OptimizeResult(result)
        )
    else:
        cvxpy = pytest.importorskip("cvxpy")

        def stub(self, **kwargs):
            self._status = cvxpy.OPTIMAL
            if missing == "x":
                for constraint in self.constraints:
                    constraint.dual_variables[0].save_value(np.zeros(constraint.shape))

        monkeypatch.setattr(cvxpy.Problem, "solve", stub)
    draft = draft_of(case, case.input["draft"], case.input["num_drafts"])
    with pytest.raises(mdsd.SolverError, match="no verified solution"):
        mdsd.acceptance_bound(case.vector("target_probs"), draft, method=method)


@pytest.mark.parametrize("num_drafts", [2, 3])
@covers("invalid-iteration-limit")
def test_verifier_stopped_after_one_iteration(case, num_drafts):
    target = case.vector("target_probs")
    draft = draft_of(case, "WithoutReplacement", num_drafts)
    plan = mdsd.OptimalVerifier(max_iterations=1).plan(target, draft)
    drafts, masses = (np.array(column) for column in zip(*draft.tuples(), strict=True))
    given = plan.output_law(drafts)
    np.testing.assert_allclose(masses @ given, target, rtol=0, atol=1e-12)
    np.testing.assert_allclose(plan.marginal_law(), target, rtol=0, atol=1e-12)
    attained = masses @ np.take_along_axis(given, drafts, axis=1).sum(axis=1)
    bound = mdsd.acceptance_bound(target, draft).value
    assert plan.acceptance_rate <= attained + 1e-12
    assert attained <= bound + 1e-12
    assert plan.gap >= bound - attained - 1e-12
    # Stopped early it does not reach the bound here, so that the gap says something.
    assert plan.gap > 1e-6


# --- inputs and unsupported pairs ----------------------------------------------------------------


@covers_drafts("invalid-inputs-left-alone")
def test_inputs_are_left_alone(case, draft_name, num_drafts):
    given = {name: case.vector(name) for name in ("target_probs", "draft_probs")}
    copies = {name: array.copy() for name, array in given.items()}
    for array in given.values():
        array.setflags(write=case.input["flags_writeable"])
    target, draft_probs = given.values()
    draft = make_draft(draft_name, draft_probs, num_drafts)
    assert set(applying_bounds(target, draft)) == set(METHODS)
    ids = draft.sample(0, size=20)
    ids_copy = ids.copy()
    ids.setflags(write=False)
    for verifier in supporting_verifiers(draft_name, num_drafts):
        plan = mdsd.get_verifier(verifier).plan(target, draft)
        uniforms = np.full((20, plan.num_uniforms), 0.9)
        uniforms.setflags(write=False)
        plan.verify(ids[0], 0)
        plan.verify_many(ids, uniforms=uniforms)
        plan.output_law(ids)
        plan.marginal_law()
        assert 0.0 <= plan.acceptance_rate <= 1.0
        assert (uniforms == 0.9).all()
    options = {"temperature": 0.5, "top_k": 3, "top_p": 0.9}
    mdsd.filter_probs(target, **options)
    mdsd.probs_from_logits(draft_probs, **options, allowed_token_ids=[0, 1, 3])
    order = np.arange(4)
    order.setflags(write=False)
    draft.hit_probs(order)
    assert all((given[name] == copies[name]).all() for name in given)
    assert (ids == ids_copy).all()


@covers_drafts("invalid-inputs-left-alone")
def test_writeable_inputs_are_left_alone_and_not_kept(case, draft_name, num_drafts):
    """What the caller does to the arrays afterwards must not change a draft or a plan."""
    target, draft_probs = case.vector("target_probs"), case.vector("draft_probs")
    draft = make_draft(draft_name, draft_probs, num_drafts)
    plans = [
        mdsd.get_verifier(verifier).plan(target, draft)
        for verifier in sorted(supporting_verifiers(draft_name, num_drafts))
    ]
    assert target.flags.writeable
    assert draft_probs.flags.writeable
    assert target.tolist() == case.input["target_probs"]
    assert draft_probs.tolist() == case.input["draft_probs"]
    ids = [list(drafts) for drafts, _ in draft.tuples()]
    before = [plan.output_law(ids) for plan in plans]
    target[:], draft_probs[:] = 0.25, 0.25
    for plan, law in zip(plans, before, strict=True):
        assert (plan.output_law(ids) == law).all()
        assert plan.marginal_law() == pytest.approx(case.input["target_probs"])


PAIRS = [
    pytest.param(verifier, draft, id=f"{verifier}-{draft}")
    for verifier, draft in CASES["unsupported-pair-named"].input["pairs"]
]


@pytest.mark.parametrize(("verifier", "draft_name"), PAIRS)
@covers("unsupported-pair-named")
def test_unsupported_pair_is_named(case, verifier, draft_name):
    probs = case.input["draft_probs"]
    draft = make_draft(
        draft_name,
        [probs, probs] if draft_name == "IndependentDrafts" else probs,
        case.input["num_drafts"],
    )
    chosen = mdsd.get_verifier(verifier)
    assert chosen.supports(draft) is False
    supported = {
        "kseq": ["with_replacement"],
        "greedy": ["greedy"],
        "spechub": ["spechub"],
        "rrs": [each.name for each in draft_types() if each.successive],
    }[verifier]
    with pytest.raises(mdsd.UnsupportedError) as caught:
        chosen.plan(case.vector("target_probs"), draft)
    assert_names(caught.value, f"the {draft.name} draft distribution", f"'{verifier}'")
    promised = str(caught.value).split("it supports ")[1]
    assert promised == ", ".join(supported)
    with pytest.raises(mdsd.UnsupportedError, match=draft.name):
        chosen.num_uniforms(draft)


@covers("unsupported-pair-named")
def test_prefix_does_not_apply_to_an_explicit_law(case):
    draft = mdsd.ExplicitDraft([[0, 1], [2, 1]], [0.25, 0.75], vocab_size=3)
    with pytest.raises(mdsd.UnsupportedError) as caught:
        mdsd.acceptance_bound(case.vector("target_probs"), draft, method="prefix")
    assert_names(caught.value, "'prefix'", "the explicit draft distribution")
    applying = str(caught.value).split("methods that apply: ")[1]
    assert applying.split(", ") == [method for method in METHODS if method != "prefix"]


# --- the helpers, with wrong answers -------------------------------------------------------------


class TestHelpers:
    MESSAGE = mdsd.InvalidTokenError("draft_token_ids row 12: id -1 at position 1 is outside 0..2")

    def test_names_that_are_there(self):
        assert_names(self.MESSAGE, "draft_token_ids", "row 12", "-1", "2")

    @pytest.mark.parametrize("name", ["target_probs", "3", "-12", "row 1"])
    def test_names_that_are_not(self, name):
        with pytest.raises(AssertionError):
            assert_names(self.MESSAGE, name)

    def test_part_of_another_number_is_no_match(self):
        with pytest.raises(AssertionError):
            assert_names(mdsd.InvalidDistributionError("target_probs sums to 0.95"), "0.9")

    def test_value(self):
        error = mdsd.InvalidDistributionError("target_probs sums to 0.9000000060")
        assert_names_value(error, 0.9)
        with pytest.raises(AssertionError):
            assert_names_value(error, 0.95)
