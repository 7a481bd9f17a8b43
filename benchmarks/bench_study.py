"""Positions a second of a study at scale, and the memory of its processes.

A script, run by `make bench-study`: it writes made-up captures into a folder of its own (2 GB),
runs `mdsd study` on them in processes of their own, prints a section of markdown, and writes it
with ``--results``.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.captures import write_synthetic_capture  # noqa: E402

TOKENS = 1340
"""Tokens of a position: the union of two top-1,024 lists of SmolLM2 and its draft has as many."""

NARROW = 64
"""Tokens of a position where a million of them have to be written, and read, in minutes."""

VERIFIERS = "rrs,kseq,greedy"
DRAFTS = "with_replacement,without_replacement,greedy"


@dataclass(frozen=True)
class Used:
    """What a run took: wall-clock seconds, and peak memory in MiB."""

    seconds: float
    parent: float
    worker: float


def study(*options: str) -> Used:
    """Run a study in a process of its own, and look at the memory of its processes."""
    command = [sys.executable, "-m", "mdsd", "study", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    peaks: dict[int, float] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as running:
        own = psutil.Process(running.pid)
        while running.poll() is None:
            with suppress(psutil.Error, OSError):
                for process in (own, *own.children(recursive=True)):
                    peaks[process.pid] = max(peaks.get(process.pid, 0.0), peak_memory(process.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        if running.returncode:
            raise SystemExit(f"failed: {' '.join(command)}")
    parent = peaks.pop(running.pid)
    return Used(seconds, parent, max(peaks.values(), default=0.0))


def peak_memory(pid: int) -> float:
    """Read the largest resident size, in MiB, that a process has had so far."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def throughput(folder: Path, positions: int) -> list[str]:
    """Measure positions a second of one cell with three drafts, by number of workers."""
    start = time.perf_counter()
    capture = folder / "wide"
    write_synthetic_capture(capture, positions, tokens=TOKENS, positions_per_shard=8192)
    size = sum(file.stat().st_size for file in capture.iterdir()) / 1e9
    lines = [
        f"{positions:,} positions of about {TOKENS:,} tokens ({size:.1f} GB on disk, written in "
        f"{time.perf_counter() - start:.0f} s), n = 3, temperature 1: bounds with and without "
        "replacement, greedy and top-k, and `rrs` (both), `kseq`, `greedy`. From the command to "
        "its table, start included.",
        "",
        "| study | workers | seconds | positions a second |",
        "|---|---|---|---|",
    ]
    common = (str(capture), "--num-drafts", "3", "--draft", DRAFTS)
    runs = [
        ("as above", VERIFIERS, 1, positions),
        ("as above", VERIFIERS, 2, positions),
        ("and `optimal`, with replacement and greedy", f"{VERIFIERS},optimal", 2, positions // 10),
    ]
    study(*common, "--verifier", f"{VERIFIERS},optimal", "--positions", "100", "--workers", "1")
    for name, verifiers, workers, count in runs:
        options = list(common)
        if "optimal" in verifiers:
            options[-1] = "with_replacement,greedy"
        used = study(
            *options,
            *("--verifier", verifiers, "--workers", str(workers), "--positions", str(count)),
        )
        lines.append(f"| {name} | {workers} | {used.seconds:.1f} | {count / used.seconds:,.0f} |")
    count = max(100, positions // 200)
    options = ["--num-drafts", "3", "--draft", "without_replacement", "--positions", str(count)]
    used = study(str(capture), *options, "--verifier", "optimal", "--workers", "2")
    lines.append(
        f"| `optimal` without replacement alone | 2 | {used.seconds:.1f} "
        f"| {count / used.seconds:,.0f} |"
    )
    return [*lines, ""]


def memory(folder: Path, most: int) -> list[str]:
    """Measure the peak memory of the parent and of its largest worker, by number of positions."""
    lines = [
        f"The same study of positions of {NARROW} tokens, one shard 8,192 positions: peak memory.",
        "",
        "| positions | seconds | one process, MiB | parent of two workers, MiB | worker, MiB |",
        "|---|---|---|---|---|",
    ]
    capture = folder / "narrow"
    write_synthetic_capture(capture, most, tokens=NARROW, positions_per_shard=8192)
    count = 1000
    while count <= most:
        options = (str(capture), "--num-drafts", "3", "--draft", DRAFTS, "--verifier", VERIFIERS)
        alone = study(*options, "--positions", str(count), "--workers", "1")
        pair = study(*options, "--positions", str(count), "--workers", "2")
        worker = f"{pair.worker:.0f}" if pair.worker else "none: a single block"
        peaks = f"{alone.parent:.0f} | {pair.parent:.0f} | {worker}"
        lines.append(f"| {count:,} | {pair.seconds:.1f} | {peaks} |")
        count *= 10
    return [*lines, ""]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, and print or write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--results", type=Path, help="write the section to a markdown file")
    parser.add_argument("--positions", type=int, default=100_000, help="of the wide capture")
    parser.add_argument("--narrow", type=int, default=1_000_000, help="of the narrow capture")
    parser.add_argument("--folder", type=Path, help="where captures go for the time being")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as name:
        lines = ["## Studies at scale", "", *throughput(Path(name), options.positions)]
        lines += memory(Path(name), options.narrow)
    text = "\n".join(lines).rstrip() + "\n"
    print(text, end="")
    if options.results is not None:
        options.results.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
