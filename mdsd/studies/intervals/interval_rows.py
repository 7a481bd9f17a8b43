"""Rows of a study of logs."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd.studies.study_rows import AveragedRow


@dataclass(frozen=True)
class IntervalRow(AveragedRow):
    """What is known of the acceptance bound of one draft distribution over the positions of a log.

    Attributes
    ----------
    draft_model : str
        Name of the draft model; "a+b" for independent drafts of a and b.
    draft : str
        Name of the draft distribution.
    num_drafts : int
        n, the tokens drafted in one step.
    lower, upper : float or None
        Means of the ends of the interval that holds alpha* at each position. The mean of alpha*
        over the positions lies between them.
    lower_stderr, upper_stderr : float or None
        Their standard errors over positions (N - 1); None for a single position.
    width : float or None
        `upper` - `lower`: what the log leaves open.
    known_target_mass, known_draft_mass : float or None
        Mean probability of the tokens known; over the n draft models, too, where they are
        independent.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    missing, joint
        As in `AveragedRow`.
    """

    draft_model: str
    draft: str
    num_drafts: int
    lower: float | None
    lower_stderr: float | None
    upper: float | None
    upper_stderr: float | None
    width: float | None
    known_target_mass: float | None
    known_draft_mass: float | None
    positions: int
