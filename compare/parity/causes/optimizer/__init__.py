"""Why an optimizer steps otherwise: PyTorch's own is changed until it steps as the port's does."""

from .digits import explain_optimizer_digits
from .explain import explain_optimizer, explain_optimizer_of_vectors

__all__ = ["explain_optimizer", "explain_optimizer_digits", "explain_optimizer_of_vectors"]
