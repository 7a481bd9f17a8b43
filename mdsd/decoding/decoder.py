"""One step of multi-draft speculative decoding: draft a tree, score it, verify it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from numpy.typing import ArrayLike

from mdsd._arguments import check_name, shown
from mdsd._tokens import read_token_ids
from mdsd._typing import Tensor
from mdsd.decoding.batch_scheme import batch_shape
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.drafting import Drafting
from mdsd.decoding.growth import TreeGrowth, TreeOption, read_tree_option
from mdsd.decoding.models import Model, check_model
from mdsd.decoding.rows import PlainRows, Prefixes, Row, RowModel
from mdsd.decoding.sampling import FilteredRows, LogitsProcessor, Sampling
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.token_ids import read_sequence
from mdsd.decoding.verification import step_verification
from mdsd.drafts import Draft, DraftKind, read_kind
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    UnsupportedError,
)
from mdsd.filters import FilterOptions, read_filters
from mdsd.trees import TreeShape
from mdsd.verifiers import RRSVerifier, Verifier

SCHEMES = ("tree", "batch")


@dataclass(frozen=True)
class Step:
    """What one step adds to the output.

    Attributes
    ----------
    token_ids : tuple of int
        New tokens, cut behind an end token and at the length allowed.
    accepted : int
        How many of them were drafted and accepted.
    ended : bool
        Whether the last one is an end token.
    """

    token_ids: tuple[int, ...]
    accepted: int
    ended: bool


@dataclass(frozen=True, eq=False)
class Decoder:
    """Models and settings of a decoder, whose steps are made over rows: one sequence is one row.

    A step is `draw` and `score` for all rows together, and `verify` for each. What depends on
    chance is asked of the `Choices` of a row.

    Attributes
    ----------
    target : RowModel
    draft_models : tuple of RowModel
        One; several for independent drafts.
    kind : DraftKind
        How the children of a node are drafted.
    shape : TreeShape or TreeGrowth
        Of the tree drafted in a step that may emit as many tokens as it is deep; or the rule by
        which trees grow.
    verification : StepVerification
    sampling : Sampling
        How tokens are drawn, by all models alike.
    eos_token_ids : frozenset of int
        Tokens that end the output.
    """

    target: RowModel
    draft_models: tuple[RowModel, ...]
    kind: DraftKind
    shape: TreeShape | TreeGrowth
    verification: StepVerification
    sampling: Sampling
    eos_token_ids: frozenset[int]

    def draw(self, rows: Sequence[Row]) -> list[Drafting]:
        """Draft a tree for each row: one call of each draft model for each level.

        Parameters
        ----------
        rows : sequence of Row
            Nothing is drafted below the depth of as many tokens as a row may still get.

        Returns
        -------
        list of Drafting
            Complete.
        """
        how = self.verification
        growing = [
            Drafting(
                self.kind,
                self.shape,
                row.prefix,
                row.left,
                in_draft_order=how.in_draft_order,
                draw=how.draw,
            )
            for row in rows
        ]
        while any(drafting.prefixes for drafting in growing):
            prefixes = [drafting.prefixes for drafting in growing]
            by_model = [self._draft_probs(model, prefixes) for model in self.draft_models]
            for row, drafting, *probs in zip(rows, growing, *by_model, strict=True):
                drafting.grow(probs, row.choices)
        return growing

    def _draft_probs(self, model: RowModel, prefixes: Prefixes) -> list[Tensor]:
        """Ask a draft model what follows the prefixes of each row: (B, V), or empty."""
        logits = model.logits(prefixes)
        return [
            self.sampling.probs(asked, found, model.name) if asked else found
            for asked, found in zip(prefixes, logits, strict=True)
        ]

    def score(self, drawn: Sequence[Drafting]) -> list[DraftedTree]:
        """Have the target look at the whole trees of all rows, in one call.

        Parameters
        ----------
        drawn : sequence of Drafting
            One for each row.

        Returns
        -------
        list of DraftedTree
            Whose distributions are filtered when they are first asked for.
        """
        logits = self.target.logits([drafting.paths for drafting in drawn])
        return [
            drafting.tree(FilteredRows(self.sampling, drafting.paths, found, self.target.name))
            for drafting, found in zip(drawn, logits, strict=True)
        ]

    def verify(self, tree: DraftedTree, length: int, choices: Choices) -> Step:
        """Verify a tree and cut what it emits at an end token and at the length allowed.

        Parameters
        ----------
        tree : DraftedTree
        length : int
            Most tokens to emit.
        choices : Choices

        Returns
        -------
        Step
        """
        outcome = self.verification(tree, choices)
        emitted = [*tree.token_ids[list(outcome.path)].tolist(), outcome.token_id][:length]
        ends = [place for place, token in enumerate(emitted) if token in self.eos_token_ids]
        if ends:
            emitted = emitted[: ends[0] + 1]
        return Step(tuple(emitted), min(len(outcome.path), len(emitted)), bool(ends))


def make_decoder(
    target: Model,
    draft_model: Model | Sequence[Model],
    *,
    draft: Draft = "without_replacement",
    verifier: str | Verifier | StepVerification = "rrs",
    num_drafts: int = 3,
    depth: int = 4,
    tree: TreeOption | None = None,
    scheme: str = "tree",
    logits_processor: LogitsProcessor | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    **filters: Unpack[FilterOptions],
) -> Decoder:
    """Check the arguments of a decoder, as `generate` takes them, before any model is asked.

    Returns
    -------
    Decoder

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError, InvalidTokenError, UnsupportedError
        As for `generate`.
    """
    check_model("target", target)
    kind = read_kind(draft)
    models = _read_draft_models(draft_model, kind, target.vocab_size)
    if check_name("scheme", scheme, SCHEMES) == "batch":
        _check_batch_scheme(verifier, tree)
        shape: TreeShape | TreeGrowth = batch_shape(num_drafts, depth)
    else:
        shape = TreeShape.k_ary(num_drafts, depth) if tree is None else read_tree_option(tree)
    verification = step_verification(verifier)
    _check_drafts(shape, kind, len(models), verification)
    return Decoder(
        PlainRows("target", target),
        models,
        kind,
        shape,
        verification,
        Sampling(read_filters(filters), logits_processor),
        read_eos(eos_token_id, target.vocab_size),
    )


def read_prompt(prompt_ids: ArrayLike, vocab_size: int) -> list[int]:
    """Check the tokens that an output is to continue.

    Returns
    -------
    list of int

    Raises
    ------
    InvalidTokenError
        If they are not integers in ``0 .. V - 1``, or there are none.
    """
    return read_sequence("prompt_ids", prompt_ids, vocab_size, least=1)


def read_eos(eos_token_id: ArrayLike | None, vocab_size: int) -> frozenset[int]:
    """Check the tokens that end an output.

    Returns
    -------
    frozenset of int
        Empty if None are given.

    Raises
    ------
    InvalidTokenError
        If they are not integers in ``0 .. V - 1``, or an empty list.
    """
    if eos_token_id is None:
        return frozenset()
    ids = read_token_ids(eos_token_id, "eos_token_id")
    several = ids.reshape(1) if ids.ndim == 0 else ids
    return frozenset(read_sequence("eos_token_id", several, vocab_size, least=1))


def _read_draft_models(draft_model: Any, kind: DraftKind, vocab_size: int) -> tuple[PlainRows, ...]:
    several = kind.one_model_each
    if not isinstance(draft_model, (list, tuple)):
        if several and isinstance(draft_model, Model):
            raise InvalidArgumentError(
                f"draft_model is one model; draft {kind.label!r} takes a list of models, one for "
                "each child of a node"
            )
        models = {"draft_model": draft_model}
    elif several and draft_model:
        models = {f"draft_model[{k}]": model for k, model in enumerate(draft_model)}
    else:
        raise InvalidArgumentError(
            f"draft_model is {shown([type(model).__name__ for model in draft_model])}; expected "
            f"{'at least one model' if several else f'one model for draft {kind.label!r}'}"
        )
    for name, model in models.items():
        if check_model(name, model).vocab_size != vocab_size:
            raise InvalidDistributionError(
                f"target_probs has {vocab_size} tokens but draft_probs of {name} has "
                f"{model.vocab_size}; give a MappedModel, or append tokens that cannot occur"
            )
    return tuple(PlainRows(name, model) for name, model in models.items())


def _check_batch_scheme(verifier: object, tree: TreeOption | None) -> None:
    if tree is not None:
        raise InvalidArgumentError(
            "tree and scheme='batch' are both given; the scheme drafts num_drafts chains of depth "
            "tokens"
        )
    named = isinstance(verifier, str) and verifier == RRSVerifier.name
    if not named and type(verifier) is not RRSVerifier:
        raise InvalidArgumentError(
            f"verifier is {shown(verifier)}; scheme 'batch' is that of 'rrs'"
        )


def _check_drafts(
    shape: TreeShape | TreeGrowth, kind: DraftKind, num_models: int, verification: StepVerification
) -> None:
    if isinstance(shape, TreeShape):
        counts = sorted({len(shape.children(node)) for node in set(shape.parents) - {-1}})
        if kind.one_model_each and counts and counts[-1] > num_models:
            raise UnsupportedError(
                f"a node of the tree has {counts[-1]} children but there are {num_models} draft "
                f"models; {kind} drafts take one from each"
            )
    else:
        most = min(shape.max_children, shape.budget)
        counts = [count for count in range(1, most + 1) if kind.applies(count, num_models)]
        if not counts:
            raise InvalidArgumentError(
                f"{type(shape).__name__} gives a node {most} children at most; {kind.refusal(most)}"
            )
    verification.check(kind.example(count) for count in counts)
