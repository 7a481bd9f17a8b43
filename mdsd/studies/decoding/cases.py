"""Which decoders a study runs: verifiers, draft distributions and trees of one budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mdsd.decoding import GrowingTree, TreeShape
from mdsd.decoding.decoder import Decoder, make_decoder
from mdsd.drafts import Draft, DraftKind, WithReplacement, read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.studies.decoding.models import TextModels
from mdsd.verifiers import RRSVerifier, SingleDraftVerifier

_CHAIN_VERIFIERS = (SingleDraftVerifier.name, "block")
"""Verifiers of single drafts, whose best tree is a chain."""


@dataclass(frozen=True)
class DecoderCase:
    """One decoder to run.

    Attributes
    ----------
    verifier, scheme : str
        As for `mdsd.decoding.generate`.
    draft : DraftKind
        Given as it is or by its label.
    tree : tuple of int
        Children of each node by level; (M, 1, ..., 1) for M chains of the batch scheme.
    """

    verifier: str
    draft: Draft
    tree: tuple[int, ...]
    scheme: str = "tree"

    def __post_init__(self) -> None:
        vars(self).update(draft=read_kind(self.draft))

    @property
    def kind(self) -> DraftKind:
        """What is drafted."""
        return read_kind(self.draft)

    @property
    def num_nodes(self) -> int:
        """Tokens drafted in a step.

        Examples
        --------
        >>> DecoderCase("rrs", "with_replacement", (3, 2, 1)).num_nodes
        15
        """
        return TreeShape.from_branching(self.tree).num_nodes

    @property
    def label(self) -> dict[str, Any]:
        """The columns that say which decoder a row is about."""
        return {
            "verifier": self.verifier,
            "draft": self.kind.label,
            "tree": self.tree,
            "scheme": self.scheme,
            "num_nodes": self.num_nodes,
        }

    def options(self, models: TextModels) -> dict[str, Any]:
        """Give the arguments of `mdsd.decoding.generate` that it decides, models included."""
        several = self.kind.one_model_each
        chosen: dict[str, Any] = {
            "target": models.target,
            "draft_model": list(models.draft_models) if several else models.draft_models[0],
            "draft": self.kind,
            "verifier": self.verifier,
            "scheme": self.scheme,
        }
        if self.scheme == "batch":
            return chosen | {"num_drafts": self.tree[0], "depth": len(self.tree)}
        return chosen | {"tree": list(self.tree)}

    def decoder(self, models: TextModels, **sampling: Any) -> Decoder:
        """Make the decoder, which checks everything; no model is asked yet.

        Raises
        ------
        InvalidArgumentError, UnsupportedError
            As for `mdsd.decoding.generate`.
        """
        return make_decoder(**self.options(models), **sampling)


@dataclass(frozen=True)
class GrowingCase(DecoderCase):
    """A decoder whose trees grow with what is drafted.

    Attributes
    ----------
    tree : tuple of int
        Empty: it is not known beforehand.
    scheme : str
        "growing".
    budget, depth : int
        As for `GrowingTree`.
    max_children : int, optional
    """

    tree: tuple[int, ...] = ()
    scheme: str = "growing"
    budget: int = 16
    depth: int = 6
    max_children: int | None = None

    @property
    def num_nodes(self) -> int:
        """Most tokens drafted in a step.

        Examples
        --------
        >>> GrowingCase("rrs", "with_replacement", budget=8).num_nodes
        8
        """
        return self.budget

    def options(self, models: TextModels) -> dict[str, Any]:  # noqa: D102
        grown = GrowingTree(
            self.budget,
            self.depth,
            max_children=self.max_children,
        )
        return super().options(models) | {"scheme": "tree", "tree": grown}


def candidates(
    tree: Sequence[int],
    verifiers: Iterable[str],
    drafts: Sequence[Draft],
    schemes: Sequence[str],
) -> tuple[DecoderCase, ...]:
    """List decoders that draft as many tokens in a step as a tree has, whether they exist or not.

    Parameters
    ----------
    tree : sequence of int
        Children of each node by level.
    verifiers, schemes : sequence of str
    drafts : sequence of (str or DraftKind)

    Returns
    -------
    tuple of DecoderCase
        Each verifier with each draft distribution on the tree. Beside it, single drafts and block
        verification on the chain of as many tokens, and the batch scheme with as many chains as the
        root has children, each as long as the number of tokens allows.

    Examples
    --------
    >>> for case in candidates([2, 2], ["single", "rrs"], ["with_replacement"], ["tree", "batch"]):
    ...     print(case.verifier, case.kind, case.tree, case.scheme)
    single with_replacement (2, 2) tree
    single with_replacement (1, 1, 1, 1, 1, 1) tree
    rrs with_replacement (2, 2) tree
    rrs with_replacement (2, 1, 1) batch
    """
    given = tuple(tree)
    nodes = TreeShape.from_branching(given).num_nodes
    chain, chains = (1,) * nodes, (given[0],) + (1,) * (nodes // given[0] - 1)
    kinds = [read_kind(draft) for draft in drafts]
    found: list[DecoderCase] = []
    for verifier in verifiers:
        if "tree" in schemes:
            found += [DecoderCase(verifier, kind, given) for kind in kinds]
            if verifier in _CHAIN_VERIFIERS and WithReplacement.kind() in kinds:
                found.append(DecoderCase(verifier, WithReplacement.kind(), chain))
        if "batch" in schemes and verifier == RRSVerifier.name and given[0] > 1:
            found += [
                DecoderCase(verifier, kind, chains, "batch")
                for kind in kinds
                if kind.draft_type.successive and not kind.one_model_each
            ]
    return tuple(dict.fromkeys(found))


def applicable(cases: Iterable[DecoderCase], models: TextModels) -> tuple[DecoderCase, ...]:
    """Leave out decoders whose verifier, draft distribution and tree do not go together.

    Parameters
    ----------
    cases : iterable of DecoderCase
    models : TextModels

    Returns
    -------
    tuple of DecoderCase
    """
    found = []
    for case in cases:
        with suppress(InvalidArgumentError, UnsupportedError):
            case.decoder(models)
            found.append(case)
    return tuple(found)
