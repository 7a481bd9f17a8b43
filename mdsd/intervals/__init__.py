"""Intervals for the acceptance bound where only the most likely tokens of both sides are known."""

from mdsd.intervals.interval import AcceptanceInterval, acceptance_interval

__all__ = ["AcceptanceInterval", "acceptance_interval"]
