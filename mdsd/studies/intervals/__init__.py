"""Acceptance bounds from below and above, where only the most probable tokens are known."""

from __future__ import annotations

from mdsd.studies.intervals.interval_rows import IntervalRow
from mdsd.studies.intervals.runs import interval

__all__ = ["IntervalRow", "interval"]
