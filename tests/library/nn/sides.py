"""A sample as PyTorch runs it, and as it runs here."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare.quick_compile import QUICKLY

import graphmode.nn as ours
from graphmode.weights import load
from graphmode.weights.carry import named_arrays

from .adapters import ADAPTERS, FUNCTION_ADAPTERS, PLAIN, Adapter
from .samples import Sample
from .trees import arrays_of, as_torch_integers, cast, tensors_of, to_jax, with_arrays

Tensors = dict[str, np.ndarray]  # every tensor that comes of a call, by name
SHARED = "gradient"  # tensors of this kind are small or large beside each other


def adapter_of(sample: Sample) -> Adapter:
    table = ADAPTERS if sample.build else FUNCTION_ADAPTERS
    return table.get(sample.subject, PLAIN)


class Theirs:
    """A sample as PyTorch runs it in one dtype.

    Attributes:
      tensors: all that came of it, by name.
      cotangents: numpy arrays, one for each floating output, in order.
      given: keyword arguments for our side that came of the run.
    """

    def __init__(self, sample: Sample, dtype: torch.dtype):
        adapter = adapter_of(sample)
        module = None
        if sample.build:
            module = sample.build()
            self.state = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
            module = module.to(dtype)
        args, kwargs = cast((sample.args, sample.kwargs), dtype)
        torch.manual_seed(sample.index)
        outputs = (module or sample.function)(*args, **kwargs)
        self.given = dict(adapter.given(module, args, kwargs, outputs)) if adapter.given else {}
        flatten = adapter.flatten or (lambda tree: tree)
        found = tensors_of(flatten(outputs))
        self.tensors: Tensors = {f"output{name}": value.detach().numpy().copy() for name, value in found.items()}
        rng = np.random.default_rng(sample.index)
        differentiable = [value for value in found.values() if value.dtype.is_floating_point]
        self.cotangents = [rng.standard_normal(value.shape) for value in differentiable]
        pulled = [value.requires_grad for value in differentiable]
        leaves = {f"gradient{name}": leaf for name, leaf in tensors_of(flatten((args, kwargs))).items()}
        leaves |= {f"gradient {name}": parameter for name, parameter in (module.named_parameters() if module else ())}
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        if any(pulled) and wanted:
            gradients = torch.autograd.grad(
                list(itertools.compress(differentiable, pulled)),
                list(wanted.values()),
                [torch.tensor(c, dtype=dtype) for c in itertools.compress(self.cotangents, pulled)],
                allow_unused=True,
            )
            for (name, leaf), gradient in zip(wanted.items(), gradients, strict=True):
                value = torch.zeros_like(leaf) if gradient is None else gradient.to_dense()
                self.tensors[name] = value.detach().numpy().copy()
        if module:
            kept = ((name, buffer) for name, buffer in module.named_buffers() if name in self.state)
            self.tensors |= {f"buffer {name}": buffer.numpy().copy() for name, buffer in kept}


class Ours:
    """The same sample as it runs here, on the weights, the inputs and the cotangents of PyTorch's run.

    Args:
      like: a draw of the same sample, whose graph is taken where only the numbers in it differ.
    """

    def __init__(self, sample: Sample, theirs: Theirs, layout: str | None, dtype: str, like: Ours | None = None):
        adapter = adapter_of(sample)
        flatten = adapter.flatten or (lambda tree: tree)
        self.tree = (*to_jax(flatten((sample.args, sample.kwargs)), dtype), to_jax(theirs.given, dtype))
        leaves = tensors_of(flatten((sample.args, sample.kwargs))).items()
        inputs = arrays_of(self.tree)
        self.moved = {name: inputs[name] for name, leaf in leaves if leaf.requires_grad}
        self.fixed = {name: value for name, value in inputs.items() if name not in self.moved}
        self.cotangents = [jnp.asarray(c, dtype) for c in theirs.cotangents]
        self.differentiated = any(name.startswith(SHARED) for name in theirs.tensors)
        self.graphdef, self.state, self.rest = None, {}, {}
        if sample.build:
            module = concrete(nnx.eval_shape(lambda: build(sample, adapter, layout, dtype)))
            load(module, {name: v.astype(dtype) if v.dtype.kind == "f" else v for name, v in theirs.state.items()})
            if hasattr(module, "train"):
                (module.train if sample.training else module.eval)()
            self.graphdef, self.state, self.rest = nnx.split(module, nnx.Param, ...)
        self.function = None if sample.build else _function(sample, layout)
        self.adapter, self.layout = adapter, layout
        same = like is not None and (like.graphdef, like.skeleton) == (self.graphdef, self.skeleton)
        self.step: Any = like.step if same else self._step
        options = QUICKLY if dtype == "float64" else None  # float32 as people run it, in a table
        self.graph: Any = like.graph if same else jax.jit(self._step, compiler_options=options)

    @property
    def skeleton(self) -> Any:
        """All of the call that is no array."""
        return with_arrays(self.tree, dict.fromkeys(arrays_of(self.tree)))

    def _forward(self, state, rest, moved, fixed):
        args, kwargs, given = with_arrays(self.tree, {**fixed, **moved})
        called, keywords = self.adapter.inputs(args, {**kwargs, **given}, self.layout)
        module = None if self.graphdef is None else nnx.merge(self.graphdef, state, rest, copy=True)
        outputs = (module or self.function)(*called, **keywords)
        found = arrays_of(self.adapter.outputs(outputs, args, kwargs, self.layout))
        after = nnx.state(module, nnx.Not(nnx.Param)) if module else {}
        floating = {name: v for name, v in found.items() if jnp.issubdtype(v.dtype, jnp.floating)}
        return floating, ({name: v for name, v in found.items() if name not in floating}, after)

    def _step(self, state, rest, moved, fixed, cotangents):
        floating, pull, (others, after) = jax.vjp(
            lambda state, moved: self._forward(state, rest, moved, fixed), state, moved, has_aux=True
        )
        if len(floating) != len(cotangents):
            raise AssertionError(f"{len(floating)} floating outputs, and PyTorch has {len(cotangents)}")
        given = {
            name: cotangent.astype(v.dtype).reshape(v.shape)
            for (name, v), cotangent in zip(floating.items(), cotangents, strict=True)
        }
        return floating, others, after, pull(given)

    def run(self, *, compiled: bool) -> Tensors:
        step = self.graph if compiled else self.step
        found = step(self.state, self.rest, self.moved, self.fixed, self.cotangents)
        floating, others, after, (by_state, by_inputs) = found
        tensors = {f"output{name}": np.asarray(value) for name, value in {**floating, **others}.items()}
        tensors = {name: as_torch_integers(value) for name, value in tensors.items()}
        if self.differentiated:
            tensors |= {f"gradient{name}": np.asarray(value) for name, value in by_inputs.items()}
        if self.graphdef is not None:
            if self.differentiated:
                gradients = nnx.merge(self.graphdef, by_state, self.rest, copy=True)
                found = named_arrays(gradients, of=nnx.Param, gradients=True)
                tensors |= {f"gradient {name}": value for name, value in found.items()}
            kept = nnx.merge(self.graphdef, self.state, after, copy=True)
            parameters = set(named_arrays(kept, of=nnx.Param))
            found = named_arrays(kept)
            tensors |= {f"buffer {name}": value for name, value in found.items() if name not in parameters}
        return tensors


def _function(sample: Sample, layout: str | None) -> Callable[..., Any]:
    function = getattr(ours.functional, sample.subject)
    return function if layout is None else functools.partial(function, data_format=layout)


def concrete(module: nnx.Module) -> nnx.Module:
    """A module of shapes as one of zeros: the quickest there is, for weights that are loaded anyway."""

    def zeros(leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return jnp.zeros(leaf.shape, leaf.dtype)

    graphdef, state = nnx.split(module)
    return nnx.merge(graphdef, jax.tree.map(zeros, state))


def call(sample: Sample, layout: str | None, dtype: str | None) -> Any:
    """Our side alone, as it stands: what it returns, or whatever it raises; in the sample's own dtypes where None."""
    adapter = adapter_of(sample)
    args, kwargs = to_jax((sample.args, sample.kwargs), dtype)
    args, kwargs = adapter.inputs(args, kwargs, layout)
    if sample.build:
        return build(sample, adapter, layout, dtype or "float32")(*args, **kwargs)
    return _function(sample, layout)(*args, **kwargs)


def build(sample: Sample, adapter: Adapter, layout: str | None, dtype: str) -> nnx.Module:
    """Our layer for the constructor arguments of a sample."""
    cls = getattr(ours, sample.subject)
    wanted = inspect.signature(cls.__init__).parameters
    possible = {"rngs": nnx.Rngs(0), "param_dtype": jnp.dtype(dtype)}
    if layout is not None:
        possible["data_format"] = layout
    extras = {name: value for name, value in possible.items() if name in wanted}
    args, kwargs = to_jax(sample.constructor, dtype)
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "dtype")}
    if adapter.build:
        return adapter.build(sample.build, args, kwargs, extras)
    return cls(*args, **kwargs, **extras)
