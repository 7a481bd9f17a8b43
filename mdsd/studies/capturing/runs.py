"""Capturing position by position, shard by shard, from wherever a capture was left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from mdsd._files import as_path
from mdsd.datasets.captures import CapturedPosition
from mdsd.datasets.captures.folder import check_folder
from mdsd.datasets.mistaken import warn_of_models
from mdsd.decoding import Model
from mdsd.decoding.windows import Notices
from mdsd.errors import InvalidArgumentError
from mdsd.studies.capturing.capture_settings import DEFAULT_TOP_K, CaptureSettings
from mdsd.studies.capturing.folders import last_place, open_writer
from mdsd.studies.capturing.jobs import CaptureJob, capture_job
from mdsd.studies.capturing.positions import captured_position
from mdsd.studies.capturing.reading import Reader, blocks, continued
from mdsd.studies.capturing.summary import CaptureSummary, summarise
from mdsd.studies.cases import Progress, check_progress


def capture(
    target: Model,
    draft_models: Model | Sequence[Model],
    prompts: Iterable[ArrayLike],
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    vocabulary: Mapping[str, int] | None = None,
    sample: bool = False,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    top_k: int | None = DEFAULT_TOP_K,
    positions: int | None = None,
    min_context: int = 1,
    positions_per_shard: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CaptureSummary:
    """Record the distributions of a target and its draft models at the positions of texts.

    Parameters
    ----------
    target : Model
        An object with ``vocab_size`` and ``logits(prefixes)``; `CausalLM` makes one of a model of
        transformers. It is asked about many positions of a text in one call. If it has a
        ``context_length``, longer texts are read in windows; if it keeps what it reads and has a
        method ``forget()``, that is called before each text.
    draft_models : Model, or list of Model
        Over the same token ids; see `MappedModel` for others.
    prompts : iterable of array_like of int
        Texts as token ids.
    folder : path-like
        Made if it is not there. One in which the same capture was begun, however it ended, is gone
        on with, and one that was asked for fewer `positions` is extended; what it holds at the end
        does not depend on that.
    names : list of str, optional
        Of the target and of each draft model; "target", "draft_0", "draft_1", ... if not given.
    vocabulary : mapping of str to int, optional
        Token ids by the tokens they stand for; its digest goes into the capture, so that those of
        different tokenizers are not taken for each other.
    sample : bool, default False
        Have the target continue every text by its own samples, and record the positions of these.
        Otherwise the positions are those of the texts.
    max_new_tokens : int, optional
        With `sample`: length of a continuation; 64 if not given.
    temperature : float, optional
        With `sample`: that it is drawn at; 1 if not given, 0 takes the most likely token.
    eos_token_id : int or list of int, optional
        With `sample`: tokens that end a continuation.
    top_k : int, default 1024
        Most probable tokens to keep of each model, the lowest ids on ties; their union is kept of
        all. None, 0 and -1 keep the whole vocabulary.
    positions : int, optional
        The first so many only.
    min_context : int, default 1
        Fewest tokens before a position. Texts that leave none are passed over.
    positions_per_shard : int, optional
        Of one file, which is also what a kill can cost; by default up to 1,024, and as many as
        make a file of some tens of megabytes.
    seed : int, default 0
        Of the samples. Each text has its own random stream.
    progress : callable, optional
        Called with (positions done, most positions there can be).

    Returns
    -------
    CaptureSummary

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a model lacks a member, no text is long enough, or the folder
        holds something else or cannot be written.
    InvalidTokenError
        If a text is not made of token ids.
    InvalidDistributionError
        If the vocabularies differ in size, or a model returns something else than logits of
        distributions: model, text and position are named, and the shard is not written. Positions
        at which a `MappedModel` gives all its mass to tokens that the target does not have are left
        out, with a warning.

    Notes
    -----
    The distributions are softmaxes over the whole vocabulary at temperature 1, computed in float64
    and stored in float32. Nothing depends on the time or the place: the same call makes the same
    files. Memory is bounded by the models and one shard.

    Examples
    --------
    >>> import tempfile
    >>> from mdsd.datasets import read_capture
    >>> from mdsd.decoding import TableModel
    >>> target = TableModel([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5]])
    >>> draft_model = TableModel([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.4, 0.4]])
    >>> folder = Path(tempfile.mkdtemp()) / "mine"
    >>> found = capture(target, draft_model, [[0, 1, 2], [2, 0]], folder, top_k=2)
    >>> found.positions, round(found.overlap["draft_0"], 4)
    (3, 0.7333)
    >>> read_capture(folder).token_ids.tolist()
    [[0, 1], [0, 1], [1, 2]]
    """
    settings = CaptureSettings(
        sample=sample,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        positions=positions,
        min_context=min_context,
        positions_per_shard=positions_per_shard,
        seed=seed,
    )
    check_progress(progress)
    job = capture_job(
        target, draft_models, prompts, names=names, eos_token_id=eos_token_id, vocabulary=vocabulary
    )
    return run_capture(job, settings, as_path(folder, "folder"), progress)


def run_capture(
    job: CaptureJob, settings: CaptureSettings, folder: Path, progress: Progress | None = None
) -> CaptureSummary:
    """Capture as a job and settings that were checked before say.

    Parameters
    ----------
    job : CaptureJob
    settings : CaptureSettings
    folder : path
    progress : callable, optional
        Called with (positions done, most positions there can be).

    Returns
    -------
    CaptureSummary

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `capture`.
    """
    most = _most_positions(job, settings)
    total = most if settings.positions is None else min(most, settings.positions)
    check_folder(folder)
    writer = open_writer(folder, job.header(settings))
    size = settings.shard_size(job.vocab_size, len(job.models))
    before = writer.num_positions
    if before < total:
        found = _positions(job, settings, last_place(writer))
        reported = _reported(islice(found, total - before), before, total, progress)
        # Of a capture that is extended the last shard is filled up first.
        short = before % size
        if short and (rest := list(islice(reported, size - short))):
            writer.extend_shard(rest)
        while shard := list(islice(reported, size)):
            writer.write_shard(shard)
    return summarise(folder, writer.num_positions - before)


def _most_positions(job: CaptureJob, settings: CaptureSettings) -> int:
    """Count positions there can be, as if no sample ended early; refuse a job that has none."""
    counts = [
        settings.max_new_tokens or len(prompt) - settings.min_context
        for prompt in job.prompts
        if len(prompt) >= settings.shortest_prompt
    ]
    if not counts:
        longest = max(map(len, job.prompts))
        raise InvalidArgumentError(
            f"prompts has none of {settings.shortest_prompt} tokens, as min_context "
            f"{settings.min_context} needs; the longest has {longest}"
        )
    return sum(counts)


def _reported(
    positions: Iterable[CapturedPosition], before: int, total: int, progress: Progress | None
) -> Iterator[CapturedPosition]:
    for done, position in enumerate(positions, start=before + 1):
        yield position
        if progress is not None:
            progress(done, total)


def _positions(
    job: CaptureJob, settings: CaptureSettings, after: tuple[int, int]
) -> Iterator[CapturedPosition]:
    """Go through the positions behind a text and a token of it.

    A text is always read from its beginning, in the same calls, so that what is found does not
    depend on where a capture was interrupted.
    """
    kept, told, asked = settings.kept(job.vocab_size), Notices(), False
    for number, prompt in enumerate(job.prompts):
        last = len(prompt) - 2 + (settings.max_new_tokens or 0)
        if len(prompt) < settings.shortest_prompt or (number, last) <= after:
            continue
        text, first = prompt, settings.min_context - 1
        if settings.sample:
            (target, *_) = _readers(job, number, told)
            text = continued(target, prompt, number, settings, job.eos_token_ids)
            first = len(prompt) - 1
        readers = _readers(job, number, told)
        for start, stop in blocks(first, len(text) - 1, job.vocab_size):
            tables = [reader.logits(text, start, stop) for reader in readers]
            told.give()
            if not asked:
                warn_of_models(job.names, tables)
                asked = True
            for row, token in enumerate(range(start, stop)):
                rows = [table[row] for table in tables]
                if (number, token) > after and all(each.max() > -np.inf for each in rows):
                    yield captured_position(number, token, rows, kept)


def _readers(job: CaptureJob, number: int, told: Notices) -> list[Reader]:
    """Let every model begin with a text."""
    labels = [f"target {job.names[0]!r}", *(f"draft model {name!r}" for name in job.names[1:])]
    return [
        Reader(label, model, f"prompts[{number}]", told)
        for label, model in zip(labels, job.models, strict=True)
    ]
