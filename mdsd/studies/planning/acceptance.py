"""Acceptance by rank: as given, from a file, or measured over the positions of a data set."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from mdsd._arguments import check_whole, shown
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray
from mdsd.datasets import Source
from mdsd.drafts import Draft, WithoutReplacement, read_kind
from mdsd.errors import InvalidArgumentError
from mdsd.filters import FilterOptions
from mdsd.studies.cases import Case, Progress, Steps
from mdsd.studies.study_settings import StudySettings, compare_settings
from mdsd.studies.values import FilteredBlock, study_blocks
from mdsd.verifiers import RRSVerifier

_DRAWS = 256
"""Drafts verified at each position: far less noise than between positions."""

_MOST_RANKS = 64
"""Ranks worth measuring: later ones are accepted less often than the noise."""

_KEY = "acceptance_by_rank"
"""What a JSON file may call its numbers; that of ``mdsd plan-tree --json`` does."""


@dataclass(frozen=True, eq=False)
class RankAcceptance(FrozenArrays):
    """Probability of each child of a node to be the one accepted, given that the node was.

    Attributes
    ----------
    by_rank : ndarray of float64, shape (R,) or (D, R)
        By rank, the order in which the children are tried; or by depth and rank.
    stderr : ndarray of float64, shape (R,), or None
        Standard error over positions; None if it was not measured, or at one position only.
    source : str
        Where the numbers come from.
    """

    by_rank: FloatArray
    stderr: FloatArray | None
    source: str


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
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be read: {error.strerror}") from None
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
    """

    ranks: int
    study: StudySettings

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
            "verifier": RRSVerifier.name,
            "ranks": self.ranks,
            **self.case.filters.columns,
            "seed": self.study.seed,
        }


def measuring_settings(
    source: Source,
    *,
    draft: Draft = WithoutReplacement.name,
    ranks: int = 8,
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
    ranks : int, default 8
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
    """
    kind = read_kind(draft)
    if kind.one_model_each or not kind.draft_type.successive:
        raise InvalidArgumentError(
            f"draft is {kind}; expected one whose tokens are drawn one after another from one "
            "draft model, as with_replacement and without_replacement"
        )
    chosen: dict[str, Any] = dict(filters)
    study = compare_settings(
        source,
        num_drafts=(1,),
        drafts=(kind,),
        draft_models=None if draft_model is None else (draft_model,),
        verifiers=(RRSVerifier.name,),
        temperatures=(chosen.pop("temperature", 1.0),),
        positions=positions,
        seed=seed,
        **chosen,
    )
    return MeasuringSettings(check_whole("ranks", ranks, 1, _MOST_RANKS), study)


def measured_acceptance(
    source: Source, settings: MeasuringSettings, progress: Progress | None = None
) -> RankAcceptance:
    """Measure acceptance by rank: how often recursive rejection takes each of R drafts.

    Parameters
    ----------
    source : Source
    settings : MeasuringSettings
    progress : callable, optional
        Called with (positions done, all positions).

    Returns
    -------
    RankAcceptance
        Mean over positions. The drafts of a node are tried in turn, so the acceptance of a rank
        does not depend on how many come after it, as planning a tree takes for granted. Where fewer
        than R tokens can be drawn, as many as there are.

    Examples
    --------
    >>> from mdsd import datasets
    >>> data = datasets.open_source("smollm2")
    >>> found = measured_acceptance(data, measuring_settings(data, ranks=3, positions=4))
    >>> found.by_rank.shape, bool(found.by_rank[0] > found.by_rank[1])
    ((3,), True)
    """
    case, (model,) = settings.case, settings.case.draft_models
    step = Steps(settings.study.positions, progress)
    shares = []
    for start, stop in study_blocks(source, settings.study.positions):
        block = FilteredBlock(source.read(start, stop), case.filters)
        for position, pair in enumerate(zip(block.target, block.draft(model), strict=True), start):
            shares.append(_shares(settings, position, *pair))
            step()
    found, count = np.array(shares), len(shares)
    return RankAcceptance(
        found.mean(axis=0),
        found.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else None,
        f"rrs on {source.name}, {model}, {case.kind}, {', '.join(case.filters.words)}, "
        f"seed {settings.study.seed}, {count} positions",
    )


def _shares(
    settings: MeasuringSettings, position: int, target_probs: FloatArray, draft_probs: FloatArray
) -> FloatArray:
    """Share of the draws at a position that accept each rank."""
    kind = settings.case.kind
    if kind.draft_type.declared:  # tokens that no side has change nothing but the size
        live = (target_probs > 0.0) | (draft_probs > 0.0)
        target_probs, draft_probs = target_probs[live], draft_probs[live]
    draft = kind.make_at_most(draft_probs, settings.ranks)
    rng = np.random.default_rng(np.random.SeedSequence(settings.study.seed, spawn_key=(position,)))
    plan = RRSVerifier().plan(target_probs, draft)
    found = plan.verify_many(draft.sample(rng, _DRAWS), rng).accept_index
    return np.bincount(found[found >= 0], minlength=settings.ranks) / _DRAWS
