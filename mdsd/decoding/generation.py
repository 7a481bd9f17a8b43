"""Text from two models by multi-draft speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Unpack

from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._random import RandomSource
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder, read_prompt
from mdsd.decoding.growth import TreeOption
from mdsd.decoding.models import Model
from mdsd.decoding.results import DecodeResult, StepCount, count_steps
from mdsd.decoding.rows import Row
from mdsd.decoding.sampling import LogitsProcessor
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.windows import check_room
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.filters import FilterOptions
from mdsd.verifiers import Verifier


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
        `MappedModel` for a draft model over others, which is made where the sizes differ and both
        have a ``tokenizer``, as `CausalLM` has. Independent drafts take a list of draft models:
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
        If an option is out of range, a name is not known, a model lacks a member, or prompt and
        output would be longer than the ``context_length`` of a target that has one.
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
    at temperature 0, a node gets fewer children, and none where all that the draft model proposes
    is unknown to the target. A draft model with a ``context_length`` is shown the end of texts that
    are longer. Of either there is one warning.

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
    check_room("max_new_tokens", len(prompt), wanted, decoder.context_length)
    row = Row(prompt, wanted, RandomChoices(rng))

    steps: list[StepCount] = []
    ended = False
    while row.left and not ended:
        begin = perf_counter()
        (drawn,) = decoder.draw([row])
        drafted = perf_counter()
        (scored,) = decoder.score([drawn])
        seen = perf_counter()
        step = decoder.verify(scored, row.left, row.choices)
        seconds = drafted - begin, seen - drafted, perf_counter() - seen

        row.append(step.token_ids)
        ended = step.ended
        steps.append(
            StepCount(
                scored.shape.depth,
                step.accepted,
                len(step.token_ids),
                drawn.levels_asked * len(decoder.draft_models),
                seconds,
            )
        )
        if callback is not None:
            callback(list(step.token_ids))
    return count_steps(steps, row.prefix[len(prompt) :])
