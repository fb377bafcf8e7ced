"""References that cannot judge, told by name: random, changing what they are given or their own parameters, or giving
nothing that can be compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np
import torch

from ..case import Case, CaseError
from ..checkpoints import gradients_of
from ..draw import input_name
from ..observation import Observation
from ..torch_side import Snapshot, TorchBatch, TorchSide, forward_backward
from ..trees import is_floating, named_leaves
from .yardstick import difference, magnitude

if TYPE_CHECKING:
    from .judge import Question

LONGEST = 10_000  # of an attribute, written out
_COMPARABLE = (torch.Tensor, np.ndarray, np.generic, bool, int, float, complex)


def witnessed(case: Case, name: str, side: TorchSide, question: Question) -> Observation:
    """One run of a reference, watched.

    Raises:
      CaseError: where it changes its inputs or parameters, or gives nothing that can be compared.
    """
    whose = f"case {case.name!r}: the reference {name!r}"
    where = f"on the input {question.label!r} in {question.mode}"
    module = side.set_mode(question.mode)
    batch = side.place(question.inputs, question.mode, question.cotangents)
    given, parameters = _named_inputs(batch), dict(module.named_parameters())
    before = {id(t): t.detach().clone() for t in given.values()}
    values = {name: t.detach().clone() for name, t in parameters.items()}
    gradients: Any = None
    with Snapshot.of_buffers(module).restored():
        if question.mode == "inference":
            with torch.no_grad():
                outputs = module(*batch.args, **batch.kwargs)
        else:
            learnt = list(side.parameters.values())
            outputs, gradients = forward_backward(module, learnt, batch, side.loss, gradients_of)
        now = dict(module.named_parameters())  # it may have put others in their places
        if changed := [n for n, value in values.items() if n not in now or not _same(now[n], value)]:
            raise CaseError(
                f"{whose} changes its own parameters in forward ({_listed(changed)}) {where}, so that each run is of "
                "another model; keep what forward updates in a buffer, and leave parameters to the optimizer; where "
                "only the first call sets them, let the case's reference give a module that was called before"
            )
        if changed := [n for n, t in given.items() if not _same(t, before[id(t)])]:
            raise CaseError(
                f"{whose} changes its inputs in place ({_listed(changed)}) {where}: a caller's tensor has other values "
                "after the call, and no graph can do that; let forward work on a copy (x = x.clone()), or use the "
                "operation that gives a new tensor (x + y for x += y, relu for relu_)"
            )
        _check_outputs(outputs, whose, where, question.mode)
        return side.observe(outputs) if gradients is None else side.observe(outputs, gradients, batch)


def without_which_gradient(side: TorchSide, question: Question) -> str:
    """Of a reference that fails in its backward pass, what to do where it runs once some input has no gradient, as the
    targets that a loss writes to in place; empty where that is of no use."""
    if question.mode != "forward_backward":
        return ""
    module = side.set_mode(question.mode)
    names = list(side.place(question.inputs, question.mode).leaves)
    for spared in dict.fromkeys([*((name,) for name in names), tuple(names)]):
        batch = side.place(question.inputs, question.mode, question.cotangents)
        for name in spared:
            batch.leaves.pop(name).requires_grad_(False)
        try:
            with Snapshot.of_buffers(module).restored():
                forward_backward(module, list(side.parameters.values()), batch, side.loss, gradients_of)
        except Exception:  # it fails as before: another input is what it fails of
            continue
        return (
            f"; it runs where no gradient is taken by {_listed(spared)}: if none is in training, detach that in the "
            "reference (x = x.detach()), and stop its gradient in the port"
        )
    return ""


def check_repeats(
    case: Case, name: str, side: TorchSide, question: Question, first: Observation, second: Observation
) -> None:
    """Whether two runs in float64 on one input agree.

    Args:
      case, name, side: the case, its reference's name, and that in float64.
      question: which input.
      first, second: what the runs gave.

    Raises:
      CaseError: where they do not: the reference is not deterministic.
    """
    gradients = (array for kind, _, array in second.tensors() if kind.endswith("gradient"))
    largest = max(map(magnitude, gradients), default=0.0)
    for kind, tensor, array in second.tensors():
        other = first.find((kind, tensor))
        scale = largest if kind.endswith("gradient") else None
        found = None if other is None else difference(other, array, scale)
        if found is not None and found.equal:
            continue
        values = "" if found is None or not found.port else f": {found.port} and {found.reference} at {found.index}"
        raise CaseError(
            f"case {case.name!r}: the reference {name!r} is not deterministic: two runs in float64 on the input "
            f"{question.label!r} in {question.mode} differ in the {kind.replace('_', ' ')} {tensor}{values}. "
            f"{_why(question.mode, _kept_outside(side, question))}"
        )


def _check_outputs(outputs: Any, whose: str, where: str, mode: str) -> None:
    leaves = named_leaves(outputs)
    advice = "let forward return the tensors that are to be compared: one, or a tuple, dict or dataclass of them"
    if not leaves:
        came = type(outputs).__name__ if outputs is not None else "None"
        raise CaseError(f"{whose} gives {came}, without a tensor in it, {where}; {advice}")
    wrong = {name: type(leaf).__name__ for name, leaf in leaves.items() if not isinstance(leaf, _COMPARABLE)}
    if wrong:
        told = _listed([f"{kind} as {name}" for name, kind in wrong.items()])
        raise CaseError(f"{whose} gives {told} {where}, which cannot be compared; {advice}")
    if mode != "inference" and (lost := [name for name, leaf in leaves.items() if _is_numpy(leaf)]):
        raise CaseError(
            f"{whose} gives numpy's {type(leaves[lost[0]]).__name__} as {_listed(lost)} {where}, through which no "
            f"gradient flows; {advice}, or, where nothing is to be trained, write modes=('inference',)"
        )


def _is_numpy(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic) and is_floating(leaf)


def _kept_outside(side: TorchSide, question: Question) -> list[str]:
    """The attributes of modules, no tensors of the state_dict, that are others after one more run; none where that
    draws, as what was drawn may be kept."""
    from ..training.draws import torch_streams

    before, streams = _plain_attributes(side.module), torch_streams()
    side.run(question.inputs, question.mode, question.cotangents)
    after = _plain_attributes(side.module)
    if torch_streams() != streams:
        return []
    return [name for name, value in after.items() if before.get(name, value) != value]


def _plain_attributes(module: torch.nn.Module) -> dict[str, str]:
    """Numbers, texts, tensors and containers that modules have as attributes, by name, written out."""
    kinds = (int, float, complex, str, tuple, list, dict, set, deque, torch.Tensor, np.ndarray)
    return {
        f"{path}.{name}".lstrip("."): repr(value)[:LONGEST]
        for path, each in module.named_modules()
        for name, value in vars(each).items()
        if isinstance(value, kinds) and name not in ("_parameters", "_buffers", "_modules", "training")
    }


def _why(mode: str, kept: Sequence[str]) -> str:
    if kept:
        return (
            f"It keeps state outside of its buffers, in {_listed([f'self.{name}' for name in kept])}, which no "
            "state_dict has and no run can begin with again: make it a buffer, by self.register_buffer"
        )
    advice = "take what is drawn as an input of the case, or"
    if mode == "inference":
        return (
            "It draws random numbers in evaluation mode (torch.rand, F.dropout without training=self.training), or "
            f"keeps state outside of its buffers; {advice} switch it off in eval()"
        )
    return (
        "It draws random numbers in training mode that are not switched off, as those of torch.nn.Dropout modules are "
        f"(torch.dropout, torch.rand), or keeps state outside of its buffers; {advice} make it a torch.nn.Dropout, or "
        "build both sides with a rate of 0"
    )


def _named_inputs(batch: TorchBatch) -> dict[str, torch.Tensor]:
    placed = batch.kwargs or batch.args
    leaves = jtu.tree_leaves_with_path(placed)
    return {input_name(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    a = a.detach()
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
