"""Expected accepted tokens of RheoSampling's trees beside those that grow here, on SmolLM2-135M.

A script: `draw` draws a tree of each row after the same texts and has its verifiers say what they
expect to accept of it, exactly given the tree; `report` lays out means and paired differences. The
models come from `tools/smollm2_models.py`::

    python tools/smollm2_models.py models
    python -m benchmarks.bench_rheo draw rheo.jsonl --models models --count 100
    python -m benchmarks.bench_rheo report rheo.jsonl --results benchmarks/RESULTS_RHEO.md

`--temperatures` shares the work between processes, each with a file of its own; `report` takes
several. Where other processes keep the cores busy, set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_trees import Recorded, context, fresh_prompts, mean_and_stderr, table
from benchmarks.rheo_trees import RheoTrees, RheoVerification
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.growing import GrowingTree
from mdsd.decoding.rows import Row
from mdsd.decoding.sampling import FilteredRows, Sampling
from mdsd.decoding.verification import step_verification
from mdsd.filters import Filters
from mdsd.studies.decoding.models import folder_models

BUDGET, DEPTH, WIDTH = 16, 8, 10
TEMPERATURES = (0.6, 1.0)
CHOSEN = {
    "best-first, all chosen (EAGLE-2)": RheoTrees(BUDGET, DEPTH, WIDTH, num_top=None),
    "best-first, m = 1 (RheoSampling)": RheoTrees(BUDGET, DEPTH, WIDTH, num_top=1),
    "best-first, m = 0": RheoTrees(BUDGET, DEPTH, WIDTH, num_top=0),
}
GROWN = ("hybrid:1", "greedy", "without_replacement")
VERIFIERS = ("optimal", "layers")
BASE = ("best-first, all chosen (EAGLE-2)", "its own")


@dataclass
class Models:
    """A target and a draft model that keep their answers, and how tokens are drawn from both."""

    target: Recorded
    draft: Recorded
    sampling: Sampling

    def rheo_tree(self, rule: RheoTrees, prefix: list[int], choices: RandomChoices) -> DraftedTree:
        """Draw a tree of a rule."""

        def probs(path: tuple[int, ...]) -> Any:
            whole = [*prefix, *path]
            return self.sampling.probs([whole], self.draft.logits([whole]), "draft")[0]

        def target(paths: list[tuple[int, ...]]) -> FilteredRows:
            wholes = [[*prefix, *path] for path in paths]
            return FilteredRows(self.sampling, wholes, self.target.logits(wholes), "target")

        return rule.draw(probs, choices, prefix[-1], target)


def draw(options: argparse.Namespace) -> None:
    """Draw a tree of every row after each of some texts, and evaluate it."""
    import torch

    torch.set_num_threads(1)
    models = folder_models(options.models / "target", [options.models / "drop2"])
    target, draft = Recorded(models.target), Recorded(models.draft_models[0])
    prompts = [models.encode(text) for text in fresh_prompts(options.models)]
    own, others = RheoVerification(), {name: step_verification(name) for name in VERIFIERS}
    begin = time.perf_counter()
    for temperature in options.temperatures:
        here = Models(target, draft, Sampling(Filters(temperature)))
        grown = GrowingTree(BUDGET, DEPTH, ordered=False)
        decoders = {
            kind: make_decoder(
                target, draft, draft=kind, tree=grown, temperature=temperature, verifier="layers"
            )
            for kind in GROWN
        }
        for index in range(options.count):
            target.answers.clear()
            draft.answers.clear()
            prefix = context(models, prompts, index, temperature)
            lines = []
            for place, (name, rule) in enumerate(CHOSEN.items()):
                choices = RandomChoices(np.random.default_rng([place, index]))
                tree = here.rheo_tree(rule, prefix, choices)
                lines.append((name, "its own", own.accepted_by_depth(tree)))
            for place, (kind, decoder) in enumerate(decoders.items()):
                choices = RandomChoices(np.random.default_rng([len(CHOSEN) + place, index]))
                (drafting,) = decoder.draw([Row(prefix, DEPTH + 1, choices)])
                (tree,) = decoder.score([drafting])
                for verifier, verification in others.items():
                    accepted = verification.accepted_by_depth(tree)
                    lines.append((f"growing, {kind}", verifier, accepted))
            with options.file.open("a", encoding="utf-8") as file:
                for name, verifier, accepted in lines:
                    line = {
                        "temperature": temperature,
                        "index": index,
                        "tree": name,
                        "verifier": verifier,
                        "accepted": float(accepted.sum()),
                    }
                    file.write(json.dumps(line) + "\n")
            if index % 10 == 9:
                seconds = time.perf_counter() - begin
                print(f"{temperature:g}: {index + 1} texts, {seconds:.0f} s", flush=True)


def report(options: argparse.Namespace) -> None:
    """Print the tables, or write them."""
    lines = [
        json.loads(line)
        for path in options.files
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    text = "\n".join(section(lines)) + "\n"
    print(text, end="")
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


def section(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Lay out means, and differences to the trees whose tokens are all chosen."""
    found: dict[float, dict[tuple[str, str], dict[int, float]]] = {}
    for line in lines:
        rows = found.setdefault(line["temperature"], {})
        by_index = rows.setdefault((line["tree"], line["verifier"]), {})
        by_index[line["index"]] = line["accepted"]
    temperatures = sorted(found)
    rows = []
    for name in next(iter(found.values())):
        cells = []
        for temperature in temperatures:
            values, base = found[temperature][name], found[temperature][BASE]
            here = np.array([values[index] for index in sorted(base)])
            there = np.array([base[index] for index in sorted(base)])
            cells.append("{:.3f} ± {:.3f}".format(*mean_and_stderr(here)))
            cells.append(
                "" if name == BASE else "{:+.3f} ± {:.3f}".format(*mean_and_stderr(here - there))
            )
        rows.append([*name, *cells])
    head = [part for t in temperatures for part in (f"T = {t:g}", "difference")]
    counts = ", ".join(f"{len(found[t][BASE])} at T = {t:g}" for t in temperatures)
    return [
        "## Drawn tokens among chosen ones, SmolLM2-135M",
        "",
        *_ABOUT.format(counts=counts).splitlines(),
        "",
        *table(["tree", "verifier", *head], rows),
    ]


_ABOUT = f"""\
Expected accepted tokens of a step, exact given the tree, with standard errors over texts
({{counts}}); differences are paired, to the trees whose tokens are all chosen. At most {BUDGET}
drafts, {DEPTH} of them on a path. The draft is the target without two of its 30 layers. Best-first
trees (`benchmarks/rheo_trees.py`) have at most {WIDTH} children of a node and are ranked by draft
probabilities at the temperature; those that grow are of `GrowingTree`.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = parser.add_subparsers(required=True, metavar="part")
    drawing = parts.add_parser("draw", help=(draw.__doc__ or "").splitlines()[0])
    drawing.set_defaults(run=draw)
    drawing.add_argument("file", type=Path, help="lines of results are added to it")
    drawing.add_argument("--models", type=Path, required=True, help="of smollm2_models.py")
    drawing.add_argument("--count", type=int, default=100, help="texts")
    drawing.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    reporting = parts.add_parser("report", help=(report.__doc__ or "").splitlines()[0])
    reporting.set_defaults(run=report)
    reporting.add_argument("files", type=Path, nargs="+")
    reporting.add_argument("--results", type=Path, help="write the section to a markdown file")
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
