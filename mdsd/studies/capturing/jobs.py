"""Models and prompts of a capture, checked and described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, shown
from mdsd.datasets.captures import CaptureHeader
from mdsd.datasets.tables import check_model_names
from mdsd.decoding import Model
from mdsd.decoding.decoder import read_eos
from mdsd.decoding.models import check_model
from mdsd.decoding.token_ids import read_sequence
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.studies.capturing.capture_settings import CaptureSettings
from mdsd.studies.capturing.identity import (
    describe_model,
    token_ids_digest,
    versions,
    vocabulary_digest,
)
from mdsd.studies.capturing.prompts import Prompts, encode_prompts
from mdsd.studies.decoding.loading import GGUF
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.study_settings import listed


@dataclass(frozen=True, eq=False)
class CaptureJob:
    """What is captured from what.

    Attributes
    ----------
    models : tuple of Model
        The target and its draft models, over the same token ids.
    names : tuple of str
        Of these.
    prompts : tuple of list of int
    eos_token_ids : frozenset of int
        Tokens that end a sampled text.
    vocabulary_digest : str
    source : mapping
        Where the prompts come from.
    """

    models: tuple[Model, ...]
    names: tuple[str, ...]
    prompts: tuple[list[int], ...]
    eos_token_ids: frozenset[int]
    vocabulary_digest: str
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.models[0].vocab_size

    def header(self, settings: CaptureSettings) -> CaptureHeader:
        """Describe the capture as its files do: nothing in it depends on when or where it is made.

        Parameters
        ----------
        settings : CaptureSettings

        Returns
        -------
        CaptureHeader
        """
        roles = ("target", *(f"draft_{model}" for model in range(len(self.models) - 1)))
        described = map(describe_model, self.names, self.models)
        return CaptureHeader(
            target=self.names[0],
            draft_models=self.names[1:],
            vocab_size=self.vocab_size,
            tokenizer_hash=self.vocabulary_digest,
            top_k=settings.kept(self.vocab_size),
            provenance={
                "models": dict(zip(roles, described, strict=True)),
                "prompts": {**self.source, "token_ids_sha256": token_ids_digest(self.prompts)},
                "settings": {
                    **settings.describe(),
                    "eos_token_ids": sorted(self.eos_token_ids) if settings.sample else None,
                    "positions_per_shard": settings.shard_size(self.vocab_size, len(self.models)),
                },
                "versions": versions(self.models),
            },
        )


def text_job(models: TextModels, prompts: Prompts) -> CaptureJob:
    """Make the job of capturing texts.

    Parameters
    ----------
    models : TextModels
        They go by the names of their folders or files without the path, and those of the same name
        by a number behind it.
    prompts : Prompts

    Returns
    -------
    CaptureJob

    Raises
    ------
    InvalidArgumentError
        If a text cannot be encoded, or a name cannot be that of a column.
    InvalidTokenError
        If the tokenizer has more tokens than the target.
    """
    # Of "." and the like, too.
    names = [Path(name).resolve().name.removesuffix(GGUF) or "model" for name in models.names]
    return capture_job(
        models.target,
        models.draft_models,
        encode_prompts(prompts, models.encode),
        names=[names[0], *_numbered(names[1:])],
        eos_token_id=models.eos_token_ids or None,
        vocabulary=models.vocabulary or None,
        source={"name": prompts.name, "sha256": prompts.sha256},
    )


def _numbered(names: Sequence[str]) -> list[str]:
    """Tell equal names apart.

    Examples
    --------
    >>> _numbered(["small", "tiny", "small"])
    ['small', 'tiny', 'small-2']
    """
    found: list[str] = []
    for name in names:
        others = (f"{name}-{number}" for number in count(2))
        found.append(next(unused for unused in chain([name], others) if unused not in found))
    return found


def capture_job(
    target: Model,
    draft_models: Model | Sequence[Model],
    prompts: Iterable[ArrayLike],
    *,
    names: Sequence[str] | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    vocabulary: Mapping[str, int] | None = None,
    source: Mapping[str, Any] | None = None,
) -> CaptureJob:
    """Check models and prompts.

    Parameters
    ----------
    target, draft_models, prompts, names, eos_token_id, vocabulary
        As for `mdsd.studies.capture`.
    source : mapping, optional
        Where the prompts come from.

    Returns
    -------
    CaptureJob

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError, InvalidTokenError
        As for `mdsd.studies.capture`.
    """
    drafts = _read_models(target, draft_models)
    labels = _read_names(names, len(drafts))
    size = target.vocab_size
    texts = [
        read_sequence(f"prompts[{number}]", prompt, size)
        for number, prompt in enumerate(listed("prompts", prompts))
    ]
    if not texts:
        raise InvalidArgumentError("prompts is empty; expected at least one text")
    return CaptureJob(
        (target, *drafts),
        labels,
        tuple(texts),
        read_eos(eos_token_id, size),
        f"{size} token ids" if vocabulary is None else _read_vocabulary(vocabulary),
        dict(source or {}),
    )


def _read_models(target: Model, draft_models: Any) -> tuple[Model, ...]:
    check_model("target", target)
    several = isinstance(draft_models, (list, tuple))
    drafts = tuple(draft_models) if several else (draft_models,)
    if not drafts:
        raise InvalidArgumentError("draft_models is empty; expected at least one model")
    for number, model in enumerate(drafts):
        name = f"draft_models[{number}]" if several else "draft_models"
        check_model(name, model)
        if model.vocab_size != target.vocab_size:
            raise InvalidDistributionError(
                f"mixed vocabularies: target has {target.vocab_size} tokens but {name} has "
                f"{model.vocab_size}; give a MappedModel, or append tokens that cannot occur"
            )
    return drafts


def _read_names(names: Sequence[str] | None, num_drafts: int) -> tuple[str, ...]:
    if names is None:
        return ("target", *(f"draft_{model}" for model in range(num_drafts)))
    found = listed("names", names)
    if len(found) != num_drafts + 1:
        raise InvalidArgumentError(
            f"names is {shown(found)}; expected {num_drafts + 1}, of the target and of each draft "
            "model"
        )
    check_model_names("names", found[:1])
    check_model_names("names", found[1:])
    return tuple(found)


def _read_vocabulary(vocabulary: Mapping[str, int]) -> str:
    """Check tokens with their ids, and give the digest of them."""
    if not isinstance(vocabulary, Mapping):
        raise InvalidArgumentError(
            f"vocabulary is {shown(vocabulary)}; expected a mapping of tokens to their ids"
        )
    for token, number in vocabulary.items():
        if not isinstance(token, str):
            raise InvalidArgumentError(f"vocabulary holds {shown(token)}; expected strings")
        check_whole(f"vocabulary[{shown(token)}]", number, 0)
    return vocabulary_digest(vocabulary)
