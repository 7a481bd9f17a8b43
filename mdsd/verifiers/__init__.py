"""Verifiers: rules that turn drafted tokens into one token whose law is exactly the target.

To add one, put it in a file of its own here and list its class in `registry`.
"""

from __future__ import annotations

from mdsd.verifiers.base import Plan, Verification, Verifier
from mdsd.verifiers.greedy import GreedyVerifier
from mdsd.verifiers.kseq import KSeqVerifier
from mdsd.verifiers.naive import NaiveVerifier
from mdsd.verifiers.naive_tree import NaiveTreeVerifier
from mdsd.verifiers.optimal import OptimalVerifier
from mdsd.verifiers.registry import get_verifier, verifier_names
from mdsd.verifiers.rrs import RRSVerifier
from mdsd.verifiers.single import SingleDraftVerifier
from mdsd.verifiers.spechub import SpecHubVerifier

__all__ = [
    "GreedyVerifier",
    "KSeqVerifier",
    "NaiveTreeVerifier",
    "NaiveVerifier",
    "OptimalVerifier",
    "Plan",
    "RRSVerifier",
    "SingleDraftVerifier",
    "SpecHubVerifier",
    "Verification",
    "Verifier",
    "get_verifier",
    "verifier_names",
]
