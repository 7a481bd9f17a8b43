"""Compilation of the package's kernels: where there is a cache, kept; where it takes long, told.

The one place that numba's decorator is used in. A function that it compiles is kept on disk, beside
its source or in the user's own cache; where neither can be written to, as in a read-only
container, it is compiled again by every process, and works all the same.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

from numba import njit
from numba.core import event

_PATIENCE = 2.0
"""Seconds of compilation, all told, after which a process says what it is doing."""

_NOTICE = (
    "mdsd: compiling for this machine, once (up to a minute); `mdsd warmup` does it beforehand"
)

_PACKAGES = ("mdsd", "solvers")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(*, inner: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Decorate a function that numba compiles when it is first called, and keeps on disk.

    Parameters
    ----------
    inner : bool, default False
        That only compiled code calls it: what Python would need to call it is left out, which saves
        a fifth of the compilation. It must never be called from Python.
    **options
        Of `numba.njit`, but for ``cache``.

    Returns
    -------
    callable
        The decorator.

    Notes
    -----
    Numba refuses to decorate where it finds no place to keep results in; then nothing is kept.

    It names what it keeps by file and function, and loads it under the module that compiled it. The
    files of this package have two names, `solvers` and `mdsd._solvers`, which must not take each
    other's results: functions of the first are kept under another name.

    Examples
    --------
    >>> @compiled(error_model="numpy")
    ... def inverse(x: float) -> float:
    ...     return 1.0 / x
    >>> inverse(0.0)
    inf
    """
    # No function is ever passed to another as a pointer, which the second wrapper is for.
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner}

    def decorate(function: _Function) -> _Function:
        package, _, _ = function.__module__.partition(".")
        if package == "solvers":
            function.__qualname__ = f"{package}.{function.__qualname__}"
        try:
            kept: _Function = njit(cache=_has_a_place(function), **options)(function)
        except RuntimeError:
            kept = njit(**options)(function)
        return kept

    return decorate


def _has_a_place(function: Callable[..., Any]) -> bool:
    """Tell whether numba may look for a place to keep results in.

    For a user without a home, such as a number that a container was started with, it would make a
    folder called "~" in the current one.
    """
    cache = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or "~"
    if os.path.isabs(os.path.expanduser(cache)):
        return True
    beside = Path(function.__code__.co_filename).parent
    kept = beside / "__pycache__"
    return os.access(kept if kept.exists() else beside, os.W_OK) and not kept.is_file()


class CompilationNotice(event.Listener):
    """Says once in a process that kernels are being compiled, when that has taken long.

    Numba tells of every compilation when it starts and when it ends, and of none where the result
    was found on disk. It compiles one function at a time, those that it calls in between.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._started = self._spent = 0.0
        self._timer: Timer | None = None
        self._told = False

    def on_start(self, event: Any) -> None:
        """Note the time, and wake up when it has been long enough."""
        if not _is_ours(event):
            return
        self._depth += 1
        if self._depth > 1 or self._told:
            return
        self._started = time.perf_counter()
        self._timer = Timer(max(_PATIENCE - self._spent, 0.0), self._tell)
        self._timer.daemon = True
        self._timer.start()

    def on_end(self, event: Any) -> None:
        """Add up the time that went by."""
        if not _is_ours(event):
            return
        self._depth -= 1
        if self._depth > 0 or self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._spent += time.perf_counter() - self._started

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        # A notice is no reason to fail: standard error may be closed, or none.
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(_NOTICE + "\n")
            sys.stderr.flush()


def _is_ours(event: Any) -> bool:
    """Tell the package's functions from a user's own, of which nothing is said."""
    module: str = event.data["dispatcher"].py_func.__module__
    return module.partition(".")[0] in _PACKAGES


_notice = CompilationNotice()
event.register("numba:compile", _notice)  # type: ignore[no-untyped-call]


def silence() -> None:
    """Say nothing of compilation in this process from now on."""
    _notice._told = True


def cache_folder() -> Path | None:
    """Give the folder under which compiled kernels are kept, or None where they cannot be."""
    found: str | None = _nothing.stats.cache_path  # type: ignore[attr-defined]
    if found is None:
        return None
    # Beside each source, or a folder of the user's cache for each folder of sources.
    path = Path(found)
    return path.parents[1] if path.name == "__pycache__" else path.parent


@compiled()
def _nothing() -> None:
    """Do nothing: a function to ask where it is kept."""
