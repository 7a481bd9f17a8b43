"""Next-token distributions of a target and its drafts at the same positions, embedded or your own.

`load` returns a data set that comes with the library, `read_npz` reads a file of one's own, and
`read_capture` the folder that a `CaptureWriter` or ``mdsd capture`` wrote. All give a `Dataset`,
whose arrays are checked, float64 and read-only. `open_source` reads any of them a block of
positions at a time.

Logs of servers know the most probable tokens only: `read_jsonl` and `scan_jsonl` give
`TopLogprobs`.
"""

from mdsd.datasets.captures import CapturedPosition, CaptureHeader, CaptureWriter, read_capture
from mdsd.datasets.dataset import Dataset
from mdsd.datasets.embedded import load, names
from mdsd.datasets.logs import LoggedPosition, TopLogprobs, read_jsonl, scan_jsonl
from mdsd.datasets.npz import read_npz
from mdsd.datasets.sources import Source, open_source

__all__ = [
    "CaptureHeader",
    "CaptureWriter",
    "CapturedPosition",
    "Dataset",
    "LoggedPosition",
    "Source",
    "TopLogprobs",
    "load",
    "names",
    "open_source",
    "read_capture",
    "read_jsonl",
    "read_npz",
    "scan_jsonl",
]
