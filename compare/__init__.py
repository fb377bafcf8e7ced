"""The comparison harness: is the port the same as the original, and how fast is each way of running them."""

from .case import Case, CaseError, channels_first, channels_last
from .parity.check import CheckReport, check

__all__ = ["Case", "CaseError", "CheckReport", "channels_first", "channels_last", "check"]
