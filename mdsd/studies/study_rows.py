"""Rows of a study: means over positions or runs, and what could not be computed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mdsd._typing import FloatArray
from mdsd.filters import Filtered, Filters


class _WithAcceptance(Protocol):
    @property
    def acceptance(self) -> float | None: ...


Verified = TypeVar("Verified", bound=_WithAcceptance)


@dataclass(frozen=True)
class Missing:
    """Why a number of a row is None.

    Attributes
    ----------
    what : str
        "bound", or the name of a verifier.
    position : int
        First position at which it was not computed.
    tokens : int
        Tokens with probability at that position, under the target or the draft.
    reason : str
        What the library said.
    """

    what: str
    position: int
    tokens: int
    reason: str


@dataclass(frozen=True)
class Row:
    """One line of a table: its fields are the columns, but for those that are marked as none."""


@dataclass(frozen=True)
class AveragedRow(Row):
    """A row of means over positions, for one draft distribution.

    Attributes
    ----------
    missing : tuple of Missing
        Why numbers are None although there were positions.
    joint : bool
        Whether each draft has a model of its own.
    """

    missing: tuple[Missing, ...] = field(
        default=(), kw_only=True, repr=False, metadata={"column": False}
    )
    joint: bool = field(default=False, kw_only=True, repr=False, metadata={"column": False})


@dataclass(frozen=True)
class StudiedRow(Filtered, AveragedRow):
    """What the rows of all studies over positions say of what they are about.

    Attributes
    ----------
    data : str
        Name or path of the data set.
    draft_model : str
        Name of the draft model; "a+b" for independent drafts of a and b.
    draft : str
        Name of the draft distribution, and its options behind colons.
    num_drafts : int
        n, the tokens drafted in one step.
    filters : Filters
        Of target and draft alike; each has a column of its own.
    seed : int
        Seed of what is estimated.
    """

    data: str
    draft_model: str
    draft: str
    num_drafts: int
    filters: Filters
    seed: int


@dataclass(frozen=True)
class CompareRow(StudiedRow):
    """Acceptance of one verifier, averaged over positions.

    Attributes
    ----------
    data, draft_model, draft, num_drafts, filters, seed
        As in `StudiedRow`.
    verifier : str
    acceptance : float or None
        Mean probability that the emitted token is one of the drafts.
    stderr : float or None
        Its standard error over positions (N - 1); None for a single position.
    bound, bound_stderr : float or None
        The same of the acceptance bound alpha* of the draft distribution.
    share_of_bound : float or None
        `acceptance` over `bound`.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    texts : int or None
        Texts that these positions are of; None where the data do not say.
    stderr_by_text, bound_stderr_by_text : float or None
        `stderr` and `bound_stderr`, clustered: from the scatter over texts, as positions of one
        text have much in common. None where texts are not known, or there is but one.
    reference : str or None
        The verifier that is compared with; None where it does not support the draft distribution.
    difference : float or None
        Mean over positions of the acceptance, less that of `reference` at the same position.
    difference_stderr, difference_stderr_by_text : float or None
        Its standard error, of pairs, over positions and clustered by text.
    missing, joint
        As in `AveragedRow`.
    """

    verifier: str
    acceptance: float | None
    stderr: float | None
    bound: float | None
    bound_stderr: float | None
    share_of_bound: float | None
    positions: int
    texts: int | None = None
    stderr_by_text: float | None = None
    bound_stderr_by_text: float | None = None
    reference: str | None = None
    difference: float | None = None
    difference_stderr: float | None = None
    difference_stderr_by_text: float | None = None


@dataclass(frozen=True)
class BoundRow(StudiedRow):
    """Acceptance bound of one draft distribution over positions.

    Attributes
    ----------
    data, draft_model, draft, num_drafts, filters, seed
        As in `StudiedRow`.
    bound : float or None
        Mean of alpha*.
    bound_stderr : float or None
        Its standard error over positions (N - 1); None for a single position.
    q10, q50, q90 : float or None
        Quantiles over positions, interpolated linearly.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    texts, bound_stderr_by_text
        As in `CompareRow`.
    values : tuple of float
        alpha* at each of these positions; empty where it was not computed.
    missing, joint
        As in `AveragedRow`.
    """

    bound: float | None
    bound_stderr: float | None
    q10: float | None
    q50: float | None
    q90: float | None
    positions: int
    texts: int | None = None
    bound_stderr_by_text: float | None = None
    values: tuple[float, ...] = field(default=(), repr=False, metadata={"column": False})


@dataclass(frozen=True)
class StudyRow(StudiedRow):
    """Acceptance of one verifier in one cell of a grid, and the parts of what it lacks to 1.

    Attributes
    ----------
    data, draft_model, draft, num_drafts, filters, seed
        As in `StudiedRow`.
    verifier : str
    acceptance : float or None
        Mean probability that the emitted token is one of the drafts.
    stderr : float or None
        Its standard error over positions (N - 1); None for a single position.
    q10, q50, q90 : float or None
        Quantiles of the acceptance over positions, interpolated linearly.
    bound, bound_stderr : float or None
        Mean and standard error of the acceptance bound alpha* of the draft distribution.
    share_of_bound : float or None
        `acceptance` over `bound`.
    best_draft : str or None
        The draft distribution with the largest mean bound over the same positions, among all that
        these draft models allow, whether or not the study asked for it.
    lost_to_model : float or None
        1 minus that bound: no way of drafting n tokens from these models does without it.
    lost_to_construction : float or None
        That bound minus `bound`.
    lost_to_verifier : float or None
        `bound` minus `acceptance`. The three add up to 1 minus `acceptance`.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    texts, stderr_by_text, bound_stderr_by_text, reference
        As in `CompareRow`.
    difference, difference_stderr, difference_stderr_by_text
        As in `CompareRow`.
    missing, joint
        As in `AveragedRow`.
    """

    verifier: str
    acceptance: float | None
    stderr: float | None
    q10: float | None
    q50: float | None
    q90: float | None
    bound: float | None
    bound_stderr: float | None
    share_of_bound: float | None
    best_draft: str | None
    lost_to_model: float | None
    lost_to_construction: float | None
    lost_to_verifier: float | None
    positions: int
    texts: int | None = None
    stderr_by_text: float | None = None
    bound_stderr_by_text: float | None = None
    reference: str | None = None
    difference: float | None = None
    difference_stderr: float | None = None
    difference_stderr_by_text: float | None = None


@dataclass(frozen=True)
class DecoderRow(Row):
    """What a decoder made of its drafts, over the runs of all seeds.

    Attributes
    ----------
    verifier : str
    draft : str
        Name of the draft distribution.
    scheme : str
        "tree", "batch" or "growing".
    tree : tuple of int
        Children of each node by level; empty for trees that grow.
    num_nodes : int
        Tokens drafted in a step, at most.
    tokens_per_target_call : float
        All tokens over all calls of the target.
    stderr : float or None
        Its standard error over runs (N - 1); None for a single run.
    acceptance_by_depth : tuple of float
        Entry d - 1: of the steps in which tokens were drafted down to depth d, the share that
        emitted an accepted one there.
    drafted_by_depth : tuple of int
        These steps.
    accepted_lengths : tuple of int
        Accepted tokens of each step.
    synthetic_acceptance_rates : tuple of float
        `acceptance_by_depth` where it falls, in the form in which serving engines such as vLLM take
        it: unconditional, and nowhere rising.
    tokens, target_calls, draft_calls, runs : int
    drafting_seconds, target_seconds, verification_seconds : float
    verification_share : float
        `verification_seconds` over the sum of the three.
    """

    verifier: str
    draft: str
    scheme: str
    tree: tuple[int, ...]
    num_nodes: int
    tokens_per_target_call: float
    stderr: float | None
    acceptance_by_depth: tuple[float, ...]
    drafted_by_depth: tuple[int, ...]
    accepted_lengths: tuple[int, ...]
    synthetic_acceptance_rates: tuple[float, ...]
    tokens: int
    target_calls: int
    draft_calls: int
    runs: int
    drafting_seconds: float
    target_seconds: float
    verification_seconds: float
    verification_share: float


@dataclass(frozen=True)
class DrawnTreesRow(Row):
    """What a decoder is expected to make of trees that others are given, too.

    Attributes
    ----------
    verifier : str
    draft : str
        Name of the draft distribution.
    scheme : str
        "tree" or "batch".
    tree : tuple of int
        Children of each node by level.
    num_nodes : int
        Tokens drafted in a step.
    tokens_per_target_call : float
        One more than the tokens expected to be accepted of a tree: the mean over all trees.
    stderr : float or None
        Its standard error over trees (N - 1), as if none had to do with another; None for a single
        tree.
    acceptance_by_depth : tuple of float
        Entry d - 1: probability that at least d tokens are accepted, the mean over all trees.
    reference : str
        The verifier that was given the same trees for comparison: `rrs` level by level, or `naive`
        where that does not apply.
    difference : float
        Mean over trees of the tokens expected, less those of the reference on the same tree.
    difference_stderr : float or None
        As `stderr`, of that mean.
    target_calls, draft_calls, runs : int
        Trees drawn, one for each call of the target; calls of draft models; texts.
    drafting_seconds, target_seconds : float
        Of drawing the trees and scoring them, which is done once for all who are given them.
    verification_seconds : float
        Of verifying each tree once.
    verification_share : float
        `verification_seconds` over the sum of the three.
    """

    verifier: str
    draft: str
    scheme: str
    tree: tuple[int, ...]
    num_nodes: int
    tokens_per_target_call: float
    stderr: float | None
    acceptance_by_depth: tuple[float, ...]
    reference: str
    difference: float
    difference_stderr: float | None
    target_calls: int
    draft_calls: int
    runs: int
    drafting_seconds: float
    target_seconds: float
    verification_seconds: float
    verification_share: float


def columns(kind: type[Row]) -> dict[str, str]:
    """Give the columns of a table of rows, as in JSON and CSV, each with its type.

    Examples
    --------
    >>> columns(BoundRow)["top_p"], list(columns(BoundRow))[-3:]
    ('float', ['positions', 'texts', 'bound_stderr_by_text'])
    """
    found: dict[str, str] = {}
    for each in fields(kind):
        if each.name == "filters":
            found |= {one.name: str(one.type) for one in fields(Filters)}
        elif each.metadata.get("column", True):
            found[each.name] = str(each.type)
    return found


def record(row: Row) -> dict[str, Any]:
    """Give a row as a dictionary of its columns."""
    return {name: getattr(row, name) for name in columns(type(row))}


class Texts:
    """Which of some numbers are of the same text.

    Parameters
    ----------
    text_ids : array_like of int, shape (N,)

    Attributes
    ----------
    count : int
        G, how many texts there are.
    """

    def __init__(self, text_ids: ArrayLike) -> None:
        found, self._place = np.unique(np.asarray(text_ids), return_inverse=True)
        self.count = len(found)

    def stderr(self, values: FloatArray) -> float | None:
        """Give the standard error of a mean of numbers that have much in common within a text.

        Parameters
        ----------
        values : ndarray of float64, shape (N,)

        Returns
        -------
        float or None
            ``sqrt(G / (G - 1) sum_g e_g**2) / N``, with e_g the sum over text g of what its numbers
            differ from the mean by; None for a single text.

        Notes
        -----
        Liang and Zeger, "Longitudinal data analysis using generalized linear models", 1986, for a
        mean, with the factor G / (G - 1) of Cameron and Miller, "A Practitioner's Guide to
        Cluster-Robust Inference", 2015; without it, it is the one of Miller, "Adding Error Bars to
        Evals", arXiv 2411.00640. Where every text has one number it is the usual one. For few texts
        take the quantiles of Student's law with G - 1 degrees of freedom.

        Examples
        --------
        >>> Texts([0, 0, 1, 1]).stderr(np.array([0.2, 0.4, 0.5, 0.7]))
        0.15
        """
        if self.count < 2:
            return None
        apart = np.bincount(self._place, values - values.mean(), self.count)
        scatter = float(apart @ apart) * self.count / (self.count - 1)
        return math.sqrt(scatter) / len(values)


class Mean:
    """What numbers, one for each position or run, come to.

    A mean over the positions that happened to be computable would not compare with the others in
    its table, so one failure makes the whole quantity missing.

    Parameters
    ----------
    values : array_like of float, shape (N,)
    missing : Missing, optional
        Why there are none that count.
    texts : Texts, optional
        Which of them are of the same text.

    Attributes
    ----------
    values : ndarray of float64
    missing : Missing or None
    mean : float or None
    stderr : float or None
        Standard error of the mean, from the scatter (N - 1), if there are two numbers.
    stderr_by_text : float or None
        The same from the scatter over texts, if two are known.
    """

    def __init__(
        self, values: ArrayLike, missing: Missing | None = None, texts: Texts | None = None
    ) -> None:
        self.missing = missing
        self.values = np.asarray(values if missing is None else (), dtype=np.float64)
        count = len(self.values)
        self.mean = float(np.mean(self.values)) if count else None
        spread = np.std(self.values, ddof=1) / math.sqrt(count) if count > 1 else None
        self.stderr = None if spread is None else float(spread)
        self.stderr_by_text = None if texts is None or not count else texts.stderr(self.values)

    @property
    def quantiles(self) -> dict[str, Any]:
        """Quantiles by the columns they stand in, interpolated linearly."""
        shares = {"q10": 0.1, "q50": 0.5, "q90": 0.9}
        known = len(self.values) > 0
        return {n: float(np.quantile(self.values, q)) if known else None for n, q in shares.items()}


def best_first(rows: Iterable[Verified]) -> list[Verified]:
    """Sort rows by acceptance, those without one last.

    Equal up to rounding is equal: the order they come in then decides, not the noise.
    """
    return sorted(
        rows, key=lambda row: 1.0 if row.acceptance is None else -round(row.acceptance, 9)
    )
