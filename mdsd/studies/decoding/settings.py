"""What a study of decoders is asked to do, checked before any model is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mdsd._arguments import check_type, check_whole, shown
from mdsd.decoding import TreeShape
from mdsd.decoding.batch_scheme import batch_shape
from mdsd.decoding.decoder import SCHEMES, read_prompt
from mdsd.decoding.verification import PATH_VERIFICATIONS
from mdsd.drafts import IndependentDrafts, TopKDraft, WithoutReplacement, WithReplacement
from mdsd.errors import InvalidArgumentError
from mdsd.studies.decoding.cases import DecoderCase, applicable, candidates
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.positions import DRAFT_NAMES
from mdsd.studies.settings import read_names
from mdsd.verifiers import RRSVerifier, verifier_names

__all__ = [
    "DEFAULT_SEEDS",
    "DEFAULT_TREE",
    "DecodeSettings",
    "comparison_settings",
    "decode_settings",
    "shown_tree",
]

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
    temperature : float
    top_k : int or None
    top_p : float
    seeds : tuple of int
        One for each run of each decoder.
    eos_token_ids : tuple of int
        Tokens that end a run.
    unused : tuple of str
        Verifiers that apply to none of the trees and draft distributions asked for.
    """

    cases: tuple[DecoderCase, ...]
    prompt: str
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float
    seeds: tuple[int, ...]
    eos_token_ids: tuple[int, ...]
    unused: tuple[str, ...] = ()

    @property
    def sampling(self) -> dict[str, Any]:
        """How tokens are drawn, as `mdsd.decoding.generate` takes it."""
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}

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
            **self.sampling,
            "seeds": list(self.seeds),
        }


def decode_settings(
    models: TextModels,
    *,
    drafts: Iterable[str] = (WithoutReplacement.name,),
    verifiers: Iterable[str] = (RRSVerifier.name,),
    schemes: Iterable[str] = ("tree",),
    num_drafts: int | None = None,
    depth: int | None = None,
    tree: Sequence[int] | None = None,
    seeds: int | None = None,
    **common: Any,
) -> DecodeSettings:
    """Check the options of a single run, which an end token may end.

    Parameters
    ----------
    models : TextModels
    drafts, verifiers, schemes : iterable of str
        One name each, as for `mdsd.decoding.generate`.
    num_drafts, depth : int, optional
    tree : sequence of int, optional
        The tree, or the chains of the batch scheme; where nothing is said `DEFAULT_TREE`, or
        `DEFAULT_CHAINS`. Of `num_drafts` and `depth` one alone leaves the other at 3 and 4.
    seeds : None
        A number of runs is for a comparison only.
    **common
        As for `comparison_settings`: `prompt`, `max_new_tokens`, `temperature`, `top_k`, `top_p`
        and `seed`.

    Returns
    -------
    DecodeSettings

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        If an option is out of range, a name is not known, or they do not go together.
    """
    verifier = _name("verifier", verifiers, _verifier_names())
    draft = _name("draft", drafts, DRAFT_NAMES)
    scheme = _name("scheme", schemes, SCHEMES)
    if seeds is not None:
        raise InvalidArgumentError(f"seeds is {shown(seeds)}; expected it in a comparison only")
    if scheme == "batch":
        branching = _read_chains(num_drafts, depth, tree)
    else:
        branching = _read_branching(num_drafts, depth, tree)
    case = DecoderCase(verifier, draft, branching, scheme)
    return _settings(models, (case,), seeds=1, eos_token_ids=models.eos_token_ids, **common)


def comparison_settings(
    models: TextModels,
    *,
    drafts: Iterable[str] | None = None,
    verifiers: Iterable[str] | None = None,
    schemes: Iterable[str] | None = None,
    num_drafts: int | None = None,
    depth: int | None = None,
    tree: Sequence[int] | None = None,
    prompt: str = "The",
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    seeds: int = DEFAULT_SEEDS,
) -> DecodeSettings:
    """Check the options of a comparison, in which every run has the same length.

    Parameters
    ----------
    models : TextModels
    drafts, verifiers, schemes : iterable of str, optional
        Names; all that apply if None. On a chain, draft distributions that are that of a single
        draft stand for it once.
    num_drafts, depth : int, optional
    tree : sequence of int, optional
        The tree whose number of tokens is everyone's budget, see `candidates`; `DEFAULT_TREE` where
        nothing is said.
    prompt : str, default "The"
    max_new_tokens : int, default 64
        Length of a run. End tokens do not end it.
    temperature, top_k, top_p
        As for `mdsd.decoding.generate`.
    seed : int, default 0
        Seed of the first run; the others follow it.
    seeds : int, default 5
        Runs of each decoder.

    Returns
    -------
    DecodeSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to run.
    """
    judges = _names("verifier", verifiers, _verifier_names())
    laws = _names("draft", drafts, DRAFT_NAMES)
    plans = _names("scheme", schemes, SCHEMES)
    branching = _read_branching(num_drafts, depth, tree)
    if drafts is None and max(branching) == 1:
        laws = (WithReplacement.name, IndependentDrafts.name, TopKDraft.name)
    if drafts is None and len(models.draft_models) == 1:
        laws = tuple(law for law in laws if law != IndependentDrafts.name)

    cases = applicable(candidates(branching, judges, laws, plans), models)
    if not cases:
        raise InvalidArgumentError(
            f"nothing to run: none of the verifiers {', '.join(judges)} applies to "
            f"{', '.join(laws)} on the tree {shown_tree(branching)}"
        )
    used = {case.verifier for case in cases}
    return _settings(
        models,
        cases,
        tuple(judge for judge in judges if judge not in used),
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        seeds=seeds,
    )


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
    prompt: str = "The",
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    eos_token_ids: tuple[int, ...] = (),
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
        temperature,
        top_k if top_k is not None and top_k not in (0, -1) else None,
        top_p,
        tuple(range(first, first + count)),
        eos_token_ids,
        unused,
    )
    for case in cases:
        case.decoder(models, **settings.sampling)
    return settings


def _verifier_names() -> tuple[str, ...]:
    return (*verifier_names(), *PATH_VERIFICATIONS)


def _names(kind: str, given: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    return read_names(kind, given, known, known)


def _name(kind: str, given: Iterable[str], known: Sequence[str]) -> str:
    names = _names(kind, given, known)
    if len(names) > 1:
        raise InvalidArgumentError(
            f"{kind}s is {', '.join(names)}; expected one; several are for a comparison"
        )
    return names[0]


def _read_branching(
    num_drafts: int | None, depth: int | None, tree: Sequence[int] | None
) -> tuple[int, ...]:
    if tree is not None:
        if num_drafts is not None or depth is not None:
            other = "depth" if num_drafts is None else "num_drafts"
            raise InvalidArgumentError(f"tree and {other} are both given; a tree has its own")
        return _branching(TreeShape.from_branching(tree))
    if num_drafts is None and depth is None:
        return DEFAULT_TREE
    return _branching(TreeShape.k_ary(*_completed(num_drafts, depth)))


def _read_chains(
    num_drafts: int | None, depth: int | None, tree: Sequence[int] | None
) -> tuple[int, ...]:
    if tree is not None:
        raise InvalidArgumentError(
            "tree and scheme 'batch' are both given; the scheme drafts num_drafts chains of depth "
            "tokens"
        )
    if num_drafts is None and depth is None:
        num_drafts, depth = DEFAULT_CHAINS
    return _branching(batch_shape(*_completed(num_drafts, depth)))


def _completed(num_drafts: int | None, depth: int | None) -> tuple[int, int]:
    """Leave what is not given at the default of `mdsd.decoding.generate`."""
    return 3 if num_drafts is None else num_drafts, 4 if depth is None else depth


def _branching(shape: TreeShape) -> tuple[int, ...]:
    assert shape.branching is not None  # all nodes of a level are alike
    return shape.branching
