"""What optimal verification costs, in multiples of one sort of p/q in the same run.

A script: it prints a section of markdown, and writes it with ``--results``. A is
``numpy.argsort(target / draft)`` of the same row. Real rows come from an `.npz` file with logits
``target`` and ``draft``, (N, V) each; without one, from the embedded data set, whose rows are short
and padded. To make such a file, write models and prompts with `tools/smollm2_models.py`, give
``target`` and ``drop2`` the tokens of each prompt, and keep both models' logits at a few places;
that takes torch and transformers, and some minutes::

    python tools/smollm2_models.py models
    python benchmarks/bench_price.py positions positions.npz --models models
    python benchmarks/bench_price.py measure --positions positions.npz

What decoding with real models spends on verification is measured by `benchmarks/bench_decode.py`.
A plan and a verification of one row are timed in processor time of their thread; batches and
studies, which use all cores, by the clock on the wall, so that they need a machine with nothing
else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from bench_study import ROOT, TOKENS, study

import mdsd
from mdsd import datasets

CONFTEST: Any = import_module("conftest")  # whose fixtures have no types

DRAFTS: dict[str, Any] = {
    "with_replacement": mdsd.WithReplacement,
    "without_replacement": mdsd.WithoutReplacement,
}
NUM_DRAFTS = (3, 4)
PEAKED = 128_000
LIVE = 100
BATCH = (64, 32_000)
DRAFT_MODEL = "drop2"
IN_PROCESS = 256
"""Positions of a block, for what a study does without what is around it."""

PLACES = 10
"""Of each prompt, kept by `positions`."""


# --- real positions ------------------------------------------------------------------------------


def write_positions(options: argparse.Namespace) -> None:
    """Keep the logits of target and draft at some places of each prompt."""
    import torch

    from mdsd.studies.decoding.models import load_models

    models = load_models(options.models / "target", [options.models / DRAFT_MODEL])
    lines = (options.models / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    torch.set_num_threads(1)
    rng, kept = np.random.default_rng(0), []
    for line in lines:
        ids = models.encode(json.loads(line)["text"])
        ends = rng.choice(np.arange(8, len(ids)), min(PLACES, len(ids) - 8), replace=False)
        prefixes = [ids[:end] for end in np.sort(ends)]
        sides = (models.target, models.draft_models[0])
        kept.append([np.asarray(model.logits(prefixes), np.float32) for model in sides])
    target, draft = (np.concatenate(rows) for rows in zip(*kept, strict=True))
    np.savez(options.file, target=target, draft=draft)
    print(f"{options.file}: {len(target)} positions of {target.shape[1]:,} tokens")


Pair = tuple[Any, Any]
"""Target and draft probabilities of one row."""


def real_rows(positions: Path | None, count: int) -> list[Pair]:
    """Read rows, evenly spread over those there are."""
    if positions is None:
        data = datasets.load("smollm2")
        tables = data.target_table, data.draft_tables[DRAFT_MODEL]
    else:
        with np.load(positions) as found:
            tables = found["target"], found["draft"]
    places = np.linspace(0, len(tables[0]) - 1, min(count, len(tables[0]))).astype(int)
    sides = (mdsd.probs_from_logits(table[places]) for table in tables)
    return list(zip(*sides, strict=True))


def peaked_rows(count: int) -> list[Pair]:
    """Make rows at a large vocabulary, as the other benchmarks have them."""
    sides = CONFTEST.peaked_laws(np.random.default_rng(0), (count, PEAKED))
    return list(zip(*sides, strict=True))


def most_likely(pair: Pair, count: int) -> Pair:
    """Leave the target's most likely tokens to both sides, as a filter would."""
    kept = np.sort(np.argsort(-pair[0])[:count])
    cut = []
    for row in pair:
        probs = np.zeros(len(row))
        probs[kept] = row[kept] / row[kept].sum()
        cut.append(probs)
    return cut[0], cut[1]


# --- plans ---------------------------------------------------------------------------------------


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Median processor time of a call."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return float(np.median(times))


@dataclass
class Prices:
    """Times of plans with one verification each, and the gaps of the plans."""

    micro: list[float] = field(default_factory=list)
    sorts: list[float] = field(default_factory=list)
    rejected: list[bool] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def mean(self, values: Sequence[float], rejected: bool) -> float:
        found = [v for v, r in zip(values, self.rejected, strict=True) if r == rejected]
        return float(np.mean(found)) if found else float("nan")


def price(rows: Sequence[Pair], draft_type: Any, n: int, options: argparse.Namespace) -> Prices:
    """Plan and verify at each row, with several draws from its drafts."""
    verifier, found = mdsd.OptimalVerifier(effort="fast"), Prices()
    rng = np.random.default_rng(0)
    for warm, (target, draft_probs) in enumerate([rows[0], *rows]):
        draft = draft_type(draft_probs, n)
        if np.count_nonzero(draft_probs) < n:
            continue
        numbers = verifier.num_uniforms(draft)
        sort = seconds(partial(sort_ratios, target, draft_probs))
        for ids in draft.sample(rng, options.draws):
            uniforms = rng.random(numbers)
            taken = [
                once(verifier, target, copy(draft), ids, uniforms) for _ in range(options.repeats)
            ]
            if not warm:
                break  # what is compiled at the first one is no part of it
            typical = float(np.median([spent for spent, _ in taken]))
            found.micro.append(typical * 1e6)
            found.sorts.append(typical / sort)
            found.rejected.append(taken[0][1] < 0)
        if warm:
            found.gaps.append(verifier.plan(target, draft).gap)
    return found


def sort_ratios(target: Any, draft_probs: Any) -> Any:
    """Do what everything is measured against."""
    return np.argsort(target / np.where(draft_probs > 0.0, draft_probs, 1.0))


def once(verifier: Any, target: Any, draft: Any, ids: Any, uniforms: Any) -> tuple[float, int]:
    """Plan, and verify one tuple: seconds, and the place of what was accepted, -1 if nothing."""
    start = time.thread_time()
    outcome = verifier.plan(target, draft).verify(ids, uniforms=uniforms)
    return time.thread_time() - start, outcome.accept_index


def plans(options: argparse.Namespace) -> Iterator[str]:
    """Plans and verifications in sorts, on real and on peaked rows."""
    real = real_rows(options.positions, options.rows)
    peaked = peaked_rows(options.rows)
    yield from (
        "| rows | drafts | n | A, median | mean accepted | mean rejected | microseconds, median "
        "| mean gap | worst gap |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    for name, rows in ((f"real, V = {size(real)}", real), (f"peaked, V = {PEAKED:,}", peaked)):
        for draft, draft_type in DRAFTS.items():
            for n in NUM_DRAFTS:
                found = price(rows, draft_type, n, options)
                yield (
                    f"| {name} | {draft} | {n} | {np.median(found.sorts):.2f} "
                    f"| {found.mean(found.sorts, False):.2f} "
                    f"| {found.mean(found.sorts, True):.2f} ({np.mean(found.rejected):.0%}) "
                    f"| {np.median(found.micro):.0f} "
                    f"| {np.mean(found.gaps):.1e} | {max(found.gaps):.1e} |"
                )


def live(options: argparse.Namespace) -> Iterator[str]:
    """Tell what few live tokens cost, in a full vector and in one of their own."""
    full = [most_likely(row, LIVE) for row in real_rows(options.positions, options.rows)]
    short = [tuple(side[pair[0] > 0.0] for side in pair) for pair in full]
    yield from (
        f"{LIVE} live tokens of a real position, microseconds.",
        "",
        "| vector | drafts | n | median | mean accepted | mean rejected | worst gap |",
        "|---|---|---|---|---|---|---|",
    )
    for name, rows in ((f"V = {size(full)}", full), ("the live tokens alone", short)):
        for draft, draft_type in DRAFTS.items():
            for n in NUM_DRAFTS:
                found = price(rows, draft_type, n, options)
                yield (
                    f"| {name} | {draft} | {n} | {np.median(found.micro):.0f} "
                    f"| {found.mean(found.micro, False):.0f} "
                    f"| {found.mean(found.micro, True):.0f} | {max(found.gaps):.1e} |"
                )


def bound_of(target: Any, draft: Any) -> Any:
    """Compute the bound of a draft that nothing is remembered of."""
    return mdsd.acceptance_bound(target, copy(draft))


def size(rows: Sequence[Pair]) -> str:
    return f"{len(rows[0][0]):,}"


def bound(options: argparse.Namespace) -> Iterator[str]:
    """The bound of drafts without replacement, in sorts."""
    ratios = []
    for target, draft_probs in peaked_rows(options.rows):
        draft = mdsd.WithoutReplacement(draft_probs, NUM_DRAFTS[-1])
        bound_of(target, draft)
        sort = seconds(partial(sort_ratios, target, draft_probs))
        spent = seconds(partial(bound_of, target, draft), options.repeats)
        ratios.append(spent / sort)
    yield (
        f"Bound without replacement, V = {PEAKED:,}, n = {NUM_DRAFTS[-1]}: "
        f"{np.median(ratios):.2f} A (from {min(ratios):.2f} to {max(ratios):.2f})."
    )


# --- many at once --------------------------------------------------------------------------------


def batch(options: argparse.Namespace) -> Iterator[str]:
    """Batches of `optimal` in multiples of `rrs` without replacement."""
    n = NUM_DRAFTS[-1]
    target, draft_probs = CONFTEST.peaked_laws(np.random.default_rng(1), BATCH)
    drawn = {
        draft: np.array([make(q, n).sample(row) for row, q in enumerate(draft_probs)])
        for draft, make in DRAFTS.items()
    }
    cases = [("rrs", "without_replacement"), *(("optimal", draft) for draft in DRAFTS)]
    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for _ in range(options.repeats + 3):  # the first compiles; in turns, as machines slow down
        for case in cases:
            start = time.perf_counter()
            mdsd.verify_batch(
                target, draft_probs, drawn[case[1]], draft=case[1], verifier=case[0], rng=0
            )
            times[case].append(time.perf_counter() - start)
    typical = {case: float(np.median(spent[1:])) for case, spent in times.items()}
    yield from (
        f"`verify_batch`, {BATCH[0]} x {BATCH[1]:,} peaked, n = {n}, by the clock on the wall.",
        "",
        "| verifier | drafts | ms | times rrs without replacement |",
        "|---|---|---|---|",
    )
    for case, spent in typical.items():
        yield f"| {case[0]} | {case[1]} | {spent * 1e3:.1f} | {spent / typical[cases[0]]:.1f} |"


def throughput(options: argparse.Namespace) -> Iterator[str]:
    """Positions a second of a study of `optimal` without replacement on two cores."""
    captures: Any = import_module("tests.captures")
    target, draft_probs = np.zeros((2, IN_PROCESS, TOKENS))
    for row, position in enumerate(captures.synthetic_positions(IN_PROCESS, tokens=TOKENS)):
        kept = len(position.token_ids)
        target[row, :kept] = mdsd.probs_from_logits(position.target_logprobs)
        draft_probs[row, :kept] = mdsd.probs_from_logits(position.draft_logprobs[0])
    whole: dict[str, Any] = {"draft": "without_replacement", "num_drafts": 3}
    verifier = mdsd.OptimalVerifier(effort="fast")
    spent = []
    for _ in range(options.repeats + 1):  # the first compiles
        begin = time.perf_counter()
        mdsd.acceptance_rates(target, draft_probs, verifier=verifier, **whole)
        middle = time.perf_counter()
        mdsd.acceptance_bounds(target, draft_probs, **whole)
        spent.append((middle - begin, time.perf_counter() - middle))
    rates, bounds = (IN_PROCESS / float(np.median(times)) for times in np.transpose(spent[1:]))
    yield (
        f"`acceptance_rates` of `optimal` without replacement, n = 3, {TOKENS:,} tokens, "
        f"{IN_PROCESS} positions, all cores: {rates:,.0f} positions a second; "
        f"`acceptance_bounds`: {bounds:,.0f}."
    )
    yield ""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        capture = Path(name) / "wide"
        captures.write_synthetic_capture(
            capture, options.study_positions, tokens=TOKENS, positions_per_shard=8192
        )
        common = (str(capture), "--num-drafts", "3", "--draft", "without_replacement")
        counts = (options.study_positions // 10, options.study_positions)
        taken = []
        for count in (100, *counts):  # the first compiles
            used = study(
                *common, "--verifier", "optimal", "--workers", "2", "--positions", str(count)
            )
            taken.append(used.seconds)
    more = (counts[1] - counts[0]) / (taken[2] - taken[1])
    yield (
        f"`mdsd study` of `optimal` without replacement, n = 3, {TOKENS:,} tokens, two workers, "
        f"bound and start included: {counts[1]:,} positions in {taken[2]:.1f} s, "
        f"{counts[1] / taken[2]:,.0f} a second; once started {more:,.0f} a second."
    )


# --- the first use -------------------------------------------------------------------------------

FIRST = (("compare", "--num-drafts", "3"), ("verifiers",), ("--help",))


def first(options: argparse.Namespace) -> Iterator[str]:
    """Processor time of commands in an environment where nothing is compiled yet."""
    yield from ("First use, seconds of processor time, children included.", "")
    yield from ("| command | first | again |", "|---|---|---|")
    for command in FIRST:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            spent = [processor_seconds(command, name) for _ in range(2)]
        yield f"| `mdsd {' '.join(command)}` | {spent[0]:.1f} | {spent[1]:.1f} |"


def processor_seconds(command: Sequence[str], cache: str) -> float:
    """Run a command of the library with a cache of compiled code of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": cache}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "mdsd", *command],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


PARTS = {
    "plans": plans,
    "live": live,
    "bound": bound,
    "batch": batch,
    "study": throughput,
    "first": first,
}

_ABOUT = """\
A is `numpy.argsort(target / draft)` of the same row. A plan is `OptimalVerifier(effort="fast")` of
a draft distribution made beforehand, with the verification of one tuple drawn from it; means tell
apart whether one of the drafts was emitted, and say how many were not. Peaked rows are softmax of
normal logits of standard deviation 3, with drafts from the same logits plus standard normal noise.
"""


def measure(options: argparse.Namespace) -> None:
    """Measure all parts asked for, and print or write the section."""
    lines = ["## The price of the optimum", "", *_ABOUT.splitlines(), "", *CONFTEST.machine()]
    for part in options.parts:
        start = time.perf_counter()
        lines += ["", *PARTS[part](options)]
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


def main(arguments: Iterable[str] | None = None) -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    positions = commands.add_parser("positions", help="write a file of real positions")
    positions.add_argument("file", type=Path)
    positions.add_argument("--models", type=Path, required=True, help="from smollm2_models.py")
    positions.set_defaults(run=write_positions)
    measuring = commands.add_parser("measure", help="measure, and lay out the results")
    measuring.add_argument("--results", type=Path, help="write the section to a markdown file")
    measuring.add_argument("--positions", type=Path, help="file of real positions")
    measuring.add_argument("--rows", type=int, default=16, help="of each kind")
    measuring.add_argument("--draws", type=int, default=8, help="tuples verified at each row")
    measuring.add_argument("--repeats", type=int, default=3, help="of each call; the median counts")
    measuring.add_argument("--study-positions", type=int, default=10_000)
    measuring.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    measuring.set_defaults(run=measure)
    options = parser.parse_args(None if arguments is None else list(arguments))
    options.run(options)


if __name__ == "__main__":
    main()
