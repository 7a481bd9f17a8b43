"""The batch scheme of Yin et al.: several chains, of which the first tokens decide."""

from __future__ import annotations

from mdsd._arguments import check_whole
from mdsd.trees import TreeShape


def batch_shape(num_chains: int, depth: int) -> TreeShape:
    """Give the tree of several chains that have the root only in common.

    Parameters
    ----------
    num_chains, depth : int
        M and the length of the chains, at least 1 each.

    Returns
    -------
    TreeShape

    Raises
    ------
    InvalidArgumentError
        If one of them is not an integer >= 1, or the tree is too large.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm", Algorithm 4: the M
    first tokens are tried in turn by recursive rejection; the sequence of the first that is
    accepted is followed with ordinary speculative decoding, and a rejection ends the round. On this
    tree that is RRS level by level. With one draft it is the single-draft test; of equal first
    tokens only the first can be accepted, as a rejection leaves the token no mass; and for the same
    reason no token emitted after rejections is among the drafts, so that nothing goes on from
    there.

    Examples
    --------
    >>> batch_shape(2, 3).parents
    (-1, 0, 0, 1, 2, 3, 4)
    """
    num_chains = check_whole("num_drafts", num_chains, 1)
    depth = check_whole("depth", depth, 1)
    return TreeShape.from_branching([num_chains] + [1] * (depth - 1))
