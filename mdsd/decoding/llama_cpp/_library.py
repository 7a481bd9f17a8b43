"""The library llama.cpp, by the names of llama-cpp-python: found when first needed, and silent."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mdsd._arguments import one_line
from mdsd._extras import require
from mdsd.errors import UnsupportedError

_ERROR, _CONTINUED = 4, 5
"""Levels of what llama.cpp says: an error, and more of what was said last."""

_LOCK = threading.RLock()
"""Held while llama.cpp is listened to, which it lets one do for the whole process only."""

_heard: list[list[str]] = []
"""Errors of the block that is being run, last; a model may be freed anywhere in another's."""


def load_library() -> Any:
    """Import llama-cpp-python.

    Raises
    ------
    UnsupportedError
        If it is not installed, or does not find its own library.
    """
    require("gguf", "a GGUF file")
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise UnsupportedError(f"llama-cpp-python cannot be loaded: {one_line(error)}") from None
    return llama_cpp


@contextmanager
def errors_kept(library: Any) -> Iterator[list[str]]:
    """Keep llama.cpp from printing in the block, which one thread at a time runs.

    Yields
    ------
    list of str
        The errors it tells of.
    """
    with _LOCK:
        _heard.append([])
        before, data = library.llama_log_callback(), ctypes.c_void_p()
        library.llama_log_get(ctypes.byref(before), ctypes.byref(data))
        library.llama_log_set(_listener(library), None)
        try:
            yield _heard[-1]
        finally:
            library.llama_log_set(before, data)
            _heard.pop()


@cache
def _listener(library: Any) -> Any:
    """Make what llama.cpp calls: once, since another thread may call it after the block."""
    level = 0

    @library.llama_log_callback  # type: ignore[untyped-decorator]
    def keep(now: int, text: bytes, _: Any) -> None:
        nonlocal level
        level = level if now == _CONTINUED else now
        if level == _ERROR and _heard:
            _heard[-1].append(text.decode(errors="replace"))

    return keep


def last_error(errors: list[str]) -> str:
    r"""Give the reason among errors of llama.cpp, of which the first is the one behind the others.

    Examples
    --------
    >>> last_error(["llama_model_load: error loading model: no such layer\n", "failed\n"])
    'no such layer'
    """
    first = one_line(errors[0]) if errors else ""
    return first.rsplit("error loading model: ", 1)[-1] or "llama.cpp does not say why"
