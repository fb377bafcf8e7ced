"""PyTorch weights into NNX modules and back: declarative rules, and proof that every tensor went exactly once."""

from .carry import WeightsError, as_numpy, load, named_arrays, read, to_state_dict
from .conventions import TRANSFORM, Leaf, leaves
from .rules import Drop, Rename, Rule, Tied, WeightRule, lstm_cell
from .transforms import (
    CONV,
    IDENTITY,
    LINEAR,
    ConvKernel,
    ConvTransposeKernel,
    Counter,
    Identity,
    LinearGeneral,
    Permute,
    SplitGates,
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
    "Identity",
    "Leaf",
    "LinearGeneral",
    "Permute",
    "Rename",
    "Rule",
    "SplitGates",
    "SumBiases",
    "Tied",
    "Transform",
    "WeightRule",
    "WeightsError",
    "as_numpy",
    "leaves",
    "load",
    "lstm_cell",
    "named_arrays",
    "read",
    "to_state_dict",
]
