"""Theory of speculative decoding: rejections, batches, bias, wall time and draft trees.

How many rejections to expect (`expected_rejections`, `simulate_rejections`), what a batch of draft
sequences saves (`batch_improvement`), which acceptance functions are unbiased and what they lose
(`assess_acceptance`), what bias buys (`pareto_front`) and what the rules of engines make of it
(`assess_rule`), how many tokens a step yields and whether it
pays (`expected_tokens`, `speedup`), which tree to draft (`plan_tree`, `plan_tree_by_count`), and
the most that any verifier could accept of one (`tree_bound`). Theory and simulation stand side by
side; each theory function is exact.

Rejections, batches and bias follow Yin et al., "A Theoretical Perspective for Speculative Decoding
Algorithm". There q is the target and p the draft; here p is the target and q the draft.
"""

from __future__ import annotations

from mdsd.analysis._simulation import SimulatedRejections
from mdsd.analysis.batches import BatchImprovement, batch_improvement, simulate_batch_rejections
from mdsd.analysis.bias import (
    ParetoFront,
    SimulatedFront,
    biased_rule,
    chain_pareto_front,
    over_acceptance,
    pareto_front,
    simulate_chain_pareto_front,
    simulate_pareto_front,
)
from mdsd.analysis.engines import assess_rule, gumbel_acceptance
from mdsd.analysis.planning import TreePlan, plan_tree
from mdsd.analysis.planning_by_count import plan_tree_by_count
from mdsd.analysis.rejections import (
    acceleration,
    expected_rejections,
    rejection_probs,
    simulate_rejections,
)
from mdsd.analysis.rules import AcceptRule, accept_rule, optimal_rejection_law
from mdsd.analysis.speedup import (
    BestDepth,
    BestNumDrafts,
    best_depth,
    best_num_drafts,
    speedup,
    tree_speedup,
)
from mdsd.analysis.tokens import (
    MeasuredAcceptance,
    expected_tokens,
    expected_tree_tokens,
    iid_expected_tokens,
    measure_acceptance,
)
from mdsd.analysis.unbiasedness import (
    AcceptanceAssessment,
    assess_acceptance,
    assess_acceptance_on_chain,
)
from mdsd.analysis.whole_trees import tree_bound
from mdsd.engines.base import BiasedRule, EngineRule, RuleOutcome
from mdsd.engines.cactus import CactusAcceptance
from mdsd.engines.gumbel import GumbelLists
from mdsd.engines.mixture import MixtureAcceptance
from mdsd.engines.over_accepting import OverAcceptance
from mdsd.engines.relaxed import RelaxedAcceptance
from mdsd.engines.thresholds import ThresholdAcceptance
from mdsd.engines.typical import TypicalAcceptance

__all__ = [
    "AcceptRule",
    "AcceptanceAssessment",
    "BatchImprovement",
    "BestDepth",
    "BestNumDrafts",
    "BiasedRule",
    "CactusAcceptance",
    "EngineRule",
    "GumbelLists",
    "MeasuredAcceptance",
    "MixtureAcceptance",
    "OverAcceptance",
    "ParetoFront",
    "RelaxedAcceptance",
    "RuleOutcome",
    "SimulatedFront",
    "SimulatedRejections",
    "ThresholdAcceptance",
    "TreePlan",
    "TypicalAcceptance",
    "acceleration",
    "accept_rule",
    "assess_acceptance",
    "assess_acceptance_on_chain",
    "assess_rule",
    "batch_improvement",
    "best_depth",
    "best_num_drafts",
    "biased_rule",
    "chain_pareto_front",
    "expected_rejections",
    "expected_tokens",
    "expected_tree_tokens",
    "gumbel_acceptance",
    "iid_expected_tokens",
    "measure_acceptance",
    "optimal_rejection_law",
    "over_acceptance",
    "pareto_front",
    "plan_tree",
    "plan_tree_by_count",
    "rejection_probs",
    "simulate_batch_rejections",
    "simulate_chain_pareto_front",
    "simulate_pareto_front",
    "simulate_rejections",
    "speedup",
    "tree_bound",
    "tree_speedup",
]
