"""`cond` and `switch`: a branch on a value, with NNX modules among the operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from ..host.checks import check
from .lanes import branch_of_lanes
from .nnx_operands import Operands, Traced, described, rebuilt, trace

UnderVmap = Literal["select", "branch"]
OutOfRange = Literal["raise", "nan", "clamp"]


def cond(
    pred: ArrayLike,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
    under_vmap: UnderVmap = "select",
) -> Any:
    """`true_fn(*operands) if pred else false_fn(*operands)`, of which one runs; both are traced, once each.

    Operands may be NNX modules and variables. What a branch changes in them (batch-norm statistics, counters, random
    streams) is changed afterwards; what neither branch changes is left alone. Modules that a branch closes over can be
    read. Differentiable in reverse and forward mode, with respect to operands and to what is closed over.

    Args:
      pred: 0-d bool.
      true_fn, false_fn: take the operands, and return the same structure of arrays, shapes and dtypes. A module that is
        returned is the operand itself.
      operands: pytrees of arrays and NNX objects.
      under_vmap: what a `pred` that differs from lane to lane costs. `"select"`, as `jax.lax.cond`, runs both branches
        for all lanes. `"branch"` runs a branch only where some lane takes it: as cheap as one branch where all lanes
        agree, and two branches and a select where they do not; arrays without a batch axis, such as parameters, are
        not copied for each lane.

    Returns:
      What the branch returned.

    Raises:
      ValueError: where `pred` is no 0-d bool, or under_vmap is unknown.
      TypeError: where the branches disagree, naming the leaf; where a branch changes a module's structure.

    Example:
      >>> import jax.numpy as jnp
      >>> x = jnp.array([1.0, 2.0])
      >>> cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x).tolist()
      [2.0, 4.0]

    Stands for `if t.sum() > 0: ... else: ...`; https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html.
    """
    pred = as_predicate(pred, "pred")
    given = Operands.of(operands, "operands")
    branches = [trace(true_fn, given, "true_fn"), trace(false_fn, given, "false_fn")]
    return _run(jnp.where(pred, 0, 1).astype(jnp.int32), branches, given, under_vmap)


def switch(
    index: ArrayLike,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    on_out_of_range: OutOfRange = "raise",
    under_vmap: UnderVmap = "select",
) -> Any:
    """`branches[index](*operands)`, of which one runs; each is traced once.

    Operands, results and gradients as in `cond`. An index that no branch has, negative ones among them, is an error as
    it is for a Python list, where `jax.lax.switch` runs the nearest branch in silence.

    Args:
      index: 0-d integer.
      branches: at least one, in a list; of a dict `list(branches.values())`, and the place of its key as index.
      operands: pytrees of arrays and NNX objects.
      on_out_of_range: `"raise"` raises `ValueError` once the graph has run (`IndexError` at once where the index is
        known while tracing), by a callback, which `jax.export` refuses; `"nan"` makes every value of the result NaN,
        and of the variables that a branch changes; `"clamp"` runs the nearest branch.
      under_vmap: as in `cond`.

    Returns:
      What the branch returned.

    Raises:
      ValueError: where index is no 0-d integer, there is no branch, or a policy is unknown or does not fit.
      IndexError: where an index known while tracing is out of range, and would raise.
      TypeError: where the branches disagree, naming the leaf; where a branch changes a module's structure; where
        branches is no list of functions.

    Example:
      >>> import jax.numpy as jnp
      >>> float(switch(1, [jnp.sin, jnp.square, jnp.negative], 3.0))
      9.0

    Stands for `[f, g, h][int(t)](x)`; https://docs.jax.dev/en/latest/_autosummary/jax.lax.switch.html.
    """
    branches = _as_functions(branches)
    if on_out_of_range not in get_args(OutOfRange):
        raise ValueError(f"on_out_of_range is {on_out_of_range!r}; choose 'raise', 'nan' or 'clamp'")
    index = _as_array(index, "index", "one integer")
    if index.shape or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(
            f"index is {described(index)}, and one integer was wanted; use cond for a bool, jax.vmap for many"
        )
    if index.dtype.itemsize < 4:
        index = index.astype(jnp.int32)  # a number of branches beyond a narrow dtype would wrap in it
    last = len(branches) - 1
    in_range = (index >= 0) & (index <= last)
    if on_out_of_range == "raise":
        _raise_out_of_range(index, in_range, last)
    given = Operands.of(operands, "operands")
    traced = [trace(branch, given, f"branches[{i}]") for i, branch in enumerate(branches)]
    nearest = jnp.where(in_range, index, jnp.where(index < 0, 0, last)).astype(jnp.int32)
    return _run(nearest, traced, given, under_vmap, spoilt=~in_range if on_out_of_range == "nan" else None)


def _as_functions(branches: Any) -> list[Callable[..., Any]]:
    if isinstance(branches, Mapping):
        raise TypeError(
            "branches is a mapping, whose keys a graph does not know: give list(branches.values()), and as index the "
            "place of the key, list(branches).index(key)"
        )
    if callable(branches) or not isinstance(branches, Iterable):
        raise TypeError(f"branches is a {type(branches).__name__}; give a list of functions")
    functions = list(branches)
    if not functions:
        raise ValueError("branches is empty, and at least one function was wanted")
    for place, function in enumerate(functions):
        if not callable(function):
            raise TypeError(f"branches[{place}] is {function!r}, and a function was wanted")
    return functions


def _as_array(value: Any, name: str, wanted: str) -> jax.Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, and {wanted} was wanted") from None


def as_predicate(pred: Any, name: str) -> jax.Array:
    """A 0-d bool."""
    array: Any = pred if isinstance(pred, jax.ShapeDtypeStruct) else _as_array(pred, name, "a 0-d bool")
    if array.shape:
        raise ValueError(
            f"{name} is {described(array)}, and a 0-d bool was wanted; choose between elements with jnp.where, "
            f"map over an axis with jax.vmap, or reduce it with .any() or .all()"
        )
    if array.dtype != jnp.bool_:
        raise ValueError(f"{name} is {described(array)}, and a 0-d bool was wanted; compare it, as in {name} != 0")
    return array


def becomes(aval: Any, dtype: Any) -> bool:
    """Whether `aval` is of `dtype`, or a Python number that takes it without loss of kind."""
    if aval.dtype == dtype:
        return True
    return aval.weak_type and jnp.result_type(np.dtype(aval.dtype).type(0).item(), dtype) == dtype


def common_dtype(avals: Sequence[Any]) -> Any:
    """The dtype of those that have a firm one, if all others become it; else None."""
    firm = {aval.dtype for aval in avals if not aval.weak_type}
    dtype = firm.pop() if firm else jnp.result_type(*(np.dtype(aval.dtype).type(0).item() for aval in avals))
    return None if firm or not all(becomes(aval, dtype) for aval in avals) else dtype


def _raise_out_of_range(index: jax.Array, in_range: jax.Array, last: int) -> None:
    message = "switch got index {index}, and it has branches 0 to {last}; check it, or choose on_out_of_range"
    if isinstance(index, jax.core.Tracer):
        check(in_range, message, index=index, last=last)
    elif not bool(in_range):
        raise IndexError(message.format(index=operator.index(np.asarray(index).item()), last=last))


def _run(
    index: jax.Array, branches: list[Traced], given: Operands, under_vmap: UnderVmap, spoilt: jax.Array | None = None
) -> Any:
    if under_vmap not in get_args(UnderVmap):
        raise ValueError(f"under_vmap is {under_vmap!r}; choose 'select' (as jax.lax.cond) or 'branch'")
    avals = agreed(branches, given)
    first, plain = branches[0].results, given.layout.kinds.count("array")
    state = range(len(given.arrays) - plain)
    touched = [not all(b.passes(first + i, plain + i) for b in branches) for i in state]
    kept = [*range(first), *(first + i for i in state if touched[i])]
    consts = [b.consts for b in branches]
    spans = np.cumsum([0, *map(len, consts)])

    def flat(which: int) -> Callable[..., list[jax.Array]]:
        def run(*arrays: jax.Array) -> list[jax.Array]:
            own = arrays[spans[which] : spans[which + 1]]
            outs = branches[which](own, *arrays[spans[-1] :])
            return [jnp.asarray(outs[i]).astype(avals[i].dtype) for i in kept]

        return run

    functions = [flat(i) for i in range(len(branches))]
    arrays = [*(c for own in consts for c in own), *given.arrays]
    if under_vmap == "branch":
        outs = branch_of_lanes(index, functions, [avals[i] for i in kept], arrays)
    elif len(branches) == 2:
        outs = lax.cond(index == 0, *functions, *arrays)
    else:
        outs = lax.switch(index, functions, *arrays)
    if spoilt is not None:
        for i, out in zip(kept, outs, strict=True):
            if not jnp.issubdtype(out.dtype, jnp.inexact):
                raise ValueError(
                    f"on_out_of_range is 'nan', and {_name(branches[0], given, i)} is {out.dtype}, which has no NaN; "
                    f"choose 'raise' or 'clamp'"
                )
        outs = [jnp.where(spoilt, jnp.nan, out).astype(out.dtype) for out in outs]
    values = dict(zip(kept, outs, strict=True))
    after = [*given.arrays[:plain], *(values.get(first + i, given.arrays[plain + i]) for i in state)]
    given.update(after, [False] * plain + touched)
    return rebuilt(branches[0].layout, outs[:first], given)


def agreed(branches: list[Traced], given: Operands) -> list[Any]:
    """Shape and dtype of each output, the same for all branches; a Python number takes the dtype of its partner."""
    one = branches[0]
    for other in branches[1:]:
        if one.layout != other.layout:
            raise TypeError(_structures(one, other))
        for i, (a, b) in enumerate(zip(one.avals, other.avals, strict=True)):
            if a.shape != b.shape:
                _raise_mismatch(one, other, given, i)
    avals = []
    for i, outs in enumerate(zip(*(b.avals for b in branches), strict=True)):
        dtype = common_dtype(outs)
        for j, aval in enumerate(outs):
            if dtype is None and not becomes(aval, outs[0].dtype) and not becomes(outs[0], aval.dtype):
                _raise_mismatch(one, branches[j], given, i)
        if dtype is None:
            dtypes = ", ".join(described(aval) for aval in outs)
            raise TypeError(f"the branches disagree: {_name(one, given, i)} and its partners are {dtypes}")
        avals.append(jax.ShapeDtypeStruct(outs[0].shape, dtype))
    return avals


def _raise_mismatch(one: Traced, other: Traced, given: Operands, i: int) -> None:
    raise TypeError(
        f"the branches disagree: {_name(one, given, i)} is {described(one.avals[i])}, and {_name(other, given, i)} is "
        f"{described(other.avals[i])}; return the same shape and dtype from both, as with .astype or jnp.broadcast_to"
    )


def _name(branch: Traced, given: Operands, i: int) -> str:
    if i < branch.results:
        return branch.names[i]
    return f"what {branch.label} leaves in {given.names[given.layout.kinds.count('array') + i - branch.results]}"


def _structures(one: Traced, other: Traced) -> str:
    ours, theirs = ({name.removeprefix(b.label) for name in b.names} for b in (one, other))
    alone = [
        f"{b.label}{path}" for b, paths in ((one, ours - theirs), (other, theirs - ours)) for path in sorted(paths)
    ]
    told = f"only one has {', '.join(alone)}" if alone else "the same leaves stand in other containers or modules"
    return (
        f"the branches return different structures: {told}; {one.label} returns {one.layout.tree}, and {other.label} "
        f"{other.layout.tree}; return the same structure from both"
    )
