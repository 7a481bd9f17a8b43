"""The seams stay closed: kinds of drafts, verifiers and filters are named where they are defined.

Whatever else has to do with them goes by what they state, so that a new one takes one file. A
product file that names one all the same is on a list here, with the reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import grimp
import networkx as nx
import pytest

import mdsd
from mdsd.drafts import built_in as drafts
from mdsd.verifiers import built_in as verifiers

from . import commands, own_kinds
from .plugins import install, run

PRODUCT = Path(commands.PACKAGES, "mdsd")
SOURCES = {
    path.relative_to(PRODUCT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PRODUCT.rglob("*.py"))
}


@dataclass(frozen=True)
class Seam:
    """Words that few files may hold.

    Attributes
    ----------
    identifiers : collection of str
        Words that they may not hold as the name of something.
    strings : collection of str
        Further ones that they may not hold as a string.
    allowed : mapping of str to str
        Patterns of files, and why they may hold these words.
    waiting : mapping of str to int
        Files that hold them still, and how often: no more than that.
    """

    identifiers: Collection[str]
    strings: Collection[str]
    allowed: Mapping[str, str]
    waiting: Mapping[str, int]

    def excess(self, sources: Mapping[str, str]) -> dict[str, list[str]]:
        """Find the files that name more than they may, and the words."""
        found = {file: self.named_in(text) for file, text in sources.items()}
        return {
            file: sorted(words)
            for file, words in found.items()
            if not any(fnmatch(file, pattern) for pattern in self.allowed)
            and words.total() > self.waiting.get(file, 0)
        }

    def idle(self, sources: Mapping[str, str]) -> list[str]:
        """Find the patterns of `allowed` that no file has need of."""
        named = [file for file, text in sources.items() if self.named_in(text)]
        return [
            pattern for pattern in self.allowed if not any(fnmatch(file, pattern) for file in named)
        ]

    def named_in(self, source: str) -> Counter[str]:
        """Count the words in a module, but for docstrings and the defaults of signatures."""
        names, strings = said_in(source)
        found = Counter(word for word in names if word in self.identifiers)
        found.update(word for word in strings if word in {*self.identifiers, *self.strings})
        return found


def said_in(source: str) -> tuple[list[str], list[str]]:
    """Give the identifiers of a module and its strings, as a whole."""
    tree = ast.parse(source)
    passed_over = {id(node) for each in _not_counted(tree) for node in ast.walk(each)}
    names: list[str | None] = []
    strings = []
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node.value)
        elif isinstance(node, ast.alias):
            names.append(node.name.split(".")[-1])
        else:
            names += [getattr(node, field, None) for field in ("id", "attr", "arg")]
    return [name for name in names if name is not None], strings


def _not_counted(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node
        elif isinstance(node, ast.arguments):
            yield from (each for each in (*node.defaults, *node.kw_defaults) if each is not None)


DRAFTS = Seam(
    identifiers=drafts.__all__,
    # "top_k" is the name of a filter too.
    strings={*mdsd.drafts.draft_names(), mdsd.ExplicitDraft.name} - {"top_k"},
    allowed={
        "drafts/*": "where they are defined",
        "verifiers/*": "a verifier states which laws it knows",
        "engines/*": "a rule states which drafts engines use it with",
        "batch/_rules.py": "the table of compiled rules",
        "batch/bounds.py": "the one bound that is computed on devices",
        "intervals/interval.py": "the table of kinds that have an interval",
        "intervals/independent.py": "the interval of one kind",
        "decoding/gumbel.py": "the drafts that are drawn by the noise of the output",
        "decoding/layers.py": "a layer of a tree is one draft",
        "decoding/layouts/_chain.py": "a single token: all draws of one are alike",
        "decoding/layouts/_inputs.py": "a single token that does not matter",
        "decoding/layouts/_kinds.py": "as what tokens are known that were chosen, not drawn",
        "decoding/economize.py": "the two ways in which that package draws siblings",
        "testing/_instances.py": "laws listed at random, which are of no kind",
        "testing/_strategies.py": "laws listed at random, which are of no kind",
        "warmup.py": "calls that reach every kernel",
        "studies/decoding/cases.py": "the plain draw of a chain",
        "studies/decoding/decoder_settings.py": "a default",
        "studies/grid/report/findings.py": "a finding about two kinds",
        "studies/planning/acceptance.py": "a default",
    },
    waiting={},
)
VERIFIERS = Seam(
    identifiers=verifiers.__all__,
    # Those with the name of their draft are left to the seam above; "optimal" means more than one.
    strings={*mdsd.verifier_names()} - {"optimal", "greedy", "spechub"},
    allowed={
        "verifiers/*": "where they are defined",
        "batch/_rules.py": "the table of compiled rules",
        "batch/_threads.py": "the one verifier whose plans are for threads",
        "batch/acceptance.py": "options of the one whose rate is estimated",
        "engines/lossless.py": "which verifiers engines have",
        "engines/thresholds.py": "a threshold for a single draft, which is no verifier",
        "decoding/decoder.py": "the one verifier of the scheme of Yin et al.",
        "decoding/levels.py": "drafts left over that the verifier does not support",
        "decoding/selection.py": "derived from the optimal verifier",
        "decoding/layouts/_chain.py": "the rule of chains",
        "decoding/layouts/_inputs.py": "a draw from the target",
        "decoding/layouts/_kinds.py": "verifiers taken where none is named",
        "decoding/layouts/_steps.py": "a check of what was drafted",
        "decoding/economize.py": "names in that package",
        "studies/decoding/cases.py": "verifiers of chains, and of the scheme of Yin et al.",
        "studies/decoding/decoder_settings.py": "a default",
        "studies/decoding/drawn_trees.py": "the rules that others are compared with",
        "studies/planning/acceptance.py": "the rule whose acceptance by rank is measured",
        "studies/planning/search.py": "the rule whose best tree a search begins with",
    },
    waiting={},
)
FILTERS = Seam(
    identifiers={"top_p"},
    strings=(),
    allowed={"filters.py": "where they are defined"},
    waiting={},
)
SEAMS = {"drafts": DRAFTS, "verifiers": VERIFIERS, "filters": FILTERS}


@pytest.mark.parametrize("seam", SEAMS)
def test_nothing_else_is_named(seam):
    assert SEAMS[seam].excess(SOURCES) == {}


@pytest.mark.parametrize("seam", SEAMS)
def test_every_exception_is_needed(seam):
    assert SEAMS[seam].idle(SOURCES) == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from mdsd.drafts import GreedyDraft", 1),
        ("import mdsd.drafts.GreedyDraft as g", 1),
        ("mdsd.GreedyDraft(q, 2)", 1),
        ("if isinstance(draft, (GreedyDraft, TopKDraft)): pass", 2),
        ("if kind.name == 'greedy': pass", 1),
        ("WORDS = {'greedy': 1}", 1),
        ("find(draft='greedy')", 1),
        ("'''Greedy: greedy.'''\ndef f():\n    'greedy'\n", 0),
        ("def f(draft='greedy', *, other=GreedyDraft): pass", 0),
        ("def f(draft='greedy'):\n    return draft == 'greedy'", 1),
        ("text = 'the greedy draft'", 0),
        ("greedy = drafts.greedy", 0),
    ],
)
def test_names_are_found(source, count):
    assert DRAFTS.named_in(source).total() == count


@pytest.mark.parametrize(
    ("seam", "file", "line"),
    [
        ("drafts", "cli.py", "if draft == 'without_replacement': pass"),
        ("drafts", "studies/rows.py", "from mdsd.drafts import HybridDraft"),
        ("verifiers", "studies/rows.py", "from mdsd.verifiers import KSeqVerifier"),
        ("verifiers", "batch/bounds.py", "verifier = 'rrs'"),
        ("filters", "decoding/decoder.py", "def f(*, top_p: float = 1.0): pass"),
        ("filters", "cli.py", "options['top_p']"),
    ],
)
def test_a_seam_that_opens_is_noticed(seam, file, line):
    assert list(SEAMS[seam].excess({file: line})) == [file]


@pytest.mark.parametrize(("line", "files"), [("row.top_p", []), ("a.top_p, b.top_p", ["rows.py"])])
def test_what_waits_may_only_shrink(line, files):
    assert list(Seam({"top_p"}, (), {}, {"rows.py": 1}).excess({"rows.py": line})) == files


def test_an_exception_that_nothing_needs_is_noticed():
    seam = Seam({"top_p"}, (), {"filters.py": "where they are defined", "errors.py": ""}, {})
    assert seam.idle(SOURCES) == ["errors.py"]


# --- a kind of another package -----------------------------------------------------------------

KIND = "sharpened:2"
"""That of `own_kinds.SharpenedDraft` whose law is that of draws with replacement from q**2."""

SETTING = f"""
import numpy as np, mdsd
from mdsd.decoding import TableModel, generate
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened
KIND = {KIND!r}
rng = np.random.default_rng(0)
p, q = rng.dirichlet(np.ones(4), size=(2, 3))
squared = q**2 / (q**2).sum(axis=1, keepdims=True)
def same(found, right):
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-9)
"""
USES = {
    "names": "assert {*mdsd.drafts.draft_names()} >= {'sharpened', 'hub_pair', 'leader'}",
    "label": "assert mdsd.drafts.read_kind(KIND).label == KIND",
    "bounds": """
found = mdsd.acceptance_bounds(p, q, draft=KIND, num_drafts=2)
same(found, mdsd.acceptance_bounds(p, squared, num_drafts=2))
""",
    "rates": """
for verifier in ("naive", "optimal"):
    options = {"num_drafts": 2, "verifier": verifier}
    found = mdsd.acceptance_rates(p, q, draft=KIND, **options)
    same(found, mdsd.acceptance_rates(p, squared, draft="with_replacement", **options))
""",
    "batch": """
ids, numbers = np.array([[0, 1], [2, 2], [3, 0]]), rng.random((3, 1))
options = {"verifier": "naive", "uniforms": numbers}
found = mdsd.verify_batch(p, q, ids, draft=KIND, **options)
right = mdsd.verify_batch(p, squared, ids, draft="with_replacement", **options)
assert found.token_ids.tolist() == right.token_ids.tolist()
""",
    "generate": """
models = [TableModel(rng.dirichlet(np.ones(2), size=2)) for _ in "td"]
for verifier in ("rrs", "optimal", "block", "traversal"):
    options = {"draft": KIND, "verifier": verifier, "tree": [2, 1]}
    assert len(generate(*models, [0], max_new_tokens=5, rng=0, **options).token_ids) == 5
    law = mdsd.testing.sequence_law(*models, [0], 2, **options)
    table = np.exp(models[0].logits([[0], [1]]))
    for (a, b), prob in law.items():
        np.testing.assert_allclose(prob, table[0, a] * table[a, b], rtol=0, atol=1e-12)
""",
    "testing": """
for kind in ("sharpened:2", "each_sharpened", "hub_pair", "leader"):
    assert any(each.label == kind for each in mdsd.drafts.registry.example_kinds(2))
for verifier in ("naive", "rrs", "optimal"):
    mdsd.testing.check_verifier(mdsd.get_verifier(verifier), count=2)
""",
    "flashinfer": """
given = {"draft_token_ids": [[1]], "target_probs": p[np.newaxis, :2], "uniforms": [[0.9, 0.4]]}
found = flashinfer_chain(q[np.newaxis, :1], draft=KIND, **given)
right = flashinfer_chain(squared[np.newaxis, :1], **given)
assert found.token_ids.tolist() == right.token_ids.tolist()
""",
    "vllm": """
found = vllm_flattened([1], [1], q[:1], p[:1], [2], draft=KIND, uniforms=[0.9, 0.4])
right = vllm_flattened([1], [1], squared[:1], p[:1], [2], uniforms=[0.9, 0.4])
assert found.token_ids.tolist() == right.token_ids.tolist()
""",
    "eagle": """
numbers = rng.random((2, 3))
given = {"target_probs": p, "verifier": "rrs", "uniforms": numbers}
tree = [0, 1, 3], [[0, 1], [0, 2]]
found = eagle_tree(*tree, q, draft=KIND, **given)
right = eagle_tree(*tree, squared, draft="with_replacement", **given)
assert (found.token_id, found.accepted) == (right.token_id, right.accepted)
same(found.next_token_probs, right.next_token_probs)
""",
    "sglang": """
given = {
    "candidates": [[0, 1, 3]], "retrive_index": [[0, 1, 2]],
    "retrive_next_token": [[1, -1, -1]], "retrive_next_sibling": [[-1, 2, -1]],
    "target_probs": p[np.newaxis], "verifier": "rrs", "uniforms": rng.random((1, 2, 3)),
}
found = sglang_tree(draft_probs=q[np.newaxis], draft=KIND, **given)
right = sglang_tree(draft_probs=squared[np.newaxis], draft="with_replacement", **given)
assert found.token_ids.tolist() == right.token_ids.tolist()
""",
}


def use(folder, code):
    """Run uses of the kind in a process of its own; say which of them went wrong, and how."""
    return run(f"{SETTING}\n{code}", folder)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    body = Path(own_kinds.__file__).read_text(encoding="utf-8")
    names = "SharpenedDraft", "EachSharpenedDraft", "HubPairDraft", "LeaderDraft"
    classes = [getattr(own_kinds, name) for name in names]
    entries = "\n".join(f"{each.name} = plugged:{each.__name__}" for each in classes)
    install(folder, "plugged", body, "mdsd.drafts", entries)
    return folder


def test_a_kind_of_another_package_works_everywhere(package):
    code = "".join(f"\n{use}\nprint({name!r})\n" for name, use in USES.items())
    done = use(package, code)
    assert (done.returncode, done.stdout.split()) == (0, list(USES)), done.stderr


@pytest.mark.parametrize("name", ["bounds", "rates", "generate", "vllm"])
def test_without_the_package_there_is_no_such_kind(tmp_path, name):
    done = use(tmp_path, USES[name])
    assert done.returncode == 1
    assert "draft is 'sharpened" in done.stderr


def test_a_law_that_is_another_is_noticed(package):
    done = use(package, "squared = q\n" + USES["bounds"])
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


@pytest.mark.parametrize(
    ("body", "entry", "reason"),
    [
        ("raise RuntimeError('broken inside')", "bad = plugged:Mine", "broken inside"),
        ("from mdsd import NaiveVerifier as Mine", "bad = plugged:Mine", "not a subclass"),
        ("from mdsd import GreedyDraft as Mine", "top_k = plugged:Mine", "is taken"),
        ("from mdsd import GreedyDraft as Mine", "bad = plugged:Mine", "name is 'greedy'"),
    ],
    ids=["raises", "not-a-draft", "name-taken", "other-name"],
)
def test_broken_kinds_of_other_packages_warn(tmp_path, body, entry, reason):
    install(tmp_path, "plugged", body, "mdsd.drafts", entry)
    done = run("import mdsd; print(*mdsd.drafts.draft_names())", tmp_path)
    assert done.stdout.split() == list(mdsd.drafts.draft_names())
    assert "RuntimeWarning" in done.stderr
    assert reason in done.stderr


STUDIES = """
from mdsd import datasets, studies
from mdsd.filters import Filters
data = datasets.load("smollm2")
options = {"drafts": [KIND], "num_drafts": [2], "verifiers": ["naive", "optimal"], "positions": 4}
target = Filters().of_table(data.target_table[:4], data.target_kind)
model = next(iter(data.draft_tables))
drafted = Filters().of_table(data.draft_tables[model][:4], data.draft_kind)
bound = mdsd.acceptance_bounds(target, drafted, draft=KIND, num_drafts=2).mean()
means = {
    name: mdsd.acceptance_rates(target, drafted, draft=KIND, num_drafts=2, verifier=name).mean()
    for name in ("naive", "optimal")
}
"""
STUDY_USES = {
    "compare": """
rows = studies.compare(data, **options)
assert {row.draft for row in rows} == {KIND}
near([row.acceptance for row in rows], [means[row.verifier] for row in rows])
near([row.bound for row in rows], bound)
assert {row.verifier for row in rows} == set(means)
""",
    "study": """
rows = studies.study(data, **options)
assert {row.draft for row in rows} == {KIND}
near([row.acceptance for row in rows], [means[row.verifier] for row in rows])
for row in rows:
    lost = row.lost_to_model + row.lost_to_construction + row.lost_to_verifier
    near(lost + row.acceptance, 1.0)
""",
}
NEAR = """
def near(found, right):
    assert np.allclose(found, right, rtol=0, atol=5e-4), (found, right)  # searches stop at 2e-4
"""


def test_studies_take_a_kind_of_another_package(package):
    code = "".join(f"\n{use}\nprint({name!r})\n" for name, use in STUDY_USES.items())
    done = use(package, NEAR + STUDIES + code)
    assert (done.returncode, done.stdout.split()) == (0, list(STUDY_USES)), done.stderr


def cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    graph = nx.DiGraph([(name, other) for name, others in imports.items() for other in others])
    return [found for found in nx.strongly_connected_components(graph) if len(found) > 1]


def test_no_module_imports_itself_on_a_way_round():
    built = grimp.build_graph("mdsd", cache_dir=None)
    imports = {name: built.find_modules_directly_imported_by(name) for name in built.modules}
    assert len(imports) > 200
    assert cycles(imports) == []


def test_a_way_round_is_noticed():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
