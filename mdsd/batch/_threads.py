"""Rows spread over threads.

The kernels are compiled without the interpreter's lock, so plain threads run them side by side.
Unlike numba's own parallel loops, whose thread pools abort a forked child and refuse calls from
two threads at once, these live for one call only and leave nothing behind.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from threading import Thread

__all__ = ["over_rows"]

_WORTH_A_THREAD = 200_000
"""Numbers to go through below which starting a thread costs more than it saves."""

_PIECES_PER_THREAD = 4
"""Rows differ in cost, so each thread comes back for more a few times."""


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def over_rows(work: Callable[[int, int], None], rows: int, numbers_per_row: int) -> None:
    """Call ``work(start, stop)`` on pieces that together cover all rows.

    Parameters
    ----------
    work : callable
        Handles the rows ``start .. stop - 1``; no row may depend on another.
    rows : int
        How many there are.
    numbers_per_row : int
        Size of a row, which decides whether threads are worth starting.
    """
    threads = min(_available_cores(), rows, 1 + rows * numbers_per_row // _WORTH_A_THREAD)
    size = max(1, rows // (threads * _PIECES_PER_THREAD)) if threads > 1 else max(1, rows)
    pieces = deque((start, min(start + size, rows)) for start in range(0, rows, size))
    failures: list[BaseException] = []

    def take_pieces() -> None:
        try:
            while True:
                try:
                    start, stop = pieces.popleft()
                except IndexError:
                    return
                work(start, stop)
        except BaseException as failure:
            failures.append(failure)
            pieces.clear()

    others = [Thread(target=take_pieces) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    take_pieces()
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
