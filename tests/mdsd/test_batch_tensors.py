"""Batch calls on the arrays of another library, on devices that numpy cannot read.

`array_api_strict` has devices of that kind, and one without float64: whatever leaves the array API
standard, or the device, fails there.
"""

from __future__ import annotations

import array_api_strict as xp
import numpy as np
import pytest

import mdsd
from mdsd._random import draw_tokens, generator
from mdsd.batch import acceptance_bounds, verify_batch
from mdsd.batch._rules import rule_of
from mdsd.batch.tensors import arguments, bounds, emission, inputs, spaces, verification
from mdsd.batch.tensors.spaces import Space, is_tensor, to_host
from mdsd.drafts import default_kinds, read_kind
from mdsd.rules import accepting, kseq, possible, sums

from .batch_rows import DRAFTS, KINDS, LARGEST, instances, uniforms_of_every_kind
from .batch_spaces import RULES, laws_of, peaked_rows, plans_of

HOST, DEVICE, OTHER, NARROW = (
    xp.Device(name) for name in ("CPU_DEVICE", "device1", "device2", "no_float64")
)
FAR, SINGLE = Space(xp, DEVICE), Space(xp, NARROW)


def far(values, device=DEVICE):
    return xp.asarray(np.asarray(values), device=device)


def back(values):
    return np.asarray(xp.asarray(values).to_device(HOST))


@pytest.fixture
def nothing_leaves(monkeypatch):
    """Refuse the way to the host, and count how often it is told a single value."""
    asked = []
    array = type(xp.asarray(0.0))
    ask = array.__bool__

    def counting(self):
        asked.append(self)
        return ask(self)

    def refuse(self, *arguments, **options):
        raise AssertionError("copied to the host")

    monkeypatch.setattr(array, "__bool__", counting)
    for way in ("__array__", "__float__", "__int__", "__index__", "to_device", "__dlpack__"):
        monkeypatch.setattr(array, way, refuse)
    return asked


# --- laws ----------------------------------------------------------------------------------------


def run_tests(space, verifier, draft_object, p, q, ids):
    rule = rule_of(mdsd.get_verifier(verifier), draft_object)
    return verification.TESTS[rule](*map(space.send, (p, q, ids)))


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_laws_given_the_drafts_are_those_of_plans(verifier, draft, n):
    targets, drafted, ids, laws = instances(draft, n, size=9, repeats=30, seed=n)
    if verifier == "kseq":
        # Of equal vectors every rho near 1 is as good: see below.
        keep = np.array([kind != "equal" for kind in KINDS * 30])
        targets, drafted, ids = targets[keep], drafted[keep], ids[keep]
        laws = [law for law, kept in zip(laws, keep, strict=True) if kept]
    found = laws_of(run_tests(FAR, verifier, laws[0], targets, drafted, ids), back)
    plans = plans_of(verifier, targets, laws)
    expected = [plan.output_law(row) for plan, row in zip(plans, ids, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


SMALL = {
    "ordinary": ([0.5, 0.3, 0.2, 0.0], [0.1, 0.4, 0.2, 0.3]),
    "equal": ([0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]),
    "ties": ([0.25, 0.25, 0.25, 0.25], [0.375, 0.375, 0.125, 0.125]),
    "point target": ([0.0, 1.0, 0.0, 0.0], [0.3, 0.2, 0.25, 0.25]),
    "apart": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    "peaked draft": ([0.1, 0.2, 0.3, 0.4], [1.0 - 3e-12, 1e-12, 1e-12, 1e-12]),
    "peaked target": ([1.0 - 3e-12, 1e-12, 1e-12, 1e-12], [0.25, 0.25, 0.25, 0.25]),
    "subnormal": ([0.25, 0.25, 0.25, 0.25], [1.0, 5e-324, 5e-324, 0.0]),
    "one token": ([1.0], [1.0]),
}


def drawable(verifier, draft, n, q):
    """The number of drafts asked for, or where q has fewer tokens to draw one that it allows."""
    support = np.count_nonzero(q)
    if draft == "with_replacement" or support >= n:
        return n
    return 1 if verifier in ("single", "greedy", "optimal") else support


def marginal_law(verifier, name, n, p, q, space=FAR):
    """Law of the emitted token over all tuples of drafts; `verifier` may be of another draft."""
    law = DRAFTS[name](q, n)
    ids, probs = law.tuple_arrays()
    rows = [np.tile(np.asarray(x, dtype=float), (len(ids), 1)) for x in (p, q)]
    own = law if mdsd.get_verifier(verifier).supports(law) else mdsd.WithReplacement(q, n)
    with np.errstate(over="ignore"):
        tests = run_tests(space, verifier, own, *rows, ids)
    return probs @ laws_of(tests, back)


SMALL_CASES = [
    (*rule, kind)
    for rule in RULES
    for kind in SMALL
    if (rule[0], kind) != ("spechub", "one token")  # a pair takes two
]


@pytest.mark.parametrize(("verifier", "draft", "n", "kind"), SMALL_CASES)
def test_lossless_by_enumeration(verifier, draft, n, kind):
    p, q = SMALL[kind]
    n = drawable(verifier, draft, n, q)
    np.testing.assert_allclose(marginal_law(verifier, draft, n, p, q), p, rtol=0, atol=1e-12)


def test_another_draft_law_would_show():
    """The negative control: recursive rejection that forgets what was drawn before."""
    p, q = SMALL["ordinary"]
    wrong = marginal_law("kseq", "without_replacement", 2, p, q)
    assert np.abs(wrong - p).max() > 1e-3


@pytest.mark.parametrize("n", [2, 4, 16, 64])
def test_kseq_of_equal_vectors_accepts_everything(n):
    p = np.random.default_rng(n).dirichlet(np.ones(50), size=20)
    roots = back(kseq.kseq_root(far(p), far(p), n))
    np.testing.assert_allclose(roots, 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_kseq_roots_are_those_of_plans(n):
    targets, drafted, _, laws = instances("with_replacement", n, size=40, repeats=6, seed=n)
    keep = [kind not in ("equal", "apart") for kind in KINDS * 6]
    found = back(kseq.kseq_root(far(targets), far(drafted), n))[:, 0]
    plans = plans_of("kseq", targets, laws)
    for root, plan, kept in zip(found, plans, keep, strict=True):
        if kept and plan.acceptance_rate < 1.0 - 1e-9:
            assert root == pytest.approx(plan.rho, rel=1e-11)


# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_tokens_are_those_of_plans(nothing_leaves, monkeypatch, verifier, draft, n):
    targets, drafted, ids, laws = instances(draft, n, size=30, repeats=60, seed=10 + n)
    keep = [not (verifier == "kseq" and kind == "equal") for kind in KINDS * 60]
    plans = plans_of(verifier, targets, laws)
    count = plans[0].num_uniforms
    uniforms = np.random.default_rng(n).random((len(ids), count))
    arguments = [far(values) for values in (targets, drafted, ids)]
    found = verify_batch(*arguments, draft=draft, verifier=verifier, uniforms=far(uniforms))
    assert len(nothing_leaves) == 1
    monkeypatch.undo()
    for values in (found.token_ids, found.accept_index):
        assert values.device == DEVICE
        assert values.dtype == xp.int64
        assert values.shape == (len(ids),)
    tokens, index = back(found.token_ids), back(found.accept_index)
    for row in np.flatnonzero(keep):
        expected = plans[row].verify(ids[row], uniforms=uniforms[row])
        assert (tokens[row], index[row]) == (expected.token_id, expected.accept_index)


def test_rows_as_exact_as_their_type_stay_on_the_device(nothing_leaves):
    rows = xp.asarray([[0.50004, 0.5]], dtype=xp.float32, device=DEVICE)
    acceptance_bounds(rows, rows, num_drafts=2)
    assert len(nothing_leaves) == 1


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_uniforms_at_the_ends_of_their_range(verifier, draft, n):
    targets, drafted, ids, laws = instances(draft, n, size=9, repeats=6)
    rows, count = len(ids), mdsd.get_verifier(verifier).num_uniforms(laws[0])
    for uniforms in uniforms_of_every_kind(np.random.default_rng(1), (rows, count)):
        found = verify_batch(
            far(targets), far(drafted), far(ids), draft=draft, verifier=verifier, uniforms=uniforms
        )
        tokens, index = back(found.token_ids), back(found.accept_index)
        assert (targets[np.arange(rows), tokens] > 0.0).all()
        for token, place, drafts in zip(tokens, index, ids.tolist(), strict=True):
            assert place == (drafts.index(token) if token in drafts else -1)


def test_seeds_feed_the_verifying_stream():
    targets, drafted, ids, _ = instances("with_replacement", 2, size=10, repeats=20)
    call = {"draft": "with_replacement", "verifier": "rrs"}
    expected = verify_batch(targets, drafted, ids, **call, rng=7)
    for rng in (7, generator(7, "verify")):
        found = verify_batch(far(targets), far(drafted), ids, **call, rng=rng)
        assert back(found.token_ids).tolist() == expected.token_ids.tolist()
        assert back(found.accept_index).tolist() == expected.accept_index.tolist()


def test_a_batch_in_pieces_is_the_same(monkeypatch):
    targets, drafted, ids, _ = instances("without_replacement", 3, size=20, repeats=5)
    call = {"draft": "without_replacement", "verifier": "rrs", "rng": 3}
    arguments = far(targets), far(drafted), far(ids)
    whole = verify_batch(*arguments, **call), acceptance_bounds(*arguments[:2], num_drafts=3)
    for size in (1, 47, 10_000):
        monkeypatch.setattr(inputs, "_NUMBERS_AT_ONCE", size)
        found = verify_batch(*arguments, **call)
        assert back(found.token_ids).tolist() == back(whole[0].token_ids).tolist()
        pieces = acceptance_bounds(*arguments[:2], num_drafts=3)
        assert back(pieces).tolist() == back(whole[1]).tolist()


@pytest.mark.parametrize("size", [1, 5, 511, 512, 513, 3000])
def test_draws_are_those_of_running_sums(size):
    rng = np.random.default_rng(size)
    masses = rng.dirichlet(np.full(size, 0.1), size=40)
    masses[:, rng.random(size) < 0.3] = 0.0
    masses[:, rng.integers(size)] = 0.5
    for uniforms in (rng.random(40), np.zeros(40)):
        found = back(emission.draw(far(masses), far(uniforms[:, np.newaxis])))[:, 0]
        expected = [int(draw_tokens(row, u)) for row, u in zip(masses, uniforms, strict=True)]
        assert found.tolist() == expected
    last = back(emission.draw(far(masses), far(np.full((40, 1), LARGEST))))[:, 0]
    assert (masses[np.arange(40), last] > 0.0).all()


def test_draws_from_subnormal_masses_keep_their_shares():
    uniforms = (np.arange(300) + 0.5)[:, np.newaxis] / 300
    found = back(emission.draw(far(np.tile([1e-323, 0.0, 5e-324], (300, 1))), far(uniforms)))
    assert found[:, 0].tolist() == np.where(uniforms[:, 0] < 2.0 / 3.0, 0, 2).tolist()


def test_draws_are_from_half_open_buckets():
    masses = np.tile([0.25, 0.0, 0.25, 0.5, 0.0], (5, 1))
    uniforms = np.array([[0.0], [0.25], [0.5], [0.75], [LARGEST]])
    assert back(emission.draw(far(masses), far(uniforms)))[:, 0].tolist() == [0, 2, 3, 3, 3]


def test_a_token_without_mass_is_not_drawn_where_sums_fall():
    """Sums of blocks may round so that one ends above the next one's beginning."""
    rows, masses = far([[0.25, 0.3125, 0.25, 0.5]]), far([[0.25, 0.0, 0.0, 0.25]])
    assert back(emission._passed(rows, masses, far([[0.28]]))).tolist() == [[3]]


def test_chances():
    wanted, drafted = far([[0.0, 0.0, 0.25, 2.0, 1e-300]]), far([[0.0, 0.5, 0.5, 0.5, 0.0]])
    found = back(accepting.accept_probs(wanted, drafted))
    assert found.tolist() == [[0.0, 0.0, 0.5, 1.0, 1.0]]


@pytest.mark.parametrize("size", [1, 511, 512, 1300])
def test_running_sums(size):
    rows = np.random.default_rng(0).random((3, size))
    found = back(sums.running_sums(far(rows)))
    np.testing.assert_allclose(found, np.cumsum(rows, axis=1), rtol=1e-13)


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 4, 64])
@pytest.mark.parametrize("size", [9, 700])
def test_bounds_are_those_of_the_host(nothing_leaves, monkeypatch, size, n):
    targets, drafted, _, _ = instances("with_replacement", n, size=size, repeats=20, seed=n)
    arguments = far(targets), far(drafted)
    found = acceptance_bounds(*arguments, num_drafts=n)
    assert len(nothing_leaves) == 1
    monkeypatch.undo()
    assert found.device == DEVICE
    assert found.dtype == xp.float64
    expected = acceptance_bounds(targets, drafted, num_drafts=n)
    np.testing.assert_allclose(back(found), expected, rtol=0, atol=1e-12)
    assert back(found).max() <= 1.0


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_bounds_of_small_rows(kind, n):
    p, q = SMALL[kind]
    found = acceptance_bounds(far([p]), far([q]), num_drafts=n)
    expected = mdsd.acceptance_bound(p, mdsd.WithReplacement(q, n), method="lp").value
    assert back(found)[0] == pytest.approx(expected, rel=0, abs=1e-9)
    assert back(found)[0] == pytest.approx(
        acceptance_bounds([p], [q], num_drafts=n)[0], rel=0, abs=1e-15
    )


@pytest.mark.parametrize("n", [1, 3])
def test_bounds_near_0_keep_their_digits(n):
    p, q = np.array([[1.0 - 1e-20, 1e-20, 0.0]]), np.array([[1e-18, 0.5, 0.5]])
    found = back(acceptance_bounds(far(p), far(q), num_drafts=n))
    np.testing.assert_allclose(found, [n * 1e-18 + 1e-20], rtol=1e-12)


def test_bounds_at_full_vocabulary():
    rng = np.random.default_rng(0)
    p, q = peaked_rows(rng, 2, 150_000)
    flat = np.full((1, 150_000), 1.0 / 150_000)
    p, q = np.concatenate([p, flat]), np.concatenate([q, flat])
    for n in (1, 4):
        found = back(bounds.bounds_with_replacement(far(p), far(q), n))
        expected = acceptance_bounds(p, q, num_drafts=n)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


# --- what only the host does ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verifier", "draft", "n"),
    [
        (mdsd.OptimalVerifier(effort="exact"), "with_replacement", 2),
        (mdsd.OptimalVerifier(effort="exact"), "without_replacement", 2),
        ("rrs", "independent", 2),
        ("naive", "top_k", 2),
    ],
)
def test_other_rules_go_through_the_host_and_back(verifier, draft, n):
    targets, drafted, ids, _ = instances(draft, n, size=8, repeats=2)
    call = {"draft": draft, "verifier": verifier, "rng": 5}
    expected = verify_batch(targets, drafted, ids, **call)
    found = verify_batch(far(targets), far(drafted), far(ids), **call)
    assert found.token_ids.device == found.accept_index.device == DEVICE
    assert back(found.token_ids).tolist() == expected.token_ids.tolist()
    assert back(found.accept_index).tolist() == expected.accept_index.tolist()


@pytest.mark.parametrize("draft", ["without_replacement", "greedy", "top_k", "spechub"])
def test_other_bounds_go_through_the_host_and_back(draft):
    targets, drafted, _, _ = instances(draft, 2, size=8, repeats=2)
    found = acceptance_bounds(far(targets), far(drafted), draft=draft, num_drafts=2)
    assert found.device == DEVICE
    expected = acceptance_bounds(targets, drafted, draft=draft, num_drafts=2)
    assert back(found).tolist() == expected.tolist()


class Stubborn(mdsd.SingleDraftVerifier):
    """A subclass, which the rule of its parent must not answer for."""

    name = "stubborn"

    def _plan(self, target_probs, draft):
        return super()._plan(np.roll(target_probs, 1), draft)


def test_own_verifiers_go_through_their_plans():
    found = verify_batch(
        far(np.eye(3)),
        far(np.full((3, 3), 1 / 3)),
        far(np.zeros((3, 1), dtype=int)),
        draft="with_replacement",
        verifier=Stubborn(),
    )
    assert back(found.token_ids).tolist() == [1, 2, 0]


def test_arrays_on_the_host_go_through_compiled_code(monkeypatch):
    targets, drafted, ids, _ = instances("without_replacement", 2, size=8, repeats=3)
    call = {"draft": "without_replacement", "verifier": "rrs", "rng": 5}
    expected = verify_batch(targets, drafted, ids, **call)
    monkeypatch.setattr(verification, "verify_on_device", None)
    found = verify_batch(*(far(x, HOST) for x in (targets, drafted, ids)), **call)
    assert found.token_ids.device == HOST
    assert np.asarray(found.token_ids).tolist() == expected.token_ids.tolist()
    limits = acceptance_bounds(far(targets, HOST), drafted, num_drafts=2)
    assert limits.device == HOST
    assert np.asarray(limits).tolist() == acceptance_bounds(targets, drafted, num_drafts=2).tolist()


def test_the_host_has_the_last_word_on_a_row(monkeypatch):
    """Where rounding refuses a row on the device that is good on the host, the host answers."""
    targets, drafted, ids, _ = instances("with_replacement", 2, size=8, repeats=3)
    call = {"draft": "with_replacement", "verifier": "rrs", "rng": 5}
    expected = verify_batch(targets, drafted, ids, **call)
    monkeypatch.setattr(inputs, "MASS_TOLERANCE", {"float64": -1.0})
    found = verify_batch(far(targets), far(drafted), far(ids), **call)
    assert back(found.token_ids).tolist() == expected.token_ids.tolist()
    assert found.token_ids.device == DEVICE


# --- bad input -----------------------------------------------------------------------------------

GOOD = np.tile([0.5, 0.3, 0.2], (3, 1))
IDS = np.tile([0, 1], (3, 1))
NAN, INF = float("nan"), float("inf")


def replaced(values, row, new):
    changed = np.array(values)
    changed[row] = new
    return changed


BAD = {
    "nan": {"target_probs": replaced(GOOD, 2, [0.5, NAN, 0.5])},
    "inf": {"draft_probs": replaced(GOOD, 1, [0.5, 0.5, INF])},
    "negative": {"draft_probs": replaced(GOOD, 1, [0.6, -0.1, 0.5])},
    "barely negative": {"target_probs": replaced(GOOD, 1, [0.5, 0.5, -1e-300])},
    "mass": {"target_probs": replaced(GOOD, 0, [0.5, 0.2, 0.2])},
    "zeros": {"target_probs": replaced(GOOD, 0, 0.0)},
    "mass of float32": {"target_probs": replaced(GOOD.astype(np.float32), 1, [0.5, 0.3, 0.2002])},
    "complex": {"target_probs": GOOD + 0j},
    "bool": {"draft_probs": GOOD > 0.25},
    "axes": {"target_probs": GOOD[0]},
    "empty": {"target_probs": np.ones((3, 0))},
    "rows": {"draft_probs": GOOD[:2]},
    "tokens": {"draft_probs": np.full((3, 2), 0.5)},
    "id too large": {"draft_token_ids": replaced(IDS, 1, [0, 3])},
    "id negative": {"draft_token_ids": replaced(IDS, 2, [-1, 0])},
    "ids of float": {"draft_token_ids": IDS + 0.0},
    "ids of bool": {"draft_token_ids": IDS > 0},
    "ids of one axis": {"draft_token_ids": IDS[0]},
    "no ids": {"draft_token_ids": IDS[:, :0]},
    "rows of ids": {"draft_token_ids": IDS[:2]},
    "impossible": {"draft_probs": replaced(GOOD, 1, [0.5, 0.0, 0.5])},
    "uniform of 1": {"uniforms": replaced(np.full((3, 3), 0.5), 1, [0.5, 1.0, 0.5])},
    "uniform of nan": {"uniforms": replaced(np.full((3, 3), 0.5), 1, NAN)},
    "uniforms of another shape": {"uniforms": np.full((3, 2), 0.5)},
    "uniforms of bool": {"uniforms": np.full((3, 3), False)},
    "uniforms and rng": {"uniforms": np.full((3, 3), 0.5), "rng": 1},
    "rng": {"rng": -1},
    "draft": {"draft": "with_replacment"},
    "verifier": {"verifier": "rss"},
    "unsupported": {"verifier": "greedy"},
}


def refusal(call, arguments):
    with pytest.raises(mdsd.MdsdError) as caught:
        call(**arguments)
    return type(caught.value), str(caught.value)


def arguments_of(**changes):
    base = {
        "target_probs": GOOD,
        "draft_probs": GOOD,
        "draft_token_ids": IDS,
        "draft": "with_replacement",
        "verifier": "rrs",
    }
    return {**base, **changes}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments_are_named_as_on_the_host(kind):
    arguments = arguments_of(**BAD[kind])
    moved = {
        name: far(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    error, message = refusal(verify_batch, arguments)
    found, words = refusal(verify_batch, moved)
    assert found is error
    assert words.replace("array_api_strict.", "") == message


BAD_PROBS = [kind for kind in BAD if "_probs" in "".join(BAD[kind]) and kind != "impossible"]


@pytest.mark.parametrize("kind", BAD_PROBS)
def test_bounds_name_bad_rows_as_on_the_host(kind):
    arguments = {"target_probs": GOOD, "draft_probs": GOOD, "num_drafts": 2, **BAD[kind]}
    moved = {
        **arguments,
        **{name: far(arguments[name]) for name in ("target_probs", "draft_probs")},
    }
    assert refusal(acceptance_bounds, moved) == refusal(acceptance_bounds, arguments)


@pytest.mark.parametrize(
    ("draft", "ids"),
    [
        ("without_replacement", [0, 0]),
        ("without_replacement", [0, 2]),
        ("greedy", [0, 1]),
        ("greedy", [1, 1]),
        ("greedy", [1, 2]),
    ],
)
def test_impossible_tuples_are_named(draft, ids):
    q = np.tile([0.3, 0.5, 0.0, 0.2], (3, 1))
    drafts = replaced(np.tile([1, 0], (3, 1)), 1, ids)
    with pytest.raises(mdsd.InvalidTokenError, match="draft_token_ids row 1") as caught:
        verify_batch(far(q), far(q), far(drafts), draft=draft, verifier="naive", rng=0)
    assert str(ids) in str(caught.value)


@pytest.mark.parametrize(
    "draft", [each.name for each in default_kinds() if not each.one_model_each]
)
def test_what_is_possible_is_what_a_draft_says(draft):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3):
        _, drafted, _, laws = instances(draft, n, size=6, repeats=4)
        for row, law in enumerate(laws):
            read = inputs.read_probs(FAR, far(drafted[row : row + 1]))
            for _ in range(8):
                ids = law.sample(rng)[np.newaxis]
                if rng.random() < 0.5:
                    ids = rng.integers(0, 6, ids.shape)
                expected = bool(law.is_possible(ids)[0])
                assert bool(arguments._possible(read, far(ids), read_kind(draft))) == expected


def test_tops_that_a_division_may_make_equal():
    """Neighbouring numbers stand in any order; those further apart, and equal ones, do not."""
    near = np.nextafter(0.3, 1.0)
    for row, tops, fair in (
        ([0.3, near, 0.4 - (near - 0.3)], [2, 0], True),
        ([0.3, near, 0.4 - (near - 0.3)], [2, 1], True),
        ([0.3, near, 0.4 - (near - 0.3)], [2, 0, 1], True),
        ([0.3, 0.3, 0.4], [2, 1], False),
        ([0.3, 0.3 + 1e-12, 0.4], [2, 0, 1], False),
        ([0.3, 0.3 + 1e-12, 0.4], [2, 0], False),
    ):
        assert (
            bool(possible.tops_match(far([row]), far([tops]), slack=4.0 * FAR.epsilon)[0]) == fair
        )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"draft_probs": GOOD}, mdsd.InvalidDistributionError, ["draft_probs is on the host"]),
        (
            {"draft_probs": far(GOOD, OTHER)},
            mdsd.InvalidDistributionError,
            ["draft_probs", "device2", "target_probs", "device1"],
        ),
        (
            {"target_probs": GOOD},
            mdsd.InvalidDistributionError,
            ["draft_probs", "device1", "target_probs is on the host"],
        ),
        (
            {"draft_token_ids": far(IDS, OTHER)},
            mdsd.InvalidTokenError,
            ["draft_token_ids", "device2", "device1"],
        ),
        (
            {"uniforms": far(np.full((3, 3), 0.5), OTHER)},
            mdsd.InvalidArgumentError,
            ["uniforms", "device2", "device1"],
        ),
    ],
)
def test_one_device_for_all(change, error, words):
    arguments = arguments_of(target_probs=far(GOOD), draft_probs=far(GOOD))
    with pytest.raises(error) as caught:
        verify_batch(**{**arguments, **change})
    for word in words:
        assert word in str(caught.value)


def test_no_rows():
    none = far(np.ones((0, 5)))
    found = verify_batch(
        none, none, far(IDS[:0]), draft="without_replacement", verifier="rrs", rng=0
    )
    assert found.token_ids.shape == found.accept_index.shape == (0,)
    assert found.token_ids.dtype == xp.int64
    assert acceptance_bounds(none, none, num_drafts=2).shape == (0,)


def test_arguments_stay_as_they_are():
    targets, drafted, ids, _ = instances("greedy", 3, size=8, repeats=2)
    arguments = [far(values) for values in (targets, drafted, ids)]
    uniforms = np.full((len(ids), 2), 0.5)
    uniforms.setflags(write=False)
    verify_batch(*arguments, draft="greedy", verifier="greedy", uniforms=uniforms)
    acceptance_bounds(*arguments[:2], num_drafts=3)
    for given, values in zip(arguments, (targets, drafted, ids), strict=True):
        assert (back(given) == values).all()


def test_ids_of_any_integer_type():
    targets, drafted, ids, _ = instances("without_replacement", 2, size=8, repeats=2)
    call = {"draft": "without_replacement", "verifier": "rrs", "rng": 5}
    expected = verify_batch(targets, drafted, ids, **call).token_ids.tolist()
    for kind in (np.int32, np.uint8, np.int64):
        found = verify_batch(far(targets), far(drafted), far(ids.astype(kind)), **call)
        assert back(found.token_ids).tolist() == expected
    assert (
        back(verify_batch(far(targets), far(drafted), ids.tolist(), **call).token_ids).tolist()
        == expected
    )


def test_counts_are_probabilities_too():
    found = acceptance_bounds(far([[0, 1]]), far(np.array([[1, 0]], dtype=np.uint8)), num_drafts=1)
    assert back(found).tolist() == [0.0]


# --- a device without float64 --------------------------------------------------------------------


def narrow(values):
    values = np.asarray(values)
    return far(values.astype(np.float32) if values.dtype.kind == "f" else values, NARROW)


@pytest.mark.parametrize("kind", ["peaked", "flat"])
@pytest.mark.parametrize("n", [1, 4])
def test_bounds_in_float32(kind, n):
    p, q = peaked_rows(np.random.default_rng(n), 2, 150_000)
    if kind == "flat":
        p = q = np.full((1, 150_000), 1.0 / 150_000)
    found = acceptance_bounds(narrow(p), narrow(q), num_drafts=n)
    assert found.dtype == xp.float32
    np.testing.assert_allclose(
        back(found), acceptance_bounds(p, q, num_drafts=n), rtol=0, atol=2e-5
    )


@pytest.mark.parametrize(("verifier", "draft", "n", "kind"), SMALL_CASES)
def test_laws_in_float32(verifier, draft, n, kind):
    p, q = SMALL[kind]
    if kind == "subnormal":
        q = [1.0, 1e-45, 1e-45, 0.0]
    n = drawable(verifier, draft, n, q)
    law = marginal_law(verifier, draft, n, p, q, SINGLE)
    np.testing.assert_allclose(law, p, rtol=0, atol=1e-5)


def test_tokens_in_float32():
    """Nearly all rows emit what their plans emit; a uniform that rounds to 1 counts as below 1."""
    targets, drafted, ids, _ = instances("without_replacement", 3, size=30, repeats=60)
    targets, drafted = targets.astype(np.float32), drafted.astype(np.float32)
    call = {"draft": "without_replacement", "verifier": "rrs"}
    expected = verify_batch(targets, drafted, ids, **call, rng=1)
    found = verify_batch(narrow(targets), narrow(drafted), narrow(ids), **call, rng=1)
    assert found.token_ids.device == NARROW
    assert (back(found.token_ids) != expected.token_ids).mean() < 0.01
    ends = np.full((len(ids), 4), LARGEST)
    found = verify_batch(narrow(targets), narrow(drafted), narrow(ids), **call, uniforms=ends)
    assert (targets[np.arange(len(ids)), back(found.token_ids)] > 0.0).all()
    # A draft that is accepted for certain is accepted at every uniform.
    found = verify_batch(narrow(drafted), narrow(drafted), narrow(ids), **call, uniforms=ends)
    assert (back(found.accept_index) == 0).all()


# --- kinds of arrays -----------------------------------------------------------------------------


def test_what_is_a_tensor():
    assert is_tensor(far(GOOD))
    assert is_tensor(far(GOOD, HOST))
    for value in (GOOD, GOOD[0, 0], GOOD.tolist(), None, "ids", 1.0, np.ma.array(GOOD)):
        assert not is_tensor(value)
        assert to_host(value) is value


class Exporting:
    """Exports memory, but is no array: such as the columns of a data frame."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __dlpack_device__(self):
        return (1, 0)


def test_what_only_exports_its_memory_is_read_by_numpy():
    assert not is_tensor(Exporting(GOOD))
    found = acceptance_bounds(Exporting(GOOD), Exporting(GOOD), num_drafts=1)
    assert isinstance(found, np.ndarray)


def test_devices_of_the_host_are_known_by_name():
    assert all(map(spaces._is_host, ("cpu", "cpu:0", HOST, "TFRT_CPU_0")))
    assert not any(map(spaces._is_host, ("cuda:0", "mps:0", "xpu:0", DEVICE, "<CUDA Device 0>")))


def test_where_an_argument_lives_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(spaces, "is_tensor", lambda values: asked.append(id(values)))
    rows, ids = np.full((2, 3), 1 / 3), np.zeros((2, 2), np.int64)
    uniforms = np.full((2, 3), 0.5)
    mdsd.verify_batch(rows, rows, ids, draft="with_replacement", verifier="rrs", uniforms=uniforms)
    assert len(asked) == 4
    assert len(set(asked)) == 3  # target and draft are one array here
