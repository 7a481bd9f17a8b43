"""What a study of decoders is asked to do, checked before any model is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from mdsd._arguments import check_type, check_whole, shown
from mdsd.decoding import TreeShape
from mdsd.decoding.batch_scheme import batch_shape
from mdsd.decoding.decoder import SCHEMES, read_prompt
from mdsd.decoding.growing import DEFAULT_ACCEPTANCE
from mdsd.decoding.verification import PATH_VERIFICATIONS
from mdsd.decoding.windows import check_room
from mdsd.drafts import Draft, DraftKind, WithoutReplacement
from mdsd.errors import InvalidArgumentError
from mdsd.filters import FilterOptions, Filters, read_filters
from mdsd.studies.decoding.cases import DecoderCase, GrowingCase, applicable, candidates
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.study_settings import read_kinds, read_names
from mdsd.trees import MAX_NODES
from mdsd.verifiers import RRSVerifier, verifier_names

T = TypeVar("T")

DEFAULT_TREE = (3, 2, 1)
"""Fifteen tokens: enough to tell verifiers apart, and quick to draft and to score."""

DEFAULT_CHAINS = (3, 5)
"""Number and length of the chains of the batch scheme: as many tokens."""

DEFAULT_SEEDS = 5


@dataclass(frozen=True)
class DecodeSettings:
    """A checked request.

    Attributes
    ----------
    cases : tuple of DecoderCase
        Decoders to run.
    prompt : str
    prompt_ids : tuple of int
    max_new_tokens : int
    filters : Filters
    seeds : tuple of int
        One for each run, or for each text of a comparison.
    eos_token_ids : tuple of int
        Tokens that end a run.
    unused : tuple of str
        Verifiers that apply to none of the trees and draft distributions asked for.
    """

    cases: tuple[DecoderCase, ...]
    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    filters: Filters
    seeds: tuple[int, ...]
    eos_token_ids: tuple[int, ...]
    unused: tuple[str, ...] = ()

    def describe(self, models: TextModels) -> dict[str, Any]:
        """Give the settings as they are written next to the rows.

        Parameters
        ----------
        models : TextModels
        """
        return {
            "target": models.names[0],
            "draft_models": list(models.names[1:]),
            "prompt": self.prompt,
            "max_new_tokens": self.max_new_tokens,
            **self.filters.columns,
            "seeds": list(self.seeds),
        }


def decode_settings(
    models: TextModels,
    *,
    drafts: Iterable[Draft] = (WithoutReplacement.name,),
    verifiers: Iterable[str] = (RRSVerifier.name,),
    schemes: Iterable[str] = ("tree",),
    num_drafts: int | None = None,
    depth: int | None = None,
    tree: Sequence[int] | None = None,
    grow: int | None = None,
    seeds: int | None = None,
    **common: Any,
) -> DecodeSettings:
    """Check the options of a single run, which an end token may end.

    Parameters
    ----------
    models : TextModels
    drafts : iterable of (str or DraftKind)
    verifiers, schemes : iterable of str
        One each, as for `mdsd.decoding.generate`.
    num_drafts, depth : int, optional
    tree : sequence of int, optional
        The tree, or the chains of the batch scheme; where nothing is said `DEFAULT_TREE`, or
        `DEFAULT_CHAINS`. Of `num_drafts` and `depth` one alone leaves the other at 3 and 4.
    grow : int, optional
        Instead a tree that grows with what is drafted, of at most so many tokens: a `GrowingTree`
        of at most `depth` levels, 6 where nothing is said, and `num_drafts` children of a node.
    seeds : None
        A number of runs is for a comparison only.
    **common
        As for `comparison_settings`: `prompt`, `max_new_tokens`, `seed` and filters.

    Returns
    -------
    DecodeSettings

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        If an option is out of range, a name is not known, or they do not go together.
    """
    verifier = _single("verifier", _read_verifiers(verifiers))
    kind = _single("draft", read_kinds(drafts))
    scheme = _single("scheme", read_names("scheme", schemes, SCHEMES, SCHEMES))
    if seeds is not None:
        raise InvalidArgumentError(f"seeds is {shown(seeds)}; expected it in a comparison only")
    if grow is None:
        branching = _read_tree(num_drafts, depth, tree, scheme)
        case = DecoderCase(verifier, kind, branching, scheme)
    else:
        case = _growing_case(verifier, kind, scheme, tree, grow, depth, num_drafts)
    return _settings(models, (case,), seeds=1, eos_token_ids=models.eos_token_ids, **common)


def comparison_settings(
    models: TextModels,
    *,
    drafts: Iterable[Draft] | None = None,
    verifiers: Iterable[str] | None = None,
    schemes: Iterable[str] | None = None,
    num_drafts: int | None = None,
    depth: int | None = None,
    tree: Sequence[int] | None = None,
    grow: None = None,
    seeds: int = DEFAULT_SEEDS,
    **common: Any,
) -> DecodeSettings:
    """Check the options of a comparison, in which every text has the same length.

    Parameters
    ----------
    models : TextModels
    drafts : iterable of (str or DraftKind), optional
    verifiers, schemes : iterable of str, optional
        All that apply if None. On a chain, draft distributions that are that of a single
        draft stand for it once.
    num_drafts, depth : int, optional
    tree : sequence of int, optional
        The tree whose number of tokens is everyone's budget, see `candidates`; `DEFAULT_TREE` where
        nothing is said.
    grow : None
        Trees that grow are for a single run only.
    seeds : int, default 5
        Texts along which trees are drawn.
    **common
        `prompt`, "The" by default; `max_new_tokens`, 64 by default, the length of a text, which end
        tokens do not end, and the number of trees drawn along it; `seed`, 0 by default, of the
        first text, which those of the others follow; and filters as for `mdsd.decoding.generate`.

    Returns
    -------
    DecodeSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to run.
    """
    if grow is not None:
        raise InvalidArgumentError(f"grow is {shown(grow)}; expected it in a single run only")
    chosen = _read_verifiers(verifiers)
    plans = read_names("scheme", schemes, SCHEMES, SCHEMES)
    branching = _read_tree(num_drafts, depth, tree)
    kinds = read_kinds(drafts)
    if drafts is None and max(branching) == 1:
        kinds = _of_single_drafts(kinds)
    if drafts is None and len(models.draft_models) == 1:
        kinds = tuple(kind for kind in kinds if not kind.one_model_each)

    cases = applicable(candidates(branching, chosen, kinds, plans), models)
    if not cases:
        raise InvalidArgumentError(
            f"nothing to run: none of the verifiers {', '.join(chosen)} applies to "
            f"{', '.join(map(str, kinds))} on the tree {shown_tree(branching)}"
        )
    used = {case.verifier for case in cases}
    unused = tuple(name for name in chosen if name not in used)
    return _settings(models, cases, unused, seeds=seeds, compared=True, **common)


def _of_single_drafts(kinds: Sequence[DraftKind]) -> tuple[DraftKind, ...]:
    """Keep one of the built-in kinds whose single draft is drawn as it is from the draft model."""
    kept: dict[object, DraftKind] = {}
    for kind in kinds:
        if kind.refusal(1) is None:
            plain = kind.draft_type.declared and not (kind.one_model_each or kind.num_certain(1))
            kept.setdefault("plain" if plain else kind, kind)
    return tuple(kept.values())


def shown_tree(tree: Sequence[int], scheme: str = "tree") -> str:
    """Write a tree as the command line takes it, and chains as their number and length.

    Examples
    --------
    >>> shown_tree((3, 2, 1)), shown_tree((1, 1, 1)), shown_tree((3, 1, 1, 1), "batch")
    ('3,2,1', '1 x 3', '3 x 4')
    """
    if scheme == "batch" or max(tree) == 1:
        return f"{tree[0]} x {len(tree)}"
    return ",".join(map(str, tree))


def _settings(
    models: TextModels,
    cases: tuple[DecoderCase, ...],
    unused: tuple[str, ...] = (),
    *,
    seeds: int,
    compared: bool = False,
    prompt: str = "The",
    max_new_tokens: int = 64,
    seed: int = 0,
    eos_token_ids: tuple[int, ...] = (),
    **filters: Unpack[FilterOptions],
) -> DecodeSettings:
    """Check what all studies have in common, and that every decoder can be made."""
    check_type("prompt", prompt, str)
    prompt_ids = models.encode(prompt)
    if not prompt_ids:
        raise InvalidArgumentError(f"prompt is {prompt!r}; expected a text of at least one token")
    first = check_whole("seed", seed, 0, math.inf)
    count = check_whole("seeds", seeds, 1)
    settings = DecodeSettings(
        cases,
        prompt,
        tuple(read_prompt(prompt_ids, models.target.vocab_size)),
        check_whole("max_new_tokens", max_new_tokens, 1),
        read_filters(filters),
        tuple(range(first, first + count)),
        eos_token_ids,
        unused,
    )
    for case in cases:
        decoder = case.decoder(models, **settings.filters.columns)
        # Trees of a comparison are not cut where the text ends.
        check_room(
            "max_new_tokens",
            len(prompt_ids),
            settings.max_new_tokens,
            decoder.context_length,
            ahead=decoder.shape.depth if compared else 0,
        )
    return settings


def _read_verifiers(given: Iterable[str] | None) -> tuple[str, ...]:
    known = (*verifier_names(), *PATH_VERIFICATIONS)
    return read_names("verifier", given, known, known)


def _single(what: str, chosen: Sequence[T]) -> T:
    if len(chosen) > 1:
        raise InvalidArgumentError(
            f"{what}s is {', '.join(map(str, chosen))}; expected one; several are for a comparison"
        )
    return chosen[0]


def _growing_case(
    verifier: str,
    kind: DraftKind,
    scheme: str,
    tree: Sequence[int] | None,
    grow: int,
    depth: int | None,
    num_drafts: int | None,
) -> GrowingCase:
    other = "tree" if tree is not None else "scheme 'batch'" if scheme == "batch" else None
    if other is not None:
        raise InvalidArgumentError(f"grow and {other} are both given; expected one of them")
    budget = check_whole("grow", grow, 1, MAX_NODES)
    levels = check_whole("depth", GrowingCase.depth if depth is None else depth, 1, MAX_NODES)
    if num_drafts is not None:
        check_whole("num_drafts", num_drafts, 1, len(DEFAULT_ACCEPTANCE))
    return GrowingCase(verifier, kind, budget=budget, depth=levels, max_children=num_drafts)


def _read_tree(
    num_drafts: int | None, depth: int | None, tree: Sequence[int] | None, scheme: str = "tree"
) -> tuple[int, ...]:
    """Read a tree by its branching; of `num_drafts` and `depth`, one alone leaves the other."""
    if tree is not None:
        if scheme == "batch":
            raise InvalidArgumentError(
                "tree and scheme 'batch' are both given; the scheme drafts num_drafts chains of "
                "depth tokens"
            )
        if num_drafts is not None or depth is not None:
            other = "depth" if num_drafts is None else "num_drafts"
            raise InvalidArgumentError(f"tree and {other} are both given; a tree has its own")
        return TreeShape.from_branching(tree).branching or ()
    if num_drafts is None and depth is None:
        if scheme == "tree":
            return DEFAULT_TREE
        num_drafts, depth = DEFAULT_CHAINS
    made = batch_shape if scheme == "batch" else TreeShape.k_ary
    # What is not given is as `mdsd.decoding.generate` has it.
    shape = made(3 if num_drafts is None else num_drafts, 4 if depth is None else depth)
    return shape.branching or ()
