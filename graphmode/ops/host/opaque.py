"""`opaque`: foreign code as one box in a graph, with the shape that comes out and the backward that it was given."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from ..control.closures import Hoisted, hoisted

# A backward may call the function that it belongs to, as those of sine and cosine do; only the first is traced ahead.
_within_a_backward: ContextVar[bool] = ContextVar("within_a_backward", default=False)
VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")


def opaque(
    fn: Callable[..., Any],
    *args: Any,
    result: Any = None,
    backward: Callable[[Any, Any, Any], Any] | None = None,
    vmap_method: str = "sequential",
    has_side_effects: bool = False,
    ordered: bool = False,
) -> Any:
    """`fn(*args)`, on the host: a black box in the graph.

    For what JAX cannot trace, NumPy, SciPy, PyTorch, files: `torch.compiler.allow_in_graph`, and
    `torch.library.custom_op` with its fake and autograd rules. A function of `jnp` needs no box, and with a gradient of
    its own it is a `jax.custom_vjp`. The trip to the host, by `jax.pure_callback` or `io_callback`, costs tens of
    microseconds and a copy each way; `jax.export` refuses it. Outside `jit`, with known arrays, `fn` simply runs.

    Args:
      fn: host function of numpy arrays, copies that it may change -> arrays, numbers or CPU tensors, in a pytree. A
        pure one may run any number of times, also none.
      args: pytrees of arrays; close over what is static.
      result: what `fn` gives, a pytree with shapes and dtypes: `jax.ShapeDtypeStruct`s, arrays, or the arguments
        themselves where it gives the same. Or a function of `args`, in `jnp`, that gives that shape; it is not run.
        Without it, `fn` runs once on zeros while the graph is traced, or, with side effects, gives nothing.
      backward: `(args, outputs, cotangents)` -> one cotangent for each of `args`, in a tuple; `None` for no gradient,
        and cotangents of integers come as `None`. It is traced as other JAX code is, and may itself call `opaque`.
      vmap_method: as in `jax.pure_callback`: `fn` is called for each lane, or once with leading axes.
      has_side_effects: `fn` runs exactly as often as the graph says, also where nothing uses what it gives.
      ordered: all ordered calls run in program order; needs `has_side_effects`, and refuses `vmap`.

    Returns:
      What `fn` gives, as JAX arrays.

    Raises:
      TypeError: where fn or backward is no function, or an argument no array.
      ValueError: where options contradict each other, `result` cannot be learnt, `fn` gives something else than
        `result`, or is differentiated without a `backward`. What `fn` raises inside a graph, and what it gives wrong
        there, comes as `jax.errors.JaxRuntimeError` with that message.

    Example:
      >>> import graphmode as gm, jax, jax.numpy as jnp, numpy as np
      >>> def root(x):
      ...     return gm.opaque(np.sqrt, x, result=x, backward=lambda args, out, ct: (ct / (2 * out),))
      >>> [float(y) for y in jax.jit(jax.value_and_grad(root))(4.0)]
      [2.0, 0.25]
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    _consistent(fn, name, backward, vmap_method, has_side_effects, ordered)
    args = jax.tree.map(lambda leaf: _array(leaf, name), args)
    structs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
    wanted = _result(fn, name, result, structs, has_side_effects)
    batched = not has_side_effects and vmap_method in ("expand_dims", "broadcast_all")

    def on_host(*args: Any) -> Any:
        return _fitting(fn(*jax.tree.map(np.array, args)), wanted, name, batched)

    held = lax.stop_gradient(args)
    if not _traced(held):
        outputs = jax.tree.map(jnp.asarray, on_host(*held))
    elif has_side_effects:
        outputs = io_callback(on_host, wanted, *held, ordered=ordered)
    else:
        outputs = jax.pure_callback(on_host, wanted, *held, vmap_method=vmap_method)
    return _with_backward(args, outputs, _backward(backward, name, structs, wanted), name)


def _consistent(fn: Any, name: str, backward: Any, vmap_method: str, has_side_effects: bool, ordered: bool) -> None:
    if not callable(fn):
        raise TypeError(f"fn is {fn!r}, and a function was wanted")
    if backward is not None and not callable(backward):
        raise TypeError(f"backward of opaque({name}) is {backward!r}, and a function or None was wanted")
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method of opaque({name}) is {vmap_method!r}; choose one of {', '.join(VMAP_METHODS)}")
    if ordered and not has_side_effects:
        raise ValueError(f"opaque({name}) is ordered without side effects; give has_side_effects=True as well")
    if has_side_effects and vmap_method != "sequential":
        raise ValueError(f"vmap_method of opaque({name}) is {vmap_method!r}; with side effects it is 'sequential'")


def _array(leaf: Any, name: str) -> jax.Array:
    try:
        return jnp.asarray(leaf)
    except TypeError:
        raise TypeError(
            f"an argument of opaque({name}) is {leaf!r}, and arrays were wanted; close over what is static, as in "
            f"opaque(lambda x: {name}(x, {leaf!r}), x)"
        ) from None


def _traced(args: Any) -> bool:
    # Without arguments only an operation tells whether there is a graph around.
    return any(isinstance(leaf, jax.core.Tracer) for leaf in (*jax.tree.leaves(args), lax.bitwise_not(np.True_)))


def _result(fn: Callable[..., Any], name: str, result: Any, structs: Any, has_side_effects: bool) -> Any:
    """Shapes and dtypes of what `fn` gives."""
    if result is None and not has_side_effects:
        try:
            result = fn(*jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), structs))
        except Exception as error:
            raise ValueError(
                f"opaque({name}) has no result, and fails on zeros, on which it ran to learn it: {error!r}; give the "
                f"shapes and dtypes that it gives, result=jax.ShapeDtypeStruct(shape, dtype)"
            ) from error
        result = jax.tree.map(np.asarray, result)
    elif callable(result):
        result = jax.eval_shape(result, *structs)

    def struct(leaf: Any) -> jax.ShapeDtypeStruct:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            leaf = jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    return jax.tree.map(struct, result)


def _fitting(got: Any, wanted: Any, name: str, batched: bool) -> Any:
    """What came back, in the dtypes that were wanted; as JAX itself, float64 passes for float32 without x64."""
    came: Any = jax.tree.structure(got)
    if came != jax.tree.structure(wanted):
        raise ValueError(
            f"opaque({name}) gives {came}, and {jax.tree.structure(wanted)} was expected; give "
            f"result= the structure, shapes and dtypes that it gives"
        )

    def fitting(path: Any, want: jax.ShapeDtypeStruct, leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        where = f" at {jax.tree_util.keystr(path)}" if path else ""
        lanes = max(0, array.ndim - len(want.shape)) if batched else 0
        fits = jax.dtypes.canonicalize_dtype(array.dtype) == want.dtype or _number_fits(leaf, want.dtype)
        if array.shape[lanes:] != want.shape or not fits:
            raise ValueError(
                f"opaque({name}) gives {array.dtype}{list(array.shape)}{where}, and {want.dtype}{list(want.shape)} was "
                f"expected; cast or reshape it in {name}, or give result= what comes"
            )
        cast = array.astype(want.dtype)
        if array.dtype.kind in "iu" and not np.array_equal(cast, array):
            raise ValueError(
                f"opaque({name}) gives integers{where} that {want.dtype} does not hold, {array.min()} to {array.max()}"
            )
        return cast

    return jax.tree_util.tree_map_with_path(fitting, wanted, got)


def _number_fits(leaf: Any, dtype: np.dtype) -> bool:
    """Whether a Python number takes on a dtype, as it does next to an array."""
    if isinstance(leaf, bool):
        return dtype == jnp.bool_
    if isinstance(leaf, int):
        return jnp.issubdtype(dtype, jnp.number)
    return isinstance(leaf, float) and jnp.issubdtype(dtype, jnp.inexact)


def _has_gradient(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def _backward(
    backward: Callable[[Any, Any, Any], Any] | None, name: str, structs: tuple[Any, ...], wanted: Any
) -> Hoisted | None:
    if backward is None:
        return None

    def checked(args: Any, outputs: Any, cotangents: Any) -> tuple[Any, ...]:
        found = backward(args, outputs, cotangents)
        if len(args) == 1 and not isinstance(found, tuple | list):
            found = (found,)
        if not isinstance(found, tuple | list) or len(found) != len(args):
            came = f"{len(found)} cotangents" if isinstance(found, tuple | list) else type(found).__name__
            raise ValueError(
                f"backward of opaque({name}) gives {came}, and a tuple of {len(args)} was wanted, one for each argument"
            )
        return tuple(
            _cotangent(one, arg, name, index) for index, (one, arg) in enumerate(zip(found, args, strict=True))
        )

    if _within_a_backward.get():
        return Hoisted(lambda _, *args: checked(*args), [], None)
    cotangents = jax.tree.map(lambda leaf: leaf if _has_gradient(leaf) else None, wanted)
    token = _within_a_backward.set(True)
    try:
        return hoisted(checked, structs, wanted, cotangents)
    finally:
        _within_a_backward.reset(token)


def _cotangent(found: Any, arg: Any, name: str, index: int) -> Any:
    """Cotangent of one argument; zeros where `None` says that there is no gradient, `None` for integers."""
    leaves, tree = jax.tree.flatten(arg)
    given = [None] * len(leaves) if found is None else jax.tree.flatten(found, is_leaf=lambda leaf: leaf is None)[0]
    if len(given) != len(leaves):
        raise ValueError(
            f"backward of opaque({name}) gives {jax.tree.structure(found)} for argument {index}, and {tree} was wanted"
        )

    def one(want: Any, got: Any) -> Any:
        if not _has_gradient(want):
            return None
        got = jnp.zeros(want.shape, want.dtype) if got is None else jnp.asarray(got)
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            raise ValueError(
                f"backward of opaque({name}) gives {got.dtype}{list(got.shape)} for argument {index}, and "
                f"{want.dtype}{list(want.shape)} was wanted, as the argument is"
            )
        return got

    return jax.tree.unflatten(tree, [one(want, got) for want, got in zip(leaves, given, strict=True)])


def _with_backward(args: Any, outputs: Any, backward: Hoisted | None, name: str) -> Any:
    """`outputs`, whose gradient goes to `args` by `backward`.

    Apart from the call itself, since JAX allows no side effects inside a `custom_vjp`.
    """
    if not any(map(_has_gradient, jax.tree.leaves(outputs))):
        return outputs

    @jax.custom_vjp
    def attach(args: Any, constants: Any, outputs: Any) -> Any:
        return outputs

    def forward(args: Any, constants: Any, outputs: Any) -> tuple[Any, Any]:
        if backward is None:
            raise ValueError(
                f"opaque({name}) is differentiated, and has no backward; give backward=, a function (args, outputs, "
                f"cotangents) -> cotangents of args, or pass its arguments through jax.lax.stop_gradient"
            )
        return outputs, (args, constants, outputs)

    def pull(residuals: Any, cotangents: Any) -> tuple[Any, None, None]:
        args, constants, outputs = residuals
        seen = jax.tree.map(lambda out, ct: ct if _has_gradient(out) else None, outputs, cotangents)
        assert backward is not None
        return backward.call(constants, args, outputs, seen), None, None

    attach.defvjp(forward, pull)
    return attach(args, [] if backward is None else backward.constants, outputs)
