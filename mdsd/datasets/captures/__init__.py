"""Captures: distributions of a target and of draft models at many positions, in folders of shards.

``capture.json`` holds what is common to all positions (`CaptureHeader`); ``shard-00000.parquet``,
``shard-00001.parquet``, ... hold the positions, one a row, M draft models:

======================== ============= ============================================================
column                   type          content
======================== ============= ============================================================
position                 int64         number of the row in the whole capture
text                     int64         which text
token                    int64         number of the last token of the context in it
token_ids                list<int32>   the K tokens of the row, ascending
target_logprobs          list<float32> natural logarithm of the target's probability of each, from
                                       the softmax over the whole vocabulary at temperature 1
draft_logprobs_0, ...    list<float32> the same of each of the M draft models
target_kept_mass         float64       probability of the K tokens under the target, summed before
                                       rounding to float32
draft_kept_mass_0, ...   float64       the same of each draft model
======================== ============= ============================================================

K differs from row to row, and no value is missing. The footer of a shard holds the header again
(``mdsd.header``, JSON, without the number of positions asked for) and a digest of the content
(``mdsd.content``); each page has a checksum. Row groups have about two million numbers in each list
column: a reader needs the memory of one. The same positions in the same shards make the same bytes,
and anything that reads parquet files reads them.

A shard is written under a temporary name and gets its own when it is on the disk, so that after a
kill at any moment the folder holds whole shards. Nothing that has a name is replaced, unless a
capture is extended: ``capture.json`` by one that asks for more positions, and a last shard that was
not full by one that begins with the same rows.
"""

from mdsd.datasets.captures.folder import is_capture
from mdsd.datasets.captures.header import CaptureHeader
from mdsd.datasets.captures.reading import Capture, open_capture, read_capture
from mdsd.datasets.captures.writing import CapturedPosition, CaptureWriter

__all__ = [
    "Capture",
    "CaptureHeader",
    "CaptureWriter",
    "CapturedPosition",
    "is_capture",
    "open_capture",
    "read_capture",
]
