"""Shared instances, and one table of time AND quality at the end of a run."""

import platform
from dataclasses import dataclass

import numpy as np
import pytest

import mdsd

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


@pytest.fixture(scope="session", params=[1_000, 32_000, 128_000], ids="V={}".format)
def peaked(request):
    """Softmax of normal logits with standard deviation 3; draft = target logits + normal noise."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=request.param) * 3
    target = mdsd.probs_from_logits(logits)
    draft = mdsd.probs_from_logits(logits + rng.normal(size=request.param))
    return Pair(target, draft, median_seconds(lambda: np.argsort(target / draft)))


@pytest.fixture
def measure(benchmark, request):
    """Time a call and note what it is worth: ``measure(call, pair, quality=text_of(result))``."""

    def run(call, pair, quality):
        call()  # compile
        result = benchmark(call)
        median = benchmark.stats.stats.median
        _ROWS.append(
            (request.node.name, median * 1e3, median / pair.argsort_seconds, quality(result))
        )
        return result

    return run


def pytest_terminal_summary(terminalreporter):
    if not _ROWS:
        return
    write = terminalreporter.write_line
    write("")
    write(f"mdsd {mdsd.__version__}, numpy {np.__version__}, Python {platform.python_version()}")
    write("| benchmark | median ms | times argsort(p/q) | quality |")
    write("|---|---|---|---|")
    for name, milliseconds, ratio, quality in _ROWS:
        write(f"| {name} | {milliseconds:.3g} | {ratio:.3g} | {quality} |")
