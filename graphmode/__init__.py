"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from . import nn, ops, weights
from .graph import graphed
from .ops import (
    Padded,
    Stack,
    check,
    compact,
    cond,
    fixed_point,
    fori,
    partition,
    scan_until,
    stack_layers,
    switch,
    while_loop,
)

__all__ = [
    "Padded",
    "Stack",
    "check",
    "compact",
    "cond",
    "fixed_point",
    "fori",
    "graphed",
    "nn",
    "ops",
    "partition",
    "scan_until",
    "stack_layers",
    "switch",
    "weights",
    "while_loop",
]
__version__ = "0.1.0"
