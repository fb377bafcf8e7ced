"""Where a port that is equal loses digits: the innermost modules that round worse than PyTorch's do."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...dtypes import HALF_ULP, torch_dtype
from ...jax_side import PortSide
from ...report.records import Divergence, Finding
from ...torch_side import TorchSide
from ..causes.change import Change
from ..causes.changed import Evidence, Key
from ..causes.replay import Replay
from ..yardstick import PRECISE_RATIO, SMALLEST_SCALE, difference, error_ratio, is_judged, port_error, rms
from .borders import Seen
from .calls import Call, CallId, Calls
from .layouts import Layouts
from .localise import Look
from .port_calls import PortRun
from .steps import Regrouped

AGREES = 0.1  # of the largest element, in which values agree that differ by rounding: enough to tell a layout
GRADIENTS = ("received_cotangent", "input_gradient", "parameter_gradient")


@dataclass
class Tensor:
    """One tensor that a call gives, or hands to a call inside, in each draw: the port's, and what is right."""

    port: list[np.ndarray] = field(default_factory=list)
    reference: list[np.ndarray] = field(default_factory=list)


class PrecisionLook:
    """A look into a port that is equal in float64, in the dtype that people run.

    Each call runs on the reference's own values, rounded to that dtype, and hands on the reference's; PyTorch's module
    runs on the same. So what rounds worse than PyTorch's, by `PRECISE_RATIO`, does so itself.

    Args:
      looks: into the port in float64, one for each draw of the inputs, all in one mode.
      port: in the dtype that people run.
      usual: the reference in that dtype.

    Attributes:
      looks: as given.
      suspects: by the path of the module in the port, the call and the tensors in which digits are lost.
    """

    def __init__(self, looks: Sequence[Look], port: PortSide, usual: TorchSide):
        self.looks, self.port, self.usual = looks, port, usual
        self.question = looks[0].question
        self._tensors: dict[CallId, dict[Key, Tensor]] = {}
        for look in looks:
            self._run(look)
        self.suspects: dict[CallId, list[Finding]] = {}
        for call, tensors in self._tensors.items():
            if any(self._is_doubtful(tensor) for tensor in tensors.values()) and (found := self._findings(call)):
                self.suspects[call] = found

    def _run(self, look: Look) -> None:
        known = Layouts(Counter(look.run.layouts.seen), tolerance=AGREES)
        run = PortRun(self.port, look.question, known)
        seen, _ = run.forced_forward(look.matches, look.calls)
        by_parameters: Mapping[str, np.ndarray] = {}
        if look.question.mode == "forward_backward":
            backward = run.forced_backward(look.matches, look.calls)
            seen, by_parameters = [*seen, *backward.seen], backward.by_parameters
        for each in seen:
            self._note(look, each)
        for name, gradient in by_parameters.items():
            wanted = look.observed.parameter_gradients.get(name)
            at = look.holders.call(name)
            if wanted is not None and at is not None:
                self._add(at, ("parameter_gradient", name), gradient, wanted)

    def _note(self, look: Look, seen: Seen) -> None:
        if seen.what in ("output", "input_gradient"):
            self._add(seen.at, (seen.what, seen.name), seen.port, seen.reference)
        elif seen.around is not None:
            key = seen.what, f"{seen.name} of {look.matches[seen.at]}"
            self._add(seen.around, key, seen.port, seen.reference)

    def _add(self, at: CallId, key: Key, port: np.ndarray, reference: np.ndarray) -> None:
        tensor = self._tensors.setdefault(at, {}).setdefault(key, Tensor())
        tensor.port.append(port)
        tensor.reference.append(reference)

    def _is_doubtful(self, tensor: Tensor) -> bool:
        """Whether a perfect PyTorch would be better by the ratio; most tensors need no more."""
        if not is_judged(tensor.reference):
            return False
        least = HALF_ULP[self.port.dtype] * float(np.median([rms(array) for array in tensor.reference]))
        return port_error(tensor.port, tensor.reference, kinked=False) > PRECISE_RATIO * least

    def _findings(self, call: CallId) -> list[Finding]:
        """The tensors of a call in which the port's error is more than PyTorch's by the ratio."""
        replays = [self._replayed(look, call) for look in self.looks]
        found = []
        for key, tensor in self._tensors[call].items():
            theirs = [each[key] for each in replays if key in each]
            if len(theirs) != len(tensor.port):
                continue
            kinked = key[0] in GRADIENTS
            ratio = error_ratio(
                tensor.port,
                theirs,
                tensor.reference,
                dtype=self.port.dtype,
                floor_scale=self._floor(tensor) if kinked else 0.0,
                kinked=kinked,
            )
            if ratio is not None and ratio > PRECISE_RATIO:
                found.append(self._finding(key, tensor, ratio))
        return found

    def _floor(self, tensor: Tensor) -> float:
        largest = float(np.median([look.largest_gradient for look in self.looks]))
        own = float(np.median([rms(array) for array in tensor.reference]))
        return largest if own < SMALLEST_SCALE * largest else 0.0

    def _finding(self, key: Key, tensor: Tensor, ratio: float) -> Finding:
        apart = [difference(p, r) for p, r in zip(tensor.port, tensor.reference, strict=True)]
        worst = max(apart, key=lambda d: d.error)
        return Finding(
            what=key[0],  # type: ignore[arg-type]
            tensor=key[1],
            error=worst.error,
            index=worst.index,
            port_value=worst.port,
            reference_value=worst.reference,
            note=f"{ratio:.3g} times PyTorch's error in {self.port.dtype}",
        )

    def _replayed(self, look: Look, call: CallId) -> Evidence:
        """What PyTorch's module gives in the usual dtype on the same values."""
        model = self.usual.set_mode(look.question.mode)
        forced = {look.matches[each] for each in look.run.forced}
        calls = _rounded(look.calls, self.port.dtype, self.usual.device)
        backward = look.question.mode == "forward_backward"
        return Replay(model, calls, look.matches[call], forced, backward).run(Change())

    def divergences(self) -> list[Divergence]:
        """The suspects as a report has them, a module once, in the order in which the reference calls them."""
        look = self.looks[0]
        order = {call: i for i, call in enumerate(look.calls)}
        told: dict[str, Divergence] = {}
        for call in sorted(self.suspects, key=lambda each: order[look.matches[each]]):
            told.setdefault(
                call.path, look.divergence(call.path, call.number, self.suspects[call], dtype=self.port.dtype)
            )
        return list(told.values())


def _rounded(calls: Calls, dtype: str, device: str) -> Calls:
    """A record with every floating value as this dtype holds it."""
    wide = torch_dtype(dtype)

    def tensor(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(device, wide) if floating else value

    def rounded(call: Call) -> Call:
        return dataclasses.replace(
            call, arguments=pytree.tree_map(tensor, call.arguments), result=pytree.tree_map(tensor, call.result)
        )

    def again(how: Regrouped) -> Regrouped:
        return dataclasses.replace(how, originals=tuple(map(rounded, how.originals)))

    found = Calls({path: again(how) for path, how in calls.regrouped.items()}, calls.writers)
    found.update({at: rounded(call) for at, call in calls.items()})
    return found
