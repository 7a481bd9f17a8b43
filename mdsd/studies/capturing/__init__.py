"""Capturing the distributions of a target and its draft models at the positions of texts."""
