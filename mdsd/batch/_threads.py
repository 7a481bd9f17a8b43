"""Rows spread over threads.

The kernels are compiled without the interpreter's lock, so plain threads run them side by side.
Unlike numba's own parallel loops, whose thread pools abort a forked child and refuse calls from
two threads at once, these live for one call only and leave nothing behind.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread

from mdsd._arguments import check_whole
from mdsd.drafts import DraftKind
from mdsd.verifiers import OptimalVerifier, Verifier

_WORTH_A_THREAD = 200_000
"""Numbers to go through below which starting a thread costs more than it saves."""

_PLANNING = 100
"""A number that is planned with costs as much as so many that are only gone through."""

_PIECES_PER_THREAD = 4
"""Rows differ in cost, so each thread comes back for more a few times."""

_limit: ContextVar[int | None] = ContextVar("limit of threads", default=None)


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Let batch calls of this thread use no more than so many threads, itself among them.

    For callers that spread their work over processes or threads of their own. A block within
    another one can only lower the limit.

    Parameters
    ----------
    count : int
        At least 1.

    Raises
    ------
    InvalidArgumentError
        If it is no such number.

    Examples
    --------
    >>> with limit_threads(1):
    ...     over_rows(lambda start, stop: print(start, stop), 1000, numbers_per_row=50_000)
    0 1000
    """
    count = check_whole("count", count, 1)
    outer = _limit.get()
    token = _limit.set(count if outer is None else min(count, outer))
    try:
        yield
    finally:
        _limit.reset(token)


def _most_threads() -> int:
    limit, cores = _limit.get(), _available_cores()
    return cores if limit is None else min(limit, cores)


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
    threads = min(_most_threads(), rows, 1 + rows * numbers_per_row // _WORTH_A_THREAD)
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


def plan_rows(
    verifier: Verifier,
    kind: DraftKind,
    work: Callable[[int, int], None],
    rows: int,
    numbers_per_row: int,
) -> None:
    """Call ``work(start, stop)`` for rows that go through plans, on threads if that is worth it.

    The optimal verifier spends most of its time in compiled code, and keeps nothing that threads
    could spoil. Of verifiers and drafts of other packages nobody knows that; the other rules are
    done before a thread has started.

    Parameters
    ----------
    verifier : Verifier
        Whose plans they are.
    kind : DraftKind
        Of the drafts.
    work, rows, numbers_per_row
        As for `over_rows`.
    """
    if type(verifier) is OptimalVerifier and kind.draft_type.declared:
        over_rows(work, rows, _PLANNING * numbers_per_row)
    else:
        work(0, rows)
