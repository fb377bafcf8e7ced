"""What an optimizer keeps between steps as `torch.optim.Optimizer.state_dict()`, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..weights.formats import as_numpy, as_tensor, import_torch
from ..weights.plan import Group as Tensors
from ..weights.plan import WeightsError, as_rules, make_plan
from ..weights.rules import WeightRule
from ..weights.transforms import Stack
from .naming import array_of
from .transformation import Optimizer, OptimizerState

PURPOSE = "writing an optimizer's state_dict"


def to_torch(
    state: OptimizerState,
    tx: Optimizer,
    model: nnx.Module,
    *,
    rules: Iterable[WeightRule] = (),
    names: Sequence[str] | None = None,
    wrt: Any = nnx.Param,
) -> dict[str, Any]:
    """Our state as the `state_dict` of the PyTorch optimizer of that name, which steps on from it.

    Args:
      state: of `tx`; that of an `nnx.Optimizer` is its `opt_state`.
      tx: the optimizer.
      model: the port, whose layers know PyTorch's names and layouts.
      rules: those of `gm.weights.load`.
      names: PyTorch's names of the parameters in the order in which its optimizer got them: `[name for name, _ in
        reference.named_parameters()]`. With groups those of its first group come first, and so on.
      wrt: which variables are optimized, as in `nnx.Optimizer`.

    Returns:
      `{"state": ..., "param_groups": ...}` of torch tensors, with `param_names`. A parameter that has had no gradient
      has no state, as in PyTorch. `lr` is that of the next update, as PyTorch has it after `scheduler.step()`: of
      `state`, or of a schedule at `state.count`, where other arguments that are scheduled stand too. With a schedule
      there is `initial_lr`, for `StepLR(optimizer, ..., last_epoch=...)`; schedulers are kept elsewhere in PyTorch.

    Raises:
      ImportError: where PyTorch is not installed.
      ValueError: one that lists all that is wrong.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.state_dict.html

    Example:
      >>> import jax, graphmode as gm
      >>> model, tx = gm.nn.Linear(3, 2, rngs=nnx.Rngs(0)), gm.optim.adam(lr=0.1)
      >>> state = tx.init(nnx.state(model, nnx.Param))
      >>> to_torch(state, tx, model, names=["weight", "bias"])["param_groups"][0]["params"]
      [0, 1]
    """
    torch = import_torch(PURPOSE, instead="or save ours with graphmode.training")
    if names is None:
        raise ValueError(
            "names is None, and PyTorch numbers parameters by the order in which its optimizer got them: give names="
            "[name for name, _ in reference.named_parameters()]"
        )
    _check_state(state)
    tx = tx.for_model(model)
    book = _Book(tx, model, as_rules(rules), wrt)
    state = jax.tree.map(array_of, state, is_leaf=lambda node: isinstance(node, nnx.Variable))
    problems = [*book.problems, *book.matched(names), *book.of_state(state)]
    members = [book.by_key[name].group for name in names if name in book.by_key]
    order = list(dict.fromkeys(members))
    if sorted(members, key=order.index) != members:
        problems.append(
            "names go back and forth between groups; give those of PyTorch's first group first, then of its second"
        )
    _raise(problems, f"no state_dict of torch.optim.{tx.rule.name}")
    kept: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(names):
        if of := book.to_torchs(book.by_key[name], state, torch):
            kept[index] = of
    groups, rates = [], book.stepper.rates(state.count, state.lr)
    for number in order:
        of_group = [index for index, member in enumerate(members) if member == number]
        own = {**_defaults(tx, book.hyperparameters(number, state.count), torch), "lr": float(rates[number])}
        own |= book.stepper.scheduled(number)
        groups.append({**own, "params": of_group, "param_names": [names[index] for index in of_group]})
    return {"state": kept, "param_groups": groups}


def from_torch(
    state_dict: Mapping[str, Any],
    tx: Optimizer,
    model: nnx.Module,
    *,
    rules: Iterable[WeightRule] = (),
    names: Sequence[str] | None = None,
    count: int | None = None,
    wrt: Any = nnx.Param,
) -> OptimizerState:
    """The `state_dict` of a PyTorch optimizer as the state of ours, which steps on from it.

    Parameters are matched by name, whatever the order of groups. Slots take the dtype of ours, as PyTorch's own
    `load_state_dict` casts them to the parameter's.

    Args:
      state_dict: of the PyTorch optimizer of the same name.
      tx: ours, with the same arguments and groups; `lr` is taken from the state.
      model: the port; its weights are not read.
      rules: those of `gm.weights.load`.
      names: as for `to_torch`; not needed where PyTorch's optimizer was built from `named_parameters()`.
      count: updates made so far, which is where our schedules stand; None for the most that a parameter has had. SGD
        and Muon keep no numbers of steps in PyTorch: say it where they have a schedule.
      wrt: which variables are optimized, as in `nnx.Optimizer`.

    Raises:
      ValueError: one that lists all that is wrong: names, shapes, another optimizer's slots, arguments that differ.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html

    Example:
      >>> import graphmode as gm
      >>> model, tx = gm.nn.Linear(3, 2, rngs=nnx.Rngs(0)), gm.optim.adam(lr=0.1)
      >>> names = ["weight", "bias"]
      >>> theirs = to_torch(tx.init(nnx.state(model, nnx.Param)), tx, model, names=names)
      >>> from_torch(theirs, tx, model).lr
      Array([0.1], dtype=float32)
    """
    if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
        raise ValueError("state_dict has no state and param_groups; give torch.optim.Optimizer.state_dict()")
    tx = tx.for_model(model)
    book = _Book(tx, model, as_rules(rules), wrt)
    groups = state_dict["param_groups"]
    named = _named(groups, names)
    problems = [*book.problems, *book.matched(list(named.values()))]
    ours = tx.init(nnx.state(model, wrt))
    step, slots = np.zeros(len(book.entries), np.int32), {key: dict(of) for key, of in ours.slots.items()}
    lr: dict[int, dict[float, int]] = {}
    at = ours.count if count is None else jnp.asarray(count, jnp.int32)
    for number, group in enumerate(groups):
        members = [book.by_key[named[index]] for index in group["params"] if named[index] in book.by_key]
        for of in dict.fromkeys(member.group for member in members):
            problems += _differing(tx, book.hyperparameters(of, at), group, number)
            lr.setdefault(of, {}).setdefault(float(group["lr"]), number)
        for index in group["params"]:
            if (entry := book.by_key.get(named[index])) is not None:
                problems += book.from_torchs(entry, state_dict["state"].get(index, {}), step, slots)
    for given in lr.values():
        if len(given) > 1:
            told = ", ".join(f"param_groups[{number}] has {value}" for value, number in given.items())
            problems.append(f"lr: {told}, and these are one group here; give tx a Group for each")
    if unknown := [key for key in state_dict["state"] if key not in named]:
        problems.append(f"state has {unknown[:5]}, which no group of param_groups holds")
    _raise(problems, f"the state_dict is not one of this {tx.rule.name}")
    rates = [next(iter(lr[of])) if of in lr else float(ours.lr[of]) for of in range(ours.lr.size)]
    return OptimizerState(
        jnp.asarray(int(step.max(initial=0)) if count is None else count, jnp.int32),
        jnp.asarray(rates, ours.lr.dtype),
        jnp.asarray(step),
        slots,
    )


@dataclass(frozen=True)
class _Entry:
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


class _Book:
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
        self.by_key: dict[str, _Entry] = {}
        self.entries: dict[int, _Entry] = {}
        self.parts: dict[tuple[int, int | None], _Entry] = {}  # of a stack, each layer
        for group in plan:
            names = [name_of.get(id(leaf.variable)) for leaf in group.leaves]
            if not any(names):
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
                entry = _Entry(number, parameter.name, members[number], group, here, theirs, shaped.shape, which)
                self.by_key[key] = entry
                self.entries.setdefault(number, entry)
                self.parts.setdefault((number, which), entry)
        self.count = len(named)

    def hyperparameters(self, group: int, count: Any) -> SimpleNamespace:
        return self.stepper.now(group, jnp.asarray(count, jnp.int32), self.stepper.rates(0))

    def matched(self, names: Sequence[str]) -> list[str]:
        """The problems with PyTorch's names."""
        problems = [
            f"{name}: unknown, no parameter of the model has this name" for name in names if name not in self.by_key
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
        return problems + [f"{of.key}: missing, and {of.name} needs it" for of in missing]

    def of_state(self, state: OptimizerState) -> list[str]:
        if state.step.size != self.count:
            return [f"state is of {state.step.size} parameters, and the model has {self.count}"]
        problems = []
        for entry in self.entries.values():
            kept = {key: of[entry.name].shape for key, of in state.slots.items() if entry.name in of}
            if kept != entry.here:
                problems.append(
                    f"{entry.name}: state has {_told(kept)}, and {self.tx.rule.name} keeps {_told(entry.here)}"
                )
        return problems

    def to_torchs(self, entry: _Entry, state: OptimizerState, torch: Any) -> dict[str, Any]:
        step = int(state.step[entry.number])
        if step == 0 and self.tx.rule.name != "Adagrad":  # whose state is there from the start
            return {}
        scalar = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32  # as PyTorch's own
        kept = {"step": torch.tensor(float(step), dtype=scalar)} if self.tx.rule.counts else {}
        for key, shape in entry.theirs.items():
            value = np.asarray(state.slots[key][entry.name])
            if self._is_laid_out(entry, key):
                value = entry.to_torchs(value)
            tensor = as_tensor(np.ascontiguousarray(value).reshape(shape))
            kept[key] = tensor.to(scalar) if shape == () != entry.shape else tensor
        return kept

    def from_torchs(
        self, entry: _Entry, kept: Mapping[str, Any], step: np.ndarray, slots: dict[str, dict[str, jax.Array]]
    ) -> list[str]:
        """Adds what PyTorch kept for a parameter, and gives the problems with it."""
        key = entry.key
        kept = {slot: value for slot, value in kept.items() if value is not None}
        if not kept:
            lost = entry.layer and step[entry.number]
            return [f"{key}: has no state, and layers before it in {entry.name} have"] if lost else []
        wanted = {*entry.theirs, *(["step"] if self.tx.rule.counts else [])}
        if kept.keys() != wanted:
            told = ", ".join(sorted(kept))
            return [f"{key}: state_dict keeps {told}, and {self.tx.rule.name} {', '.join(sorted(wanted)) or 'nothing'}"]
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

    def _is_laid_out(self, entry: _Entry, slot: str) -> bool:
        """Whether a slot follows the parameter's layout; what is a number for the whole parameter does not."""
        if self.tx.rule.in_torchs_layout or entry.theirs[slot] != entry.shape:
            return False
        return entry.here[slot] != () if entry.layer is not None else entry.shape != ()

    def _shapes(self, shape: tuple[int, ...], dtype: Any, h: SimpleNamespace) -> dict[str, tuple[int, ...]]:
        made = jax.eval_shape(lambda p: self.tx.rule.slots(p, h), jax.ShapeDtypeStruct(shape, dtype))
        return {key: value.shape for key, value in made.items()}


def _named(groups: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[Any, str]:
    """PyTorch's names by its numbers of parameters."""
    numbers = [index for group in groups for index in group["params"]]
    if all("param_names" in group for group in groups):
        own = [name for group in groups for name in group["param_names"]]
        if names is not None and list(names) != own:
            raise ValueError(
                f"names begins {list(names)[:3]}, and the state_dict's own param_names {own[:3]}; leave it out"
            )
        names = own
    if names is None:
        raise ValueError(
            "the state_dict has no names of parameters, and names is None: give names=[name for name, _ in "
            "reference.named_parameters()] in the order in which PyTorch's optimizer got them, or build that from "
            "reference.named_parameters()"
        )
    if len(names) != len(numbers):
        raise ValueError(f"names has {len(names)} names, and the state_dict {len(numbers)} parameters")
    return dict(zip(numbers, names, strict=True))


def _differing(tx: Optimizer, h: SimpleNamespace, group: Mapping[str, Any], number: int) -> list[str]:
    """Arguments of a group that are not ours; a schedule of ours is not compared."""
    problems = []
    for name, value in vars(h).items():
        given = tx.arguments[name]
        if name == "lr" or any(map(callable, given if isinstance(given, tuple) else (given,))):
            continue
        if name not in group:
            if value not in (False, 0, None) and name != "decoupled_weight_decay":  # files of an older PyTorch's
                problems.append(f"{name}: param_groups[{number}] has none, and ours is {value!r}")
        elif not _same(value, group[name]):
            problems.append(f"{name}: param_groups[{number}] has {group[name]!r}, and ours is {value!r}")
    return problems


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if hasattr(theirs, "detach"):  # a number in a tensor is rounded to its dtype
        return bool(as_numpy(theirs) == np.asarray(ours, as_numpy(theirs).dtype))
    return ours == theirs or {ours, theirs} == {None, "original"}


def _defaults(tx: Optimizer, h: SimpleNamespace, torch: Any) -> dict[str, Any]:
    """A group of PyTorch's with our arguments, and its own defaults for those that we have not."""
    own = {name: _plain(value) for name, value in vars(h).items() if name != "lr"}
    if tx.rule.name == "AdamW":
        own.pop("decoupled_weight_decay")
    made = getattr(torch.optim, tx.rule.name)([torch.nn.Parameter(torch.zeros(1, 1))], **own)
    return {key: value for key, value in made.state_dict()["param_groups"][0].items() if key != "params"}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, jax.Array) else value


def _check_state(state: Any) -> None:
    if not isinstance(state, OptimizerState):
        raise TypeError(
            f"state is a {type(state).__name__}; give the OptimizerState alone, out of a chain's or tuple's"
        )


def _raise(problems: list[str], subject: str) -> None:
    if problems:
        raise WeightsError(list(dict.fromkeys(problems)), subject=subject)


def _told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{key} {shape}" for key, shape in shapes.items()) or "nothing"
