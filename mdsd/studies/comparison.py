"""Compare verifiers over the positions of a data set."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mdsd.datasets import Dataset
from mdsd.studies.positions import (
    Case,
    Progress,
    Visit,
    bound_value,
    check_progress,
    probe_draft,
    visits,
)
from mdsd.studies.rows import CompareRow, Tally, best_first
from mdsd.studies.settings import Settings, compare_settings
from mdsd.verifiers import Verifier

__all__ = ["compare", "run_compare"]


def compare(
    dataset: Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[str] | None = None,
    draft_models: Iterable[str] | None = None,
    verifiers: Iterable[str | Verifier] | None = None,
    temperatures: Iterable[float] = (1.0,),
    top_k: int | None = None,
    top_p: float = 1.0,
    positions: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[CompareRow, ...]:
    """Average the acceptance of verifiers, and the bound they cannot exceed, over positions.

    Parameters
    ----------
    dataset : Dataset
        From `mdsd.datasets.load` or `mdsd.datasets.read_npz`.
    num_drafts : iterable of int, default (2, 3, 4)
        Numbers n of draft tokens.
    drafts : iterable of str, optional
        Names of draft distributions; all that apply if None. "spechub" applies to n = 2;
        "independent" takes the first n draft models and needs as many.
    draft_models : iterable of str, optional
        Draft models for all but "independent"; the first of the data set if None.
    verifiers : iterable of str or Verifier, optional
        Names or verifiers of one's own; all registered ones if None. Each is used where it
        supports the draft distribution.
    temperatures : iterable of float, default (1.0,)
    top_k, top_p
        Filters for target and draft alike, as for `mdsd.probs_from_logits`.
    positions : int, optional
        Use only the first ones.
    seed : int, default 0
        Seed of acceptance rates that are estimated; a verifier given as an object keeps its own.
    progress : callable, optional
        Called with (steps done, all steps).

    Returns
    -------
    tuple of CompareRow
        By draft model, temperature, draft distribution and number of drafts, best first; a row's
        numbers do not depend on which other rows were asked for. Numbers that were not computed
        are None.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> from mdsd import datasets, studies
    >>> rows = studies.compare(
    ...     datasets.load("smollm2"), num_drafts=[2], drafts=["greedy"], positions=5
    ... )
    >>> [(row.verifier, round(row.acceptance, 3), row.positions) for row in rows]
    [('greedy', 0.735, 5), ('optimal', 0.735, 5), ('naive', 0.269, 5)]
    """
    check_progress(progress)
    settings = compare_settings(
        dataset,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        verifiers=verifiers,
        temperatures=temperatures,
        top_k=top_k,
        top_p=top_p,
        positions=positions,
        seed=seed,
    )
    return run_compare(dataset, settings, progress)


def run_compare(
    dataset: Dataset, settings: Settings, progress: Progress | None = None
) -> tuple[CompareRow, ...]:
    """Compare verifiers as settings that were checked before say.

    Parameters
    ----------
    dataset : Dataset
    settings : Settings
        From `compare_settings`.
    progress : callable, optional
        Called with (steps done, all steps).

    Returns
    -------
    tuple of CompareRow
    """
    tallies = {case: _Tallies(case, settings) for case in settings.cases}
    for visit in visits(dataset, settings, progress):
        tallies[visit.case].add(visit, settings)
    return tuple(row for case in settings.cases for row in tallies[case].rows())


class _Tallies:
    """Numbers of one case: its bound, and every verifier that supports it."""

    def __init__(self, case: Case, settings: Settings) -> None:
        probe = probe_draft(case)
        self._case = case
        self._positions = 0
        self._bound = Tally("bound")
        self._acceptance = {
            index: Tally(verifier.name)
            for index, verifier in enumerate(settings.verifiers_at(0))
            if verifier.supports(probe)
        }

    def add(self, visit: Visit, settings: Settings) -> None:
        place = {"position": visit.position, "tokens": visit.draft.vocab_size}
        self._positions += 1
        self._bound.add(partial(bound_value, visit, settings.search_tolerance), **place)
        verifiers = settings.verifiers_at(visit.position)
        for index, tally in self._acceptance.items():
            tally.add(partial(_acceptance, verifiers[index], visit), **place)

    def rows(self) -> list[CompareRow]:
        return best_first(self._row(tally) for tally in self._acceptance.values())

    def _row(self, tally: Tally) -> CompareRow:
        mean, bound = tally.mean, self._bound.mean
        return CompareRow(
            **self._case.label,
            verifier=tally.what,
            acceptance=mean,
            stderr=tally.stderr,
            bound=bound,
            bound_stderr=self._bound.stderr,
            share_of_bound=mean / bound if mean is not None and bound else None,
            positions=self._positions,
            missing=tuple(t.missing for t in (self._bound, tally) if t.missing is not None),
        )


def _acceptance(verifier: Verifier, visit: Visit) -> float:
    return verifier.plan(visit.target_probs, visit.draft).acceptance_rate
