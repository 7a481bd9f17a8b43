"""The verifiers of this package: a new one is made known here, and nowhere else."""

from __future__ import annotations

from mdsd.verifiers.base import Verifier
from mdsd.verifiers.greedy import GreedyVerifier
from mdsd.verifiers.kseq import KSeqVerifier
from mdsd.verifiers.naive import NaiveVerifier
from mdsd.verifiers.naive_tree import NaiveTreeVerifier
from mdsd.verifiers.optimal import OptimalVerifier
from mdsd.verifiers.rrs import RRSVerifier
from mdsd.verifiers.single import SingleDraftVerifier
from mdsd.verifiers.spechub import SpecHubVerifier

__all__ = [
    "GreedyVerifier",
    "KSeqVerifier",
    "NaiveTreeVerifier",
    "NaiveVerifier",
    "OptimalVerifier",
    "RRSVerifier",
    "SingleDraftVerifier",
    "SpecHubVerifier",
]

BUILT_IN: tuple[type[Verifier], ...] = (
    SingleDraftVerifier,
    NaiveVerifier,
    NaiveTreeVerifier,
    RRSVerifier,
    KSeqVerifier,
    SpecHubVerifier,
    GreedyVerifier,
    OptimalVerifier,
)
"""In the order in which they are listed."""

USUAL_REFERENCE = RRSVerifier.name
"""The verifier that others are compared with unless another is asked for."""
