"""Checks of probabilities and token ids, draws from them, and random streams."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd._arguments import shown
from mdsd._probabilities import MASS_TOLERANCE, check_probs, check_same_vocab, ratio_order
from mdsd._random import draw_tokens, generator
from mdsd._tokens import check_token_ids, refuse_impossible
from mdsd.decoding import TableModel
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
)

BELOW_1 = float(np.nextafter(1.0, 0.0))


class TestCheckProbs:
    def test_gives_a_new_read_only_float64_array(self):
        values = np.array([0.25, 0.75])
        checked = check_probs(values, "x")
        assert checked.dtype == np.float64
        assert not checked.flags.writeable
        assert checked.flags.c_contiguous
        assert not np.shares_memory(checked, values)
        assert values.flags.writeable
        assert checked.tolist() == [0.25, 0.75]

    @pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_mass_within_the_tolerance_of_its_type_is_renormalised(self, kind, sign):
        off = 1 + sign * 0.5 * MASS_TOLERANCE[kind]
        values = (np.full(4, 0.25) * off).astype(kind)
        checked = check_probs(values, "x")
        assert checked.tolist() == [0.25] * 4
        assert values.tolist() == (np.full(4, 0.25) * off).astype(kind).tolist()

    @pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_mass_beyond_the_tolerance_of_its_type_is_refused(self, kind, sign):
        values = (np.full(4, 0.25) * (1 + sign * 2 * MASS_TOLERANCE[kind])).astype(kind)
        with pytest.raises(InvalidDistributionError, match=rf"^x sums to .*\({kind}\)"):
            check_probs(values, "x")

    def test_float16_is_summed_in_float64(self):
        values = np.full(4096, 1 / 4096, dtype=np.float16)
        assert check_probs(values, "x").tolist() == [1 / 4096] * 4096

    @pytest.mark.parametrize("size", [1, 50_000])
    def test_rows_sum_to_1(self, size):
        values = np.random.default_rng(0).dirichlet(np.ones(size), 3).astype(np.float32)
        checked = check_probs(values, "x", ndim=2)
        np.testing.assert_allclose(checked.sum(axis=1), 1.0, rtol=0, atol=1e-14)

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param([0, 1, 0], id="integers"),
            pytest.param((0.0, 1.0, 0.0), id="tuple"),
            pytest.param(np.array([0.0, 1.0, 0.0], dtype=">f8"), id="big-endian"),
            pytest.param(np.array([0.0, 1.0, 0.0], dtype=np.longdouble), id="longdouble"),
            pytest.param(np.eye(3)[:, 1], id="strided"),
            pytest.param(np.array([0, 1, 0], dtype=np.uint8), id="uint8"),
            pytest.param([0.0, 1.0, -0.0], id="negative-zero"),
        ],
    )
    def test_forms_that_are_read(self, values):
        checked = check_probs(values, "x")
        assert checked.tolist() == [0.0, 1.0, 0.0]
        assert checked.dtype.isnative

    @pytest.mark.parametrize(
        ("values", "ndim", "words"),
        [
            pytest.param(None, 1, ["my_probs", "missing"], id="missing"),
            pytest.param([], 1, ["my_probs", "empty"], id="empty"),
            pytest.param(np.zeros((2, 0)), 2, ["my_probs", "empty"], id="empty-rows"),
            pytest.param(0.5, 1, ["my_probs", "shape ()", "(V,)"], id="scalar"),
            pytest.param([[0.5, 0.5]], 1, ["my_probs", "(1, 2)", "(V,)"], id="two-axes"),
            pytest.param([0.5, 0.5], 2, ["my_probs", "(2,)", "(B, V)"], id="one-axis"),
            pytest.param([0.5, 0.5], 3, ["my_probs", "(2,)", "(B, n, V)"], id="not-three-axes"),
            pytest.param([0.5, float("nan")], 1, ["my_probs", "index 1", "nan"], id="nan"),
            pytest.param([float("inf"), 0.5], 1, ["my_probs", "index 0", "inf"], id="inf"),
            pytest.param([0.5, -float("inf")], 1, ["my_probs", "index 1", "-inf"], id="-inf"),
            pytest.param([float("inf"), -float("inf")], 1, ["index 0", "inf"], id="inf-and--inf"),
            pytest.param([-1e-12, 1.0], 1, ["my_probs", "index 0", "-1e-12"], id="negative"),
            pytest.param([-5e-324, 1.0], 1, ["index 0", "-5e-324"], id="smallest-negative"),
            pytest.param([0.5, 0.4], 1, ["my_probs", "0.9", "1e-05", "float64"], id="mass"),
            pytest.param([0.0, 0.0], 1, ["my_probs", "sums to 0"], id="all-zero"),
            pytest.param([1e308, 1e308], 1, ["my_probs", "inf"], id="mass-overflows"),
            pytest.param([2, 0], 1, ["my_probs", "sums to 2"], id="integers-off"),
            pytest.param([True, False], 1, ["my_probs", "bool"], id="bool"),
            pytest.param(["a", "b"], 1, ["my_probs", "str"], id="strings"),
            pytest.param([1j, 1.0], 1, ["my_probs", "complex"], id="complex"),
            pytest.param([None, 1.0], 1, ["my_probs", "object"], id="object"),
            pytest.param([[0.5], [0.5, 0.5]], 2, ["my_probs", "array"], id="ragged"),
            pytest.param([[0.5, 0.5], [0.5, 0.6]], 2, ["my_probs", "row 1", "1.1"], id="row-mass"),
            pytest.param(
                [[0.5, 0.5], [1.5, -0.5]],
                2,
                ["my_probs", "row 1", "index 1", "-0.5"],
                id="row-entry",
            ),
            pytest.param(
                [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, float("nan")]]],
                3,
                ["my_probs", "row 1, 1", "index 1", "nan"],
                id="row-of-three-axes",
            ),
        ],
    )
    def test_refused(self, values, ndim, words):
        with pytest.raises(InvalidDistributionError) as caught:
            check_probs(values, "my_probs", ndim=ndim)
        assert type(caught.value) is InvalidDistributionError
        assert isinstance(caught.value, (MdsdError, ValueError))
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, str(caught.value)

    @pytest.mark.parametrize(
        ("values", "meant"),
        [
            pytest.param([2.0, 1.0, 0.3], "logits", id="logits"),
            pytest.param([-2, 3, 1], "logits", id="integers"),
            pytest.param([0.9, 0.8, 0.3], "logits", id="logits-below-1"),
            pytest.param([-np.inf, 0.5, 0.25], "logits", id="masked-logits"),
            pytest.param(np.float16([8.5, -1.5]), "logits", id="half-precision"),
            pytest.param(np.log([0.5, 0.25, 0.25]), "log-probabilities", id="log-probabilities"),
            pytest.param([-np.inf, 0.0], "log-probabilities", id="log-of-0"),
            pytest.param([0.5, 0.3], None, id="cut-off"),
            pytest.param([0.6, 0.5], None, id="mass-above-1"),
            pytest.param([0.0, 0.0], None, id="zeros"),
            pytest.param([-1e-9, 0.4, 0.6], None, id="rounding"),
            pytest.param([np.nan, 2.0], None, id="nan"),
            pytest.param([np.inf, -2.0], None, id="inf"),
        ],
    )
    def test_asks_about_logits(self, values, meant):
        question = f"; {meant}? probs_from_logits makes probabilities of them"
        for given, ndim in ((values, 1), ([[1.0, *np.zeros(len(values) - 1)], values], 2)):
            with pytest.raises(InvalidDistributionError) as caught:
                check_probs(given, "x", ndim=ndim)
            assert str(caught.value).endswith(question) == (meant is not None)
            assert ("?" in str(caught.value)) == (meant is not None)

    def test_refused_input_is_not_modified(self):
        values = np.array([0.5, 0.4])
        with pytest.raises(InvalidDistributionError):
            check_probs(values, "x")
        assert values.tolist() == [0.5, 0.4]


LOGITS, Q = [2.0, 1.0, 0.3], [0.5, 0.3, 0.2]
PLACES = {
    "draft": lambda: mdsd.WithReplacement(LOGITS, 2),
    "drafts": lambda: mdsd.IndependentDrafts([Q, LOGITS]),
    "target": lambda: mdsd.acceptance_bound(LOGITS, mdsd.WithReplacement(Q, 2)),
    "batch-target": lambda: mdsd.acceptance_bounds([Q, LOGITS], [Q, Q], num_drafts=2),
    "batch-draft": lambda: mdsd.acceptance_bounds(
        np.float32([Q, Q]), np.float32([Q, LOGITS]), draft="greedy", num_drafts=2
    ),
    "plan": lambda: mdsd.get_verifier("rrs").plan(LOGITS, mdsd.WithReplacement(Q, 2)),
    "rows": lambda: mdsd.verify_batch(
        [LOGITS], [Q], [[0, 1]], draft="with_replacement", verifier="rrs", rng=0
    ),
    "filter": lambda: mdsd.filter_probs(LOGITS),
    "model": lambda: TableModel([LOGITS] * 3),
    "outcomes": lambda: mdsd.ExplicitDraft([[0, 1], [1, 2]], [2.0, 1.0], vocab_size=3),
}


@pytest.mark.parametrize("call", PLACES.values(), ids=PLACES)
def test_logits_where_probabilities_are_expected(call):
    with pytest.raises(InvalidDistributionError, match=r"; logits\? probs_from_logits"):
        call()


def test_same_vocab_is_silent():
    assert check_same_vocab(np.ones(3), 3) is None


def test_different_vocab_names_both_lengths():
    with pytest.raises(InvalidDistributionError, match=r"target_probs has 3 tokens.*has 4"):
        check_same_vocab(np.ones(3), 4)


class TestRatioOrder:
    @pytest.mark.parametrize(
        ("p", "q", "expected"),
        [
            pytest.param([0.5, 0.5], [0.5, 0.5], [0, 1], id="tie-lowest-id"),
            pytest.param([0.2, 0.8], [0.8, 0.2], [1, 0], id="two"),
            pytest.param([0.5, 0.0, 0.5], [0.5, 0.0, 0.5], [0, 2, 1], id="0/0-last"),
            pytest.param([0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [2, 1, 0], id="infinite-first"),
            pytest.param([0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0, 2, 1], id="two-infinite"),
            pytest.param([0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [2, 0, 1], id="zeros-by-id"),
            pytest.param([1e-300, 1.0], [1e-320, 1.0], [0, 1], id="subnormal-denominator"),
            pytest.param([1.0], [1.0], [0], id="one"),
        ],
    )
    def test_order(self, p, q, expected):
        assert ratio_order(np.array(p), np.array(q)).tolist() == expected

    @pytest.mark.parametrize("seed", range(5))
    def test_against_sorting_by_hand(self, seed):
        rng = np.random.default_rng(seed)
        p, q = rng.integers(0, 4, (2, 12)).astype(float)

        def key(i: int) -> tuple[float, int]:
            ratio = 0.0 if p[i] == 0 else p[i] / q[i] if q[i] > 0 else float("inf")
            return -ratio, i

        assert ratio_order(p, q).tolist() == sorted(range(12), key=key)

    def test_inputs_are_not_modified(self):
        p, q = np.array([0.5, 0.5]), np.array([0.0, 1.0])
        p.setflags(write=False)
        q.setflags(write=False)
        assert ratio_order(p, q).tolist() == [0, 1]


class TestDrawTokens:
    @pytest.mark.parametrize(
        ("weights", "u", "expected"),
        [
            pytest.param([0.25, 0.5, 0.25], 0.0, 0, id="zero"),
            pytest.param([0.25, 0.5, 0.25], BELOW_1, 2, id="below-1"),
            pytest.param([0.25, 0.5, 0.25], 0.25, 1, id="on-an-edge"),
            pytest.param([0.25, 0.5, 0.25], np.nextafter(0.25, 0), 0, id="below-an-edge"),
            pytest.param([0.25, 0.5, 0.25], 0.75, 2, id="on-the-last-edge"),
            pytest.param([0.0, 0.0, 1.0, 0.0], 0.0, 2, id="zeros-in-front"),
            pytest.param([0.0, 0.0, 1.0, 0.0], BELOW_1, 2, id="zeros-behind"),
            pytest.param([0.5, 0.0, 0.5], 0.5, 2, id="zero-between"),
            pytest.param([0.5, 0.5, 0.0], BELOW_1, 1, id="zero-at-the-end"),
            pytest.param([1.0, 2.0, 1.0], 0.25, 1, id="not-normalised"),
            pytest.param([1e-300, 1e-300], 0.5, 1, id="tiny-weights"),
            pytest.param([1.0, 1e-30, 0.0], BELOW_1, 0, id="below-rounding"),
            pytest.param([5e-324, 0.0], BELOW_1, 0, id="subnormal"),
            pytest.param([1.0], 0.5, 0, id="one-token"),
            pytest.param([0.1] * 10, BELOW_1, 9, id="sum-short-of-1"),
            pytest.param([0.1] * 10 + [0.0], BELOW_1, 9, id="sum-short-of-1-zero-behind"),
        ],
    )
    def test_inverse_cdf(self, weights, u, expected):
        assert draw_tokens(np.array(weights), u) == expected

    def test_running_sum_is_short_in_the_case_above(self):
        assert np.cumsum([0.1] * 10)[-1] < 1.0

    @pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)], ids=str)
    def test_shape_and_dtype(self, shape):
        drawn = draw_tokens(np.array([0.5, 0.5]), np.zeros(shape))
        assert drawn.shape == shape
        assert drawn.dtype == np.int64

    @pytest.mark.parametrize("seed", range(5))
    def test_against_a_loop(self, seed):
        rng = np.random.default_rng(seed)
        weights = rng.integers(0, 4, 9).astype(float)
        weights[rng.integers(9)] += 1
        uniforms = rng.random(500)

        def by_hand(u: float) -> int:
            total = 0.0
            for i, weight in enumerate(weights):
                total += weight
                if u * weights.sum() < total:
                    return i
            raise AssertionError

        assert draw_tokens(weights, uniforms).tolist() == [by_hand(u) for u in uniforms]

    @pytest.mark.parametrize("u", [0.0, 0.5, BELOW_1])
    def test_200_000_equal_masses_rounded_to_float32(self, u):
        size = 200_000
        probs = check_probs(np.full(size, 1 / size, dtype=np.float32), "x")
        assert draw_tokens(probs, u) == pytest.approx(u * size, abs=1)
        assert draw_tokens(probs, u) < size

    def test_no_token_without_mass_among_many_draws(self):
        rng = np.random.default_rng(0)
        weights = np.where(rng.random(1000) < 0.5, 0.0, rng.random(1000))
        assert (weights[draw_tokens(weights, rng.random(20_000))] > 0).all()


class TestGenerator:
    def test_a_generator_is_used_as_it_is(self):
        rng = np.random.default_rng(1)
        assert generator(rng, "draft") is rng

    @pytest.mark.parametrize("stream", ["draft", "verify", "study"])
    def test_same_seed_same_numbers(self, stream):
        first, second = generator(7, stream).random(4), generator(np.int64(7), stream).random(4)
        assert first.tolist() == second.tolist()

    @pytest.mark.parametrize("pair", [("draft", "verify"), ("draft", "study"), ("verify", "study")])
    def test_streams_of_one_seed_differ(self, pair):
        first, second = (generator(7, stream).random(4) for stream in pair)
        assert not np.isin(first, second).any()

    @pytest.mark.parametrize("seed", [0, 7, 2**40])
    def test_no_stream_is_that_of_default_rng(self, seed):
        plain = np.random.default_rng(seed).random(4)
        assert generator(seed, "draft").random(4).tolist() != plain.tolist()

    def test_streams_are_uncorrelated(self):
        # The correlation of 10,000 pairs has standard error 0.01: false alarm 6e-7 at 5 of them.
        drafts, verifies = (
            generator(3, "draft").random(10_000),
            generator(3, "verify").random(10_000),
        )
        assert abs(np.corrcoef(drafts, verifies)[0, 1]) < 0.05

    def test_none_is_fresh_entropy_and_leaves_the_global_state(self):
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        first, second = generator(None, "draft").random(2), generator(None, "draft").random(2)
        assert first.tolist() != second.tolist()
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002

    @pytest.mark.parametrize(
        "rng",
        [-1, 1.0, True, "7", np.float64(1.0), [1], np.random],
        ids=["negative", "float", "bool", "str", "numpy-float", "list", "module"],
    )
    def test_refused(self, rng):
        with pytest.raises(InvalidArgumentError, match=r"^rng is ") as caught:
            generator(rng, "draft")
        assert shown(rng) in str(caught.value)


class TestCheckTokenIds:
    @pytest.mark.parametrize(
        ("ids", "ndim"),
        [
            pytest.param([0, 4], None, id="list"),
            pytest.param((0, 4), 1, id="tuple"),
            pytest.param([[0, 4], [1, 1]], 2, id="rows"),
            pytest.param(np.array([[[0, 4]]]), None, id="three-axes"),
            pytest.param(np.array([0, 4], dtype=np.uint8), 1, id="uint8"),
            pytest.param(np.array([0, 4], dtype=">i4"), 1, id="big-endian"),
            pytest.param(np.array([4, 1, 0, 1])[::-2], 1, id="every-other"),
            pytest.param(np.array([[0, 1], [4, 1]]).T, 2, id="columns"),
            pytest.param(np.broadcast_to([0, 4], (3, 2)), 2, id="broadcast"),
            pytest.param(np.zeros((0, 2), dtype=np.int64), 2, id="no-rows"),
            pytest.param(np.zeros((0, 2)), 2, id="no-rows-of-floats"),
        ],
    )
    def test_accepted(self, ids, ndim):
        found = check_token_ids(ids, num_drafts=2, vocab_size=5, ndim=ndim)
        assert found.dtype == np.int64
        assert found.dtype.isnative
        assert found.tolist() == np.asarray(ids).tolist()

    @pytest.mark.parametrize(
        ("ids", "ndim", "words"),
        [
            pytest.param(3, None, ["my_ids", "shape ()"], id="scalar"),
            pytest.param([0], None, ["my_ids", "(1,)", "2 drafts"], id="too-few"),
            pytest.param([0, 1, 2], None, ["my_ids", "(3,)", "2 drafts"], id="too-many"),
            pytest.param([0, 1], 2, ["my_ids", "(2,)", "(B, 2)"], id="one-axis"),
            pytest.param([[0, 1]], 1, ["my_ids", "(1, 2)", "(2,)"], id="two-axes"),
            pytest.param([], None, ["my_ids", "(0,)"], id="empty"),
            pytest.param([0, 5], None, ["my_ids", "id 5", "position 1", "0..4"], id="too-large"),
            pytest.param([-1, 0], None, ["my_ids", "id -1", "position 0", "0..4"], id="negative"),
            pytest.param(
                [[0, 1], [0, 9]], 2, ["my_ids", "row 1", "id 9", "position 1"], id="in-row-1"
            ),
            pytest.param(
                [[[0, 1], [0, 1]], [[0, 1], [7, 1]]], None, ["row 1, 1", "id 7"], id="in-row-1-1"
            ),
            pytest.param([0.0, 1.0], None, ["my_ids", "float64", "integers"], id="float"),
            pytest.param([True, False], None, ["my_ids", "bool", "integers"], id="bool"),
            pytest.param(["0", "1"], None, ["my_ids", "str", "integers"], id="strings"),
            pytest.param([None, 1], None, ["my_ids", "object"], id="none-inside"),
            pytest.param(None, None, ["my_ids", "object"], id="none"),
            pytest.param([[0, 1], [0]], None, ["my_ids"], id="ragged"),
            pytest.param(
                np.array([2**63, 0], dtype=np.uint64), None, ["my_ids", str(2**63)], id="2**63"
            ),
            pytest.param(np.array([-(2**63), 0]), None, ["my_ids", str(-(2**63))], id="-2**63"),
            pytest.param(np.array([0, -1], dtype=np.int8), None, ["id -1"], id="negative-int8"),
        ],
    )
    def test_refused(self, ids, ndim, words):
        with pytest.raises(InvalidTokenError) as caught:
            check_token_ids(ids, num_drafts=2, vocab_size=5, ndim=ndim, name="my_ids")
        assert type(caught.value) is InvalidTokenError
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, str(caught.value)

    def test_default_name(self):
        with pytest.raises(InvalidTokenError, match=r"^draft_token_ids"):
            check_token_ids([9], num_drafts=1, vocab_size=5)

    def test_input_is_not_modified(self):
        ids = np.array([0, 4], dtype=np.int32)
        ids.setflags(write=False)
        assert check_token_ids(ids, num_drafts=2, vocab_size=5).tolist() == [0, 4]


class TestRefuseImpossible:
    def test_silent_where_all_are_possible(self):
        assert refuse_impossible(np.array([[0, 1]]), np.array([True]), "x") is None

    def test_names_row_tuple_and_draft(self):
        ids, possible = np.array([[0, 1], [2, 2]]), np.array([True, False])
        with pytest.raises(InvalidTokenError, match=r"row 1: \[2, 2\] cannot .* greedy draft"):
            refuse_impossible(ids, possible, "greedy")

    def test_a_single_tuple_has_no_row(self):
        with pytest.raises(InvalidTokenError, match=r"^draft_token_ids: \[2, 2\]"):
            refuse_impossible(np.array([2, 2]), np.array(False), "greedy")
