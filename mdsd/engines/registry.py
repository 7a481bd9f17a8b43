"""Rules of engines by name: those that a comparison shows, and any verifier."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields

from mdsd._arguments import check_name, shown
from mdsd.engines.base import BiasedRule, EngineRule
from mdsd.engines.built_in import BUILT_IN
from mdsd.engines.lossless import VerifierRule
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import Verifier, get_verifier, verifier_names

Rule = str | EngineRule | Verifier
"""A rule, the label of one (its name, and its parameters behind colons), or a verifier."""

_RULES = {kind.name: kind for kind in BUILT_IN if kind is not VerifierRule}


def default_rules() -> tuple[EngineRule, ...]:
    """Give the rules that a comparison shows, each with several parameters."""
    return tuple(rule for kind in BUILT_IN for rule in kind.examples())


def rule_parameters(name: str) -> tuple[str, ...]:
    """Name the parameters that stand behind a name and colons."""
    kind = _RULES.get(name)
    return () if kind is None else tuple(each.name for each in fields(kind))  # type: ignore[arg-type]


def biased_rule_type(name: object) -> type[BiasedRule] | None:
    """Give the class of the biased rule of a name; None if there is none."""
    kind = _RULES.get(name) if isinstance(name, str) else None
    return kind if kind is not None and issubclass(kind, BiasedRule) else None


def read_rules(rules: Iterable[Rule]) -> tuple[EngineRule, ...]:
    """Read rules; a name alone stands for all parameters that a comparison shows.

    The same rule given twice is read once.

    Raises
    ------
    InvalidArgumentError
        As for `read_rule`, and if two different rules have one label.

    Examples
    --------
    >>> [rule.label for rule in read_rules(["relaxed", "cactus:0.5", "rrs"])]
    ['relaxed:1:0.0', 'relaxed:5:0.3', 'relaxed:10:0.6', 'cactus:0.5', 'rrs']
    """
    found: dict[str, tuple[Rule, EngineRule]] = {}
    for each in rules:
        kind = _RULES.get(each) if isinstance(each, str) else None
        for rule in (read_rule(each),) if kind is None else kind.examples():
            given, known = found.setdefault(rule.label, (each, rule))
            # Verifiers that are made of a name are objects of their own each time.
            if known != rule and given != each:
                raise InvalidArgumentError(
                    f"rules holds two of the name {rule.label!r}; set another `name` on one of them"
                )
    return tuple(rule for _, rule in found.values())


def read_rule(rule: Rule) -> EngineRule:
    """Read a rule.

    Parameters
    ----------
    rule : str, EngineRule or Verifier

    Returns
    -------
    EngineRule

    Raises
    ------
    InvalidArgumentError
        If the name or a parameter is not known, or out of range; names those that are.

    Examples
    --------
    >>> read_rule("typical:0.09:0.3")
    TypicalAcceptance(threshold=0.09, alpha=0.3)
    >>> read_rule("single").lossless
    True
    """
    if isinstance(rule, EngineRule):
        return rule
    if isinstance(rule, Verifier):
        return VerifierRule(rule)
    name, *values = rule.split(":") if isinstance(rule, str) else (rule,)
    check_name("rule", name, rule_names())
    kind, names = _RULES.get(name), rule_parameters(name)
    if len(values) > len(names):
        raise InvalidArgumentError(
            f"rule is {shown(rule)}; parameters of {name}: {', '.join(names) or 'none'}"
        )
    if kind is None:
        return VerifierRule(get_verifier(name).for_many())
    given = dict(zip(names, map(_read_value, values), strict=False))
    try:
        return kind(**given)
    except TypeError:
        needed = ":".join([name, *(each.upper() for each in names)])
        raise InvalidArgumentError(f"rule is {shown(rule)}; expected {needed}") from None


def rule_names() -> tuple[str, ...]:
    """List the names that labels begin with: rules, and the verifiers of a step."""
    return (*_RULES, *verifier_names())


def _read_value(text: str) -> int | float | str:
    """Read a plain number; anything else stays text, which only some parameters are."""
    if not _NUMBER.fullmatch(text):
        return text
    try:
        return int(text)
    except ValueError:  # not whole, or longer than Python reads
        return float(text)


_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
