"""Expected accepted tokens of whole trees of a real target, SmolLM2-135M, by verifier.

A script in three parts: `draw` draws trees with the decoders of this library and keeps each in a
folder of its own choosing, `evaluate` has verifiers say what they expect to accept of them, and
`report` lays out means and paired differences. All verifiers see the same trees, whose expected
accepted tokens are exact given the tree, so a few hundred of them tell verifiers apart. The models
come from `tools/smollm2_models.py`::

    python tools/smollm2_models.py models
    python benchmarks/bench_trees.py draw trees --models models --count 200
    python benchmarks/bench_trees.py evaluate trees
    python benchmarks/bench_trees.py report trees --results benchmarks/RESULTS_TREES.md

What has been drawn or evaluated already is not done again; remove a file to have it made anew.
`--cells` shares the work between processes. A tree takes 5 to 7 MB. Where other processes keep the
cores busy, set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from mdsd import datasets
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import Decoder, make_decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.growing import GrowingTree
from mdsd.decoding.preference import worth_below
from mdsd.decoding.rows import Row
from mdsd.decoding.sampling import FilteredRows, Sampling
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.verification import step_verification
from mdsd.drafts import read_kind
from mdsd.filters import Filters
from mdsd.studies.decoding.models import TextModels, load_models
from mdsd.studies.planning.acceptance import measured_acceptance, measuring_settings
from mdsd.studies.planning.trees import PlanLimits, planned_tree
from mdsd.trees import TreeShape

TREES = {
    "321": "3,2,1",
    "plan16": "16, planned for rrs",
    "optimal16": "16, planned for optimal",
    "grow16": "16, growing",
}
"""Trees, and what to call them."""

GROWN_DEPTH = 8

DRAFTS = ("without_replacement", "with_replacement")
TEMPERATURES = (0.6, 1.0)
VERIFIERS = ("rrs", "optimal", "block", "traversal", "layers")
COMPARED = (("layers", "block"), ("layers", "rrs"), ("layers", "optimal"))

PROMPT_TOKENS = (16, 96)
"""Least and most tokens of a prompt's text before the target goes on by itself."""

CONTINUED = 16
"""Tokens the target has sampled when a tree is drawn, so that contexts are its own."""


@dataclass(frozen=True)
class Cell:
    """What is drafted, and how tokens are drawn.

    Attributes
    ----------
    tree : str
        One of `TREES`.
    draft : str
        Name of a draft distribution.
    temperature : float
    """

    tree: str
    draft: str
    temperature: float

    @property
    def name(self) -> str:
        return f"{self.tree}-{self.draft}-{self.temperature:g}"

    def shape(self) -> TreeShape | GrowingTree:
        """Give the tree that is drafted; that of 16 as `mdsd plan-tree` plans it."""
        if self.tree == "321":
            return TreeShape.from_branching([3, 2, 1])
        if self.tree == "grow16":
            return GrowingTree(budget=16, depth=GROWN_DEPTH, ordered=False)
        data = datasets.open_source("smollm2")
        settings = measuring_settings(
            data,
            draft=self.draft,
            draft_model="drop2",
            temperature=self.temperature,
            verifier="optimal" if self.tree == "optimal16" else "rrs",
        )
        return planned_tree(measured_acceptance(data, settings), PlanLimits(budget=16)).plan.tree


def all_cells() -> tuple[Cell, ...]:
    return tuple(Cell(*found) for found in product(TREES, DRAFTS, TEMPERATURES))


# --- drawing -------------------------------------------------------------------------------------


class Recorded:
    """A model that keeps its last answers, by prefix.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Any) -> None:
        self._model, self.vocab_size = model, model.vocab_size
        self.answers: dict[tuple[int, ...], Any] = {}

    def logits(self, prefixes: list[list[int]]) -> Any:
        found = self._model.logits(prefixes)
        self.answers.update(zip(map(tuple, prefixes), found, strict=True))
        return found

    def rows(self, prefixes: Iterable[list[int]]) -> Any:
        """Give the answers, (B, V), to prefixes that have been asked about."""
        return np.stack([self.answers[tuple(prefix)] for prefix in prefixes])


def fresh_prompts(models: Path) -> list[str]:
    """Read every second prompt, the half that no rule has been fitted on."""
    lines = (models / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[1::2]]


def context(
    models: TextModels, prompts: Sequence[list[int]], index: int, temperature: float
) -> Any:
    """Give a prefix of a prompt and what the target has sampled after it."""
    rng = np.random.default_rng([index, round(1000 * temperature)])
    prompt = prompts[index % len(prompts)]
    least, most = PROMPT_TOKENS
    found = list(prompt[: rng.integers(least, min(most, len(prompt)) + 1)])
    sampling, choices = Sampling(Filters(temperature)), RandomChoices(rng)
    for _ in range(CONTINUED):
        probs = sampling.probs([found], models.target.logits([found]), "target")
        found.append(choices.token(probs[0]))
    return found


def draw(options: argparse.Namespace) -> None:
    """Draw trees for all cells, the same numbers of each before the next."""
    import torch

    torch.set_num_threads(1)
    models = load_models(options.models / "target", [options.models / "drop2"])
    target, draft_model = Recorded(models.target), Recorded(models.draft_models[0])
    prompts = [models.encode(text) for text in fresh_prompts(options.models)]
    decoders = {}
    for cell in options.cells:
        folder = options.cache / cell.name
        folder.mkdir(parents=True, exist_ok=True)
        decoders[cell] = make_decoder(
            target,
            draft_model,
            draft=cell.draft,
            tree=cell.shape(),
            temperature=cell.temperature,
        )
        print(cell.name, decoders[cell].shape, flush=True)
    begin, done = time.perf_counter(), 0
    for index in range(options.count):
        for temperature in sorted({cell.temperature for cell in options.cells}):
            paths = {
                cell: options.cache / cell.name / f"{index:05}.npz"
                for cell in options.cells
                if cell.temperature == temperature
            }
            missing = {cell: path for cell, path in paths.items() if not path.exists()}
            if not missing:
                continue
            prefix = context(models, prompts, index, temperature)
            for cell, path in missing.items():
                rng = np.random.default_rng([crc32(cell.name.encode()), index])
                draw_one(decoders[cell], prefix, rng, path, (target, draft_model))
                done += 1
        if index % 10 == 9 and done:
            seconds = time.perf_counter() - begin
            print(f"{index + 1} of each: {seconds / done:.2f} s a tree", flush=True)


def draw_one(
    decoder: Decoder,
    prefix: list[int],
    rng: np.random.Generator,
    path: Path,
    recorded: tuple[Recorded, Recorded],
) -> None:
    """Draw one tree and write it: its tokens, and the logits that both models gave."""
    target, draft_model = recorded
    for model in recorded:
        model.answers.clear()
    (drafting,) = decoder.draw([Row(prefix, decoder.shape.depth + 1, RandomChoices(rng))])
    (tree,) = decoder.score([drafting])
    inner = [node for node, law in enumerate(tree.laws) if law is not None]
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        np.savez(
            file,
            prefix=prefix,
            parents=tree.shape.parents,
            token_ids=tree.token_ids,
            target_logits=target.rows(drafting.paths),
            draft_logits=draft_model.rows(drafting.paths[node] for node in inner),
        )
    os.replace(partial, path)


def read_tree(cell: Cell, path: Path) -> DraftedTree:
    """Read a tree that was drawn, with laws made from the very logits it was drawn from."""
    with np.load(path) as found:
        arrays = dict(found)
    shape = TreeShape(tuple(arrays["parents"].tolist()))
    prefix, token_ids = arrays["prefix"].tolist(), arrays["token_ids"]
    paths = [
        prefix + token_ids[list(shape.path(node))].tolist() for node in range(shape.num_nodes + 1)
    ]
    sampling, kind = Sampling(Filters(cell.temperature)), read_kind(cell.draft)
    draft_probs = iter(sampling.filters.of_logits(arrays["draft_logits"]))
    laws = tuple(
        kind.make_at_most(next(draft_probs), len(shape.children(node)))
        if len(shape.children(node))
        else None
        for node in range(shape.num_nodes + 1)
    )
    return DraftedTree(
        shape,
        token_ids,
        laws,
        FilteredRows(sampling, paths, arrays["target_logits"], "target"),
        # At a full vocabulary every node has the children that were planned for it.
        None if cell.tree == "grow16" else worth_below(shape),
    )


# --- evaluating ----------------------------------------------------------------------------------


def evaluate(options: argparse.Namespace) -> None:
    """Have each verifier say what it expects to accept of each tree, and time some of them."""
    verifications = {name: step_verification(name) for name in options.verifiers}
    begin = time.perf_counter()
    for cell in options.cells:
        folder = options.cache / cell.name
        known = {name: read_results(folder, name) for name in verifications}
        warm = set()
        for path in sorted(folder.glob("*.npz"))[: options.count]:
            index = int(path.stem)
            missing = [name for name in verifications if index not in known[name]]
            if not missing:
                continue
            shared = read_tree(cell, path)  # so that those who need the same lotteries find them
            for name in missing:
                verification = verifications[name]
                accepted = verification.accepted_by_depth(shared).tolist()
                seconds = None
                if index < options.timed:
                    if name not in warm:  # compiles
                        verification(read_tree(cell, path), RandomChoices(index))
                        warm.add(name)
                    seconds = one_verification(verification, read_tree(cell, path), index)
                line = {"index": index, "seconds": seconds, "accepted": accepted}
                with results_file(folder, name).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        print(f"{cell.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


def one_verification(verification: StepVerification, tree: DraftedTree, seed: int) -> float:
    """Time a verification of a tree that nothing has been asked about, from logits to tokens.

    In seconds of the processor: other processes on the machine do not count.
    """
    choices = RandomChoices(seed)
    start = time.process_time()
    verification(tree, choices)
    return time.process_time() - start


def results_file(folder: Path, verifier: str) -> Path:
    return folder / f"{verifier}.jsonl"


def read_results(folder: Path, verifier: str) -> dict[int, dict[str, Any]]:
    """Read what is known of a verifier, by number of the tree."""
    path = results_file(folder, verifier)
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {line["index"]: line for line in lines}


# --- reporting -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """Results of a cell, for the trees that all verifiers have seen.

    Attributes
    ----------
    cell : Cell
    accepted : dict of ndarray, shape (number of trees, D)
        By verifier: the chance that at least so many tokens are accepted.
    seconds : dict of float
        By verifier: median of those that were timed, of the processor.
    """

    cell: Cell
    accepted: dict[str, Any]
    seconds: dict[str, float]

    @property
    def count(self) -> int:
        return len(next(iter(self.accepted.values())))

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Mean paired difference in accepted tokens, its standard error, and share of the other."""
        totals = [self.accepted[name].sum(axis=1) for name in (one, other)]
        mean, stderr = mean_and_stderr(totals[0] - totals[1])
        return mean, stderr, mean / float(totals[1].mean())


def padded(rows: Iterable[Sequence[float]]) -> Any:
    """Put rows one below the other; trees that grow differ in depth."""
    return np.array(list(zip_longest(*rows, fillvalue=0.0))).T


def mean_and_stderr(values: Any) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def find_results(options: argparse.Namespace) -> Iterator[Found]:
    """Read the results of each cell, as far as all verifiers have them."""
    for cell in options.cells:
        by_verifier = {
            name: read_results(options.cache / cell.name, name) for name in options.verifiers
        }
        known = {name: found for name, found in by_verifier.items() if found}
        common = sorted(set.intersection(*map(set, known.values()))) if known else []
        if len(common) < 2:
            continue
        yield Found(
            cell,
            {n: padded(found[i]["accepted"] for i in common) for n, found in known.items()},
            {
                n: float(np.median(times))
                for n, found in known.items()
                if (times := [found[i]["seconds"] for i in common if found[i]["seconds"]])
            },
        )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def row_name(cell: Cell) -> list[str]:
    tree = TREES[cell.tree]
    return [tree, cell.draft, f"{cell.temperature:g}"]


NAMES = ("tree", "draft distribution", "T")


def section(options: argparse.Namespace) -> list[str]:
    """Lay out all tables."""
    found = list(find_results(options))
    verifiers = [name for name in options.verifiers if any(name in f.accepted for f in found)]
    lines = ["## Accepted tokens of a drawn tree, SmolLM2-135M", "", *_ABOUT.splitlines(), ""]
    rows = []
    for each in found:
        cells = [
            "{:.3f} ± {:.3f}".format(*mean_and_stderr(each.accepted[name].sum(axis=1)))
            if name in each.accepted
            else ""
            for name in verifiers
        ]
        rows.append([*row_name(each.cell), str(each.count), *cells])
    lines += table([*NAMES, "trees", *verifiers], rows)
    pairs = [pair for pair in COMPARED if set(pair) <= set(verifiers)]
    if pairs:
        lines += ["", "### Paired differences", ""]
        lines += table(
            [*NAMES, *(f"{one} - {other}" for one, other in pairs)],
            [
                [*row_name(each.cell), *(difference_cell(each, *pair) for pair in pairs)]
                for each in found
            ],
        )
        lines.append("")
        for one, other in pairs:
            gains = [each.difference(one, other) for each in found if one in each.accepted]
            above = sum(mean > 0.0 for mean, _, _ in gains)
            share = np.mean([gain for _, _, gain in gains])
            lines.append(
                f"- {one} is above {other} in {above} of {len(gains)} rows, by {share:.1%} on "
                "average."
            )
    lines += ["", "### By depth", "", "The chance that at least d tokens are accepted.", ""]
    deepest = max((f.accepted[n].shape[1] for f in found for n in f.accepted), default=0)
    lines += table(
        [*NAMES, "verifier", *(f"d = {d}" for d in range(1, deepest + 1))],
        [
            [*row_name(each.cell), name, *depth_cells(values.mean(axis=0), deepest)]
            for each in found
            for name, values in each.accepted.items()
        ],
    )
    lines += ["", "### Verification of one step, ms of the processor (median)", ""]
    lines += table(
        [*NAMES, *verifiers],
        [
            [
                *row_name(each.cell),
                *(f"{1e3 * each.seconds[n]:.1f}" if n in each.seconds else "" for n in verifiers),
            ]
            for each in found
            if each.seconds
        ],
    )
    return lines


def difference_cell(found: Found, one: str, other: str) -> str:
    if not {one, other} <= set(found.accepted):
        return ""
    return "{:+.3f} ± {:.3f} ({:+.1%})".format(*found.difference(one, other))


def depth_cells(means: Any, deepest: int) -> list[str]:
    return [*(f"{value:.3f}" for value in means), *[""] * (deepest - len(means))]


_ABOUT = f"""\
Expected accepted tokens of a step, exact given the tree, over drawn trees, with standard errors
over trees; all verifiers on the same trees. V = 49,152. The draft is the target without two of its
30 layers. A tree is drawn after a prefix of a prompt and {CONTINUED} tokens of the target's own.
Trees of 16 are planned from acceptances on the embedded positions, for each draft distribution and
temperature, as `mdsd plan-tree --verifier` does; or they grow (`GrowingTree`, depth {GROWN_DEPTH}).
"""


def report(options: argparse.Namespace) -> None:
    """Print the tables, or write them."""
    text = "\n".join(section(options)) + "\n"
    print(text, end="")
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = parser.add_subparsers(required=True, metavar="part")
    names = {cell.name: cell for cell in all_cells()}
    for run in (draw, evaluate, report):
        part = parts.add_parser(run.__name__, help=(run.__doc__ or "").splitlines()[0])
        part.set_defaults(run=run)
        part.add_argument("cache", type=Path, help="folder of drawn trees and results")
        part.add_argument(
            "--cells", nargs="+", choices=names, default=list(names), metavar="CELL",
            help=f"of {', '.join(names)}",
        )  # fmt: skip
        if run is draw:
            part.add_argument("--models", type=Path, required=True, help="of smollm2_models.py")
        else:
            part.add_argument("--verifiers", nargs="+", default=list(VERIFIERS))
        if run is report:
            part.add_argument("--results", type=Path, help="write the section to a markdown file")
        else:
            part.add_argument("--count", type=int, default=200, help="trees of each cell")
        if run is evaluate:
            part.add_argument("--timed", type=int, default=40, help="trees to time, of each cell")
    options = parser.parse_args(arguments)
    options.cells = [names[name] for name in options.cells]
    options.run(options)


if __name__ == "__main__":
    main()
