"""Bounds: every formulation agrees with every other one, and refuses what it cannot do."""

from functools import cache

import numpy as np
import pytest

import mdsd
from mdsd.testing import drafts_of, random_probs

from ..solvers.two_weights import TwoWeights

METHODS = ("prefix", "submodular", "lp", "cvxpy", "matching", "cover", "subset")
KINDS = ("flat", "peaked", "sparse", "ties", "point", "nearly_flat", "one_heavy", "scales")
DRAFTS = ("with_replacement", "without_replacement", "independent", "greedy", "spechub", "top_k")


def make_draft(name, vectors, num_drafts, seed):
    found = drafts_of(vectors, num_drafts, np.random.default_rng(seed))
    return next((draft for draft in found if draft.name == name), None)


@cache
def some_instances(name, count=40):
    """Targets and drafts of one law: every kind of vector on either side, V from 1 to 6."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(400):
        num_drafts = number % 3 + 1
        vocab_size = int(rng.integers(1, 7))
        target = random_probs(rng, vocab_size, KINDS[number % len(KINDS)])
        vectors = [random_probs(rng, vocab_size) for _ in range(num_drafts)]
        if number % 9 == 8:
            vectors[0] = target.copy()
        draft = make_draft(name, vectors, num_drafts, number)
        if draft is not None:
            found.append((target, draft))
        if len(found) == count:
            break
    return found


def bound_by(method, target, draft):
    """The bound by a method, None where it does not apply."""
    try:
        return mdsd.acceptance_bound(target, draft, method=method)
    except mdsd.UnsupportedError:
        return None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*DRAFTS, "explicit"])
def test_methods_agree(method, name):
    """On exact zeros, ties, point masses, target = draft, V = 1 and 2, peaked and nearly flat."""
    distances = []
    for target, draft in some_instances(name):
        found = bound_by(method, target, draft)
        if found is None:
            continue
        reference = mdsd.acceptance_bound(target, draft, method="subset").value
        assert found.method == method
        assert found.gap <= 1e-9
        assert 0.0 <= found.value <= 1.0
        distances.append(abs(found.value - reference))
        # 1 + p(H) - Q(H) at the returned H, recomputed from the tuples, is the returned value.
        ids, probs = draft.tuple_arrays()
        inside = np.isin(ids, found.subset).all(axis=1)
        value = 1.0 + target[found.subset].sum() - probs[inside].sum()
        assert value == pytest.approx(found.value, abs=1e-9)
        assert found.subset.dtype == np.int64
        assert (np.diff(found.subset) > 0).all()
    prefix_free = {"independent", "explicit"}
    if method == "prefix" and name in prefix_free:
        # One independent draft is a single draft, whose best subset is a prefix.
        assert len(distances) < len(some_instances(name))
    else:
        assert len(distances) >= 10
    assert max(distances, default=0.0) <= 1e-9


EXACT = [
    ("with_replacement", 2, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.86),
    ("with_replacement", 3, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.988),
    ("without_replacement", 2, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 69 / 70),
    ("without_replacement", 3, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 1.0),
    ("greedy", 2, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.9),
    ("greedy", 3, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 1.0),
    ("spechub", 2, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.9),
    ("top_k", 2, [0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 0.5),
    (
        "with_replacement",
        2,
        np.array([309, 177, 14]) / 500,
        np.array([373, 580, 47]) / 1000,
        0.988871,
    ),
    (
        "with_replacement",
        3,
        np.array([469, 124, 407]) / 1000,
        np.array([201, 275, 524]) / 1000,
        1.0,
    ),
]


@pytest.mark.parametrize(
    ("name", "num_drafts", "target", "draft_probs", "expected"),
    EXACT,
    ids=[f"{name}-{n}-{value:.6g}" for name, n, _, _, value in EXACT],
)
def test_exact_cases(name, num_drafts, target, draft_probs, expected):
    vectors = [np.asarray(draft_probs)] * num_drafts
    draft = make_draft(name, vectors, num_drafts, 0)
    value = mdsd.acceptance_bound(target, draft).value
    assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_drafts", [1, 2, 5, 16, 17, 20, 33, 48, 64, 100])
@pytest.mark.parametrize("ratio", [3.0, 30.0, 238.0, 1e4, 1e6])
def test_a_target_on_one_token_of_two_weights(num_drafts, ratio):
    """The bound is the chance that the token is drawn; in batches and for rates as well."""
    law = TwoWeights(num_drafts, max(1, num_drafts - 3), num_drafts // 2 + 9, ratio)
    q = law.weights
    expected = law.token_hits()[[0, -1]]
    p = np.eye(len(q))[[0, -1]]
    draft = mdsd.WithoutReplacement(q, num_drafts)
    alone = [mdsd.acceptance_bound(target, draft).value for target in p]
    np.testing.assert_allclose(alone, expected, rtol=1e-12, atol=0)
    options = {"draft": "without_replacement", "num_drafts": num_drafts}
    found = mdsd.acceptance_bounds(p, [q, q], **options)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)
    rates = mdsd.acceptance_rates(p, [q, q], verifier="naive", **options)
    np.testing.assert_allclose(rates, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("draft_type", [mdsd.WithReplacement, mdsd.WithoutReplacement])
@pytest.mark.parametrize("num_drafts", [1, 4, 16])
def test_full_vocabulary(draft_type, num_drafts):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=128_000) * 3
    target = mdsd.probs_from_logits(logits)
    draft = draft_type(
        mdsd.probs_from_logits(logits + rng.normal(size=128_000), temperature=1.0), num_drafts
    )
    bound = mdsd.acceptance_bound(target, draft)
    single = float(np.minimum(target, draft.draft_probs).sum())
    assert bound.method == "prefix"
    if num_drafts == 1:
        assert bound.value == pytest.approx(single, abs=1e-12)
    else:
        assert single < bound.value <= 1.0


def test_more_drafts_never_hurt():
    rng = np.random.default_rng(1)
    target, draft_probs = rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(40))
    values = [
        mdsd.acceptance_bound(target, mdsd.WithReplacement(draft_probs, n)).value
        for n in (1, 2, 3, 5, 8, 40, 400)
    ]
    assert (np.diff(values) >= 0).all()
    assert values[-1] > 0.99


def test_independent_search_reports_its_gap():
    rng = np.random.default_rng(2)
    target = rng.dirichlet(np.ones(30))
    draft = mdsd.IndependentDrafts([rng.dirichlet(np.ones(30)) for _ in range(3)])
    exact = mdsd.acceptance_bound(target, draft)
    assert exact.method == "submodular"
    early = mdsd.acceptance_bound(target, draft, method="submodular", max_iterations=1)
    assert early.value >= exact.value - 1e-9
    assert early.gap >= early.value - exact.value - 1e-12
    assert early.gap > 1e-6


UNSUPPORTED = {
    "prefix-explicit": ("prefix", mdsd.ExplicitDraft([[0, 1]], [1.0], vocab_size=3)),
    "prefix-independent": ("prefix", mdsd.IndependentDrafts([[0.2, 0.5, 0.3]] * 2)),
    "lp-large": ("lp", mdsd.WithReplacement(np.full(1000, 1e-3), 3)),
    "cvxpy-large": ("cvxpy", mdsd.WithReplacement(np.full(1000, 1e-3), 3)),
    "matching-large": ("matching", mdsd.WithoutReplacement(np.full(1000, 1e-3), 3)),
    "cover-large": ("cover", mdsd.WithReplacement(np.full(1000, 1e-3), 3)),
    "subset-large": ("subset", mdsd.WithReplacement(np.full(40, 1 / 40), 2)),
}


@pytest.mark.parametrize(("method", "draft"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_unsupported_names_what_applies(method, draft):
    target = np.full(draft.vocab_size, 1 / draft.vocab_size)
    with pytest.raises(mdsd.UnsupportedError, match="methods that apply") as caught:
        mdsd.acceptance_bound(target, draft, method=method)
    others = str(caught.value).split("methods that apply: ")[1].split(", ")
    assert method not in others
    if draft.name != "explicit" and draft.name != "independent":
        assert "prefix" in others


DRAFT = mdsd.WithReplacement([0.2, 0.5, 0.3], 2)
TARGET = [0.5, 0.3, 0.2]
BAD_ARGUMENTS = {
    "unknown-method": (TARGET, DRAFT, {"method": "prefx"}, "did you mean 'prefix'"),
    "method-type": (TARGET, DRAFT, {"method": 3}, "method is 3"),
    "no-draft": (TARGET, [0.2, 0.5, 0.3], {}, "draft is list"),
    "tolerance-negative": (TARGET, DRAFT, {"tolerance": -1.0}, "tolerance is -1.0"),
    "tolerance-nan": (TARGET, DRAFT, {"tolerance": float("nan")}, "tolerance is nan"),
    "tolerance-text": (TARGET, DRAFT, {"tolerance": "small"}, "tolerance is 'small'"),
    "iterations-zero": (TARGET, DRAFT, {"max_iterations": 0}, "max_iterations is 0"),
    "iterations-float": (TARGET, DRAFT, {"max_iterations": 1.5}, "max_iterations is 1.5"),
}


@pytest.mark.parametrize(
    ("target", "draft", "options", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS
)
def test_bad_arguments(target, draft, options, message):
    with pytest.raises(mdsd.InvalidArgumentError, match=message):
        mdsd.acceptance_bound(target, draft, **options)


BAD_TARGETS = {
    "nan": ([0.5, float("nan"), 0.5], "target_probs: index 1 is nan"),
    "negative": ([-0.1, 0.6, 0.5], "target_probs: index 0 is -0.1"),
    "infinite": ([float("inf"), 0.0, 0.0], "target_probs: index 0 is inf"),
    "mass": ([0.5, 0.3, 0.1], "target_probs sums to 0.9"),
    "empty": ([], "target_probs is empty"),
    "matrix": ([TARGET], r"target_probs has shape \(1, 3\)"),
    "missing": (None, "target_probs is missing"),
    "text": (["a", "b", "c"], "target_probs holds str"),
    "length": ([0.5, 0.5], "target_probs has 2 tokens but draft.draft_probs has 3"),
    "length-one": ([1.0], "target_probs has 1 tokens but draft.draft_probs has 3"),
}


@pytest.mark.parametrize(("target", "message"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_targets(target, message):
    with pytest.raises(mdsd.InvalidDistributionError, match=message):
        mdsd.acceptance_bound(target, DRAFT)


class _Stub:
    """What a solver returns when it gives up."""

    x = None
    fun = None
    success = False
    nit = 0

    def __init__(self, status, message):
        self.status, self.message = status, message


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (1, "iteration limit reached"),
        (2, "infeasible"),
        (3, "unbounded"),
        (4, "numerical trouble"),
    ],
)
@pytest.mark.parametrize("method", ["lp", "cover"])
def test_solver_failure_carries_the_status(monkeypatch, method, status, message):
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: _Stub(status, message))
    with pytest.raises(mdsd.SolverError, match=message) as caught:
        mdsd.acceptance_bound(TARGET, DRAFT, method=method)
    assert caught.value.method == method
    assert method in str(caught.value)
