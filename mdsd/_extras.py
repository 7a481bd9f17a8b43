"""Libraries that only parts of mdsd need: extras of its distribution, and one error for all."""

from __future__ import annotations

from importlib.util import find_spec

from mdsd.errors import UnsupportedError

EXTRAS = {
    "plot": ("matplotlib",),
    "study": ("pyarrow", "joblib"),
    "report": ("pyarrow", "joblib", "matplotlib", "pillow", "jinja2"),
    "cluster": ("distributed",),
    "gguf": ("llama-cpp-python",),
}
"""Packages that come with each extra whose absence `require` tells."""

_MODULES = {"pillow": "PIL", "llama-cpp-python": "llama_cpp"}
"""Names under which packages are imported, where these are others."""


def require(extra: str, what: str) -> None:
    """Refuse what needs libraries of an extra that are not installed; nothing is imported.

    Parameters
    ----------
    extra : str
        One of `EXTRAS`.
    what : str
        What needs them, for the message.

    Raises
    ------
    UnsupportedError
        Naming the first that is missing, and how to install it.
    """
    for package in EXTRAS[extra]:
        if not is_installed(_MODULES.get(package, package)):
            raise UnsupportedError(f"{what} needs {package}: pip install 'mdsd[{extra}]'")


def is_installed(module: str) -> bool:
    """Tell whether a module can be imported, without importing it.

    Examples
    --------
    >>> is_installed("numpy"), is_installed("nonsense")
    (True, False)
    """
    try:
        return find_spec(module) is not None
    except ValueError:  # a module that was made by hand
        return False
