"""Why a port goes wrong: known differences, tried on the reference until one gives exactly what the port gives."""

from .casts import HIDDEN_CAST, explain_casts
from .digits import explain_digits
from .explain import explain
from .first_line import alike, astray
from .gradient_line import astray_backward
from .nan_gradient import nan_gradients
from .nan_value import nan_value
from .not_finite import not_finite
from .optimizer import explain_optimizer, explain_optimizer_digits, explain_optimizer_of_vectors
from .trial import OF_A_CHOICE
from .wiring import EXCHANGED
from .wrapped import wrapped_integers
from .wrong_call import Elsewhere

FORWARD_ONLY = frozenset({HIDDEN_CAST, EXCHANGED, "threshold"})
"""Ids of causes that are tried without gradients: what is exchanged is put there as a value, and of rows that another
number chooses no gradients were recorded."""

__all__ = [
    "FORWARD_ONLY",
    "OF_A_CHOICE",
    "Elsewhere",
    "alike",
    "astray",
    "astray_backward",
    "explain",
    "explain_casts",
    "explain_digits",
    "explain_optimizer",
    "explain_optimizer_digits",
    "explain_optimizer_of_vectors",
    "nan_gradients",
    "nan_value",
    "not_finite",
    "wrapped_integers",
]
