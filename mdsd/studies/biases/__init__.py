"""What the rules of serving engines accept, and how far their output is from the target."""

from __future__ import annotations

from mdsd.studies.biases.rule_rows import RuleRow
from mdsd.studies.biases.runs import bias

__all__ = ["RuleRow", "bias"]
