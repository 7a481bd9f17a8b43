"""Verifications of a drafted tree by name."""

from __future__ import annotations

from mdsd._arguments import check_name, shown
from mdsd.decoding.biased import BiasedVerification
from mdsd.decoding.block import BlockVerification
from mdsd.decoding.gumbel import GumbelVerification
from mdsd.decoding.layers import LayerVerification
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.traversal import TraversalVerification
from mdsd.engines.base import BiasedRule, EngineRule
from mdsd.engines.registry import biased_rule_type
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import Verifier, get_verifier, verifier_names

PATH_VERIFICATIONS: dict[str, type[StepVerification]] = {
    "block": BlockVerification,
    "layers": LayerVerification,
    "traversal": TraversalVerification,
}
"""Verifications that decide about whole paths, by name."""


def step_verification(verifier: str | Verifier | StepVerification) -> StepVerification:
    """Give the verification that a decoder's ``verifier`` argument means.

    Parameters
    ----------
    verifier : str, Verifier or StepVerification
        A one-step verifier or its name, as for `get_verifier`: used level by level. Or the name of
        one of `PATH_VERIFICATIONS`, or an object of that kind.

    Returns
    -------
    StepVerification

    Raises
    ------
    InvalidArgumentError
        If the name is not known, or asks for bias without saying how much; or if it is the rule of
        an engine, which is no verification by itself.

    Examples
    --------
    >>> type(step_verification("rrs")).__name__, type(step_verification("block")).__name__
    ('LevelVerification', 'BlockVerification')
    """
    if isinstance(verifier, StepVerification):
        return verifier
    if isinstance(verifier, Verifier):
        return LevelVerification(verifier)
    if isinstance(verifier, (str, EngineRule)):
        _refuse_rules(verifier)
    name = check_name("verifier", verifier, (*verifier_names(), *PATH_VERIFICATIONS))
    kind = PATH_VERIFICATIONS.get(name)
    return LevelVerification(get_verifier(name).for_many()) if kind is None else kind()


def _refuse_rules(given: str | EngineRule) -> None:
    """Refuse rules of engines, and names of what needs more: nothing is biased by accident."""
    name = given.partition(":")[0] if isinstance(given, str) else given.name
    kind = biased_rule_type(name)
    if isinstance(given, BiasedRule):
        how = f"BiasedVerification(rule={shown(given)})"
    elif name == BiasedVerification.name:
        how = "BiasedVerification(epsilon=...)"
    elif kind is not None:
        how = f"BiasedVerification(rule=mdsd.analysis.{kind.__name__}(...))"
    elif name == GumbelVerification.name:
        raise InvalidArgumentError(
            f"verifier is {shown(given)}, whose drafts share its noise: expected "
            "mdsd.decoding.GumbelVerification(seed=..., num_drafts=...)"
        )
    else:
        return
    raise InvalidArgumentError(
        f"verifier is {shown(given)}, a rule that is not lossless in general: expected "
        f"mdsd.decoding.{how}, which says how biased it is"
    )
