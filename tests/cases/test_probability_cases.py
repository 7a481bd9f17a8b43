"""Cases that `probs_from_logits`, `filter_probs` and the order of ties decide."""

from __future__ import annotations

import time

import numpy as np
import pytest

import mdsd

from .reading import CASES, assert_law, assert_names, covers, dtype_named, recipe_vector, softmax


def option(case, name):
    return case.input[name]


def each(case_id, name):
    """Ids of a list in the input, such as top_k-2, with None as none."""
    return pytest.mark.parametrize(
        name,
        [pytest.param(value, id=f"{name}-{value}") for value in CASES[case_id].input[name]],
    )


# --- top-k ---------------------------------------------------------------------------------------


@each("law-top-k-ties-keep-exactly-k", "dtype")
@each("law-top-k-ties-keep-exactly-k", "top_k")
@covers("law-top-k-ties-keep-exactly-k")
def test_top_k_keeps_exactly_k(case, top_k, dtype):
    logits = case.vector("logits").astype(dtype)
    probs = mdsd.probs_from_logits(logits, temperature=case.input["temperature"], top_k=top_k)
    assert np.flatnonzero(probs).tolist() == case.expected["kept"][str(top_k)]
    if str(top_k) in case.expected["probs"]:
        assert_law(probs, case.expected["probs"][str(top_k)], case.tolerance)
    batch = mdsd.probs_from_logits(np.stack([logits[::-1], logits]), top_k=top_k)
    assert batch[1].tolist() == probs.tolist()
    filtered = mdsd.filter_probs(mdsd.probs_from_logits(logits), top_k=top_k)
    assert np.flatnonzero(filtered).tolist() == case.expected["kept"][str(top_k)]
    assert_law(filtered, probs, case.tolerance)


@covers("law-top-k-ties-keep-exactly-k")
def test_drafts_break_ties_alike(case):
    probs = mdsd.probs_from_logits(case.vector("logits"))
    assert mdsd.TopKDraft(probs, 3).top_token_ids.tolist() == case.expected["kept"]["3"]
    assert mdsd.GreedyDraft(probs, 3).top_token_ids.tolist() == case.expected["kept"]["2"]
    tied = mdsd.probs_from_logits(case.vector("logits")[1:])
    assert mdsd.SpecHubDraft(tied).hub == 0
    assert mdsd.GreedyDraft(tied, 2).top_token_ids.tolist() == [0]
    assert mdsd.probs_from_logits([2.0, 2.0, 2.0, 1.0], temperature=0.0).tolist() == [1, 0, 0, 0]


TOP_K = CASES["law-top-k-out-of-range"].input["top_k"]
REFUSED_K = CASES["law-top-k-out-of-range"].expected["raises_for"]


@pytest.mark.parametrize("top_k", [k for k in TOP_K if k not in REFUSED_K])
@covers("law-top-k-out-of-range")
def test_top_k_that_keeps_all(case, top_k):
    assert top_k in case.expected["probs_for"]
    probs = mdsd.probs_from_logits(case.vector("logits"), temperature=1.0, top_k=top_k)
    assert_law(probs, case.expected["probs"], case.tolerance)
    assert_law(mdsd.filter_probs(probs, top_k=top_k), case.expected["probs"], case.tolerance)


@pytest.mark.parametrize("top_k", REFUSED_K)
@covers("law-top-k-out-of-range")
def test_top_k_refused_by_name(case, top_k):
    assert case.expected["raises"] == "ValueError"
    with pytest.raises(mdsd.InvalidArgumentError, match="top_k") as caught:
        mdsd.probs_from_logits(case.vector("logits"), top_k=top_k)
    assert isinstance(caught.value, ValueError)
    assert_names(caught.value, repr(top_k))
    with pytest.raises(mdsd.InvalidArgumentError, match="top_k"):
        mdsd.filter_probs(case.expected["probs"], top_k=top_k)


# --- top-p ---------------------------------------------------------------------------------------


@each("law-top-p-tiny", "dtype")
@each("law-top-p-tiny", "top_p")
@covers("law-top-p-tiny")
def test_tiny_top_p_keeps_the_most_likely_token(case, top_p, dtype):
    logits = recipe_vector({**case.input["logits_recipe"], "dtype": dtype})
    probs = mdsd.probs_from_logits(logits, top_p=top_p)
    (kept,) = case.expected["kept"]
    assert np.flatnonzero(probs).tolist() == [kept]
    assert probs[kept] == case.expected["probs_at_kept"]


@pytest.mark.parametrize("top_p", [float(p) for p in CASES["law-top-p-equality"].expected["probs"]])
@covers("law-top-p-equality")
def test_top_p_shortest_prefix(case, top_p):
    before = case.vector("probs_before")
    expected = case.expected["probs"][str(top_p)]
    assert_law(mdsd.filter_probs(before, top_p=top_p), expected, case.tolerance)
    from_logits = mdsd.probs_from_logits(np.log(before), top_p=top_p)
    assert_law(from_logits, expected, case.tolerance)


@covers("law-top-p-equality")
def test_top_p_one_keeps_zeros(case):
    probs = mdsd.filter_probs([0.5, 0.5, 0.0, 0.0], top_p=1)
    assert probs.tolist() == [0.5, 0.5, 0.0, 0.0]
    before = case.input["probs_before"]
    assert mdsd.filter_probs(before, top_p=1.0).tolist() == before


@pytest.mark.parametrize("top_p", CASES["law-top-p-equality"].expected["raises_for"])
@covers("law-top-p-equality")
def test_top_p_refused(case, top_p):
    assert case.expected["raises"] == "ValueError"
    with pytest.raises(mdsd.InvalidArgumentError, match=f"top_p is {top_p}"):
        mdsd.filter_probs(case.input["probs_before"], top_p=top_p)


@covers("large-top-p-bfloat16")
def test_top_p_of_a_bfloat16_vector(case):
    probs = recipe_vector(case.input["probs_recipe"])
    kept = np.flatnonzero(mdsd.filter_probs(probs, top_p=case.input["top_p"]))
    assert len(kept) == case.expected["kept_count"]
    assert kept.tolist() == list(range(2048))


@covers("large-top-p-bfloat16")
def test_bfloat16_running_sum_sticks(case):
    """The negative control: added up in bfloat16 the sum never comes near top_p."""
    probs = recipe_vector(case.input["probs_recipe"])
    running = probs.dtype.type(0)
    for _ in range(4096):
        running = running + probs[0]
    assert float(running) == case.input["bfloat16_running_sum_sticks_at"] < case.input["top_p"]


# --- order, temperature, masks -------------------------------------------------------------------


@covers("law-filter-order")
def test_order_of_filters(case):
    options = {name: case.input[name] for name in ("temperature", "top_k", "top_p")}
    before = case.vector("probs_before")
    probs = mdsd.filter_probs(before, **options)
    assert_law(probs, case.expected["probs"], case.tolerance)
    from_logits = mdsd.probs_from_logits(np.log(before), **options)
    assert_law(from_logits, case.expected["probs"], case.tolerance)
    by_hand = mdsd.filter_probs(
        mdsd.filter_probs(before, top_p=options["top_p"]), top_k=options["top_k"]
    )
    assert_law(by_hand, case.expected["other_order"], case.tolerance)


TEMPERATURE_ROWS = CASES["law-temperature-zero-and-tiny"].input["rows"]


@pytest.mark.parametrize(
    "row", range(len(TEMPERATURE_ROWS)), ids=[f"T={r['temperature']}" for r in TEMPERATURE_ROWS]
)
@covers("law-temperature-zero-and-tiny")
def test_zero_and_tiny_temperature(case, row):
    entry = case.input["rows"][row]
    logits = np.array(entry["logits"], dtype=entry["dtype"])
    expected = case.expected["probs"][row]
    probs = mdsd.probs_from_logits(logits, temperature=entry["temperature"])
    assert_law(probs, expected, case.tolerance)
    again = mdsd.filter_probs(mdsd.probs_from_logits(logits), temperature=entry["temperature"])
    assert_law(again, expected, case.tolerance)


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), float("inf")])
@covers("law-temperature-zero-and-tiny")
def test_temperature_refused(case, temperature):
    logits = case.input["rows"][0]["logits"]
    with pytest.raises(ValueError, match="temperature is"):
        mdsd.probs_from_logits(logits, temperature=temperature)


@covers("law-temperature-per-row")
def test_temperature_per_row(case):
    logits = case.vector("logits")
    heat = case.input["temperature"]
    probs = mdsd.probs_from_logits(logits, temperature=heat)
    assert_law(probs, case.expected["probs"], case.tolerance)
    alone = [
        mdsd.probs_from_logits(row, temperature=t).tolist()
        for row, t in zip(logits, heat, strict=True)
    ]
    assert probs.tolist() == alone


@covers("law-empty-support")
def test_empty_support_is_refused(case):
    expected, *_ = case.expected["results"]
    logits = case.input["rows"][0]["logits"]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        mdsd.probs_from_logits(logits)
    assert type(caught.value).__name__ == expected["raises"]
    assert_names(caught.value, *expected["message_names"])
    with pytest.raises(mdsd.InvalidDistributionError, match="row 1"):
        mdsd.probs_from_logits([[0.0, 0.0, 0.0], logits])


@pytest.mark.parametrize("row", [1, 2])
@covers("law-empty-support")
def test_masks_come_first(case, row):
    options = dict(case.input["rows"][row])
    probs = mdsd.probs_from_logits(options.pop("logits"), **options)
    assert probs.tolist() == case.expected["results"][row]["probs"]


@covers("invalid-nan-logits")
def test_nan_logits_are_refused(case):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        mdsd.probs_from_logits(case.input["logits"])
    assert_names(caught.value, *case.expected["message_names"])


@covers("invalid-nan-logits")
def test_infinite_logits_are_refused(case):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        mdsd.probs_from_logits(case.input["logits"][::2])
    assert_names(caught.value, "row 1", "index 0", "inf")


# --- precision and time --------------------------------------------------------------------------


@covers("law-bf16-logits-sampled")
def test_declared_law_is_that_of_the_rounded_logits(case):
    exact = np.array(case.input["logits"])
    logits = exact.astype(dtype_named(case.input["logits_dtype"]))
    probs = mdsd.probs_from_logits(logits, temperature=case.input["temperature"])
    assert probs.tolist() == case.expected["draft_probs"]
    draft = mdsd.WithReplacement(probs, 1)
    assert draft.draft_probs.tolist() == probs.tolist()
    # The negative control: computed again from the exact logits it is another law.
    wrong = mdsd.probs_from_logits(exact)
    np.testing.assert_allclose(wrong, case.expected["wrong_draft_probs"], rtol=0, atol=1e-12)


@covers("large-no-op-filter-no-sort")
def test_filters_that_are_off_cost_nothing(case):
    logits = recipe_vector(case.input["logits_recipe"])
    options = {name: case.input[name] for name in ("temperature", "top_k", "top_p")}
    assert (mdsd.probs_from_logits(logits, **options) == softmax(logits)).all()

    def best_time(call):
        times = []
        for _ in range(15):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    plain = best_time(lambda: softmax(logits))
    assert best_time(lambda: mdsd.probs_from_logits(logits, **options)) <= 3.0 * plain
