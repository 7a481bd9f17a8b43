"""Reading and checking the arguments of batch calls, before any row is worked on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import is_bfloat16_tensor
from mdsd._probabilities import MASS_TOLERANCE, as_float_array, check_probs, check_same_vocab
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._threads import over_rows
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.drafts.declared import refuse_short
from mdsd.errors import InvalidArgumentError, InvalidDistributionError


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


def read_batch(values: ArrayLike, name: str, *, ndim: int) -> BatchProbs:
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
    over_rows(partial(survey_rows, rows, masses, positives), *rows.shape)
    if not (np.abs(masses - 1.0) <= MASS_TOLERANCE[kind]).all():
        check_probs(values, name, ndim=ndim)  # finds and names what is wrong
    # Rows that go through plans are read again, by the type they came in.
    return BatchProbs(values if is_bfloat16_tensor(values) else given, rows, masses, positives)


def read_pair(
    target_probs: ArrayLike, draft_probs: ArrayLike, kind: DraftKind
) -> tuple[BatchProbs, BatchProbs, int | None]:
    """Check the target and the draft vectors of a batch and that they belong together.

    Returns
    -------
    tuple of (BatchProbs, BatchProbs, int or None)
        Target; draft, with one row for each position and draft model; and the number of draft
        models where each draft has its own.

    Raises
    ------
    InvalidDistributionError
        If a vector is bad, or the numbers of rows or of tokens differ.
    """
    several = kind.one_model_each
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


def check_support(drafted: BatchProbs, kind: DraftKind, num_drafts: int) -> None:
    """Refuse rows of which n tokens cannot be drafted.

    Raises
    ------
    InvalidArgumentError
        If there are more or fewer draft models than drafts.
    InvalidDistributionError
        Naming the first row that is too short of tokens, and both numbers.
    """
    if kind.one_model_each and drafted.given.shape[1] != num_drafts:
        raise InvalidArgumentError(
            f"num_drafts is {num_drafts}; draft_probs of shape {tuple(drafted.given.shape)} "
            f"has {drafted.given.shape[1]}"
        )
    if not kind.draft_type.declared:
        for row in range(len(drafted.given)):
            make_draft(kind, drafted, row, num_drafts)
    elif kind.distinct:
        refuse_short(drafted.positives, num_drafts, kind.draft_type.words, "draft_probs row {}")


def make_draft(
    kind: DraftKind, drafted: BatchProbs, row: int, num_drafts: int
) -> DraftDistribution:
    """Make the draft distribution of one row.

    Raises
    ------
    InvalidDistributionError
        Naming the row, if a kind of another package cannot be made of it.
    """
    try:
        return kind.make(drafted.given[row], num_drafts)
    except InvalidDistributionError as error:
        raise InvalidDistributionError(f"draft_probs row {row}: {error}") from None


@lru_cache(maxsize=8)
def example_draft(kind: DraftKind, num_drafts: int, vocab_size: int) -> DraftDistribution:
    """Make some draft distribution of the kind: what does not depend on its probabilities."""
    # Kept, because making one may take longer than the verification of a row.
    return kind.example(num_drafts, vocab_size)
