"""Layouts of arrays on devices that numpy cannot read: laws stay there, so do the results.

`array_api_strict` has such devices; whatever leaves the array API standard, or the device, fails
there.
"""

from __future__ import annotations

from typing import Any

import array_api_strict as xp
import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened
from mdsd.decoding.verification import PATH_VERIFICATIONS

from .samples import LAYOUTS, all_layouts, chains, eagle_of, fields, flattened, trees

HOST, DEVICE, OTHER, NARROW = (
    xp.Device(name) for name in ("CPU_DEVICE", "device1", "device2", "no_float64")
)
LAWS = ("draft_probs", "target_probs")


def far(values: Any, device: Any = DEVICE) -> Any:
    array = np.asarray(values)
    if device == NARROW and array.dtype == np.float64:
        array = array.astype(np.float32)
    return xp.asarray(array, device=device)


def home(result: Any) -> dict[str, Any]:
    """What a result holds, brought to the host."""
    parts = {
        name: part.to_device(HOST) if hasattr(part, "to_device") else part
        for name, part in vars(result).items()
    }
    return fields(type(result)(**parts))


def moved(given: dict[str, Any], names: Any, device: Any = DEVICE) -> dict[str, Any]:
    return {
        name: far(value, device) if name in names and value is not None else value
        for name, value in given.items()
    }


def larger(draft: str) -> dict[str, Any]:
    """Each layout with larger batches than `all_layouts`."""
    chain = chains(60, 3, 6, seed=1)
    tree = trees(60, 6, draft, seed=2)
    lengths = np.arange(60) % 4
    return {
        "flashinfer": (flashinfer_chain, chain),
        "vllm": (vllm_flattened, flattened(chain, lengths.tolist(), np.zeros(60, dtype=np.int64))),
        "sglang": (sglang_tree, tree),
        "eagle": (eagle_tree, eagle_of(tree)),
    }


@pytest.mark.parametrize("ids_too", [False, True])
@pytest.mark.parametrize("device", [DEVICE, NARROW], ids=str)
@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy", "top_k"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_device_answers_as_the_host(layout, draft, device, ids_too):
    function, given = larger(draft)[layout]
    names = [name for name in given if name in LAWS or (ids_too and name != "draft")]
    found = function(**moved(given, names, device), rng=3)
    for part in vars(found).values():
        if not isinstance(part, int):
            assert part.device == device
    expected = fields(function(**given, rng=3))
    got = home(found)
    law, law_here = (part.pop("next_token_probs", None) for part in (expected, got))
    assert got == expected
    if law is not None:
        np.testing.assert_allclose(law_here, law, rtol=0, atol=1e-6 if device == NARROW else 1e-14)


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
def test_chosen_children_on_a_device(verifier):
    given = {**trees(20, 6, "without_replacement", seed=4), "draft_probs": None}
    given["draft"] = "deterministic"
    expected = fields(sglang_tree(**given, verifier=verifier, rng=5))
    there = moved(given, LAWS)
    assert home(sglang_tree(**there, verifier=verifier, rng=5)) == expected


@pytest.mark.parametrize("draft", ["without_replacement", "deterministic"])
@pytest.mark.parametrize("verifier", PATH_VERIFICATIONS)
def test_whole_paths_on_a_device(verifier, draft):
    given = {**trees(12, 6, "without_replacement", seed=4), "draft": draft, "verifier": verifier}
    given["draft_probs"] = given["draft_probs"] if draft != "deterministic" else None
    found = sglang_tree(**moved(given, LAWS), rng=5)
    assert found.predicts.device == DEVICE
    assert home(found) == fields(sglang_tree(**given, rng=5))
    lone = {**eagle_of(given), "verifier": verifier}
    found = eagle_tree(**moved(lone, LAWS), rng=5)
    assert found.next_token_probs.device == DEVICE
    assert home(found) == fields(eagle_tree(**lone, rng=5))


@pytest.mark.parametrize("layout", ["flashinfer", "vllm"])
def test_chosen_drafts_on_a_device(layout):
    function, given = larger("greedy")[layout]
    given = {**given, "draft_probs": None, "draft": "deterministic"}
    assert home(function(**moved(given, LAWS), rng=6)) == fields(function(**given, rng=6))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_uniforms_on_a_device(layout):
    function, given = all_layouts()[layout]
    shape = {"flashinfer": (2, 4), "vllm": (7,), "sglang": (2, 4, 3), "eagle": (4, 3)}[layout]
    numbers = np.random.default_rng(7).random(shape)
    found = function(**moved(given, LAWS), uniforms=far(numbers))
    expected = fields(function(**given, uniforms=numbers))
    got = home(found)
    for part in (expected, got):
        part.pop("next_token_probs", None)
    assert got == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_another_library_on_the_host(layout):
    function, given = all_layouts()[layout]
    found = function(**moved(given, LAWS, HOST), rng=8)
    assert all(
        isinstance(part, int) or type(part) is type(xp.asarray(0)) for part in vars(found).values()
    )
    assert home(found) == fields(function(**given, rng=8))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_laws_on_different_devices_are_refused(layout):
    function, given = all_layouts()[layout]
    there = {**moved(given, ["target_probs"]), **moved(given, ["draft_probs"], OTHER)}
    there["target_probs"] = far(given["target_probs"])
    with pytest.raises(mdsd.InvalidDistributionError, match=r"draft_probs is on .*device2"):
        function(**there, rng=0)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bad_rows_on_a_device_are_named(layout, name):
    function, given = all_layouts()[layout]
    place = {"vllm": (0,), "eagle": (1,)}.get(layout, (0, 1))
    rows = given[name].copy()
    rows[(*place, 2)] = np.nan
    messages = []
    for convert in (lambda bad: bad, lambda bad: moved(bad, LAWS)):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            function(**convert({**given, name: rows}), rng=0)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"{name} row {', '.join(map(str, place))}: index 2 is nan")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_drafts_that_cannot_be_drawn_are_named(layout):
    function, given = all_layouts()[layout]
    name = "candidates" if layout == "sglang" else "draft_token_ids"
    place = {"flashinfer": (1, 2), "vllm": (4,), "sglang": (1, 1), "eagle": (1,)}[layout]
    drafted = given[name][(*place[:-1], 4)] if layout in ("sglang", "eagle") else given[name][place]
    rows = given["draft_probs"].copy()
    rows[(*place, drafted)] = 0.0
    rows[place] /= rows[place].sum()
    messages = []
    for convert in (lambda bad: bad, lambda bad: moved(bad, LAWS)):
        with pytest.raises(mdsd.InvalidTokenError, match="cannot be drawn") as caught:
            function(**convert({**given, "draft_probs": rows}), rng=0)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_tensors_of_no_numbers_are_refused():
    _, given = all_layouts()["flashinfer"]
    with pytest.raises(mdsd.InvalidDistributionError, match="target_probs holds bool"):
        flashinfer_chain(**{**given, "target_probs": far(given["target_probs"] > 0)})
