"""A PyTorch `state_dict` into an NNX module and back, with proof that every tensor went exactly once."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from flax import nnx

from .conventions import Leaf, leaves, module_rules, unkept
from .rules import Drop, Rename, Rule, Tied, WeightRule, groups
from .transforms import Transform

if TYPE_CHECKING:
    import torch


class WeightsError(ValueError):
    """Weights that do not match a module.

    Attributes:
      problems: one line for each key, variable or rule that failed; the message lists all of them.
    """

    def __init__(self, problems: Sequence[str], *, subject: str):
        self.problems = tuple(problems)
        super().__init__(f"{subject}: {len(problems)} problem(s)\n" + "\n".join(f"  - {line}" for line in problems))


@dataclass(frozen=True)
class Group:
    """Variables that are made from these keys together; mostly one of each."""

    keys: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    transform: Transform


def load(module: nnx.Module, state_dict: Mapping[str, Any], rules: Iterable[WeightRule] = ()) -> None:
    """Writes a PyTorch `state_dict` into the module's variables, in place.

    By name, each parameter's layout following from its module's type (or from the transform that it carries); `rules`
    say where names differ. Values keep the dtype of the `state_dict`: the way back gives the same bits. The one thing
    passed over without a rule is the `num_batches_tracked` of a plain `nnx.BatchNorm`, which has no place for it;
    `graphmode.nn.BatchNorm2d` keeps it.

    Args:
      module: the port; every variable but random-number state is written exactly once.
      state_dict: torch tensors or numpy arrays by name; every key is used exactly once.
      rules: `Rule`, `Rename`, `Drop` and `Tied`, the first that matches a variable counting.

    Raises:
      WeightsError: one error that lists all that failed: missing and unused keys, shapes, tied tensors that differ,
        rules that match nothing, values that JAX would round. The module is then as it was.

    Example:
      >>> from flax import nnx
      >>> import numpy as np
      >>> linear = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
      >>> load(linear, {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
      >>> linear.kernel.shape
      (3, 2)
    """
    rules = tuple(rules)
    plan, problems = _plan(module, rules)
    arrays = {key: as_numpy(value) for key, value in state_dict.items()}
    used: Counter[str] = Counter()
    written: dict[int, tuple[str, np.ndarray]] = {}
    writes: list[tuple[nnx.Variable, np.ndarray]] = []
    missing: list[tuple[Group, list[str]]] = []
    for group in plan:
        absent = [key for key in group.keys if key not in arrays]
        used.update(key for key in group.keys if key in arrays)
        if absent:
            missing.append((group, absent))
            continue
        try:
            values = group.transform.to_model(*(arrays[key] for key in group.keys))
        except ValueError as error:
            problems.append(f"{', '.join(group.keys)}: {error}")
            continue
        for leaf, value in zip(group.leaves, values, strict=True):
            wanted = tuple(leaf.variable.shape)
            if value.shape != wanted:
                problems.append(
                    f"{', '.join(group.keys)}: shape {_shapes(arrays, group.keys)} gives {value.shape}, and "
                    f"{leaf.path} has {wanted}"
                )
            elif (rounded := _rounded_by_jax(value)) is not None:
                problems.append(f"{', '.join(group.keys)}: {rounded}")
            elif (first := written.get(id(leaf.variable))) is not None:
                if not _same_bits(first[1], value):
                    problems.append(f"{', '.join(group.keys)}: {leaf.path} is tied to {first[0]}, and the two differ")
            else:
                written[id(leaf.variable)] = leaf.path, value
                writes.append((leaf.variable, value))
    for group, absent in missing:
        if not all(id(leaf.variable) in written for leaf in group.leaves):
            paths = ", ".join(leaf.path for leaf in group.leaves)
            problems += [f"{key}: missing, and {paths} needs it{_nearest(key, arrays, used)}" for key in absent]
    for key, times in used.items():
        if times > 1:
            problems.append(f"{key}: used {times} times; name its variables with a Rule each, or tie them in the port")
    silent = {_rename(name, rules)[0] for name in unkept(module)}
    problems += _leftovers({k: v for k, v in arrays.items() if k not in silent}, used, rules)
    if problems:
        raise WeightsError(problems, subject=f"the weights do not match {type(module).__name__}")
    for variable, value in writes:
        variable.set_value(jnp.asarray(value))


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
    torch = _torch("writing a state_dict of tensors", instead="or ask for framework='numpy'")
    return {key: _as_tensor(torch, value) for key, value in arrays.items()}


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
    plan, problems = _plan(module, rules)
    if problems:
        raise WeightsError(problems, subject=f"the rules do not match {type(module).__name__}")
    named: dict[str, np.ndarray] = {}
    for group in plan:
        if not all(isinstance(leaf.variable, of) for leaf in group.leaves):
            continue
        values = [np.asarray(leaf.variable.get_value()) for leaf in group.leaves]
        back = group.transform.gradient_to_reference if gradients else group.transform.to_reference
        named.update(zip(group.keys, map(np.ascontiguousarray, back(*values)), strict=True))
        for key, value in zip(group.keys, values, strict=False):
            named[key] = named[key].reshape(()) if value.ndim == 0 else named[key]
    named.update({rule.key: named[rule.same_as] for rule in rules if isinstance(rule, Tied) and rule.same_as in named})
    return named


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a `state_dict` from a `.safetensors`, `.pt`, `.pth` or `.bin` file. Nothing is unpickled.

    Raises:
      ValueError: where the file is of another kind, or holds no mapping of names to tensors.
      ImportError: where safetensors, or torch for its own files, is not installed.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        try:
            from safetensors.numpy import load_file
        except ImportError as error:
            raise ImportError(f"reading {path.name} needs safetensors: pip install 'graphmode[weights]'") from error
        return load_file(path)
    if path.suffix not in (".pt", ".pth", ".bin"):
        raise ValueError(f"path is {path}, and .safetensors, .pt, .pth or .bin was wanted")
    torch = _torch(f"reading {path.name}", instead="or convert the file to safetensors")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping) or not all(hasattr(value, "shape") for value in content.values()):
        raise ValueError(f"{path} holds {type(content).__name__}, and a mapping of names to tensors was wanted")
    return {key: as_numpy(value) for key, value in content.items()}


def as_numpy(value: Any) -> np.ndarray:
    """A torch tensor, JAX or numpy array as a numpy array of the same bits, bfloat16 by `ml_dtypes`."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            return value.contiguous().view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
        return value.numpy()
    return np.asarray(value)


def _plan(module: nnx.Module, rules: tuple[WeightRule, ...]) -> tuple[list[Group], list[str]]:
    """Which keys make which variables, and what is wrong with the rules."""
    found = leaves(module)
    by_path = {leaf.path: leaf for leaf in found}
    taken: set[str] = set()
    plan: list[Group] = []
    problems: list[str] = []
    explicit = [rule for rule in rules if isinstance(rule, Rule)]
    matched: Counter[Any] = Counter()
    for rule, rename in (*((rule, None) for rule in explicit), *_renamed(module_rules(module), rules)):
        for keys, paths in groups(rule, by_path):
            if any(path in taken for path in paths):
                continue
            matched.update((rule, rename))
            if absent := [path for path in paths if path not in by_path]:
                problems.append(f"{rule}: the module has no {', '.join(absent)}")
                continue
            taken.update(paths)
            members = tuple(by_path[path] for path in paths)
            plan.append(Group(keys, members, rule.transform or members[0].transform))
    for leaf in found:
        if leaf.path not in taken:
            key, rename = _rename(leaf.name, rules)
            matched[rename] += 1
            plan.append(Group((key,), (leaf,), leaf.transform))
    for rule in rules:
        if isinstance(rule, Rule | Rename) and not matched[rule]:
            problems.append(f"{rule}: matches no variable; the module has {_sample(by_path)}")
    return plan, problems


def _rename(name: str, rules: Iterable[WeightRule]) -> tuple[str, Rename | None]:
    for rule in rules:
        if isinstance(rule, Rename) and (key := rule.apply(name)) is not None:
            return key, rule
    return name, None


def _renamed(found: Iterable[Rule], rules: tuple[WeightRule, ...]) -> Iterator[tuple[Rule, Rename | None]]:
    for rule in found:
        keys, renames = zip(*(_rename(key, rules) for key in rule.keys), strict=True)
        yield Rule(keys, rule.paths, rule.transform), renames[0]


def _leftovers(arrays: Mapping[str, np.ndarray], used: Counter[str], rules: tuple[WeightRule, ...]) -> list[str]:
    """Problems with the keys that no variable took."""
    problems = []
    covered: Counter[Any] = Counter()
    for key in arrays:
        if used[key]:
            continue
        tie = next((r for r in rules if isinstance(r, Tied) and r.key == key), None)
        drop = next((r for r in rules if isinstance(r, Drop) and r.matches(key)), None)
        covered[tie or drop] += 1
        if tie is not None:
            if tie.same_as not in arrays:
                problems.append(f"{key}: tied to {tie.same_as}, which is missing")
            elif not _same_bits(arrays[key], arrays[tie.same_as]):
                problems.append(f"{key}: tied to {tie.same_as}, and the two differ")
        elif drop is None:
            problems.append(f"{key}: unused, shape {arrays[key].shape}; give it a variable, or Drop it with a reason")
    for rule in rules:
        if isinstance(rule, Tied | Drop) and not covered[rule]:
            problems.append(f"{rule}: matches no key that is left over")
    return problems


def _rounded_by_jax(value: np.ndarray) -> str | None:
    """Why JAX would not keep this array's bits, or None."""
    kept = jax.dtypes.canonicalize_dtype(value.dtype)
    if kept == value.dtype:
        return None
    return (
        f"dtype {value.dtype} would become {kept}, since jax_enable_x64 is off; cast the state_dict, or load under "
        "jax.enable_x64(True)"
    )


def _nearest(key: str, arrays: Mapping[str, Any], used: Counter[str]) -> str:
    close = difflib.get_close_matches(key, [k for k in arrays if not used[k]], n=1)
    return f"; the nearest unused key is {close[0]}" if close else ""


def _sample(paths: Mapping[str, Any]) -> str:
    shown = list(paths)[:5]
    return ", ".join(shown) + (f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else "")


def _shapes(arrays: Mapping[str, np.ndarray], keys: Iterable[str]) -> str:
    return " and ".join(str(arrays[key].shape) for key in keys)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _as_tensor(torch: Any, value: np.ndarray) -> Any:
    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(value.copy())


def _torch(purpose: str, *, instead: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{purpose} needs PyTorch: pip install 'graphmode[compare]', {instead}") from error
    return torch
