"""Studies over many positions: verifiers compared, bounds, and their tables, files and plots."""

from __future__ import annotations

from mdsd.studies.bounding import bound
from mdsd.studies.comparison import compare
from mdsd.studies.rows import BoundRow, CompareRow, Missing

__all__ = ["BoundRow", "CompareRow", "Missing", "bound", "compare"]
