"""Acceptance and bias of rules over the positions of a data set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Unpack

import numpy as np

from mdsd._typing import FloatArray
from mdsd.bounds import acceptance_bound
from mdsd.datasets import Dataset, Source
from mdsd.datasets.sources import open_given
from mdsd.drafts import Draft
from mdsd.engines.base import EngineRule
from mdsd.engines.registry import Rule
from mdsd.errors import SolverError, UnsupportedError
from mdsd.filters import CUT_COLUMNS, CutOptions, check_filter_names
from mdsd.studies.biases.bias_settings import DEFAULT_COUNTS, BiasSettings, bias_settings
from mdsd.studies.biases.rule_rows import RuleRow
from mdsd.studies.cases import Case, Progress, Steps, check_progress
from mdsd.studies.frames import Rows
from mdsd.studies.study_rows import Mean, Missing, Texts
from mdsd.studies.study_settings import search_tolerance
from mdsd.studies.values import FilteredBlock, at_position, study_blocks

_QUANTITIES = ("acceptance", "total_variation", "kl_divergence")


def bias(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    rules: Iterable[Rule] | None = None,
    num_drafts: Iterable[int] = DEFAULT_COUNTS,
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    temperatures: Iterable[float] = (1.0,),
    positions: int | None = None,
    progress: Progress | None = None,
    **filters: Unpack[CutOptions],
) -> Rows[RuleRow]:
    """Average what the rules of engines accept, and how far their output is from the target.

    Parameters
    ----------
    dataset : str, path-like or Dataset
        The name of an embedded data set, the path of an `.npz` file or of the folder of a capture,
        or a data set in memory.
    rules : iterable of (str, EngineRule or Verifier), optional
        Labels such as "typical:0.09:0.3", names that stand for several parameters, verifiers or
        their names, or objects; all that the library has if None.
    num_drafts : iterable of int, default (1, 3)
        Numbers n of draft tokens.
    drafts : iterable of (str or DraftKind), optional
        Kinds of drafts, or their labels: each rule is shown with all it supports. If None, with
        those that engines use it with.
    draft_models, temperatures, positions, progress, **filters
        As for `compare`.

    Returns
    -------
    Rows of RuleRow
        A tuple that `Rows.to_frame` makes a data frame of. By draft model, temperature, draft
        distribution and number of drafts, in the order of the rules. Numbers that were not computed
        are None.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> from mdsd import studies
    >>> rows = studies.bias(
    ...     "smollm2", rules=["optimal", "typical:0.09:0.3"], num_drafts=[1], positions=5
    ... )
    >>> for row in rows:
    ...     print(f"{row.draft:16} {row.label:16} {row.acceptance:.3f} {row.total_variation:.3f}")
    with_replacement optimal          0.659 0.000
    top_k            optimal          0.244 0.000
    top_k            typical:0.09:0.3 1.000 0.756
    """
    check_progress(progress)
    check_filter_names(filters, CUT_COLUMNS)
    source = open_given("dataset", dataset)
    settings = bias_settings(
        source,
        rules=rules,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        temperatures=temperatures,
        positions=positions,
        **filters,
    )
    return run_bias(source, settings, progress)


def run_bias(
    source: Source, settings: BiasSettings, progress: Progress | None = None
) -> Rows[RuleRow]:
    """Compute rows as settings that were checked before say.

    Parameters
    ----------
    source : Source
    settings : BiasSettings
    progress : callable, optional
        Called with (steps done, all steps); a step is a case at a position.

    Returns
    -------
    Rows of RuleRow
    """
    from threadpoolctl import threadpool_limits

    step = Steps(len(settings.cases) * settings.positions, progress)
    found = [_Found(case, rules) for case, rules in settings.cases]
    with threadpool_limits(1):
        for start, stop in study_blocks(source, settings.positions):
            data = source.read(start, stop)
            blocks: dict[object, FilteredBlock] = {}
            for each in found:
                filters = each.case.filters
                if filters not in blocks:
                    blocks[filters] = FilteredBlock(data, filters)
                each.add(blocks[filters], start, step)
    return Rows(row for each in found for row in each.rows(source.name))


class _Found:
    """Numbers of one case at the positions so far."""

    def __init__(self, case: Case, rules: tuple[EngineRule, ...]) -> None:
        self.case, self._rules = case, rules
        self._bounds: list[float] = []
        self._texts: list[float] = []
        self._values: dict[str, list[tuple[float, ...]]] = {rule.label: [] for rule in rules}
        self._missing: dict[str, Missing] = {}

    def add(self, block: FilteredBlock, start: int, step: Steps) -> None:
        """Compute the numbers of all rules at the positions of a block."""
        case = self.case
        tables = [block.draft(model) for model in case.draft_models]
        probs = np.stack(tables, axis=1) if case.kind.one_model_each else tables[0]
        drawable = case.kind.drawable(probs, case.num_drafts)
        tolerance = search_tolerance(block.target.shape[1])
        for row in np.flatnonzero(drawable).tolist():
            target, draft = at_position(case.kind, case.num_drafts, block.target[row], probs[row])
            self._texts.append(float(block.text_ids[row]))

            def failed(
                what: str, error: Exception, place: int = start + row, of: FloatArray = target
            ) -> None:
                tokens = int(np.count_nonzero(of))
                self._missing.setdefault(what, Missing(what, place, tokens, str(error)))

            try:
                self._bounds.append(acceptance_bound(target, draft, tolerance=tolerance).value)
            except (UnsupportedError, SolverError) as error:
                failed("bound", error)
            for rule in self._rules:
                try:
                    outcome = rule.outcome(target, draft)
                except (UnsupportedError, SolverError) as error:
                    failed(rule.label, error)
                    continue
                numbers = tuple(float(getattr(outcome, name)) for name in _QUANTITIES)
                self._values[rule.label].append(numbers)
            step()
        step(len(drawable) - int(np.count_nonzero(drawable)))

    def rows(self, data: str) -> list[RuleRow]:
        """Average over the positions."""
        known = len(self._texts) > 0 and not np.isnan(self._texts).any()
        texts = Texts(self._texts) if known else None
        bound = Mean(self._bounds, self._missing.get("bound"), texts)
        return [self._row(data, rule, bound, texts) for rule in self._rules]

    def _row(self, data: str, rule: EngineRule, bound: Mean, texts: Texts | None) -> RuleRow:
        case, missing = self.case, self._missing.get(rule.label)
        columns = np.array(self._values[rule.label]).reshape(-1, len(_QUANTITIES)).T
        infinite = int(np.count_nonzero(np.isinf(columns[2]))) if missing is None else 0
        acceptance, apart = (Mean(values, missing, texts) for values in columns[:2])
        divergence = Mean(() if infinite else columns[2], missing, texts)
        front = None
        if bound.mean is not None and apart.mean is not None:
            front = min(1.0, bound.mean + apart.mean)
        return RuleRow(
            data=data,
            draft_model="+".join(case.draft_models),
            draft=case.kind.label,
            num_drafts=case.num_drafts,
            filters=case.filters,
            rule=rule.name,
            parameters=rule.parameters,
            lossless=rule.lossless,
            acceptance=acceptance.mean,
            stderr=acceptance.stderr,
            total_variation=apart.mean,
            total_variation_stderr=apart.stderr,
            kl_divergence=divergence.mean,
            kl_divergence_stderr=divergence.stderr,
            infinite_kl=infinite,
            bound=bound.mean,
            bound_stderr=bound.stderr,
            front=front,
            positions=len(self._texts),
            texts=None if texts is None else texts.count,
            stderr_by_text=acceptance.stderr_by_text,
            joint=case.kind.one_model_each,
            missing=tuple(each for each in (bound.missing, missing) if each is not None),
        )
