"""Studies over many positions: verifiers compared, bounds, and their tables, files and plots."""

from __future__ import annotations

from mdsd.studies.biases import RuleRow, bias
from mdsd.studies.bounding import bound
from mdsd.studies.capturing.runs import capture
from mdsd.studies.capturing.summary import CaptureSummary
from mdsd.studies.comparison import compare
from mdsd.studies.frames import Rows
from mdsd.studies.grid import StudyRow, study
from mdsd.studies.intervals import IntervalRow, interval
from mdsd.studies.study_rows import BoundRow, CompareRow, Missing

__all__ = [
    "BoundRow",
    "CaptureSummary",
    "CompareRow",
    "IntervalRow",
    "Missing",
    "Rows",
    "RuleRow",
    "StudyRow",
    "bias",
    "bound",
    "capture",
    "compare",
    "interval",
    "study",
]
