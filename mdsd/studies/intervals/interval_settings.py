"""What a study of a log is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mdsd._arguments import check_type
from mdsd.datasets import TopLogprobs
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.intervals.interval import interval_kinds
from mdsd.studies.study_settings import Cases, read_cases, read_kinds


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
    known = interval_kinds()
    chosen = known if drafts is None else read_kinds(drafts)
    for kind in chosen:
        if kind not in known:
            raise InvalidArgumentError(
                f"draft is {kind.label!r}; expected one of {', '.join(map(str, known))}"
            )
    return read_cases(log.draft_models, log.num_positions, drafts=chosen, **options)
