"""A bare installation: what works without the libraries of extras, and what names them."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import mdsd
from mdsd import datasets, studies
from mdsd._extras import EXTRAS
from mdsd.errors import UnsupportedError

from ..commands import assert_refused, run
from ..plugins import run as run_code

OPTIONAL = (
    *("matplotlib", "PIL", "pyarrow", "joblib", "jinja2", "pandas", "polars"),
    *(
        "ortools",
        "torch",
        "transformers",
        "gguf",
        "llama_cpp",
        "accelerate",
        "distributed",
        "economize",
        "ot",
    ),
)
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FEW = "--num-drafts 2 --draft greedy --positions 1"


def test_bounds_verifiers_comparisons_and_decoders_work_bare():
    done = run_code(f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL!r}))
import mdsd
from mdsd.cli import main
p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
made = {{}}
few, single = mdsd.WithReplacement(q, 2), mdsd.WithReplacement(q, 1)
for draft in (few, single, mdsd.SpecHubDraft(q), mdsd.GreedyDraft(q, 2)):
    bound = mdsd.acceptance_bound(p, draft).value
    for name in mdsd.verifier_names():
        if mdsd.get_verifier(name).supports(draft):
            plan = mdsd.get_verifier(name).plan(p, draft)
            plan.verify(draft.sample(rng=0), rng=0)
            made[name] = plan.acceptance_rate <= bound + 1e-12
            plan._repr_html_()
assert made == dict.fromkeys(mdsd.verifier_names(), True), made
mdsd.verify_batch([p], [q], [[0, 1]], draft="with_replacement", verifier="rrs", rng=0)
table = mdsd.decoding.TableModel.from_logits([p, q, p])
mdsd.decoding.generate(table, table, [0], max_new_tokens=3, rng=0)
main("compare smollm2 {FEW}".split(), standalone_mode=False)
main("verifiers".split(), standalone_mode=False)
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"greedy +2 +[\d.]+", done.stdout)


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (f"compare smollm2 {FEW} --plot a.png", "matplotlib", "plot"),
        (f"bound smollm2 {FEW} --plot a.svg", "matplotlib", "plot"),
        (f"compare smollm2 {FEW} --output a.parquet", "pyarrow", "study"),
        ("plan-tree --acceptance 0.5 --plot a.pdf", "matplotlib", "plot"),
        ("simulate --runs 2 --output a", "matplotlib", "plot"),
        (f"study smollm2 {FEW}", "pyarrow", "study"),
        (f"study smollm2 {FEW} --plot a", "matplotlib", "plot"),
        ("capture a --positions 1", "pyarrow", "study"),
        ("report a", "pyarrow", "report"),
        ("decode --max-new-tokens 1 --output a.parquet", "pyarrow", "study"),
    ],
)
def test_a_command_names_the_extra_before_any_work(folder, monkeypatch, command, package, extra):
    block(monkeypatch)
    assert_refused(run(command), f"needs {package}: pip install 'mdsd[{extra}]'")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("call", ["study", "scheduler", "capture", "read", "write"])
def test_a_function_names_the_extra(tmp_path, monkeypatch, call):
    header = datasets.CaptureHeader("large", ("small",), 3, "77", 2, {})
    kept = tmp_path / "kept"
    datasets.CaptureWriter(kept, header)
    block(monkeypatch, *(("distributed",) if call == "scheduler" else ()))
    options = {"num_drafts": [2], "drafts": ["greedy"], "positions": 1}
    calls = {
        "study": lambda: studies.study("smollm2", **options),
        "scheduler": lambda: studies.study("smollm2", **options, scheduler="tcp://no:1"),
        "capture": lambda: studies.compare(kept),
        "read": lambda: datasets.read_capture(kept),
        "write": lambda: datasets.CaptureWriter(tmp_path / "new", header),
    }
    extra = "cluster" if call == "scheduler" else "study"
    with pytest.raises(UnsupportedError, match=rf"pip install 'mdsd\[{extra}\]'"):
        calls[call]()


def test_the_citation_is_of_this_version_and_licence():
    lines = (ROOT / "CITATION.cff").read_text().splitlines()
    assert {f"version: {mdsd.__version__}", f"license: {PROJECT['license']}"} <= set(lines)
    assert [line for line in lines if "://" in line and "arxiv.org" not in line] == []


def test_extras_are_those_of_the_distribution():
    listed = PROJECT["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found: set[str] = set()
        for each in listed[extra]:
            own = re.fullmatch(r"mdsd\[([\w,]+)\]", each)
            found |= set().union(*map(packages, own[1].split(","))) if own else {named(each)}
        return found

    for extra, names in EXTRAS.items():
        assert set(names) <= packages(extra)
    assert (
        set(map(named, PROJECT["dependencies"])) & set().union(*map(set, EXTRAS.values())) == set()
    )


def named(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def block(monkeypatch, *packages):
    for module in packages or OPTIONAL:
        monkeypatch.setitem(sys.modules, module, None)
