"""The positions of a data set, one at a time: filtered laws, and the drafts of every case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._arguments import shown
from mdsd._typing import FloatArray
from mdsd.bounds import acceptance_bound
from mdsd.datasets import Dataset
from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.filters import filter_probs, probs_from_logits

if TYPE_CHECKING:
    from mdsd.studies.settings import Settings

__all__ = [
    "DRAFT_NAMES",
    "Case",
    "Progress",
    "Steps",
    "Visit",
    "applies",
    "bound_value",
    "check_progress",
    "filtered",
    "probe_draft",
    "visits",
]

Progress = Callable[[int, int], object]
"""Called with the number of steps done and their total."""

_MOST_PROBED = 1000
"""Drafts of a probe: no verifier tells larger numbers apart, and a probe has to be cheap."""

_BUILDERS: dict[str, Callable[[Sequence[FloatArray], int], DraftDistribution]] = {
    WithReplacement.name: lambda laws, n: WithReplacement(laws[0], n),
    WithoutReplacement.name: lambda laws, n: WithoutReplacement(laws[0], n),
    IndependentDrafts.name: lambda laws, n: IndependentDrafts(laws),
    GreedyDraft.name: lambda laws, n: GreedyDraft(laws[0], n),
    SpecHubDraft.name: lambda laws, n: SpecHubDraft(laws[0]),
    TopKDraft.name: lambda laws, n: TopKDraft(laws[0], n),
}

DRAFT_NAMES = tuple(_BUILDERS)
"""Draft distributions that a study can build from draft models."""


@dataclass(frozen=True)
class Case:
    """One draft distribution to study.

    Attributes
    ----------
    draft_models : tuple of str
        The one draft model, or the n of independent drafts.
    draft : str
        One of `DRAFT_NAMES`.
    num_drafts : int
    temperature : float
    """

    draft_models: tuple[str, ...]
    draft: str
    num_drafts: int
    temperature: float

    @property
    def label(self) -> dict[str, Any]:
        """The columns that say which case a row is about."""
        return {
            "draft_model": "+".join(self.draft_models),
            "draft": self.draft,
            "num_drafts": self.num_drafts,
            "temperature": self.temperature,
        }


@dataclass(frozen=True, eq=False)
class Visit:
    """A case at one position: what bounds and plans are computed from."""

    case: Case
    position: int
    target_probs: FloatArray
    draft: DraftDistribution


def applies(draft: str, num_drafts: int, num_models: int) -> bool:
    """Tell whether a draft distribution exists for n drafts and M draft models.

    Examples
    --------
    >>> applies("spechub", 3, 1), applies("independent", 3, 5)
    (False, True)
    """
    if draft == SpecHubDraft.name:
        return num_drafts == 2
    return draft != IndependentDrafts.name or num_drafts <= num_models


def probe_draft(case: Case) -> DraftDistribution:
    """Build a draft like those of a case, to ask verifiers whether they support it.

    It exists even where the data leave no position at which n tokens can be drafted.
    """
    num_drafts = min(case.num_drafts, _MOST_PROBED)
    law = np.full(num_drafts + 1, 1.0 / (num_drafts + 1))
    return _BUILDERS[case.draft]([law] * len(case.draft_models), num_drafts)


def check_progress(progress: Any) -> None:
    """Check what is to be told of the progress.

    Raises
    ------
    InvalidArgumentError
        If it is neither None nor callable.
    """
    if progress is not None and not callable(progress):
        raise InvalidArgumentError(
            f"progress is {shown(progress)} of type {type(progress).__name__}; "
            "expected a callable or None"
        )


class Steps:
    """Counts the steps of a study, and tells of each.

    Parameters
    ----------
    total : int
        All steps.
    progress : callable or None
        Called with (steps done, all steps) at each.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total = 0, total
        self._progress = progress

    def __call__(self) -> None:
        """Count one step."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)


def filtered(table: FloatArray, kind: str, options: Mapping[str, Any]) -> FloatArray:
    """Make filtered laws of what a data set holds of one side.

    Parameters
    ----------
    table : ndarray, shape (..., V)
    kind : str
        "logits" or "probs".
    options : mapping
        Of `mdsd.probs_from_logits`.
    """
    apply = probs_from_logits if kind == "logits" else filter_probs
    return apply(table, **options)


def bound_value(visit: Visit, tolerance: float) -> float:
    """Compute the acceptance bound at a visited position."""
    return acceptance_bound(visit.target_probs, visit.draft, tolerance=tolerance).value


def visits(
    dataset: Dataset, settings: Settings, progress: Progress | None = None
) -> Iterator[Visit]:
    """Go through all cases at all positions, without those at which n tokens cannot be drafted.

    Parameters
    ----------
    dataset : Dataset
    settings : Settings
    progress : callable, optional
        Called with (steps done, all steps) after every position at every temperature.

    Yields
    ------
    Visit
        Temperature by temperature, position by position.
    """
    step = Steps(len(settings.temperatures) * settings.positions, progress)
    for heat in settings.temperatures:
        cases = [case for case in settings.cases if case.temperature == heat]
        for position in range(settings.positions):
            laws = _Laws(dataset, position, heat, settings)
            for case in cases:
                visit = _visit(case, position, laws)
                if visit is not None:
                    yield visit
            step()


class _Laws:
    """Filtered laws of all models at one position, each made when it is first asked for."""

    def __init__(
        self, dataset: Dataset, position: int, temperature: float, settings: Settings
    ) -> None:
        self._dataset = dataset
        self._position = position
        self._options: dict[str, Any] = {
            "temperature": temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
        }
        self.target = self._filtered(dataset.target_logits, dataset.target_kind)
        self._drafts: dict[str, FloatArray] = {}

    def draft(self, model: str) -> FloatArray:
        if model not in self._drafts:
            table = self._dataset.draft_logits[model]
            self._drafts[model] = self._filtered(table, self._dataset.draft_kind)
        return self._drafts[model]

    def _filtered(self, table: FloatArray, kind: str) -> FloatArray:
        return filtered(table[self._position], kind, self._options)


def _visit(case: Case, position: int, laws: _Laws) -> Visit | None:
    drafts = [laws.draft(model) for model in case.draft_models]
    # Padding, and tokens that the filters took from every side, change nothing but the size.
    live = np.logical_or.reduce([laws.target > 0.0, *(law > 0.0 for law in drafts)])
    try:
        draft = _BUILDERS[case.draft]([law[live] for law in drafts], case.num_drafts)
    except InvalidDistributionError:
        # The laws themselves were checked when they were read: there are too few tokens to draw.
        return None
    return Visit(case, position, laws.target[live], draft)
