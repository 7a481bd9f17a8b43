"""Acceptance rates of a whole batch of positions in one call."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_array, shown
from mdsd._typing import AnyArray, FloatArray, Tensor, TensorLike
from mdsd.batch._inputs import BatchProbs, check_support, example_draft, make_draft, read_pair
from mdsd.batch._rules import Rule, mark_gap, rate_of, rule_of
from mdsd.batch._threads import plan_rows
from mdsd.batch._values import closed_values, values_of_rows
from mdsd.batch.tensors.spaces import locate_sides, to_host
from mdsd.drafts import Draft, DraftKind, read_kind
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import RRSVerifier, Verifier, get_verifier


def acceptance_rates(
    target_probs: TensorLike,
    draft_probs: TensorLike,
    *,
    draft: Draft = "with_replacement",
    num_drafts: int,
    verifier: str | Verifier,
    seeds: TensorLike | None = None,
) -> Tensor:
    """Compute the acceptance rate of a verifier at many positions.

    Parameters
    ----------
    target_probs : array_like or tensor, shape (B, V)
        Distribution of the next token under the target model, one row for each position.
    draft_probs : array_like or tensor, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order; on the
        device of `target_probs`.
    draft : str or DraftKind, default "with_replacement"
        Kind of draft: one of `mdsd.drafts.draft_names`, or ``kind()`` of a class.
    num_drafts : int
        n >= 1; 2 for the SpecHub draft, the number of models for independent drafts.
    verifier : str or Verifier
        A verifier or its name, as for `get_verifier`.
    seeds : array_like or tensor of int, shape (B,), optional
        Seeds >= 0 and < 2**64 for the rates that are estimated, one for each row, in place of the
        one seed of `RRSVerifier`. Other verifiers take no notice of them.

    Returns
    -------
    ndarray of float64, or tensor on the device of `target_probs`, shape (B,)
        ``verifier.plan(target_probs[i], draft_i).acceptance_rate`` within 1e-12 wherever that is
        exact. On the host a row gives the same bits alone and in any batch.

    Raises
    ------
    InvalidDistributionError
        If a probability vector is bad or too short of tokens for the draft distribution, or shapes
        do not agree; names argument, row, index and value. If the arguments live on different
        devices, or a tensor requires a gradient.
    InvalidArgumentError
        If `draft`, `num_drafts`, `verifier` or `seeds` is not what it should be.
    UnsupportedError
        If the verifier does not support the draft distribution.

    Notes
    -----
    All rows are checked before any rate is computed. Rows run in compiled code on all cores,
    without a copy of the probabilities if they are C-ordered float64 or float32, and tokens that
    neither side can produce cost nothing. ``optimal`` stands for ``effort="fast"``, and goes
    through plans on all cores where drafts are not with replacement. What is left goes through
    plans, row by row: several independent drafts, and verifiers and drafts of other packages.
    Tensors are read in place on the host, and copied to it from any other device.

    The rate of ``rrs`` for n >= 3 drafts without replacement is a mean over rejection paths (Yang
    et al., "Multi-Candidate Speculative Decoding"). It is exact where there are no more of them
    than the ``monte_carlo_paths`` of the verifier, while a plan follows up to a million; else it is
    an unbiased estimate, which depends on the row, the number of paths and the seed. At positions
    of a language model it scatters by about 4e-4 for 256 paths and 1.5e-4 for 1,024. Rows of the
    same seed err alike: for a mean over rows, give each a seed of its own.

    Examples
    --------
    >>> import mdsd
    >>> mdsd.acceptance_rates(
    ...     [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]],
    ...     [[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]],
    ...     num_drafts=2,
    ...     verifier="rrs",
    ... ).round(12).tolist()
    [0.76, 1.0]
    """
    kind = read_kind(draft)
    num_drafts = kind.check_count(num_drafts)
    chosen = verifier if isinstance(verifier, Verifier) else get_verifier(verifier).for_many()
    target, drafted = locate_sides(target_probs, draft_probs)
    sides = target.on_host(), drafted.on_host()
    return target.answer(_rates_on_host(*sides, kind, num_drafts, chosen, to_host(seeds)))


def _rates_on_host(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    kind: DraftKind,
    num_drafts: int,
    verifier: Verifier,
    seeds: ArrayLike | None,
) -> FloatArray:
    target, drafted, _ = read_pair(target_probs, draft_probs, kind)
    check_support(drafted, kind, num_drafts)
    example = example_draft(kind, num_drafts, target.vocab_size)
    verifier._refuse_unsupported(example)
    numbers = None if seeds is None else _read_seeds(seeds, len(target.rows))
    rule = rule_of(verifier, example)
    rate = None if rule is None else rate_of(rule, example)
    if rate is not None:
        return closed_values(rate, target, drafted, num_drafts)
    if rule is Rule.MARKS:
        from mdsd.batch._mark_rows import mark_rate

        gap = mark_gap(verifier)
        return values_of_rows(lambda _, p, q: mark_rate(p, q, num_drafts, gap), target, drafted)
    if rule is Rule.RRS_SHRINKING:
        return _path_rates(cast(RRSVerifier, verifier), target, drafted, num_drafts, numbers)
    return _rates_of_plans(target, drafted, kind, num_drafts, verifier)


def _read_seeds(seeds: ArrayLike, rows: int) -> AnyArray:
    given = read_array(seeds, "seeds", InvalidArgumentError)
    if given.shape != (rows,):
        raise InvalidArgumentError(
            f"seeds has shape {given.shape}; expected ({rows},), one for each row"
        )
    if rows and given.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"seeds holds {given.dtype.name} values; expected integers >= 0 and < 2**64"
        )
    negative = given < 0
    if negative.any():
        row = int(negative.argmax())
        raise InvalidArgumentError(
            f"seeds row {row} is {shown(int(given[row]))}; expected an integer >= 0"
        )
    return given.astype(np.uint64)


def _path_rates(
    verifier: RRSVerifier,
    target: BatchProbs,
    drafted: BatchProbs,
    num_drafts: int,
    seeds: AnyArray | None,
) -> FloatArray:
    from mdsd.verifiers._rejection_rates import path_rate

    paths = verifier.monte_carlo_paths
    if seeds is None:
        seeds = np.full(len(target.rows), verifier.seed % 2**64, dtype=np.uint64)
    numbers = seeds
    return values_of_rows(
        lambda row, p, q: path_rate(p, q, num_drafts, paths, numbers[row]), target, drafted
    )


def _live_row(target: BatchProbs, drafted: BatchProbs, row: int) -> tuple[FloatArray, FloatArray]:
    """Give target (L,) and draft probabilities (models, L) of a row on tokens of some side."""
    # Tokens that no side can produce change nothing but the size.
    models = len(drafted.rows) // len(target.rows)
    own = slice(row * models, (row + 1) * models)
    p = target.rows[row].astype(np.float64) / target.masses[row]
    q = drafted.rows[own].astype(np.float64) / drafted.masses[own, np.newaxis]
    live = (p > 0.0) | (q > 0.0).any(axis=0)
    return p[live], np.ascontiguousarray(q[:, live])


def _rates_of_plans(
    target: BatchProbs, drafted: BatchProbs, kind: DraftKind, num_drafts: int, verifier: Verifier
) -> FloatArray:
    values = np.empty(len(target.rows))

    def work(start: int, stop: int) -> None:
        for row in range(start, stop):
            if not kind.draft_type.declared:
                draft = make_draft(kind, drafted, row, num_drafts)
                values[row] = verifier.plan(target.given[row], draft).acceptance_rate
                continue
            p, q = _live_row(target, drafted, row)
            draft = kind.make(q if kind.one_model_each else q[0], num_drafts)
            values[row] = verifier.plan(p, draft).acceptance_rate

    plan_rows(verifier, kind, work, *target.rows.shape)
    return values
