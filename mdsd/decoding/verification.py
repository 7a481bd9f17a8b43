"""Verifications of a drafted tree by name."""

from __future__ import annotations

from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepVerification
from mdsd.verifiers import Verifier, get_verifier

__all__ = ["step_verification"]


def step_verification(verifier: str | Verifier) -> StepVerification:
    """Give the verification that a decoder's ``verifier`` argument means.

    Parameters
    ----------
    verifier : str or Verifier
        A one-step verifier or its name, as for `get_verifier`: used level by level.

    Returns
    -------
    StepVerification

    Raises
    ------
    InvalidArgumentError
        If the name is not known.
    """
    chosen = verifier if isinstance(verifier, Verifier) else get_verifier(verifier)
    return LevelVerification(chosen)
