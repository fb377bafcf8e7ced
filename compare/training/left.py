"""What a script is left with after its last step: parameters, buffers, averages and scores, by PyTorch's names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch.optim.swa_utils import AveragedModel

from graphmode.training import TrainState, TrainStep
from graphmode.weights import Drop, GruBiases, SumBiases, WeightRule, named_arrays
from graphmode.weights.plan import make_plan

from ..dtypes import HALF_ULP
from ..parity.yardstick import SMALLEST_SCALE, Difference, difference, magnitude
from ..trees import to_arrays
from .result import EQUAL, Apart, Kept

GROWTH = 100  # of what one rounding of the weights moves, as sums in another order round in every step
LISTED = 5


@dataclass
class Left:
    """What one script is left with.

    Attributes:
      tensors: by kind and PyTorch's name; no averages where there are none.
      scores: by name.
      notes: what it has and cannot be compared.
    """

    tensors: dict[tuple[Kept, str], np.ndarray]
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def find(self, kind: Kept, name: str) -> np.ndarray | None:
        """A parameter of one side may be a buffer of the other."""
        other: dict[Kept, Kept] = {"parameter": "buffer", "buffer": "parameter"}
        return self.tensors.get((kind, name), self.tensors.get((other.get(kind, kind), name)))

    def copy(self) -> Left:
        """In arrays of its own: a script's step writes into what it has."""
        return dataclasses.replace(self, tensors={key: array.copy() for key, array in self.tensors.items()})

    @property
    def parameters(self) -> list[str]:
        return [name for kind, name in self.tensors if kind == "parameter"]

    @property
    def buffers(self) -> list[str]:
        return [name for kind, name in self.tensors if kind == "buffer"]

    @property
    def has_averages(self) -> bool:
        return any(kind == "average" for kind, _ in self.tensors)


def of_reference(module: torch.nn.Module, averages: Sequence[AveragedModel]) -> Left:
    """Of PyTorch's module, and the `AveragedModel`s that its script made."""
    kept = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if torch.is_tensor(tensor)}
    trained = {name: tensor for name, tensor in kept.items() if isinstance(tensor, torch.nn.Parameter)}
    left = Left({(_kind(name in trained), name): array for name, array in to_arrays(kept).items()})
    matching = [found for average in averages if (found := _of_average(module, average, trained))]
    if len(matching) == 1:
        left.tensors.update({("average", name): array for name, array in to_arrays(matching[0]).items()})
    elif averages:
        told = f"{len(averages)} AveragedModels" if len(averages) > 1 else "an AveragedModel"
        why = f"PyTorch's script has {told}, and which of the model's it averages is not clear"
        left.notes.append(f"Not compared: the averages. {why}")
    return left


def of_port(step: TrainStep, state: TrainState, rules: Sequence[WeightRule]) -> Left:
    """Of the port's state, in PyTorch's layout."""
    model = step.model(state)
    left = of_model(model, rules)
    if state.average is not None:
        joined = _joined(model, tuple(rules))
        averages = named_arrays(step.model(state, averaged=True), rules, of=nnx.Param)
        left.tensors.update({("average", name): a for name, a in averages.items() if name not in joined})
    return left


def of_model(model: nnx.Module, rules: Sequence[WeightRule]) -> Left:
    """Of a port's module, in PyTorch's layout."""
    joined = _joined(model, tuple(rules))
    arrays = named_arrays(model, rules)
    trained = named_arrays(model, rules, of=nnx.Param)
    left = Left({(_kind(name in trained), name): a for name, a in arrays.items() if name not in joined})
    if joined:
        left.notes.append(f"Not compared: {_listed(joined)}, for which the port has one bias where PyTorch has two")
    return left


def as_gradients(model: nnx.Module, rules: Sequence[WeightRule]) -> dict[str, np.ndarray]:
    """In PyTorch's layout.

    Args:
      model: the port with gradients in place of its parameters, zero for what is not trained.
      rules: of the weights.
    """
    joined = _joined(model, tuple(rules))
    named = named_arrays(model, rules, of=nnx.Param, gradients=True)
    return {name: array for name, array in named.items() if name not in joined}


def without_parameters(state: nnx.State) -> nnx.State:
    """A copy whose parameters are zero."""
    copied = jax.tree.map(lambda x: x, state)
    for _, variable in nnx.to_flat_state(copied):
        if isinstance(variable, nnx.Param):
            variable.set_value(jnp.zeros_like(variable.get_raw_value()))
    return copied


def compare(
    port: Left, reference: Left, moved: Left | None, rules: Sequence[WeightRule]
) -> tuple[list[Apart], dict[Kept, int], list[str]]:
    """What is off, how much was compared, and what could not be.

    Args:
      port, reference: both in float64.
      moved: the reference's once more, from weights that are off by a rounding. What it moves is not decided by the
        script: a bias before a norm has a gradient of rounding alone, which Adam divides by its size.
      rules: of the weights.
    """
    apart: list[Apart] = []
    notes = [*reference.notes, *port.notes]
    scales = _scales(reference)
    compared: dict[Kept, int] = {}
    loose: list[str] = []
    for (kind, name), wanted in reference.tensors.items():
        if (got := port.find(kind, name)) is None:
            continue
        compared[kind] = compared.get(kind, 0) + 1
        found = difference(got, wanted, scales(kind, wanted))
        if found.error <= EQUAL:
            continue
        if moved is not None and _explains(difference(moved.tensors[kind, name], wanted, scales(kind, wanted)), found):
            loose.append(name)
        else:
            apart.append(Apart(kind, name, found.error, found.index, found.port, found.reference, found.note))
    for name, value in reference.scores.items():
        if name not in port.scores:
            notes.append(f"Not compared: the score {name!r}. The port's scores are {_listed(port.scores) or 'none'}")
            continue
        compared["score"] = compared.get("score", 0) + 1
        found = _score_difference(port.scores[name], value)
        if found.error <= EQUAL:
            continue
        if moved is not None and _explains(_score_difference(moved.scores[name], value), found):
            loose.append(name)
        else:
            apart.append(Apart("score", name, found.error, (), found.port, found.reference))
    if loose:
        notes.append(
            f"Not judged: {_listed(loose)}. PyTorch's own are as far off where its weights start one rounding apart"
        )
    return apart, compared, [*notes, *_missing(port, reference, rules)]


def nudge(module: torch.nn.Module, seed: int) -> None:
    """Moves each floating parameter by one unit in its last place, up or down."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                up = torch.rand(parameter.shape, generator=generator).to(parameter.device) < 0.5
                infinite = torch.full_like(parameter, torch.inf)
                parameter.copy_(torch.nextafter(parameter, torch.where(up, infinite, -infinite)))


def _kind(is_parameter: bool) -> Kept:
    return "parameter" if is_parameter else "buffer"


def _of_average(
    module: torch.nn.Module, average: AveragedModel, trained: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Averaged parameters by the model's names; empty where they are of none of its modules, or of several."""
    found = _parameters(average.module)
    shapes = {name: tensor.shape for name, tensor in found.items()}
    prefixes = [
        f"{path}." if path else ""
        for path, inner in module.named_modules()
        if type(inner) is type(average.module)
        and {name: tensor.shape for name, tensor in _parameters(inner).items()} == shapes
    ]
    if "" not in prefixes and len(prefixes) != 1:
        return {}
    prefix = "" if "" in prefixes else prefixes[0]
    return {prefix + name: tensor for name, tensor in found.items() if prefix + name in trained}


def _parameters(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters(remove_duplicate=False))


def _joined(model: nnx.Module, rules: tuple[WeightRule, ...]) -> set[str]:
    """Keys of which the port has only the sum."""
    plan, _ = make_plan(model, rules)
    return {key for group in plan if isinstance(group.transform, SumBiases | GruBiases) for key in group.keys}


def _scales(reference: Left) -> Callable[[Kept, np.ndarray], float]:
    """What an error is a fraction of: a tensor's own size, of parameters at least a millionth of the largest one's."""
    weights = (array for (kind, _), array in reference.tensors.items() if kind == "parameter")
    least = SMALLEST_SCALE * max(map(magnitude, weights), default=0.0)

    def scale(kind: Kept, array: np.ndarray) -> float:
        return magnitude(array) if kind == "buffer" else max(magnitude(array), least)

    return scale


def _explains(moved: Difference, found: Difference) -> bool:
    return found.error <= GROWTH * moved.error


def _score_difference(port: float, reference: float) -> Difference:
    """Of two numbers; where a script takes its score in float32 whatever the model's dtype is, by float32's digits."""
    found = difference(np.asarray(port, np.float64), np.asarray(reference, np.float64))
    if any(float(np.float32(value)) == value for value in (port, reference)) and found.error <= 4 * HALF_ULP["float32"]:
        return Difference(0.0)
    return found


def _missing(port: Left, reference: Left, rules: Sequence[WeightRule]) -> list[str]:
    notes = []
    dropped = [
        name for kind, name in reference.tensors
        if port.find(kind, name) is None and any(isinstance(rule, Drop) and rule.matches(name) for rule in rules)
    ]  # fmt: skip
    if dropped:
        notes.append(f"Not compared: {_listed(dropped)}, which the weights' rules drop")
    if port.has_averages and not reference.has_averages and not any("averages" in note for note in reference.notes):
        notes.append(
            "Not compared: the averages. The port has some, and PyTorch's script made no "
            "torch.optim.swa_utils.AveragedModel in reference_step; have it make one, or compare them by `scores`"
        )
    if reference.has_averages and not port.has_averages:
        notes.append(
            "Not compared: the averages. PyTorch's script has some, and the port none; give train_step "
            "averaging=gm.optim.ema(decay) or gm.optim.swa()"
        )
    return notes


def _listed(names: Iterable[str]) -> str:
    given = list(names)
    more = f" and {len(given) - LISTED} more" if len(given) > LISTED else ""
    return ", ".join(given[:LISTED]) + more
