"""The plug-in for SGLang, against stand-ins of what it calls and what it replaces."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
import tomllib
from collections import defaultdict
from enum import Enum
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import mdsd
from mdsd.decoding.enumeration import branches
from mdsd.decoding.layouts import _steps

from ..mdsd.decoding.layouts.exact import completed, distance, row_tokens, sequence_law, tables

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "examples" / "sglang_mdsd"
EXACT = 1e-12
EIGHTHS = np.array([[1, 4, 2, 1], [2, 2, 3, 1], [4, 1, 1, 2], [0, 5, 2, 1]]) / 8
"""Row a: the target after token a, in steps that a grid of eight numbers meets exactly."""
TREE = {"ids": [0, 1, 2, 0], "next": [1, 3, -1, -1], "sibling": [-1, 2, -1, -1]}
"""Two children of the root, and one below the first."""


# --- stand-ins -----------------------------------------------------------------------------------


class HookType(Enum):
    AROUND = "around"


class HookRegistry:
    """What the plug-in calls of SGLang's registry."""

    hooks: dict

    @classmethod
    def register(cls, target, hook, hook_type=None, *, source=None):
        cls.hooks[target] = (hook, hook_type)

    @classmethod
    def apply_hooks(cls):
        for target, (hook, hook_type) in cls.hooks.items():
            assert hook_type is HookType.AROUND
            module, _, name = target.rpartition(".")
            original = getattr(sys.modules[module], name)

            def wrapper(*args, _hook=hook, _original=original, **kwargs):
                return _hook(_original, *args, **kwargs)

            setattr(sys.modules[module], name, wrapper)


def eagle_sample(verify_input, batch, logits_output, grammar_mask=None, uno_target_max_top_k=None):
    """Answer in the form of SGLang's, by its rule for trees whose draft probabilities are zeros.

    The child is accepted at which the sum of the target's probabilities passes a number; else one
    more token is drawn from what is left.
    """
    eagle_sample.calls.append((verify_input, batch, logits_output, grammar_mask))
    if batch.forward_mode.is_idle():
        return (torch.empty(0, dtype=torch.int32),) * 3
    logits = logits_output.next_token_logits
    count, rows = verify_input.draft_token_num, len(batch.seq_lens)
    candidates = verify_input.draft_token.reshape(rows, count)
    probs = torch.softmax(logits / batch.sampling_info.temperatures.repeat_interleave(count, 0), -1)
    probs = probs.reshape(rows, count, -1)
    predict = torch.zeros(rows * count, dtype=torch.int32)
    accept_index = torch.full((rows, verify_input.max_tree_depth), -1, dtype=torch.int32)
    accepted = torch.zeros(rows, dtype=torch.int32)
    for row in range(rows):
        node, slot = 0, verify_input.retrieve_index[row, 0]
        accept_index[row, 0] = slot
        while True:
            number, passed, left = torch.rand(()), 0.0, probs[row, node].clone()
            child = int(verify_input.retrieve_next_token[row, node])
            while child >= 0:
                token = candidates[row, child]
                passed += probs[row, node, token]
                left[token] = 0.0
                if number < passed:
                    break
                child = int(verify_input.retrieve_next_sibling[row, child])
            if child < 0:
                predict[slot] = torch.multinomial(left, 1)
                break
            predict[slot] = token
            node, slot = child, verify_input.retrieve_index[row, child]
            accepted[row] += 1
            accept_index[row, accepted[row]] = slot
    return predict, accepted + 1, accept_index


@pytest.fixture
def sglang(monkeypatch):
    """Modules of SGLang, as far as the plug-in looks for them."""
    spec = SimpleNamespace(
        speculative_accept_threshold_single=1.0, speculative_accept_threshold_acc=1.0
    )
    HookRegistry.hooks, eagle_sample.calls = {}, []
    parts = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.plugins": {},
        "sglang.srt.plugins.hook_registry": {"HookRegistry": HookRegistry, "HookType": HookType},
        "sglang.srt.runtime_context": {"get_spec": lambda: spec},
        "sglang.srt.speculative": {},
        "sglang.srt.speculative.eagle_utils": {"eagle_sample": eagle_sample},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return SimpleNamespace(spec=spec, eagle_utils=sys.modules["sglang.srt.speculative.eagle_utils"])


@pytest.fixture
def plugin(monkeypatch):
    path = FOLDER / "mdsd_sglang.py"
    spec = importlib.util.spec_from_file_location("mdsd_sglang", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mdsd_sglang", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooked(sglang, plugin):
    """``eagle_sample`` as SGLang has it once the plug-in is loaded."""
    plugin.register()
    HookRegistry.apply_hooks()
    return sglang.eagle_utils.eagle_sample


def settings_of(count, **changes):
    given = {
        "temperatures": torch.ones(count, 1),
        "top_ks": torch.full((count,), 1 << 30),
        "top_ps": torch.ones(count),
        "is_all_greedy": False,
        "need_top_k_sampling": False,
        "need_top_p_sampling": False,
        "need_min_p_sampling": False,
        "acc_additive_penalties": None,
        "acc_scaling_penalties": None,
        "logit_bias": None,
        "sampling_seed": None,
        "has_custom_logit_processor": False,
    }
    return SimpleNamespace(**{**given, **changes})


def step_of(rows, ids, target, links=TREE, **changes):
    """Arguments of ``eagle_sample`` for a batch of trees of the same form.

    `ids` are (B, N) tokens of the nodes, `target` the table of a Markov chain.
    """
    ids = np.broadcast_to(ids, (rows, len(links["next"])))
    count = ids.shape[1]
    first, sibling = (torch.tensor([links[name]] * rows) for name in ("next", "sibling"))
    verify_input = SimpleNamespace(
        draft_token=torch.from_numpy(ids.copy()).flatten(),
        draft_token_num=count,
        retrieve_index=torch.arange(rows * count).reshape(rows, count),
        retrieve_next_token=first,
        retrieve_next_sibling=sibling,
        max_tree_depth=3,
        tree_topk=2,
        draft_probs=None,
    )
    for name, value in changes.pop("input", {}).items():
        setattr(verify_input, name, value)
    batch = SimpleNamespace(
        device="cpu",
        seq_lens=torch.ones(rows, dtype=torch.int64),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=settings_of(rows, **changes),
    )
    with np.errstate(divide="ignore"):
        logits = torch.from_numpy(np.log(target[ids.reshape(-1)]))
    return verify_input, batch, SimpleNamespace(next_token_logits=logits)


def tokens_of(answer):
    """Emitted tokens of each request, read as SGLang reads them."""
    predict, lengths, accept_index = answer
    tokens = torch.where(accept_index >= 0, predict[accept_index], -1).numpy()
    found = row_tokens(tokens)
    assert list(map(len, found)) == lengths.tolist()
    return found


# --- the package ---------------------------------------------------------------------------------


def test_entry_point_is_what_sglang_looks_for(plugin):
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
    (entry,) = project["project"]["entry-points"]["sglang.srt.plugins"].values()
    module, _, name = entry.partition(":")
    assert project["tool"]["setuptools"]["py-modules"] == [module]
    assert getattr(sys.modules[module], name) is plugin.register


@pytest.mark.parametrize("name", ["README.md", "mdsd_sglang.py"])
def test_limits_are_in_the_first_lines(name):
    head = (FOLDER / name).read_text(encoding="utf-8")[:700].lower()
    for words in ("never run on a server", "stand-ins", "trees"):
        assert words in head.replace("\n", " ").replace("**", "")


def test_registered_around_the_function(sglang, plugin):
    plugin.register()
    ((target, (hook, _)),) = HookRegistry.hooks.items()
    assert target == plugin.TARGET == "sglang.srt.speculative.eagle_utils.eagle_sample"
    assert not isinstance(hook, type)  # which the registry takes for a class that replaces another


def test_settings_come_from_the_environment(sglang, plugin, monkeypatch):
    monkeypatch.setenv("MDSD_SGLANG_VERIFIER", "best")
    with pytest.raises(mdsd.MdsdError, match="verifier is 'best'"):
        plugin.register()
    monkeypatch.setenv("MDSD_SGLANG_VERIFIER", "traversal")
    monkeypatch.setenv("MDSD_SGLANG_SEED", "5")
    answers = []
    for _ in range(2):
        plugin.register()
        ((hook, _),) = HookRegistry.hooks.values()
        for rule in (hook.of_chains, hook.of_trees):
            assert type(rule).__name__ == "TraversalVerification"
        answers.append(tokens_of(hook(eagle_sample, *step_of(20, TREE["ids"], EIGHTHS))))
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 1


# --- the form of the answer ----------------------------------------------------------------------


@pytest.mark.parametrize("target", [np.eye(4)[[1, 0, 3, 2]], np.eye(4)[[2, 1, 1, 1]]])
def test_answer_is_sglangs_where_nothing_is_left_to_chance(hooked, target):
    step = step_of(3, TREE["ids"], target)
    answer, expected = hooked(*step), eagle_sample(*step)
    for part, other in zip(answer, expected, strict=True):
        assert part.dtype == other.dtype == torch.int32
        assert part.shape == other.shape
        np.testing.assert_array_equal(part, other)
    assert len(eagle_sample.calls) == 1  # which was ours


def test_both_spellings_of_an_older_version(hooked):
    step = step_of(2, TREE["ids"], np.eye(4)[[1, 0, 3, 2]])
    expected = eagle_sample(*step)
    given = vars(step[0])
    for part in ("index", "next_token", "next_sibling"):
        given[f"retrive_{part}"] = given.pop(f"retrieve_{part}")
    given["spec_steps"] = given.pop("max_tree_depth") - 1
    given["topk"] = given.pop("tree_topk")
    for part, other in zip(hooked(*step, None), expected, strict=True):
        np.testing.assert_array_equal(part, other)


# --- laws ----------------------------------------------------------------------------------------


def grid_law(plugin, monkeypatch, hooked, target):
    """Exact law of what a tree emits, all numbers of a grid being equally likely."""
    numbers = (np.array(list(product(range(8), repeat=3))) + 0.5) / 8
    given = plugin.sglang_tree

    def with_numbers(rng, **options):
        return given(**options, uniforms=numbers[:, :, np.newaxis])

    monkeypatch.setattr(plugin, "sglang_tree", with_numbers)
    answer = hooked(*step_of(len(numbers), TREE["ids"], target))
    law = defaultdict(float)
    for tokens in tokens_of(answer):
        law[tokens] += 1 / len(numbers)
    return dict(law), float((answer[1] - 1).double().mean())


def test_tree_of_chosen_tokens_is_lossless_and_as_good_as_can_be(plugin, monkeypatch, hooked):
    law, accepted = grid_law(plugin, monkeypatch, hooked, EIGHTHS)
    assert distance(completed(law, EIGHTHS, 3), sequence_law(EIGHTHS, 3)) < EXACT
    # A node is accepted no more often than the target goes that way, whatever the rule.
    paths = EIGHTHS[0, 1] + EIGHTHS[0, 2] + EIGHTHS[0, 1] * EIGHTHS[1, 0]
    assert accepted == pytest.approx(paths, abs=EXACT)
    assert eagle_sample.calls == []


def test_law_of_another_target_is_noticed(plugin, monkeypatch, hooked):
    law, _ = grid_law(plugin, monkeypatch, hooked, EIGHTHS[[1, 0, 2, 3]])
    assert distance(completed(law, EIGHTHS, 3), sequence_law(EIGHTHS, 3)) > 1e-2


CHAIN = {"next": [1, 2, -1], "sibling": [-1, -1, -1]}
FORK = {"next": [1, -1, -1], "sibling": [-1, 2, -1]}


def drafted_law(hooked, monkeypatch, target, drafts, links, rows_of, **given):
    """Exact law of what is emitted, and accepted drafts, over drafts and all answers to chance."""
    law, accepted, known = defaultdict(float), 0.0, {}
    for ids, chance in drafts:
        step = step_of(
            1, [0, *ids], target, links, input={"draft_probs": rows_of((0, *ids)), **given}
        )

        def run(choices, step=step):
            monkeypatch.setattr(_steps, "RandomChoices", lambda stream: choices)
            answer = hooked(*step)
            return tokens_of(answer)[0], int(answer[1][0]) - 1

        for prob, (tokens, count) in branches(run, known):
            law[tokens] += chance * prob
            accepted += chance * prob * count
    assert eagle_sample.calls == []
    return dict(law), accepted


def chain_law(hooked, monkeypatch, target, drafted, declared):
    chains = [
        ((a, b), drafted[0, a] * drafted[a, b]) for a, b in product(range(len(drafted)), repeat=2)
    ]
    rows_of = lambda ids: torch.from_numpy(declared[[ids[:2]]])  # noqa: E731
    return drafted_law(hooked, monkeypatch, target, chains, CHAIN, rows_of, tree_topk=1)


def test_sampled_chain_is_lossless_and_better_than_one_by_one(hooked, monkeypatch):
    target, drafted = tables(3, seed=2)
    law, accepted = chain_law(hooked, monkeypatch, target, drafted, drafted)
    assert distance(completed(law, target, 3), sequence_law(target, 3)) < EXACT
    one_by_one = np.minimum(target, drafted)
    single = one_by_one[0].sum() + one_by_one[0] @ one_by_one.sum(axis=1)
    assert accepted > single + 1e-3


def test_chain_with_the_wrong_law_is_noticed(hooked, monkeypatch):
    target, drafted = tables(3, seed=2)
    law, _ = chain_law(hooked, monkeypatch, target, drafted, drafted[:, ::-1])
    assert distance(completed(law, target, 3), sequence_law(target, 3)) > 1e-3


def test_tree_of_drawn_siblings_is_lossless(hooked, monkeypatch):
    target, drafted = tables(3, seed=4)
    pairs = mdsd.WithoutReplacement(drafted[0], 2).tuples()
    rows_of = lambda ids: torch.from_numpy(drafted[[ids]])  # noqa: E731
    given = {"mdsd_draft": "without_replacement", "max_tree_depth": 2}
    law, accepted = drafted_law(hooked, monkeypatch, target, pairs, FORK, rows_of, **given)
    assert distance(completed(law, target, 2), sequence_law(target, 2)) < EXACT
    bound = mdsd.acceptance_bound(target[0], mdsd.WithoutReplacement(drafted[0], 2)).value
    assert accepted == pytest.approx(bound, abs=1e-6)


# --- what is left to SGLang ----------------------------------------------------------------------

SETTINGS = {
    "penalties": {"acc_additive_penalties": torch.zeros(1, 4)},
    "repetition": {"acc_scaling_penalties": torch.ones(1, 4)},
    "bias": {"logit_bias": torch.zeros(1, 4)},
    "min_p": {"need_min_p_sampling": True},
    "seed": {"sampling_seed": torch.tensor([1])},
    "masks": {"sampling_mask_batch_indices": torch.tensor([0])},
    "processor": {"has_custom_logit_processor": True},
    "tree": {"input": {"draft_probs": torch.ones(1, 4, 4) / 4}},
    "vocabulary": {"input": {"draft_probs": torch.ones(1, 2, 3) / 3, "tree_topk": 1}},
}


def left_alone(hooked, step, *rest):
    hooked(*step, *rest)
    (call,) = eagle_sample.calls
    assert all(found is given for found, given in zip(call, (*step, *rest), strict=False))


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_left_to_sglang(hooked, name, caplog):
    step = step_of(1, TREE["ids"], EIGHTHS, **SETTINGS[name])
    left_alone(hooked, step)
    hooked(*step)
    assert len(caplog.records) == 1  # told once
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize("which", ["single", "acc"])
def test_thresholds_are_left_to_sglang(sglang, hooked, which):
    setattr(sglang.spec, f"speculative_accept_threshold_{which}", 0.9)
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS))


def test_thresholds_of_an_older_version(sglang, hooked, monkeypatch):
    monkeypatch.delitem(sys.modules, "sglang.srt.runtime_context")
    module = ModuleType("sglang.srt.server_args")
    sglang.spec.speculative_accept_threshold_acc = 0.5
    module.get_global_server_args = lambda: sglang.spec
    monkeypatch.setitem(sys.modules, "sglang.srt.server_args", module)
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS))


def test_grammars_are_left_to_sglang(hooked):
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS), object())


def test_simulation_is_left_to_sglang(hooked, monkeypatch):
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "2.5")
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS))


def test_many_ranks_are_left_to_sglang(hooked, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    hooked(*step_of(1, TREE["ids"], EIGHTHS))
    assert len(eagle_sample.calls) == 1


def test_greedy_and_idle_steps_are_left_to_sglang(hooked, caplog):
    left_alone(hooked, step_of(1, TREE["ids"], EIGHTHS, is_all_greedy=True))
    step = step_of(1, TREE["ids"], EIGHTHS)
    step[1].forward_mode.is_idle = lambda: True
    assert hooked(*step)[0].shape == (0,)
    assert caplog.records == []


# --- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_filters_are_those_of_mdsd(plugin, dtype):
    rng = np.random.default_rng(1)
    rows = [rng.permutation(40) / 4 for _ in range(6)]  # no two alike, in few bits either
    logits = torch.from_numpy(np.array(rows)).to(dtype)
    options = [(0.7, 5, 0.8), (1.0, 1 << 30, 0.9), (1.0, 1, 1.0)]
    temperatures, top_ks, top_ps = map(torch.tensor, zip(*options, strict=True))
    settings = settings_of(
        3,
        temperatures=temperatures.reshape(3, 1),
        top_ks=top_ks,
        top_ps=top_ps,
        need_top_k_sampling=True,
        need_top_p_sampling=True,
    )
    found = plugin.target_probs(logits, settings, 2)
    assert found.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    for row, (temperature, top_k, top_p) in enumerate(options):
        filters = mdsd.Filters(temperature, top_k=min(top_k, 40), top_p=top_p)
        here = slice(2 * row, 2 * row + 2)
        expected = filters.of_logits(logits[here].double().numpy())
        np.testing.assert_allclose(found[here].numpy(), expected, rtol=0, atol=1e-6)


def test_ties_with_the_last_one_kept_are_kept(plugin):
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    settings = settings_of(1, top_ks=torch.tensor([2]), need_top_k_sampling=True)
    found = plugin.target_probs(logits, settings, 1)[0]
    assert found[1] == found[2] > 0.0
    assert found[3] == 0.0


def test_stand_in_has_the_signature_that_is_called(plugin):
    names = list(inspect.signature(eagle_sample).parameters)
    assert names[:3] == ["verify_input", "batch", "logits_output"]
    called = list(inspect.signature(plugin.Verification.__call__).parameters)
    assert called[1:5] == ["original", *names[:3]]
