"""One step of multi-draft speculative decoding: draft a tree, score it, verify it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from mdsd.decoding.vocabulary import MappedModel, MappedRows, fit_vocabulary
from mdsd.decoding.windows import Notices, context_length, windowed
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
    context_length : int or None
        The longest text that the target was made for, if that is known.
    notices : Notices
        What users are told about its draft models.
    """

    target: RowModel
    draft_models: tuple[RowModel, ...]
    kind: DraftKind
    shape: TreeShape | TreeGrowth
    verification: StepVerification
    sampling: Sampling
    eos_token_ids: frozenset[int]
    context_length: int | None
    notices: Notices

    def draw(self, rows: Sequence[Row]) -> list[Drafting]:
        """Draft a tree for each row: one call of each draft model for each level.

        Parameters
        ----------
        rows : sequence of Row
            Nothing is drafted below the depth of as many tokens as a row may still get, or the
            target can read.

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
                self._depth(row),
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

    def _depth(self, row: Row) -> int:
        """Give the most levels to draft."""
        if self.context_length is None:
            return row.left
        return max(0, min(row.left, self.context_length - len(row.prefix)))

    def _draft_probs(self, model: RowModel, prefixes: Prefixes) -> list[Tensor]:
        """Ask a draft model what follows the prefixes of each row: (B, V), or empty.

        Rows in which it leaves no token possible are 0.
        """
        logits = model.logits(prefixes)
        probs = [
            self.sampling.probs(asked, found, model.name, may_be_empty=True) if asked else found
            for asked, found in zip(prefixes, logits, strict=True)
        ]
        if not all(row.any() for rows in probs for row in rows):
            self.notices.add(
                f"texts without drafts of {model.name}",
                f"{model.name} leaves no token possible after some texts, as where all that it "
                "proposes is unknown to the target: nothing is drafted there",
            )
        return probs

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
        self.notices.give()
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
    notices = Notices()
    models = _read_draft_models(draft_model, kind, target, notices)
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
        context_length("target", target),
        notices,
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


def _read_draft_models(
    draft_model: Any, kind: DraftKind, target: Model, notices: Notices
) -> tuple[RowModel, ...]:
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
    for name, given in models.items():
        models[name] = model = fit_vocabulary(check_model(name, given), target)
        if model.vocab_size != target.vocab_size:
            raise InvalidDistributionError(
                f"target_probs has {target.vocab_size} tokens but draft_probs of {name} has "
                f"{model.vocab_size}; give a MappedModel or both tokenizers, or append tokens "
                "that cannot occur"
            )
    return tuple(draft_rows(name, model, PlainRows, notices) for name, model in models.items())


def draft_rows(
    name: str, model: Model, make: Callable[[str, Model], RowModel], notices: Notices
) -> RowModel:
    """Have a draft model asked about rows, over the target's tokens, and shown what it can read.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : Model
    make : callable
        Called with a name and a model, that inside of a `MappedModel`; gives its rows.
    notices : Notices

    Returns
    -------
    RowModel
    """
    if isinstance(model, MappedModel):
        return MappedRows(model, draft_rows(name, model._model, make, notices))
    return windowed(make(name, model), model, notices)


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
