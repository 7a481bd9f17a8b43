"""Multi-draft speculative decoding: acceptance bounds and lossless verifiers.

Data flows one way: probabilities -> draft distribution -> bound or plan -> verification.

>>> import mdsd
>>> draft = mdsd.WithReplacement([0.2, 0.5, 0.3], num_drafts=2)
>>> target = [0.5, 0.3, 0.2]
>>> round(mdsd.acceptance_bound(target, draft).value, 12)
0.86
>>> plan = mdsd.get_verifier("optimal").plan(target, draft)
>>> round(plan.acceptance_rate, 12)
0.86
>>> plan.verify(draft.sample(rng=0), rng=0)
Verification(token_id=1, accept_index=0)

Probabilities, logits and token ids may be whatever numpy can read, or tensors in the host's memory,
which are read in place, bfloat16 too; answers are numpy arrays. Tensors that require a gradient or
live elsewhere are refused, but for `acceptance_bounds`, `acceptance_rates` and `verify_batch`: they
answer on the device of their arguments, in their kind.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from mdsd import _own_solvers as _own_solvers  # before whatever imports them
from mdsd._version import __version__
from mdsd.batch import BatchVerification, acceptance_bounds, acceptance_rates, verify_batch
from mdsd.bounds import AcceptanceBound, acceptance_bound
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.drafts import built_in as _drafts
from mdsd.drafts.built_in import *
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
    SolverError,
    UnsupportedError,
)
from mdsd.filters import Filters, filter_probs, probs_from_logits
from mdsd.intervals import AcceptanceInterval, acceptance_interval
from mdsd.verifiers import Plan, Verification, Verifier, get_verifier, verifier_names
from mdsd.verifiers import built_in as _verifiers
from mdsd.verifiers.built_in import *

_LAZY_MODULES = ("analysis", "datasets", "decoding", "studies", "testing")

__all__ = [
    "AcceptanceBound",
    "AcceptanceInterval",
    "BatchVerification",
    "DraftDistribution",
    "DraftKind",
    "Filters",
    "InvalidArgumentError",
    "InvalidDistributionError",
    "InvalidTokenError",
    "MdsdError",
    "Plan",
    "SolverError",
    "UnsupportedError",
    "Verification",
    "Verifier",
    "__version__",
    "acceptance_bound",
    "acceptance_bounds",
    "acceptance_interval",
    "acceptance_rates",
    "analysis",
    "datasets",
    "decoding",
    "drafts",
    "filter_probs",
    "get_verifier",
    "probs_from_logits",
    "studies",
    "testing",
    "verifier_names",
    "verifiers",
    "verify_batch",
]
__all__ += _drafts.__all__
__all__ += _verifiers.__all__


def __getattr__(name: str) -> _ModuleType:
    if name in _LAZY_MODULES:
        return _import_module(f"mdsd.{name}")
    raise AttributeError(f"module 'mdsd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
