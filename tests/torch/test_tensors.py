"""Torch tensors: read in place on the host, computed with on devices, answered in their kind."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd._probabilities import as_float_array, check_probs
from mdsd._solvers.ratio_groups import NUM_BUCKETS
from mdsd.batch import _inputs, acceptance_bounds, acceptance_rates, verify_batch
from mdsd.batch._rules import Rule, rule_of
from mdsd.batch.tensors import (
    arguments,
    bounds,
    inputs,
    methods,
    selections,
    spaces,
    verification,
)
from mdsd.drafts import read_kind

from .. import commands
from ..mdsd.batch_rows import DRAFTS, KINDS, instances
from ..mdsd.batch_spaces import RULES, laws_of, peaked_rows, plans_of

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
NARROW = ["float32", "float16", "bfloat16"]
TYPES = ["float64", *NARROW]


def back(values):
    return values.cpu().numpy()


def send(values, device, dtype=None):
    values = torch.from_numpy(np.array(values))
    if dtype is None and values.is_floating_point() and device == "mps":
        dtype = torch.float32
    return values.to(device=device, dtype=dtype)


# --- on the host: read in place ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_tensors_on_the_host_are_not_copied(dtype):
    tensor = torch.tensor(P, dtype=getattr(torch, dtype))
    array, kind = as_float_array(tensor, "target_probs")
    assert kind == dtype
    assert array.ctypes.data == tensor.data_ptr()
    rows = torch.tensor([P, P], dtype=torch.float32)
    assert _inputs.read_batch(rows, "target_probs", ndim=2).rows.ctypes.data == rows.data_ptr()


def test_bfloat16_keeps_its_numbers_and_its_tolerance():
    tensor = torch.tensor([0.5, 0.3, 0.2], dtype=torch.bfloat16)
    total = float(tensor.double().sum())
    assert abs(total - 1.0) > 1e-4
    expected = tensor.double().numpy() / total
    assert check_probs(tensor, "target_probs").tolist() == expected.tolist()
    with pytest.raises(mdsd.InvalidDistributionError, match=r"row 1 sums to 0.9.*bfloat16"):
        acceptance_bounds(
            torch.tensor([P, [0.5, 0.2, 0.2]], dtype=torch.bfloat16), [Q, Q], num_drafts=1
        )


CALLS = {
    "probs_from_logits": lambda p, q, ids: mdsd.probs_from_logits(p, top_k=2, temperature=0.5),
    "filter_probs": lambda p, q, ids: mdsd.filter_probs(p, top_p=0.7),
    "filter_rows": lambda p, q, ids: mdsd.filter_probs(p[None], top_k=2),
    "acceptance_bound": lambda p, q, ids: (
        mdsd.acceptance_bound(p, mdsd.WithReplacement(q, 2), method="lp").value
    ),
    "with_replacement": lambda p, q, ids: mdsd.WithReplacement(q, 2).prob(ids),
    "without_replacement": lambda p, q, ids: mdsd.WithoutReplacement(q, 2).prob(ids),
    "greedy": lambda p, q, ids: mdsd.GreedyDraft(q, 2).tail_probs,
    "spechub": lambda p, q, ids: mdsd.SpecHubDraft(q).token_hit_probs(),
    "top_k": lambda p, q, ids: mdsd.TopKDraft(q, 2).top_token_ids,
    "independent_rows": lambda p, q, ids: mdsd.IndependentDrafts([p, q]).prob(ids),
    "explicit": lambda p, q, ids: mdsd.ExplicitDraft(ids[None], q[:1] / q[:1], vocab_size=3).prob(
        ids
    ),
    "order": lambda p, q, ids: mdsd.WithReplacement(q, 2).hit_probs(ids.new_tensor([2, 0, 1])),
    "output_law": lambda p, q, ids: (
        mdsd.get_verifier("rrs").plan(p, mdsd.WithReplacement(q, 2)).output_law(ids)
    ),
    "verify": lambda p, q, ids: (
        mdsd.get_verifier("rrs")
        .plan(p, mdsd.WithReplacement(q, 2))
        .verify(ids, uniforms=torch.tensor([0.7, 0.9, 0.5]))
        .token_id
    ),
}
"""Calls that work on the host and answer in numpy, whatever tensors they are given."""


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("call", CALLS)
def test_calls_on_the_host_read_tensors(call, dtype):
    p, q = (torch.tensor(x, dtype=getattr(torch, dtype)) for x in (P, Q))
    ids = torch.tensor([1, 2])
    found = CALLS[call](p, q, ids)

    class Same(np.ndarray):
        """The same numbers without torch; `new_tensor` is the one method that the calls use."""

        def new_tensor(self, values):
            return np.array(values)

    wide = [x.double().numpy() for x in (p, q)]
    if dtype != "float64":
        wide = [x / x.sum() for x in wide] if call != "probs_from_logits" else wide
    expected = CALLS[call](*wide, ids.numpy().view(Same))
    assert isinstance(found, (np.ndarray, float, int))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", TYPES)
def test_samples_of_tensors(dtype):
    q = torch.tensor(Q, dtype=getattr(torch, dtype))
    wide = q.double().numpy() / float(q.double().sum())
    for name, make in DRAFTS.items():
        if name == "independent":
            continue
        assert make(q, 2).sample(3).tolist() == make(wide, 2).sample(3).tolist()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("verifier", "draft"),
    [
        ("optimal", "with_replacement"),
        ("rrs", "without_replacement"),
        ("spechub", "spechub"),
        ("optimal", "without_replacement"),
        ("rrs", "independent"),
    ],
)
def test_batches_on_the_host_are_those_of_numpy(verifier, draft, dtype):
    """Compiled code, and plans row by row for the last two."""
    rng = np.random.default_rng(0)
    shape = (20, 2) if draft == "independent" else (20,)
    p, q = (
        torch.from_numpy(rng.dirichlet(np.ones(6), size=size)).to(getattr(torch, dtype))
        for size in (20, shape)
    )
    wide = [x.double().numpy() for x in (p, q)]
    wide = [x / x.sum(axis=-1, keepdims=True) for x in wide]
    ids = np.array([DRAFTS[draft](row, 2).sample(rng) for row in wide[1]])
    call = {"draft": draft, "verifier": verifier, "rng": 1}
    found = verify_batch(p, q, torch.from_numpy(ids), **call)
    expected = verify_batch(*wide, ids, **call)
    assert found.token_ids.dtype == found.accept_index.dtype == torch.int64
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    assert found.accept_index.tolist() == expected.accept_index.tolist()
    limits = acceptance_bounds(p, q, draft=draft, num_drafts=2)
    assert limits.dtype == torch.float64
    np.testing.assert_allclose(
        limits.numpy(), acceptance_bounds(*wide, draft=draft, num_drafts=2), rtol=0, atol=1e-12
    )
    law = {"draft": draft, "num_drafts": 2, "verifier": verifier}
    rates = acceptance_rates(p, q, **law, seeds=torch.arange(20))
    assert rates.dtype == torch.float64
    # A lottery is good to its tolerance of 1e-9.
    np.testing.assert_allclose(rates.numpy(), acceptance_rates(*wide, **law), rtol=0, atol=2e-9)


def test_layouts_of_tensors():
    targets, drafted, ids, _ = instances("without_replacement", 2, size=20, repeats=3)
    p, q = (torch.from_numpy(x) for x in (targets, drafted))
    call = {"draft": "without_replacement", "verifier": "rrs", "rng": 1}
    expected = verify_batch(targets, drafted, ids, **call).token_ids.tolist()
    turned = p.T.contiguous().T
    strided = torch.stack([q, q], dim=-1)[..., 0]
    assert not turned.is_contiguous()
    assert not strided.is_contiguous()
    assert verify_batch(turned, strided, ids, **call).token_ids.tolist() == expected


def test_results_follow_the_target():
    rows = torch.tensor([P])
    assert isinstance(acceptance_bounds([P], rows, num_drafts=1), np.ndarray)
    assert isinstance(acceptance_bounds(rows, [Q], num_drafts=1), torch.Tensor)


# --- on a device ---------------------------------------------------------------------------------


def skip_without_float64(device):
    if device == "mps":
        pytest.skip("no float64 there")


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_laws_given_the_drafts_are_those_of_plans(device, verifier, draft, n):
    skip_without_float64(device)
    targets, drafted, ids, laws = instances(draft, n, size=9, repeats=30, seed=n)
    keep = np.array([not (verifier == "kseq" and kind == "equal") for kind in KINDS * 30])
    arguments = [send(x, device) for x in (targets, drafted, ids)]
    rule = rule_of(mdsd.get_verifier(verifier), laws[0])
    tests = verification.TESTS[rule](*arguments)
    plans = plans_of(verifier, targets, laws)
    expected = np.array([plan.output_law(row) for plan, row in zip(plans, ids, strict=True)])
    np.testing.assert_allclose(laws_of(tests, back)[keep], expected[keep], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("verifier", "draft", "n"), RULES)
def test_tokens_are_those_of_plans(on_device, verifier, draft, n):
    """What compiled code gives, which is what plans give."""
    skip_without_float64(on_device)
    targets, drafted, ids, laws = instances(draft, n, size=40, repeats=150, seed=20 + n)
    keep = np.array([not (verifier == "kseq" and kind == "equal") for kind in KINDS * 150])
    count = mdsd.get_verifier(verifier).num_uniforms(laws[0])
    uniforms = np.random.default_rng(n).random((len(ids), count))
    call = {"draft": draft, "verifier": verifier}
    expected = verify_batch(targets, drafted, ids, **call, uniforms=uniforms)
    arguments = [send(x, on_device) for x in (targets, drafted, ids)]
    found = verify_batch(*arguments, **call, uniforms=send(uniforms, on_device))
    assert found.token_ids.device == found.accept_index.device == arguments[0].device
    assert found.token_ids.dtype == found.accept_index.dtype == torch.int64
    assert (back(found.token_ids) == expected.token_ids)[keep].all()
    assert (back(found.accept_index) == expected.accept_index)[keep].all()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    ("verifier", "draft"),
    [("rrs", "without_replacement"), ("kseq", "with_replacement"), ("greedy", "greedy")],
)
def test_types_are_widened_before_anything_is_summed(on_device, verifier, draft, dtype):
    """At 32,000 tokens, the tokens of the same numbers in float64."""
    skip_without_float64(on_device)
    rng = np.random.default_rng(0)
    p, q = (torch.from_numpy(x).to(getattr(torch, dtype)) for x in peaked_rows(rng, 6, 32_000))
    wide = [x.double().numpy() for x in (p, q)]
    wide = [x / x.sum(axis=1, keepdims=True) for x in wide]
    ids = np.array([DRAFTS[draft](row, 3).sample(rng) for row in wide[1]])
    call = {"draft": draft, "verifier": verifier}
    arguments = p.to(on_device), q.to(on_device), send(ids, on_device)
    for seed in range(2):
        expected = verify_batch(*wide, ids, **call, rng=seed)
        found = verify_batch(*arguments, **call, rng=seed)
        assert found.token_ids.tolist() == expected.token_ids.tolist()
        assert found.accept_index.tolist() == expected.accept_index.tolist()


@pytest.mark.parametrize("n", [1, 2, 4, 64])
@pytest.mark.parametrize("size", [9, 700])
def test_bounds_are_those_of_the_host(on_device, size, n):
    skip_without_float64(on_device)
    targets, drafted, _, _ = instances("with_replacement", n, size=size, repeats=30, seed=n)
    found = acceptance_bounds(send(targets, on_device), send(drafted, on_device), num_drafts=n)
    assert found.dtype == torch.float64
    expected = acceptance_bounds(targets, drafted, num_drafts=n)
    np.testing.assert_allclose(back(found), expected, rtol=0, atol=1e-12)


ERRORS = {"float32": 3e-7, "float16": 2.5e-3 + 32_000 * 1.5e-7, "bfloat16": 1e-2}
"""What rounding to a type moves a bound by, at n = 4 and 32,000 tokens, as documented."""


@pytest.mark.parametrize("dtype", ERRORS)
def test_error_of_bounds_by_type(on_device, dtype):
    rows = peaked_rows(np.random.default_rng(0), 4, 32_000)
    exact = acceptance_bounds(*rows, num_drafts=4)
    rounded = [torch.from_numpy(x).to(getattr(torch, dtype)) for x in rows]
    there = acceptance_bounds(*(x.to(on_device) for x in rounded), num_drafts=4)
    np.testing.assert_allclose(back(there), exact, rtol=0, atol=ERRORS[dtype])
    wide = [x.double().numpy() for x in rounded]
    wide = [x / x.sum(axis=1, keepdims=True) for x in wide]
    own = 1e-12 if there.dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(
        back(there), acceptance_bounds(*wide, num_drafts=4), rtol=0, atol=own
    )


@pytest.mark.parametrize(
    ("verifier", "draft"),
    [(mdsd.OptimalVerifier(effort="exact"), "with_replacement"), ("naive", "top_k")],
)
def test_other_rules_go_through_the_host_and_back(on_device, verifier, draft):
    targets, drafted, ids, _ = instances(draft, 2, size=8, repeats=2)
    p, q = (send(x, on_device, torch.float32) for x in (targets, drafted))
    call = {"draft": draft, "verifier": verifier, "rng": 5}
    expected = verify_batch(back(p), back(q), ids, **call)
    found = verify_batch(p, q, send(ids, on_device), **call)
    assert found.token_ids.device == p.device
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    limits = acceptance_bounds(p, q, draft="greedy", num_drafts=2)
    assert limits.device == p.device
    np.testing.assert_allclose(
        back(limits),
        acceptance_bounds(back(p), back(q), draft="greedy", num_drafts=2),
        rtol=0,
        atol=1e-6,
    )


# --- optimal verification: sums there, the search on the host -------------------------------------

FAST_VERIFIER = mdsd.OptimalVerifier(effort="fast")
SELECTED = [(draft, n) for draft in ("with_replacement", "without_replacement") for n in (2, 4)]


def device_batch(p, q, ids, kind, num_uniforms, numbers=None):
    """What `read_arguments` makes of tensors, also of those on the host."""
    space = spaces.space_of(p)
    target, drafted = inputs.read_probs(space, p), inputs.read_probs(space, q)
    good = target.good & drafted.good & arguments._possible(drafted, ids, read_kind(kind))
    return arguments.DeviceBatch(space, target, drafted, ids, good, numbers, num_uniforms)


def selected_rows(draft, n):
    """Rows of 3,000 tokens: more than are listed for the host."""
    rng = np.random.default_rng(n)
    p, q = peaked_rows(rng, 6, 3000)
    q[1], p[2, ::3] = 1.0 / 3000, 0.0
    p /= p.sum(axis=1, keepdims=True)
    laws = [DRAFTS[draft](row, n) for row in q]
    ids = np.array([law.sample(rng) for law in laws])
    plans = [FAST_VERIFIER.plan(row, law) for row, law in zip(p, laws, strict=True)]
    uniforms = 1.0 - 0.3 * rng.random((6, plans[0].num_uniforms)) ** 2
    expected = [
        plan.verify(row, uniforms=own).token_id
        for plan, row, own in zip(plans, ids, uniforms, strict=True)
    ]
    return p, q, ids, laws[0], uniforms, expected


@pytest.mark.parametrize(("draft", "n"), SELECTED)
def test_selections_in_torch_are_those_of_fast_plans(device, draft, n):
    skip_without_float64(device)
    p, q, ids, law, uniforms, expected = selected_rows(draft, n)
    sides = (send(x, device) for x in (p, q, ids))
    batch = device_batch(*sides, draft, uniforms.shape[1], send(uniforms, device))
    found = selections.verify_by_groups(
        batch,
        methods.method_of(FAST_VERIFIER, law),
        rng=None,
        uniforms=spaces.Located.of(None),
    )
    assert found[0].tolist() == expected
    assert found[0].device == found[1].device == batch.ids.device


@pytest.mark.parametrize(("draft", "n"), SELECTED)
def test_optimal_batches_on_a_device_are_those_of_fast_plans(on_device, draft, n):
    skip_without_float64(on_device)
    p, q, ids, _, uniforms, expected = selected_rows(draft, n)
    sides = (send(x, on_device) for x in (p, q, ids))
    call = {"draft": draft, "verifier": "optimal"}
    found = verify_batch(*sides, **call, uniforms=send(uniforms, on_device))
    assert found.token_ids.device.type == on_device
    assert found.token_ids.tolist() == expected


# --- nothing leaves the device -------------------------------------------------------------------


class NothingLeaves(TorchDispatchMode):
    """Refuse every operation with a tensor elsewhere; count the values that the host asks for.

    Tensors of the meta device have no values at all: the host is told that all is well.
    """

    def __init__(self, arrivals=0):
        super().__init__()
        self.asked, self.arrivals = 0, arrivals

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if name == "aten::_local_scalar_dense":
            self.asked += 1
            return True
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if name == "aten::_to_copy" and given[0].device.type == "cpu":
            self.arrivals -= 1
            given = []
        elif name == "aten::lift_fresh":
            return result  # the host's own array, about to be sent
        assert all(x.device.type == "meta" for x in given + made), name
        assert self.arrivals >= 0, "more was sent to the device than the uniforms and the ids"
        return result


def on_meta(values, dtype=None):
    return send(values, "cpu").to(device="meta", dtype=dtype)


def test_bounds_ask_for_one_value():
    p, q = on_meta(np.ones((4, 3000))), on_meta(np.ones((4, 3000)), torch.bfloat16)
    with NothingLeaves() as watch:
        found = bounds.bounds_on_device(spaces.space_of(p), p, q, 3)
    assert watch.asked == 1
    assert found.shape == (4,)


@pytest.mark.parametrize("from_host", [False, True])
@pytest.mark.parametrize("rule", list(verification.TESTS))
def test_verifications_ask_for_one_value(rule, from_host):
    draft = {
        Rule.SINGLE_LAST: "greedy",
        Rule.RRS_SHRINKING: "without_replacement",
        Rule.SPECHUB: "spechub",
    }
    p, q = on_meta(np.ones((4, 3000))), on_meta(np.ones((4, 3000)), torch.float16)
    n = 2 if rule is Rule.SPECHUB else 3
    ids, uniforms = np.zeros((4, n), dtype=np.int64), np.zeros((4, n + 1))
    given = (ids, None) if from_host else (on_meta(ids), on_meta(uniforms))
    with NothingLeaves(arrivals=2 if from_host else 0) as watch:
        tokens, index = verification.verify_on_device(
            spaces.Located.of(p),
            q,
            given[0],
            kind=read_kind(draft.get(rule, "with_replacement")),
            rule=rule,
            num_uniforms=n + 1,
            rng=0 if from_host else None,
            uniforms=spaces.Located.of(given[1]),
        )
    assert watch.asked == 1
    assert watch.arrivals == 0
    assert tokens.shape == index.shape == (4,)


@pytest.mark.parametrize("size", [3000, 400])
@pytest.mark.parametrize(("draft", "n"), SELECTED)
def test_selections_ask_for_no_value_beside_the_one_transfer(draft, n, size):
    p, q = on_meta(np.ones((4, size))), on_meta(np.ones((4, size)), torch.float16)
    law = DRAFTS[draft](np.full(size, 1.0 / size), n)
    method, count = methods.method_of(FAST_VERIFIER, law), FAST_VERIFIER.num_uniforms(law)
    ids, uniforms = on_meta(np.zeros((4, n), dtype=np.int64)), on_meta(np.zeros((4, count)))
    with NothingLeaves(arrivals=9) as watch:
        batch = device_batch(p, q, ids, draft, count, uniforms)
        listing, packet = selections.survey(batch, method)
        found = selections.emit_selected(
            batch,
            listing,
            selections.SelectedRows(
                np.zeros(4, dtype=np.int64),
                np.ones(4),
                np.ones((4, NUM_BUCKETS)),
                np.ones(tuple(listing.ids.shape)),
            ),
            np.array([True, False, True, False]),
            np.zeros(4),
        )
    assert watch.asked == 0
    # The edges of buckets, twice; places, rows, uniforms, both tables, turns, who was accepted.
    assert watch.arrivals == 0
    assert packet.shape[0] == found.shape[0] == 4


def test_the_watch_sees_what_leaves():
    """The negative controls of the two tests above."""
    p = on_meta(np.ones(3))
    with NothingLeaves() as watch:
        assert bool(p.sum() > 0)
        with pytest.raises(AssertionError, match="more was sent"):
            torch.ones(3, device="meta") + torch.from_numpy(np.ones(3)).to("meta")
    assert watch.asked == 1
    with NothingLeaves(), pytest.raises(AssertionError):
        torch.zeros(3)


@pytest.mark.parametrize("default", ["float64", "float16"])
def test_defaults_of_torch_do_not_matter(on_device, default):
    skip_without_float64(on_device)
    targets, drafted, ids, _ = instances("without_replacement", 3, size=20, repeats=5)
    call = {"draft": "without_replacement", "verifier": "rrs", "rng": 0}
    arguments = [send(x, on_device) for x in (targets, drafted, ids)]
    expected = verify_batch(*arguments, **call).token_ids.tolist()
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        with torch.inference_mode():
            assert verify_batch(*arguments, **call).token_ids.tolist() == expected
    finally:
        torch.set_default_dtype(before)


def test_uniforms_of_torch(on_device):
    """Of a generator of torch, numbers it drew are taken, and the generator itself."""
    targets, drafted, ids, _ = instances("with_replacement", 2, size=20, repeats=5)
    p, q, drafts = (send(x, on_device) for x in (targets, drafted, ids))
    call = {"draft": "with_replacement", "verifier": "rrs"}
    source = torch.Generator(device=on_device).manual_seed(3)
    uniforms = torch.rand((len(ids), 3), generator=source, device=on_device)
    found = verify_batch(p, q, drafts, **call, uniforms=uniforms)
    expected = verify_batch(back(p), back(q), ids, **call, uniforms=back(uniforms))
    assert (back(found.token_ids) == expected.token_ids).mean() > 0.98
    if on_device != "mps":
        assert found.token_ids.tolist() == expected.token_ids.tolist()
    again, same = (
        verify_batch(p, q, drafts, **call, rng=torch.Generator(device=on_device).manual_seed(3))
        for _ in range(2)
    )
    assert again.token_ids.tolist() == same.token_ids.tolist()
    with pytest.raises(mdsd.InvalidArgumentError, match="rng is"):
        verify_batch(p, q, drafts, **call, rng=torch.device(on_device))


def test_arrays_of_the_host_that_must_not_be_written_to(on_device):
    targets, drafted, ids, _ = instances("without_replacement", 2, size=20, repeats=2)
    p, q = (send(x, on_device) for x in (targets, drafted))
    uniforms = np.full((len(ids), 3), 0.5)
    for array in (ids, uniforms):
        array.setflags(write=False)
    call = {"draft": "without_replacement", "verifier": "rrs", "uniforms": uniforms}
    found = verify_batch(p, q, ids, **call)
    assert (
        found.token_ids.tolist() == verify_batch(targets, drafted, ids, **call).token_ids.tolist()
    )
    found.token_ids.zero_()
    assert (uniforms == 0.5).all()


# --- bad tensors ---------------------------------------------------------------------------------

ROWS = torch.tensor([P, P])
BAD = {
    "nan": torch.tensor([P, [0.5, float("nan"), 0.5]]),
    "negative": torch.tensor([P, [0.7, -0.1, 0.4]]),
    "mass": torch.tensor([P, [0.5, 0.2, 0.2]]),
    "gradient": torch.tensor([P, P], requires_grad=True),
    "bfloat16 with a gradient": torch.tensor([P, P], dtype=torch.bfloat16, requires_grad=True),
    "complex": ROWS + 0j,
    "bool": ROWS > 0.25,
    "float8": ROWS.to(torch.float8_e4m3fn),
    "sparse": ROWS.to_sparse(),
    "meta": ROWS.to("meta"),
    "one axis": ROWS[0],
    "no tokens": ROWS[:, :0],
}


def calls(arguments, place):
    ids = torch.tensor([[0, 1]] * 2, device=place)
    draft = {"draft": "with_replacement"}
    return (
        lambda: acceptance_bounds(**arguments, **draft, num_drafts=2),
        lambda: acceptance_rates(**arguments, **draft, num_drafts=2, verifier="rrs"),
        lambda: verify_batch(**arguments, **draft, draft_token_ids=ids, verifier="rrs", rng=0),
    )


def assert_refused(name, value, place):
    good = ROWS.to(place)
    if value.device.type != "meta":
        value = value.to(place)
    for call in calls({"target_probs": good, "draft_probs": good, name: value}, place):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            call()
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ["target_probs", "draft_probs"])
def test_bad_tensors_on_the_host_are_named(name, kind):
    assert_refused(name, BAD[kind], "cpu")


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ["target_probs", "draft_probs"])
def test_bad_tensors_on_a_device_are_named(on_device, name, kind):
    assert_refused(name, BAD[kind], on_device)


def test_gradients_are_refused_by_single_calls_too():
    p = torch.tensor(P, requires_grad=True)
    for call in (
        lambda: mdsd.WithReplacement(p, 2),
        lambda: mdsd.acceptance_bound(p, mdsd.WithReplacement(Q, 2)),
        lambda: mdsd.probs_from_logits(p),
    ):
        with pytest.raises(mdsd.InvalidDistributionError, match="detach"):
            call()
    assert mdsd.WithReplacement(p.detach(), 2).num_drafts == 2


def test_tensors_elsewhere_are_refused_by_single_calls():
    p = torch.tensor(P, device="meta")
    with pytest.raises(mdsd.InvalidDistributionError, match=r"target_probs cannot be read.*cpu"):
        mdsd.acceptance_bound(p, mdsd.WithReplacement(Q, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_two_devices_are_refused():
    with pytest.raises(mdsd.InvalidDistributionError, match=r"draft_probs is on the host.*cuda"):
        acceptance_bounds(ROWS.cuda(), ROWS, num_drafts=1)
    with pytest.raises(mdsd.InvalidDistributionError, match=r"cannot be read.*cpu"):
        mdsd.WithReplacement(ROWS[0].cuda(), 2)


def test_importing_mdsd_imports_no_torch():
    code = (
        "import sys, mdsd; mdsd.acceptance_bounds([[1.0]], [[1.0]], num_drafts=1); "
        "assert 'torch' not in sys.modules and 'array_api_compat' not in sys.modules"
    )
    commands.run_python(code)
