"""Verifiers: rules that turn drafted tokens into one token whose law is exactly the target.

To add one, put it in a file of its own here and list its class in `built_in`.
"""

from __future__ import annotations

from mdsd.verifiers import built_in
from mdsd.verifiers.base import Plan, Verification, Verifier
from mdsd.verifiers.built_in import *
from mdsd.verifiers.registry import get_verifier, verifier_names

__all__ = ["Plan", "Verification", "Verifier", "get_verifier", "verifier_names"]
__all__ += built_in.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
