"""A rule of PyTorch's as an optax transformation: parameter groups, schedules, absent gradients, PyTorch's layout."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ..weights.conventions import TRANSFORM, leaves
from ..weights.transforms import IDENTITY, Transform
from .lr_scheduler.schedule import Scheduler
from .naming import array_of, by_name, flags_of, like, with_values
from .rule import Rule, Slots, namespace

LearningRate = float | jax.Array | Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """What an optimizer of `graphmode.optim` keeps between steps.

    Attributes:
      count: int32 []; updates made so far, which is where a schedule stands.
      lr: floating [groups]; the learning rate of each group: that of the last update where it is a schedule, that of
        the next one where it is a number, which may be replaced between steps (`with_lr`), nothing being compiled anew.
        The first is that of the parameters which no `Group` takes, the others are those of `groups` in their order.
      step: int32 [parameters]; updates of each parameter, in the order of the tree: an absent gradient makes none.
      slots: PyTorch's name of what is kept, then the parameter's: `slots["exp_avg"]["encoder.linear1.weight"]`. Laid
        out as the parameter is; those of `adafactor` and `muon` as PyTorch's.
    """

    count: jax.Array  # type: ignore[assignment]  # as optax's own states call it
    lr: jax.Array
    step: jax.Array
    slots: dict[str, dict[str, jax.Array]]


class Group:
    """Parameters that are stepped with arguments of their own: one of `torch.optim`'s parameter groups.

    Where groups are counted, in `OptimizerState.lr`, `with_lr` and a `ReduceLROnPlateau`, the parameters that no group
    takes come first, also where there are none, and those of `groups` after them, in the order given. PyTorch has no
    such first group but by what it is given: `names` of `to_torch` says its order.

    Args:
      where: a regular expression, searched for in a parameter's dotted name (`r"bias$|norm"`), or a function
        `(name, array) -> bool`.
      **arguments: of the optimizer, in place of its own: `lr=1e-4`, `weight_decay=0.0`.

    Example:
      >>> import graphmode as gm
      >>> tx = gm.optim.adamw(lr=1e-3, weight_decay=0.1, groups=[gm.optim.Group(r"bias$", weight_decay=0.0)])
    """

    def __init__(self, where: str | Callable[[str, Any], bool], **arguments: Any):
        if not callable(where):
            try:
                re.compile(where)
            except (TypeError, re.error) as error:
                raise ValueError(f"where is {where!r}; give a regular expression or a function: {error}") from None
        self.where = where
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"Group({', '.join([repr(self.where), *(f'{k}={v!r}' for k, v in self.arguments.items())])})"

    def holds(self, name: str, array: Any) -> bool:
        if callable(self.where):
            return bool(self.where(name, array))
        return re.search(self.where, name) is not None


class Optimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that steps as one of `torch.optim` does; made by `adam`, `sgd` and the others.

    It chains with optax's own, and `nnx.Optimizer` takes it. `update(gradients, state, parameters)` gives what is to be
    added to the parameters; its keyword `present` says which gradients are there: a tree of booleans, or a mapping from
    names of parameters or of modules, which may be traced. Where one is absent, as PyTorch's `.grad is None` is,
    parameter and state stay as they are. A gradient that is None, or is not in the tree, is absent too.

    `optax.inject_hyperparams(gm.optim.sgd)(lr=0.1)` keeps its numbers in the state, `state.hyperparams["lr"]`, from
    where each update takes them; `with_lr` refuses such a state.

    Attributes:
      rule: PyTorch's.
      arguments: of the optimizer, by PyTorch's names.
      groups: those given.
      injected: whether `optax.inject_hyperparams` made it, so that its numbers are those of one call.
    """

    rule: Rule
    arguments: dict[str, Any]
    groups: tuple[Group, ...]
    layouts: dict[str, Transform]
    injected: bool
    stepper: _Stepper

    def __new__(
        cls,
        rule: Rule,
        arguments: Mapping[str, Any],
        groups: Iterable[Group] = (),
        layouts: Mapping[str, Transform] | None = None,
        injected: bool = False,
    ) -> Optimizer:
        if isinstance(groups, Group) or not isinstance(groups, Iterable):
            raise TypeError(f"groups is {groups!r}; give a list of gm.optim.Group")
        made = _Stepper(rule, dict(arguments), tuple(groups), dict(layouts or {}), injected)
        self = super().__new__(cls, made.init, made.update)
        self.rule, self.arguments, self.groups, self.layouts = rule, made.arguments, made.groups, made.layouts
        self.injected, self.stepper = injected, made
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Optimizer, (self.rule, self.arguments, self.groups, self.layouts, self.injected)

    def __repr__(self) -> str:
        told = [f"{k}={v!r}" for k, v in self.arguments.items()] + ([f"groups={self.groups!r}"] if self.groups else [])
        return f"{self.rule.name.lower()}({', '.join(told)})"

    def for_model(self, model: nnx.Module) -> Optimizer:
        """The same, knowing how the model lays its parameters out.

        `adafactor` and `muon` look at rows and columns, which are PyTorch's. `gm.train_step` calls this. Layers of
        `gm.nn` say it themselves where `init` is given their variables, as `nnx.Optimizer` does; for plain NNX layers
        call it yourself. The other optimizers step each element by itself.
        """
        found = {leaf.path: leaf.transform for leaf in leaves(model) if leaf.transform != IDENTITY}
        return Optimizer(self.rule, self.arguments, self.groups, found, self.injected)


def with_lr(state: Any, lr: float | Iterable[float]) -> Any:
    """The optimizer's state with another learning rate for the steps to come, as a `ReduceLROnPlateau` gives it.

    Args:
      state: an `OptimizerState`, or a tree (of `optax.chain` for instance) that holds exactly one.
      lr: one number for all groups, or one each: first that of the parameters which no `Group` takes, then of `groups`.

    A schedule's rate is computed again at each update, whatever the state says.

    Raises:
      ValueError: where there is none or more than one such state, or another number of groups; where the rate is one of
        `optax.inject_hyperparams`, which counts.
    """
    if any("lr" in node.hyperparams for node in jax.tree.leaves(state, is_leaf=_injects) if _injects(node)):
        raise ValueError("lr is of optax.inject_hyperparams in this state: set the hyperparams['lr'] that it holds")
    found = [leaf for leaf in jax.tree.leaves(state, is_leaf=_is_state) if _is_state(leaf)]
    if len(found) != 1:
        raise ValueError(f"state holds {len(found)} states of optimizers of graphmode.optim; give it one")
    before = array_of(found[0].lr)
    given = [lr] * before.size if np.ndim(lr) == 0 else list(lr)  # type: ignore[arg-type]
    if len(given) != before.size:
        raise ValueError(f"lr has {len(given)} numbers, and the optimizer has {before.size} groups")
    values = like(found[0].lr, jnp.asarray(given, before.dtype))
    return jax.tree.map(lambda x: x._replace(lr=values) if _is_state(x) else x, state, is_leaf=_is_state)


def _injects(node: Any) -> bool:
    return isinstance(node, optax.InjectStatefulHyperparamsState)


def _is_state(node: Any) -> bool:
    return isinstance(node, OptimizerState)


class _Named(NamedTuple):
    """A parameter, or what belongs to it."""

    name: str
    array: jax.Array
    layout: Transform


def _check_momentum(rule: Rule, values: Any) -> None:
    """Raises `ValueError` where PyTorch's scheduler would set a momentum that was given as a number, or is none."""
    parts = [values.lr, *getattr(values.lr, "schedulers", ())]
    cycling = next((part for part in parts if getattr(part, "momentum", None) is not None), None)
    if cycling is None:
        return
    name = next((name for name in ("momentum", "betas") if name in rule.schedulable), None)
    given = None if name is None else getattr(values, name)
    if callable(given[0] if isinstance(given, tuple) else given):
        return
    ways = {None: "", "momentum": "momentum=schedule.momentum, or ", "betas": "betas=(schedule.momentum, beta2), or "}
    held = f"{rule.name} has none" if name is None else f"{name} is {given!r}"
    raise ValueError(
        f"lr is a {type(cycling).__name__} that cycles the momentum too, as PyTorch's does, and {held}; give "
        f"{ways[name]}the schedule cycle_momentum=False, which leaves it as it is"
    )


def _moved(transform: Any, array: jax.Array) -> jax.Array:
    """A transform of weights, which is written for numpy's arrays and asks no more than JAX's can do."""
    return transform(array)[0]


class _Stepper:
    def __init__(
        self,
        rule: Rule,
        arguments: dict[str, Any],
        groups: tuple[Group, ...],
        layouts: dict[str, Transform],
        injected: bool,
    ):
        if not injected:  # what is injected stays an array, so that the state is the same under jit and without
            arguments = {name: _as_number(value) for name, value in arguments.items()}
        self.rule, self.arguments, self.groups, self.layouts = rule, arguments, groups, layouts
        self.injected = injected
        self._carried: dict[str, Transform] = {}  # by variables given to init, since nnx.Optimizer updates bare arrays
        self._resolved = [namespace(arguments)]
        rule.check(self._resolved[0])
        for index, group in enumerate(groups):
            if not isinstance(group, Group):
                raise TypeError(f"groups[{index}] is a {type(group).__name__}; give gm.optim.Group(where, lr=...)")
            if unknown := group.arguments.keys() - arguments.keys():
                raise ValueError(
                    f"groups[{index}] has {', '.join(sorted(unknown))}; {rule.name} has {', '.join(arguments)}"
                )
            if alike := group.arguments.keys() & set(rule.shared):
                raise ValueError(
                    f"groups[{index}] has {', '.join(alike)}, which {rule.name} takes for all groups alike, as "
                    "PyTorch's does; give it to the optimizer"
                )
            values = namespace({**arguments, **{name: _as_number(v) for name, v in group.arguments.items()}})
            try:
                rule.check(values)
            except ValueError as error:
                raise ValueError(f"groups[{index}]: {error}") from None
            self._resolved.append(values)
        for values in self._resolved:
            for name, value in vars(values).items():
                items = value if isinstance(value, tuple) else (value,)
                if any(map(callable, items)) and name not in ("lr", *rule.schedulable):
                    raise TypeError(
                        f"{name} is a schedule; {rule.name} takes one for {_listed('lr', *rule.schedulable)}"
                    )
            _check_momentum(rule, values)

    def init(self, params: Any) -> OptimizerState:
        named = self.named(params)
        self._remember(params)
        member_of = self.members(named)
        count = jnp.zeros((), jnp.int32)
        lr = self.rates(count)
        slots: dict[str, dict[str, jax.Array]] = {}
        for parameter, group in zip(named, member_of, strict=True):
            h = self.now(group, count, lr)
            self.rule.check_shape(parameter.name, self._in_torchs(parameter).shape)
            for key, value in self.rule.slots(self._in_torchs(parameter), h).items():
                slots.setdefault(key, {})[parameter.name] = value
        return OptimizerState(count, lr, jnp.zeros(len(named), jnp.int32), slots)

    def update(
        self, updates: Any, state: OptimizerState, params: Any = None, *, present: Any = None, **_: Any
    ) -> tuple[Any, OptimizerState]:
        if params is None:
            raise ValueError(f"params is None; {self.rule.name} needs them: tx.update(gradients, state, params)")
        named = self.named(params)
        member_of = self.members(named)
        gradients = {name: leaf for name, leaf in by_name(updates) if array_of(leaf) is not None}
        self._check(gradients, named, state)
        flags = flags_of(present, [parameter.name for parameter in named])
        lr = self.rates(state.count, state.lr)
        there = [parameter.name in gradients and flags.get(parameter.name, True) for parameter in named]
        step = state.step + jnp.stack([jnp.asarray(flag, jnp.int32) for flag in there]) if named else state.step
        slots = {key: dict(of) for key, of in state.slots.items()}
        deltas: dict[str, jax.Array] = {}
        for group in sorted(set(member_of)):
            h = self.now(group, state.count, lr)
            members = [i for i, of in enumerate(member_of) if of == group and there[i] is not False]
            if not members:
                continue
            everyone = len(members) == len(named)
            numbers = step if everyone else step[jnp.asarray(members)]
            # where a gradient is absent its number may be 0, which nothing is computed for
            scalars = self.rule.scalars(jnp.maximum(numbers, 1), h) | {"step": numbers}
            for place, i in enumerate(members):
                parameter = named[i]
                of = {key: slots[key][parameter.name] for key in slots if parameter.name in slots[key]}
                own = {key: value[place] for key, value in scalars.items()}
                gradient = array_of(gradients[parameter.name])
                delta, new = self._step(gradient, parameter, of, own, h)
                if not isinstance(there[i], bool):
                    delta = jnp.where(there[i], delta, jnp.zeros_like(delta))
                    new = {key: jnp.where(there[i], value, of[key]) for key, value in new.items()}
                deltas[parameter.name] = delta
                for key, value in new.items():
                    slots[key][parameter.name] = value
        return with_values(updates, params, deltas), OptimizerState(optax.safe_increment(state.count), lr, step, slots)

    def _step(
        self, gradient: jax.Array, parameter: _Named, slots: Slots, scalars: Slots, h: SimpleNamespace
    ) -> tuple[jax.Array, Slots]:
        dtype = jnp.promote_types(parameter.array.dtype, jnp.float32)  # PyTorch computes halves in float32 too
        array, gradient = self._in_torchs(parameter), self._in_torchs(parameter._replace(array=gradient))
        wide = {key: value.astype(dtype) for key, value in slots.items()}
        own = {key: value if key == "step" else value.astype(dtype) for key, value in scalars.items()}
        h = namespace({k: _in_dtype(v, dtype) for k, v in vars(h).items()} | {"dtype": array.dtype})
        delta, new = self.rule.step(gradient.astype(dtype), array.astype(dtype), wide, own, h)
        if self.rule.in_torchs_layout and parameter.layout != IDENTITY:
            delta = _moved(parameter.layout.to_model, delta)
        return delta.astype(array.dtype), {key: value.astype(slots[key].dtype) for key, value in new.items()}

    def _in_torchs(self, named: _Named) -> jax.Array:
        if not self.rule.in_torchs_layout or named.layout == IDENTITY:
            return named.array
        try:
            return _moved(named.layout.to_reference, named.array)
        except ValueError as error:
            raise ValueError(
                f"{named.name}: {error}: {self.rule.name} sees a parameter as PyTorch lays it out, and this one has "
                "other axes than its layer gives it; layers that are stacked have to be apart"
            ) from error

    def named(self, params: Any) -> list[_Named]:
        named: list[_Named] = []
        for name, leaf in by_name(params):
            array = array_of(leaf)
            if array is None:
                if isinstance(leaf, nnx.Variable):
                    continue
                raise TypeError(f"params has {leaf!r} at {name!r}; give an array")
            if not jnp.issubdtype(array.dtype, jnp.floating):
                raise TypeError(
                    f"{name} is {array.dtype}; {self.rule.name} steps floating parameters: leave it out, as "
                    "nnx.state(model, nnx.Param) does for what is no nnx.Param"
                )
            carried = _carried(leaf) if isinstance(leaf, nnx.Variable) else self._carried.get(name, IDENTITY)
            named.append(_Named(name, array, self.layouts.get(name, carried)))
        if len({parameter.name for parameter in named}) != len(named):
            twice = sorted(name for name, count in Counter(of.name for of in named).items() if count > 1)
            raise ValueError(f"params has several of the name {', '.join(twice)}; name them apart")
        return named

    def _remember(self, params: Any) -> None:
        if not self.rule.in_torchs_layout:
            return
        for name, leaf in by_name(params):
            if not isinstance(leaf, nnx.Variable) or name in self.layouts:
                continue
            if self.injected and _carried(leaf) != IDENTITY:
                raise ValueError(
                    f"{name} is laid out otherwise than PyTorch's, which {self.rule.name} has to know at each update, "
                    "and optax.inject_hyperparams makes it anew for each; give lr a schedule, or change it by with_lr"
                )
            if self._carried.setdefault(name, _carried(leaf)) != _carried(leaf):
                raise ValueError(
                    f"{name} is laid out otherwise than the parameter of that name that this {self.rule.name} was "
                    "given before; make one for each model: tx.for_model(model)"
                )

    def member(self, name: str, array: Any) -> int:
        """The first group that takes the parameter, 0 where none does."""
        return next((i for i, group in enumerate(self.groups, 1) if group.holds(name, array)), 0)

    def members(self, named: list[_Named]) -> list[int]:
        """The group of each parameter."""
        member_of = [self.member(parameter.name, parameter.array) for parameter in named]
        for index, group in enumerate(self.groups, 1):
            if named and index not in member_of:
                names = ", ".join(parameter.name for parameter in named[:5])
                more = f" and {len(named) - 5} more" if len(named) > 5 else ""
                raise ValueError(f"groups[{index - 1}], {group!r}, holds no parameter; there are {names}{more}")
        return member_of

    def rates(self, count: Any, kept: jax.Array | None = None) -> jax.Array:
        """The learning rate of each group: a schedule's, or that which is kept, or at first the one given."""
        return jnp.stack(
            [
                kept[index] if kept is not None and self._keeps(h.lr) else jnp.asarray(_at(h.lr, count), float)
                for index, h in enumerate(self._resolved)
            ]
        )

    def _keeps(self, lr: Any) -> bool:
        """Whether the state says the rate from the first update on."""
        return not callable(lr) and not self.injected

    def scheduled(self, group: int) -> dict[str, float]:
        """What PyTorch's scheduler of a group's learning rate has written into the group: nothing for a number."""
        lr = self._resolved[group].lr
        if not callable(lr):
            return {}
        return lr.of_group() if isinstance(lr, Scheduler) else {"initial_lr": float(lr(0))}

    def now(self, group: int, count: jax.Array, lr: jax.Array) -> SimpleNamespace:
        values = {name: _at(value, count) for name, value in vars(self._resolved[group]).items() if name != "lr"}
        return namespace({**values, "lr": lr[group]})

    def _check(self, gradients: Mapping[str, Any], named: list[_Named], state: OptimizerState) -> None:
        if state.step.shape != (len(named),):
            raise ValueError(
                f"state is of {state.step.size} parameters, and params has {len(named)}: make it by tx.init(params)"
            )
        shapes = {parameter.name: parameter.array.shape for parameter in named}
        if others := {name for of in state.slots.values() for name in of} - shapes.keys():
            raise ValueError(
                f"state is of {', '.join(sorted(others)[:5])}, which params has not: make it by tx.init(params)"
            )
        if unknown := [name for name in gradients if name not in shapes]:
            raise ValueError(f"gradients are given for {', '.join(unknown[:5])}, which params has not")
        for name, leaf in gradients.items():
            array = array_of(leaf)
            if array.shape != shapes[name]:
                raise ValueError(f"the gradient of {name} has shape {array.shape}, and {shapes[name]} was wanted")


def _at(value: Any, count: jax.Array) -> Any:
    if isinstance(value, tuple):
        return tuple(_at(item, count) for item in value)
    return value(count) if callable(value) else value


def _in_dtype(value: Any, dtype: Any) -> Any:
    """A traced argument as the parameter's dtype, so that it widens nothing; a Python number is weak already."""
    if isinstance(value, tuple):
        return tuple(_in_dtype(item, dtype) for item in value)
    return value.astype(dtype) if isinstance(value, jax.Array) else value


def _as_number(value: Any) -> Any:
    """A scalar of numpy's or JAX's as Python's, which is exact where it is computed with before it is rounded."""
    if isinstance(value, tuple | list):
        return tuple(_as_number(item) for item in value)
    is_scalar = isinstance(value, np.generic | np.ndarray | jax.Array) and value.size == 1
    return value.item() if is_scalar and not isinstance(value, jax.core.Tracer) else value


def _carried(variable: nnx.Variable) -> Transform:
    return variable.get_metadata().get(TRANSFORM, IDENTITY)


def _listed(*names: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
