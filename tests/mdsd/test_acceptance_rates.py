"""Acceptance rates of batches: row for row what plans give."""

from __future__ import annotations

import tracemalloc

import array_api_strict as xp
import numpy as np
import pytest

import mdsd
from mdsd.batch import _threads, acceptance, acceptance_rates
from mdsd.batch._threads import limit_threads

from ..verifiers import supporting
from .batch_rows import DRAFTS, instances

FOLLOWED = 10_000
"""Rejection paths that are all followed where the vocabulary is small."""


def verifier_of(name):
    return mdsd.get_verifier(name, **({"monte_carlo_paths": FOLLOWED} if name == "rrs" else {}))


def flat(draft, n):
    return DRAFTS[draft](np.full((n, 8) if draft == "independent" else 8, 0.125), n)


PAIRS = [
    (verifier, draft, n)
    for draft in DRAFTS
    for n in (1, 2, 4)
    if draft != "spechub" or n == 2
    for verifier in supporting(flat(draft, n))
]
"""Every verifier with every draft distribution that it supports."""


def searches(verifier, draft, n):
    """Tell whether a rate is that of a lottery, which is good to its tolerance only."""
    return verifier == "optimal" and draft in ("without_replacement", "independent") and n > 1


def assert_rates_are_those_of_plans(targets, drafted, laws, verifier, draft, tolerance=1e-12):
    found = acceptance_rates(
        targets, drafted, draft=draft, num_drafts=laws[0].num_drafts, verifier=verifier
    )
    plans = [verifier.plan(p, law) for p, law in zip(targets, laws, strict=True)]
    assert {plan.acceptance_stderr for plan in plans} == {0.0}
    expected = np.array([plan.acceptance_rate for plan in plans])
    assert found.dtype == np.float64
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    return found


@pytest.mark.parametrize(("verifier", "draft", "n"), PAIRS)
def test_rates_are_those_of_plans(verifier, draft, n):
    targets, drafted, _, laws = instances(draft, n, size=9, repeats=3, seed=n)
    chosen = verifier_of(verifier)
    tolerance = 1e-8 if searches(verifier, draft, n) else 1e-12
    found = assert_rates_are_those_of_plans(targets, drafted, laws, chosen, draft, tolerance)
    call = {"draft": draft, "num_drafts": n, "verifier": chosen}
    # A row gives the same bits alone.
    for row in range(0, len(targets), 4):
        one = slice(row, row + 1)
        assert acceptance_rates(targets[one], drafted[one], **call)[0] == found[row]


@pytest.mark.parametrize(("verifier", "draft", "n"), [pair for pair in PAIRS if pair[2] == 2])
def test_tokens_that_no_side_can_produce_change_no_bit(verifier, draft, n):
    rng = np.random.default_rng(0)
    # Whole 2**-30ths, so that the sums are 1 in whatever order they are taken.
    counts = rng.multinomial(2**30, rng.dirichlet(np.ones(70)), size=(6, 3))
    counts[:, 1:] = counts[:, 1:2] if draft != "independent" else counts[:, 1:]
    counts[0] = 2**30 // 64 * (np.arange(70) < 64)
    targets, drafted = counts[:, 0] / 2**30, counts[:, 1:] / 2**30
    drafted = drafted if draft == "independent" else drafted[:, 0]
    call = {"draft": draft, "num_drafts": n, "verifier": verifier}
    live = np.sort(rng.permutation(300)[:70])
    rows = np.zeros((6, 300)), np.zeros((*drafted.shape[:-1], 300))
    rows[0][..., live], rows[1][..., live] = targets, drafted
    assert acceptance_rates(*rows, **call).tolist() == (
        acceptance_rates(targets, drafted, **call).tolist()
    )


@pytest.mark.parametrize(
    ("verifier", "draft", "n"),
    [
        (verifier, draft, n)
        for verifier, draft, n in PAIRS
        if n > 1
        and draft != "independent"
        and not searches(verifier, draft, n)
        and (verifier, draft, n) != ("rrs", "without_replacement", 4)
    ],
)
def test_rates_of_long_rows_are_those_of_plans(verifier, draft, n):
    targets, drafted, _, laws = instances(draft, n, size=1500, repeats=1, seed=2)
    assert_rates_are_those_of_plans(targets, drafted, laws, mdsd.get_verifier(verifier), draft)


@pytest.mark.parametrize("n", [3, 20, 100])
@pytest.mark.parametrize("verifier", supporting(flat("with_replacement", 2)))
def test_many_drafts_with_replacement(verifier, n):
    """More drafts than tokens, and so many that products give way to logarithms."""
    targets, drafted, _, laws = instances("with_replacement", n, size=6, repeats=3)
    chosen = mdsd.get_verifier(verifier)
    assert_rates_are_those_of_plans(targets, drafted, laws, chosen, "with_replacement")


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "independent"])
@pytest.mark.parametrize("verifier", ["single", "naive", "rrs", "optimal"])
def test_vocabulary_of_one_token(verifier, draft):
    shape = (3, 1, 1) if draft == "independent" else (3, 1)
    found = acceptance_rates(
        np.ones((3, 1)), np.ones(shape), draft=draft, num_drafts=1, verifier=verifier
    )
    assert found.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("verifier", "draft", "n"), [pair for pair in PAIRS if pair[2] == 2])
def test_vectors_that_share_nothing(verifier, draft, n):
    q = [0.0, 0.0, 0.0, 0.5, 0.5]
    drafted = [[q] * n] if draft == "independent" else [q]
    found = acceptance_rates(
        [[0.5, 0.25, 0.25, 0.0, 0.0]], drafted, draft=draft, num_drafts=n, verifier=verifier
    )
    assert found.tolist() == [0.0]


@pytest.mark.parametrize(("verifier", "draft", "n"), [pair for pair in PAIRS if pair[2] == 2])
def test_small_rates_keep_their_digits(verifier, draft, n):
    if searches(verifier, draft, n) or (verifier, draft) == ("rrs", "without_replacement"):
        pytest.skip("found as 1 minus a rejection")
    shared = 1e-20
    p = np.array([shared, 0.0, 0.0, 0.5, 0.5])
    q = np.array([0.4, 0.3, 0.3, 0.0, 0.0])
    law = DRAFTS[draft]([q] * n if draft == "independent" else q, n)
    found = acceptance_rates([p], [law.draft_probs], draft=draft, num_drafts=n, verifier=verifier)[
        0
    ]
    expected = mdsd.get_verifier(verifier).plan(p, law).acceptance_rate
    assert 0.1 * shared < found <= 2 * shared
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float16", "float32"), ("float32", "float64")]
)
@pytest.mark.parametrize(
    ("verifier", "draft", "n"),
    [
        ("rrs", "without_replacement", 2),
        ("kseq", "with_replacement", 3),
        ("optimal", "with_replacement", 2),
        ("greedy", "greedy", 3),
        ("naive", "independent", 2),
    ],
)
def test_types_are_those_of_plans(verifier, draft, n, dtypes):
    rng = np.random.default_rng(0)
    shape = (7, n) if draft == "independent" else 7
    targets = rng.dirichlet(np.ones(30), size=7).astype(dtypes[0])
    drafted = rng.dirichlet(np.ones(30), size=shape).astype(dtypes[1])
    laws = [DRAFTS[draft](q, n) for q in drafted]
    assert_rates_are_those_of_plans(targets, drafted, laws, mdsd.get_verifier(verifier), draft)


@pytest.mark.parametrize(
    ("verifier", "draft", "n"),
    [
        ("single", "without_replacement", 1),
        ("naive_tree", "with_replacement", 3),
        ("naive", "without_replacement", 3),
        ("naive", "greedy", 3),
        ("rrs", "with_replacement", 3),
        ("rrs", "without_replacement", 2),
        ("kseq", "with_replacement", 3),
        ("greedy", "greedy", 3),
        ("spechub", "spechub", 2),
        ("optimal", "with_replacement", 3),
        ("optimal", "top_k", 3),
    ],
)
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_rates_at_positions_of_a_model(verifier, draft, n, temperature):
    data = mdsd.datasets.load("smollm2")
    logits = data.target_table[:12], data.draft_tables["drop2"][:12]
    targets, drafted = (mdsd.probs_from_logits(x, temperature=temperature) for x in logits)
    laws = [DRAFTS[draft](q, n) for q in drafted]
    found = assert_rates_are_those_of_plans(
        targets, drafted, laws, mdsd.get_verifier(verifier), draft
    )
    bounds = mdsd.acceptance_bounds(targets, drafted, draft=draft, num_drafts=n)
    assert (found <= bounds + 1e-12).all()


# --- estimates -----------------------------------------------------------------------------------


def positions(count, size=80, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(count, size))
    noisy = logits + rng.normal(size=logits.shape)
    return mdsd.probs_from_logits(logits), mdsd.probs_from_logits(noisy)


def rrs_rates(targets, drafted, *, n=3, paths=64, **options):
    return acceptance_rates(
        targets,
        drafted,
        draft="without_replacement",
        num_drafts=n,
        verifier=mdsd.RRSVerifier(monte_carlo_paths=paths),
        **options,
    )


@pytest.mark.parametrize("n", [3, 4])
def test_estimates_are_those_of_plans(n, monkeypatch):
    """Of the same seed and number of paths, where plans estimate, too."""
    monkeypatch.setattr("mdsd.verifiers._path_rrs._MAX_PATHS", 1)
    targets, drafted = positions(6)
    seeds = [0, 1, 2, 10**6, 2**63, 2**64 - 1]
    found = rrs_rates(targets, drafted, n=n, seeds=np.array(seeds, dtype=np.uint64))
    expected = [
        mdsd.RRSVerifier(monte_carlo_paths=64, seed=seed)
        .plan(p, mdsd.WithoutReplacement(q, n))
        .acceptance_rate
        for p, q, seed in zip(targets, drafted, seeds, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def errors_have_mean_zero(errors):
    """Test the mean of independent errors; those of normal ones fail 6 times in ten million."""
    return abs(errors.mean()) <= 5.0 * errors.std(ddof=1) / np.sqrt(len(errors))


def test_estimates_are_unbiased():
    targets, drafted = positions(5)
    exact = rrs_rates(targets, drafted, paths=FOLLOWED)
    repeats = 300
    rows = np.repeat(np.arange(5), repeats)
    found = rrs_rates(targets[rows], drafted[rows], seeds=np.arange(len(rows)))
    errors = (found - exact[rows]).reshape(5, repeats)
    for row in errors:
        assert errors_have_mean_zero(row)
        assert 1e-5 < row.std() < 0.02
    # A relative bias of one per cent would show.
    assert not errors_have_mean_zero(found[:repeats] - 0.99 * exact[0])
    more = rrs_rates(targets[rows], drafted[rows], paths=1024, seeds=np.arange(len(rows)))
    assert (more - exact[rows]).std() < 0.5 * errors.std()


def test_estimates_depend_on_their_own_seed_only():
    targets, drafted = positions(9)
    seeds = np.arange(9) + 5
    whole = rrs_rates(targets, drafted, seeds=seeds)
    turned = np.random.default_rng(1).permutation(9)
    again = rrs_rates(targets[turned], drafted[turned], seeds=seeds[turned])
    assert again.tolist() == whole[turned].tolist()
    for row in range(9):
        one = slice(row, row + 1)
        alone = rrs_rates(targets[one], drafted[one], seeds=seeds[one])
        assert alone[0] == whole[row]
    other = rrs_rates(targets, drafted, seeds=seeds + 1)
    assert (other != whole).all()


def test_the_seed_of_the_verifier_is_that_of_all_rows():
    targets, drafted = positions(4)
    verifier = mdsd.RRSVerifier(monte_carlo_paths=64, seed=2**64 + 7)
    call = {"draft": "without_replacement", "num_drafts": 3, "verifier": verifier}
    found = acceptance_rates(targets, drafted, **call)
    assert found.tolist() == rrs_rates(targets, drafted, seeds=[7] * 4).tolist()


def test_small_supports_are_exact():
    """Nine tokens of 80: 81 paths are followed instead of 100 sampled."""
    targets, drafted = positions(4)
    drafted = mdsd.filter_probs(drafted, top_k=9)
    found = rrs_rates(targets, drafted, paths=100, seeds=[0, 1, 2, 3])
    assert found.tolist() == rrs_rates(targets, drafted, paths=FOLLOWED).tolist()
    fewer = rrs_rates(targets, drafted, paths=50, seeds=[0, 1, 2, 3])
    assert fewer.tolist() != found.tolist()


def test_seeds_leave_exact_rates_alone():
    targets, drafted = positions(3)
    call = {"draft": "with_replacement", "num_drafts": 3, "verifier": "rrs"}
    found = acceptance_rates(targets, drafted, **call, seeds=[1, 2, 3])
    assert found.tolist() == acceptance_rates(targets, drafted, **call).tolist()


# --- verifiers -----------------------------------------------------------------------------------


class Stubborn(mdsd.RRSVerifier):
    """A subclass, which the kernel of its parent must not answer for."""

    name = "stubborn"

    def _plan(self, target_probs, draft):
        return super()._plan(np.roll(target_probs, 1), draft)


def test_own_verifiers_go_through_their_plans():
    targets, drafted = np.array([[0.5, 0.5, 0.0]]), np.array([[0.0, 0.2, 0.8]])
    found = acceptance_rates(targets, drafted, num_drafts=1, verifier=Stubborn())
    assert found[0] == pytest.approx(0.7, abs=1e-15)


def test_options_of_a_verifier_are_kept():
    targets, drafted, _, laws = instances("without_replacement", 2, size=8, repeats=1)
    early = mdsd.OptimalVerifier(max_iterations=1)
    call = {"draft": "without_replacement", "num_drafts": 2}
    found = acceptance_rates(targets[:1], drafted[:1], verifier=early, **call)
    assert found[0] == pytest.approx(early.plan(targets[0], laws[0]).acceptance_rate, abs=1e-14)
    assert found[0] < acceptance_rates(targets[:1], drafted[:1], verifier="optimal", **call)[0]


@pytest.mark.parametrize(
    ("verifier", "draft", "n", "words"),
    [
        ("greedy", "with_replacement", 2, ["greedy", "with_replacement"]),
        ("single", "with_replacement", 2, ["single", "num_drafts=2"]),
        ("kseq", "without_replacement", 2, ["kseq", "without_replacement"]),
        ("single", "with_replacement", 2**31 - 1, ["single", "num_drafts=2147483647"]),
    ],
)
def test_pairs_that_no_plan_supports(verifier, draft, n, words):
    with pytest.raises(mdsd.UnsupportedError) as caught:
        acceptance_rates([[0.5, 0.5]], [[0.5, 0.5]], draft=draft, num_drafts=n, verifier=verifier)
    for word in words:
        assert word in str(caught.value)


def test_rules_that_are_known_take_no_plan(monkeypatch):
    """Whatever runs in compiled code must not fall back unseen."""
    through_plans = {
        (verifier, draft, n)
        for verifier, draft, n in PAIRS
        if (draft == "independent" and n > 1)
        or searches(verifier, draft, n)
        or (verifier, draft, n) == ("optimal", "top_k", 1)
    }
    asked = []
    monkeypatch.setattr(acceptance, "_rates_of_plans", lambda *_: asked.append(pair) or np.zeros(1))
    for pair in PAIRS:
        verifier, draft, n = pair
        law = np.full((1, n, 8) if draft == "independent" else (1, 8), 0.125)
        acceptance_rates(np.full((1, 8), 0.125), law, draft=draft, num_drafts=n, verifier=verifier)
    assert set(asked) == through_plans


# --- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "n", "words"),
    [
        ("without_replacement", 2, ["draft_probs row 1 has 1 tokens", "num_drafts=2"]),
        ("top_k", 3, ["draft_probs row 0 has 2 tokens", "num_drafts=3"]),
    ],
)
def test_rows_with_too_few_tokens_are_named(draft, n, words):
    drafted = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        acceptance_rates(drafted, drafted, draft=draft, num_drafts=n, verifier="naive")
    for word in words:
        assert word in str(caught.value)


def test_numbers_that_do_not_agree():
    rows = [[0.5, 0.5]]
    with pytest.raises(mdsd.InvalidArgumentError, match=r"num_drafts is 2; .* has 1"):
        acceptance_rates(rows, [rows], draft="independent", num_drafts=2, verifier="rrs")
    with pytest.raises(mdsd.InvalidArgumentError, match="num_drafts is 3; the spechub draft has 2"):
        acceptance_rates(rows, rows, draft="spechub", num_drafts=3, verifier="spechub")


@pytest.mark.parametrize("draft", DRAFTS)
def test_no_rows(draft):
    shape = (0, 2, 5) if draft == "independent" else (0, 5)
    for verifier in ("naive", "optimal"):
        found = acceptance_rates(
            np.ones((0, 5)), np.ones(shape), draft=draft, num_drafts=2, verifier=verifier, seeds=[]
        )
        assert found.shape == (0,)
        assert found.dtype == np.float64


def test_no_copy_of_the_probabilities():
    targets = np.full((96, 20_000), 1 / 20_000)
    drafted = np.full((96, 20_000), 1 / 20_000)

    def call():
        for draft in ("with_replacement", "without_replacement"):
            acceptance_rates(targets, drafted, draft=draft, num_drafts=2, verifier="rrs")

    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * targets.nbytes
    assert (targets == 1 / 20_000).all()


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_the_number_of_threads_does_not_matter(monkeypatch, cores):
    targets, drafted = positions(30)
    seeds = np.arange(30)
    with limit_threads(1):
        expected = rrs_rates(targets, drafted, seeds=seeds)
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(_threads, "_available_cores", lambda: cores)
    assert rrs_rates(targets, drafted, seeds=seeds).tolist() == expected.tolist()


@pytest.mark.parametrize("device", ["CPU_DEVICE", "device1"])
@pytest.mark.parametrize("verifier", ["rrs", "optimal"])
def test_rates_of_tensors_are_where_they_are(device, verifier):
    targets, drafted = positions(4, size=12)
    place = xp.Device(device)
    call = {"draft": "without_replacement", "num_drafts": 3, "verifier": verifier}
    found = acceptance_rates(
        *(xp.asarray(x, device=place) for x in (targets, drafted)),
        **call,
        seeds=xp.asarray(np.arange(4), device=place),
    )
    assert found.device == place
    expected = acceptance_rates(targets, drafted, **call, seeds=np.arange(4))
    assert np.asarray(found.to_device(xp.Device("CPU_DEVICE"))).tolist() == expected.tolist()


def test_tensors_on_two_devices_are_refused():
    rows = np.array([[0.5, 0.5]])
    far = xp.asarray(rows, device=xp.Device("device1"))
    with pytest.raises(mdsd.InvalidDistributionError, match="draft_probs is on"):
        acceptance_rates(far, rows, num_drafts=1, verifier="single")


def test_rates_are_exported():
    assert mdsd.acceptance_rates is acceptance_rates


@pytest.mark.parametrize(("draft", "verifier"), [("greedy", "greedy"), ("top_k", "naive")])
@pytest.mark.parametrize("n", [256, 257, 300])
def test_many_top_tokens(draft, verifier, n):
    rng = np.random.default_rng(8)
    p = rng.dirichlet(np.ones(400))
    q = rng.integers(1, 9, 400) / 1.0  # with ties, which go to the lowest id
    q /= q.sum()
    plan = mdsd.get_verifier(verifier).plan(p, mdsd.drafts.read_kind(draft).make(q, n))
    found = acceptance_rates([p], [q], draft=draft, num_drafts=n, verifier=verifier)
    assert found[0] == pytest.approx(plan.acceptance_rate, rel=0, abs=1e-13)
