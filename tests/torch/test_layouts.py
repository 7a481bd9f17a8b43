"""Layouts of torch tensors: read in place on the host, answered in tensors on their device."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import _inputs, eagle_tree, flashinfer_chain, sglang_tree
from mdsd.decoding.verification import PATH_VERIFICATIONS

from .. import commands
from ..mdsd.decoding.layouts.samples import LAYOUTS, all_layouts, eagle_of, fields, trees

torch = pytest.importorskip("torch")

LAWS = ("draft_probs", "target_probs")
TYPES = ["float64", "float32", "float16", "bfloat16"]


def sent(given, device="cpu", dtype="float64", ids=torch.int64):
    """Tensors in the place of all arrays."""
    found = {}
    for name, value in given.items():
        if isinstance(value, str):
            found[name] = value
            continue
        tensor = torch.from_numpy(np.array(value))
        kind = getattr(torch, dtype) if name in LAWS else ids
        found[name] = tensor.to(device=device, dtype=kind)
    return found


def wide(tensors):
    """The same numbers as arrays of float64, normalised where they were narrower."""
    found = {}
    for name, value in tensors.items():
        if isinstance(value, str):
            found[name] = value
        elif name in LAWS:
            rows = value.double().cpu().numpy()
            found[name] = rows / rows.sum(axis=-1, keepdims=True)
        else:
            found[name] = value.cpu().numpy()
    return found


def home(result):
    return fields(
        type(result)(
            **{
                name: part.cpu().numpy() if isinstance(part, torch.Tensor) else part
                for name, part in vars(result).items()
            }
        )
    )


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_are_those_of_arrays(layout, dtype, ids, device):
    if device == "mps" and dtype == "float64":
        pytest.skip("the device has no float64")
    for draft in ("with_replacement", "without_replacement"):
        function, given = all_layouts(vocab_size=30, draft=draft)[layout]
        tensors = sent(given, device, dtype, ids)
        for seed in range(5):
            found = function(**tensors, rng=seed)
            for name, part in vars(found).items():
                if isinstance(part, int):
                    continue
                assert part.device.type == device
                real = torch.float32 if device == "mps" else torch.float64
                assert part.dtype == (real if name == "next_token_probs" else torch.int64)
            expected, got = fields(function(**wide(tensors), rng=seed)), home(found)
            law, law_here = (part.pop("next_token_probs", None) for part in (expected, got))
            assert got == expected
            if law is not None:
                np.testing.assert_allclose(law_here, law, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_way_of_devices(layout, dtype, on_device):
    """The same with the CPU for a device that numpy cannot read."""
    if on_device == "mps" and dtype == "float64":
        pytest.skip("the device has no float64")
    function, given = all_layouts(vocab_size=30)[layout]
    tensors = sent(given, on_device, dtype)
    for seed in range(5):
        found = home(function(**tensors, rng=seed))
        expected = fields(function(**wide(tensors), rng=seed))
        law, law_here = (part.pop("next_token_probs", None) for part in (expected, found))
        assert found == expected
        if law is not None:
            np.testing.assert_allclose(law_here, law, rtol=0, atol=1e-6)


@pytest.mark.parametrize("verifier", ["naive", "rrs"])
def test_chosen_children(verifier, on_device):
    given = {**trees(20, 6, "without_replacement", seed=1), "draft": "deterministic"}
    tensors = sent(given, on_device, "float32")
    tensors["draft_probs"] = None
    expected = {**given, "target_probs": tensors["target_probs"].cpu().numpy(), "draft_probs": None}
    found = sglang_tree(**tensors, verifier=verifier, rng=2)
    assert home(found) == fields(sglang_tree(**expected, verifier=verifier, rng=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("verifier", PATH_VERIFICATIONS)
def test_whole_paths(verifier, dtype, on_device):
    given = trees(12, 30, "without_replacement", seed=3)
    tensors = sent(given, on_device, dtype)
    found = sglang_tree(**tensors, verifier=verifier, rng=4)
    assert found.predicts.device.type == on_device
    expected = sglang_tree(**wide(tensors), verifier=verifier, rng=4)
    assert home(found) == fields(expected)
    one = eagle_tree(**eagle_of(tensors), verifier=verifier, rng=5)
    assert one.next_token_probs.device.type == on_device
    assert home(one) == fields(eagle_tree(**eagle_of(wide(tensors)), verifier=verifier, rng=5))


# --- the host ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_laws_on_the_host_are_not_copied(dtype):
    tensor = torch.full((2, 3, 4), 0.25, dtype=getattr(torch, dtype))
    rows = _inputs.read_probs(tensor, "target_probs", (2, 3, None), "(B, N, V)")
    assert rows.values.ctypes.data == tensor.data_ptr()
    assert rows.hand_over(np.zeros(3, dtype=np.int64)).device == tensor.device


def test_bfloat16_has_its_own_tolerance():
    rows = torch.tensor([[[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]], dtype=torch.bfloat16)
    assert abs(float(rows[0, 0].double().sum()) - 1.0) > 1e-4
    found = flashinfer_chain(rows[:, :1], torch.tensor([[1]]), rows, rng=0)
    assert found.token_ids.shape == (1, 2)
    rows[0, 1] = torch.tensor([0.5, 0.2, 0.2])
    with pytest.raises(mdsd.InvalidDistributionError, match=r"row 0, 1 sums to 0\.9.*bfloat16"):
        flashinfer_chain(rows[:, :1], torch.tensor([[1]]), rows, rng=0)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_that_require_a_gradient_are_refused(layout, name):
    function, given = all_layouts()[layout]
    tensors = sent(given)
    tensors[name].requires_grad_()
    with pytest.raises(mdsd.InvalidDistributionError, match=f"{name} cannot be read.*grad"):
        function(**tensors, rng=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_left_alone(layout):
    function, given = all_layouts()[layout]
    tensors = sent(given)
    copies = {k: v if isinstance(v, str) else v.clone() for k, v in tensors.items()}
    for seed in range(5):
        function(**tensors, rng=seed)
    for name, tensor in tensors.items():
        if not isinstance(tensor, str):
            assert torch.equal(tensor.nan_to_num(), copies[name].nan_to_num())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_are_read_as_they_look(layout):
    function, given = all_layouts()[layout]
    tensors = sent(given)
    views = dict(tensors)
    for name in LAWS:
        swapped = tensors[name].transpose(-1, -2).contiguous().transpose(-1, -2)
        assert not swapped.is_contiguous()
        views[name] = swapped
    assert home(function(**views, rng=0)) == home(function(**tensors, rng=0))


def test_kind_of_the_target_decides():
    """Small arguments may be of another kind."""
    given = trees(2, 6, "with_replacement")
    mixed = {**given, **{name: torch.from_numpy(given[name]) for name in LAWS}}
    assert isinstance(sglang_tree(**mixed, rng=0).predicts, torch.Tensor)
    ids_only = {**given, "candidates": torch.from_numpy(given["candidates"])}
    assert isinstance(sglang_tree(**ids_only, rng=0).predicts, np.ndarray)
    found = eagle_tree(**eagle_of(mixed), rng=0)
    assert isinstance(found.next_token_probs, torch.Tensor)
    assert isinstance(found.token_id, int)


def test_uniforms_as_tensors():
    given = sent(trees(2, 6, "with_replacement"))
    numbers = np.random.default_rng(0).random((2, 4, 3))
    found = sglang_tree(**given, uniforms=torch.from_numpy(numbers))
    assert home(found) == home(sglang_tree(**given, uniforms=numbers))


def test_arrays_do_not_import_torch():
    code = (
        "import sys; from mdsd.decoding.layouts import flashinfer_chain, sglang_tree; "
        "flashinfer_chain([[[0.5, 0.5]]], [[0]], [[[0.5, 0.5]] * 2], rng=0); "
        "import mdsd.decoding.economize; "
        "print(sorted({'torch', 'economize', 'transformers'} & set(sys.modules)))"
    )
    assert commands.run_python(code).stdout.strip() == "[]"
