"""Which parameters of a reference make a difference to what it gives, whatever their gradients are.

A target network under `torch.no_grad()` has no gradient, and a port that uses it wrongly is told by its outputs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from ..torch_side import TorchSide
    from .judge import Question, Truth

LONGEST_S = 5.0  # for all of them


def without_effect(side: TorchSide, truth: Truth, names: Sequence[str]) -> list[str]:
    """Those of the parameters, by name, that can be others without any output being another; those that there was no
    time for as well."""
    parameters, question = dict(side.module.named_parameters()), truth.question
    usual = side.outputs(question.inputs, question.mode)
    until = time.monotonic() + LONGEST_S
    return [
        name for name in names if time.monotonic() > until or not _has_effect(side, question, parameters[name], usual)
    ]


def _has_effect(
    side: TorchSide, question: Question, parameter: torch.nn.Parameter, usual: Mapping[str, np.ndarray]
) -> bool:
    before = parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.mul_(1.1).add_(0.01)
        others = side.outputs(question.inputs, question.mode)
    finally:
        with torch.no_grad():
            parameter.copy_(before)
    return others.keys() != usual.keys() or any(not np.array_equal(others[name], x) for name, x in usual.items())
