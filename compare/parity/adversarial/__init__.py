"""Inputs of the check's own making, which random ones seldom are, and what a port makes of them."""

from .examine import Found, OwnInputs
from .inputs import BATCH_OF_ONE, HALF, KINDS, adversarial_inputs

__all__ = ["BATCH_OF_ONE", "HALF", "KINDS", "Found", "OwnInputs", "adversarial_inputs"]
