"""Tokens per call of a real target, SmolLM2-135M, and what verification costs there.

A script, run by `make bench-decode`: it needs torch, transformers and the weights that
`tools/capture_smollm2.py` uses. It prints a section of markdown, and writes it with ``--results``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from mdsd.decoding import NGramModel
from mdsd.studies.decoding.cases import DecoderCase
from mdsd.studies.decoding.decoder_settings import shown_tree
from mdsd.studies.decoding.drawn_trees import compare_on_trees
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.decoding.runs import ratio_of_totals
from mdsd.studies.study_rows import DrawnTreesRow

ROOT = Path(__file__).resolve().parents[1]

TREE = (3, 2, 1)
CHAIN = (1,) * 15
CASES = (
    DecoderCase("single", "with_replacement", CHAIN),
    DecoderCase("block", "with_replacement", CHAIN),
    *(
        DecoderCase(verifier, draft, TREE)
        for verifier, draft in (
            ("rrs", "with_replacement"),
            ("rrs", "without_replacement"),
            ("kseq", "with_replacement"),
            ("greedy", "greedy"),
            ("optimal", "with_replacement"),
            ("optimal", "without_replacement"),
            ("block", "with_replacement"),
            ("block", "without_replacement"),
            ("traversal", "with_replacement"),
            ("traversal", "without_replacement"),
            ("layers", "with_replacement"),
            ("layers", "without_replacement"),
        )
    ),
    *(
        DecoderCase("rrs", "with_replacement", (chains,) + (1,) * (16 // chains - 1), "batch")
        for chains in (2, 4, 8)
    ),
)
MOST_SHARES = {
    "rrs": 0.05,
    "kseq": 0.05,
    "greedy": 0.05,
    "optimal": 0.05,
    "block": 0.05,
    "layers": 0.08,
}
"""Of a step's target forward, on the tree: what verification may take."""

PROMPT_TOKENS = 32
PROMPTS = ("story", "news", "python", "maths", "recipe", "dialogue", "manual", "french")
NGRAM_ORDER = 3
DROPPED = (12, 20)
DRAFTS = {
    "layers": f"The target without layers {' and '.join(map(str, DROPPED))} as the draft model",
    "ngram": f"{NGRAM_ORDER}-grams of Python's language reference as the draft model",
}

_ABOUT = """\
Tokens expected per call of the target, with the standard error over {trees} trees, drawn before
each of {tokens} tokens of {runs} texts of the target ({prompts} prompts of {prompt_tokens} tokens,
seeds {seeds}); the same texts for all. Decoders with equal drafts and trees are given the same
drawn trees; what they leave to chance is averaged out exactly, and the difference is that to rrs on
the same trees (to naive where rrs does not take the drafts), with its standard error.
Each decoder drafts 15 tokens for a call of the target (16 in the batch scheme: M chains of
16 / M). `M x L` are M chains of L tokens, `3,2,1` is a tree by its children of a node at each
level, and d is the depth down to which a step accepts drafts. Verification is everything between
the target's logits and the emitted tokens: filters, plans, accept tests, residuals; the step is
drafting, target and verification, without the first reading of the prompt. What transformers
decodes by itself is counted over whole runs of {tokens} tokens, whose last step is cut.

The layer-dropped draft is the target without two of its 30 layers: a draft that agrees with the
target about as well as a good one does, and is not cheap. Nothing follows about wall time from it,
and it makes the share of verification look smaller than a cheap draft would. The n-gram draft is
cheap, and knows little about these texts.
"""


@dataclass(frozen=True)
class Line:
    """One line of a table; what is not known is None."""

    label: tuple[str, str, str]
    ratio: float
    stderr: float | None
    row: DrawnTreesRow | None = None


def load_target() -> tuple[Any, Any, dict[str, str]]:
    """Load the target, its tokenizer and the texts that prompts are taken from."""
    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    sys.path.insert(0, str(ROOT / "tools"))
    capture = import_module("capture_smollm2")
    model, tokenizer, _ = capture.load_model()
    model.generation_config.eos_token_id = None  # all runs have one length
    return model, tokenizer, dict(capture.TEXTS)


def ngram_draft(encode: Callable[[str], list[int]], vocab_size: int) -> NGramModel:
    """Count the n-grams of Python's language reference."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    ids = [token for topic in sorted(topics) for token in encode(topics[topic])]
    return NGramModel(ids, vocab_size, NGRAM_ORDER)


class Bench:
    """Settings of a run, and what it is run with."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        from mdsd.decoding.transformers import CausalLM

        model, self.tokenizer, texts = load_target()
        torch.set_num_threads(1)
        self.tokens, self.cases = options.tokens, cases_of(options)
        self.chosen = options.verifiers is not None
        self.seeds = tuple(range(options.seeds))
        self.prompts = [
            self.encode(texts[name])[:PROMPT_TOKENS] for name in PROMPTS[: options.prompts]
        ]
        self.model, self.target = model, CausalLM(model)
        self.drafts = {
            "layers": CausalLM(import_module("smollm2_models").without_layers(model, DROPPED)),
            "ngram": ngram_draft(self.encode, self.target.vocab_size),
        }

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, verbose=False)["input_ids"])

    def one_forward(self) -> float:
        """Median seconds of a forward that reads one token, as plain decoding does."""
        times = []
        for prompt in self.prompts:
            prefix = list(prompt)
            self.target.logits([prefix])
            for token in prompt[:8]:
                prefix.append(token)
                start = time.perf_counter()
                self.target.logits([prefix])
                times.append(time.perf_counter() - start)
        return float(np.median(times))

    def runs(self) -> list[tuple[list[int], int]]:
        return [(prompt, seed) for prompt in self.prompts for seed in self.seeds]

    def ours(self, draft: Any, temperature: float, step: Callable[[], object]) -> list[Line]:
        """Give the decoders of this library the same trees."""
        models = TextModels(self.target, (draft,), self.encode, str, (), ("", ""))
        rows = compare_on_trees(
            models, self.cases, self.runs(), self.tokens, step=step, temperature=temperature
        )
        return [
            Line(label_of(case), row.tokens_per_target_call, row.stderr, row)
            for case, row in zip(self.cases, rows, strict=True)
        ]

    def theirs(self, draft: Any, temperature: float) -> Line:
        """Run transformers' own assisted generation, by prompt lookup where it takes no draft."""
        import torch

        from mdsd.decoding.transformers import CausalLM

        options: dict[str, Any] = {"prompt_lookup_num_tokens": len(CHAIN)}
        name = "transformers, prompt lookup in place of the draft"
        if isinstance(draft, CausalLM):
            options = {"assistant_model": draft.model}
            name = "transformers, assisted generation"
            draft.model.generation_config.num_assistant_tokens = len(CHAIN)
            draft.model.generation_config.num_assistant_tokens_schedule = "constant"
            draft.model.generation_config.assistant_confidence_threshold = 0.0
        calls = 0

        def count(*_: Any) -> None:
            nonlocal calls
            calls += 1

        hook = self.model.register_forward_hook(count)
        emitted, called = [], []
        for prompt, seed in self.runs():
            torch.manual_seed(seed)
            calls = 0
            found = self.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=True,
                temperature=temperature,
                top_k=0,
                top_p=1.0,
                max_new_tokens=self.tokens,
                pad_token_id=0,
                **options,
            )
            emitted.append(found.shape[1] - len(prompt))
            called.append(calls)
        hook.remove()
        ratio, stderr = ratio_of_totals(emitted, called)
        return Line((name, "with_replacement", shown_tree(CHAIN)), ratio, stderr)


def cases_of(options: argparse.Namespace) -> list[DecoderCase]:
    """Give the decoders that are asked for: all, or those with some verifiers on the tree."""
    if options.verifiers is None:
        return list(CASES)
    return [case for case in CASES if case.verifier in options.verifiers and case.tree == TREE]


def label_of(case: DecoderCase) -> tuple[str, str, str]:
    """Name a decoder in three cells."""
    batch = f", batch scheme, M = {case.tree[0]}" if case.scheme == "batch" else ""
    return f"{case.verifier}{batch}", str(case.draft), shown_tree(case.tree, case.scheme)


def table(lines: Sequence[Line]) -> list[str]:
    """Lay out lines as markdown."""
    found = [
        "| verifier | draft distribution | tree | tokens per target call | difference "
        "| d = 1 | d = 2 | d = 3 "
        "| verification, ms a step | % of its target forward | % of the step |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        stderr = "" if line.stderr is None else f" ± {line.stderr:.2f}"
        cells = [*line.label, f"{line.ratio:.2f}{stderr}", *[""] * 7]
        row = line.row
        if row is not None:
            if row.verifier != row.reference:
                cells[4] = f"{row.difference:+z.3f} ± {row.difference_stderr or 0.0:.3f}"
            shares = [f"{share:.2f}" for share in row.acceptance_by_depth[:3]]
            cells[5 : 5 + len(shares)] = shares
            cells[8:] = [
                f"{verification_seconds(row) * 1e3:.2f}",
                f"{row.verification_seconds / row.target_seconds:.1%}",
                f"{row.verification_share:.1%}",
            ]
        found.append(f"| {' | '.join(cells)} |")
    return found


def verification_seconds(row: DrawnTreesRow) -> float:
    """Verification in one step, from the logits to the emitted tokens."""
    return row.verification_seconds / row.target_calls


_BENCH: Bench | None = None


def start(options: argparse.Namespace) -> None:
    """Load the models, once in each process."""
    global _BENCH
    _BENCH = Bench(options)


def run_table(job: tuple[str, float]) -> tuple[list[Line], float]:
    """Run all decoders with one draft at one temperature; give a one-token forward beside it."""
    kind, temperature = job
    bench = _BENCH
    assert bench is not None
    begin = time.perf_counter()
    draft = bench.drafts[kind]
    forwards = [bench.one_forward()]
    texts = 0

    def step() -> None:
        nonlocal texts
        texts += 1
        seconds = time.perf_counter() - begin
        print(f"{kind}, T = {temperature:g}: {seconds:.0f} s, {texts}", file=sys.stderr, flush=True)

    lines = [] if bench.chosen else [bench.theirs(draft, temperature)]
    lines += bench.ours(draft, temperature, step)
    forwards.append(bench.one_forward())
    return lines, float(np.mean(forwards))


def section(options: argparse.Namespace) -> list[str]:
    """Run everything and lay out the results."""
    from conftest import machine

    begin = time.perf_counter()
    # The slowest first, so that both processes end at about the same time.
    jobs = [(kind, temperature) for kind in options.drafts for temperature in options.temperatures]
    spawn = multiprocessing.get_context("spawn")  # torch does not survive a fork
    with ProcessPoolExecutor(options.workers, spawn, start, (options,)) as pool:
        tables = list(pool.map(run_table, jobs))
    seconds = time.perf_counter() - begin
    about = _ABOUT.format(
        runs=options.prompts * options.seeds,
        trees=options.prompts * options.seeds * options.tokens,
        prompts=options.prompts,
        prompt_tokens=PROMPT_TOKENS,
        seeds=", ".join(map(str, range(options.seeds))),
        tokens=options.tokens,
    )
    lines = ["## Decoding with SmolLM2-135M", "", *about.splitlines(), "", *machine()]
    lines += [
        f"transformers {metadata.version('transformers')}; {options.workers} processes of one "
        f"thread, {seconds:.0f} s."
    ]
    for (kind, temperature), (found, _) in zip(jobs, tables, strict=True):
        lines += ["", f"### {DRAFTS[kind]}, temperature {temperature:g}", ""]
        lines += table(found)
    return [*lines, "", "### What verification costs", "", *cost(tables)]


def cost(tables: Sequence[tuple[list[Line], float]]) -> list[str]:
    """Say what verification costs on the tree, over all tables, and what it gains."""
    groups: dict[tuple[str, str], list[DrawnTreesRow]] = {}
    for lines, _ in tables:
        for line in lines:
            if line.row is not None and line.row.tree == TREE:
                groups.setdefault((line.row.verifier, line.row.draft), []).append(line.row)
    every = [row for group in groups.values() for row in group]
    tree = sum(row.target_seconds for row in every) / sum(row.target_calls for row in every)
    one = float(np.mean([forward for _, forward in tables]))
    found = [
        f"On the tree {shown_tree(TREE)}, over all tables. A forward of the target that reads the",
        f"tree takes {tree * 1e3:.0f} ms, one that reads a single token {one * 1e3:.0f} ms. The",
        "last column compares with rrs on the same trees.",
        "",
        "| verifier | draft distribution | ms a step | % of the tree's forward | worst table "
        "| % of a one-token forward | tokens per target call |",
        "|---|---|---|---|---|---|---|",
    ]
    worst = {
        key: max(row.verification_seconds / row.target_seconds for row in group)
        for key, group in groups.items()
    }
    for (verifier, draft), group in groups.items():
        seconds = sum(row.verification_seconds for row in group)
        mean = seconds / sum(row.target_calls for row in group)
        share = seconds / sum(row.target_seconds for row in group)
        gain = gain_over_rrs(group) if group[0].reference == "rrs" != verifier else ""
        found.append(
            f"| {verifier} | {draft} | {mean * 1e3:.2f} | {share:.1%} "
            f"| {worst[verifier, draft]:.1%} | {mean / one:.1%} | {gain} |"
        )
    found += ["", "Verification as a share of a step's target forward, in each table:", ""]
    for verifier, allowed in MOST_SHARES.items():
        shares = [share for (name, _), share in worst.items() if name == verifier]
        if shares:
            verdict = "under" if max(shares) < allowed else "NOT under"
            found.append(f"- {verifier}: {verdict} {allowed:.0%}, {max(shares):.1%} at most.")
    return found


def gain_over_rrs(rows: Sequence[DrawnTreesRow]) -> str:
    """Mean gain in tokens per call over the tables, whose trees have nothing in common."""
    bases = [row.tokens_per_target_call - row.difference for row in rows]
    gains = [row.difference / base for row, base in zip(rows, bases, strict=True)]
    errors = [(row.difference_stderr or 0.0) / base for row, base in zip(rows, bases, strict=True)]
    return f"{np.mean(gains):+.1%} ± {np.linalg.norm(errors) / len(gains):.1%}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, and print or write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, help="write the section to a markdown file")
    parser.add_argument("--prompts", type=int, default=8, help=f"at most {len(PROMPTS)}")
    parser.add_argument("--seeds", type=int, default=1, help="texts of each prompt")
    parser.add_argument("--tokens", type=int, default=28, help="length of a text")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.6, 1.0])
    parser.add_argument("--drafts", nargs="+", choices=DRAFTS, default=list(DRAFTS))
    parser.add_argument(
        "--verifiers",
        nargs="+",
        choices=sorted({case.verifier for case in CASES}),
        help=f"on the tree {shown_tree(TREE)} alone: a few minutes in place of an hour",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes; 2 GB of memory each")
    options = parser.parse_args(arguments)
    if not 1 <= options.prompts <= len(PROMPTS) or min(options.seeds, options.tokens) < 1:
        parser.error("expected at least one prompt, seed and token, and no more prompts than known")
    text = "\n".join(section(options)) + "\n"
    print(text, end="")
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
