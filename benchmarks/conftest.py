"""Shared instances, and one table of time AND quality at the end of a run."""

import os
import platform
from dataclasses import dataclass

import numpy as np
import pytest

import mdsd

_ABOUT = [
    "Medians. The third column divides by `numpy.argsort(target / draft)` of the same row (of all",
    "rows in batches), measured in the same run. Rows are peaked: softmax of normal logits of",
    "standard deviation 3, the draft from the same logits plus standard normal noise.",
]

_ROWS: list[tuple[str, float, float, str]] = []


@dataclass(frozen=True)
class Pair:
    """Target and draft probabilities at full vocabulary, and the sort they are measured against."""

    target: np.ndarray
    draft: np.ndarray
    argsort_seconds: float


def median_seconds(call, rounds=9):
    """Median time of a call, after one to warm up."""
    from time import perf_counter

    call()
    times = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return float(np.median(times))


def peaked_laws(rng, shape, scale=3.0):
    """Softmax of `scale` times normal logits; draft = target logits + normal noise."""
    logits = scale * rng.normal(size=shape)
    noisy = logits + rng.normal(size=shape)
    return mdsd.probs_from_logits(logits), mdsd.probs_from_logits(noisy)


def peaked_pair(vocab_size):
    target, draft = peaked_laws(np.random.default_rng(0), vocab_size)
    return Pair(target, draft, median_seconds(lambda: np.argsort(target / draft)))


@pytest.fixture(scope="session")
def make_laws():
    return peaked_laws


@pytest.fixture(scope="session")
def make_pair():
    return peaked_pair


@pytest.fixture(scope="session", params=[1_000, 32_000, 128_000], ids="V={}".format)
def peaked(request):
    return peaked_pair(request.param)


@pytest.fixture
def measure(benchmark, request):
    """Time a call and note what it is worth: ``measure(call, pair, quality=text_of(result))``.

    `per` says how many verifications one call makes, where the time of one is of interest.
    """

    def run(call, pair, quality, per=1):
        call()  # compile
        result = benchmark(call)
        median = benchmark.stats.stats.median / per
        _ROWS.append(
            (request.node.name, median * 1e3, median / pair.argsort_seconds, quality(result))
        )
        return result

    return run


def table():
    lines = [
        "| benchmark | median ms | times argsort(p/q) | quality |",
        "|---|---|---|---|",
    ]
    for name, milliseconds, ratio, quality in _ROWS:
        lines.append(f"| {name} | {milliseconds:.3g} | {ratio:.3g} | {quality} |")
    return lines


def machine():
    """Processor, cores and the versions that matter, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    names = ["numpy", "scipy", "numba", "ortools", "POT", "economize", "torch"]
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} not installed")
    return [
        f"{processor()}, {len(os.sched_getaffinity(0))} cores used.",
        f"mdsd {mdsd.__version__}, Python {platform.python_version()}, {', '.join(versions)}.",
    ]


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def pytest_addoption(parser):
    parser.addoption("--results", help="write the table of this run to a markdown file")


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    lines = [*machine(), "", *table()]
    for line in ["", *lines]:
        terminalreporter.write_line(line)
    path = terminalreporter.config.getoption("--results")
    if path:
        text = "\n".join(["# Results of one run of `make bench`", "", *_ABOUT, "", *lines])
        with open(path, "w") as file:
            file.write(text + "\n")
