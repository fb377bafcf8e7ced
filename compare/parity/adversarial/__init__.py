"""Inputs of the check's own making, which random ones seldom are, and what a port makes of them."""

from .examine import OwnInputs
from .inputs import KINDS, adversarial_inputs

__all__ = ["KINDS", "OwnInputs", "adversarial_inputs"]
