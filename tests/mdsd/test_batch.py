"""Batch calls: row for row what single calls give, checked inputs, threads, processes, memory."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import mdsd
from mdsd._probabilities import check_probs
from mdsd._random import generator
from mdsd.batch import _inputs, _threads, acceptance_bounds, verification, verify_batch
from mdsd.drafts import read_kind

from .. import commands
from .batch_rows import DRAFTS, instances, uniforms_of_every_kind

PAIRS = [
    (verifier, draft, n)
    for draft in DRAFTS
    for n in (1, 2, 4)
    if draft != "spechub" or n == 2
    for verifier in mdsd.verifier_names()
    if mdsd.get_verifier(verifier).supports(
        DRAFTS[draft](
            np.full((n, 8), 0.125) if draft == "independent" else np.full(8, 0.125),
            n,
        )
    )
]
"""Every verifier with every draft distribution that it supports."""


def assert_rows_equal_plans(targets, drafted, ids, laws, verifier, draft, plans, uniforms):
    found = verify_batch(targets, drafted, ids, draft=draft, verifier=verifier, uniforms=uniforms)
    expected = [
        plan.verify(row, uniforms=u) for plan, row, u in zip(plans, ids, uniforms, strict=True)
    ]
    assert found.token_ids.dtype == found.accept_index.dtype == np.int64
    assert found.token_ids.tolist() == [step.token_id for step in expected]
    assert found.accept_index.tolist() == [step.accept_index for step in expected]


# --- verify_batch equals its plans ---------------------------------------------------------------


@pytest.mark.parametrize(("verifier", "draft", "n"), PAIRS)
def test_rows_are_what_their_plans_give(verifier, draft, n):
    targets, drafted, ids, laws = instances(draft, n, size=9, repeats=6)
    chosen = mdsd.get_verifier(verifier).for_many()
    plans = [chosen.plan(p, law) for p, law in zip(targets, laws, strict=True)]
    shape = (len(ids), chosen.num_uniforms(laws[0]))
    for uniforms in uniforms_of_every_kind(np.random.default_rng(1), shape):
        assert_rows_equal_plans(targets, drafted, ids, laws, verifier, draft, plans, uniforms)


@pytest.mark.parametrize(
    ("verifier", "draft", "n"), [pair for pair in PAIRS if pair[1] in DRAFTS and pair[2] > 1]
)
def test_long_rows_are_what_their_plans_give(verifier, draft, n):
    if verifier == "optimal" and draft in ("without_replacement", "independent"):
        pytest.skip("the search for a lottery takes seconds here")
    targets, drafted, ids, laws = instances(draft, n, size=3001, repeats=2, seed=2)
    chosen = mdsd.get_verifier(verifier).for_many()
    plans = [chosen.plan(p, law) for p, law in zip(targets, laws, strict=True)]
    rng = np.random.default_rng(3)
    for uniforms in (rng.random((len(ids), plans[0].num_uniforms)) for _ in range(20)):
        assert_rows_equal_plans(targets, drafted, ids, laws, verifier, draft, plans, uniforms)


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "independent"])
def test_vocabulary_of_one_token(draft):
    shape = (3, 1, 1) if draft == "independent" else (3, 1)
    for verifier in ("single", "naive", "rrs", "optimal"):
        found = verify_batch(
            np.ones((3, 1)), np.ones(shape), [[0]] * 3, draft=draft, verifier=verifier, rng=0
        )
        assert found.token_ids.tolist() == found.accept_index.tolist() == [0, 0, 0]


@pytest.mark.parametrize("verifier", ["rrs", "kseq", "optimal"])
def test_many_positions_follow_their_targets(verifier):
    rng = np.random.default_rng(4)
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.1, 0.4, 0.2, 0.3])
    law = mdsd.WithReplacement(q, 2)
    count = 40_000
    found = verify_batch(
        np.broadcast_to(p, (count, 4)),
        np.broadcast_to(q, (count, 4)),
        law.sample(rng, size=count),
        draft="with_replacement",
        verifier=verifier,
        rng=rng,
    )
    emitted = np.bincount(found.token_ids, minlength=4) / count
    np.testing.assert_allclose(emitted, p, rtol=0, atol=0.012)
    rate = mdsd.get_verifier(verifier).plan(p, law).acceptance_rate
    assert (found.accept_index >= 0).mean() == pytest.approx(rate, rel=0, abs=0.012)


def test_rows_left_to_plans_are_rare(monkeypatch):
    """At full vocabulary the kernels decide nearly every row by themselves."""
    rng = np.random.default_rng(5)
    logits = 3.0 * rng.normal(size=(16, 32_000))
    targets = mdsd.probs_from_logits(logits)
    drafted = mdsd.probs_from_logits(logits + rng.normal(size=logits.shape))
    left = []
    run = verification._run

    def counting(*arguments):
        run(*arguments)
        left.append(int((arguments[-1] < 0).sum()))

    monkeypatch.setattr(verification, "_run", counting)
    for verifier, draft in (
        ("rrs", "with_replacement"),
        ("rrs", "without_replacement"),
        ("kseq", "with_replacement"),
        ("greedy", "greedy"),
        ("spechub", "spechub"),
    ):
        n = 2 if draft == "spechub" else 4
        ids = np.array([DRAFTS[draft](q, n).sample(rng) for q in drafted])
        verify_batch(targets, drafted, ids, draft=draft, verifier=verifier, rng=rng)
    assert len(left) == 5
    assert sum(left) <= 1


class Stubborn(mdsd.NaiveVerifier):
    """A subclass, which the kernel of its parent must not answer for."""

    name = "stubborn"

    def _plan(self, target_probs, draft):
        return super()._plan(np.roll(target_probs, 1), draft)


def test_own_verifiers_go_through_their_plans():
    targets, drafted = np.eye(3), np.full((3, 3), 1 / 3)
    ids = np.zeros((3, 2), dtype=int)
    found = verify_batch(targets, drafted, ids, draft="with_replacement", verifier=Stubborn())
    assert found.token_ids.tolist() == [1, 2, 0]
    assert found.accept_index.tolist() == [-1, -1, 0]


def test_options_of_a_verifier_are_kept():
    targets, drafted, ids, laws = instances("without_replacement", 2, size=8, repeats=1)
    early = mdsd.OptimalVerifier(max_iterations=1)
    uniforms = np.random.default_rng(0).random((len(ids), 3))
    found = verify_batch(
        targets, drafted, ids, draft="without_replacement", verifier=early, uniforms=uniforms
    )
    expected = [
        early.plan(p, law).verify(row, uniforms=u).token_id
        for p, law, row, u in zip(targets, laws, ids, uniforms, strict=True)
    ]
    assert found.token_ids.tolist() == expected


# --- rows, threads, processes --------------------------------------------------------------------


@pytest.mark.parametrize("verifier", ["naive", "rrs", "kseq", "optimal"])
def test_a_row_does_not_depend_on_the_others(verifier):
    targets, drafted, ids, laws = instances("with_replacement", 2, size=40, repeats=3)
    count = mdsd.get_verifier(verifier).num_uniforms(laws[0])
    uniforms = np.random.default_rng(1).random((len(ids), count))
    draft = {"draft": "with_replacement", "verifier": verifier}
    whole = verify_batch(targets, drafted, ids, **draft, uniforms=uniforms)
    turned = np.random.default_rng(2).permutation(len(ids))
    other = verify_batch(
        targets[turned], drafted[turned], ids[turned], **draft, uniforms=uniforms[turned]
    )
    assert other.token_ids.tolist() == whole.token_ids[turned].tolist()
    for row in range(len(ids)):
        one = slice(row, row + 1)
        alone = verify_batch(targets[one], drafted[one], ids[one], **draft, uniforms=uniforms[one])
        assert alone.token_ids[0] == whole.token_ids[row]
        assert alone.accept_index[0] == whole.accept_index[row]


def in_batch(seed=0):
    targets, drafted, ids, _ = instances("without_replacement", 3, size=50, repeats=4, seed=seed)
    found = verify_batch(
        targets, drafted, ids, draft="without_replacement", verifier="rrs", rng=seed
    )
    bounds = acceptance_bounds(targets, drafted, draft="without_replacement", num_drafts=3)
    return found.token_ids.tolist(), bounds.tolist()


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_the_number_of_threads_does_not_matter(monkeypatch, cores):
    expected = in_batch()
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(_threads, "_available_cores", lambda: cores)
    assert in_batch() == expected


def test_two_callers_at_once(monkeypatch):
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(_threads, "_available_cores", lambda: 2)
    found = {}
    callers = [
        threading.Thread(target=lambda seed=seed: found.update({seed: in_batch(seed)}))
        for seed in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == {seed: in_batch(seed) for seed in range(4)}


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_goes_on(monkeypatch):
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(_threads, "_available_cores", lambda: 2)
    expected = in_batch()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(in_batch, [0, 0, 0]) == [expected] * 3


def test_what_a_thread_raises_is_raised(monkeypatch):
    monkeypatch.setattr(_threads, "_available_cores", lambda: 3)

    def fail_late(start, stop):
        if stop == 12:
            raise ArithmeticError("row 11")

    with pytest.raises(ArithmeticError, match="row 11"):
        _threads.over_rows(fail_late, 12, 10**6)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("cores", [1, 4])
def test_every_row_is_worked_on_once(monkeypatch, rows, cores):
    monkeypatch.setattr(_threads, "_available_cores", lambda: cores)
    seen = np.zeros(rows, dtype=int)

    def mark(start, stop):
        seen[start:stop] += 1

    _threads.over_rows(mark, rows, 10**7)
    assert (seen == 1).all()


def test_importing_the_batch_calls_is_light():
    code = (
        "import sys, mdsd.batch; assert 'numba' not in sys.modules and 'scipy' not in sys.modules"
    )
    commands.run_python(code)


def test_batch_calls_are_exported():
    assert mdsd.acceptance_bounds is acceptance_bounds
    assert mdsd.verify_batch is verify_batch


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [9, 700])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("draft", DRAFTS)
def test_bounds_are_those_of_single_calls(draft, n, size):
    if (draft == "spechub" and n != 2) or (draft == "independent" and n > 1 and size > 9):
        pytest.skip("no such draft, or a search that takes seconds")
    targets, drafted, _, laws = instances(draft, n, size=size, repeats=4)
    found = acceptance_bounds(targets, drafted, draft=draft, num_drafts=n)
    expected = [mdsd.acceptance_bound(p, law).value for p, law in zip(targets, laws, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert found.max() <= 1.0
    for row in range(len(targets)):
        one = slice(row, row + 1)
        alone = acceptance_bounds(targets[one], drafted[one], draft=draft, num_drafts=n)
        assert alone[0] == found[row]


@pytest.mark.parametrize("draft", [name for name in DRAFTS if name != "independent"])
def test_tokens_that_no_side_can_produce_change_no_bit_of_a_bound(draft):
    rng = np.random.default_rng(0)
    # Whole 2**-30ths, so that the sums are 1 in whatever order they are taken; some rows of ties.
    counts = rng.multinomial(2**30, rng.dirichlet(np.ones(96)), size=(8, 2))
    counts[:3, 1] = 2**30 // 64 * (np.arange(96) < 64)
    counts[:2, 0] = 2**30 // 32 * (np.arange(96) >= 64)
    counts[2, 0] = 2**30 // 32 * (np.arange(96) % 3 == 0)
    targets, drafted = counts[:, 0] / 2**30, counts[:, 1] / 2**30
    call = {"draft": draft, "num_drafts": 2}
    wide = np.zeros((2, 8, 500))
    wide[:, :, np.sort(rng.permutation(500)[:96])] = targets, drafted
    expected = acceptance_bounds(targets, drafted, **call).tolist()
    assert acceptance_bounds(*wide, **call).tolist() == expected


def test_bounds_of_vectors_that_share_nothing_are_zero():
    for draft in ("with_replacement", "without_replacement", "greedy", "top_k"):
        assert acceptance_bounds(
            [[0.0, 0.0, 1.0]], [[0.5, 0.5, 0.0]], draft=draft, num_drafts=2
        ).tolist() == [0.0]


# --- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 127, 128, 129, 136, 1000, 1025, 50_257])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_masses_have_the_bits_of_checked_vectors(size, dtype):
    kind = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    rows = np.random.default_rng(size).dirichlet(np.ones(min(size, 60)), size=3)
    rows = np.pad(rows, ((0, 0), (0, size - rows.shape[1]))).astype(kind)
    read = _inputs.read_batch(rows, "target_probs", ndim=2)
    checked = check_probs(rows, "target_probs", ndim=2)
    assert (read.rows.astype(np.float64) / read.masses[:, np.newaxis] == checked).all()
    assert read.positives.tolist() == np.count_nonzero(checked, axis=1).tolist()


def forms(rows):
    """The same numbers laid out in other ways."""
    wide = np.zeros((len(rows), 2 * rows.shape[1]))
    wide[:, ::2] = rows
    raw = np.zeros(rows.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(rows.shape)
    unaligned[:] = rows
    frozen = rows.copy()
    frozen.setflags(write=False)
    return {
        "fortran": np.asfortranarray(rows),
        "strided": wide[:, ::2],
        "reversed": np.array(rows[::-1, ::-1])[::-1, ::-1],
        "unaligned": unaligned,
        "read-only": frozen,
        "swapped": rows.astype(rows.dtype.newbyteorder()),
        "list": rows.tolist(),
    }


FORMS = ("fortran", "strided", "reversed", "unaligned", "read-only", "swapped", "list")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("draft", ["with_replacement", "greedy"])
def test_layouts_are_read_as_they_look(draft, form):
    targets, drafted, ids, _ = instances(draft, 2, size=20, repeats=2)
    expected = verify_batch(targets, drafted, ids, draft=draft, verifier="optimal", rng=1)
    p, q = forms(targets)[form], forms(drafted)[form]
    found = verify_batch(p, q, ids[:, ::-1][:, ::-1], draft=draft, verifier="optimal", rng=1)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    bounds = acceptance_bounds(p, q, draft=draft, num_drafts=2)
    assert (
        bounds.tolist() == acceptance_bounds(targets, drafted, draft=draft, num_drafts=2).tolist()
    )


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float16", "float32"), ("float32", "float64")]
)
@pytest.mark.parametrize(
    ("verifier", "draft"),
    [
        ("rrs", "without_replacement"),
        ("kseq", "with_replacement"),
        ("optimal", "with_replacement"),
        ("greedy", "greedy"),
        ("spechub", "spechub"),
    ],
)
def test_types_are_those_of_plans(verifier, draft, dtypes):
    rng = np.random.default_rng(0)
    targets = rng.dirichlet(np.ones(30), size=40).astype(dtypes[0])
    drafted = rng.dirichlet(np.ones(30), size=40).astype(dtypes[1])
    laws = [DRAFTS[draft](q, 2) for q in drafted]
    ids = np.array([law.sample(rng) for law in laws])
    chosen = mdsd.get_verifier(verifier).for_many()
    plans = [chosen.plan(p, law) for p, law in zip(targets, laws, strict=True)]
    for uniforms in rng.random((10, len(ids), plans[0].num_uniforms)):
        assert_rows_equal_plans(targets, drafted, ids, laws, verifier, draft, plans, uniforms)


def test_counts_are_probabilities_too():
    found = acceptance_bounds([[0, 1]], np.array([[1, 0]], dtype=np.uint8), num_drafts=1)
    assert found.tolist() == [0.0]


@pytest.mark.parametrize("draft", DRAFTS)
def test_no_rows(draft):
    n = 2
    shape = (0, n, 5) if draft == "independent" else (0, 5)
    bounds = acceptance_bounds(np.ones((0, 5)), np.ones(shape), draft=draft, num_drafts=n)
    assert bounds.shape == (0,)
    assert bounds.dtype == np.float64
    for verifier in ("naive", "optimal"):
        found = verify_batch(
            np.ones((0, 5)),
            np.ones(shape),
            np.zeros((0, n), dtype=int),
            draft=draft,
            verifier=verifier,
            rng=0,
        )
        assert found.token_ids.shape == found.accept_index.shape == (0,)


def test_no_copy_of_the_probabilities():
    rng = np.random.default_rng(0)
    targets = np.full((32, 20_000), 1 / 20_000)
    drafted = np.full((32, 20_000), 1 / 20_000)
    before = targets.copy(), drafted.copy()
    ids = rng.integers(0, 20_000, (32, 2))

    def call():
        acceptance_bounds(targets, drafted, num_drafts=2)
        verify_batch(targets, drafted, ids, draft="with_replacement", verifier="rrs", rng=0)

    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Vectors of one row, not of the batch.
    assert peak < 0.3 * targets.nbytes
    assert (targets == before[0]).all()
    assert (drafted == before[1]).all()


# --- randomness ----------------------------------------------------------------------------------


def test_seeds_feed_the_verifying_stream():
    targets, drafted, ids, _ = instances("with_replacement", 2, size=10, repeats=5)
    call = {"draft": "with_replacement", "verifier": "rrs"}
    uniforms = generator(7, "verify").random((len(ids), 3))
    expected = verify_batch(targets, drafted, ids, **call, uniforms=uniforms)
    found = verify_batch(targets, drafted, ids, **call, rng=7)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    given = verify_batch(targets, drafted, ids, **call, rng=generator(7, "verify"))
    assert given.token_ids.tolist() == expected.token_ids.tolist()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"uniforms": [[0.5, 0.5]] * 2}, mdsd.InvalidArgumentError, ["uniforms", "(2, 3)"]),
        (
            {"uniforms": [[0.5] * 3, [0.5, 1.0, 0.5]]},
            mdsd.InvalidArgumentError,
            ["uniforms row 1", "1.0"],
        ),
        ({"uniforms": [["a"] * 3] * 2}, mdsd.InvalidArgumentError, ["uniforms"]),
        ({"uniforms": [[0.5] * 3] * 2, "rng": 1}, mdsd.InvalidArgumentError, ["both"]),
        ({"rng": -1}, mdsd.InvalidArgumentError, ["rng", "-1"]),
        (
            {"draft": "with_replacment"},
            mdsd.InvalidArgumentError,
            ["draft is 'with_replacment'", "did you mean 'with_replacement'"],
        ),
        ({"draft": None}, mdsd.InvalidArgumentError, ["draft is None"]),
        ({"verifier": "rss"}, mdsd.InvalidArgumentError, ["verifier is 'rss'"]),
        ({"verifier": "greedy"}, mdsd.UnsupportedError, ["greedy", "with_replacement"]),
        ({"verifier": "single"}, mdsd.UnsupportedError, ["single", "num_drafts=2"]),
    ],
)
def test_bad_arguments(change, error, words):
    call = {"draft": "with_replacement", "verifier": "rrs", **change}
    with pytest.raises(error) as caught:
        verify_batch([[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2, [[0, 1]] * 2, **call)
    for word in words:
        assert word in str(caught.value)


# --- bad rows are named --------------------------------------------------------------------------

GOOD = [[0.5, 0.3, 0.2]] * 3


def with_row(row, values):
    rows = [list(entry) for entry in GOOD]
    rows[row] = values
    return rows


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([0.5, np.nan, 0.5], ["row 2: index 1", "nan"]),
        ([0.5, np.inf, 0.5], ["row 2: index 1", "inf"]),
        ([-0.5, 1.0, 0.5], ["row 2: index 0", "-0.5"]),
        ([0.5, 0.2, 0.2], ["row 2", "0.9"]),
        ([0.0, 0.0, 0.0], ["row 2", "sums to 0"]),
    ],
)
@pytest.mark.parametrize("name", ["target_probs", "draft_probs"])
def test_bad_rows_are_named(name, row, words):
    arguments = {"target_probs": GOOD, "draft_probs": GOOD, name: with_row(2, row)}
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for call in (
        lambda: acceptance_bounds(**arguments, num_drafts=2),
        lambda: verify_batch(
            **arguments,
            draft_token_ids=[[0, 1]] * 3,
            draft="with_replacement",
            verifier="rrs",
            rng=rng,
        ),
    ):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            call()
        for word in (name, *words):
            assert word in str(caught.value)
    assert rng.bit_generator.state == before


def test_bad_rows_of_independent_drafts_are_named():
    drafted = np.array([GOOD, GOOD])
    drafted[1, 2, 0] = np.nan
    with pytest.raises(
        mdsd.InvalidDistributionError, match=r"draft_probs row 1, 2: index 0 is nan"
    ):
        acceptance_bounds(GOOD[:2], drafted, draft="independent", num_drafts=3)


@pytest.mark.parametrize(
    ("targets", "drafted", "words"),
    [
        (GOOD, GOOD[:2], ["target_probs has 3 rows", "draft_probs has 2"]),
        (GOOD, [[0.5, 0.5]] * 3, ["3 tokens", "draft_probs has 2"]),
        (GOOD[0], GOOD, ["target_probs has shape (3,)", "(B, V)"]),
        (GOOD, [GOOD], ["draft_probs has shape (1, 3, 3)", "(B, V)"]),
        (np.ones((2, 0)), GOOD[:2], ["target_probs is empty"]),
        (None, GOOD, ["target_probs is missing"]),
        (GOOD, None, ["draft_probs is missing"]),
        ([["a"]], GOOD, ["target_probs holds"]),
    ],
)
def test_shapes_that_do_not_agree(targets, drafted, words):
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        acceptance_bounds(targets, drafted, num_drafts=1)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("draft", "kind"),
    [
        ("without_replacement", "drawing without replacement"),
        ("greedy", "the greedy draft"),
        ("top_k", "the top-k draft"),
        ("spechub", "the SpecHub draft"),
    ],
)
def test_rows_with_too_few_tokens_are_named(draft, kind):
    drafted = with_row(1, [0.0, 1.0, 0.0])
    for call in (
        lambda: acceptance_bounds(GOOD, drafted, draft=draft, num_drafts=2),
        lambda: verify_batch(GOOD, drafted, [[0, 1]] * 3, draft=draft, verifier="naive"),
    ):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            call()
        assert str(caught.value) == (
            f"draft_probs row 1 has 1 tokens with positive probability; {kind} with num_drafts=2 "
            "needs at least 2"
        )


@pytest.mark.parametrize(
    ("draft", "ids"),
    [
        ("with_replacement", [2, 0]),
        ("without_replacement", [0, 0]),
        ("without_replacement", [0, 2]),
        ("greedy", [0, 1]),
        ("greedy", [1, 1]),
        ("greedy", [1, 2]),
        ("top_k", [0, 1]),
        ("spechub", [0, 3]),
        ("spechub", [1, 1]),
        ("spechub", [1, 2]),
        ("independent", [0, 2]),
    ],
)
def test_impossible_tuples_are_named(draft, ids):
    q = np.array([0.3, 0.5, 0.0, 0.2])
    drafted = np.tile(q, (3, 2, 1)) if draft == "independent" else np.tile(q, (3, 1))
    law = DRAFTS[draft](drafted[0], 2)
    possible = law.sample(0)
    assert not law.is_possible(np.array([ids]))[0]
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        verify_batch(
            np.full((3, 4), 0.25), drafted, [possible, ids, ids], draft=draft, verifier="naive"
        )
    assert str(caught.value).startswith(f"draft_token_ids row 1: {ids} cannot be drawn")


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_is_possible_is_what_a_draft_says(draft):
    rng = np.random.default_rng(0)
    for n in (2,) if draft == "spechub" else (1, 2, 3):
        targets, drafted, _, laws = instances(draft, n, size=6, repeats=4)
        kind = read_kind(draft)
        read = _inputs.read_pair(targets, drafted, kind)[1]
        for _ in range(30):
            ids = rng.integers(0, 6, (len(laws), n))
            for row, law in enumerate(laws):
                if rng.random() < 0.5:
                    ids[row] = law.sample(rng)
            expected = [
                law.is_possible(row[np.newaxis])[0] for law, row in zip(laws, ids, strict=True)
            ]
            assert verification._possible(ids, read, kind).tolist() == expected


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([[0, 1], [0, 3], [0, 1]], ["row 1", "id 3", "position 1"]),
        ([[0, 1], [0, -1], [0, 1]], ["row 1", "id -1"]),
        ([[0, 1]] * 2, ["draft_token_ids has 2 rows", "target_probs has 3"]),
        ([0, 1, 2], ["shape (3,)", "(B, n)"]),
        ([[], [], []], ["shape (3, 0)"]),
        ([[0, 1], [0], [0]], ["draft_token_ids"]),
        ([[0.0, 1.0]] * 3, ["float64"]),
    ],
)
def test_bad_ids(ids, words):
    with pytest.raises(mdsd.InvalidTokenError) as caught:
        verify_batch(GOOD, GOOD, ids, draft="with_replacement", verifier="rrs")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("draft", "n", "words"),
    [
        ("with_replacement", 0, ["num_drafts is 0"]),
        ("with_replacement", 1.0, ["num_drafts is 1.0"]),
        ("spechub", 3, ["num_drafts is 3", "spechub"]),
        ("independent", 2, ["num_drafts is 2", "(3, 1, 3)"]),
        ("hub", 2, ["draft is 'hub'", "spechub"]),
    ],
)
def test_bad_numbers_of_drafts(draft, n, words):
    drafted = np.array(GOOD)[:, np.newaxis] if draft == "independent" else GOOD
    with pytest.raises(mdsd.InvalidArgumentError) as caught:
        acceptance_bounds(GOOD, drafted, draft=draft, num_drafts=n)
    for word in words:
        assert word in str(caught.value)


def test_no_draft_models():
    with pytest.raises(mdsd.InvalidDistributionError, match="draft_probs is missing"):
        acceptance_bounds(GOOD, np.ones((3, 0, 3)), draft="independent", num_drafts=1)
