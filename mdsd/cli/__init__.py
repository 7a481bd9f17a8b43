"""The command line: ``mdsd compare``, ``bound``, ``decode``, ``simulate`` and the others.

No logic of its own.
"""

from __future__ import annotations

import mdsd.cli._commands  # noqa: F401 - adds them to the group
from mdsd.cli._group import main

__all__ = ["main"]
