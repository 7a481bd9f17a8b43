"""Filters of logits and probabilities, against plain loops and the table of policies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsd import Filters, filter_probs, probs_from_logits
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

INF = float("inf")
NAN = float("nan")


# --- the reference: one row, one token at a time -------------------------------------------------


def reference(
    scores: list[float],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    allowed: list[int] | None = None,
    min_p: float = 0.0,
) -> list[float]:
    """Masks, temperature, top-k, renormalise, top-p, renormalise, min-p, for one row."""
    row = [score if allowed is None or i in allowed else -INF for i, score in enumerate(scores)]
    peak = max(row)
    if temperature == 0.0:
        first = row.index(peak)
        law = [1.0 if i == first else 0.0 for i in range(len(row))]
    else:
        law = [0.0 if x == -INF else math.exp(max((x - peak) / temperature, -800)) for x in row]
    if top_k is not None and top_k > 0:
        ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))
        law = [mass if i in ranked[:top_k] else 0.0 for i, mass in enumerate(law)]
    total = math.fsum(law)
    law = [mass / total for mass in law]
    if top_p < 1.0:
        ranked = sorted(range(len(law)), key=lambda i: (-law[i], i))
        kept, running = set(), 0.0
        for i in ranked:
            kept.add(i)
            running += law[i]
            if running >= top_p:
                break
        law = [mass if i in kept else 0.0 for i, mass in enumerate(law)]
        total = math.fsum(law)
        law = [mass / total for mass in law]
    least = min_p * max(law)
    law = [mass if mass >= least else 0.0 for mass in law]
    total = math.fsum(law)
    return [mass / total for mass in law]


def test_reference_by_hand():
    assert reference([math.log(0.4), math.log(0.3), math.log(0.2), math.log(0.1)], top_k=2) == (
        pytest.approx([4 / 7, 3 / 7, 0, 0])
    )
    scores = [math.log(0.5), math.log(0.3), math.log(0.2)]
    assert reference(scores, min_p=0.5) == pytest.approx([5 / 8, 3 / 8, 0])


LOGITS = st.lists(
    st.one_of(st.floats(-30, 30), st.integers(-2, 2).map(float), st.just(-INF)),
    min_size=1,
    max_size=8,
).filter(lambda row: max(row) > -INF)
# Away from sums that hit top_p exactly, where the last digit decides; equality has its own test.
TOP_P = st.sampled_from([1.0, 0.9137, 0.5123, 0.0131, 1e-9])
MIN_P = st.sampled_from([0.0, 0.0517, 0.3171, 0.9119])
TEMPERATURES = st.sampled_from([0.0, 1e-300, 0.05, 0.7, 1.0, 2.5, 1e6])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(LOGITS, TEMPERATURES, st.sampled_from([None, 0, -1, 1, 2, 3, 100]), TOP_P, MIN_P)
def test_logits_follow_the_reference(row, temperature, top_k, top_p, min_p):
    found = probs_from_logits(row, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = reference(row, temperature, top_k, top_p, min_p=min_p)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.sum() == pytest.approx(1.0, abs=1e-14)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any),
    TEMPERATURES,
    st.sampled_from([None, 1, 2, 3, 100]),
    TOP_P,
    MIN_P,
)
def test_probs_follow_the_reference(counts, temperature, top_k, top_p, min_p):
    probs = np.array(counts) / sum(counts)
    scores = [math.log(p) if p else -INF for p in probs]
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    found = filter_probs(probs, **options)
    assert found.tolist() == pytest.approx(reference(scores, **options), abs=1e-12)
    assert found.tolist() == Filters(**options).of_probs(probs).tolist()


class TestMinP:
    def test_stands_behind_top_p(self):
        probs = [0.4, 0.3, 0.2, 0.1]
        # Top-p 0.55 keeps two, and so does 0.6 of the largest. With min-p first, of the two
        # that are left (4/7, 3/7) top-p 0.55 would keep one only.
        found = filter_probs(probs, top_p=0.55, min_p=0.6)
        np.testing.assert_allclose(found, [4 / 7, 3 / 7, 0.0, 0.0], rtol=1e-12)
        behind = filter_probs(filter_probs(probs, min_p=0.6), top_p=0.55)
        np.testing.assert_allclose(behind, [1.0, 0.0, 0.0, 0.0], rtol=1e-12)

    def test_comes_after_the_temperature(self):
        probs = [0.6, 0.3, 0.1]
        assert np.count_nonzero(filter_probs(probs, min_p=0.4)) == 2
        assert np.count_nonzero(filter_probs(probs, min_p=0.4, temperature=0.5)) == 1
        assert np.count_nonzero(filter_probs(probs, min_p=0.4, temperature=5.0)) == 3

    @pytest.mark.parametrize(("min_p", "kept"), [(0.0, 4), (0.5, 3), (0.5 + 1e-9, 2), (1.0, 2)])
    def test_equality_keeps(self, min_p, kept):
        found = filter_probs([0.375, 0.375, 0.1875, 0.0625], min_p=min_p)
        assert np.count_nonzero(found) == kept

    @pytest.mark.parametrize("bad", [-0.1, 1.1, NAN, INF, None, "0.1", True])
    def test_out_of_range(self, bad):
        for call in (
            lambda: filter_probs([1.0], min_p=bad),
            lambda: probs_from_logits([1.0], min_p=bad),
            lambda: Filters(min_p=bad),
        ):
            with pytest.raises(InvalidArgumentError, match="min_p is"):
                call()

    @pytest.mark.parametrize("dtype", ["float16", "float32"])
    def test_narrow_types(self, dtype):
        logits = np.array([2.0, 1.5, -4.0], dtype=dtype)
        assert np.count_nonzero(probs_from_logits(logits, min_p=0.1)) == 2


@settings(max_examples=100, deadline=None, derandomize=True)
@given(LOGITS, st.sets(st.integers(0, 7), min_size=1), st.sampled_from([None, 2]), TOP_P)
def test_masks_follow_the_reference(row, chosen, top_k, top_p):
    allowed = sorted(i for i in chosen if i < len(row) and row[i] > -INF) or [int(np.argmax(row))]
    found = probs_from_logits(row, top_k=top_k, top_p=top_p, allowed_token_ids=allowed)
    expected = reference(row, 1.0, top_k, top_p, allowed)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(LOGITS, st.floats(-1000, 1000))
def test_a_shift_of_logits_changes_nothing(row, shift):
    shifted = [x + shift for x in row]
    np.testing.assert_allclose(
        probs_from_logits(shifted), probs_from_logits(row), rtol=1e-9, atol=1e-12
    )


# --- shapes and types ----------------------------------------------------------------------------


@pytest.mark.parametrize("function", [probs_from_logits, filter_probs])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)], ids=str)
def test_rows_are_filtered_one_by_one(function, shape):
    values = np.random.default_rng(0).dirichlet(np.ones(5), shape[:-1])
    together = function(values, temperature=0.7, top_k=4, top_p=0.8)
    assert together.shape == shape
    assert together.dtype == np.float64
    rows = zip(together.reshape(-1, 5), values.reshape(-1, 5), strict=True)
    alone = [
        (a.tolist(), function(b, temperature=0.7, top_k=4, top_p=0.8).tolist()) for a, b in rows
    ]
    assert [a for a, _ in alone] == [b for _, b in alone]


@pytest.mark.parametrize("function", [probs_from_logits, filter_probs])
def test_temperature_per_row(function):
    values = np.random.default_rng(1).dirichlet(np.ones(4), 4)
    heats = np.array([0.0, 0.5, 1.0, 3.0])
    together = function(values, temperature=heats)
    alone = [function(row, temperature=heat) for row, heat in zip(values, heats, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-14, atol=0)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4", "int64"])
def test_logit_types(kind):
    logits = np.array([2, 1, -3, 1]).astype(kind)
    found = probs_from_logits(logits)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, reference([2.0, 1.0, -3.0, 1.0]), rtol=1e-14)


@pytest.mark.parametrize(("kind", "off"), [("float16", 1e-2), ("float32", 5e-5)])
def test_probs_are_renormalised_in_float64(kind, off):
    probs = np.array([0.5, 0.25, 0.25 + off]).astype(kind)
    exact = probs.astype(np.float64) / probs.astype(np.float64).sum()
    np.testing.assert_allclose(filter_probs(probs), exact, rtol=1e-15)


def test_wide_float16_logits_do_not_overflow():
    found = probs_from_logits(np.array([6e4, 6e4, -6e4], dtype=np.float16))
    assert found.tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("function", [probs_from_logits, filter_probs])
def test_input_is_not_modified(function):
    values = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]])
    before = values.copy()
    function(values, temperature=[0.0, 2.0], top_k=2, top_p=0.6)
    assert values.tolist() == before.tolist()
    values.setflags(write=False)
    assert function(values, top_k=1)[0].tolist() == [0.0, 0.0, 1.0]


def test_masked_logits_are_not_modified():
    logits = np.array([1.0, 2.0, 3.0])
    probs_from_logits(logits, allowed_token_ids=[0])
    assert logits.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("function", [probs_from_logits, filter_probs])
def test_result_can_be_written_to(function):
    function([0.5, 0.5])[0] = 0.0


# --- the table of policies -----------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-300, 5e-324])
def test_cold_is_argmax(temperature):
    assert probs_from_logits([1.0, 3.0, 2.0], temperature=temperature).tolist() == [0.0, 1.0, 0.0]


def test_temperature_0_takes_the_lowest_id_on_ties():
    assert probs_from_logits([1.0, 3.0, 3.0], temperature=0).tolist() == [0.0, 1.0, 0.0]
    assert filter_probs([0.2, 0.4, 0.4], temperature=0).tolist() == [0.0, 1.0, 0.0]


def test_tiny_temperature_shares_among_ties():
    assert probs_from_logits([1.0, 3.0, 3.0], temperature=1e-300).tolist() == [0.0, 0.5, 0.5]


def test_temperature_0_per_row_leaves_the_others_alone():
    found = probs_from_logits([[1.0, 1.0], [1.0, 1.0]], temperature=[0.0, 1.0])
    assert found.tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_temperature_raises_probs_to_its_inverse():
    probs = np.array([0.5, 0.3, 0.2])
    powered = probs**2 / (probs**2).sum()
    np.testing.assert_allclose(filter_probs(probs, temperature=0.5), powered, rtol=1e-14)


def test_temperature_1_returns_the_probs_themselves():
    probs = np.array([0.7, 0.2, 0.1])
    assert filter_probs(probs).tolist() == (probs / probs.sum()).tolist()


def test_huge_temperature_is_uniform_over_the_support():
    assert filter_probs([0.9, 0.1, 0.0], temperature=1e300).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("top_k", [None, 0, -1, 4, 100, np.int32(9)], ids=str)
def test_top_k_off_or_at_least_the_vocabulary(top_k):
    probs = [0.5, 0.25, 0.125, 0.125]
    assert filter_probs(probs, top_k=top_k).tolist() == probs


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_keeps_exactly_k_on_ties_lowest_first(top_k):
    found = filter_probs([0.25] * 4, top_k=top_k)
    assert found.tolist() == [1 / top_k] * top_k + [0.0] * (4 - top_k)


def test_top_k_takes_larger_ones_before_ties():
    assert (filter_probs([0.2, 0.2, 0.4, 0.2], top_k=2) > 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.5, 1), (np.nextafter(0.5, 1), 2), (0.75, 2), (0.76, 3), (1.0, 4), (1e-12, 1)],
)
def test_top_p_keeps_the_shortest_prefix_that_reaches_it(top_p, kept):
    found = filter_probs([0.5, 0.25, 0.125, 0.125], top_p=top_p)
    assert np.count_nonzero(found) == kept


def test_top_p_breaks_ties_by_lowest_id():
    assert filter_probs([0.25] * 4, top_p=0.5).tolist() == [0.5, 0.5, 0.0, 0.0]


def test_top_p_1_keeps_the_smallest_token():
    found = filter_probs([1 - 1e-17, 1e-17], top_p=1)
    assert found[1] > 0.0


def test_top_p_just_below_1_keeps_all_of_a_sum_that_falls_short():
    probs = np.full(10, 0.1)
    found = filter_probs(probs, top_p=float(np.nextafter(1.0, 0.0)))
    assert np.count_nonzero(found) == 10


def test_top_k_comes_before_top_p():
    # Of the top two 0.4, 0.3 renormalise to 4/7, 3/7: the first alone reaches 0.55.
    assert filter_probs([0.4, 0.3, 0.2, 0.1], top_k=2, top_p=0.55).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_temperature_comes_before_top_p():
    probs = [0.4, 0.3, 0.2, 0.1]
    assert np.count_nonzero(filter_probs(probs, top_p=0.5)) == 2
    assert np.count_nonzero(filter_probs(probs, temperature=0.5, top_p=0.5)) == 1


def test_masks_come_before_top_k():
    found = probs_from_logits([3.0, 2.0, 1.0, 1.0], top_k=2, allowed_token_ids=[1, 3, 2])
    assert (found > 0).tolist() == [False, True, True, False]


def test_minus_infinity_masks():
    found = probs_from_logits([0.0, -INF, 0.0])
    assert found.tolist() == [0.5, 0.0, 0.5]


def test_top_k_beyond_the_support_leaves_masked_tokens_at_0():
    found = probs_from_logits([-INF, 0.0, -INF, 0.0], top_k=3)
    assert found.tolist() == [0.0, 0.5, 0.0, 0.5]


def test_an_allowed_id_named_twice_counts_once():
    assert probs_from_logits([0.0, 0.0], allowed_token_ids=[1, 1]).tolist() == [0.0, 1.0]


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        pytest.param(None, ["logits", "missing"], id="missing"),
        pytest.param([], ["logits", "(0,)"], id="empty"),
        pytest.param(1.0, ["logits", "()"], id="scalar"),
        pytest.param(np.zeros((2, 0)), ["logits", "(2, 0)"], id="empty-rows"),
        pytest.param([0.0, NAN], ["logits", "index 1", "nan"], id="nan"),
        pytest.param([INF, 0.0], ["logits", "index 0", "inf"], id="inf"),
        pytest.param([[0.0, 0.0], [0.0, INF]], ["logits", "row 1", "index 1", "inf"], id="inf-row"),
        pytest.param([-INF, -INF], ["logits", "row 0", "empty support"], id="all-masked"),
        pytest.param(
            [[0.0, 0.0], [-INF, -INF]], ["logits", "row 1", "empty support"], id="row-masked"
        ),
        pytest.param(["a"], ["logits", "str"], id="strings"),
        pytest.param([True], ["logits", "bool"], id="bool"),
        pytest.param([[0.0], [0.0, 1.0]], ["logits"], id="ragged"),
    ],
)
def test_bad_logits(logits, words):
    with pytest.raises(InvalidDistributionError) as caught:
        probs_from_logits(logits)
    assert type(caught.value) is InvalidDistributionError
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.parametrize(
    ("probs", "words"),
    [
        pytest.param(None, ["probs", "missing"], id="missing"),
        pytest.param([0.5, 0.4], ["probs", "0.9"], id="mass"),
        pytest.param([1.5, -0.5], ["probs", "index 1", "-0.5"], id="negative"),
        pytest.param([[0.5, 0.5], [NAN, 1.0]], ["probs", "row 1", "index 0", "nan"], id="nan-row"),
        pytest.param([0.0, 0.0], ["probs", "sums to 0"], id="zero"),
        pytest.param(1.0, ["probs", "()"], id="scalar"),
        pytest.param(np.full((1, 1, 1, 2), 0.5) * 0.9, ["probs", "0.9"], id="four-axes"),
        pytest.param([[0.5], [0.5, 0.5]], ["probs"], id="ragged"),
    ],
)
def test_bad_probs(probs, words):
    with pytest.raises(InvalidDistributionError) as caught:
        filter_probs(probs)
    assert type(caught.value) is InvalidDistributionError
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)


def test_four_axes_are_filtered():
    assert filter_probs(np.full((1, 1, 1, 2), 0.5), top_k=1).tolist() == [[[[1.0, 0.0]]]]


OPTIONS = [
    pytest.param({"temperature": -1.0}, ["temperature", "-1.0"], id="temperature-negative"),
    pytest.param({"temperature": NAN}, ["temperature", "nan"], id="temperature-nan"),
    pytest.param({"temperature": INF}, ["temperature", "inf"], id="temperature-inf"),
    pytest.param({"temperature": "hot"}, ["temperature", "hot"], id="temperature-str"),
    pytest.param({"temperature": None}, ["temperature", "None"], id="temperature-none"),
    pytest.param({"temperature": [1.0, 1.0]}, ["temperature", "(2,)"], id="temperature-shape"),
    pytest.param({"top_k": -2}, ["top_k", "-2"], id="top_k-negative"),
    pytest.param({"top_k": 1.0}, ["top_k", "1.0"], id="top_k-float"),
    pytest.param({"top_k": True}, ["top_k", "True"], id="top_k-bool"),
    pytest.param({"top_k": "2"}, ["top_k", "'2'"], id="top_k-str"),
    pytest.param({"top_p": 0.0}, ["top_p", "0.0"], id="top_p-0"),
    pytest.param({"top_p": -0.1}, ["top_p", "-0.1"], id="top_p-negative"),
    pytest.param({"top_p": 1.1}, ["top_p", "1.1"], id="top_p-above-1"),
    pytest.param({"top_p": NAN}, ["top_p", "nan"], id="top_p-nan"),
    pytest.param({"top_p": "0.9"}, ["top_p", "'0.9'"], id="top_p-str"),
    pytest.param({"top_p": True}, ["top_p", "True"], id="top_p-bool"),
    pytest.param({"top_p": None}, ["top_p", "None"], id="top_p-none"),
]


@pytest.mark.parametrize("function", [probs_from_logits, filter_probs])
@pytest.mark.parametrize(("options", "words"), OPTIONS)
def test_bad_options(function, options, words):
    with pytest.raises(InvalidArgumentError) as caught:
        function([0.25, 0.25, 0.5], **options)
    assert type(caught.value) is InvalidArgumentError
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        pytest.param([3], ["allowed_token_ids", "3", "0..2"], id="too-large"),
        pytest.param([0, -1], ["allowed_token_ids", "-1", "0..2"], id="negative"),
        pytest.param([0.0], ["allowed_token_ids"], id="float"),
        pytest.param([True, False, True], ["allowed_token_ids"], id="mask-of-bools"),
        pytest.param([[0]], ["allowed_token_ids"], id="two-axes"),
        pytest.param(1, ["allowed_token_ids"], id="scalar"),
    ],
)
def test_bad_allowed_token_ids(allowed, words):
    with pytest.raises(InvalidArgumentError) as caught:
        probs_from_logits([0.0, 0.0, 0.0], allowed_token_ids=allowed)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)


def test_no_allowed_token_is_an_empty_support():
    with pytest.raises(InvalidDistributionError, match="empty support"):
        probs_from_logits([0.0, 0.0], allowed_token_ids=[])


def test_ragged_allowed_token_ids_are_refused():
    with pytest.raises(InvalidArgumentError, match="allowed_token_ids"):
        probs_from_logits([0.0, 0.0], allowed_token_ids=[[0], [0, 1]])


@pytest.mark.parametrize("seed", range(4))
def test_large_rows_follow_the_reference(seed):
    rng = np.random.default_rng(seed)
    row = np.round(rng.normal(size=400) * 3, 1)  # with many ties
    found = probs_from_logits(row, temperature=0.8, top_k=50, top_p=0.9137)
    expected = reference(row.tolist(), 0.8, 50, 0.9137)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


NEIGHBOURS = [0.0035298588426049653, 0.003529858842604965]
"""Floats whose logarithms are the same."""


@pytest.mark.parametrize("options", [{"top_k": 2}, {"temperature": 0.5, "top_k": 2}], ids=str)
def test_neighbouring_probabilities_are_told_apart(options):
    assert np.log(NEIGHBOURS[0]) == np.log(NEIGHBOURS[1])
    rest = 1.0 - sum(NEIGHBOURS)
    for first, second in (NEIGHBOURS, NEIGHBOURS[::-1]):
        kept = filter_probs([rest, first, second], **options) > 0.0
        assert kept.tolist() == [True, first > second, second > first]


def test_temperature_zero_tells_neighbouring_probabilities_apart():
    low, high = 0.49999999999999994, 0.5
    assert filter_probs([low, high], temperature=0).tolist() == [0.0, 1.0]
    assert filter_probs([high, low], temperature=0).tolist() == [1.0, 0.0]
