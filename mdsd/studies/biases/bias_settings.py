"""What a study of rules is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mdsd.datasets import Source
from mdsd.drafts import Draft
from mdsd.engines.base import EngineRule
from mdsd.engines.registry import Rule, default_rules, read_rules
from mdsd.errors import InvalidArgumentError
from mdsd.filters import CUT_COLUMNS, Filters
from mdsd.studies.cases import Case
from mdsd.studies.study_settings import Cases, filter_grid, listed, read_cases, read_kinds

DEFAULT_COUNTS = (1, 3)
"""Single drafts, which most rules are about, and several for those that take them."""


@dataclass(frozen=True)
class BiasSettings:
    """A checked request.

    Attributes
    ----------
    asked : Cases
    described : mapping of str to object
        Filters and rules, as they are written next to the rows.
    cases : tuple of (Case, tuple of EngineRule)
        In the order of the rows, each with the rules that are looked at.
    """

    asked: Cases
    described: Mapping[str, Any]
    cases: tuple[tuple[Case, tuple[EngineRule, ...]], ...]

    @property
    def positions(self) -> int:
        """How many positions, counted from the first."""
        return self.asked.positions

    def describe(self) -> dict[str, Any]:
        """Give the settings as they are written next to the rows."""
        return {**self.asked.describe(), **self.described}


def bias_settings(
    source: Source,
    *,
    rules: Iterable[Rule] | None = None,
    drafts: Iterable[Draft] | None = None,
    num_drafts: Iterable[int] = DEFAULT_COUNTS,
    temperatures: Iterable[float] = (1.0,),
    draft_models: Iterable[str] | None = None,
    positions: int | None = None,
    **cuts: Any,
) -> BiasSettings:
    """Check the options of a study of rules; they are those of `mdsd.studies.bias`.

    Returns
    -------
    BiasSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    chosen = default_rules() if rules is None else read_rules(listed("rules", rules))
    if not chosen:
        raise InvalidArgumentError("rules is empty; expected at least one")
    names = dict.fromkeys(name for rule in chosen for name in rule.drafts)
    kinds = read_kinds(list(names) if drafts is None else drafts)
    shared = {name: [cuts.pop(name, getattr(Filters(), name))] for name in CUT_COLUMNS}
    filters, described = filter_grid(temperatures, shared)
    asked = read_cases(
        source.draft_models,
        source.num_positions,
        filters,
        num_drafts=num_drafts,
        drafts=kinds,
        draft_models=draft_models,
        positions=positions,
    )
    cases = []
    for case in asked.cases:
        example = case.kind.example(case.num_drafts, case.num_drafts + 1)
        # By themselves rules are shown with the drafts that engines use them with.
        found = tuple(
            rule
            for rule in chosen
            if rule.supports(example) and (drafts is not None or case.kind.label in rule.drafts)
        )
        if found:
            cases.append((case, found))
    if not cases:
        raise InvalidArgumentError(
            f"nothing to compute: none of the rules {', '.join(rule.label for rule in chosen)} "
            f"supports {', '.join(map(str, asked.kinds))} with num_drafts "
            f"{', '.join(map(str, asked.num_drafts))}"
        )
    described |= {name: described[name][0] for name in CUT_COLUMNS}
    described["rules"] = [rule.label for rule in chosen]
    return BiasSettings(asked, described, tuple(cases))
