"""Text from two models by multi-draft speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays, frozen
from mdsd._random import RandomSource
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder, read_prompt
from mdsd.decoding.growth import TreeOption
from mdsd.decoding.models import Model
from mdsd.decoding.rows import Row
from mdsd.decoding.sampling import LogitsProcessor
from mdsd.decoding.steps import StepVerification
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.filters import FilterOptions
from mdsd.verifiers import Verifier


@dataclass(frozen=True)
class DecodeSeconds:
    """Where the time of a decoder went, in seconds.

    Attributes
    ----------
    drafting : float
        Calls of the draft model, and drawing the drafts.
    target : float
        Calls of the target model.
    verification : float
        Turning the target's logits into probabilities, and verifying.
    """

    drafting: float
    target: float
    verification: float

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.drafting + self.target + self.verification


@dataclass(frozen=True, eq=False)
class DecodeResult(FrozenArrays):
    """Output of a decoder, and what it took.

    Attributes
    ----------
    token_ids : ndarray of int64, shape (T,)
        New tokens, without the prompt; an end token is the last.
    tokens_per_target_call : float
        T over `target_calls`.
    acceptance_by_depth : ndarray of float64, shape (D,)
        Entry d - 1: of the steps in which tokens were drafted down to depth d, the share that
        emitted an accepted token of that depth (and so of all depths before it). D is the greatest
        depth drafted. Tokens cut off behind an end token are not counted.
    drafted_by_depth : ndarray of int64, shape (D,)
        Steps that each of these shares is of; fewer at greater depths, as nothing is drafted beyond
        the length allowed.
    target_calls : int
        Calls of the target model, one for each step.
    draft_calls : int
        Calls of the draft model, one for each level of each step; one more where a tree that grows
        ended after it.
    seconds : DecodeSeconds
        Time spent drafting, in the target model, and verifying.
    """

    token_ids: IntArray
    tokens_per_target_call: float
    acceptance_by_depth: FloatArray
    drafted_by_depth: IntArray
    target_calls: int
    draft_calls: int
    seconds: DecodeSeconds


def generate(
    target: Model,
    draft_model: Model | Sequence[Model],
    prompt_ids: ArrayLike,
    *,
    max_new_tokens: int,
    draft: Draft = "without_replacement",
    verifier: str | Verifier | StepVerification = "rrs",
    num_drafts: int = 3,
    depth: int = 4,
    tree: TreeOption | None = None,
    scheme: str = "tree",
    logits_processor: LogitsProcessor | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    rng: RandomSource = None,
    callback: Callable[[list[int]], object] | None = None,
    **filters: Unpack[FilterOptions],
) -> DecodeResult:
    """Generate tokens whose law is that of the target model, several at each of its calls.

    Parameters
    ----------
    target, draft_model : Model
        Objects with ``vocab_size`` and ``logits(prefixes)``, over the same token ids; see
        `MappedModel` for a draft model over others. Independent drafts take a list of draft models:
        the k-th child of every node is drawn from the k-th model.
    prompt_ids : array_like of int, shape (P,)
        The tokens to continue; at least one.
    max_new_tokens : int
        Tokens to generate, unless an end token comes before.
    draft : str or DraftKind, default "without_replacement"
        How the children of each node are drafted: one of `mdsd.drafts.draft_names`, or ``kind()``
        of a class.
    verifier : str, Verifier or StepVerification, default "rrs"
        A one-step verifier, which is used level by level, or its name as for `get_verifier`. Or one
        that decides about whole paths and accepts more: ``layers`` (`LayerVerification`, which
        keeps every branch of a tree), ``block`` (`BlockVerification`, one path, never below
        ``optimal`` level by level) or ``traversal`` (`TraversalVerification`, for drafts that say
        how each token is drawn after those before it).
    num_drafts, depth : int, default 3 and 4
        Children of each node and depth of the tree; a single draft makes it a chain.
    tree : list of int, TreeShape, TreeGrowth, or object with a ``tree`` attribute, optional
        Another tree, in place of `num_drafts` and `depth`; a list gives the number of children by
        level, such as ``[3, 2, 1]``. Or a rule by which trees grow with what was drafted:
        `GrowingTree`, or a `TreeGrowth` of one's own.
    scheme : {"tree", "batch"}, default "tree"
        ``batch`` is the scheme of Yin et al.: `num_drafts` chains of `depth` tokens; RRS decides
        between their first tokens, then the accepted chain is verified alone. Theirs draws the
        first tokens with replacement.
    logits_processor : callable, optional
        Called with a prefix (list of int) and the logits (V,) of the token that follows, of any of
        the models; returns the logits to use.
    eos_token_id : int or list of int, optional
        Tokens that end the output.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness. An integer seeds drafting and verifying differently; the same seed
        gives the same output.
    callback : callable, optional
        Called after each step with the list of its new tokens.
    **filters
        ``temperature`` and all else that `mdsd.Filters` holds, for target and draft models alike.
        At temperature 0 the output is the target's greedy output.

    Returns
    -------
    DecodeResult

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or a model lacks a member.
    InvalidTokenError
        If `prompt_ids` or `eos_token_id` are no token ids, or there is no prompt.
    InvalidDistributionError
        If the vocabularies differ in size, or a model returns bad logits.
    UnsupportedError
        If the verifier does not support the draft distribution.

    Notes
    -----
    Each step drafts a tree, one batched call of the draft model for each level; scores it in one
    call of the target; and verifies it, level by level (`LevelVerification`) unless `verifier` is
    about paths. An accepted path is followed by one token more. The law of the output is exactly
    that of sampling from the target token by token: `mdsd.testing.sequence_law` computes it by
    following every branch. The one exception is `BiasedVerification`, which has to be asked for.

    Where a draft distribution needs more tokens than the draft model gives positive probability, as
    at temperature 0, a node gets fewer children.

    Examples
    --------
    >>> from mdsd.decoding import TableModel, generate
    >>> target = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    >>> draft_model = TableModel([[0.2, 0.6, 0.2], [0.2, 0.2, 0.6], [0.6, 0.2, 0.2]])
    >>> result = generate(
    ...     target, draft_model, [0], tree=[2, 1], temperature=0.0, max_new_tokens=6
    ... )
    >>> result.token_ids.tolist(), result.target_calls, result.draft_calls
    ([1, 2, 0, 1, 2, 0], 2, 4)
    >>> result.acceptance_by_depth.tolist()
    [1.0, 1.0]
    """
    decoder = make_decoder(
        target,
        draft_model,
        draft=draft,
        verifier=verifier,
        num_drafts=num_drafts,
        depth=depth,
        tree=tree,
        scheme=scheme,
        logits_processor=logits_processor,
        eos_token_id=eos_token_id,
        **filters,
    )
    prompt = read_prompt(prompt_ids, target.vocab_size)
    wanted = check_whole("max_new_tokens", max_new_tokens, 1)
    if callback is not None and not callable(callback):
        raise InvalidArgumentError(
            f"callback is {type(callback).__name__}; expected a function of a list of token ids"
        )
    row = Row(prompt, wanted, RandomChoices(rng))

    drafted = np.zeros(min(decoder.shape.depth, wanted), dtype=np.int64)
    accepted = np.zeros_like(drafted)
    steps = draft_calls = 0
    seconds = np.zeros(3)
    ended = False
    while row.left and not ended:
        clock = [perf_counter()]
        drawn = decoder.draw([row])
        clock.append(perf_counter())
        (scored,) = decoder.score(drawn)
        clock.append(perf_counter())
        step = decoder.verify(scored, row.left, row.choices)
        clock.append(perf_counter())

        row.append(step.token_ids)
        ended = step.ended
        steps += 1
        draft_calls += drawn[0].levels_asked * len(decoder.draft_models)
        drafted[: scored.shape.depth] += 1
        accepted[: step.accepted] += 1
        seconds += np.diff(clock)
        if callback is not None:
            callback(list(step.token_ids))
    emitted = row.prefix[len(prompt) :]
    deepest = np.count_nonzero(drafted)  # a tree that grows may never come to its depth
    return DecodeResult(
        token_ids=frozen(np.array(emitted, dtype=np.int64)),
        tokens_per_target_call=len(emitted) / steps,
        acceptance_by_depth=frozen(accepted[:deepest] / drafted[:deepest]),
        drafted_by_depth=frozen(drafted[:deepest]),
        target_calls=steps,
        draft_calls=draft_calls,
        seconds=DecodeSeconds(*seconds.tolist()),
    )
