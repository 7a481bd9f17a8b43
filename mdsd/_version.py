"""The version, on its own so that building needs no dependency."""

__version__ = "0.1.0"
