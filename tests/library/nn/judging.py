"""Runs a sample on both sides and compares all that comes of it, by the two verdicts of `graphmode.compare`."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from graphmode.compare.dtypes import HALF_ULP
from graphmode.compare.parity.yardstick import (
    EQUAL_TOLERANCE,
    JUDGED_ELEMENTS,
    PRECISE_RATIO,
    difference,
    magnitude,
    rms,
    rms_error,
)

import graphmode.nn as ours
from graphmode.weights import load
from graphmode.weights.carry import named_arrays

from .adapters import ADAPTERS, FUNCTION_ADAPTERS, PLAIN, Adapter
from .samples import FLOATS, Sample

Tensors = dict[str, np.ndarray]  # every tensor that comes of a call, by name
SHARED = "gradient"  # tensors of this kind are small or large beside each other


@dataclass
class Verdict:
    """What came of all samples of one class or function.

    Attributes:
      name: of it.
      tried, agreed: numbers of samples, each counted once a layout.
      skipped: reasons, with how many samples each.
      error: the largest in float64, as a fraction of its tensor's scale.
      ratio: the largest of the float32 error to PyTorch's own.
      failures: what differed, sample by sample.
    """

    name: str
    tried: int = 0
    agreed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    error: float = 0.0
    ratio: float = 0.0
    failures: list[str] = field(default_factory=list)


def adapter_of(sample: Sample) -> Adapter:
    table = ADAPTERS if sample.build else FUNCTION_ADAPTERS
    return table.get(sample.subject, PLAIN)


def judge_equal(
    sample: Sample, verdict: Verdict, *, compiled: bool = False, layouts: Sequence[str] | None = None
) -> None:
    """Both sides in float64, in every layout: outputs, gradients of inputs and parameters, buffers.

    Args:
      sample: in float64.
      verdict: that it is entered into.
      compiled: whether ours runs under `jax.jit`.
      layouts: to run ours in, where it has any; all of them where None.
    """
    adapter = adapter_of(sample)
    if adapter.skip and (reason := adapter.skip(sample.args, sample.kwargs)):
        verdict.skipped[reason] = verdict.skipped.get(reason, 0) + 1
        return
    theirs = Theirs(sample, torch.float64)
    entering = adapter.scale(theirs.tensors, sample.args, sample.kwargs) if adapter.scale else {}
    for layout in (adapter.layouts and layouts) or adapter.layouts or (None,):
        verdict.tried += 1
        problems = []
        try:
            with jax.enable_x64(True):
                port = Ours(sample, theirs, layout, "float64").run(compiled=compiled or adapter.compiled)
        except Exception as error:
            verdict.failures.append(f"{_told(sample, layout)}: {type(error).__name__}: {str(error)[:400]}")
            continue
        largest = max((magnitude(a) for name, a in theirs.tensors.items() if name.startswith(SHARED)), default=0.0)
        for name in sorted(theirs.tensors.keys() | port.keys()):
            if name not in port or name not in theirs.tensors:
                problems.append(f"{name} is missing on {'our' if name not in port else 'their'} side")
                continue
            scale = largest if name.startswith(SHARED) else None
            if name in entering:
                scale = max(entering[name], scale or magnitude(theirs.tensors[name]))
            found = difference(port[name], theirs.tensors[name], scale)
            if np.isfinite(found.error):
                verdict.error = max(verdict.error, found.error)
            if found.error > EQUAL_TOLERANCE:
                where = f" at {found.index}: ours {found.port}, theirs {found.reference}" if found.index else ""
                problems.append(f"{name} off by {found.error:.2g}{where} {found.note}")
        if problems:
            verdict.failures.append(f"{_told(sample, layout)}: {'; '.join(problems)}")
        else:
            verdict.agreed += 1


def judge_precise(draws: list[Sample], verdict: Verdict) -> None:
    """Both sides in float32 against PyTorch in float64, pooled over draws of the same sample.

    The root mean square errors of each tensor over all draws; at least half an ulp of what it is made of is granted.
    Tensors with fewer than 64 elements in all are not judged.
    """
    adapter = adapter_of(draws[0])
    if adapter.skip and adapter.skip(draws[0].args, draws[0].kwargs):
        return
    truth = [Theirs(sample, torch.float64) for sample in draws]
    usual = [Theirs(sample, torch.float32) for sample in draws]
    asks_float64 = any(value is torch.float64 for value in draws[0].kwargs.values())  # JAX has none without x64
    for layout in adapter.layouts[:1] or (None,):
        try:
            with jax.enable_x64(asks_float64):
                port = [
                    Ours(sample, theirs, layout, "float32").run(compiled=adapter.compiled)
                    for sample, theirs in zip(draws, usual, strict=True)
                ]
        except Exception as error:
            verdict.failures.append(f"{_told(draws[0], layout)} in float32: {type(error).__name__}: {str(error)[:400]}")
            return
        for name, first in truth[0].tensors.items():
            if first.dtype.kind != "f" or any(name not in one for one in port):
                continue
            shapes = {one.tensors.get(name, first).shape for one in (*truth, *usual)} | {p[name].shape for p in port}
            if len(shapes) > 1:
                continue  # the sizes were drawn too
            exact, theirs, mine = (
                np.stack([one[name] for one in side])
                for side in ([t.tensors for t in truth], [t.tensors for t in usual], port)
            )
            if exact.size < JUDGED_ELEMENTS:
                continue
            scale = rms(exact)
            if name.startswith(SHARED):
                scale = max(rms(array) for t in truth for n, array in t.tensors.items() if n.startswith(SHARED))
            if adapter.scale:
                given = adapter.scale(truth[0].tensors, draws[0].args, draws[0].kwargs)
                scale = max(scale, given.get(name, 0.0))
            floor = max(rms_error(theirs, exact), HALF_ULP["float32"] * scale, np.finfo(np.float32).tiny)
            ratio = rms_error(mine, exact) / floor
            verdict.ratio = max(verdict.ratio, ratio)
            if not ratio <= PRECISE_RATIO:
                verdict.failures.append(f"{_told(draws[0], layout)}: {name} has {ratio:.3g} times PyTorch's error")


def _told(sample: Sample, layout: str | None) -> str:
    return f"{sample.label}{f' {layout}' if layout else ''} {_short(sample)}"


def _short(sample: Sample) -> str:
    def told(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(told, value))})"
        return repr(value)[:60]

    built = [*map(told, sample.constructor[0]), *(f"{k}={told(v)}" for k, v in sample.constructor[1].items())]
    called = [*map(told, sample.args), *(f"{k}={told(v)}" for k, v in sample.kwargs.items())]
    return f"[{', '.join(built)}]({', '.join(called)})"


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
        args, kwargs = _cast((sample.args, sample.kwargs), dtype)
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
    """The same sample as it runs here, on the weights, the inputs and the cotangents of PyTorch's run."""

    def __init__(self, sample: Sample, theirs: Theirs, layout: str | None, dtype: str):
        self.adapter = adapter_of(sample)
        self.sample, self.theirs, self.layout, self.dtype = sample, theirs, layout, dtype
        flatten = self.adapter.flatten or (lambda tree: tree)
        self.args, self.kwargs = to_jax(flatten((sample.args, sample.kwargs)), dtype)
        leaves = tensors_of(flatten((sample.args, sample.kwargs))).items()
        self.names = {f"gradient{name}" for name, leaf in leaves if leaf.requires_grad}
        self.given = to_jax(theirs.given, dtype)
        self.module = None
        if sample.build:
            self.module = build(sample, self.adapter, layout, dtype)
            state = {
                name: value.astype(dtype) if value.dtype.kind == "f" else value for name, value in theirs.state.items()
            }
            load(self.module, state)
            if hasattr(self.module, "train"):
                (self.module.train if sample.training else self.module.eval)()

    def run(self, *, compiled: bool) -> Tensors:
        inputs = {f"gradient{name}": leaf for name, leaf in arrays_of((self.args, self.kwargs)).items()}
        moved = {name: inputs[name] for name in self.names}
        if self.module is None:
            state, rest, merge = {}, {}, None
        else:
            graphdef, state, rest = nnx.split(self.module, nnx.Param, ...)
            merge = lambda state, rest: nnx.merge(graphdef, state, rest, copy=True)  # noqa: E731
        function = None if self.module is not None else self._function()
        cotangents = [jnp.asarray(c, self.dtype) for c in self.theirs.cotangents]

        def forward(state, rest, moved, fixed):
            args, kwargs = with_arrays((self.args, self.kwargs), {**fixed, **moved})
            called, keywords = self.adapter.inputs(args, {**kwargs, **self.given}, self.layout)
            module = merge(state, rest) if merge else None
            outputs = (module or function)(*called, **keywords)
            outputs = self.adapter.outputs(outputs, args, kwargs, self.layout)
            found = arrays_of(outputs)
            after = nnx.state(module, nnx.Not(nnx.Param)) if merge else {}
            floating = {name: v for name, v in found.items() if jnp.issubdtype(v.dtype, jnp.floating)}
            return floating, ({name: v for name, v in found.items() if name not in floating}, after)

        def step(state, rest, moved, fixed, cotangents):
            floating, pull, (others, after) = jax.vjp(
                lambda state, moved: forward(state, rest, moved, fixed), state, moved, has_aux=True
            )
            if len(floating) != len(cotangents):
                raise AssertionError(f"{len(floating)} floating outputs, and PyTorch has {len(cotangents)}")
            given = {
                name: cotangent.astype(v.dtype).reshape(v.shape)
                for (name, v), cotangent in zip(floating.items(), cotangents, strict=True)
            }
            return floating, others, after, pull(given)

        fixed = {name: value for name, value in inputs.items() if name not in moved}
        run = jax.jit(step) if compiled else step
        floating, others, after, (by_state, by_inputs) = run(state, rest, moved, fixed, cotangents)
        tensors = {f"output{name}": np.asarray(value) for name, value in {**floating, **others}.items()}
        tensors = {name: _as_torch_integers(value) for name, value in tensors.items()}
        if any(name.startswith(SHARED) for name in self.theirs.tensors):
            tensors |= {name: np.asarray(value) for name, value in by_inputs.items()}
        if self.module is not None:
            if any(name.startswith(SHARED) for name in self.theirs.tensors):
                gradients = nnx.merge(graphdef, by_state, rest, copy=True)
                found = named_arrays(gradients, of=nnx.Param, gradients=True)
                tensors |= {f"gradient {name}": value for name, value in found.items()}
            kept = nnx.merge(graphdef, state, after, copy=True)
            parameters = set(named_arrays(kept, of=nnx.Param))
            found = named_arrays(kept)
            tensors |= {f"buffer {name}": value for name, value in found.items() if name not in parameters}
        return tensors

    def _function(self) -> Callable[..., Any]:
        function = getattr(ours.functional, self.sample.subject)
        if self.layout is None:
            return function
        return lambda *args, **kwargs: function(*args, **kwargs, data_format=self.layout)


def call(sample: Sample, layout: str | None, dtype: str | None) -> Any:
    """Our side alone, as it stands: what it returns, or whatever it raises; in the sample's own dtypes where None."""
    adapter = adapter_of(sample)
    args, kwargs = to_jax((sample.args, sample.kwargs), dtype)
    args, kwargs = adapter.inputs(args, kwargs, layout)
    if sample.build:
        return build(sample, adapter, layout, dtype or "float32")(*args, **kwargs)
    extras = {} if layout is None else {"data_format": layout}
    return getattr(ours.functional, sample.subject)(*args, **kwargs, **extras)


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


def to_jax(tree: Any, dtype: str | None) -> Any:
    """Tensors as jax arrays, floating ones in `dtype`; torch's functions as ours of that name; the rest as it is."""
    if isinstance(tree, torch.Tensor):
        array = tree.detach().cpu().numpy()
        return jnp.asarray(array, dtype) if dtype and tree.dtype in FLOATS else jnp.asarray(array)
    if isinstance(tree, np.ndarray):
        return jnp.asarray(tree, dtype) if tree.dtype.kind == "f" else jnp.asarray(tree)
    if isinstance(tree, tuple | list):
        items = [to_jax(item, dtype) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    if isinstance(tree, Mapping):
        return {key: to_jax(value, dtype) for key, value in tree.items()}
    if callable(tree) and hasattr(ours.functional, getattr(tree, "__name__", "")):
        return getattr(ours.functional, tree.__name__)
    if isinstance(tree, torch.dtype):
        return jnp.dtype(str(tree).removeprefix("torch."))
    return tree


def tensors_of(tree: Any, name: str = "") -> dict[str, torch.Tensor]:
    """Every tensor in a tree of tuples, lists and mappings, by its path."""
    return _found(tree, name, torch.Tensor)


def arrays_of(tree: Any, name: str = "") -> dict[str, jax.Array]:
    return _found(tree, name, (jax.Array, np.ndarray))


def _found(tree: Any, name: str, kind: Any) -> dict[str, Any]:
    if isinstance(tree, kind):
        return {name: tree}
    if isinstance(tree, tuple | list):
        pairs: Any = enumerate(tree)
    elif isinstance(tree, Mapping):
        pairs = tree.items()
    else:
        return {}
    found: dict[str, Any] = {}
    for key, child in pairs:
        found |= _found(child, f"{name}.{key}", kind)
    return found


def with_arrays(tree: Any, arrays: Mapping[str, jax.Array], name: str = "gradient") -> Any:
    """The tree with these in place of its arrays."""
    if isinstance(tree, jax.Array | np.ndarray):
        return arrays[name]
    if isinstance(tree, tuple | list):
        return type(tree)([with_arrays(item, arrays, f"{name}.{i}") for i, item in enumerate(tree)])
    if isinstance(tree, Mapping):
        return {key: with_arrays(value, arrays, f"{name}.{key}") for key, value in tree.items()}
    return tree


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    """Fresh leaves, floating tensors in `dtype`."""
    if isinstance(tree, torch.Tensor):
        cast = tree.detach().clone()
        cast = cast.to(dtype) if tree.dtype in FLOATS else cast
        return cast.requires_grad_(tree.requires_grad)
    if isinstance(tree, tuple | list) and not hasattr(tree, "_fields"):
        return type(tree)([_cast(item, dtype) for item in tree])
    if isinstance(tree, dict):
        return {key: _cast(value, dtype) for key, value in tree.items()}
    if hasattr(tree, "_fields"):
        return copy.copy(tree).to(dtype) if hasattr(tree, "to") else tree
    return tree


def _as_torch_integers(array: np.ndarray) -> np.ndarray:
    """int32, which is what JAX has without x64, as the int64 of PyTorch."""
    return array.astype(np.int64) if array.dtype == np.int32 else array
