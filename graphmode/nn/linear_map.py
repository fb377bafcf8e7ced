"""Linear functions whose transpose is written out, where the one that JAX derives is slow."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Function = Callable[..., jax.Array]

linear_map = Primitive("graphmode_linear_map")


@dataclass(frozen=True)
class _Mapped:
    """A function of one moved array and of fixed ones, with its transpose, under as many `vmap`s as there are axes."""

    function: Function
    transpose: Function
    static: tuple[tuple[str, Hashable], ...]
    lanes: tuple[tuple[int | None, ...], ...] = ()  # the axes of the operands in each `vmap`, the innermost first

    def __call__(self, *operands: jax.Array) -> jax.Array:
        def run(*operands: jax.Array) -> jax.Array:
            return self.function(*operands, **dict(self.static))

        for axes in self.lanes:
            run = jax.vmap(run, axes)
        return run(*operands)

    @property
    def transposed(self) -> _Mapped:
        return replace(self, function=self.transpose, transpose=self.function)


def apply_linear(
    function: Function, transpose: Function, x: jax.Array, *fixed: jax.Array, **static: Hashable
) -> jax.Array:
    """`function(x, *fixed, **static)`, which is linear in `x`, and whose derivative goes back through `transpose`.

    `jax.custom_derivatives.linear_call` is that without `vmap`.

    Args:
      function: one and the same object at every call.
      transpose: `(y, *fixed, **static)` -> what `function` takes for `x`; likewise.
      x: floating.
      fixed: what has no derivative: integers, booleans.
      static: hashable arguments of both.
    """
    return linear_map.bind(x, *fixed, mapped=_Mapped(function, transpose, tuple(static.items())))


def _run(*operands: jax.Array, mapped: _Mapped) -> jax.Array:
    return mapped(*operands)


def _shaped(*avals: Any, mapped: _Mapped) -> ShapedArray:
    result = jax.eval_shape(mapped, *(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals))
    return ShapedArray(result.shape, result.dtype)


def _jvp(primals: Any, tangents: Any, *, mapped: _Mapped) -> tuple[Any, Any]:
    moved = tangents[0]
    result = linear_map.bind(*primals, mapped=mapped)
    if isinstance(moved, ad.Zero):
        return result, ad.Zero(jax.typeof(result).to_tangent_aval())
    return result, linear_map.bind(moved, *primals[1:], mapped=mapped)


def _transpose(cotangent: Any, x: Any, *fixed: jax.Array, mapped: _Mapped) -> list[Any]:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(x.aval), *(None for _ in fixed)]
    return [linear_map.bind(cotangent, *fixed, mapped=mapped.transposed), *(None for _ in fixed)]


def _batched(operands: Any, axes: Any, *, mapped: _Mapped) -> tuple[jax.Array, int]:
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    # The moved array has a lane axis on both sides, or the transpose would have to sum over lanes.
    x = batching.bdim_at_front(operands[0], axes[0], size)
    lanes = (*mapped.lanes, (0, *axes[1:]))
    return linear_map.bind(x, *operands[1:], mapped=replace(mapped, lanes=lanes)), 0


linear_map.def_impl(jax.jit(_run, static_argnames="mapped"))
linear_map.def_abstract_eval(_shaped)
ad.primitive_jvps[linear_map] = _jvp
ad.primitive_transposes[linear_map] = _transpose
batching.primitive_batchers[linear_map] = _batched
mlir.register_lowering(linear_map, mlir.lower_fun(_run, multiple_results=False))
