"""What tests of verifiers, draft distributions and solvers need, for your own ones as well.

`check_verifier` is the conformance suite of verifiers, `check_draft` that of draft distributions;
`instances` and `random_probs` draw instances from a seed; `probability_vectors`,
`draft_distributions` and `problems` are Hypothesis strategies of the same range, which shrink
(`pip install hypothesis`; nothing else here needs it). `sequence_law` and `accepted_law` follow a
whole decoder branch by branch.
"""

from __future__ import annotations

from mdsd.testing._conformance import check_plan, check_verifier
from mdsd.testing._drafts import check_draft
from mdsd.testing._exact import chi_square_p_value, enumerated_acceptance, enumerated_law
from mdsd.testing._failures import EXACT, FALSE_ALARM, CheckFailure
from mdsd.testing._instances import Instance, drafts_of, instances, random_probs
from mdsd.testing._sequences import accepted_law, sequence_law
from mdsd.testing._strategies import draft_distributions, probability_vectors, problems

__all__ = [
    "EXACT",
    "FALSE_ALARM",
    "CheckFailure",
    "Instance",
    "accepted_law",
    "check_draft",
    "check_plan",
    "check_verifier",
    "chi_square_p_value",
    "draft_distributions",
    "drafts_of",
    "enumerated_acceptance",
    "enumerated_law",
    "instances",
    "probability_vectors",
    "problems",
    "random_probs",
    "sequence_law",
]
