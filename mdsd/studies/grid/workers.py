"""Where the tasks of a study run: in this process, in others beside it, or on a cluster.

All give the same results; only the order in which they arrive differs.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from importlib import import_module
from itertools import islice
from os import _exit, getpid, getppid
from pickle import PicklingError
from threading import Thread
from time import sleep
from typing import Any, TypeVar

from mdsd._arguments import check_whole, one_line, shown
from mdsd._extras import require
from mdsd.errors import InvalidArgumentError, MdsdError, UnsupportedError

_WATCHED_SECONDS = 2.0
"""How often a local worker looks whether the study that it works for is still there."""

_PATIENCE = 30.0
"""Seconds that a scheduler is given to find its first worker."""

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 3
"""Tasks that wait for each thread of a cluster: enough to keep it busy, few enough to forget."""


def check_workers(workers: Any, scheduler: Any) -> int:
    """Check a number of worker processes; None is one for each core that may be used.

    Raises
    ------
    InvalidArgumentError
        If it is no integer >= 1, or there is a scheduler, too, whose workers are as many as it has.
    """
    if scheduler is not None and not isinstance(scheduler, str):
        raise InvalidArgumentError(f"scheduler is {shown(scheduler)}; expected an address or None")
    if workers not in (None, 1) and scheduler is not None:
        raise InvalidArgumentError(
            f"workers is {shown(workers)} and scheduler is {shown(scheduler)}; expected one of them"
        )
    if workers is None and scheduler is None:
        import joblib

        return int(joblib.cpu_count())
    return 1 if workers is None else check_whole("workers", workers, 1, otherwise=" or None")


def run_tasks(
    run: Callable[[Task], Result], tasks: Sequence[Task], workers: int, scheduler: str | None
) -> Generator[Result, None, None]:
    """Run tasks, and give each result when it is there.

    Parameters
    ----------
    run : callable
        A function that other processes can import.
    tasks : sequence
    workers : int
        Local processes; 1 runs the tasks here.
    scheduler : str or None
        Address of a Dask scheduler, whose workers then run them instead.

    Yields
    ------
    object
        What `run` gives for each task, in any order.

    Raises
    ------
    UnsupportedError
        If there is a scheduler, but `distributed` is not installed, or a task cannot be sent.
    InvalidArgumentError
        If the scheduler does not answer, or has no workers.
    MdsdError
        If a local worker was killed, or several of a cluster with the same task.
    """
    if scheduler is not None:
        yield from _on_cluster(run, tasks, scheduler)
    elif workers == 1 or len(tasks) < 2:
        yield from map(run, tasks)
    else:
        yield from _in_processes(run, tasks, min(workers, len(tasks)))


def _in_processes(
    run: Callable[[Task], Result], tasks: Sequence[Task], workers: int
) -> Generator[Result, None, None]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool, TerminatedWorkerError

    parallel = Parallel(
        n_jobs=workers,
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,  # several would come back, and be written, together
    )
    try:
        with _deaf_to_interrupts():
            results = parallel(delayed(_run_watched)(run, task, getpid()) for task in tasks)
        try:
            # Not `yield from`, which would close it before the warning is silenced.
            for result in results:  # noqa: UP028
                yield result
        finally:
            # Of a study that stops early joblib warns that results were computed for nothing.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                results.close()
    except TerminatedWorkerError as error:
        raise _killed(error) from None
    except (BrokenProcessPool, PicklingError) as error:
        raise UnsupportedError(
            "the study cannot be sent to other processes, such as a verifier that they cannot "
            f"import; try workers=1 ({one_line(error)})"
        ) from None


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes that do not hear of Ctrl-C, which reaches all processes of a terminal.

    This one hears of it when they are started, and ends them.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # when it starts, it takes the mask away
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_watched(run: Callable[[Task], Result], task: Task, parent: int) -> Result:
    """Run a task in a process that ends soon after its parent: a killed one cannot see to it."""
    _watch(parent)
    return run(task)


@cache
def _watch(parent: int) -> None:
    def watch() -> None:
        while getppid() == parent:
            sleep(_WATCHED_SECONDS)
        _exit(1)

    Thread(target=watch, daemon=True).start()


def _on_cluster(
    run: Callable[[Task], Result], tasks: Sequence[Task], scheduler: str
) -> Generator[Result, None, None]:
    require("cluster", "a scheduler")
    distributed: Any = import_module("distributed")
    addressing: Any = import_module("distributed.comm.addressing")
    try:
        if not scheduler.startswith("inproc://"):
            # Refused here: a client that refuses it leaves a traceback when it is removed.
            addressing.get_address_host_port(scheduler)
        client = distributed.Client(scheduler, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InvalidArgumentError(
            f"scheduler is {shown(scheduler)}; it does not answer: {one_line(error)}"
        ) from None
    with closing(client):
        waiting = iter(tasks)
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise InvalidArgumentError(
                f"scheduler is {shown(scheduler)}; it has no workers"
            ) from None
        threads = sum(client.nthreads().values())
        first = islice(waiting, max(1, _AHEAD * threads))
        running = distributed.as_completed(
            [client.submit(run, task, pure=False) for task in first], loop=client.loop
        )
        for done in running:
            try:
                yield done.result()
            except distributed.KilledWorker as error:
                raise _killed(error) from None
            for task in islice(waiting, 1):
                running.add(client.submit(run, task, pure=False))


def _killed(error: Exception) -> MdsdError:
    return MdsdError(
        "a worker process was killed, as a rule by the system for lack of memory; what is done is "
        f"kept with --output, and the same command goes on from there ({one_line(error)})"
    )
