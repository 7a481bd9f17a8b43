from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

# The helpers' own assertions should show their values as those of a test do.
pytest.register_assert_rewrite("tests.cases.reading")


@pytest.fixture
def measured() -> Callable[[], object]:
    """Return a context that measures seconds, and in a second form the peak of new memory."""

    @contextmanager
    def measure(*, memory: bool = False) -> Iterator[SimpleNamespace]:
        result = SimpleNamespace(seconds=None, peak_bytes=None)
        if memory:
            tracemalloc.start()
        start = time.perf_counter()
        try:
            yield result
        finally:
            result.seconds = time.perf_counter() - start
            if memory:
                result.peak_bytes = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()

    return measure
