"""The eager PyTorch side of a case: built, placed, run and observed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np
import torch
from torch.utils import _pytree as pytree

from graphmode.weights import Drop, WeightRule

from .case import Case, CaseError, Inputs, Mode
from .draw import input_name
from .dtypes import torch_dtype
from .observation import Observation
from .trees import is_floating, named_leaves, to_arrays

_NORMS = (torch.nn.modules.batchnorm._NormBase,)


@dataclass(frozen=True)
class TorchBatch:
    """One set of inputs on the device, with what the backward pass starts from.

    Attributes:
      args, kwargs: as the module takes them.
      leaves: the floating tensors among them, by name, that gradients are taken by; empty in inference.
      cotangents: by the name of each floating output; None for a loss.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, torch.Tensor]
    cotangents: dict[str, torch.Tensor] | None = None

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        """Those of the inputs in PyTorch's order, then the cotangents; found once, since a row asks at each call."""
        leaves = pytree.tree_leaves((self.args, self.kwargs, self.cotangents))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def build_references(case: Case, seed: int) -> dict[str, torch.nn.Module]:
    """Every variant of the reference in float32 with the judge's weights.

    A parameter or running statistic whose elements are all equal, as initialisation leaves it, would hide that it is
    lost, swapped or transposed; it is moved by up to a quarter, seeded.

    Raises:
      CaseError: where a variant is no module, or does not take the judge's `state_dict`.
    """
    built: dict[str, torch.nn.Module] = {}
    with torch.random.fork_rng(devices=[]):
        for name, make in case.references.items():
            torch.manual_seed(seed)
            module = make()
            if not isinstance(module, torch.nn.Module):
                raise CaseError(
                    f"case {case.name!r}: reference {name!r} gives {type(module).__name__}, and a torch.nn.Module was "
                    "wanted; wrap a function in a module whose forward calls it"
                )
            built[name] = module.float()
    judge_name, judge = next(iter(built.items()))
    _perturb(judge, case.weights, seed)
    for name, module in built.items():
        if name != judge_name:
            try:
                module.load_state_dict(judge.state_dict(), strict=True)
            except RuntimeError as error:
                raise CaseError(
                    f"case {case.name!r}: the reference's variant {name!r} does not take the state_dict of "
                    f"{judge_name!r}: {error}"
                ) from error
    return built


class TorchSide:
    """One variant of the reference in one dtype on one device.

    Args:
      module: in float32; a copy is made and cast.
      case: for its loss.
      dtype: `"float64"`, or one of `RUN_DTYPES`.
      device: a torch device, `"cpu"` or `"cuda"`.
    """

    def __init__(self, module: torch.nn.Module, case: Case, *, dtype: str, device: str):
        self.case = case
        self.dtype, self.dtype_name = torch_dtype(dtype), dtype
        self.device = device
        self.memory_format: torch.memory_format | None = None  # of the rank-4 inputs that are placed
        self.module = copy.deepcopy(module).to(device=device, dtype=self.dtype)
        self.parameters = {k: p for k, p in self.module.named_parameters(remove_duplicate=False) if p.requires_grad}
        persistent = self.module.state_dict(keep_vars=True)
        self.buffers = {k: v for k, v in persistent.items() if not isinstance(v, torch.nn.Parameter)}

    def set_mode(self, mode: Mode) -> torch.nn.Module:
        """Evaluation mode for inference; training mode otherwise, dropout being off in both."""
        self.module.train(mode != "inference")
        for child in self.module.modules():
            if isinstance(child, torch.nn.modules.dropout._DropoutNd):
                child.eval()
        return self.module

    def place(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> TorchBatch:
        """Numpy inputs as tensors on the device, floating ones in this side's dtype."""
        leaves: dict[str, torch.Tensor] = {}

        def convert(path: Any, value: Any) -> Any:
            if not isinstance(value, np.ndarray | np.generic):
                return value
            tensor = torch.from_numpy(np.array(value)).to(self.device)
            if tensor.is_floating_point():
                tensor = tensor.to(self.dtype)
                if self.memory_format is not None and tensor.ndim == 4:
                    tensor = tensor.to(memory_format=self.memory_format)
                if mode != "inference":
                    leaves[input_name(path)] = tensor.requires_grad_()
            return tensor

        placed = jtu.tree_map_with_path(convert, inputs)
        args, kwargs = ((), placed) if isinstance(placed, dict) else (tuple(placed), {})
        heads = None
        if cotangents is not None:
            heads = {k: torch.from_numpy(np.array(v)).to(self.device, self.dtype) for k, v in cotangents.items()}
        return TorchBatch(args, kwargs, leaves, heads)

    def run(self, inputs: Inputs, mode: Mode, cotangents: Mapping[str, np.ndarray] | None = None) -> Observation:
        """One eager run from the same buffers each time."""
        module = self.set_mode(mode)
        before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        batch = self.place(inputs, mode, cotangents)
        try:
            if mode == "inference":
                with torch.no_grad():
                    return self.observe(module(*batch.args, **batch.kwargs))
            outputs, gradients = forward_backward(module, list(self.parameters.values()), batch, self.loss)
            return self.observe(outputs, gradients, batch)
        finally:
            with torch.no_grad():
                for buffer, value in before:
                    buffer.copy_(value)

    @property
    def loss(self) -> Any:
        return self.case.loss[0] if self.case.loss else None

    def observe(
        self,
        outputs: Any,
        gradients: Sequence[torch.Tensor | None] | None = None,
        batch: TorchBatch | None = None,
    ) -> Observation:
        """Names what a run gave; an absent gradient is zero."""
        named, aliases = to_arrays(named_leaves(outputs)), tuple(named_leaves(outputs, fields=False))
        if gradients is None or batch is None:
            return Observation(outputs=named, aliases=aliases)
        count = len(self.parameters)
        return Observation(
            outputs=named,
            aliases=aliases,
            parameter_gradients=_named_gradients(self.parameters, gradients[:count]),
            input_gradients=_named_gradients(batch.leaves, gradients[count:]),
            buffers={k: v.copy() for k, v in to_arrays(self.buffers).items()},
        )


def forward_backward(module: Any, parameters: list[torch.Tensor], batch: TorchBatch, loss: Any) -> tuple[Any, Any]:
    """Outputs, and gradients by parameters and floating inputs, in that order."""
    outputs = module(*batch.args, **batch.kwargs)
    if loss is not None:
        heads: list[torch.Tensor] = [loss(outputs)]
        starts: list[torch.Tensor | None] = [None]
    else:
        leaves = named_leaves(outputs)
        live = [name for name, leaf in leaves.items() if is_floating(leaf) and leaf.requires_grad]
        heads = [leaves[name] for name in live]
        starts = [batch.cotangents[name] for name in live]  # type: ignore[index]
    wanted = [*parameters, *batch.leaves.values()]
    if not heads or not wanted:
        return outputs, [None] * len(wanted)
    return outputs, torch.autograd.grad(heads, wanted, starts, allow_unused=True)


def _named_gradients(
    wanted: Mapping[str, torch.Tensor], gradients: Sequence[torch.Tensor | None]
) -> dict[str, np.ndarray]:
    pairs = zip(wanted.items(), gradients, strict=True)
    return to_arrays({name: torch.zeros_like(tensor) if g is None else g for (name, tensor), g in pairs})


def _perturb(module: torch.nn.Module, rules: Sequence[WeightRule], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kept = [rule for rule in rules if isinstance(rule, Drop)]
    statistics = {
        f"{path}.{name}" if path else name
        for path, child in module.named_modules()
        if isinstance(child, _NORMS)
        for name in ("running_mean", "running_var")
    }
    with torch.no_grad():
        for name, value in module.state_dict(keep_vars=True).items():
            eligible = isinstance(value, torch.nn.Parameter) or name in statistics
            if not eligible or not value.is_floating_point() or value.numel() < 2 or any(r.matches(name) for r in kept):
                continue
            if torch.all(value == value.flatten()[0]):
                noise = torch.rand(value.shape, generator=generator) - 0.5
                value.copy_(value * (1 + noise / 2) + (value == 0) * noise / 2)
