"""What a study of a log is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mdsd._arguments import check_type
from mdsd.datasets import TopLogprobs
from mdsd.drafts import Draft, GreedyDraft, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd.studies.settings import Cases, listed, read_cases, read_names

__all__ = ["interval_settings"]

_WITH_INTERVAL = (
    WithReplacement.name,
    WithoutReplacement.name,
    IndependentDrafts.name,
    GreedyDraft.name,
)


def interval_settings(
    log: TopLogprobs, *, drafts: Iterable[Draft] | None = None, **options: Any
) -> Cases:
    """Check the options of a study of a log; they are those of `mdsd.studies.interval`.

    Returns
    -------
    Cases

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    check_type("log", log, TopLogprobs)
    names = drafts if drafts is None else [str(draft) for draft in listed("drafts", drafts)]
    known = read_names("draft distribution", names, _WITH_INTERVAL, _WITH_INTERVAL)
    return read_cases(log.draft_models, log.num_positions, drafts=known, **options)
