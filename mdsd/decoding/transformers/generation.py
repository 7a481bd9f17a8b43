"""Multi-draft speculative decoding as a decoding method of ``generate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mdsd._random import RandomSource
from mdsd._typing import Tensor
from mdsd.decoding.decoder import Decoder, draft_rows, make_decoder
from mdsd.decoding.growth import TreeOption
from mdsd.decoding.models import Model, check_model
from mdsd.decoding.results import StepCount, count_steps
from mdsd.decoding.rows import PlainRows, RowModel
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.transformers._batch import BatchRow, read_batch
from mdsd.decoding.transformers._caches import cache_of
from mdsd.decoding.transformers._output import make_output
from mdsd.decoding.transformers._processed import LazyRows, ProcessedRows
from mdsd.decoding.transformers._rows import CachedRows
from mdsd.decoding.transformers._scores import Processors
from mdsd.decoding.transformers._seeds import read_seed
from mdsd.decoding.transformers._support import (
    check_causal,
    check_processors,
    check_settings,
    check_tokenizer,
    is_transformers_model,
)
from mdsd.decoding.transformers.causal_lm import CausalLM
from mdsd.decoding.vocabulary import MappedModel, fit_vocabulary
from mdsd.decoding.windows import check_room
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import Verifier

if TYPE_CHECKING:
    import torch
    from transformers import (
        GenerationConfig,
        LogitsProcessorList,
        PreTrainedModel,
        StoppingCriteriaList,
    )
    from transformers.generation.streamers import BaseStreamer

    DraftModel: TypeAlias = PreTrainedModel | Model


def multi_draft(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    *,
    draft_model: DraftModel | Sequence[DraftModel] | None = None,
    target_token_ids: ArrayLike | None = None,
    target_tokenizer: Any = None,
    draft_tokenizer: Any = None,
    draft: Draft = "without_replacement",
    verifier: str | Verifier | StepVerification = "rrs",
    num_drafts: int = 3,
    depth: int = 4,
    tree: TreeOption | None = None,
    scheme: str = "tree",
    rng: RandomSource = None,
    generator: RandomSource = None,
    seed: RandomSource = None,
    streamer: BaseStreamer | None = None,
    **model_kwargs: Any,
) -> Tensor:
    """Generate from a causal language model of transformers, several tokens at each forward.

    To be given to ``generate`` as ``custom_generate``, with the options of this function beside
    those of ``generate``.

    Parameters
    ----------
    model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs
        As ``generate`` hands them on: the target model, and what to do with it.
    draft_model : PreTrainedModel or Model
        Drafts: a causal language model of transformers, or any object with ``vocab_size`` and
        ``logits(prefixes)`` (see `mdsd.decoding.Model`). Independent drafts take a list of them.
    target_token_ids : array_like of int, shape (W,), optional
        For a draft model with another vocabulary: the target's id of each of its W tokens, as for
        `MappedModel`, which can be given as `draft_model` as well.
    target_tokenizer, draft_tokenizer : PreTrainedTokenizer, optional
        For models whose vocabularies differ in size, of one family for instance, with more padding
        or less: what their ids stand for. One of both stands for both. By default, the tokenizers
        that lie where the models were loaded from. (``tokenizer`` itself stays in ``generate``.)
    draft : str or DraftKind, default "without_replacement"
        Draft distribution at each node, as for `mdsd.decoding.generate`.
    verifier : str, Verifier or StepVerification, default "rrs"
        As for `mdsd.decoding.generate`.
    num_drafts, depth : int, default 3 and 4
        Children of each node and depth of the tree; a single draft makes it a chain.
    tree : list of int, TreeShape, TreeGrowth, or object with a ``tree`` attribute, optional
        Another tree, in place of `num_drafts` and `depth`, or a rule by which trees grow.
    scheme : {"tree", "batch"}, default "tree"
        As for `mdsd.decoding.generate`.
    rng : torch.Generator, numpy.random.Generator, int, or None
        Source of randomness; without it, torch's own generator, which ``torch.manual_seed`` seeds.
    generator, seed
        Other names of `rng`.
    streamer : BaseStreamer, optional
        Given to ``generate``; it gets the tokens one by one, in order, as in plain sampling.

    Returns
    -------
    tensor of int, shape (B, L), or GenerateDecoderOnlyOutput
        Prompts and new tokens, as ``generate`` returns them. Behind its end a row holds padding.
        With ``return_dict_in_generate``, `sequences`, for a single row its cache, and `results`: a
        `mdsd.decoding.DecodeResult` of each row, which tells what was accepted and what it took.

    Raises
    ------
    UnsupportedError
        Before any model is run: for encoder-decoder models, attention implementations without 4-D
        masks, caches other than dynamic ones of full attention (sliding-window, recurrent, static,
        quantized, offloaded or filled ones), beams, logits processors that keep a state, as far as
        their code shows (one whose attribute ``stateless`` is true is taken at its word), inputs
        other than token ids, and for verifiers that do not support the draft distribution.
    InvalidDistributionError
        If the vocabularies differ in size and there is neither map nor tokenizer, or a model
        returns bad logits.
    InvalidArgumentError, InvalidTokenError
        If another argument is not what it should be.

    Notes
    -----
    Each step drafts a tree for every row, in one forward of the draft model for each level; reads
    all trees in one forward of the target, the first time together with the prompts (unless
    ``prefill_chunk_size`` has these read ahead); and verifies them as `mdsd.decoding.generate`
    does. Of the keys and values, those of the accepted paths are kept.

    Logits processors, and the warpers of ``temperature``, ``top_k`` and the like, are applied to
    both models: at each node to the prefix that leads to it. They must be functions of the prefix
    and its logits, and may be of the row: all are asked about texts of the rows themselves, and not
    beyond an end token. Then the output is distributed as without ``custom_generate``.
    With ``do_sample=False`` its tokens are the same, but for ties, which rounding may decide
    differently; a node then has one child, the draft model's most likely token.

    Rows do not depend on each other, but for logits processors of one's own, which are shown whole
    batches: all rows go on by as many tokens as the slowest of them then. The random streams of a
    row depend on the seed, its prompt, and how many equal prompts come before it, so the row comes
    out the same in any batch, as far as the models compute the same logits for it there.

    Stopping criteria are asked as ``generate`` asks them: about all rows together, once for each
    length, in order. Steps that one of them takes back are not counted.

    Examples
    --------
    With two models of transformers that have the same tokens::

        from mdsd.decoding.transformers import multi_draft

        output = target.generate(
            input_ids,
            custom_generate=multi_draft,
            draft_model=draft_model,
            verifier="optimal",
            tree=[3, 2, 1],
            do_sample=True,
            temperature=0.8,
            max_new_tokens=8,
            seed=0,
        )
    """
    if generation_config is None:
        raise InvalidArgumentError("generation_config is missing; give multi_draft to generate")
    if streamer is None:
        streamer = _callers_streamer()
    check_causal("the target", model)
    check_settings(model, generation_config, model_kwargs)
    check_processors(logits_processor or ())
    for name, tokenizer in (
        ("target_tokenizer", target_tokenizer),
        ("draft_tokenizer", draft_tokenizer),
    ):
        if tokenizer is not None:
            check_tokenizer(name, tokenizer)
    target = CausalLM(model, target_tokenizer or draft_tokenizer)
    drafting = _read_draft_models(
        draft_model, target_token_ids, target, draft_tokenizer or target_tokenizer
    )
    decoder = make_decoder(
        target,
        drafting,
        draft=draft,
        verifier=verifier,
        num_drafts=num_drafts,
        depth=depth,
        tree=tree,
        scheme=scheme,
        temperature=1.0 if generation_config.do_sample else 0.0,
    )
    batch = read_batch(
        input_ids,
        stopping_criteria or (),
        generation_config,
        model_kwargs,
        read_seed(rng, generator, seed),
    )
    longest = max(batch.rows, key=lambda row: len(row.prefix))
    check_room("max_new_tokens", len(longest.prefix), longest.left, decoder.context_length)
    active = batch.rows
    alone = len(active) == 1
    chunk = getattr(generation_config, "prefill_chunk_size", None)
    own_cache = cache_of(model_kwargs) if alone else None
    cached = CachedRows("target", model, len(active), chunk, own_cache)
    processors = Processors(logits_processor or (), batch.padded, input_ids.device)
    models = drafting if isinstance(drafting, list) else [drafting]

    def make_rows(name: str, drafter: Model) -> RowModel:
        """Have a draft model asked about the rows of a batch together, if it can be."""
        if isinstance(drafter, CausalLM):
            return CachedRows(name, drafter.model, len(active), chunk)
        return PlainRows(name, drafter)

    decoder = replace(
        decoder,
        target=LazyRows(cached, processors, active),
        draft_models=tuple(
            ProcessedRows(
                draft_rows(plain.name, each, make_rows, decoder.notices), processors, active
            )
            for plain, each in zip(decoder.draft_models, models, strict=True)
        ),
    )
    while active:
        _take_step(decoder, active, model.device, in_step=processors.in_step)
        batch.settle()
        if streamer is not None:
            batch.stream(streamer)
        going_on = [place for place, row in enumerate(active) if not row.ended]
        active = [active[place] for place in going_on]
        if active:
            for reader in (decoder.target, *decoder.draft_models):
                reader.keep(going_on, [row.prefix for row in active])
    if streamer is not None:
        streamer.end()
    sequences = batch.sequences().to(input_ids)
    if not generation_config.return_dict_in_generate:
        return sequences
    cache = None
    if alone:
        # As behind plain sampling, it holds all but the last token.
        cached.keep([0], [batch.rows[0].prefix[:-1]])
        cache = cached.cache
    results = [count_steps(row.steps, row.new_tokens) for row in batch.rows]
    return make_output(sequences, cache, results)


def _take_step(decoder: Decoder, rows: list[BatchRow], device: Any, *, in_step: bool) -> None:
    """Draft, score and verify a tree for each row, and count what that took.

    Calls made for several rows count for each of them with an equal share of their time. With
    `in_step` all rows get as many tokens as the one that gets fewest: what others did for a row has
    no part in its tokens, and goes on from those it has got by the law of the target.
    """
    begin = perf_counter()
    drawn = decoder.draw(rows)
    drafted = perf_counter()
    scored = decoder.score(drawn)
    if device.type == "cuda":  # where calls return before their work is done
        import torch

        torch.cuda.synchronize(device)
    seen = perf_counter()
    shares = (drafted - begin) / len(rows), (seen - drafted) / len(rows)
    steps, clock = [], [seen]
    for row, tree in zip(rows, scored, strict=True):
        steps.append(decoder.verify(tree, row.left, row.choices))
        clock.append(perf_counter())
    most = min(len(step.token_ids) for step in steps) if in_step else None
    for row, drafting, tree, step, seconds in zip(
        rows, drawn, scored, steps, np.diff(clock).tolist(), strict=True
    ):
        before = row.length
        row.append(step.token_ids[:most])
        emitted = row.length - before
        row.steps.append(
            StepCount(
                tree.shape.depth,
                min(step.accepted, emitted),
                emitted,
                drafting.levels_asked * len(decoder.draft_models),
                (*shares, seconds),
            )
        )


def _read_draft_models(
    draft_model: Any, target_token_ids: Any, target: CausalLM, tokenizer: Any
) -> Any:
    """Make models of `mdsd.decoding` of what is given as one, or as a list of them."""
    if isinstance(draft_model, (list, tuple)):
        return [
            _read_draft_model(f"draft_model[{k}]", each, target_token_ids, target, tokenizer)
            for k, each in enumerate(draft_model)
        ]
    return _read_draft_model("draft_model", draft_model, target_token_ids, target, tokenizer)


def _read_draft_model(
    name: str, given: Any, target_token_ids: Any, target: CausalLM, tokenizer: Any
) -> Any:
    if given is None:
        raise InvalidArgumentError(
            f"{name} is missing; give a model of transformers, or one of mdsd.decoding"
        )
    model = given
    if is_transformers_model(given):
        check_causal(name, given)
        model = CausalLM(given, tokenizer)
    if target_token_ids is not None:
        return MappedModel(check_model(name, model), target_token_ids, target.vocab_size)
    return fit_vocabulary(model, target) if isinstance(model, CausalLM) else model


def _callers_streamer() -> Any:
    """Find the streamer of ``generate``, which hands a callable none of its own arguments."""
    caller = sys._getframe(2)
    inside = caller.f_globals.get("__name__") == "transformers.generation.utils"
    return caller.f_locals.get("streamer") if inside else None
