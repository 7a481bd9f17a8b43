"""Ends for the greedy draft: its n - 1 most likely tokens T, and one sampled from the rest.

Given T the bound is p(T) plus the overlap of p with the law of the sampled token, so its least and
greatest values over all completions are closed forms.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from mdsd.intervals.known import KnownProbs, overlap


@dataclass(frozen=True, eq=False)
class _Top:
    """What a log says about the most likely tokens of a draft.

    Attributes
    ----------
    certain : list
        Tokens that are among them.
    doubtful : token or None
        A known token that is, unless unknown tokens surpass it.
    missing : int
        How many are unknown, or, in the place of `doubtful`, may be.
    """

    certain: list[Hashable]
    doubtful: Hashable | None
    missing: int


def _top_tokens(draft: KnownProbs, count: int) -> _Top:
    """Find the `count` most likely tokens in a log of the most likely ones and one more."""
    tokens = [token for token, prob in draft.probs.items() if prob > 0.0]
    ids: dict[Hashable, int] = {t: int(t) for t in tokens if isinstance(t, (int, np.integer))}
    if len(ids) == len(tokens):
        tokens.sort(key=ids.__getitem__)
    tokens.sort(key=lambda token: -draft.probs[token])
    missing = max(0, count - len(tokens))
    if not 0 < len(tokens) <= count:
        return _Top(tokens[:count], None, missing)
    # As many as are asked for, or fewer: the last may be there because it was sampled.
    last = tokens[-1]
    if (missing + 1) * draft.probs[last] > draft.most_tail:
        return _Top(tokens, None, missing)
    return _Top(tokens[:-1], last, missing + 1)


def ends_greedy(target: KnownProbs, draft: KnownProbs, num_drafts: int) -> tuple[float, float]:
    """Give the ends of the interval for the greedy draft."""
    top = _top_tokens(draft, num_drafts - 1)
    known_top = sum(target.probs.get(token, 0.0) for token in top.certain)
    if top.missing:
        never = sum(p for token, p in target.probs.items() if draft.probs.get(token) == 0.0)
        return known_top + _least_of_doubtful(target, draft, top), 1.0 - never
    known = overlap(_without(target, top.certain), _without(draft, top.certain))
    rest = float(known.draft_only.sum())
    mass = float(known.draft.sum()) + rest
    least, most = known.draft_tail_range
    # What is off T counts in proportion to all that is there: rounding of the tail moves it.
    # Quotients throughout, as there may be too little for an inverse that is a number.
    lower = known_top + float(np.minimum(known.target, known.draft / (mass + most)).sum())
    all_least = mass + least if mass > 0.0 else 1.0
    tail = most / (mass + most)
    upper = known_top + float(np.minimum(known.target, known.draft / all_least).sum())
    if all(token in target.probs for token in top.certain):
        # Each tail can meet what only the other side knows, and what is left of them each other.
        upper += min(
            rest / all_least + tail,
            known.target_only + known.target_tail,
            tail + known.target_tail,
        )
    else:
        # On a token of T that the target does not know, all of its tail counts in full.
        upper += known.target_tail + min(known.target_only, tail)
    return lower, upper


def _without(known: KnownProbs, tokens: list[Hashable]) -> KnownProbs:
    """Take tokens out of what is known."""
    taken = set(tokens)
    return KnownProbs({t: prob for t, prob in known.probs.items() if t not in taken}, known.tail)


def _least_of_doubtful(target: KnownProbs, draft: KnownProbs, top: _Top) -> float:
    """Give the least that a token counts which may be in T or off it."""
    if top.doubtful is None:
        return 0.0
    prob = draft.probs[top.doubtful]
    # Off T, it is behind `missing` unknown tokens of at least its own mass.
    rest = prob + max(0.0, draft.most_tail - top.missing * prob)
    return min(target.probs.get(top.doubtful, 0.0), prob / rest)
