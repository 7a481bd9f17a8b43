"""How the children of a node came about, in the words of `verify_batch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_name
from mdsd._typing import IntArray
from mdsd.decoding.layouts._inputs import ProbRows, read_probs
from mdsd.drafts import DraftDistribution, read_kind
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.rules.arrays import places
from mdsd.verifiers import Verifier, get_verifier

__all__ = ["DETERMINISTIC", "ChildrenLaw", "choose_verifier", "one_hot_rows", "read_law"]

DETERMINISTIC = "deterministic"
"""The draft of engines whose drafted tokens are chosen, not drawn: it has no probabilities."""

_OWN_VERIFIER = {
    "with_replacement": "rrs",
    "without_replacement": "rrs",
    "greedy": "greedy",
    "spechub": "spechub",
    "top_k": "naive",
    DETERMINISTIC: "naive",
}
"""The verifier that goes with a draft distribution where the caller names none."""


def choose_verifier(draft: Any, verifier: Any) -> tuple[str, Verifier]:
    """Check the name of a draft distribution, and take the verifier that was asked for, or its own.

    Raises
    ------
    InvalidArgumentError
        If a name is not known.
    """
    name = check_name("draft", draft, _OWN_VERIFIER)
    chosen = _OWN_VERIFIER[name] if verifier is None else verifier
    return name, chosen if isinstance(chosen, Verifier) else get_verifier(chosen)


def read_law(
    draft: str, draft_probs: Any, shape: tuple[int, ...], words: str, target: ProbRows
) -> ProbRows | None:
    """Read the laws that drafted tokens were drawn from; None where they were chosen.

    Raises
    ------
    InvalidArgumentError
        If laws are given beside the statement that there are none.
    InvalidDistributionError
        If they are missing, of the wrong shape, or on another device.
    """
    if draft != DETERMINISTIC:
        if draft_probs is None:
            raise InvalidDistributionError(
                "draft_probs is missing: give the laws that the drafted tokens were drawn from, or "
                "draft='deterministic' if they were chosen"
            )
        return read_probs(draft_probs, "draft_probs", shape, words, target)
    if draft_probs is not None:
        raise InvalidArgumentError(
            "draft_probs is given together with draft='deterministic', which says that the drafted "
            "tokens were not drawn at all; leave out one of them"
        )
    return None


@dataclass(frozen=True)
class ChildrenLaw:
    """Draft distribution of the children of a node.

    Attributes
    ----------
    draft : str
        Name of the draft distribution, as for `verify_batch`.
    num_drafts : int
        Number of children.
    chosen : bool
        Whether they were chosen, not drawn: `draft` is a law that always draws these.
    """

    draft: str
    num_drafts: int
    chosen: bool = False

    @classmethod
    def chosen_for(cls, verifier: Verifier, num_drafts: int) -> ChildrenLaw:
        """Find the law as which a verifier knows children that were chosen.

        That is the law of a top-k draft, or else of independent draws from one-hot laws; for a
        single child these may be draws with replacement too. If the verifier supports none of them,
        the first is given.
        """
        names = ["top_k", "independent", *(["with_replacement"] if num_drafts == 1 else [])]
        laws = [cls(name, num_drafts, chosen=True) for name in names]
        return next((law for law in laws if verifier.supports(law.example)), laws[0])

    @property
    def example(self) -> DraftDistribution:
        """Some draft distribution of the kind: what does not depend on its probabilities."""
        return read_kind(self.draft).example(self.num_drafts)

    def chosen_rows(self, ids: IntArray, like: ProbRows) -> Any:
        """Write the laws of children that were chosen, as `verify_batch` takes them.

        Parameters
        ----------
        ids : ndarray of int64, shape (R, n)
            Different tokens in each row.
        like : ProbRows
            The laws that they are verified against.

        Returns
        -------
        ndarray or tensor, shape (R, V), or (R, n, V) for independent draws
        """
        if self.draft == "independent":
            return one_hot_rows(ids, like)
        # Any law whose most likely tokens are the children, in their order.
        weights = np.arange(self.num_drafts, 0, -1.0)
        weights /= weights.sum()
        return sum(
            one_hot_rows(ids[:, k], like) * float(weight) for k, weight in enumerate(weights)
        )


def one_hot_rows(ids: IntArray, like: ProbRows) -> Any:
    """Put all mass on each id, (...) -> (..., V); where the other laws are, so that none is moved.

    Parameters
    ----------
    ids : ndarray of int64, shape (...)
    like : ProbRows
        The other laws.
    """
    if like.space is not None:
        listed = like.space.send(ids)[..., None]
        return like.space.as_real(places(listed, like.vocab_size) == listed)
    # In the type that the others are verified in, so that neither is converted.
    wide = str(like.values.dtype).endswith("float64")
    rows = np.zeros((*ids.shape, like.vocab_size), np.float64 if wide else np.float32)
    np.put_along_axis(rows, ids[..., np.newaxis], 1.0, axis=-1)
    return rows
