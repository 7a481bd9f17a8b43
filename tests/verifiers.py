"""Which verifiers there are. Only `tests/mdsd/test_verifiers.py` writes their names in full."""

from __future__ import annotations

import mdsd

NAMES = mdsd.verifier_names()


def supporting(draft: mdsd.DraftDistribution) -> list[str]:
    """Names of the verifiers that support a draft distribution, in their order."""
    return [name for name in NAMES if mdsd.get_verifier(name).supports(draft)]
