"""One call of one module: what went in, what came out, and the gradients of both."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .fixed_size import EndToEnd

if TYPE_CHECKING:
    from .steps import Regrouped


class CallId(NamedTuple):
    """Which call: the module's dotted path, empty for the model itself, and how many calls of it came before."""

    path: str
    number: int = 0

    def __str__(self) -> str:
        told = self.path or "the model"
        return f"{told}, call {self.number + 1}" if self.number else told


ROOT = CallId("")


def is_inside(path: str, module: str) -> bool:
    """Whether one path is another's, or below it; everything is inside the model, whose path is empty."""
    return not module or path == module or path.startswith(f"{module}.")


@dataclass
class Call:
    """A call of a module of the reference.

    Attributes:
      id: which call.
      kind: the module's class.
      inputs, outputs: arrays by position and name, as they were when the call began and when it ended.
      cotangents: what reached each output in the backward pass, from all who use it; no entry where no gradient does.
      input_gradients: what this call gives back to each of its inputs.
      merged: by name of an input that is the same tensor as an earlier one, and that a port has in fewer places: the
        name of that one, which has the gradients of all of them.
      repeated: by name of an output that is the same tensor as an earlier one, the name of that one.
      merged_outputs: by name of such outputs, the name of the one that has the gradients of all.
      in_no_grad: whether it was made under `torch.no_grad`.
      is_read_written: whether it wrote into an input that was read after it: what it was given, and the gradient of
        that, are not what a port has there, which writes nothing.
      frozen: its parameters, and those of modules inside, that were not to be trained then, by the module's own names.
      parent: the call that it was made in; None for the model's own.
      arguments, result: what it took, `(args, kwargs)`, and gave, as whole trees of detached tensors.
      numbers: Python's floats among its arguments, by the names of the parameters.
      held: what its buffers and parameters held when it began, by the module's own names, of those that the model has
        written since its own call began.
      lines: how lines are laid end to end here, by name, of what it received and of its output.
    """

    id: CallId
    kind: str
    parent: CallId | None
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    cotangents: dict[str, np.ndarray] = field(default_factory=dict)
    input_gradients: dict[str, np.ndarray] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, str] = field(default_factory=dict)
    merged_outputs: dict[str, str] = field(default_factory=dict)
    arguments: Any = ((), {})
    result: Any = None
    in_no_grad: bool = False
    is_read_written: bool = False
    frozen: frozenset[str] = frozenset()
    numbers: dict[str, float] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, EndToEnd]] = field(default_factory=lambda: {"received": {}, "output": {}})

    def merge(self, names: Sequence[str]) -> None:
        """Makes these inputs one: the first has the gradients of all."""
        first, *others = names
        self.merged.update(dict.fromkeys(others, first))
        known = [self.input_gradients.pop(name) for name in names if name in self.input_gradients]
        if known:
            reached = [gradient for gradient in known if gradient is not None]
            self.input_gradients[first] = sum(reached[1:], reached[0]) if reached else known[0]

    def give_once(self, names: Collection[str]) -> None:
        """Makes outputs that are one tensor one: the first of them that is among these names has what reached all."""
        groups: dict[str, list[str]] = {}
        for again, first in self.repeated.items():
            groups.setdefault(first, [first]).append(again)
        for same in groups.values():
            kept = next((name for name in same if name in names), None)
            if kept is None:
                continue
            self.merged_outputs.update({name: kept for name in same if name != kept})
            known = [self.cotangents.pop(name) for name in same if name in self.cotangents]
            reached = [gradient for gradient in known if gradient is not None]
            if known:
                self.cotangents[kept] = sum(reached[1:], reached[0]) if reached else known[0]

    @property
    def without_gradient(self) -> list[str]:
        """Its floating outputs, where it was made under `torch.no_grad`."""
        floating = [name for name, array in self.outputs.items() if array.dtype.kind == "f"]
        return [name for name in floating if self.in_no_grad and name not in self.cotangents]


class Calls(dict[CallId, Call]):
    """The calls of a run, in order.

    Attributes:
      regrouped: the modules, by path, whose calls are not those that were made.
      writers: by buffer of the model, the paths of the modules whose own code writes it; of one that writes outside of
        itself, it may be that of what is around both.
    """

    def __init__(
        self,
        regrouped: Mapping[str, Regrouped] = MappingProxyType({}),
        writers: Mapping[str, set[str]] = MappingProxyType({}),
    ):
        super().__init__()
        self.regrouped, self.writers = dict(regrouped), dict(writers)


def counts(ids: Iterator[CallId] | Calls) -> dict[str, int]:
    """How often each path was called, in the order of first calls."""
    found: dict[str, int] = {}
    for each in ids:
        found[each.path] = found.get(each.path, 0) + 1
    return found
