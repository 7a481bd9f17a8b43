"""Exact laws of what a decoder emits: of whole output sequences, and of the tokens accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._typing import FloatArray
from mdsd.decoding import Model
from mdsd.decoding.choices import Choices
from mdsd.decoding.decoder import Decoder, Step, make_decoder, read_prompt
from mdsd.decoding.drafting import Drafting
from mdsd.decoding.enumeration import branches
from mdsd.decoding.rows import Row
from mdsd.decoding.windows import check_room
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.filters import Filters

_Law = dict[tuple[int, ...], float]


def sequence_law(
    target: Model,
    draft_model: Model | Sequence[Model],
    prompt_ids: ArrayLike,
    length: int,
    **options: Any,
) -> dict[tuple[int, ...], float]:
    """Law of the tokens that a decoder generates, by following every branch.

    Parameters
    ----------
    target, draft_model : Model
        Toy models: the law of a token must depend on nothing but its prefix.
    prompt_ids : array_like of int, shape (P,)
    length : int
        Tokens to generate, unless an end token comes before.
    **options
        As for `mdsd.decoding.generate`: draft, verifier, num_drafts, depth, tree, scheme,
        temperature, top_k, top_p, logits_processor, eos_token_id.

    Returns
    -------
    dict of (tuple of int, float)
        Probability of each sequence that can be generated. If the decoder is lossless it is the
        product of the target's laws, up to rounding.

    Raises
    ------
    InvalidArgumentError
        If an option is not known.
    UnsupportedError
        If one step has more than a million branches, or the verification draws from a noise of
        its own, as `mdsd.decoding.GumbelVerification` does: its law is over its seeds.
    MdsdError
        As for `mdsd.decoding.generate`.

    Notes
    -----
    The steps are those of `mdsd.decoding.generate`, which hands to the next step nothing but the
    prefix: steps of equal prefixes are followed once. What is drafted has a branch for every tuple
    of `DraftDistribution.tuples`, what is verified one for every token of `Plan.output_law`.

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> target = TableModel([[0.25, 0.75], [1.0, 0.0]])
    >>> draft_model = TableModel([[0.5, 0.5], [0.5, 0.5]])
    >>> law = sequence_law(target, draft_model, [0], 2, tree=[2, 1], draft="with_replacement")
    >>> {tokens: round(prob, 12) for tokens, prob in sorted(law.items())}
    {(0, 0): 0.0625, (0, 1): 0.1875, (1, 0): 0.75}
    """
    decoder = _decoder("sequence_law", target, draft_model, options)
    prefix = tuple(read_prompt(prompt_ids, target.vocab_size))
    wanted = check_whole("length", length, 1)
    check_room("length", len(prefix), wanted, decoder.context_length)
    return _law_after(decoder, prefix, wanted, {}, {})


def accepted_law(
    target: Model, draft_model: Model | Sequence[Model], prompt_ids: ArrayLike, **options: Any
) -> FloatArray:
    """Law of the number of drafted tokens that the first step of a decoder accepts.

    Parameters
    ----------
    target, draft_model : Model
        Toy models, as for `sequence_law`.
    prompt_ids : array_like of int, shape (P,)
    **options
        As for `mdsd.decoding.generate`, as in `sequence_law`.

    Returns
    -------
    ndarray of float64, shape (D + 1,)
        Entry k is the probability that k tokens are accepted; D is the depth of the tree. The token
        emitted after them does not count, nor do those behind an end token.

    Raises
    ------
    InvalidArgumentError
        If an option is not known.
    UnsupportedError
        As for `sequence_law`.
    MdsdError
        As for `mdsd.decoding.generate`.

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> target = TableModel([[0.25, 0.75], [0.25, 0.75]])
    >>> draft_model = TableModel([[0.5, 0.5], [0.5, 0.5]])
    >>> accepted_law(target, draft_model, [0], num_drafts=1, depth=2).round(12).tolist()
    [0.25, 0.1875, 0.5625]
    """
    decoder = _decoder("accepted_law", target, draft_model, options)
    prefix = read_prompt(prompt_ids, target.vocab_size)
    depth = decoder.shape.depth
    law = np.zeros(depth + 1)
    for step, prob in _step_law(decoder, tuple(prefix), depth + 1, {}).items():
        law[step.accepted] += prob
    return law


def _decoder(
    caller: str, target: Model, draft_model: Model | Sequence[Model], options: dict[str, Any]
) -> Decoder:
    try:
        given = signature(make_decoder).bind(target, draft_model, **options)
        signature(Filters).bind(**given.arguments.get("filters", {}))
    except TypeError as error:
        raise InvalidArgumentError(f"{caller}: {error}") from None
    decoder = make_decoder(target, draft_model, **options)
    if decoder.verification.own_noise:
        raise UnsupportedError(
            f"{caller}: verifier is {decoder.verification!r}, whose law is over its seeds; given "
            "one, nothing is left to chance"
        )
    return decoder


def _law_after(
    decoder: Decoder, prefix: tuple[int, ...], length: int, laws: dict[Any, _Law], known: Any
) -> _Law:
    """Law of what follows a prefix; `laws` are those found before, `known` that of `branches`."""
    if prefix in laws:
        return laws[prefix]
    law: _Law = defaultdict(float)
    for step, prob in _step_law(decoder, prefix, length, known).items():
        tokens = step.token_ids
        left = length - len(tokens)
        if step.ended or left == 0:
            law[tokens] += prob
            continue
        for rest, after in _law_after(decoder, (*prefix, *tokens), left, laws, known).items():
            law[(*tokens, *rest)] += prob * after
    laws[prefix] = dict(law)
    return laws[prefix]


def _step_law(
    decoder: Decoder, prefix: tuple[int, ...], length: int, known: Any
) -> dict[Step, float]:
    """Law of what one step emits."""
    law: dict[Step, float] = defaultdict(float)

    def draw(choices: Choices) -> list[Drafting]:
        return decoder.draw([Row(list(prefix), length, choices)])

    for drawn_prob, drawn in branches(draw, known):
        (tree,) = decoder.score(drawn)
        for prob, step in branches(partial(decoder.verify, tree, length), known):
            law[step] += drawn_prob * prob
    return law
