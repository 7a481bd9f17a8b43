"""What the rules of serving engines accept, and how far their output is from the target."""

from __future__ import annotations

from mdsd.studies.biases.bias_rows import BiasRow
from mdsd.studies.biases.runs import bias

__all__ = ["BiasRow", "bias"]
