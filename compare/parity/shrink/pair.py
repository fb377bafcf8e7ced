"""One module of each side with its weights, taken out of a case and run on the same inputs in float64."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import torch
from flax import nnx

from graphmode.weights import as_numpy, named_arrays

from ...case import Case, Mode
from ...jax_side import PortSide
from ...observation import Named
from ...port_program import set_mode, split
from ...torch_side import Snapshot, TorchSide, build_references
from ...trees import is_floating, named_leaves
from ...widened import in_float64
from ..yardstick import Difference, difference, magnitude

Key = tuple[str, str]  # kind and name of a tensor
SMALLEST = 1e-3  # of a tensor's first size: an error is not magnified as the tensor shrinks


@dataclass(frozen=True)
class From:
    """Stands in a call for an input of the reference: with its axes in this order, then of this shape."""

    name: str
    axes: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def __call__(self, arrays: Mapping[str, Any]) -> Any:
        array = arrays[self.name]
        array = array if self.axes is None else array.transpose(self.axes)
        return array if self.shape is None else array.reshape(self.shape)


@dataclass(frozen=True)
class To:
    """Which of the port's outputs, counted from 0, stands for an output of the reference, and its axes' order there.

    `merged` says that axes of the reference's are merged or split in the port.
    """

    name: str
    index: int
    axes: tuple[int, ...]
    merged: bool = False

    def __call__(self, array: Any, origin: tuple[int, ...]) -> Any:
        if self.merged and array.size == np.prod(origin):
            return array.reshape([origin[axis] for axis in self.axes]).transpose(np.argsort(self.axes))
        return array.transpose(np.argsort(self.axes)) if array.ndim == len(self.axes) else array


@dataclass(frozen=True)
class Call:
    """How a module is called: trees of tuples, lists and dicts with a `From` for each array."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def filled(self, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
        def fill(leaf: Any) -> Any:
            return leaf(arrays) if isinstance(leaf, From) else leaf

        return replaced(self.args, fill), replaced(self.kwargs, fill)


@dataclass(frozen=True)
class Spec:
    """Which modules of which case, and how they are called.

    Attributes:
      variant: of the port.
      port, reference: dotted paths; empty for the models themselves.
      mode: that both are in.
      seed: the models are built with.
      port_call, reference_call: with the names of inputs.
      outputs: of the port; empty for the models themselves, where the case's `to_reference` says it.
      dtype: that the port is meant for; both run in float64.
    """

    variant: str
    port: str
    reference: str
    mode: Mode
    seed: int
    reference_call: Call
    port_call: Call
    outputs: tuple[To, ...] = ()
    dtype: str = "float32"


@dataclass(frozen=True)
class Answer:
    """What both modules give on some inputs, by kind and name, in the reference's layout."""

    reference: dict[Key, np.ndarray]
    port: dict[Key, np.ndarray]

    def off(self, key: Key, floor: float = 0.0) -> Difference:
        """How far the port is off in one tensor, of the tensor's size or of `floor`, if that is larger."""
        theirs = self.reference[key]
        scale = max(magnitude(theirs), floor) if is_floating(theirs) else None
        return difference(self.port[key], theirs, scale)


class ModulePair:
    """Two modules that should compute the same.

    Args:
      case: that they are part of.
      spec: which ones.
      weights: of the reference's module, in float32, by its own names; those that it is built with where None.

    Attributes:
      reference, port: the modules, in float64.
    """

    def __init__(self, case: Case, spec: Spec, weights: Mapping[str, np.ndarray] | None = None):
        self.case, self.spec = case, spec
        module = next(iter(build_references(case, spec.seed).values()))
        if weights is not None:
            given = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
            module.get_submodule(spec.reference).load_state_dict(given)
        self.weights = {k: as_numpy(v).copy() for k, v in module.get_submodule(spec.reference).state_dict().items()}
        state_dict = {name: as_numpy(value) for name, value in module.state_dict().items()}
        side = TorchSide(module, case, dtype="float64", device="cpu")
        side.set_mode(spec.mode)
        self.reference = side.module.get_submodule(spec.reference)
        self._port = PortSide(
            case,
            spec.variant,
            state_dict,
            dtype="float64",
            device="cpu",
            seed=spec.seed,
            declared=spec.dtype,
            asked=lambda: side.asked,
        )
        self._in_float64 = functools.partial(in_float64, side.note_asked)
        set_mode(self._port.model, spec.mode)
        self.port = _at(self._port.model, spec.port)
        with self._port.context():
            self._graphdef, self._params, self._rest = split(self.port)
        self._jitted = jax.jit(self._backward, static_argnums=(4, 5))

    def run(self, inputs: Named, *, backward: bool) -> Answer:
        """Outputs of both, and, `backward`, gradients of inputs and parameters for fixed cotangents, and buffers.

        Args:
          inputs: by name, in the reference's layout.
          backward: whether the gradients are wanted.
        """
        inputs = {k: v.astype(np.float64) if is_floating(v) else v for k, v in inputs.items()}
        theirs = self._run_reference(inputs, backward)
        return Answer(theirs, self._run_port(inputs, theirs, backward))

    def _run_reference(self, inputs: Named, backward: bool) -> dict[Key, np.ndarray]:
        spec, module = self.spec, self.reference
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        leaves = {k: t.requires_grad_() for k, t in tensors.items() if t.is_floating_point()} if backward else {}
        with Snapshot.of_buffers(module).restored(), torch.enable_grad():
            # what it writes into an input is not to be there at the next run
            args, kwargs = spec.reference_call.filled({k: t.clone() for k, t in tensors.items()})
            with self._in_float64():
                outputs = named_leaves(module(*args, **kwargs))
            found = {("output", k): as_numpy(v.detach()).copy() for k, v in outputs.items() if torch.is_tensor(v)}
            if not backward:
                return found
            named = {k: p for k, p in module.named_parameters(prefix=spec.reference) if p.requires_grad}
            live = {k: v for k, v in outputs.items() if is_floating(v) and v.requires_grad}
            wanted = [*leaves.values(), *named.values()]
            if live and wanted:
                starts = [torch.from_numpy(cotangent(k, tuple(v.shape))).to(v.dtype) for k, v in live.items()]
                gradients = torch.autograd.grad(list(live.values()), wanted, starts, allow_unused=True)
                kinds = [("input_gradient", k) for k in leaves] + [("parameter_gradient", k) for k in named]
                for key, tensor, gradient in zip(kinds, wanted, gradients, strict=True):
                    found[key] = as_numpy(torch.zeros_like(tensor) if gradient is None else gradient.detach()).copy()
            kept = set(module.state_dict())
            for name, value in module.named_buffers():
                if name in kept:
                    found["buffer", _below(spec.reference, name)] = as_numpy(value).copy()
            return found

    def _run_port(self, inputs: Named, theirs: Mapping[Key, np.ndarray], backward: bool) -> dict[Key, np.ndarray]:
        shapes = tuple((name, array.shape) for (kind, name), array in theirs.items() if kind == "output")
        with self._port.context(), self._port.following():
            floats = {k: jnp.asarray(v) for k, v in inputs.items() if is_floating(v)}
            others = {k: jnp.asarray(v) for k, v in inputs.items() if not is_floating(v)}
            outputs, gradients, state = self._jitted(self._params, self._rest, floats, others, shapes, backward)
            found: dict[Key, np.ndarray] = {("output", k): np.asarray(v) for k, v in outputs.items()}
            if backward:
                by_parameters, by_inputs = gradients
                found |= {("input_gradient", k): np.asarray(v) for k, v in by_inputs.items()}
                found |= {("parameter_gradient", k): v for k, v in self._named(by_parameters, gradients=True).items()}
                found |= {("buffer", k): v for k, v in self._named(state, gradients=False).items()}
        return {key: array for key, array in found.items() if key in theirs}

    def _backward(
        self, params: Any, rest: Any, floats: Named, others: Named, shapes: tuple[Any, ...], backward: bool
    ) -> Any:
        origins = dict(shapes)

        def forward(params: Any, floats: Any) -> Any:
            model = nnx.merge(self._graphdef, params, rest, copy=True)
            args, kwargs = self.spec.port_call.filled({**floats, **others})
            outputs = self._outputs(model(*args, **kwargs), origins)
            heads = {k: v for k, v in outputs.items() if is_floating(v)}
            return heads, (outputs, split(model)[2])

        if not backward:
            _, (outputs, state) = forward(params, floats)
            return outputs, None, state
        heads, pull, (outputs, state) = jax.vjp(forward, params, floats, has_aux=True)
        starts = {k: jnp.asarray(cotangent(k, v.shape), v.dtype) for k, v in heads.items()}
        return outputs, pull(starts), state

    def _outputs(self, outputs: Any, origins: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        if not self.spec.outputs:
            named = named_leaves(self.case.to_reference(outputs))
            return named if named.keys() == origins.keys() else dict(zip(origins, named.values(), strict=True))
        leaves = [leaf for leaf in jtu.tree_leaves(outputs) if hasattr(leaf, "dtype")]
        return {to.name: to(leaves[to.index], origins[to.name]) for to in self.spec.outputs if to.name in origins}

    def _named(self, values: Any, *, gradients: bool) -> Named:
        """The module's values by the names of the whole reference."""
        whole = nnx.clone(self._port.model)
        nnx.update(_at(whole, self.spec.port), values)
        return named_arrays(whole, self.case.weights, of=nnx.Param if gradients else nnx.Variable, gradients=gradients)


def cotangent(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of an output: normal numbers that follow from its name and shape."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)


def replaced(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of tuples, lists and dicts with other leaves."""
    if isinstance(tree, dict):
        return {key: replaced(value, change) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(replaced(value, change) for value in tree)
    return change(tree)


def _at(model: nnx.Module, path: str) -> Any:
    return next(m for at, m in nnx.iter_modules(model, graph=True) if ".".join(map(str, at)) == path)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
