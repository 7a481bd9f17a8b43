"""What a study of a log is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mdsd._arguments import check_type
from mdsd.datasets import TopLogprobs
from mdsd.drafts import GreedyDraft, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd.studies.positions import Case
from mdsd.studies.settings import read_names, settle

__all__ = ["IntervalSettings", "interval_settings"]

_DRAFTS = (
    WithReplacement.name,
    WithoutReplacement.name,
    IndependentDrafts.name,
    GreedyDraft.name,
)


@dataclass(frozen=True)
class IntervalSettings:
    """A checked request.

    Attributes
    ----------
    num_drafts : tuple of int
    drafts, draft_models : tuple of str
        Draft distributions that apply, and the draft models of those that take one.
    positions : int
        How many positions, counted from the first.
    cases : tuple of Case
        All that follows from it, in the order of the rows.
    """

    num_drafts: tuple[int, ...]
    drafts: tuple[str, ...]
    draft_models: tuple[str, ...]
    positions: int
    cases: tuple[Case, ...]

    def describe(self, data: str) -> dict[str, Any]:
        """Give the settings as they are written next to the rows.

        Parameters
        ----------
        data : str
            Path of the log.
        """
        return {
            "data": data,
            "positions": self.positions,
            "draft_models": list(self.draft_models),
            "drafts": list(self.drafts),
            "num_drafts": list(self.num_drafts),
        }


def interval_settings(
    log: TopLogprobs,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[str] | None = None,
    draft_models: Iterable[str] | None = None,
    positions: int | None = None,
) -> IntervalSettings:
    """Check the options of a study of a log; they are those of `mdsd.studies.interval`.

    Returns
    -------
    IntervalSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    check_type("log", log, TopLogprobs)
    settled = settle(
        log.draft_models,
        log.num_positions,
        0.0,  # no searches
        num_drafts=num_drafts,
        drafts=read_names("draft distribution", drafts, _DRAFTS, _DRAFTS),
        draft_models=draft_models,
        temperatures=(1.0,),
        top_k=None,
        top_p=1.0,
        positions=positions,
        seed=0,
    )
    return IntervalSettings(
        settled.num_drafts, settled.drafts, settled.draft_models, settled.positions, settled.cases
    )
