"""Decoders: text from a target and a draft model, with any draft distribution and verifier.

`generate` runs one over objects with `vocab_size` and `logits` (see `Model`). A step
(`decoder`, over sequences side by side: `rows`) drafts a tree of tokens (`drafting`), which may
grow with what is drafted (`growth`, `growing`); scores it in one call of the target (`drafted`);
and verifies it (`steps`): with any one-step verifier (`levels`), whole paths at once (`block`,
`traversal`), all branches (`layers`), or noise that drafts and text share (`gumbel`). What it
leaves to chance it asks of one object (`choices`), so that its exact law can be followed branch by
branch (`enumeration`, `mdsd.testing.sequence_law`).

`layouts` verifies in the arrays of serving engines; `transformers` and `economize` plug into the
decoders of those packages.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mdsd.decoding.biased import BiasedVerification
from mdsd.decoding.embedded import EmbeddedPair, PieceVocabulary, embedded_pair
from mdsd.decoding.generation import generate
from mdsd.decoding.growing import GrowingTree
from mdsd.decoding.growth import DraftedLevel, TreeGrowth
from mdsd.decoding.gumbel import GumbelVerification
from mdsd.decoding.models import Model, TableModel
from mdsd.decoding.ngram import NGramModel
from mdsd.decoding.results import DecodeResult, DecodeSeconds
from mdsd.decoding.vocabulary import MappedModel, map_vocabulary
from mdsd.trees import TreeShape

__all__ = [
    "BiasedVerification",
    "DecodeResult",
    "DecodeSeconds",
    "DraftedLevel",
    "EmbeddedPair",
    "GrowingTree",
    "GumbelVerification",
    "MappedModel",
    "Model",
    "NGramModel",
    "PieceVocabulary",
    "TableModel",
    "TreeGrowth",
    "TreeShape",
    "embedded_pair",
    "generate",
    "map_vocabulary",
]

_LAZY_MODULES = ("economize", "layouts", "llama_cpp", "transformers")


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY_MODULES:
        return import_module(f"mdsd.decoding.{name}")
    raise AttributeError(f"module 'mdsd.decoding' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY_MODULES])
