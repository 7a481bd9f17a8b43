"""The rules of this package: a new one is made known here, and nowhere else."""

from __future__ import annotations

from mdsd.engines.base import EngineRule
from mdsd.engines.cactus import CactusAcceptance
from mdsd.engines.gumbel import GumbelLists
from mdsd.engines.lossless import VerifierRule
from mdsd.engines.mixture import MixtureAcceptance
from mdsd.engines.over_accepting import OverAcceptance
from mdsd.engines.relaxed import RelaxedAcceptance
from mdsd.engines.thresholds import ThresholdAcceptance
from mdsd.engines.typical import TypicalAcceptance

BUILT_IN: tuple[type[EngineRule], ...] = (
    VerifierRule,
    GumbelLists,
    OverAcceptance,
    MixtureAcceptance,
    CactusAcceptance,
    TypicalAcceptance,
    RelaxedAcceptance,
    ThresholdAcceptance,
)
"""In the order in which they are listed."""
