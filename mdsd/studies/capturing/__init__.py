"""Captures: the laws of a target and its draft models at the positions of texts, into a folder."""
