"""What one step of training shows on one side, and how two sides' steps compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...observation import Named, Observation
from ...report.records import StepFinding, StepKind
from ..scales import allowed_unrest
from ..yardstick import Difference, difference, magnitude

# As a step computes them: the first that is off is where the error arises.
KINDS: tuple[StepKind, ...] = (
    "output",
    "buffer",
    "parameter_gradient",
    "input_gradient",
    "optimizer_state",
    "update",
    "parameter",
)
Key = tuple[StepKind, str]
Slots = dict[str, Named]  # what an optimizer keeps: PyTorch's name of it, then the parameter's


@dataclass
class Step:
    """One step, in the reference's names and layout, in float64.

    Attributes:
      observed: outputs, gradients of inputs and parameters (an absent one as zeros), and buffers after the step.
      slots: the optimizer's state after the step; None where it is not known.
      updates: what the step added to each parameter.
      parameters: after the step.
      absent: parameters that have no gradient in this step.
    """

    observed: Observation
    slots: Slots | None
    updates: Named
    parameters: Named
    absent: frozenset[str] = field(default_factory=frozenset)

    def tensors(self) -> Iterator[tuple[Key, np.ndarray]]:
        """In the order in which a step computes them."""
        groups: dict[StepKind, Named] = {
            "output": self.observed.outputs,
            "buffer": self.observed.buffers,
            "parameter_gradient": self.observed.parameter_gradients,
            "input_gradient": self.observed.input_gradients,
            "optimizer_state": {
                f"{slot} of {name}": value for slot, of in (self.slots or {}).items() for name, value in of.items()
            },
            "update": self.updates,
            "parameter": self.parameters,
        }
        for kind in KINDS:
            for name, array in groups[kind].items():
                yield (kind, name), array


Differences = dict[Key, Difference]


def compared(port: Step, reference: Step, moved: Step, dropped: Callable[[str], bool]) -> tuple[Differences, list[str]]:
    """How far each tensor of the port's step is off, and what only one side has and need not have.

    Args:
      port, reference: the same step of both sides.
      moved: the reference's step from parameters moved by half an ulp: what float64 itself cannot tell.
      dropped: whether the port is allowed to have no parameter or buffer of this name.
    """
    ours, theirs, shaken = (dict(step.tensors()) for step in (port, reference, moved))
    scales = _scales(theirs)
    found: Differences = {}
    for key, wanted in theirs.items():
        if key not in ours:
            kind, name = key
            if kind in ("update", "buffer") and not dropped(name) and not name.endswith("num_batches_tracked"):
                found[key] = Difference(np.inf, note="the port has it not: parameters must be nnx.Params")
            continue
        unrest = difference(shaken[key], wanted, 1.0).error if key in shaken and wanted.dtype.kind == "f" else 0.0
        unrest = unrest if np.isfinite(unrest) else 0.0
        scale = max(scales[key], allowed_unrest(unrest))
        got = ours[key]
        if wanted.dtype.kind in "iub" and got.dtype.kind == "f" and key[0] in ("optimizer_state", "buffer"):
            wanted = wanted.astype(np.float64)
        found[key] = difference(got, wanted, scale)
    lonely = [
        f"{kind} {name} is {'only the reference' if (kind, name) in theirs else 'only the port'}'s, and not compared"
        for kind, name in (*theirs, *ours)
        if ((kind, name) in theirs) != ((kind, name) in ours)
        and kind != "optimizer_state"
        and (kind, name) not in found
    ]
    return found, lonely


def gradients_off(port: Step, reference: Step) -> list[str]:
    """The parameters whose gradients are not equal; those that the port does not have are not among them."""
    ours, theirs = port.observed.parameter_gradients, reference.observed.parameter_gradients
    scale = max(map(magnitude, theirs.values()), default=0.0)
    return [name for name in ours.keys() & theirs if not difference(ours[name], theirs[name], scale).equal]


def finding(number: int, key: Key, off: Difference, note: str = "") -> StepFinding:
    return StepFinding(
        step=number,
        kind=key[0],
        tensor=key[1],
        error=off.error,
        index=off.index,
        port_value=off.port,
        reference_value=off.reference,
        note="; ".join(filter(None, (off.note, note))),
    )


def _scales(tensors: Mapping[Key, np.ndarray]) -> dict[Key, float]:
    """What an error in each tensor is a fraction of: for outputs and buffers their own size, otherwise the size of the
    largest of their kind (an optimizer's state by slot), beside which small ones may be nothing but rounding."""
    groups: dict[str, float] = {}
    for key, array in tensors.items():
        groups[_group(key)] = max(groups.get(_group(key), 0.0), magnitude(array))
    return {
        key: max(magnitude(array), groups["update"]) if key[0] == "parameter" else groups[_group(key)]
        for key, array in tensors.items()
    }


def _group(key: Key) -> str:
    kind, name = key
    if kind in ("output", "buffer", "parameter"):
        return f"{kind} {name}"
    if kind == "optimizer_state":
        return name.partition(" of ")[0]
    return "gradient" if kind.endswith("gradient") else kind
