"""Acceptance bounds with replacement on the device: every prefix of tokens sorted by p/q."""

from __future__ import annotations

from typing import Any

from mdsd.batch.tensors.inputs import pieces, read_probs
from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import any_of, running_sums

__all__ = ["bounds_on_device", "bounds_with_replacement", "capped_ratios"]


def bounds_on_device(
    space: Space, target_probs: Any, draft_probs: Any, num_drafts: int
) -> Any | None:
    """Compute bounds for n independent draws, or None where an argument did not pass its checks.

    Parameters
    ----------
    space : Space
    target_probs, draft_probs : array, shape (B, V)
        The callers' arrays.
    num_drafts : int
        n.

    Returns
    -------
    array, shape (B,), or None
    """
    target, drafted = read_probs(space, target_probs), read_probs(space, draft_probs)
    if target is None or drafted is None or target_probs.shape != draft_probs.shape:
        return None
    if not bool(target.good & drafted.good):
        return None
    found = [space.zeros(0)]
    for rows in pieces(target_probs.shape):
        p, q = target.probs(rows), drafted.probs(rows)
        found.append(bounds_with_replacement(space, p, q, num_drafts))
    return space.xp.concat(found, axis=0)


def bounds_with_replacement(space: Space, p: Any, q: Any, num_drafts: int) -> Any:
    """Compute ``min over k of p(H_k) + 1 - (1 - q(A_k))**n``, A_k the first k tokens by p/q.

    Parameters
    ----------
    space : Space
    p, q : array, shape (B, V)
        Target and draft probabilities.
    num_drafts : int
        n.

    Returns
    -------
    array, shape (B,)

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding": the hit function is q-convex, so
    some prefix attains the minimum of eq. (8).
    """
    xp = space.xp
    order = xp.argsort(
        capped_ratios(space, p, q, num_drafts), axis=-1, descending=True, stable=False
    )
    p, q = xp.take_along_axis(p, order, axis=-1), xp.take_along_axis(q, order, axis=-1)
    # p(H_k) from the far end, so that a value near 0 keeps its digits.
    onward = xp.flip(running_sums(space, xp.flip(p, axis=-1)), axis=-1)
    outside = xp.concat([onward[:, 1:], space.zeros(p.shape[0], 1)], axis=-1)
    return xp.min(outside + any_of(space, running_sums(space, q), num_drafts), axis=-1)


def capped_ratios(space: Space, p: Any, q: Any, num_drafts: int) -> Any:
    """Divide p by q, everything from n up, 1/0 too, being n and 0/0 being 0.

    The hit function has slope at most n, so tokens of ratio n and more lie in every best A, in
    whatever order they come.
    """
    xp = space.xp
    divisors = xp.maximum(q, p / num_drafts)
    return p / xp.where(divisors > 0.0, divisors, space.number(1.0))
