"""The parameters of a port as a PyTorch optimizer has them: under which name, in which group, laid out how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..weights.formats import as_numpy, as_tensor
from ..weights.plan import Group as Tensors
from ..weights.plan import make_plan
from ..weights.rules import WeightRule
from ..weights.transforms import Stack
from .transformation import Optimizer, OptimizerState


@dataclass(frozen=True)
class Frozen:
    """A parameter that is not trained here; PyTorch's optimizer may list it.

    Attributes:
      group: number of ours that would hold it.
      initial: what PyTorch keeps for it from the start, beside the number of its steps: Adagrad alone keeps anything.
    """

    group: int
    initial: dict[str, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """A parameter of ours and what it is in PyTorch.

    Attributes:
      number: of the parameter in our tree.
      name: ours.
      group: number of ours.
      tensors: how PyTorch's tensor and our arrays, perhaps several, belong together.
      here, theirs: shapes of what is kept, by slot, as we and as PyTorch keep it.
      shape: of PyTorch's tensor.
      layer: which of stacked layers it is, where the parameter is a stack of them.
    """

    number: int
    name: str
    group: int
    tensors: Tensors
    here: dict[str, tuple[int, ...]]
    theirs: dict[str, tuple[int, ...]]
    shape: tuple[int, ...]
    layer: int | None = None

    @property
    def key(self) -> str:
        """PyTorch's name."""
        return self.tensors.keys[self.layer or 0]

    def to_torchs(self, value: np.ndarray) -> np.ndarray:
        """What is kept for the parameter, laid out as it is, in PyTorch's layout; of a stack the layer's."""
        return self.tensors.transform.to_reference(value)[self.layer or 0]

    def from_torchs(self, value: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The way back; of a stack, `kept` with this layer's in its place."""
        transform = self.tensors.transform
        if not isinstance(transform, Stack):
            return transform.to_model(value)[0]
        (made,) = transform.each.to_model(value)
        layers = np.array(kept).reshape(-1, *made.shape)
        layers[self.layer] = made
        return layers.reshape(kept.shape)


class Book:
    """Which parameter of ours has which name in PyTorch, and how what is kept for it is laid out there."""

    def __init__(self, tx: Optimizer, model: nnx.Module, rules: tuple[WeightRule, ...], wrt: Any):
        self.tx = tx
        self.stepper = tx.stepper
        plan, self.problems = make_plan(model, rules)
        params = nnx.state(model, wrt)
        named = self.stepper.named(params)
        members = self.stepper.members(named)
        numbers = {parameter.name: number for number, parameter in enumerate(named)}
        # a shared variable has one name here, and stands under several keys in the plan
        name_of = {id(leaf.variable): leaf.path for group in plan for leaf in group.leaves if leaf.path in numbers}
        self.by_key: dict[str, Entry] = {}
        self.entries: dict[int, Entry] = {}
        self.parts: dict[tuple[int, int | None], Entry] = {}  # of a stack, each layer
        self.frozen: dict[str, Frozen] = {}
        for group in plan:
            names = [name_of.get(id(leaf.variable)) for leaf in group.leaves]
            if not any(names):
                self._note_frozen(group)
                continue
            stacked = isinstance(group.transform, Stack)
            if len(names) != 1 or (len(group.keys) != 1 and not stacked):
                self.problems.append(
                    f"{', '.join(group.keys)}: make {group.paths} together, and what an optimizer keeps for the one is "
                    "not what it keeps for the other; hold them apart, as the layers of gm.nn do"
                )
                continue
            assert names[0] is not None
            parameter = named[numbers[names[0]]]
            if tx.rule.in_torchs_layout and group.transform != parameter.layout:
                self.problems.append(f"{group.keys[0]}: a rule lays it out as {tx.rule.name} does not know")
                continue
            shaped, *_ = group.transform.to_reference(np.empty(parameter.array.shape, np.int8))
            h = self.hyperparameters(members[numbers[parameter.name]], 0)
            theirs = self._shapes(shaped.shape, parameter.array.dtype, h)
            here = theirs if tx.rule.in_torchs_layout else self._shapes(parameter.array.shape, parameter.array.dtype, h)
            number = numbers[parameter.name]
            for layer, key in enumerate(group.keys):
                which = layer if stacked else None
                entry = Entry(number, parameter.name, members[number], group, here, theirs, shaped.shape, which)
                self.by_key[key] = entry
                self.entries.setdefault(number, entry)
                self.parts.setdefault((number, which), entry)
        self.count = len(named)

    def hyperparameters(self, group: int, count: Any) -> SimpleNamespace:
        return self.stepper.now(group, jnp.asarray(count, jnp.int32), self.stepper.rates(0))

    def group_of(self, name: str) -> int | None:
        """Ours of a parameter of PyTorch's name, trained or not."""
        found = self.by_key.get(name) or self.frozen.get(name)
        return None if found is None else found.group

    def matched(self, names: Sequence[str]) -> list[str]:
        """The problems with PyTorch's names; those of parameters that are not trained may be there or not."""
        problems = [
            f"{name}: unknown, no parameter of the model has this name" for name in names if self.group_of(name) is None
        ]
        got: dict[tuple[int, int | None], str] = {}
        for name in names:
            if (entry := self.by_key.get(name)) is None:
                continue
            part = entry.number, entry.layer
            if part in got:
                problems.append(f"{name}: stands for {entry.name}, as {got[part]} does before it")
            got.setdefault(part, name)
        missing = [entry for part, entry in self.parts.items() if part not in got]
        told = "list it, as PyTorch's optimizer does: without a state it begins anew"
        return problems + [f"{of.key}: missing, and {of.name} is trained here; {told}" for of in missing]

    def of_state(self, state: OptimizerState) -> list[str]:
        if state.step.size != self.count:
            return [f"state is of {state.step.size} parameters, and the model has {self.count}"]
        problems = []
        for entry in self.entries.values():
            kept = {key: of[entry.name].shape for key, of in state.slots.items() if entry.name in of}
            if kept != entry.here:
                problems.append(
                    f"{entry.name}: state has {told(kept)}, and {self.tx.rule.name} keeps {told(entry.here)}"
                )
        return problems

    def to_torchs(self, name: str, state: OptimizerState, torch: Any) -> dict[str, Any]:
        """What PyTorch keeps for a parameter."""
        scalar = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32  # as PyTorch's own
        if (frozen := self.frozen.get(name)) is not None:
            kept = {slot: as_tensor(value) for slot, value in frozen.initial.items()}
            return {**kept, "step": torch.tensor(0.0, dtype=scalar)} if kept else {}
        entry = self.by_key[name]
        step = int(state.step[entry.number])
        if step == 0 and self.tx.rule.name != "Adagrad":  # whose state is there from the start
            return {}
        kept = {"step": torch.tensor(float(step), dtype=scalar)} if self.tx.rule.counts else {}
        for key, shape in entry.theirs.items():
            value = np.asarray(state.slots[key][entry.name])
            if self._is_laid_out(entry, key):
                value = entry.to_torchs(value)
            tensor = as_tensor(np.ascontiguousarray(value).reshape(shape))
            kept[key] = tensor.to(scalar) if shape == () != entry.shape else tensor
        return kept

    def from_torchs(
        self, entry: Entry, kept: Mapping[str, Any], step: np.ndarray, slots: dict[str, dict[str, jax.Array]]
    ) -> list[str]:
        """Adds what PyTorch kept for a parameter, and gives the problems with it."""
        key = entry.key
        kept = {slot: value for slot, value in kept.items() if value is not None}
        if not kept:
            lost = entry.layer and step[entry.number]
            return [f"{key}: has no state, and layers before it in {entry.name} have"] if lost else []
        wanted = {*entry.theirs, *(["step"] if self.tx.rule.counts else [])}
        if kept.keys() != wanted:
            held = ", ".join(sorted(kept))
            return [f"{key}: state_dict keeps {held}, and {self.tx.rule.name} {', '.join(sorted(wanted)) or 'nothing'}"]
        made = int(kept["step"]) if self.tx.rule.counts else 1
        problems = []
        if entry.layer and made != step[entry.number]:
            problems.append(f"{key}: has made {made} steps, and layers before it in {entry.name} {step[entry.number]}")
        step[entry.number] = made
        for slot, shape in entry.theirs.items():
            value = as_numpy(kept[slot])
            if value.shape != shape:
                problems.append(f"{key}: {slot} has shape {value.shape}, and {shape} was wanted")
                continue
            if self._is_laid_out(entry, slot):
                value = entry.from_torchs(value, np.asarray(slots[slot][entry.name]))
            # a copy that is there before PyTorch steps on: JAX reads numpy arrays later
            slots[slot][entry.name] = jnp.asarray(np.array(value), slots[slot][entry.name].dtype)
        return problems

    def _note_frozen(self, tensors: Tensors) -> None:
        arrays = [leaf.variable.get_raw_value() for leaf in tensors.leaves]
        if not all(isinstance(leaf.variable, nnx.Param) for leaf in tensors.leaves):
            return
        group = self.stepper.member(tensors.leaves[0].path, arrays[0])
        self.frozen |= {key: Frozen(group, {}) for key in tensors.keys}
        if self.tx.rule.name != "Adagrad" or not jnp.issubdtype(arrays[0].dtype, jnp.floating):
            return
        made = tensors.transform.to_reference(*(np.empty(array.shape, np.int8) for array in arrays))
        for key, shaped in zip(tensors.keys, made, strict=True):
            like = jnp.zeros(shaped.shape, arrays[0].dtype)
            kept = self.tx.rule.slots(like, self.hyperparameters(group, 0))
            self.frozen[key] = Frozen(group, {slot: np.asarray(of) for slot, of in kept.items()})

    def _is_laid_out(self, entry: Entry, slot: str) -> bool:
        """Whether a slot follows the parameter's layout; what is a number for the whole parameter does not."""
        if self.tx.rule.in_torchs_layout or entry.theirs[slot] != entry.shape:
            return False
        return entry.here[slot] != () if entry.layer is not None else entry.shape != ()

    def _shapes(self, shape: tuple[int, ...], dtype: Any, h: SimpleNamespace) -> dict[str, tuple[int, ...]]:
        made = jax.eval_shape(lambda p: self.tx.rule.slots(p, h), jax.ShapeDtypeStruct(shape, dtype))
        return {key: value.shape for key, value in made.items()}


def told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{key} {shape}" for key, shape in shapes.items()) or "nothing"
