"""What the port's optimizer keeps between steps, under PyTorch's names and in its layout, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import torch
from flax import nnx

from graphmode.optim.naming import array_of, by_name, like
from graphmode.optim.transformation import OptimizerState
from graphmode.weights.plan import make_plan

from ...jax_side import PortSide
from ...observation import Named
from .steps import Slots

COUNT = "step"
# optax's states: PyTorch's name of what each field holds
FIELDS: dict[str, dict[str, str]] = {
    "ScaleByAdamState": {"mu": "exp_avg", "nu": "exp_avg_sq", "count": COUNT},
    "ScaleByRmsState": {"nu": "square_avg"},
    "ScaleByRmsWithCountState": {"nu": "square_avg", "count": COUNT},
    "ScaleByRStdDevState": {"mu": "grad_avg", "nu": "square_avg"},
    "ScaleByRStdDevWithCountState": {"mu": "grad_avg", "nu": "square_avg", "count": COUNT},
    "ScaleByRssState": {"sum_of_squares": "sum"},
    "ScaleByAdaDeltaState": {"e_g": "square_avg", "e_x": "acc_delta"},
    "TraceState": {"trace": "momentum_buffer"},
}
RENAMED = {"Adamax": {"exp_avg_sq": "exp_inf"}}  # by the class in torch.optim
IN_TORCHS_LAYOUT = ("Adafactor", "Muon")  # those of graphmode.optim look at rows and columns as PyTorch does


class StateBook:
    """How the state of a port's optimizer is that of PyTorch's: by the names of fields in optax's own, by the names of
    slots in those of `graphmode.optim`.

    Args:
      side: the port.
      optimizer: PyTorch's.
    """

    def __init__(self, side: PortSide, optimizer: torch.optim.Optimizer):
        self._in_torchs_layout = type(optimizer).__name__ in IN_TORCHS_LAYOUT
        self._renamed = RENAMED.get(type(optimizer).__name__, {})
        self._rates = [group.get("lr") for group in optimizer.param_groups]
        self._factor: float | None = None
        self.notes: list[str] = []
        with side.context():
            program = side.program("train_step")
            self._shapes = {name: array_of(leaf).shape for name, leaf in by_name(program.params)}
            model = nnx.merge(program.graphdef, program.params, program.rest)
            plan, _ = make_plan(model, tuple(side.case.weights))
            name_of = {id(leaf.variable): leaf.path for group in plan for leaf in group.leaves}
            # a shared variable has one name among the parameters, and several paths
            name_of |= {id(leaf.variable): leaf.path for g in plan for leaf in g.leaves if leaf.path in self._shapes}
            self._groups = [
                (group.keys, tuple(name_of[id(leaf.variable)] for leaf in group.leaves), group.transform)
                for group in plan
                if all(name_of[id(leaf.variable)] in self._shapes for leaf in group.leaves)
            ]
            state = jax.eval_shape(program.optimizer.init, program.params)
        nodes = jax.tree.leaves(state, is_leaf=_is_known)
        self.knows = any(map(_is_known, nodes))
        if any(getattr(array_of(node), "ndim", 0) > 0 for node in nodes if not _is_known(node)):
            self.knows = False
            self.notes.append(
                f"the state of the port's optimizer, {type(state).__name__}, is none of optax's or graphmode.optim's "
                "that is known here: it is not compared, and the port keeps its own from step to step"
            )

    def read(self, state: Any) -> Slots | None:
        """What is kept, by PyTorch's name of it and of the parameter; None where it is not known."""
        if not self.knows:
            return None
        found: Slots = {}
        for node in filter(_is_known, jax.tree.leaves(state, is_leaf=_is_known)):
            for slot, values in self._slots(node).items():
                found.setdefault(slot, {}).update(self._to_torch(slot, values))
        if self._factor not in (None, 1.0) and "momentum_buffer" in found:
            found["momentum_buffer"] = {k: v / self._factor for k, v in found["momentum_buffer"].items()}
        return found

    def put(self, state: Any, slots: Slots) -> Any:
        """The state with PyTorch's values, zero where it keeps none yet; what is not known stays."""
        if not self.knows:
            return state
        if self._factor not in (None, 1.0) and "momentum_buffer" in slots:
            slots = {**slots, "momentum_buffer": {k: v * self._factor for k, v in slots["momentum_buffer"].items()}}
        return jtu.tree_map(lambda n: self._with(n, slots) if _is_known(n) else n, state, is_leaf=_is_known)

    def settle(self, ours: Slots, theirs: Slots) -> Slots:
        """Finds, from the first step, whether the port's momentum is of gradients, as PyTorch's, or of steps, which are
        `-lr` times that: `optax.rmsprop` has it after the learning rate. Gives ours as PyTorch has it."""
        key = "momentum_buffer"
        if self._factor is None and key in ours and key in theirs:
            names = [n for n in ours[key] if n in theirs[key] and ours[key][n].shape == theirs[key][n].shape]
            factors = [1.0, *(-float(lr) for lr in self._rates if isinstance(lr, int | float) and lr)]

            def off(factor: float) -> float:
                return sum(float(np.abs(ours[key][n] / factor - theirs[key][n]).sum()) for n in names)

            self._factor = min(factors, key=off)
            if self._factor != 1.0:
                return {**ours, key: {name: value / self._factor for name, value in ours[key].items()}}
        return ours

    def _slots(self, node: Any) -> dict[str, dict[str, np.ndarray]]:
        """By PyTorch's name and the port's path; a count for all parameters stands at each."""
        if isinstance(node, OptimizerState):
            found = {slot: {k: np.asarray(array_of(v)) for k, v in of.items()} for slot, of in node.slots.items()}
            steps = np.asarray(array_of(node.step)).astype(np.float64)
            return found | {COUNT: dict(zip(self._shapes, steps, strict=True))}
        found = {}
        for field, slot in FIELDS[type(node).__name__].items():
            kept = getattr(node, field)
            if slot == COUNT:
                count = np.asarray(array_of(kept)).astype(np.float64)
                found[slot] = dict.fromkeys(self._shapes, count)
            else:
                leaves = [(name, array_of(leaf)) for name, leaf in by_name(kept)]
                found[self._renamed.get(slot, slot)] = {n: np.asarray(a) for n, a in leaves if a is not None}
        return found

    def _with(self, node: Any, slots: Slots) -> Any:
        counts = [float(np.max(of)) for of in slots.get(COUNT, {}).values()]
        if isinstance(node, OptimizerState):
            kept = {
                slot: {name: like(leaf, self._value(slot, name, array_of(leaf), slots)) for name, leaf in of.items()}
                for slot, of in node.slots.items()
            }
            own = np.asarray(array_of(node.step))
            steps = [self._steps(name, slots, own[i]) for i, name in enumerate(self._shapes)]
            return node._replace(slots=kept, step=like(node.step, jnp.asarray(steps, own.dtype).reshape(own.shape)))
        changed: dict[str, Any] = {}
        for field, slot in FIELDS[type(node).__name__].items():
            kept = getattr(node, field)
            slot = self._renamed.get(slot, slot)
            if slot not in slots:
                continue
            if slot == COUNT:
                changed[field] = like(kept, jnp.asarray(max(counts), array_of(kept).dtype))
                continue
            new = {n: self._value(slot, n, array_of(leaf), slots) for n, leaf in by_name(kept)}

            def put(path: Any, leaf: Any, new: Mapping[str, Any] = new) -> Any:
                value = new[jtu.keystr(path, simple=True, separator=".")]
                return leaf if value is None else like(leaf, value)

            changed[field] = jtu.tree_map_with_path(put, kept, is_leaf=lambda x: isinstance(x, nnx.Variable))
        return node._replace(**changed)

    def _steps(self, name: str, slots: Slots, own: Any) -> Any:
        """How many a parameter has had; where PyTorch does not count, whether it has had any is all that matters."""
        keys = next((keys for keys, paths, _ in self._groups if name in paths), ())
        if COUNT in slots:
            return max((float(slots[COUNT][key]) for key in keys if key in slots[COUNT]), default=0.0)
        if slots:
            return float(any(key in of for of in slots.values() for key in keys))
        return own

    def _value(self, slot: str, name: str, own: Any, slots: Slots) -> Any:
        """PyTorch's value in the port's layout; our own where PyTorch has no such slot, or it cannot be carried."""
        if own is None or slot not in slots:
            return own
        for keys, paths, transform in self._groups:
            if name not in paths:
                continue
            values = [slots[slot].get(key) for key in keys]
            if all(value is None for value in values):
                return jnp.zeros_like(own)
            if any(value is None for value in values):
                return own
            if len(keys) == len(paths) == 1 and (self._in_torchs_layout or own.shape != self._shapes[name]):
                return jnp.asarray(values[0], own.dtype)
            given = _both_ways(transform, values)
            if given is None or given[paths.index(name)].shape != own.shape:
                self._note(f"{slot} of {', '.join(keys)} is not the port's in another layout: the port keeps its own")
                return own
            return jnp.asarray(given[paths.index(name)], own.dtype)
        return own

    def _to_torch(self, slot: str, values: Mapping[str, np.ndarray]) -> Named:
        named: Named = {}
        for keys, paths, transform in self._groups:
            arrays = [values[path] for path in paths if path in values]
            if len(arrays) < len(paths):
                continue
            if slot == COUNT:
                named.update(dict.fromkeys(keys, arrays[0]))
            elif not self._in_torchs_layout and all(
                a.shape == self._shapes[path] for a, path in zip(arrays, paths, strict=True)
            ):
                try:
                    back = transform.gradient_to_reference(*arrays)
                except ValueError:
                    continue
                named.update({key: value.astype(np.float64) for key, value in zip(keys, back, strict=True)})
            elif len(keys) == len(paths) == 1:
                named[keys[0]] = arrays[0].astype(np.float64)
        return named

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _is_known(node: Any) -> bool:
    if isinstance(node, OptimizerState):
        return True
    return type(node).__module__.startswith("optax") and type(node).__name__ in FIELDS


def _both_ways(transform: Any, values: list[Any]) -> tuple[np.ndarray, ...] | None:
    """Through a transform that only moves elements; None through another, which sums two biases, say."""
    try:
        given = transform.to_model(*values)
        back = transform.to_reference(*given)
    except ValueError:
        return None
    return given if all(np.array_equal(a, b) for a, b in zip(back, values, strict=True)) else None
