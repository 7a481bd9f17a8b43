"""The library llama.cpp, by the names of llama-cpp-python: found when first needed, and silent."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mdsd._arguments import one_line
from mdsd._extras import require
from mdsd.errors import UnsupportedError

_ERROR, _CONTINUED = 4, 5
"""Levels of what llama.cpp says: an error, and more of what was said last."""


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
    """Keep llama.cpp from printing in the block.

    Yields
    ------
    list of str
        The errors it tells of.
    """
    errors: list[str] = []
    level = 0

    @library.llama_log_callback  # type: ignore[untyped-decorator]
    def keep(now: int, text: bytes, _: Any) -> None:
        nonlocal level
        level = level if now == _CONTINUED else now
        if level == _ERROR:
            errors.append(text.decode(errors="replace"))

    before, data = library.llama_log_callback(), ctypes.c_void_p()
    library.llama_log_get(ctypes.byref(before), ctypes.byref(data))
    library.llama_log_set(keep, None)
    try:
        yield errors
    finally:
        library.llama_log_set(before, data)


def last_error(errors: list[str]) -> str:
    r"""Give the reason among errors of llama.cpp, of which the first is the one behind the others.

    Examples
    --------
    >>> last_error(["llama_model_load: error loading model: no such layer\n", "failed\n"])
    'no such layer'
    """
    first = one_line(errors[0]) if errors else ""
    return first.rsplit("error loading model: ", 1)[-1] or "llama.cpp does not say why"
