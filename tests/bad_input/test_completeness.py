"""Every argument of every public callable has rows, or a reason to have none."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mdsd
from mdsd import filters

from ..verifiers import NAMES
from .calls import DRAFTS

CHECKED = "given by the library: called with what was checked before"
RECORD = "a record that the library fills in; nobody else has to make one"
ANY_OBJECT = "any object is a fair question; the answer is False"
ABSTRACT = "abstract: the classes derived from it are covered"
OF_TUPLES = "Python's own"
TEST_HELPER = "covered in tests/mdsd/test_testing.py"

DRAFT_CLASSES = ("DraftDistribution", *DRAFTS)
VERIFIER_CLASSES = (
    "Verifier",
    *(type(mdsd.get_verifier(name)).__name__ for name in NAMES),
)
RULE_CLASSES = (
    "BiasedRule",
    "CactusAcceptance",
    "EngineRule",
    "GumbelLists",
    "MixtureAcceptance",
    "OverAcceptance",
    "RelaxedAcceptance",
    "ThresholdAcceptance",
    "TypicalAcceptance",
)
EXEMPT: dict[tuple[str, str], str] = {
    **{
        (f"analysis.{name}.{method}", parameter): CHECKED
        for name in RULE_CLASSES
        for method, parameters in {
            "accept_and_redraw": ("target_probs", "draft_probs"),
            "decide": ("target_probs", "draft", "draft_token_ids"),
            "refuse_unsupported": ("draft",),
            "supports": ("draft",),
        }.items()
        for parameter in parameters
        if hasattr(getattr(mdsd.analysis, name), method)
    },
    **{
        (f"analysis.{name}.outcome", parameter): ABSTRACT
        for name in ("BiasedRule", "EngineRule")
        for parameter in ("target_probs", "draft")
    },
    **{
        (f"decoding.{name}.draw", parameter): CHECKED
        for name in ("BiasedVerification", "GumbelVerification")
        for parameter in ("draft", "position", "choices")
    },
    ("decoding.GumbelVerification.accepted_by_depth", "tree"): CHECKED,
    **{(f"{name}.is_possible", "draft_token_ids"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.prefix_order", "target_probs"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.best_prefix", "target_probs"): CHECKED for name in DRAFT_CLASSES},
    **{
        (f"{name}.{method}", parameter): CHECKED  # by the methods of `DraftKind`, which call them
        for name in DRAFT_CLASSES
        for method, parameters in {
            "check_options": ("options",),
            "example_kinds": ("num_drafts",),
            "from_probs_at_most": ("draft_probs", "num_drafts", "options"),
            "num_certain": ("num_drafts", "options"),
            "refusal": ("num_drafts", "options"),
        }.items()
        for parameter in parameters
    },
    ("DraftKind.make_at_most", "draft_probs"): CHECKED,
    ("DraftKind.drawable", "draft_probs"): CHECKED,
    **{(f"{name}.supports", "draft"): ANY_OBJECT for name in VERIFIER_CLASSES},
    **{
        (f"DraftDistribution.{method}", parameter): ABSTRACT
        for method, parameters in {
            "from_probs": ("draft_probs", "num_drafts", "options"),
            "kind": ("options",),
            "next_probs": ("drafted",),
        }.items()
        for parameter in parameters
    },
    ("DraftDistribution.hit_probs", "order"): ABSTRACT,
    ("DraftDistribution.sample", "rng"): ABSTRACT,
    ("DraftDistribution.sample", "size"): ABSTRACT,
    ("DraftDistribution.prob", "draft_token_ids"): ABSTRACT,
    ("Verifier.plan", "target_probs"): ABSTRACT,
    ("Verifier.plan", "draft"): ABSTRACT,
    ("Verifier.num_uniforms", "draft"): ABSTRACT,
    ("Plan", "target_probs"): CHECKED,
    ("Plan", "draft"): CHECKED,
    ("decoding.BiasedVerification.accepted_by_depth", "tree"): CHECKED,
    ("decoding.NGramModel.logits", "prefixes"): CHECKED,
    ("decoding.MappedModel.logits", "prefixes"): CHECKED,
    ("decoding.Model.logits", "prefixes"): ABSTRACT,
    ("decoding.TreeGrowth.children", "level"): ABSTRACT,
    ("decoding.GrowingTree.children", "level"): CHECKED,
    **{("studies.Rows.index", name): OF_TUPLES for name in ("value", "start", "stop")},
    ("studies.Rows.count", "value"): OF_TUPLES,
    ("datasets.Source", "args"): ABSTRACT,
    ("datasets.Source", "kwargs"): ABSTRACT,
    ("decoding.Model", "args"): ABSTRACT,
    ("decoding.Model", "kwargs"): ABSTRACT,
}
RECORDS = (
    "AcceptanceBound",
    "AcceptanceInterval",
    "BatchVerification",
    "DraftKind",
    "Verification",
    "analysis.AcceptRule",
    "analysis.AcceptanceAssessment",
    "analysis.BatchImprovement",
    "analysis.BestDepth",
    "analysis.BestNumDrafts",
    "analysis.MeasuredAcceptance",
    "analysis.ParetoFront",
    "analysis.RuleOutcome",
    "analysis.SimulatedFront",
    "analysis.SimulatedRejections",
    "analysis.TreePlan",
    "datasets.Dataset",
    "datasets.LoggedPosition",
    "datasets.TopLogprobs",
    "decoding.DecodeResult",
    "decoding.DecodeSeconds",
    "decoding.DraftedLevel",
    "decoding.EmbeddedPair",
    "studies.RuleRow",
    "studies.BoundRow",
    "studies.CaptureSummary",
    "studies.CompareRow",
    "studies.IntervalRow",
    "studies.Missing",
    "studies.Rows",
    "studies.StudyRow",
    "testing.Instance",
)


def public_callables() -> Iterator[tuple[str, Any]]:
    """Walk over what `mdsd` and its public modules export, each thing under its shortest name."""
    seen: set[int] = set()
    modules = [(name, getattr(mdsd, name)) for name in mdsd.__all__]
    folders = [("", mdsd), *((f"{n}.", m) for n, m in modules if isinstance(m, ModuleType))]
    for prefix, module in folders:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, ModuleType) or not callable(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield f"{prefix}{name}", thing


def public_parameters() -> Iterator[tuple[str, str]]:
    for name, thing in public_callables():
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        found = {name: inspect.signature(thing)}
        if isinstance(thing, type):
            for method, function in inspect.getmembers(thing, callable):
                if not method.startswith("_"):
                    found[f"{name}.{method}"] = inspect.signature(function)
        for call, signature in found.items():
            for parameter in signature.parameters.values():
                if parameter.name != "self":
                    yield from ((call, each) for each in spelled_out(parameter))


def spelled_out(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Names under which an argument is given: each key too, of keyword arguments that are typed."""
    keys = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
    if keys is None:
        return (parameter.name,)
    return parameter.name, *getattr(filters, keys[1]).__annotations__


PUBLIC = list(dict.fromkeys(public_parameters()))
EXEMPT |= {part: TEST_HELPER for part in PUBLIC if part[0].startswith("testing.")}
MODULES = [
    import_module(f"{__package__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if path.name not in (Path(__file__).name, "test_files.py")  # which has no rows, but files
]
ROWS = [row for module in MODULES for row in module.ROWS]
COVERED = {(row.call, row.parameter) for row in ROWS}


def is_settled(call: str, parameter: str, covered: set[tuple[str, str]]) -> bool:
    """Tell whether an argument has rows or a reason to have none, and not both."""
    if call in RECORDS:
        return True
    return ((call, parameter) in covered) != ((call, parameter) in EXEMPT)


@pytest.mark.parametrize(("call", "parameter"), PUBLIC, ids=lambda part: part)
def test_every_parameter_is_covered(call, parameter):
    assert is_settled(call, parameter, COVERED)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_rows_left_out_are_noticed(module):
    left_out = {(row.call, row.parameter) for row in module.ROWS}
    unsettled = {part for part in PUBLIC if not is_settled(*part, COVERED - left_out)}
    assert unsettled == left_out


def test_an_argument_that_is_new_is_noticed():
    assert not is_settled("acceptance_bound", "unheard_of", COVERED)


def test_a_filter_that_is_new_is_noticed(monkeypatch):
    annotations = {**filters.FilterOptions.__annotations__, "typical_p": float}
    monkeypatch.setattr(filters.FilterOptions, "__annotations__", annotations)
    unsettled = {part for part in public_parameters() if not is_settled(*part, COVERED)}
    assert ("decoding.generate", "typical_p") in unsettled


def test_no_row_is_about_something_else():
    assert (COVERED | set(EXEMPT)) - set(PUBLIC) == set()


def test_ids_are_distinct():
    repeated = Counter(str(row) for row in ROWS) - Counter({str(row) for row in ROWS})
    assert sorted(repeated) == []
