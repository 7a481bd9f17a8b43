"""Draft distributions: sample, prob, tuples and hit probabilities tell the same law."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import mdsd
from mdsd import (
    DraftDistribution,
    ExplicitDraft,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)
from mdsd.testing import Instance, instances

FALSE_ALARM = 1e-6
"""Chance that one sampling check fails for a right law; seeds are fixed, so once for all."""

INSTANCES = [pytest.param(found, id=found.label) for found in instances(seed=1, count=36)]
Q = [0.125, 0.5, 0.25, 0.125]
DRAFTS = {
    "with_replacement": lambda: WithReplacement(Q, 2),
    "without_replacement": lambda: WithoutReplacement(Q, 2),
    "independent": lambda: IndependentDrafts([Q, Q[::-1]]),
    "greedy": lambda: GreedyDraft(Q, 2),
    "spechub": lambda: SpecHubDraft(Q),
    "top_k": lambda: TopKDraft(Q, 2),
    "explicit": lambda: ExplicitDraft([[0, 1], [1, 2], [3, 3]], [0.25, 0.25, 0.5], vocab_size=4),
}


@pytest.fixture(params=list(DRAFTS))
def draft(request: pytest.FixtureRequest) -> DraftDistribution:
    return DRAFTS[request.param]()


def law_of(draft: DraftDistribution) -> dict[tuple[int, ...], float]:
    return dict(draft.tuples())


def hit_by_tuples(draft: DraftDistribution, chosen: set[int]) -> float:
    return sum(prob for row, prob in draft.tuples() if chosen & set(row))


def tuple_p_value(drawn: np.ndarray, law: dict[tuple[int, ...], float]) -> float:
    """P-value of drawn tuples under a listed law, cells expected fewer than 5 times pooled."""
    counts = Counter(map(tuple, drawn.tolist()))
    if set(counts) - set(law):
        return 0.0
    observed = np.array([counts[row] for row in law], dtype=float)
    expected = np.array(list(law.values())) * len(drawn)
    common = expected >= 5
    observed = np.append(observed[common], observed[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    used = expected > 1e-6
    if observed[~used].sum():
        return 0.0
    statistic = ((observed[used] - expected[used]) ** 2 / expected[used]).sum()
    return float(chi2.sf(statistic, used.sum() - 1)) if used.sum() > 1 else 1.0


@pytest.mark.parametrize("instance", INSTANCES)
class TestOneLaw:
    def test_tuples_sum_to_1_and_come_once(self, instance: Instance):
        rows = [row for row, _ in instance.draft.tuples()]
        assert len(set(rows)) == len(rows)
        assert all(prob > 0 for _, prob in instance.draft.tuples())
        assert sum(prob for _, prob in instance.draft.tuples()) == pytest.approx(1.0, abs=1e-13)

    def test_prob_is_that_of_tuples(self, instance: Instance):
        ids, probs = instance.draft.tuple_arrays()
        np.testing.assert_allclose(instance.draft.prob(ids), probs, rtol=1e-13, atol=0)

    def test_prob_sums_to_1_over_all_tuples_and_is_0_off_the_support(self, instance: Instance):
        n, size = instance.draft.num_drafts, instance.draft.vocab_size
        grid = np.stack(np.meshgrid(*[np.arange(size)] * n, indexing="ij"), axis=-1)
        probs = instance.draft.prob(grid)
        assert probs.shape == (size,) * n
        assert probs.sum() == pytest.approx(1.0, abs=1e-13)
        support = {tuple(row) for row in grid[probs > 0].tolist()}
        assert support == set(law_of(instance.draft))

    def test_is_possible_where_prob_is_positive(self, instance: Instance):
        n, size = instance.draft.num_drafts, instance.draft.vocab_size
        grid = np.stack(np.meshgrid(*[np.arange(size)] * n, indexing="ij"), axis=-1)
        possible = instance.draft.is_possible(grid)
        assert possible.dtype == np.bool_
        assert possible.tolist() == (instance.draft.prob(grid) > 0).tolist()

    @pytest.mark.parametrize("seed", range(3))
    def test_hit_probs_are_those_of_tuples(self, instance: Instance, seed: int):
        size = instance.draft.vocab_size
        order = np.random.default_rng(seed).permutation(size)
        expected = [hit_by_tuples(instance.draft, set(order[:k].tolist())) for k in range(size + 1)]
        found = instance.draft.hit_probs(order)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
        assert found[0] == 0.0
        assert found.max() <= 1.0

    def test_token_hit_probs_are_those_of_tuples(self, instance: Instance):
        found = instance.draft.token_hit_probs()
        expected = [hit_by_tuples(instance.draft, {i}) for i in range(instance.draft.vocab_size)]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
        assert found.max() <= 1.0
        assert found.min() >= 0.0

    def test_token_hit_probs_are_those_of_the_base_class(self, instance: Instance):
        default = DraftDistribution.token_hit_probs(instance.draft)
        np.testing.assert_allclose(
            instance.draft.token_hit_probs(), default, rtol=1e-12, atol=1e-15
        )

    def test_sampling_follows_tuples(self, instance: Instance):
        drawn = instance.draft.sample(12, 3000)
        assert drawn.shape == (3000, instance.draft.num_drafts)
        assert tuple_p_value(drawn, law_of(instance.draft)) > FALSE_ALARM

    def test_prefix_order_holds_the_best_subset(self, instance: Instance):
        order = instance.draft.prefix_order(instance.target_probs)
        if order is None:
            assert instance.draft.name in ("independent", "explicit")
            return
        value = mdsd.acceptance_bound(instance.target_probs, instance.draft, method="prefix").value
        exact = mdsd.acceptance_bound(instance.target_probs, instance.draft, method="subset").value
        assert value == pytest.approx(exact, abs=1e-12)


class TestNegativeControls:
    """A wrong law is noticed by the checks above."""

    @pytest.mark.parametrize("kind", [WithReplacement, WithoutReplacement, GreedyDraft])
    def test_sampling_from_another_q_is_noticed(self, kind):
        declared, drawn = kind(Q, 2), kind([0.175, 0.5, 0.25, 0.075], 2)
        assert tuple_p_value(drawn.sample(12, 3000), law_of(drawn)) > FALSE_ALARM
        assert tuple_p_value(drawn.sample(12, 3000), law_of(declared)) < FALSE_ALARM

    def test_a_tuple_off_the_support_is_noticed(self):
        law = law_of(WithoutReplacement(Q, 2))
        assert tuple_p_value(WithReplacement(Q, 2).sample(12, 3000), law) == 0.0

    def test_pairs_in_the_other_order_are_noticed(self):
        draft = SpecHubDraft([0.125, 0.4, 0.25, 0.225])
        assert tuple_p_value(draft.sample(12, 3000)[:, ::-1], law_of(draft)) < FALSE_ALARM

    def test_the_law_of_another_kind_is_noticed(self):
        law = law_of(IndependentDrafts([Q, Q[::-1]]))
        assert tuple_p_value(WithReplacement(Q, 2).sample(12, 3000), law) < FALSE_ALARM


class TestByHand:
    def test_without_replacement(self):
        law = law_of(WithoutReplacement([0.5, 0.25, 0.25], 2))
        expected = {(0, 1): 1 / 4, (0, 2): 1 / 4, (1, 0): 1 / 6, (1, 2): 1 / 12}
        for row, prob in expected.items():
            assert law[row] == pytest.approx(prob, abs=1e-15)

    def test_greedy_takes_the_top_in_order_and_samples_the_rest(self):
        assert law_of(GreedyDraft([0.1, 0.2, 0.4, 0.3], 3)) == pytest.approx(
            {(2, 3, 0): 1 / 3, (2, 3, 1): 2 / 3}
        )

    def test_greedy_with_one_draft_samples(self):
        assert law_of(GreedyDraft([0.25, 0.75], 1)) == {(0,): 0.25, (1,): 0.75}

    @pytest.mark.parametrize("kind", [GreedyDraft, TopKDraft])
    def test_ties_go_to_the_lowest_id(self, kind):
        assert {row[0] for row in law_of(kind([0.25] * 4, 2))} == {0}

    def test_top_k_is_descending(self):
        assert law_of(TopKDraft([0.2, 0.5, 0.3], 3)) == {(1, 2, 0): 1.0}

    def test_spechub(self):
        # hub 1: (i, 1) with q_i, (1, i) with q_1 q_i / (1 - q_1)
        assert law_of(SpecHubDraft([0.25, 0.5, 0.25])) == {
            (0, 1): 0.25,
            (2, 1): 0.25,
            (1, 0): 0.25,
            (1, 2): 0.25,
        }

    def test_spechub_ties_go_to_the_lowest_id(self):
        assert SpecHubDraft([0.5, 0.5]).hub == 0

    def test_spechub_is_greedy_as_a_set(self):
        order = [2, 0, 3, 1]
        np.testing.assert_allclose(
            SpecHubDraft(Q).hit_probs(order), GreedyDraft(Q, 2).hit_probs(order), atol=1e-15
        )

    def test_explicit_merges_a_tuple_listed_twice(self):
        draft = ExplicitDraft([[0, 1], [1, 0], [0, 1]], [0.25, 0.5, 0.25], vocab_size=2)
        assert law_of(draft) == {(0, 1): 0.5, (1, 0): 0.5}

    def test_explicit_leaves_out_tuples_of_probability_0(self):
        draft = ExplicitDraft([[0], [1]], [0.0, 1.0], vocab_size=2)
        assert law_of(draft) == {(1,): 1.0}
        assert draft.is_possible(np.array([[0], [1]])).tolist() == [False, True]

    def test_peaked_without_replacement_keeps_its_digits(self):
        tiny = 1e-13
        draft = WithoutReplacement([1 - 3 * tiny, tiny, 2 * tiny], 2)
        q = [Fraction(float(x)) for x in draft.draft_probs]
        exact = q[0] * q[1] / (q[1] + q[2])
        assert float(draft.prob([0, 1])) == pytest.approx(float(exact), rel=1e-12)
        assert law_of(draft)[(0, 1)] == pytest.approx(float(exact), rel=1e-12)

    def test_peaked_without_replacement_draws_the_rest_in_proportion(self):
        draft = WithoutReplacement([1 - 3e-13, 1e-13, 2e-13], 2)
        assert tuple_p_value(draft.sample(1, 3000), law_of(draft)) > FALSE_ALARM

    def test_sampling_in_pieces_follows_the_law(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("mdsd.drafts.arrivals._CHUNK", 50)
        draft = WithoutReplacement(Q, 2)
        assert tuple_p_value(draft.sample(3, 3000), law_of(draft)) > FALSE_ALARM


class TestSampling:
    def test_one_step(self, draft):
        drawn = draft.sample(0)
        assert drawn.shape == (2,)
        assert drawn.dtype == np.int64

    @pytest.mark.parametrize("size", [0, 1, 5, np.int64(5)], ids=repr)
    def test_many_steps(self, draft, size):
        drawn = draft.sample(0, size)
        assert drawn.shape == (size, 2)
        assert drawn.dtype == np.int64

    def test_same_seed_same_drafts(self, draft):
        assert draft.sample(3, 50).tolist() == draft.sample(np.int32(3), 50).tolist()

    def test_other_seed_other_drafts(self, draft):
        same = draft.sample(3, 200).tolist() == draft.sample(4, 200).tolist()
        assert same == (draft.name == "top_k")

    def test_none_is_fresh_entropy(self, draft):
        # 200 equal rows by chance: below 2**-200 for every law here but the deterministic one.
        same = draft.sample(None, 200).tolist() == draft.sample(None, 200).tolist()
        assert same == (draft.name == "top_k")

    def test_a_generator_moves_on(self, draft):
        rng = np.random.default_rng(1)
        first, second = draft.sample(rng, 200).tolist(), draft.sample(rng, 200).tolist()
        assert (first == second) == (draft.name == "top_k")

    def test_global_state_is_untouched(self, draft):
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        draft.sample(None, 5)
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002

    @pytest.mark.parametrize("size", [-1, 1.0, True, "3", (2, 3)], ids=repr)
    def test_bad_size(self, draft, size):
        with pytest.raises(InvalidArgumentError, match="size is ") as caught:
            draft.sample(0, size)
        assert repr(size) in str(caught.value)

    @pytest.mark.parametrize("rng", [-1, 1.5, "seed", True], ids=repr)
    def test_bad_rng(self, draft, rng):
        with pytest.raises(InvalidArgumentError, match="rng is "):
            draft.sample(rng, 2)

    def test_the_result_can_be_written_to(self, draft):
        draft.sample(0)[0] = 0
        draft.sample(0, 2)[0] = 0


class TestArguments:
    @pytest.mark.parametrize(
        ("order", "words"),
        [
            pytest.param([0, 1, 2], ["order", "(3,)", "4"], id="too-short"),
            pytest.param([0, 1, 2, 3, 3], ["order", "(5,)"], id="too-long"),
            pytest.param([0, 1, 2, 2], ["order", "3", "missing"], id="repeated"),
            pytest.param([0, 1, 2, 4], ["order", "3", "missing"], id="outside"),
            pytest.param([0, 1, -1, 2], ["order", "3", "missing"], id="negative"),
            pytest.param([0.0, 1.0, 2.0, 3.0], ["order", "float64"], id="float"),
            pytest.param([True, False, True, False], ["order", "bool"], id="bool"),
            pytest.param([[0, 1, 2, 3]], ["order", "(1, 4)"], id="two-axes"),
        ],
    )
    def test_bad_order(self, draft, order, words):
        with pytest.raises(InvalidArgumentError) as caught:
            draft.hit_probs(order)
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)

    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            pytest.param([0, 4], ["draft_token_ids", "id 4", "0..3"], id="too-large"),
            pytest.param([-1, 0], ["draft_token_ids", "id -1", "0..3"], id="negative"),
            pytest.param([0], ["draft_token_ids", "(1,)"], id="too-few"),
            pytest.param([0.0, 1.0], ["draft_token_ids", "float64"], id="float"),
            pytest.param([[0, 1], [0, 7]], ["row 1", "id 7"], id="row"),
        ],
    )
    def test_bad_tuple(self, draft, ids, words):
        with pytest.raises(InvalidTokenError) as caught:
            draft.prob(ids)
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)

    def test_prob_of_no_rows(self, draft):
        assert draft.prob(np.zeros((0, 2), dtype=np.int64)).shape == (0,)

    def test_prob_of_one_tuple_is_a_number(self, draft):
        assert 0.0 <= float(draft.prob([1, 2])) <= 1.0

    def test_repr_names_the_sizes(self, draft):
        assert repr(draft) == f"{type(draft).__name__}(num_drafts=2, vocab_size=4)"

    def test_name(self, draft):
        assert DRAFTS[draft.name]().name == draft.name


BAD_VECTORS = [
    pytest.param(None, ["draft_probs", "missing"], id="missing"),
    pytest.param([], ["draft_probs", "empty"], id="empty"),
    pytest.param(0.5, ["draft_probs", "()"], id="scalar"),
    pytest.param([[0.5, 0.5]], ["draft_probs", "(1, 2)"], id="two-axes"),
    pytest.param([0.5, float("nan")], ["draft_probs", "index 1", "nan"], id="nan"),
    pytest.param([0.5, float("inf")], ["draft_probs", "index 1", "inf"], id="inf"),
    pytest.param([1.5, -0.5], ["draft_probs", "index 1", "-0.5"], id="negative"),
    pytest.param([0.5, 0.4], ["draft_probs", "0.9"], id="mass"),
    pytest.param(["a", "b"], ["draft_probs", "str"], id="strings"),
]
COUNTED = {
    "with_replacement": WithReplacement,
    "without_replacement": WithoutReplacement,
    "greedy": GreedyDraft,
    "top_k": TopKDraft,
}
ONE_VECTOR = {
    **{name: (kind, (2,)) for name, kind in COUNTED.items()},
    "spechub": (SpecHubDraft, ()),
}


class TestConstructorErrors:
    @pytest.mark.parametrize("name", list(ONE_VECTOR))
    @pytest.mark.parametrize(("values", "words"), BAD_VECTORS)
    def test_draft_probs(self, name, values, words):
        kind, rest = ONE_VECTOR[name]
        with pytest.raises(InvalidDistributionError) as caught:
            kind(values, *rest)
        assert type(caught.value) is InvalidDistributionError
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)

    @pytest.mark.parametrize("kind", COUNTED.values(), ids=list(COUNTED))
    @pytest.mark.parametrize("count", [0, -1, 1.0, True, None, "2", float("nan")], ids=repr)
    def test_num_drafts(self, kind, count):
        with pytest.raises(InvalidArgumentError) as caught:
            kind([0.5, 0.5], count)
        assert type(caught.value) is InvalidArgumentError
        assert f"num_drafts is {count!r}" in str(caught.value)

    @pytest.mark.parametrize("kind", COUNTED.values(), ids=list(COUNTED))
    def test_num_drafts_may_be_a_numpy_integer(self, kind):
        assert type(kind([0.5, 0.5], np.int64(1)).num_drafts) is int

    @pytest.mark.parametrize("kind", [WithoutReplacement, GreedyDraft, TopKDraft])
    @pytest.mark.parametrize("probs", [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], ids=str)
    def test_too_few_tokens(self, kind, probs):
        with pytest.raises(InvalidDistributionError) as caught:
            kind(probs, 3)
        positive = np.count_nonzero(probs)
        assert f"{positive} tokens with positive" in str(caught.value)
        assert "num_drafts=3" in str(caught.value)

    def test_too_few_tokens_for_spechub(self):
        with pytest.raises(InvalidDistributionError, match=r"1 tokens .* num_drafts=2"):
            SpecHubDraft([0.0, 1.0])

    def test_with_replacement_needs_one_token_only(self):
        assert law_of(WithReplacement([0.0, 1.0], 3)) == {(1, 1, 1): 1.0}

    @pytest.mark.parametrize(
        ("vectors", "words"),
        [
            pytest.param(None, ["draft_probs", "missing"], id="missing"),
            pytest.param([], ["draft_probs", "missing"], id="empty"),
            pytest.param(0.5, ["draft_probs", "0.5"], id="scalar"),
            pytest.param([0.5, 0.5], ["draft_probs[0]", "()"], id="one-vector-only"),
            pytest.param([[0.5, 0.5], [0.5, 0.4]], ["draft_probs[1]", "0.9"], id="mass"),
            pytest.param([[0.5, 0.5], [1.5, -0.5]], ["draft_probs[1]", "-0.5"], id="negative"),
            pytest.param(
                [[0.5, 0.5], [1.0]],
                ["draft_probs[1]", "1 tokens", "draft_probs[0]", "2"],
                id="ragged",
            ),
            pytest.param(
                [np.array([0.5, 0.5]), np.array([1.0])],
                ["draft_probs[1]", "1 tokens", "draft_probs[0]", "2"],
                id="arrays-of-different-length",
            ),
            pytest.param([[0.5, 0.5], None], ["draft_probs[1]", "missing"], id="second-missing"),
        ],
    )
    def test_independent(self, vectors, words):
        with pytest.raises(InvalidDistributionError) as caught:
            IndependentDrafts(vectors)
        assert type(caught.value) is InvalidDistributionError
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)

    @pytest.mark.parametrize(
        ("ids", "probs", "vocab_size", "error", "words"),
        [
            pytest.param([[0]], [1.0], 0, InvalidArgumentError, ["vocab_size", "0"], id="V-0"),
            pytest.param(
                [[0]], [1.0], 2.0, InvalidArgumentError, ["vocab_size", "2.0"], id="V-2.0"
            ),
            pytest.param(
                [[0]], [1.0], True, InvalidArgumentError, ["vocab_size", "True"], id="V-bool"
            ),
            pytest.param(
                [[0]], [1.0], None, InvalidArgumentError, ["vocab_size", "None"], id="V-none"
            ),
            pytest.param(
                [[2]], [1.0], 2, InvalidTokenError, ["token_ids", "row 0", "id 2"], id="id-2"
            ),
            pytest.param([[-1]], [1.0], 2, InvalidTokenError, ["token_ids", "id -1"], id="id--1"),
            pytest.param(
                [[0.0]], [1.0], 2, InvalidTokenError, ["token_ids", "float64"], id="float"
            ),
            pytest.param([0], [1.0], 2, InvalidTokenError, ["token_ids", "(1,)"], id="one-axis"),
            pytest.param([[]], [1.0], 2, InvalidTokenError, ["token_ids", "(1, 0)"], id="n-0"),
            pytest.param(None, [1.0], 2, InvalidTokenError, ["token_ids", "()"], id="none"),
            pytest.param([[0], [0, 1]], [1.0], 2, InvalidTokenError, ["token_ids"], id="ragged"),
            pytest.param(
                [[0]], None, 2, InvalidDistributionError, ["probs", "missing"], id="no-probs"
            ),
            pytest.param([[0]], [0.5], 2, InvalidDistributionError, ["probs", "0.5"], id="mass"),
            pytest.param(
                [[0]], [[1.0]], 2, InvalidDistributionError, ["probs", "(1, 1)"], id="probs-2d"
            ),
            pytest.param(
                [[0]],
                [0.5, 0.5],
                2,
                InvalidDistributionError,
                ["probs", "2", "1 tuples"],
                id="lengths",
            ),
            pytest.param(
                [[0], [1]],
                [1.5, -0.5],
                2,
                InvalidDistributionError,
                ["index 1", "-0.5"],
                id="negative",
            ),
        ],
    )
    def test_explicit(self, ids, probs, vocab_size, error, words):
        with pytest.raises(error) as caught:
            ExplicitDraft(ids, probs, vocab_size=vocab_size)
        assert type(caught.value) is error
        assert not [word for word in words if word not in str(caught.value)], str(caught.value)


class TestTooManyTuples:
    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda q: WithReplacement(q, 4), id="with_replacement"),
            pytest.param(lambda q: WithoutReplacement(q, 4), id="without_replacement"),
            pytest.param(lambda q: IndependentDrafts([q] * 4), id="independent"),
            pytest.param(lambda q: WithReplacement(q, 200), id="with_replacement-1e600"),
            pytest.param(lambda q: WithoutReplacement(q, 200), id="without_replacement-1e591"),
            pytest.param(lambda q: IndependentDrafts([q] * 200), id="independent-1e600"),
        ],
    )
    def test_refused_at_once(self, make):
        draft = make(np.full(1000, 1e-3))
        started = time.perf_counter()
        with pytest.raises(UnsupportedError, match="tuples; at most 1,000,000"):
            draft.tuples()
        assert time.perf_counter() - started < 0.5

    def test_a_million_are_enumerated(self):
        draft = WithReplacement(np.full(1000, 1e-3), 2)
        assert len(draft.tuple_arrays()[0]) == 1_000_000

    def test_zeros_do_not_count(self):
        q = np.zeros(5000)
        q[[3, 70]] = 0.5
        assert len(list(WithReplacement(q, 3).tuples())) == 8


class TestUnderflow:
    @pytest.mark.parametrize("kind", [WithReplacement, WithoutReplacement])
    def test_a_tuple_whose_probability_underflows_is_possible(self, kind):
        draft = kind([1.0, 1e-200, 1e-200, 0.0], 2)
        row = np.array([1, 2])
        assert draft.is_possible(row)
        if kind is WithReplacement:
            assert draft.prob(row) == 0.0

    def test_independent(self):
        draft = IndependentDrafts([[1.0, 1e-200], [1.0, 1e-200]])
        assert draft.is_possible(np.array([[1, 1], [0, 1]])).tolist() == [True, True]

    @pytest.mark.parametrize("kind", [WithReplacement, WithoutReplacement])
    def test_zeros_and_repeats_stay_impossible(self, kind):
        draft = kind([1.0, 1e-200, 1e-200, 0.0], 2)
        found = draft.is_possible(np.array([[3, 1], [1, 3], [1, 1]]))
        assert found.tolist() == [False, False, kind is WithReplacement]

    def test_spechub(self):
        draft = SpecHubDraft([0.3, 0.25, 0.25, 0.2, 5e-324])
        assert draft.prob([0, 4]) == 0.0
        found = draft.is_possible(np.array([[0, 4], [4, 0], [0, 0], [4, 1]]))
        assert found.tolist() == [True, True, False, False]

    @pytest.mark.parametrize("name", ["naive", "rrs", "optimal"])
    def test_it_can_be_verified(self, name):
        plan = mdsd.get_verifier(name).plan([0.5, 0.5, 0.0], WithReplacement([1.0, 1e-200, 0.0], 2))
        assert plan.verify([1, 1], 0).token_id in (0, 1)


class TestArrays:
    @pytest.mark.parametrize("name", list(ONE_VECTOR))
    def test_later_changes_of_the_input_change_nothing(self, name):
        kind, rest = ONE_VECTOR[name]
        q = np.array(Q)
        draft = kind(q, *rest)
        before = law_of(draft), draft.hit_probs([3, 1, 0, 2]).tolist(), draft.sample(1, 20).tolist()
        q[:] = [0.0, 0.0, 0.0, 1.0]
        after = law_of(draft), draft.hit_probs([3, 1, 0, 2]).tolist(), draft.sample(1, 20).tolist()
        assert before == after

    def test_later_changes_of_independent_inputs_change_nothing(self):
        q = np.array([Q, Q[::-1]])
        draft = IndependentDrafts(q)
        before = law_of(draft)
        q[:] = 0.25
        assert law_of(draft) == before

    def test_later_changes_of_explicit_inputs_change_nothing(self):
        ids, probs = np.array([[0, 1], [1, 2]]), np.array([0.25, 0.75])
        draft = ExplicitDraft(ids, probs, vocab_size=3)
        before = law_of(draft)
        ids[:], probs[:] = 0, 0.5
        assert law_of(draft) == before

    def test_inputs_stay_writeable(self):
        q = np.array(Q)
        WithReplacement(q, 2)
        assert q.flags.writeable

    def test_stored_arrays_are_read_only(self, draft):
        arrays = {k: v for k, v in vars(draft).items() if isinstance(v, np.ndarray)}
        assert arrays
        assert [k for k, v in arrays.items() if v.flags.writeable] == []

    def test_results_are_not_the_stored_arrays(self, draft):
        before = law_of(draft), draft.token_hit_probs().tolist()
        draft.token_hit_probs()[:] = 7.0
        ids, probs = draft.tuple_arrays()
        ids[:], probs[:] = 0, 7.0
        draft.hit_probs([0, 1, 2, 3])[:] = 7.0
        assert (law_of(draft), draft.token_hit_probs().tolist()) == before


# --- a user's own draft distribution -------------------------------------------------------------

TUPLES = np.array([[0, 1], [1, 2], [3, 3], [2, 0]])
MASSES = np.array([0.125, 0.25, 0.125, 0.5])
TARGET = [0.5, 0.125, 0.125, 0.25]


class FourThings(DraftDistribution):
    """Only what a draft distribution must give."""

    num_drafts = 2
    vocab_size = 4

    def hit_probs(self, order: Any) -> np.ndarray:
        rank = np.argsort(order)
        first = rank[TUPLES].min(axis=1)
        gains = np.bincount(first, weights=MASSES, minlength=4)
        return np.concatenate([[0.0], np.cumsum(gains)])

    def sample(self, rng: Any, size: int | None = None) -> np.ndarray:
        rows = np.random.default_rng(rng).choice(4, p=MASSES, size=size)
        return TUPLES[rows]


class WithTuples(FourThings):
    """The same, with its support listed."""

    def tuples(self) -> Any:
        return iter([(tuple(row), mass) for row, mass in zip(TUPLES.tolist(), MASSES, strict=True)])


EQUIVALENT = ExplicitDraft(TUPLES, MASSES, vocab_size=4)


class TestOwnDraft:
    def test_token_hit_probs_come_from_hit_probs(self):
        np.testing.assert_allclose(
            FourThings().token_hit_probs(), EQUIVALENT.token_hit_probs(), rtol=0, atol=1e-15
        )

    def test_prob_is_not_declared(self):
        with pytest.raises(UnsupportedError, match=r"custom .* prob\(\)"):
            FourThings().prob([0, 1])

    def test_tuples_are_not_declared(self):
        with pytest.raises(UnsupportedError, match=r"custom .* tuples\(\)"):
            FourThings().tuples()

    def test_tuple_arrays_are_not_declared(self):
        with pytest.raises(UnsupportedError, match=r"custom .* tuples\(\)"):
            FourThings().tuple_arrays()

    def test_every_tuple_is_taken_for_possible(self):
        assert FourThings().is_possible(np.array([[0, 0], [1, 1]])).tolist() == [True, True]

    def test_no_prefix_order_is_known(self):
        assert FourThings().prefix_order(np.array(TARGET)) is None

    def test_repr(self):
        assert repr(FourThings()) == "FourThings(num_drafts=2, vocab_size=4)"

    def test_bound(self):
        bound = mdsd.acceptance_bound(TARGET, FourThings())
        exact = mdsd.acceptance_bound(TARGET, EQUIVALENT, method="subset")
        assert bound.value == pytest.approx(exact.value, abs=1e-9)
        assert bound.method == "submodular"

    def test_explicit_methods_do_not_apply(self):
        with pytest.raises(UnsupportedError, match="submodular"):
            mdsd.acceptance_bound(TARGET, FourThings(), method="lp")

    def test_optimal(self):
        plan = mdsd.get_verifier("optimal").plan(TARGET, FourThings())
        equivalent = mdsd.get_verifier("optimal").plan(TARGET, EQUIVALENT)
        assert plan.acceptance_rate == pytest.approx(equivalent.acceptance_rate, abs=1e-9)
        np.testing.assert_allclose(plan.marginal_law(), TARGET, rtol=0, atol=1e-14)

    def test_optimal_is_lossless_over_the_tuples(self):
        plan = mdsd.get_verifier("optimal").plan(TARGET, FourThings())
        np.testing.assert_allclose(MASSES @ plan.output_law(TUPLES), TARGET, rtol=0, atol=1e-14)

    def test_optimal_verifies_drawn_drafts(self):
        own = FourThings()
        plan = mdsd.get_verifier("optimal").plan(TARGET, own)
        seen = plan.verify_many(own.sample(np.random.default_rng(5), 4000), 6)
        expected = 4000 * np.array(TARGET)
        counts = np.bincount(seen.token_id, minlength=4)
        assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 3) > FALSE_ALARM

    def test_naive(self):
        plan = mdsd.get_verifier("naive").plan(TARGET, FourThings())
        equivalent = mdsd.get_verifier("naive").plan(TARGET, EQUIVALENT)
        assert plan.acceptance_rate == pytest.approx(equivalent.acceptance_rate, abs=1e-14)

    def test_the_base_class_alone_cannot_be_made(self):
        with pytest.raises(TypeError):
            DraftDistribution()


class TestOwnDraftWithTuples:
    def test_tuple_arrays_come_from_tuples(self):
        ids, probs = WithTuples().tuple_arrays()
        assert ids.dtype == np.int64
        assert ids.tolist() == TUPLES.tolist()
        assert probs.tolist() == MASSES.tolist()

    @pytest.mark.parametrize("method", ["lp", "cvxpy", "matching", "cover", "subset", "submodular"])
    def test_explicit_methods_apply(self, method):
        bound = mdsd.acceptance_bound(TARGET, WithTuples(), method=method)
        exact = mdsd.acceptance_bound(TARGET, EQUIVALENT, method="subset")
        assert bound.value == pytest.approx(exact.value, abs=1e-9)

    def test_optimal_passes_the_plan_check(self):
        plan = mdsd.get_verifier("optimal").plan(TARGET, WithTuples())
        mdsd.testing.check_plan(plan, attains_bound=True)

    def test_prob_is_still_not_declared(self):
        with pytest.raises(UnsupportedError, match=r"prob\(\)"):
            WithTuples().prob([0, 1])


@pytest.mark.parametrize("n", [10**3, 300_000, 2**31 - 1])
def test_counting_astronomic_numbers_of_tuples_is_quick(n):
    draft = WithReplacement(np.full(50_000, 1 / 50_000), n)
    started = time.perf_counter()
    with pytest.raises(UnsupportedError, match=r"has more than 1e\+300 tuples"):
        draft.tuples()
    assert draft._count_tuples() == np.inf
    assert WithReplacement([1.0, 0.0], n)._count_tuples() == 1
    assert time.perf_counter() - started < 0.5


class EndlessDraft(DraftDistribution):
    """A user's own draft whose enumeration never ends."""

    name, num_drafts, vocab_size = "endless", 1, 2

    def hit_probs(self, order):
        return np.array([0.0, 0.5, 1.0])

    def sample(self, rng, size=None):
        return np.zeros((1,) if size is None else (size, 1), dtype=np.int64)

    def tuples(self):
        while True:
            yield (0,), 0.5


def test_a_users_tuples_are_not_enumerated_for_ever():
    with pytest.raises(
        UnsupportedError, match="endless draft distribution has more than 1,000,000"
    ):
        EndlessDraft().tuple_arrays()


@pytest.mark.parametrize(
    ("pairs", "error", "words"),
    [
        ([((0,), 0.5), ((1,), 0.4)], InvalidDistributionError, "sums to 0.9"),
        ([((0,), 1.5), ((1,), -0.5)], InvalidDistributionError, "-0.5"),
        ([((0,), 0.5), ((2,), 0.5)], InvalidTokenError, "id 2"),
        ([((0, 1), 1.0)], InvalidTokenError, r"\(1, 2\)"),
        ([((0,), 0.5), ((0, 1), 0.5)], InvalidTokenError, "cannot be read"),
    ],
    ids=["mass", "negative", "range", "length", "ragged"],
)
@pytest.mark.parametrize("method", ["lp", "matching"])
def test_a_users_tuples_are_checked(monkeypatch, pairs, error, words, method):
    monkeypatch.setattr(EndlessDraft, "tuples", lambda self: iter(pairs))
    with pytest.raises(error, match=rf"tuples\(\) of the endless draft distribution.*{words}"):
        mdsd.acceptance_bound([0.5, 0.5], EndlessDraft(), method=method)


@pytest.mark.parametrize("method", ["hit_probs", "sample", "prob", "token_hit_probs", "_hit_probs"])
@pytest.mark.parametrize("kind", [WithReplacement, GreedyDraft, ExplicitDraft])
def test_built_in_laws_are_final(kind, method):
    with pytest.raises(TypeError, match=f"Mine overrides {method} of the law of {kind.__name__}"):
        type("Mine", (kind,), {method: lambda self, *arguments: None})


def test_built_in_laws_may_be_added_to():
    class Named(WithReplacement):
        name = "mine"

        def entropy(self):
            return -float(self.draft_probs @ np.log(self.draft_probs))

    draft = Named(Q, 2)
    assert draft.entropy() > 0.0
    assert mdsd.acceptance_bound(Q, draft).value == pytest.approx(1.0)


def test_own_draft_may_be_unhashable_and_may_change():
    """A dataclass with ``__eq__`` has no hash, and its answer is never one of before."""

    @dataclass
    class Weighted(mdsd.DraftDistribution):
        weights: np.ndarray
        num_drafts: int = 2
        vocab_size: int = 3

        def hit_probs(self, order):
            inside = np.concatenate([[0.0], np.cumsum(self.weights[order])])
            return 1.0 - (1.0 - np.minimum(inside, 1.0)) ** 2

        def sample(self, rng, size=None):
            raise AssertionError("not needed for bounds")

    draft, target = Weighted(np.array([0.2, 0.5, 0.3])), [0.5, 0.3, 0.2]
    assert mdsd.acceptance_bound(target, draft).value == pytest.approx(0.86, abs=1e-9)
    draft.weights = np.array([0.5, 0.3, 0.2])
    assert mdsd.acceptance_bound(target, draft).value == pytest.approx(1.0, abs=1e-9)
