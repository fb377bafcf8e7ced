"""A `state_dict` held against a module: what goes where, and everything that does not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .conventions import Leaf, passed_over, unkept, unmade
from .hints import computed
from .plan import Group, make_plan, renamed
from .rules import Drop, Rename, Stacked, Tied, WeightRule

UNKEPT = "; what PyTorch keeps in no state_dict, as with persistent=False, is an nnx.Cache here"
KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


@dataclass
class Found:
    """What came of holding a `state_dict` against a module.

    Attributes:
      plan: which keys make which variables.
      written: the values, as the `state_dict` has them, by the identity of their variables.
      missing: keys that a variable needs.
      unused: keys that no variable takes.
      problems: all of them.
    """

    plan: list[Group]
    written: dict[int, tuple[Leaf, np.ndarray]]
    missing: list[str]
    unused: dict[str, None]
    problems: list[str]

    @property
    def lacks_all(self) -> bool:
        """Whether no key that the module needs is there."""
        return bool(self.missing) and len(self.missing) == sum(len(group.keys) for group in self.plan)


def matched(
    module: nnx.Module, rules: tuple[WeightRule, ...], arrays: Mapping[str, np.ndarray], unreadable: Mapping[str, str]
) -> Found:
    """Holds arrays, and keys whose tensors cannot be read with the reasons, against a module; writes nothing."""
    plan, problems = make_plan(module, rules)
    problems += unreadable.values()
    copies = {rule.same_as: rule.key for rule in rules if isinstance(rule, Tied)}  # of two, savers may keep either
    arrays = {**{k: arrays[copy] for k, copy in copies.items() if k not in arrays and copy in arrays}, **arrays}
    taken = {key for group in plan for key in group.keys}
    unused = {key: None for key in arrays if key not in taken}
    found = Found(plan, {}, [], unused, problems)
    lacking: list[tuple[Group, list[str]]] = []
    for group in plan:
        if absent := [key for key in group.keys if key not in arrays and key not in unreadable]:
            lacking.append((group, absent))
        elif all(key in arrays for key in group.keys):
            problems += _convert(group, arrays, found.written)
    there = found.written.keys()
    lacking = [(group, keys) for group, keys in lacking if not {id(leaf.variable) for leaf in group.leaves} <= there]
    found.missing = [key for _, keys in lacking for key in keys]
    sources = computed(found.missing, unused)
    for group, absent in lacking:
        by = "" if group.by is None else f" by {group.by}"
        for key in absent:
            hint = _nearest(key, unused)
            if key in sources:
                parts, advice = sources[key]
                hint = f"; it is computed from {', '.join(parts)}: {advice}"
            elif not hint and not any(isinstance(leaf.variable, nnx.Param | nnx.BatchStat) for leaf in group.leaves):
                hint = UNKEPT
            problems.append(f"{key}: missing, and {group.paths} needs it{by}{hint}")
    silent = {renamed(name, rules)[0] for name in unkept(module)}
    stacked = [rule for rule in rules if isinstance(rule, Stacked)]
    silent |= {key for rule in stacked for name in unkept(module) for key in unused if rule.makes(key, name)}
    silent.update(part for parts, _ in sources.values() for part in parts)
    lazy = {renamed(name, rules)[0]: cls for name, cls in unmade(module).items()}
    problems += _leftovers(arrays, unused, silent, rules, passed_over(module), lazy)
    return found


def without_prefix(
    prefix: Rename,
    module: nnx.Module,
    rules: tuple[WeightRule, ...],
    arrays: Mapping[str, np.ndarray],
    unreadable: Mapping[str, str],
) -> list[str]:
    """One line on the prefix with which most keys are right, and the problems that are left then."""
    if prefix.key:
        fact = f"keys that the module needs begin with '{prefix.key}.' in the state_dict"
        shown = f"key.removeprefix('{prefix.key}.')"
    else:
        fact = f"keys that the module needs begin with '{prefix.path}.', and in the state_dict without it"
        shown = f"'{prefix.path}.' + key"

    def changed(key: str) -> str:
        return key.removeprefix(f"{prefix.key}.") if prefix.key else f"{prefix.path}.{key}"

    found = matched(module, (*rules, prefix), arrays, unreadable)
    advice = f"add Rename({prefix.key!r}, {prefix.path!r}) to the rules"
    if found.missing:  # other rules may give these keys, as they would be with the prefix changed
        arrays = {changed(key): array for key, array in arrays.items()}
        unreadable = {changed(key): problem for key, problem in unreadable.items()}
        other = matched(module, rules, arrays, unreadable)
        if len(other.missing) < len(found.missing):
            found = other
            advice = f"give {{{shown}: value for key, value in state_dict.items()}}, for which the rules are made"
    return [f"{'most' if found.missing else 'all'} {fact}: {advice}", *found.problems]


def under_other_names(
    found: Found,
    module: nnx.Module,
    rules: tuple[WeightRule, ...],
    arrays: Mapping[str, np.ndarray],
    unreadable: Mapping[str, str],
) -> list[str] | None:
    """One line on rules that give all keys the names here, and the problems that are left then; None if none do."""
    from .other_names import other_names  # by scipy.optimize, which takes half a second that errors alone need

    lacking = [group for group in found.plan if len(group.keys) == 1 and group.keys[0] in found.missing]
    if found.missing != [key for group in lacking if group.by is None for key in group.keys]:
        return None
    try:
        needed = {group.keys[0]: _shape_in_pytorch(group) for group in lacking}
    except ValueError:  # a variable that its transform does not take, which no name mends
        return None
    renames = other_names(needed, {key: arrays[key].shape for key in found.unused})
    if not renames:
        return None
    renamed = matched(module, (*rules, *renames), arrays, unreadable)
    if renamed.missing or len(renamed.problems) >= len(found.problems):
        return None
    advice = ", ".join(f"Rename({rule.key!r}, {rule.path!r})" for rule in renames)
    fact = f"{len(needed)} keys that the module needs are there under other names, as their shapes and words tell"
    return [f"{fact}: if that is right, add to the rules (`weights` of a case) {advice}", *renamed.problems]


def _shape_in_pytorch(group: Group) -> tuple[int, ...]:
    (array,) = group.transform.to_reference(*(np.empty(leaf.variable.get_value().shape) for leaf in group.leaves))
    return array.shape


def _convert(group: Group, arrays: Mapping[str, np.ndarray], written: dict[int, tuple[Leaf, np.ndarray]]) -> list[str]:
    """Adds the group's values to `written`, by the identity of their variables; gives the problems with them."""
    keys = ", ".join(group.keys)
    try:
        values = group.transform.to_model(*(arrays[key] for key in group.keys))
    except ValueError as error:
        return [f"{keys}: {error}"]
    if problem := not_arrays(values, len(group.leaves)):
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


def not_arrays(given: Any, wanted: int) -> str | None:
    """What a transform gave in place of a tuple of arrays, and what it should have given; None if it gave that."""
    if isinstance(given, Sequence) and len(given) == wanted:
        return None
    got = f"{len(given)} arrays" if isinstance(given, Sequence) else type(given).__name__
    return f"{got}; give a tuple of {wanted}"


def _leftovers(
    arrays: Mapping[str, np.ndarray],
    unused: Iterable[str],
    silent: set[str],
    rules: tuple[WeightRule, ...],
    others: Mapping[str, str],
    lazy: Mapping[str, str],
) -> list[str]:
    """Problems with the keys that no variable took, and with the rules that speak of such keys."""
    problems = []
    idle = {rule for rule in rules if isinstance(rule, Tied | Drop)}
    unused = list(unused)
    twins = _twins(arrays, unused)
    for key in unused:
        tie = next((r for r in rules if isinstance(r, Tied) and r.key == key), None)
        drop = next((r for r in rules if isinstance(r, Drop) and r.matches(key)), None)
        idle -= {tie or drop}
        if tie is not None:
            if tie.same_as in arrays and not _same_bits(arrays[key], arrays[tie.same_as]):
                problems.append(f"{key}: tied to {tie.same_as}, and the two differ")
        elif drop is None and key not in silent:
            advice = "give it a variable, or Drop it with a reason"
            if key in others:
                advice = f"it is an nnx.{others[key]} here, which no state_dict holds: make it an nnx.BatchStat"
            elif (layer := key.rpartition(".")[0]) in lazy:
                at = f" of {layer}" if layer else ""
                advice = f"the {lazy[layer]}{at} has no parameters yet: call its initialize(shape) before, or the model"
            elif key in twins:
                advice = (
                    f"it holds what {twins[key]} does: of one tensor, as in a module under two names, say "
                    f"Tied({key!r}, {twins[key]!r}), or Drop it with a reason"
                )
            problems.append(f"{key}: unused, shape {arrays[key].shape}; {advice}")
    idle -= {r for r in idle if isinstance(r, Tied) and r.key not in arrays and r.same_as in arrays}  # left out
    problems += [f"{rule}: matches no key that is left over" for rule in rules if rule in idle]
    return problems


def _twins(arrays: Mapping[str, np.ndarray], unused: Sequence[str]) -> dict[str, str]:
    """By unused key, the used one that holds the same, in a layer that holds the same throughout."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items() if unused else ():
        layer, _, name = key.rpartition(".")
        layers.setdefault(layer, {})[name] = array
    left = set(unused)
    mine = {key.rpartition(".")[0] for key in unused}
    used = [layer for layer, held in layers.items() if layer and not any(f"{layer}.{name}" in left for name in held)]
    found: dict[str, str] = {}
    for layer in filter(None, mine):
        held = layers[layer]
        if all((x == x.flat[:1]).all() for x in held.values()):  # zeros and ones, say
            continue
        same = next((one for one in used if _hold_the_same(held, layers[one])), None)
        found.update({f"{layer}.{name}": f"{same}.{name}" for name in held} if same is not None else {})
    return found


def _hold_the_same(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(_same_bits(x, b[name]) for name, x in a.items())


def _kind(dtype: Any) -> int:
    return next((i for i, kind in enumerate(KINDS) if jnp.issubdtype(dtype, kind)), len(KINDS))


def _rounded_by_jax(value: np.ndarray) -> str | None:
    """Why JAX would not keep this array, or None; int64 that fits into int32 is kept."""
    kept = jax.dtypes.canonicalize_dtype(value.dtype)
    if kept == value.dtype:
        return None
    if value.dtype != np.int64:
        return (
            f"dtype {value.dtype} would become {kept}, since jax_enable_x64 is off; cast the state_dict, or load under "
            "jax.enable_x64(True)"
        )
    limits = np.iinfo(kept)
    is_large = (value < limits.min) | (value > limits.max)
    if not is_large.any():
        return None
    first = [int(i) for i in np.unravel_index(is_large.argmax(), value.shape)]
    return (
        f"{value[*first]} at {first} does not fit into {kept}, and jax_enable_x64 is off; load under "
        "jax.enable_x64(True)"
    )


def _nearest(key: str, unused: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, sorted(unused), n=1)
    return f"; the nearest unused key is {close[0]}" if close else ""


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
