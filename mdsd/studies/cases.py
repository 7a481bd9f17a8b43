"""What a study looks at: drafts of some models under some filters, and the steps it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mdsd._arguments import shown
from mdsd.drafts import DraftKind
from mdsd.errors import InvalidArgumentError
from mdsd.filters import Filtered, Filters

Progress = Callable[[int, int], object]
"""Called with the number of steps done and their total."""


@dataclass(frozen=True)
class Case(Filtered):
    """One draft distribution to study.

    Attributes
    ----------
    kind : DraftKind
    draft_models : tuple of str
        The one draft model, or the n of drafts that have one each.
    num_drafts : int
    filters : Filters
    """

    kind: DraftKind
    draft_models: tuple[str, ...]
    num_drafts: int
    filters: Filters = field(default_factory=Filters)


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
    done : int, default 0
        Those that were done before.
    """

    def __init__(self, total: int, progress: Progress | None, done: int = 0) -> None:
        self._done, self._total = done, total
        self._progress = progress

    def __call__(self, count: int = 1) -> None:
        """Count one step, or several at once."""
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)
