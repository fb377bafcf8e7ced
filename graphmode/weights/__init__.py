"""PyTorch weights into NNX modules and back: declarative rules, and proof that every tensor went exactly once."""

from .carry import load, named_arrays, to_state_dict
from .conventions import TRANSFORM, Leaf, carries, leaves
from .files import read
from .formats import as_numpy
from .plan import WeightsError
from .rules import Drop, Rename, Rule, Stacked, Tied, WeightRule, gru_cell, lstm_cell
from .transforms import (
    CONV,
    IDENTITY,
    LINEAR,
    ConvKernel,
    ConvTransposeKernel,
    Counter,
    GruBiases,
    Identity,
    LinearGeneral,
    Permute,
    Scalar,
    SplitGates,
    Stack,
    SumBiases,
    Transform,
)

__all__ = [
    "CONV",
    "IDENTITY",
    "LINEAR",
    "TRANSFORM",
    "ConvKernel",
    "ConvTransposeKernel",
    "Counter",
    "Drop",
    "GruBiases",
    "Identity",
    "Leaf",
    "LinearGeneral",
    "Permute",
    "Rename",
    "Rule",
    "Scalar",
    "SplitGates",
    "Stack",
    "Stacked",
    "SumBiases",
    "Tied",
    "Transform",
    "WeightRule",
    "WeightsError",
    "as_numpy",
    "carries",
    "gru_cell",
    "leaves",
    "load",
    "lstm_cell",
    "named_arrays",
    "read",
    "to_state_dict",
]
