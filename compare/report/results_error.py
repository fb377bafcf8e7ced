"""The error of files of results."""

from __future__ import annotations


class ResultsError(ValueError):
    """Results that cannot be read or written: the message says what is wrong and what to do."""
