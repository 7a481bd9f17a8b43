"""Reading and checking the arguments of batch calls, before any row is worked on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mdsd._arguments import check_name
from mdsd._probabilities import (
    MASS_TOLERANCE,
    as_float_array,
    check_probs,
    check_same_vocab,
    is_bfloat16_tensor,
)
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._threads import over_rows
from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.drafts.base import check_num_drafts
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

__all__ = [
    "DISTINCT",
    "DRAFT_NAMES",
    "BatchProbs",
    "check_count",
    "check_draft_name",
    "check_support",
    "example_draft",
    "make_draft",
    "read_batch",
    "read_laws",
    "read_pair",
]

DISTINCT = {
    WithoutReplacement.name: "drawing without replacement",
    GreedyDraft.name: "the greedy draft",
    SpecHubDraft.name: "the SpecHub draft",
    TopKDraft.name: "the top-k draft",
}
"""Draft distributions that draw n distinct tokens, in words."""

DRAFT_NAMES = (WithReplacement.name, IndependentDrafts.name, *DISTINCT)


@dataclass(frozen=True, eq=False)
class BatchProbs:
    """Checked probability vectors as they came in, with the masses that normalise them.

    Attributes
    ----------
    given : ndarray, or tensor on the host
        The caller's array.
    rows : ndarray of float64 or float32, shape (R, V), C-ordered and read-only
        Its vectors one by one: the caller's own memory wherever that has this form.
    masses : ndarray, shape (R,)
        Sum of each row in float64; a probability is an entry divided by the mass of its row.
    positives : ndarray of int64, shape (R,)
        Number of positive entries of each row.
    """

    given: Any
    rows: AnyArray
    masses: FloatArray
    positives: IntArray

    @property
    def vocab_size(self) -> int:
        """Length of a row."""
        return int(self.rows.shape[1])


def read_batch(values: Any, name: str, *, ndim: int) -> BatchProbs:
    """Check a batch of probability vectors, as `check_probs` does, without copying it.

    Parameters
    ----------
    values : array_like, shape (B, V) for ``ndim=2`` or (B, n, V) for ``ndim=3``
        Probabilities of each token.
    name : str
        What to call the argument in an error.
    ndim : int
        Number of axes expected.

    Returns
    -------
    BatchProbs
        At most one copy is made, in float32 for narrower types, where `values` is no aligned
        C-ordered array of float64 or float32.

    Raises
    ------
    InvalidDistributionError
        As for `check_probs`, naming the row, the index and the value.
    """
    from mdsd.batch._kernels import survey_rows

    given, kind = as_float_array(values, name)
    if given.ndim != ndim or given.shape[-1] == 0:
        check_probs(values, name, ndim=ndim)
    # Every float16 and bfloat16 is a float32.
    narrow = given.dtype == np.float32 or kind in ("float16", "bfloat16")
    flat = np.require(given, np.float32 if narrow else np.float64, ["C", "A"])
    rows = flat.reshape(-1, given.shape[-1]).view()
    # One array type for the kernels, whatever the caller's flags.
    rows.setflags(write=False)
    masses = np.empty(len(rows))
    positives = np.empty(len(rows), dtype=np.int64)

    def survey(start: int, stop: int) -> None:
        survey_rows(rows, masses, positives, start, stop)

    over_rows(survey, *rows.shape)
    if not (np.abs(masses - 1.0) <= MASS_TOLERANCE[kind]).all():
        check_probs(values, name, ndim=ndim)  # finds and names what is wrong
    # Rows that go through plans are read again, by the type they came in.
    return BatchProbs(values if is_bfloat16_tensor(values) else given, rows, masses, positives)


def read_pair(
    target_probs: Any, draft_probs: Any, draft: str
) -> tuple[BatchProbs, BatchProbs, int | None]:
    """Check the target and the draft vectors of a batch and that they belong together.

    Returns
    -------
    tuple of (BatchProbs, BatchProbs, int or None)
        Target; draft, with one row for each position and draft model; and the number of draft
        models where `draft` is independent.

    Raises
    ------
    InvalidDistributionError
        If a vector is bad, or the numbers of rows or of tokens differ.
    """
    several = draft == IndependentDrafts.name
    target = read_batch(target_probs, "target_probs", ndim=2)
    drafted = read_batch(draft_probs, "draft_probs", ndim=3 if several else 2)
    if len(target.given) != len(drafted.given):
        raise InvalidDistributionError(
            f"target_probs has {len(target.given)} rows but draft_probs has {len(drafted.given)}"
        )
    if several and drafted.given.shape[1] == 0:
        raise InvalidDistributionError(
            "draft_probs is missing: give one probability vector for each draft"
        )
    check_same_vocab(target.rows, drafted.vocab_size)
    if target.rows.dtype != drafted.rows.dtype:
        # A kernel for each mixture of types would take longer to compile than this copy ever does.
        target, drafted = _widened(target), _widened(drafted)
    return target, drafted, drafted.given.shape[1] if several else None


def _widened(probs: BatchProbs) -> BatchProbs:
    rows = probs.rows.astype(np.float64)
    rows.setflags(write=False)
    return BatchProbs(probs.given, rows, probs.masses, probs.positives)


def check_draft_name(draft: Any) -> str:
    """Check the name of a draft distribution.

    Raises
    ------
    InvalidArgumentError
        Naming those that exist.
    """
    return check_name("draft", draft, DRAFT_NAMES)


def check_count(draft: str, num_drafts: Any) -> int:
    """Check a number of drafts, and that a draft distribution has no other one.

    Raises
    ------
    InvalidArgumentError
        If it is not an integer >= 1, or not the 2 of the SpecHub draft.
    """
    count = check_num_drafts(num_drafts)
    if draft == SpecHubDraft.name and count != SpecHubDraft.num_drafts:
        raise InvalidArgumentError(f"num_drafts is {count}; the spechub draft has 2 drafts")
    return count


def read_laws(
    target_probs: Any, draft_probs: Any, draft: str, num_drafts: int
) -> tuple[BatchProbs, BatchProbs]:
    """Check the target and the draft vectors of a batch of n drafts, as `read_pair` does.

    Raises
    ------
    InvalidDistributionError
        As for `read_pair`, or if a row has too few tokens to draw.
    InvalidArgumentError
        If there are more or fewer draft models than drafts.
    """
    target, drafted, models = read_pair(target_probs, draft_probs, draft)
    if models is not None and models != num_drafts:
        raise InvalidArgumentError(
            f"num_drafts is {num_drafts}; draft_probs of shape {tuple(drafted.given.shape)} "
            f"has {models}"
        )
    check_support(drafted, draft, num_drafts)
    return target, drafted


def check_support(drafted: BatchProbs, draft: str, num_drafts: int) -> None:
    """Refuse rows with fewer positive entries than distinct tokens to draw.

    Raises
    ------
    InvalidDistributionError
        Naming the first such row and both numbers.
    """
    if draft not in DISTINCT:
        return
    short = drafted.positives < num_drafts
    if short.any():
        row = int(short.argmax())
        raise InvalidDistributionError(
            f"draft_probs row {row} has {drafted.positives[row]} tokens with positive probability; "
            f"{DISTINCT[draft]} with num_drafts={num_drafts} needs at least {num_drafts}"
        )


def make_draft(draft: str, draft_probs: Any, num_drafts: int) -> DraftDistribution:
    """Make the draft distribution of one row.

    Parameters
    ----------
    draft : str
        One of `DRAFT_NAMES`.
    draft_probs : array_like, shape (V,), or (n, V) where `draft` is independent
    num_drafts : int
        n.

    Raises
    ------
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1, or not the number that `draft` fixes.
    """
    count = check_count(draft, num_drafts)
    if draft == IndependentDrafts.name:
        return IndependentDrafts(draft_probs)
    if draft == SpecHubDraft.name:
        return SpecHubDraft(draft_probs)
    kinds = (WithReplacement, WithoutReplacement, GreedyDraft, TopKDraft)
    return next(kind for kind in kinds if kind.name == draft)(draft_probs, count)


@lru_cache(maxsize=8)
def example_draft(draft: str, num_drafts: int, vocab_size: int) -> DraftDistribution:
    """Make some draft distribution of the kind: what does not depend on its probabilities."""
    # Kept, because making one may take longer than the verification of a row.
    size = max(vocab_size, num_drafts if draft in DISTINCT else 1, 2)
    uniform = np.full(size, 1.0 / size)
    several = draft == IndependentDrafts.name
    return make_draft(draft, [uniform] * num_drafts if several else uniform, num_drafts)
