"""A PyTorch `state_dict` into an NNX module and back, with proof that every tensor went exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import numpy as np
from flax import nnx

from .conventions import LOADED_AS
from .formats import as_numpy, as_tensor
from .hints import check_state_dict, common_prefix, nested_weights
from .matching import matched, not_arrays, under_other_names, without_prefix
from .plan import WeightsError, as_rules, make_plan
from .rules import Tied, WeightRule
from .shared import warn_of_lost_ties

if TYPE_CHECKING:
    import torch


def load(module: nnx.Module, state_dict: Mapping[str, Any], rules: Iterable[WeightRule] = ()) -> None:
    """Writes a PyTorch `state_dict` into the module's variables, in place.

    By name, each parameter's layout following from its module's type (or from the transform that it carries); `rules`
    say where names differ. Values keep the dtype of the `state_dict`: the way back gives the same bits. Where x64 is
    off, int64 is held as int32, and the variable's metadata note it for the way back; a module that gets its values
    otherwise, as from a checkpoint, gives int32 unless the variable is made with `**carries(Counter())`. The one thing
    passed over without a rule is the `num_batches_tracked` of a plain `nnx.BatchNorm`, which has no place for it;
    `graphmode.nn.BatchNorm2d` keeps it.

    Args:
      module: the port; every variable but random-number state, caches and intermediates is written exactly once.
      state_dict: torch tensors or numpy arrays by name; every key is used exactly once.
      rules: `Rule`, `Rename`, `Stacked`, `Drop` and `Tied`, the first that matches a variable counting.

    Raises:
      WeightsError: one error that lists all that failed: missing and unused keys, shapes, tied tensors that differ,
        rules that match nothing, values that JAX would round or cut. The module is then as it was.
      TypeError: where an argument is something else.

    Warns where parameters of the port are apart that are one tensor in PyTorch.

    Example:
      >>> from flax import nnx
      >>> import numpy as np
      >>> linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
      >>> load(linear, {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
      >>> linear.kernel.shape
      (3, 2)
    """
    rules = as_rules(rules)
    check_state_dict(state_dict)
    arrays: dict[str, np.ndarray] = {}
    unreadable: dict[str, str] = {}
    for key, tensor in state_dict.items():
        try:
            arrays[key] = as_numpy(tensor)
        except TypeError as error:
            unreadable[key] = f"{key}: {error}"
    found = matched(module, rules, arrays, unreadable)
    problems = found.problems
    if problems and (nested := nested_weights(state_dict)):
        inside = " or ".join(f"state_dict[{name!r}]" for name in nested)
        problems = [f"state_dict: is a checkpoint that holds weights and more; give {inside}"]
    elif found.lacks_all and (prefix := common_prefix(found.missing, found.unused)):
        problems = without_prefix(prefix, module, rules, arrays, unreadable)
    elif found.missing:
        problems = under_other_names(found, module, rules, arrays, unreadable) or problems
    if problems:
        raise WeightsError(problems, subject=f"the weights do not match {type(module).__name__}")
    warn_of_lost_ties(found.plan, state_dict)
    # a copy that is there before the original moves on: JAX reads numpy arrays, its own copies of them too, later;
    # `jnp.asarray` would compile a graph for every shape
    values = [(leaf.variable, arr, jax.device_put(np.array(_narrowed(arr)))) for leaf, arr in found.written.values()]
    for variable, array, value in values:
        variable.set_value(value)
        if value.dtype != array.dtype:
            variable.set_metadata(LOADED_AS, array.dtype.name)
        elif variable.has_metadata(LOADED_AS):
            variable.del_metadata(LOADED_AS)


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
    but: type[nnx.Variable] | None = None,
    gradients: bool = False,
) -> dict[str, np.ndarray]:
    """The module's arrays by PyTorch's names in PyTorch's layout.

    Args:
      module: the port, or the same module with gradients in place of values.
      rules: those of `load`.
      of: only variables of this type, such as `nnx.Param`.
      but: and none of this type.
      gradients: whether the arrays are gradients by the variables rather than their values.
    """
    rules = as_rules(rules)
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
        if but is not None and all(isinstance(leaf.variable, but) for leaf in group.leaves):
            continue
        values = [_as_loaded(leaf.variable) for leaf in group.leaves]
        back = group.transform.gradient_to_reference if gradients else group.transform.to_reference
        if gradients:  # of complex ones PyTorch's are the conjugates of JAX's
            values = [value.conj() if np.iscomplexobj(value) else value for value in values]
        arrays = back(*values)
        if problem := not_arrays(arrays, len(group.keys)):
            method = f"{type(group.transform).__name__}.{back.__name__}"
            problem = f"{', '.join(group.keys)}: {method} gave {problem}, one a key"
            raise WeightsError([problem], subject=f"no state_dict of {type(module).__name__}")
        for key, array in zip(group.keys, arrays, strict=True):
            named[key] = np.ascontiguousarray(array).reshape(array.shape)  # the former makes one axis of none
    named.update({rule.key: named[rule.same_as] for rule in rules if isinstance(rule, Tied) and rule.same_as in named})
    return named


def _narrowed(array: np.ndarray) -> np.ndarray:
    """As JAX holds it: int64 is int32 where x64 is off, into which it was seen to fit."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def _as_loaded(variable: nnx.Variable) -> np.ndarray:
    """The variable's value, integers in the dtype that they had before `load` narrowed them."""
    value = np.asarray(variable.get_value())
    if value.dtype.kind == "i" and variable.has_metadata(LOADED_AS):
        return value.astype(variable.get_metadata(LOADED_AS))
    return value
