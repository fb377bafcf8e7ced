"""Fixed-size building blocks for what eager code does with shapes that depend on values."""

from .checks import CheckError, check, checked
from .compact import compact
from .hooks import clip_gradient, gradient_hook, reverse_gradient, scale_gradient, value_hook
from .host import no_callbacks
from .opaque import opaque
from .padded import Padded
from .partition import partition
from .printing import debug_print
from .safe_math import (
    attempt,
    safe_arccos,
    safe_arcsin,
    safe_arctan2,
    safe_divide,
    safe_log,
    safe_norm,
    safe_sqrt,
    where_safe,
)
from .straight_through import gumbel_softmax, ste_round, ste_sign, straight_through, straight_through_one_hot

__all__ = [
    "CheckError",
    "Padded",
    "attempt",
    "check",
    "checked",
    "clip_gradient",
    "compact",
    "debug_print",
    "gradient_hook",
    "gumbel_softmax",
    "no_callbacks",
    "opaque",
    "partition",
    "reverse_gradient",
    "safe_arccos",
    "safe_arcsin",
    "safe_arctan2",
    "safe_divide",
    "safe_log",
    "safe_norm",
    "safe_sqrt",
    "scale_gradient",
    "ste_round",
    "ste_sign",
    "straight_through",
    "straight_through_one_hot",
    "value_hook",
    "where_safe",
]
