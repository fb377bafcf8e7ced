"""What an optimizer keeps between steps as `torch.optim.Optimizer.state_dict()`, and back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..weights.formats import as_numpy, import_torch
from ..weights.plan import WeightsError, as_rules
from ..weights.rules import WeightRule
from .lr_scheduler.arguments import as_whole
from .naming import array_of
from .torch_parameters import Book
from .transformation import Optimizer, OptimizerState

LOG = logging.getLogger(__name__)
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
        reference.named_parameters()]`. With groups those of its first group come first, and so on. Parameters that are
        not trained here are listed where PyTorch's optimizer got them too (`requires_grad_(False)`): without a state.
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
    book = Book(tx, model, as_rules(rules), wrt)
    state = jax.tree.map(array_of, state, is_leaf=lambda node: isinstance(node, nnx.Variable))
    problems = [*book.problems, *book.matched(names), *book.of_state(state)]
    members = [group for name in names if (group := book.group_of(name)) is not None]
    order = list(dict.fromkeys(members))
    if sorted(members, key=order.index) != members:
        problems.append(
            "names go back and forth between groups; give those of PyTorch's first group first, then of its second"
        )
    _raise(problems, f"no state_dict of torch.optim.{tx.rule.name}")
    kept: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(names):
        if of := book.to_torchs(name, state, torch):
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
      names: as for `to_torch`; not needed where PyTorch's optimizer was built from `named_parameters()`. What PyTorch
        keeps for a parameter that is not trained here is left out, and the log says so; what is trained here and has no
        state in PyTorch begins anew, as it does there.
      count: updates made so far, which is where our schedules stand; None for the most that a parameter has had. SGD
        and Muon keep no numbers of steps in PyTorch: say it where they have a schedule.
      wrt: which variables are optimized, as in `nnx.Optimizer`.

    Raises:
      ValueError: one that lists all that is wrong: names, shapes, another optimizer's slots, arguments that differ; for
        a count below 0.
      TypeError: for a count that is no integer.

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
    if count is not None and (count := as_whole("count", count)) < 0:
        raise ValueError(f"count is {count}; give the number of updates made so far, at least 0")
    tx = tx.for_model(model)
    book = Book(tx, model, as_rules(rules), wrt)
    groups = state_dict["param_groups"]
    named = _named(groups, names)
    problems = [*book.problems, *book.matched(list(named.values()))]
    ours = tx.init(nnx.state(model, wrt))
    step, slots = np.zeros(len(book.entries), np.int32), {key: dict(of) for key, of in ours.slots.items()}
    lr: dict[int, dict[float, int]] = {}
    left_out: list[str] = []
    at = ours.count if count is None else jnp.asarray(count, jnp.int32)
    for number, group in enumerate(groups):
        members = [book.by_key[named[index]] for index in group["params"] if named[index] in book.by_key]
        for of in dict.fromkeys(member.group for member in members):
            problems += _differing(tx, book.hyperparameters(of, at), group, number)
            lr.setdefault(of, {}).setdefault(float(group["lr"]), number)
        for index in group["params"]:
            kept = state_dict["state"].get(index, {})
            if (entry := book.by_key.get(named[index])) is not None:
                problems += book.from_torchs(entry, kept, step, slots)
            elif any(value is not None for value in kept.values()) and int(kept.get("step", 1)) > 0:
                left_out.append(named[index])
    for given in lr.values():
        if len(given) > 1:
            told = ", ".join(f"param_groups[{number}] has {value}" for value, number in given.items())
            problems.append(f"lr: {told}, and these are one group here; give tx a Group for each")
    if unknown := [key for key in state_dict["state"] if key not in named]:
        problems.append(f"state has {unknown[:5]}, which no group of param_groups holds")
    _raise(problems, f"the state_dict is not one of this {tx.rule.name}")
    if left_out:
        LOG.warning(
            "%s: PyTorch's optimizer has stepped what is not trained here; what it keeps for it is left out",
            ", ".join(left_out),
        )
    rates = [next(iter(lr[of])) if of in lr else float(ours.lr[of]) for of in range(ours.lr.size)]
    return OptimizerState(
        jnp.asarray(int(step.max(initial=0)) if count is None else count, jnp.int32),
        jnp.asarray(rates, ours.lr.dtype),
        jnp.asarray(step),
        slots,
    )


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
