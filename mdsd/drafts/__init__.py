"""Draft distributions: the joint law of the draft tokens of one step, sampled AND declared.

A kind of drafts (`DraftKind`) is a class of them with its options, before there is anything to
draft from; batches, decoders and studies take it, or its label.

>>> read_kind("hybrid:1") == HybridDraft.kind(num_top=1)
True

To add one, put it in a file of its own here and list its class in `built_in`.
"""

from __future__ import annotations

from mdsd.drafts import built_in
from mdsd.drafts.base import MAX_TUPLES, DraftDistribution, DraftKind
from mdsd.drafts.built_in import *
from mdsd.drafts.registry import Draft, default_kinds, draft_names, read_kind

__all__ = [
    "MAX_TUPLES",
    "Draft",
    "DraftDistribution",
    "DraftKind",
    "default_kinds",
    "draft_names",
    "read_kind",
]
__all__ += built_in.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
