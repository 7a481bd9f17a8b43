"""Decoders: text from a target and a draft model, with any draft distribution and verifier.

`generate` runs one over objects with `vocab_size` and `logits` (see `Model`). A step drafts a tree
of tokens (`decoder`), scores it in one call of the target (`drafted`) and verifies it (`steps`,
`levels`). What it leaves to chance it asks of one object (`choices`), so that its exact law can be
followed branch by branch (`enumeration`, `mdsd.testing.sequence_law`).
"""

from __future__ import annotations

from mdsd.decoding.embedded import EmbeddedPair, PieceVocabulary, embedded_pair
from mdsd.decoding.generation import DecodeResult, DecodeSeconds, generate
from mdsd.decoding.models import Model, TableModel
from mdsd.decoding.ngram import NGramModel
from mdsd.decoding.vocabulary import MappedModel, map_vocabulary
from mdsd.trees import TreeShape

__all__ = [
    "DecodeResult",
    "DecodeSeconds",
    "EmbeddedPair",
    "MappedModel",
    "Model",
    "NGramModel",
    "PieceVocabulary",
    "TableModel",
    "TreeShape",
    "embedded_pair",
    "generate",
    "map_vocabulary",
]
