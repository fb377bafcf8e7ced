"""A PyTorch `state_dict` into an NNX module and back, with proof that every tensor went exactly once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .conventions import Leaf, unkept
from .formats import as_numpy, as_tensor
from .plan import Group, WeightsError, make_plan, renamed
from .rules import Drop, Tied, WeightRule

if TYPE_CHECKING:
    import torch

KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def load(module: nnx.Module, state_dict: Mapping[str, Any], rules: Iterable[WeightRule] = ()) -> None:
    """Writes a PyTorch `state_dict` into the module's variables, in place.

    By name, each parameter's layout following from its module's type (or from the transform that it carries); `rules`
    say where names differ. Values keep the dtype of the `state_dict`: the way back gives the same bits. The one thing
    passed over without a rule is the `num_batches_tracked` of a plain `nnx.BatchNorm`, which has no place for it;
    `graphmode.nn.BatchNorm2d` keeps it.

    Args:
      module: the port; every variable but random-number state, caches and intermediates is written exactly once.
      state_dict: torch tensors or numpy arrays by name; every key is used exactly once.
      rules: `Rule`, `Rename`, `Drop` and `Tied`, the first that matches a variable counting.

    Raises:
      WeightsError: one error that lists all that failed: missing and unused keys, shapes, tied tensors that differ,
        rules that match nothing, values that JAX would round. The module is then as it was.
      TypeError: where `rules` holds something else.

    Example:
      >>> from flax import nnx
      >>> import numpy as np
      >>> linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
      >>> load(linear, {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
      >>> linear.kernel.shape
      (3, 2)
    """
    rules = tuple(rules)
    plan, problems = make_plan(module, rules)
    arrays: dict[str, np.ndarray] = {}
    for key, tensor in state_dict.items():
        try:
            arrays[key] = as_numpy(tensor)
        except TypeError as error:
            problems.append(f"{key}: {error}")
    unused = arrays.keys() - {key for group in plan for key in group.keys}
    written: dict[int, tuple[Leaf, np.ndarray]] = {}
    missing: list[tuple[Group, list[str]]] = []
    for group in plan:
        if absent := [key for key in group.keys if key not in state_dict]:
            missing.append((group, absent))
        elif all(key in arrays for key in group.keys):
            problems += _convert(group, arrays, written)
    for group, absent in missing:
        if not all(id(leaf.variable) in written for leaf in group.leaves):
            by = "" if group.by is None else f" by {group.by}"
            problems += [f"{key}: missing, and {group.paths} needs it{by}{_nearest(key, unused)}" for key in absent]
    silent = {renamed(name, rules)[0] for name in unkept(module)}
    problems += _leftovers(arrays, [key for key in arrays if key in unused], silent, rules)
    if problems:
        raise WeightsError(problems, subject=f"the weights do not match {type(module).__name__}")
    # a copy that is there before the original moves on: JAX reads numpy arrays, its own copies of them too, later
    values = [(leaf.variable, jnp.asarray(np.array(array))) for leaf, array in written.values()]
    for variable, value in values:
        variable.set_value(value)


@overload
def to_state_dict(
    module: nnx.Module, rules: Iterable[WeightRule] = (), *, framework: Literal["torch"] = "torch"
) -> dict[str, torch.Tensor]: ...
@overload
def to_state_dict(
    module: nnx.Module, rules: Iterable[WeightRule] = (), *, framework: Literal["numpy"]
) -> dict[str, np.ndarray]: ...
def to_state_dict(module, rules=(), *, framework="torch"):
    """The module's variables as a PyTorch `state_dict`: the inverse of `load` with the same rules, bit for bit.

    Args:
      module: the port.
      rules: those of `load`. Dropped keys are not there; tied ones are written again.
      framework: `"torch"` gives tensors for `load_state_dict`, `"numpy"` gives arrays and needs no torch.

    Raises:
      ImportError: for `"torch"` where it is not installed.
      WeightsError: where the rules do not fit the module.
    """
    if framework not in ("torch", "numpy"):
        raise ValueError(f"framework is {framework!r}; choose 'torch' or 'numpy'")
    arrays = named_arrays(module, rules)
    if framework == "numpy":
        return arrays
    return {key: as_tensor(value) for key, value in arrays.items()}


def named_arrays(
    module: nnx.Module,
    rules: Iterable[WeightRule] = (),
    *,
    of: type[nnx.Variable] = nnx.Variable,
    gradients: bool = False,
) -> dict[str, np.ndarray]:
    """The module's arrays by PyTorch's names in PyTorch's layout.

    Args:
      module: the port, or the same module with gradients in place of values.
      rules: those of `load`.
      of: only variables of this type, such as `nnx.Param`.
      gradients: whether the arrays are gradients by the variables rather than their values.
    """
    rules = tuple(rules)
    plan, problems = make_plan(module, rules)
    for group in plan:
        abstract = (leaf for leaf in group.leaves if isinstance(leaf.variable.get_value(), jax.ShapeDtypeStruct))
        problems += [f"{leaf.path}: is abstract; load it first" for leaf in abstract]
    if problems:
        raise WeightsError(problems, subject=f"no state_dict of {type(module).__name__}")
    named: dict[str, np.ndarray] = {}
    for group in plan:
        if not all(isinstance(leaf.variable, of) for leaf in group.leaves):
            continue
        values = [np.asarray(leaf.variable.get_value()) for leaf in group.leaves]
        back = group.transform.gradient_to_reference if gradients else group.transform.to_reference
        arrays = back(*values)
        if problem := _not_arrays(arrays, len(group.keys)):
            method = f"{type(group.transform).__name__}.{back.__name__}"
            problem = f"{', '.join(group.keys)}: {method} gave {problem}, one a key"
            raise WeightsError([problem], subject=f"no state_dict of {type(module).__name__}")
        for key, array in zip(group.keys, arrays, strict=True):
            named[key] = np.ascontiguousarray(array).reshape(array.shape)  # the former makes one axis of none
    named.update({rule.key: named[rule.same_as] for rule in rules if isinstance(rule, Tied) and rule.same_as in named})
    return named


def _convert(group: Group, arrays: Mapping[str, np.ndarray], written: dict[int, tuple[Leaf, np.ndarray]]) -> list[str]:
    """Adds the group's values to `written`, by the identity of their variables; gives the problems with them."""
    keys = ", ".join(group.keys)
    try:
        values = group.transform.to_model(*(arrays[key] for key in group.keys))
    except ValueError as error:
        return [f"{keys}: {error}"]
    if problem := _not_arrays(values, len(group.leaves)):
        return [f"{keys}: {type(group.transform).__name__}.to_model gave {problem}, one for each path"]
    problems = []
    for leaf, value in zip(group.leaves, values, strict=True):
        wanted = leaf.variable.get_value()
        if value.shape != tuple(wanted.shape):
            shapes = " and ".join(str(arrays[key].shape) for key in group.keys)
            problems.append(f"{keys}: shape {shapes} gives {value.shape}, and {leaf.path} has {tuple(wanted.shape)}")
        elif _kind(value.dtype) != _kind(wanted.dtype):
            problems.append(f"{keys}: dtype {value.dtype}, and {leaf.path} has {wanted.dtype}")
        elif (rounded := _rounded_by_jax(value)) is not None:
            problems.append(f"{keys}: {rounded}")
        else:
            first, kept = written.setdefault(id(leaf.variable), (leaf, value))
            if not _same_bits(kept, value):
                problems.append(f"{keys}: {leaf.path} is tied to {first.path}, and the two differ")
    return problems


def _not_arrays(given: Any, wanted: int) -> str | None:
    """What a transform gave in place of a tuple of arrays, and what it should have given; None if it gave that."""
    if isinstance(given, Sequence) and len(given) == wanted:
        return None
    got = f"{len(given)} arrays" if isinstance(given, Sequence) else type(given).__name__
    return f"{got}; give a tuple of {wanted}"


def _leftovers(
    arrays: Mapping[str, np.ndarray], unused: Iterable[str], silent: set[str], rules: tuple[WeightRule, ...]
) -> list[str]:
    """Problems with the keys that no variable took, and with the rules that speak of such keys."""
    problems = []
    idle = {rule for rule in rules if isinstance(rule, Tied | Drop)}
    for key in unused:
        tie = next((r for r in rules if isinstance(r, Tied) and r.key == key), None)
        drop = next((r for r in rules if isinstance(r, Drop) and r.matches(key)), None)
        idle -= {tie or drop}
        if tie is not None:
            if tie.same_as in arrays and not _same_bits(arrays[key], arrays[tie.same_as]):
                problems.append(f"{key}: tied to {tie.same_as}, and the two differ")
        elif drop is None and key not in silent:
            problems.append(f"{key}: unused, shape {arrays[key].shape}; give it a variable, or Drop it with a reason")
    problems += [f"{rule}: matches no key that is left over" for rule in rules if rule in idle]
    return problems


def _kind(dtype: Any) -> int:
    return next((i for i, kind in enumerate(KINDS) if jnp.issubdtype(dtype, kind)), len(KINDS))


def _rounded_by_jax(value: np.ndarray) -> str | None:
    """Why JAX would not keep this array's bits, or None."""
    kept = jax.dtypes.canonicalize_dtype(value.dtype)
    if kept == value.dtype:
        return None
    counts = " give its Rule the transform Counter() if it counts;" if value.dtype == np.int64 else ""
    return (
        f"dtype {value.dtype} would become {kept}, since jax_enable_x64 is off;{counts} cast the state_dict, or load "
        "under jax.enable_x64(True)"
    )


def _nearest(key: str, unused: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, sorted(unused), n=1)
    return f"; the nearest unused key is {close[0]}" if close else ""


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
