"""One step of multi-draft speculative decoding: draft a tree, score it, verify it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_name, shown
from mdsd._tokens import read_token_ids
from mdsd._typing import FloatArray
from mdsd.batch._inputs import check_draft_name
from mdsd.decoding.batch_scheme import batch_shape, batch_verification
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree, DrawnTree
from mdsd.decoding.drafting import Drafting
from mdsd.decoding.laws import example_law
from mdsd.decoding.models import Model, check_model, model_logits
from mdsd.decoding.sampling import FilteredRows, LogitsProcessor, Sampling
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.token_ids import read_sequence
from mdsd.decoding.verification import step_verification
from mdsd.drafts import IndependentDrafts
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    UnsupportedError,
)
from mdsd.trees import TreeShape, read_tree
from mdsd.verifiers import RRSVerifier, Verifier

__all__ = ["SCHEMES", "Decoder", "Step", "make_decoder", "read_eos", "read_prompt"]

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
    """Models and settings of a decoder; what depends on chance is asked of `Choices`.

    A step is three calls: `draw`, `score` and `verify`.

    Attributes
    ----------
    target : Model
    draft_models : tuple of Model
        One; several for independent drafts.
    draft : str
        Name of the draft distribution.
    shape : TreeShape
        Of the tree drafted in a step that may emit as many tokens as it is deep.
    verification : StepVerification
    sampling : Sampling
        How tokens are drawn, by all models alike.
    eos_token_ids : frozenset of int
        Tokens that end the output.
    """

    target: Model
    draft_models: tuple[Model, ...]
    draft: str
    shape: TreeShape
    verification: StepVerification
    sampling: Sampling
    eos_token_ids: frozenset[int]

    def draw(self, prefix: list[int], length: int, choices: Choices) -> DrawnTree:
        """Draft a tree: one call of each draft model for each level.

        Parameters
        ----------
        prefix : list of int
            Tokens so far, prompt included.
        length : int
            Most tokens that the step may emit; nothing is drafted below that depth.
        choices : Choices

        Returns
        -------
        DrawnTree
        """
        drafting = Drafting(self.draft, self.shape.truncated(length), prefix)
        while drafting.prefixes:
            drafting.grow(self._draft_rows(drafting.prefixes), choices)
        return drafting.tree()

    def _draft_rows(self, prefixes: list[list[int]]) -> FloatArray:
        """Draft probabilities after each prefix: (B, V), or (B, m, V) for independent drafts."""
        several = self.draft == IndependentDrafts.name
        found = []
        for k, model in enumerate(self.draft_models):
            name = f"draft_model[{k}]" if several else "draft_model"
            logits = model_logits(name, model, prefixes)
            found.append(self.sampling.probs(prefixes, logits, name))
        return np.stack(found, axis=1) if several else found[0]

    def score(self, prefix: list[int], drawn: DrawnTree) -> DraftedTree:
        """Have the target look at a whole tree, in one call.

        Parameters
        ----------
        prefix : list of int
        drawn : DrawnTree

        Returns
        -------
        DraftedTree
            Whose laws are filtered when they are first asked for.
        """
        prefixes = drawn.prefixes(prefix)
        logits = model_logits("target", self.target, prefixes)
        rows = FilteredRows(self.sampling, prefixes, logits, "target")
        return DraftedTree(drawn.shape, drawn.token_ids, drawn.laws, rows)

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
    draft: str = "without_replacement",
    verifier: str | Verifier | StepVerification = "rrs",
    num_drafts: int = 3,
    depth: int = 4,
    tree: Any = None,
    scheme: str = "tree",
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    logits_processor: LogitsProcessor | None = None,
    eos_token_id: int | Sequence[int] | None = None,
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
    draft = check_draft_name(draft)
    models = _read_draft_models(draft_model, draft)
    for k, model in enumerate(models):
        name = "draft_model" if len(models) == 1 else f"draft_model[{k}]"
        if model.vocab_size != target.vocab_size:
            raise InvalidDistributionError(
                f"target_probs has {target.vocab_size} tokens but draft_probs of {name} has "
                f"{model.vocab_size}; give a MappedModel, or append tokens that cannot occur"
            )
    if check_name("scheme", scheme, SCHEMES) == "batch":
        shape, verification = _read_batch_scheme(verifier, num_drafts, depth, tree)
    else:
        shape = TreeShape.k_ary(num_drafts, depth) if tree is None else read_tree(tree)
        verification = step_verification(verifier)
    _check_laws(shape, draft, models, verification)
    return Decoder(
        target,
        models,
        draft,
        shape,
        verification,
        Sampling(temperature, top_k, top_p, logits_processor),
        read_eos(eos_token_id, target.vocab_size),
    )


def read_prompt(prompt_ids: Any, vocab_size: int) -> list[int]:
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


def read_eos(eos_token_id: Any, vocab_size: int) -> frozenset[int]:
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


def _read_draft_models(draft_model: Any, draft: str) -> tuple[Model, ...]:
    several = draft == IndependentDrafts.name
    if not isinstance(draft_model, (list, tuple)):
        if several and isinstance(draft_model, Model):
            raise InvalidArgumentError(
                "draft_model is one model; draft 'independent' takes a list of models, one for "
                "each child of a node"
            )
        return (check_model("draft_model", draft_model),)
    if not several or not draft_model:
        raise InvalidArgumentError(
            f"draft_model is {shown([type(model).__name__ for model in draft_model])}; expected "
            f"{'at least one model' if several else f'one model for draft {draft!r}'}"
        )
    return tuple(check_model(f"draft_model[{k}]", model) for k, model in enumerate(draft_model))


def _read_batch_scheme(
    verifier: Any, num_drafts: int, depth: int, tree: Any
) -> tuple[TreeShape, StepVerification]:
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
    return batch_shape(num_drafts, depth), batch_verification()


def _check_laws(
    shape: TreeShape, draft: str, models: tuple[Model, ...], verification: StepVerification
) -> None:
    counts = sorted({len(shape.children(node)) for node in set(shape.parents) - {-1}})
    if draft == IndependentDrafts.name and counts and counts[-1] > len(models):
        raise UnsupportedError(
            f"a node of the tree has {counts[-1]} children but there are {len(models)} draft "
            "models; independent drafts take one from each"
        )
    verification.check(example_law(draft, count) for count in counts)
