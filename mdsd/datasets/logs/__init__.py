"""Logs of the most probable tokens, as serving engines and APIs return them."""

from __future__ import annotations

from mdsd.datasets.logs.lines import LoggedPosition
from mdsd.datasets.logs.reading import TopLogprobs, read_jsonl, scan_jsonl

__all__ = ["LoggedPosition", "TopLogprobs", "read_jsonl", "scan_jsonl"]
