"""What one run of one side shows: every tensor that is judged, in the reference's names and layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Kind = Literal["output", "input_gradient", "parameter_gradient", "parameter", "buffer"]
Named = dict[str, np.ndarray]


@dataclass(frozen=True)
class Observation:
    """Numpy arrays by name, as `trees.named_leaves` names outputs and a `state_dict` names parameters.

    `parameters` has, after steps of training, what was added to each parameter, in float64: beside the parameter itself
    it is small, and would be lost. The outputs are then those of the last step.
    `aliases` are the names of the outputs, in order, where fields count as positions.
    """

    outputs: Named
    input_gradients: Named = field(default_factory=dict)
    parameter_gradients: Named = field(default_factory=dict)
    parameters: Named = field(default_factory=dict)
    buffers: Named = field(default_factory=dict)

    aliases: tuple[str, ...] = ()

    def find(self, key: tuple[str, str]) -> np.ndarray | None:
        """The tensor of this kind and name, or None."""
        kind, name = key
        return getattr(self, f"{kind}s").get(name)

    def get(self, key: tuple[str, str]) -> np.ndarray:
        """The tensor of this kind and name, which there is."""
        found = self.find(key)
        assert found is not None, key
        return found

    def renamed(self, like: Observation) -> Observation:
        """With the output names of `like`, where only the names of fields and their positions differ."""
        if self.outputs.keys() == like.outputs.keys() or set(self.aliases) != set(like.aliases):
            return self
        names = dict(zip(like.aliases, like.outputs, strict=True))
        outputs = {names[alias]: array for alias, array in zip(self.aliases, self.outputs.values(), strict=True)}
        return dataclasses.replace(self, outputs=outputs)

    def tensors(self) -> Iterator[tuple[Kind, str, np.ndarray]]:
        """Every tensor with its kind and name."""
        groups: tuple[tuple[Kind, Named], ...] = (
            ("output", self.outputs),
            ("input_gradient", self.input_gradients),
            ("parameter_gradient", self.parameter_gradients),
            ("parameter", self.parameters),
            ("buffer", self.buffers),
        )
        for kind, named in groups:
            for name, array in named.items():
                yield kind, name, array


def changed(before: Named, after: Named) -> list[str]:
    """The names of what is another array afterwards, or is new."""

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")

    return [name for name, array in after.items() if name not in before or not same(before[name], array)]
