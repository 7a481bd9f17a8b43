"""Optimal verification of tensors on a device: sums there, the search on the host, draws there."""

from __future__ import annotations

import array_api_strict as xp
import numpy as np
import pytest

import mdsd
from mdsd import OptimalVerifier
from mdsd._random import generator
from mdsd._solvers.group_selection import selection_probs
from mdsd._solvers.marks import couple_tokens, smallest_mark_probs
from mdsd._solvers.ratio_groups import NUM_BUCKETS, bucket_edges, bucket_of
from mdsd._solvers.token_lottery import FAST, minimum_norm_orders
from mdsd.batch import verify_batch
from mdsd.batch.tensors import arguments, buckets, inputs, methods, selections, spaces
from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import law_of_row
from mdsd.drafts import read_kind
from mdsd.verifiers.marks import FAST_GAP

from .batch_rows import DRAFTS, KINDS, instances, uniforms_of_every_kind
from .batch_spaces import peaked_rows

HOST, DEVICE, NARROW = (xp.Device(name) for name in ("CPU_DEVICE", "device1", "no_float64"))
FAST_VERIFIER = OptimalVerifier(effort="fast")
DRAFT_KINDS = ("with_replacement", "without_replacement")
CASES = [(draft, n) for draft in DRAFT_KINDS for n in (2, 4)]


def far(values, device=DEVICE):
    values = np.asarray(values)
    if device == NARROW and values.dtype == np.float64:
        values = values.astype(np.float32)
    return xp.asarray(values, device=device)


def back(values):
    return np.asarray(values.to_device(HOST))


@pytest.fixture
def transfers(monkeypatch):
    """Refuse every way to the host but one, and count how often that is taken."""
    taken = []
    array = type(xp.asarray(0.0))
    move = array.to_device

    def counting(self, device, /, **options):
        assert device == HOST
        taken.append(self)
        return move(self, device, **options)

    def guarded(way):
        original = getattr(array, way)

        def refuse(self, *arguments, **options):
            if self.device == HOST:
                return original(self, *arguments, **options)
            raise AssertionError(f"the host asked by {way}")

        return refuse

    for way in ("__bool__", "__array__", "__float__", "__int__", "__index__", "__dlpack__"):
        monkeypatch.setattr(array, way, guarded(way))
    monkeypatch.setattr(array, "to_device", counting)
    return taken


def surveyed(draft, p, q, ids, *, device=DEVICE, uniforms=None, verifier=FAST_VERIFIER):
    """What the device tells the host of a batch, and what the host answers."""
    law = DRAFTS[draft](q[0], ids.shape[1])
    method = methods.method_of(verifier, law)
    batch = arguments.read_arguments(
        spaces.Located.of(far(p, device)),
        far(q, device),
        far(ids, device),
        kind=read_kind(draft),
        num_uniforms=verifier.num_uniforms(law),
        rng=None,
        uniforms=spaces.Located.of(None),
    )
    if uniforms is None:
        uniforms = np.full((len(ids), batch.num_uniforms), 0.5)
    listing, packet = selections.survey(batch, method)
    received = batch.space.receive(packet)
    rows, _ = selections.unpack(received, batch, method, listing.ids.shape[1])
    selected = selections.select(rows, method, uniforms)
    residual = selections.residual_masses(batch, listing, selected, np.arange(len(ids)))
    return rows, selected, back(residual), back(listing.ids)


# --- tokens and laws are those of fast plans -----------------------------------------------------


def plans_of(targets, laws):
    return [FAST_VERIFIER.plan(p, law) for p, law in zip(targets, laws, strict=True)]


@pytest.mark.parametrize("size", [30, 900])
@pytest.mark.parametrize(("draft", "n"), CASES)
def test_tokens_are_those_of_fast_plans(transfers, monkeypatch, draft, n, size):
    targets, drafted, ids, laws = instances(draft, n, size=size, repeats=4, seed=n)
    # Where target and draft agree, every order of the tokens is as good.
    keep = [draft == "with_replacement" or kind != "equal" for kind in KINDS * 4]
    plans = plans_of(targets, laws)
    arguments = [far(values) for values in (targets, drafted, ids)]
    rng, shape = np.random.default_rng(n), (len(ids), plans[0].num_uniforms)
    numbers = [rng.random(shape), 1.0 - 0.3 * rng.random(shape) ** 2]
    found = [
        verify_batch(*arguments, draft=draft, verifier="optimal", uniforms=far(uniforms))
        for uniforms in numbers
    ]
    assert len(transfers) == len(numbers)
    monkeypatch.undo()
    for uniforms, verified in zip(numbers, found, strict=True):
        assert verified.token_ids.device == verified.accept_index.device == DEVICE
        assert verified.token_ids.dtype == verified.accept_index.dtype == xp.int64
        tokens, index = back(verified.token_ids), back(verified.accept_index)
        for row in np.flatnonzero(keep):
            expected = plans[row].verify(ids[row], uniforms=uniforms[row])
            assert (tokens[row], index[row]) == (expected.token_id, expected.accept_index)


@pytest.mark.parametrize(("draft", "n"), CASES)
def test_uniforms_at_the_ends_of_their_range(draft, n):
    targets, drafted, ids, laws = instances(draft, n, size=700, repeats=1)
    shape = len(ids), FAST_VERIFIER.num_uniforms(laws[0])
    for uniforms in uniforms_of_every_kind(np.random.default_rng(1), shape):
        found = verify_batch(
            far(targets), far(drafted), far(ids), draft=draft, verifier="optimal", uniforms=uniforms
        )
        tokens, index = back(found.token_ids), back(found.accept_index)
        assert (targets[np.arange(len(ids)), tokens] > 0.0).all()
        for token, place, drafts in zip(tokens, index, ids.tolist(), strict=True):
            assert place == (drafts.index(token) if token in drafts else -1)


def large_rows(size):
    """Ordinary rows, a flat draft, and a target with zeros: more tokens than are listed."""
    p, q = peaked_rows(np.random.default_rng(size), 4, size)
    q[1] = 1.0 / size
    p[2, ::3] = 0.0
    q[3, ::2] = 0.0
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


def filtered_rows(size):
    """Rows of which few tokens can be drawn, as a filter leaves them."""
    p, q = peaked_rows(np.random.default_rng(size), 4, size)
    for row, live in enumerate((20, 60, 100, 600)):
        q[row, np.argsort(-q[row])[live:]] = 0.0
        p[row, np.argsort(-p[row])[live:]] = 0.0
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


EXACTLY = [
    *((draft, n, *place) for draft, n in CASES for place in ((DEVICE, 1e-12), (NARROW, 1e-5))),
    # In float32 a search to the last digit ends elsewhere, which is as good.
    ("without_replacement", 8, DEVICE, 1e-12),
]


@pytest.mark.parametrize(
    ("make_rows", "size"), [(large_rows, 700), (large_rows, 6000), (filtered_rows, 6000)]
)
@pytest.mark.parametrize(("draft", "n", "device", "tolerance"), EXACTLY)
def test_laws_are_those_of_fast_plans(draft, n, make_rows, size, device, tolerance):
    p, q = make_rows(size)
    laws = [DRAFTS[draft](row, n) for row in q]
    rng = np.random.default_rng(n)
    ids = np.array([law.sample(rng) for law in laws])
    uniforms = rng.random((4, FAST_VERIFIER.num_uniforms(laws[0])))
    _, selected, residual, _ = surveyed(draft, p, q, ids, device=device, uniforms=uniforms)
    for row, plan in enumerate(plans_of(p, laws)):
        rejected = 1.0 - plan.acceptance_rate
        left = rejected * residual[row] / residual[row].sum()
        expected = rejected * plan.residual / plan.residual.sum()
        np.testing.assert_allclose(left, expected, rtol=0, atol=tolerance)
        token = plan._select(ids[row : row + 1], uniforms[row : row + 1, :-2])
        assert token[0] == ids[row, selected.places[row]]
        assert selected.chances[row] == pytest.approx(plan._chances_of(token)[0], abs=tolerance)


# --- exact losslessness --------------------------------------------------------------------------

SMALL = {
    "ordinary": ([0.5, 0.3, 0.2, 0.0], [0.1, 0.4, 0.2, 0.3]),
    "equal": ([0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]),
    "ties": ([0.25, 0.25, 0.25, 0.25], [0.375, 0.375, 0.125, 0.125]),
    "point target": ([0.0, 1.0, 0.0, 0.0], [0.3, 0.2, 0.25, 0.25]),
    "apart": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]),
    "peaked draft": ([0.1, 0.2, 0.3, 0.4], [1.0 - 3e-12, 1e-12, 1e-12, 1e-12]),
    "peaked target": ([1.0 - 3e-12, 1e-12, 1e-12, 1e-12], [0.25, 0.25, 0.25, 0.25]),
}


def marginal_law(draft, n, p, q, device=DEVICE, *, as_if=None):
    """Law of the emitted token over all tuples, with what the device and the host have found."""
    ids, probs = DRAFTS[draft](np.asarray(q), n).tuple_arrays()
    sides = [np.tile(np.asarray(x, dtype=float), (len(ids), 1)) for x in (p, q)]
    rows, selected, residual, listed = surveyed(as_if or draft, *sides, ids, device=device)
    law = np.zeros(len(p))
    for row, (drafts, prob) in enumerate(zip(ids, probs, strict=True)):
        live = np.flatnonzero(rows.masses[row])
        groups = np.searchsorted(live, rows.draft_places[row])[np.newaxis]
        if (as_if or draft) == "with_replacement":
            coupling = couple_tokens(rows.targets[row][live], rows.masses[row][live], n).coupling
            shares = smallest_mark_probs(coupling, groups)[0]
        else:
            grouped = law_of_row(rows, row, FAST.groups, FAST.groups)
            lottery = minimum_norm_orders(grouped, FAST_VERIFIER.tolerance, None)
            shares = selection_probs(lottery.orders, lottery.weights, groups)[0]
        kept = rows.masses[row] * selected.own[row]
        chances = np.ones(len(p))
        chances[listed[row]] = np.minimum(1.0, rows.targets[row] / np.maximum(kept, 1e-300))
        accepted = np.bincount(drafts, shares * chances[drafts], minlength=len(p))
        left = residual[row] / residual[row].sum()
        law += prob * (accepted + max(0.0, 1.0 - accepted.sum()) * left)
    return law


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize(("draft", "n"), [(draft, n) for draft in DRAFT_KINDS for n in (2, 3)])
def test_lossless_by_enumeration(draft, n, kind):
    p, q = SMALL[kind]
    if draft == "without_replacement":
        n = min(n, np.count_nonzero(q))
    np.testing.assert_allclose(marginal_law(draft, n, p, q), p, rtol=0, atol=1e-12)
    found = marginal_law(draft, n, p, q, NARROW)
    np.testing.assert_allclose(found, p, rtol=0, atol=1e-5)


def test_another_draft_law_would_show():
    """The negative control: marks for drafts without replacement."""
    p, q = SMALL["ordinary"]
    wrong = marginal_law("without_replacement", 2, p, q, as_if="with_replacement")
    assert np.abs(wrong - p).max() > 1e-3


# --- sums by bucket ------------------------------------------------------------------------------


def test_edges_are_those_of_buckets():
    edges = bucket_edges()
    below = np.nextafter(edges, 0.0)
    assert [bucket_of(edge, 1.0) for edge in edges] == list(range(1, NUM_BUCKETS))
    assert [bucket_of(edge, 1.0) for edge in below] == list(range(NUM_BUCKETS - 1))
    assert (edges.astype(np.float32) == edges).all()


def test_keys_are_those_of_the_host():
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.full(400, 0.03), size=3) for _ in range(2))
    p[0, :50] = q[0, :50] * bucket_edges()[100:150]
    p[:, 60:70], q[:, 70:80] = 0.0, 5e-324
    found = back(buckets.ratio_keys(far(p), far(q)))
    for row, token in zip(*np.nonzero(q), strict=True):
        assert found[row, token] == bucket_of(p[row, token], q[row, token])


def scatter_add(zeros, axis, keys, values):
    """What torch calls so, for arrays of one axis."""
    assert axis == 0
    sums = zeros._array.copy()
    np.add.at(sums, keys._array, values._array)
    return xp.asarray(sums, device=values.device)


def scatter_reduce(zeros, axis, keys, values, reduce):
    assert (axis, reduce) == (0, "amax")
    largest = zeros._array.copy()
    np.maximum.at(largest, keys._array, values._array)
    return xp.asarray(largest, device=values.device)


def topk(values, count, dim):
    assert dim == -1
    places = np.argsort(-values._array, axis=-1, kind="stable")[:, :count]
    return None, xp.asarray(places, device=values.device)


def with_scatter(monkeypatch):
    """Let the library have what torch has beyond the standard."""
    for function in (scatter_add, scatter_reduce, topk):
        monkeypatch.setattr(xp, function.__name__, function, raising=False)


@pytest.mark.parametrize("size", [1, 2, 333])
def test_both_ways_to_sum_by_bucket(monkeypatch, size):
    rng = np.random.default_rng(size)
    keys = far(rng.integers(0, NUM_BUCKETS, (3, size)) // 40 * 40)
    masses = far(rng.random((3, size)) ** 40)
    slow = buckets.BucketSums(keys)
    found = back(slow.sums(masses)), back(slow.largest(masses))
    with_scatter(monkeypatch)
    quick = buckets.BucketSums(keys)
    # Relative, however small the sums are.
    np.testing.assert_allclose(found[0], back(quick.sums(masses)), rtol=1e-14, atol=0)
    assert (found[1] == back(quick.largest(masses))).all()


@pytest.mark.parametrize(("draft", "n"), CASES)
def test_libraries_that_scatter_give_the_same(monkeypatch, draft, n):
    p, q = large_rows(5000)
    rng = np.random.default_rng(0)
    ids = np.array([DRAFTS[draft](row, n).sample(rng) for row in q])
    call = {"draft": draft, "verifier": "optimal", "rng": 1}
    expected = back(verify_batch(far(p), far(q), far(ids), **call).token_ids)
    with_scatter(monkeypatch)
    found = back(verify_batch(far(p), far(q), far(ids), **call).token_ids)
    assert found.tolist() == expected.tolist()


def test_lookup_of_what_is_listed():
    table, keys = far([[10.0, 20.0], [30.0, 40.0]]), far([[0, 1, 1], [1, 0, 0]])
    found = buckets.lookup(table, keys, far([[0, 2], [1, 2]]), far([[-1.0, 5.0], [6.0, 0.0]]))
    assert back(found).tolist() == [[10.0, 20.0, 5.0], [40.0, 6.0, 0.0]]
    none = buckets.lookup(table, keys, far(np.empty((2, 0), dtype=int)), far(np.empty((2, 0))))
    assert back(none).tolist() == [[10.0, 20.0, 20.0], [40.0, 30.0, 30.0]]


# --- the call ------------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", DRAFT_KINDS)
def test_a_batch_in_pieces_is_the_same(monkeypatch, draft):
    targets, drafted, ids, _ = instances(draft, 3, size=20, repeats=3)
    call = {"draft": draft, "verifier": FAST_VERIFIER, "rng": 3}
    whole = verify_batch(far(targets), far(drafted), far(ids), **call)
    for size in (1, 47):
        monkeypatch.setattr(inputs, "_NUMBERS_AT_ONCE", size)
        found = verify_batch(far(targets), far(drafted), far(ids), **call)
        assert back(found.token_ids).tolist() == back(whole.token_ids).tolist()


@pytest.mark.parametrize("draft", DRAFT_KINDS)
def test_seeds_feed_the_verifying_stream(transfers, monkeypatch, draft):
    targets, drafted, ids, laws = instances(draft, 2, size=10, repeats=3)
    call = {"draft": draft, "verifier": "optimal"}
    arguments = far(targets), far(drafted), ids
    shape = len(ids), FAST_VERIFIER.num_uniforms(laws[0])
    numbers = generator(7, "verify").random(shape)
    found = [
        verify_batch(*arguments, **call, **source)
        for source in ({"rng": 7}, {"rng": generator(7, "verify")}, {"uniforms": numbers})
    ]
    assert len(transfers) == 3
    monkeypatch.undo()
    tokens = [back(each.token_ids).tolist() for each in found]
    assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.parametrize("draft", DRAFT_KINDS)
def test_a_narrow_device(draft):
    targets, drafted, ids, laws = instances(draft, 2, size=600, repeats=2, seed=3)
    plans = plans_of(targets, laws)
    uniforms = np.random.default_rng(0).random((len(ids), plans[0].num_uniforms))
    found = verify_batch(
        *(far(x, NARROW) for x in (targets, drafted, ids)),
        draft=draft,
        verifier="optimal",
        uniforms=uniforms,
    )
    tokens = back(found.token_ids)
    assert found.token_ids.device == NARROW
    assert (targets[np.arange(len(ids)), tokens] > 0.0).all()
    keep = [kind not in ("equal", "ties") for kind in KINDS * 2]
    same = [
        token == plan.verify(row, uniforms=own).token_id
        for token, plan, row, own in zip(tokens, plans, ids, uniforms, strict=True)
    ]
    assert np.mean(np.array(same)[keep]) > 0.8


@pytest.mark.parametrize("draft", DRAFT_KINDS)
def test_no_rows(draft):
    nothing = np.empty((0, 5)), np.empty((0, 5)), np.empty((0, 2), dtype=int)
    found = verify_batch(*(far(x) for x in nothing), draft=draft, verifier="optimal", rng=0)
    assert found.token_ids.shape == found.accept_index.shape == (0,)
    assert found.token_ids.device == DEVICE


def test_masses_that_have_no_inverse_go_through_the_host():
    p, q, ids = [[0.25] * 4] * 2, [[1.0, 5e-324, 5e-324, 0.0]] * 2, [[0, 1], [2, 0]]
    call = {"draft": "without_replacement", "verifier": FAST_VERIFIER, "rng": 0}
    found = verify_batch(far(p), far(q), far(ids), **call)
    assert back(found.token_ids).tolist() == verify_batch(p, q, ids, **call).token_ids.tolist()


GOOD = [[0.5, 0.3, 0.2]] * 2
BAD = {
    "nan": ("draft_probs", [[0.5, 0.3, 0.2], [np.nan, 0.5, 0.5]]),
    "infinite": ("target_probs", [[np.inf, 0.3, 0.2], [0.5, 0.3, 0.2]]),
    "negative": ("draft_probs", [[0.5, 0.3, 0.2], [-0.1, 0.6, 0.5]]),
    "nothing": ("draft_probs", [[0.0, 0.0, 0.0], [0.5, 0.3, 0.2]]),
    "too short": ("draft_probs", [[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]]),
    "out of range": ("draft_token_ids", [[0, 1], [1, 3]]),
    "impossible": ("draft_token_ids", [[0, 1], [1, 1]]),
    "late uniform": ("uniforms", [[0.5, 0.5, 0.5], [0.5, 0.5, 1.0]]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_are_named_as_on_the_host(kind):
    name, value = BAD[kind]
    given = {
        "target_probs": GOOD,
        "draft_probs": GOOD,
        "draft_token_ids": [[0, 1], [1, 2]],
        "uniforms": np.full((2, 3), 0.5),
    }
    given[name] = value
    call = {"draft": "without_replacement", "verifier": FAST_VERIFIER}
    with pytest.raises(mdsd.MdsdError) as expected:
        verify_batch(**given, **call)
    with pytest.raises(type(expected.value)) as caught:
        verify_batch(**{key: far(each) for key, each in given.items()}, **call)
    assert str(caught.value) == str(expected.value)


def test_which_verifiers_select_on_a_device():
    q = np.full(4, 0.25)
    draws, tries = mdsd.WithoutReplacement(q, 2), mdsd.WithReplacement(q, 2)

    class Own(OptimalVerifier):
        """A subclass may do anything."""

    assert methods.method_of(FAST_VERIFIER, draws) == methods.Orders(1e-9, 2)
    assert methods.method_of(FAST_VERIFIER, tries) == methods.Marks(FAST_GAP)
    coarse = OptimalVerifier(effort="fast", tolerance=0.01)
    assert methods.method_of(coarse, tries) == methods.Marks(0.01)
    for verifier, draft in (
        (OptimalVerifier(effort="exact"), tries),
        (OptimalVerifier(effort="fast", max_iterations=5), draws),
        (Own(effort="fast"), draws),
        (FAST_VERIFIER, mdsd.WithReplacement(q, 1)),
        (FAST_VERIFIER, mdsd.IndependentDrafts([q, q])),
    ):
        assert methods.method_of(verifier, draft) is None


def test_the_watch_sees_what_leaves(transfers):
    """The negative control of the counts above."""
    values = far([1.0])
    with pytest.raises(AssertionError, match="the host asked"):
        bool(values[0] > 0.0)
    assert FAR.receive(values).tolist() == [1.0]
    assert len(transfers) == 1


FAR = Space(xp, DEVICE)
