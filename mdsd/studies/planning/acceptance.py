"""Acceptance by rank: as given, from a file, or measured over the positions of a data set."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from mdsd._arguments import check_name, check_whole, shown
from mdsd._files import os_errors
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray
from mdsd.datasets import Source
from mdsd.decoding.verification import PATH_VERIFICATIONS, step_verification
from mdsd.drafts import Draft, WithoutReplacement, read_kind
from mdsd.errors import InvalidArgumentError
from mdsd.filters import FilterOptions
from mdsd.studies.cases import Case, Progress, Steps
from mdsd.studies.study_rows import CompareRow
from mdsd.studies.study_settings import (
    SEARCH_TOLERANCE,
    StudySettings,
    search_tolerance,
    study_settings,
)
from mdsd.studies.values import FilteredBlock, study_blocks
from mdsd.verifiers import NaiveVerifier, RRSVerifier, Verifier, get_verifier, verifier_names
from mdsd.verifiers.base import Plan

_DRAWS = 256
"""Drafts verified at each position: far less noise than between positions."""

_DRAWS_BY_LAW = 64
"""The same where the law given the drafts is averaged, which has less noise."""

_MOST_RANKS = 64
"""Ranks worth measuring: later ones are accepted less often than the noise."""

_KEY = "acceptance_by_rank"
"""What a JSON file may call its numbers; that of ``mdsd plan-tree --json`` does."""


@dataclass(frozen=True, eq=False)
class RankAcceptance(FrozenArrays):
    """Probability of each child of a node to be the one accepted, given that the node was.

    Attributes
    ----------
    by_rank : ndarray of float64, shape (R,), (D, R) or (R, R)
        By rank, the order in which the children are tried; or by depth and rank; or, with
        `by_count`, row n - 1 is for nodes with n children.
    stderr : ndarray of float64, shape (R,) or (R, R), or None
        Standard error over positions; None if it was not measured, or at one position only.
    source : str
        Where the numbers come from.
    by_count : bool, default False
        Whether acceptances depend on the number of siblings.
    """

    by_rank: FloatArray
    stderr: FloatArray | None
    source: str
    by_count: bool = False

    @property
    def key(self) -> str:
        """Name of the numbers in a report; only those by rank can be given again."""
        return "acceptance_by_count" if self.by_count else _KEY

    def of_child(self, depth: int, siblings: int, rank: int) -> float:
        """Give the acceptance of one child.

        Parameters
        ----------
        depth : int
            1 for the root's children.
        siblings : int
            Children of its parent, itself included.
        rank : int

        Examples
        --------
        >>> given_acceptance("0.6, 0.2").of_child(3, 2, 1)
        0.2
        """
        if self.by_rank.ndim == 1:
            return float(self.by_rank[rank])
        return float(self.by_rank[(siblings if self.by_count else depth) - 1, rank])


# --- given ---------------------------------------------------------------------------------------


def given_acceptance(text: str) -> RankAcceptance:
    """Read acceptances from a list or a file.

    Parameters
    ----------
    text : str
        Numbers by rank, ``0.6,0.2,0.1``, or the name of a file: ``.csv`` with one line for each
        depth and one number for each rank, or ``.json`` with a list by rank, a list of lists by
        depth and rank, or an object that has either as ``acceptance_by_rank``. Lines may differ in
        length: missing ranks are never accepted.

    Returns
    -------
    RankAcceptance
        Not yet checked to be probabilities.

    Raises
    ------
    InvalidArgumentError
        If the list or the file cannot be read.

    Examples
    --------
    >>> given_acceptance("0.6, 0.2").by_rank.tolist()
    [0.6, 0.2]
    """
    path = Path(text)
    readers = {".csv": _read_csv, ".json": _read_json}
    read = readers.get(path.suffix.lower())
    if read is None:
        values: Any = [_number(part, "acceptance") for part in text.split(",")]
        return RankAcceptance(np.array(values), None, "given")
    try:
        with os_errors(path, "cannot be read: "):
            content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{path}: cannot be read: it is no text in UTF-8") from None
    values = read(content, path)
    if not isinstance(values, list) or not values:
        raise InvalidArgumentError(f"{path}: {_KEY} is {shown(values)}; expected a list of numbers")
    if any(isinstance(row, list) for row in values):
        return RankAcceptance(_padded(values, path), None, str(path))
    numbers = [_number(value, f"{path}: {_KEY}[{k}]") for k, value in enumerate(values)]
    return RankAcceptance(np.array(numbers), None, str(path))


def refuse_measuring(data: str | None, options: Mapping[str, Any]) -> None:
    """Refuse what has no effect where acceptances are given.

    Parameters
    ----------
    data : str or None
    options : mapping
        Options of a measurement that were given.

    Raises
    ------
    InvalidArgumentError
        Naming the first of them.
    """
    for name in (*(["DATA"] if data is not None else []), *options):
        raise InvalidArgumentError(
            f"acceptance and {name} are both given; {name} is for measuring it"
        )


def _read_csv(content: str, path: Path) -> list[list[str]]:
    rows = [row for row in csv.reader(content.splitlines()) if row]
    if not rows:
        raise InvalidArgumentError(f"{path}: is empty; expected one line for each depth")
    return rows


def _read_json(content: str, path: Path) -> Any:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: is no JSON: {error}") from None
    if isinstance(values, dict):
        if _KEY not in values:
            raise InvalidArgumentError(f"{path}: has no {_KEY!r}")
        return values[_KEY]
    return values


def _padded(rows: Sequence[Any], path: Path) -> FloatArray:
    widest = max(len(row) for row in rows if isinstance(row, list))
    table = np.zeros((len(rows), widest))
    for depth, row in enumerate(rows):
        name = f"{path}: depth {depth + 1}"
        if not isinstance(row, list):
            raise InvalidArgumentError(f"{name} is {shown(row)}; expected a list of numbers")
        for rank, value in enumerate(row):
            table[depth, rank] = _number(value, f"{name}, rank {rank}")
    return table


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"{name} is {shown(value)}; expected a number in [0, 1]"
        ) from None


# --- measured ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuringSettings:
    """A checked request to measure.

    Attributes
    ----------
    ranks : int
        R, the most children of a node.
    study : StudySettings
        Data and filters; a single case.
    verifier : str, default "rrs"
    trees : int, default 256
        Trees on which shapes are compared where paths are verified.
    """

    ranks: int
    study: StudySettings
    verifier: str = RRSVerifier.name
    trees: int = 256

    @property
    def searches(self) -> bool:
        """Whether whole paths are verified, so that a tree is no sum over its nodes."""
        return self.verifier in PATH_VERIFICATIONS

    @property
    def case(self) -> Case:
        """What is drafted."""
        (case,) = self.study.asked.cases
        return case

    def describe(self) -> dict[str, Any]:
        """Give the settings as they are written next to the rows."""
        return {
            "positions": self.study.positions,
            "draft_model": self.case.draft_models[0],
            "draft": self.case.kind.label,
            "verifier": self.verifier,
            "ranks": self.ranks,
            **({"trees": self.trees} if self.searches else {}),
            **self.case.filters.columns,
            "seed": self.study.seed,
        }


def measuring_settings(
    source: Source,
    *,
    draft: Draft = WithoutReplacement.name,
    verifier: str = RRSVerifier.name,
    ranks: int = 8,
    trees: int | None = None,
    draft_model: str | None = None,
    positions: int | None = None,
    seed: int = 0,
    **filters: Unpack[FilterOptions],
) -> MeasuringSettings:
    """Check the options of a measurement.

    Parameters
    ----------
    source : Source
    draft : str or DraftKind, default "without_replacement"
        A kind whose tokens are drawn one after another from one draft model.
    verifier : str, default "rrs"
        A verifier, or one of whole paths, as a decoder takes it.
    ranks : int, default 8
    trees : int, optional
        Trees on which shapes are compared where paths are verified; 256 if None.
    draft_model : str, optional
        The first of the data if None.
    positions : int, optional
        Use only the first ones.
    seed : int, default 0
    **filters
        Of target and draft alike, as for `mdsd.probs_from_logits`.

    Returns
    -------
    MeasuringSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, or a name is not known.
    UnsupportedError
        If the verifier does not take so many of these drafts.
    """
    check_name("verifier", verifier, (*verifier_names(), *PATH_VERIFICATIONS))
    most = check_whole("ranks", ranks, 1, _MOST_RANKS)
    if trees is not None:
        check_whole("trees", trees, 2)
        if verifier not in PATH_VERIFICATIONS:
            raise InvalidArgumentError(
                f"trees is {trees}, which is for {', '.join(PATH_VERIFICATIONS)}; "
                f"verifier is {verifier!r}"
            )
    kind = read_kind(draft)
    if kind.one_model_each or not kind.draft_type.successive:
        raise InvalidArgumentError(
            f"draft is {kind}; expected one whose tokens are drawn one after another from one "
            "draft model, as with_replacement and without_replacement"
        )
    step_verification(verifier).check(kind.example(n, n + 1) for n in range(1, most + 1))
    chosen: dict[str, Any] = dict(filters)
    study = study_settings(
        source,
        CompareRow,
        num_drafts=(1,),
        drafts=(kind,),
        draft_models=None if draft_model is None else (draft_model,),
        verifiers=(RRSVerifier.name,),
        temperatures=(chosen.pop("temperature", 1.0),),
        positions=positions,
        seed=seed,
        **chosen,
    )
    return MeasuringSettings(most, study, verifier, 256 if trees is None else trees)


def measured_acceptance(
    source: Source, settings: MeasuringSettings, progress: Progress | None = None
) -> RankAcceptance:
    """Measure acceptance by rank: how often a verifier takes each of R drafts.

    Parameters
    ----------
    source : Source
    settings : MeasuringSettings
    progress : callable, optional
        Called with (positions done, all positions).

    Returns
    -------
    RankAcceptance
        Mean over positions. Recursive rejection tries the drafts of a node in turn, so that the
        acceptance of a rank does not depend on how many come after it: by rank. For verifiers of
        paths it is measured, too, as a search starts from it. The acceptance of any other verifier
        may depend on the number of drafts, and is measured for each up to R: by count. Where fewer
        than R tokens can be drawn, as many as there are.

    Notes
    -----
    At each position drafts are drawn 256 times, and it is counted what recursive rejection takes of
    them. For other verifiers the law of the emitted token given the drafts is averaged over 64
    draws, which leaves the scatter of the drafts alone.

    Examples
    --------
    >>> from mdsd import datasets
    >>> data = datasets.open_source("smollm2")
    >>> found = measured_acceptance(data, measuring_settings(data, ranks=3, positions=4))
    >>> found.by_rank.shape, bool(found.by_rank[0] > found.by_rank[1])
    ((3,), True)
    >>> settings = measuring_settings(data, verifier="optimal", ranks=2, positions=4)
    >>> measured_acceptance(data, settings).by_rank.shape
    (2, 2)
    """
    case, (model,) = settings.case, settings.case.draft_models
    # Verifiers of paths have no acceptance of their own: searches start from that of rejection.
    verifier = RRSVerifier.name if settings.searches else settings.verifier
    by_count = verifier != RRSVerifier.name
    step = Steps(settings.study.positions, progress)
    shares = []
    for start, stop in study_blocks(source, settings.study.positions):
        block = FilteredBlock(source.read(start, stop), case.filters)
        for position, (target_probs, draft_probs) in enumerate(
            zip(block.target, block.draft(model), strict=True), start
        ):
            if case.kind.draft_type.declared:
                # Tokens that no side has change nothing but the size.
                live = (target_probs > 0.0) | (draft_probs > 0.0)
                target_probs, draft_probs = target_probs[live], draft_probs[live]
            of = _shares_by_count if by_count else _shares
            shares.append(of(settings, position, target_probs, draft_probs))
            step()
    found, count = np.array(shares), len(shares)
    return RankAcceptance(
        found.mean(axis=0),
        found.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else None,
        f"{verifier} on {source.name}, {model}, {case.kind}, "
        f"{', '.join(case.filters.words)}, seed {settings.study.seed}, {count} positions",
        by_count,
    )


def _shares(
    settings: MeasuringSettings, position: int, target_probs: FloatArray, draft_probs: FloatArray
) -> FloatArray:
    """Share of the draws at a position that accept each rank."""
    draft = settings.case.kind.make_at_most(draft_probs, settings.ranks)
    rng = np.random.default_rng(np.random.SeedSequence(settings.study.seed, spawn_key=(position,)))
    plan = RRSVerifier().plan(target_probs, draft)
    found = plan.verify_many(draft.sample(rng, _DRAWS), rng).accept_index
    return np.bincount(found[found >= 0], minlength=settings.ranks) / _DRAWS


def _shares_by_count(
    settings: MeasuringSettings, position: int, target_probs: FloatArray, draft_probs: FloatArray
) -> FloatArray:
    """Chance of each rank to be accepted at a position, by the number of drafts."""
    found = np.zeros((settings.ranks, settings.ranks))
    for n in range(1, settings.ranks + 1):
        draft = settings.case.kind.make_at_most(draft_probs, n)
        seed = np.random.SeedSequence(settings.study.seed, spawn_key=(position, n))
        verifier = _verifier(settings.verifier, len(target_probs))
        if not verifier.supports(draft):  # of fewer tokens, as in a decoder
            verifier = NaiveVerifier()
        ids = draft.sample(np.random.default_rng(seed), _DRAWS_BY_LAW)
        accepted = accepted_by_rank(verifier.plan(target_probs, draft), ids)
        found[n - 1, : accepted.shape[1]] = accepted.mean(axis=0)
    return found


def _verifier(name: str, vocab_size: int) -> Verifier:
    taken = signature(type(get_verifier(name))).parameters
    if "tolerance" not in taken:
        return get_verifier(name)
    tolerance = search_tolerance(vocab_size)
    made = get_verifier(name, tolerance=tolerance)
    return made if tolerance < SEARCH_TOLERANCE else made.for_many()


def accepted_by_rank(plan: Plan, draft_token_ids: IntArray) -> FloatArray:
    """Give the chance of each draft to be the one accepted, given all drafts.

    Parameters
    ----------
    plan : Plan
    draft_token_ids : ndarray of int64, shape (B, n)

    Returns
    -------
    ndarray of float64, shape (B, n)
        Of a token drafted twice the first has it all.

    Examples
    --------
    >>> from mdsd import NaiveVerifier, WithReplacement
    >>> plan = NaiveVerifier().plan([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 2))
    >>> accepted_by_rank(plan, np.array([[1, 0], [2, 2]])).tolist()
    [[0.3, 0.5], [0.2, 0.0]]
    """
    found = np.take_along_axis(plan.output_law(draft_token_ids), draft_token_ids, axis=1)
    for rank in range(1, draft_token_ids.shape[1]):
        before = draft_token_ids[:, :rank] == draft_token_ids[:, rank : rank + 1]
        found[before.any(axis=1), rank] = 0.0
    return found
