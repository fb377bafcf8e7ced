"""`graphed`: a module or function as one compiled graph, with no Python between its operations, little before them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx

from .command_buffers import command_buffer_options


class Gradients(NamedTuple):
    """What a graph with a backward pass gives beside its outputs.

    Attributes:
      parameters: by the dotted path of each floating `nnx.Param`.
      inputs: `(args, kwargs)` as they were called with, None in place of what is not floating, as complex numbers.
    """

    parameters: dict[str, jax.Array]
    inputs: tuple[tuple[Any, ...], dict[str, Any]]


class Spec(NamedTuple):
    """What the guard lets through for one array: as the sample gave it, and as JAX holds it."""

    name: str
    shape: tuple[int, ...]
    given: np.dtype[Any]
    held: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.held}{list(self.shape)}"


def graphed(
    module_or_fn: nnx.Module | Callable[..., Any],
    *sample_args: Any,
    backward: bool = False,
    compiler_options: Mapping[str, str | bool | int | float] | None = None,
    **sample_kwargs: Any,
) -> Graphed:
    """Turns a module or a function into one compiled graph for inputs of the sample's structure, shapes and dtypes.

    What `torch.cuda.make_graphed_callables` is for CUDA graphs. Only flat lists of arrays cross the boundary: the trees
    of modules, inputs and outputs are taken apart once, here.

    Modules stay live. The graph reads the current values of their variables at each call, and writes back those that
    the call changes, such as running statistics. Another variable in the place of one is not seen, and the old one goes
    on: give it another value, as by `linear.kernel[...] = w` or `nnx.update`. Where a function takes modules as sample
    arguments, they are bound: leave them out when calling. Static attributes (training or evaluation mode) are those of
    now.

    Args:
      module_or_fn: an `nnx.Module`, or a function of arrays and modules; traced once.
      *sample_args: arrays (or `jax.ShapeDtypeStruct`s) and pytrees of them, as a call will bring them; and modules.
      backward: the graph computes gradients too. It is then called with `cotangent=`, a tree like the outputs, which a
        scalar output may leave out, and returns `(outputs, Gradients)`.
      compiler_options: XLA's, for this graph alone, as `jax.jit` takes them:
        `{"xla_gpu_enable_command_buffer": ""}` runs it without CUDA graphs. An unknown one is refused by XLA at the
        first call. None for those of `command_buffer_options`, with which CUDA graphs hold convolutions and loops too;
        `{}` for XLA's defaults.
      **sample_kwargs: likewise, by name.

    Returns:
      A callable. What a call brings must have the sample's structure, shapes and dtypes.

    Raises:
      TypeError: where `module_or_fn` cannot be called, or a sample is no array; when called with another structure or
        dtype.
      ValueError: when called with another shape.

    Example:
      >>> import jax.numpy as jnp
      >>> from flax import nnx
      >>> fast = graphed(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), jnp.ones((4, 3)))
      >>> fast(jnp.ones((4, 3))).shape
      (4, 2)
    """
    if not callable(module_or_fn):
        raise TypeError(f"module_or_fn is {type(module_or_fn).__name__}; give an nnx.Module or a function")
    return Graphed(module_or_fn, sample_args, sample_kwargs, backward=backward, compiler_options=compiler_options)


class Graphed:
    """One compiled graph; made by `graphed`.

    Attributes:
      traces: how often Python ran through the target; the guard keeps it at 1.
    """

    def __init__(
        self,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        backward: bool,
        compiler_options: Mapping[str, str | bool | int | float] | None,
    ):
        self.traces = 0
        self._backward = backward
        self._call = _Call(target, args, kwargs)
        sample, treedef = jtu.tree_flatten(self._call.free)
        self._treedef: Any = treedef
        names = self._call.names()
        self._specs = [_spec(name, leaf) for name, leaf in zip(names, sample, strict=True)]
        self._guard = [(spec.shape, spec.held) for spec in self._specs]

        self._graphdef, state = nnx.split(self._call.modules)
        held = jtu.tree_leaves_with_path(state, is_leaf=lambda x: isinstance(x, nnx.Variable))
        self._state_treedef = jtu.tree_structure(state)
        live = {tuple(map(str, p)): v for p, v in nnx.iter_graph(self._call.modules) if isinstance(v, nnx.Variable)}
        self._paths = [tuple(str(getattr(k, "key", k)) for k in path) for path, _ in held]
        self._variables = [live.get(path) for path in self._paths]
        self._constants = [leaf for _, leaf in held]
        self._trained = [
            i for i, v in enumerate(self._variables) if isinstance(v, nnx.Param) and _is_floating(v.get_value())
        ]
        self._floating = [i for i, spec in enumerate(self._specs) if jnp.issubdtype(spec.held, jnp.floating)]
        self._changed: tuple[int, ...] = ()
        self._out_treedef: Any = None
        self._out_floating: list[int] = []
        options = command_buffer_options() if compiler_options is None else dict(compiler_options)
        self._traced = jax.jit(self._forward)  # traced once, whichever of the next two calls it
        self._run = jax.jit(self._forward_backward if backward else self._traced, compiler_options=options)
        # JAX's own dispatch takes arrays apart and holds them against what was traced, without Python.
        self._direct = jax.jit(self._unguarded, compiler_options=options)

        shapes = [jax.ShapeDtypeStruct(spec.shape, spec.held) for spec in self._specs]
        if backward:  # the forward pass alone tells what a cotangent must look like
            outputs, _ = jax.eval_shape(self._forward, self._state(), shapes)
            self._out_floating = [i for i, leaf in enumerate(outputs) if _is_floating(leaf)]
            self._out_specs = [_spec(f"cotangent[{i}]", outputs[i]) for i in self._out_floating]
            self.traces = 0
        else:
            jax.eval_shape(self._traced, self._state(), shapes)
        self._is_direct = not backward and not self._changed

    def __call__(self, *args: Any, cotangent: Any = None, **kwargs: Any) -> Any:
        if self._is_direct and cotangent is None and _are_arrays(args, kwargs):
            return self._direct(*self._state(), *args, **kwargs) if self._constants else self._direct(*args, **kwargs)
        leaves, treedef = jtu.tree_flatten((args, kwargs))
        if treedef != self._treedef:
            raise TypeError(self._structure_message(treedef))
        for i, leaf in enumerate(leaves):
            if (getattr(leaf, "shape", None), getattr(leaf, "dtype", None)) != self._guard[i]:
                leaves[i] = _admit(self._specs[i], leaf)
        state = self._state()
        if self._is_direct and cotangent is None:
            args, kwargs = jtu.tree_unflatten(treedef, leaves)
            return self._direct(*state, *args, **kwargs)
        if self._backward:
            outputs, changed, by_state, by_inputs = self._run(state, leaves, self._starts(cotangent))
        elif cotangent is None:
            outputs, changed = self._run(state, leaves)
        else:
            raise TypeError("cotangent came to a graph without a backward pass; make it with backward=True")
        for index, value in zip(self._changed, changed, strict=True):
            self._variables[index].set_value(value)  # type: ignore[union-attr]
        result = jtu.tree_unflatten(self._out_treedef, outputs)
        if not self._backward:
            return result
        named = {".".join(self._paths[i][1:]): g for i, g in zip(self._trained, by_state, strict=True)}
        holes: list[Any] = [None] * len(leaves)
        for i, gradient in zip(self._floating, by_inputs, strict=True):
            holes[i] = gradient
        return result, Gradients(named, jtu.tree_unflatten(self._treedef, holes))

    def _unguarded(self, *state_and_args: Any, **kwargs: Any) -> Any:
        """Traced once for arrays as the sample's; whatever else comes is traced, and so told, here."""
        state, args = state_and_args[: len(self._constants)], state_and_args[len(self._constants) :]
        leaves, treedef = jtu.tree_flatten((args, kwargs))
        if treedef != self._treedef:
            raise TypeError(self._structure_message(treedef))
        admitted = [_admit(spec, leaf).astype(spec.held) for spec, leaf in zip(self._specs, leaves, strict=True)]
        outputs, _ = self._traced(list(state), admitted)
        return jtu.tree_unflatten(self._out_treedef, outputs)

    def _state(self) -> list[Any]:
        pairs = zip(self._variables, self._constants, strict=True)
        return [c if v is None else v.get_raw_value() for v, c in pairs]

    def _forward(self, state: list[Any], leaves: list[Any]) -> tuple[list[Any], list[Any]]:
        self.traces += 1
        modules = nnx.merge(self._graphdef, jtu.tree_unflatten(self._state_treedef, state), copy=True)
        before = self._values(modules)
        args, kwargs = jtu.tree_unflatten(self._treedef, leaves)
        outputs, self._out_treedef = jtu.tree_flatten(self._call.apply(modules, args, kwargs))
        after = self._values(modules)
        self._changed = tuple(i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a is not b)
        return outputs, [after[i] for i in self._changed]

    def _forward_backward(self, state: list[Any], leaves: list[Any], starts: list[Any]) -> tuple[Any, ...]:
        def forward(trained: list[Any], floating: list[Any]) -> tuple[list[Any], tuple[list[Any], list[Any]]]:
            full_state, full_leaves = list(state), list(leaves)
            for i, value in zip(self._trained, trained, strict=True):
                full_state[i] = value
            for i, value in zip(self._floating, floating, strict=True):
                full_leaves[i] = value
            outputs, changed = self._forward(full_state, full_leaves)
            return [outputs[i] for i in self._out_floating], (outputs, changed)

        trained, floating = [state[i] for i in self._trained], [leaves[i] for i in self._floating]
        _, pull, (outputs, changed) = jax.vjp(forward, trained, floating, has_aux=True)
        return outputs, changed, *pull(starts)

    def _values(self, modules: Any) -> list[Any]:
        """The arrays in the order of the flat state."""
        found = {tuple(map(str, p)): v for p, v in nnx.iter_graph(modules) if isinstance(v, nnx.Variable)}
        return [found[path].get_raw_value() if path in found else None for path in self._paths]

    def _starts(self, cotangent: Any) -> list[Any]:
        if cotangent is None:
            if len(self._out_specs) == 1 and self._out_specs[0].shape == ():
                return [jnp.ones((), self._out_specs[0].held)]
            wanted = ", ".join(map(str, self._out_specs))
            raise TypeError(f"cotangent is missing, and the outputs are no single scalar; give a tree of {wanted}")
        given = jtu.tree_leaves(cotangent)
        if len(given) == len(self._out_specs):
            return [_admit(spec, leaf) for spec, leaf in zip(self._out_specs, given, strict=True)]
        raise TypeError(f"cotangent has {len(given)} arrays, and {len(self._out_specs)} floating outputs were wanted")

    def _structure_message(self, treedef: Any) -> str:
        wanted = ", ".join(f"{spec.name}: {spec}" for spec in self._specs) or "no arrays"
        return (
            f"the arguments have the structure {treedef}, and {self._treedef} was wanted ({wanted}); call it as the "
            "sample was given, bound modules left out, or make another graph with gm.graphed"
        )


class _Call:
    """The target, with the modules among its sample arguments bound."""

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self._target = target
        self._count = len(args)
        named: dict[int | str, Any] = dict(enumerate(args))
        named.update(kwargs)
        self._bound = [key for key, value in named.items() if isinstance(value, nnx.Module)]
        self.modules: dict[str, nnx.Module] = {str(key): named[key] for key in self._bound}
        self._is_module = isinstance(target, nnx.Module)
        if self._is_module:
            self.modules["self"] = target
        self.free = (
            tuple(a for i, a in enumerate(args) if i not in self._bound),
            {k: v for k, v in kwargs.items() if k not in self._bound},
        )

    def apply(self, modules: dict[str, nnx.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rest = iter(args)
        full = [modules[str(i)] if i in self._bound else next(rest) for i in range(self._count)]
        bound = {key: modules[key] for key in self._bound if isinstance(key, str)}
        target = modules["self"] if self._is_module else self._target
        return target(*full, **bound, **kwargs)

    def names(self) -> list[str]:
        """The name of each free array, as a caller knows it: `x`, `batch['mask']`."""
        try:
            parameters = list(inspect.signature(self._target).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        free = [i for i in range(self._count) if i not in self._bound]
        names = []
        for (side, first, *rest), _ in jtu.tree_leaves_with_path(self.free):
            if side.idx == 0:
                position = free[first.idx]
                name = positional[position] if position < len(positional) else f"args[{position}]"
            else:
                name = str(first.key)
            names.append(name + jtu.keystr(tuple(rest)))
        return names


def _spec(name: str, leaf: Any) -> Spec:
    if isinstance(leaf, bool | int | float | complex):
        leaf = jax.eval_shape(jnp.asarray, leaf)
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise TypeError(f"{name} is {type(leaf).__name__} in the sample, and an array was wanted; close over it")
    held: Any = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
    return Spec(name, tuple(leaf.shape), leaf.dtype, held)


def _admit(spec: Spec, leaf: Any) -> Any:
    """The array as the graph takes it, where it differs from the sample in nothing that matters."""
    if isinstance(leaf, bool | int | float | complex):
        leaf = jnp.asarray(leaf)
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise TypeError(f"{spec.name} is {type(leaf).__name__}, and {spec} was wanted")
    if tuple(leaf.shape) != spec.shape:
        raise ValueError(
            f"{spec.name} has shape {list(leaf.shape)}, and {spec} was wanted: one graph takes one shape; pad, or make "
            "another graph with gm.graphed"
        )
    if leaf.dtype not in (spec.given, spec.held):
        raise TypeError(f"{spec.name} has dtype {leaf.dtype}, and {spec} was wanted: cast it, or make another graph")
    return leaf


def _are_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether JAX tells what they are: of numpy's float64 it would make float32, and of a number an array."""
    leaves = jtu.tree_leaves((args, kwargs)) if kwargs else args
    return all([isinstance(leaf, jax.Array) for leaf in leaves])  # noqa: C419  a generator costs more, at every call


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)
