"""The comparison harness: is the port the same as the original, and how fast is each way of running them."""

from .case import Case, CaseError, channels_first, channels_last

__all__ = ["Case", "CaseError", "channels_first", "channels_last"]
