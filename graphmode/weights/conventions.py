"""What PyTorch calls each NNX module's parameters, and how it lays them out: known from the type, never the shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
from flax import nnx

from .rules import Rule, gru_cell, lstm_cell
from .transforms import CONV, IDENTITY, LINEAR, ConvTransposeKernel, LinearGeneral, Scalar, Transform

TRANSFORM = "torch_transform"  # the metadata key under which a parameter of ours carries its transform
LOADED_AS = "torch_dtype"  # that of the dtype which a variable had in the state_dict, where JAX holds a narrower one

NO_WEIGHTS = (nnx.RngState, nnx.Cache, nnx.Intermediate)


def carries(transform: Transform) -> dict[str, Any]:
    """Metadata for a parameter of one's own that is laid out otherwise than PyTorch's.

    Example:
      >>> import jax.numpy as jnp
      >>> weight = nnx.Param(jnp.ones((3, 2)), **carries(LINEAR))  # PyTorch holds it [2, 3]
    """
    return {TRANSFORM: transform}


@dataclass(frozen=True)
class Leaf:
    """One variable of a module, under one of its paths.

    Attributes:
      path: dotted, as NNX spells it: `"layers.0.conv.kernel"`.
      name: dotted, as PyTorch would spell it: `"layers.0.conv.weight"`.
      variable: the NNX variable; the same object under several paths where weights are tied.
      transform: between PyTorch's layout and the variable's.
    """

    path: str
    name: str
    variable: nnx.Variable
    transform: Transform


def leaves(module: nnx.Module) -> list[Leaf]:
    """Every variable of the module that a `state_dict` can hold, parents first, shared ones once for each path.

    Random-number state, caches and intermediates are left out: none of them is a weight.
    """
    return [leaf for leaf in _all_leaves(module) if not isinstance(leaf.variable, NO_WEIGHTS)]


def passed_over(module: nnx.Module) -> dict[str, str]:
    """By PyTorch's name for it, the type of each variable that stands for what no `state_dict` holds."""
    found = (leaf for leaf in _all_leaves(module) if isinstance(leaf.variable, NO_WEIGHTS))
    return {leaf.name: type(leaf.variable).__name__ for leaf in found}


def unmade(module: nnx.Module) -> dict[str, str]:
    """By PyTorch's name for it, the type of each lazy layer, whose parameters its first input is yet to make."""
    nodes = ((".".join(names), type(node)) for _, names, node in _modules(module, (), (), ()))
    return {name: cls.__name__ for name, cls in nodes if hasattr(cls, "becomes") and hasattr(cls, "initialize")}


def _all_leaves(module: nnx.Module) -> Iterator[Leaf]:
    for path, names, node in _modules(module, (), (), ()):
        for key, child in _children(node):
            if isinstance(child, nnx.Variable):
                attribute, transform = _convention(node, key, child)
                yield Leaf(".".join((*path, key)), ".".join((*names, attribute)), child, transform)


def module_rules(module: nnx.Module) -> tuple[Rule, ...]:
    """Rules for the modules inside that do not hold one variable a key: the recurrent cells."""
    found: list[Rule] = []
    for path, names, node in _modules(module, (), (), ()):
        if isinstance(node, nnx.OptimizedLSTMCell | nnx.LSTMCell):
            split = not isinstance(node, nnx.OptimizedLSTMCell)
            found += lstm_cell(".".join(names), ".".join(path), suffix="", split=split)
        elif isinstance(node, nnx.GRUCell):
            found += gru_cell(".".join(names), ".".join(path), suffix="")
    return tuple(found)


def unkept(module: nnx.Module) -> tuple[str, ...]:
    """PyTorch's names of what a module's type has no place for: `nnx.BatchNorm` does not count its batches."""
    return tuple(
        ".".join((*names, "num_batches_tracked"))
        for _, names, node in _modules(module, (), (), ())
        if isinstance(node, nnx.BatchNorm)
    )


def _modules(
    node: Any, path: tuple[str, ...], names: tuple[str, ...], above: tuple[int, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Any]]:
    """Each node with its path and with PyTorch's name for it, parents first, shared ones once for each path."""
    yield path, names, node
    for key, child in _children(node):
        if not isinstance(child, nnx.Variable) and id(child) not in above:
            named = names if _is_transparent(node, key) else (*names, key)
            yield from _modules(child, (*path, key), named, (*above, id(child)))


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """Whatever is right below, in order: variables, modules and containers, each under its name or number."""
    found = jtu.tree_flatten_with_path(node, is_leaf=lambda child: child is not node)[0]
    if found and not found[0][0]:  # no pytree: an array, or a module declared with `pytree=False`
        items = list(vars(node).items()) if isinstance(node, nnx.Pytree) else []
    else:
        items = [(jtu.keystr(path, simple=True), child) for path, child in found]
    yield from sorted(((key, child) for key, child in items if not key.startswith("_pytree__")), key=_order)


def _order(item: tuple[str, Any]) -> tuple[int, int, str]:
    key = item[0]
    return (0, int(key), "") if key.isdigit() else (1, 0, key)


def _is_transparent(node: Any, key: str) -> bool:
    """`nnx.Sequential` keeps its modules under `layers`; PyTorch's numbers them right below."""
    return isinstance(node, nnx.Sequential) and key == "layers"


def _convention(module: Any, attribute: str, variable: nnx.Variable) -> tuple[str, Transform]:
    """PyTorch's name and layout of this variable of this module."""
    if variable.has_metadata(TRANSFORM):
        return attribute, variable.get_metadata(TRANSFORM)
    table: dict[str, tuple[str, Transform]]
    match module:
        case nnx.Linear():
            table = {"kernel": ("weight", LINEAR)}
        case nnx.LinearGeneral():
            table = {
                "kernel": ("weight", LinearGeneral(_axes(module.in_features), _axes(module.out_features))),
                "bias": ("bias", LinearGeneral((), _axes(module.out_features))),
            }
        case nnx.Conv():
            table = {"kernel": ("weight", CONV)}
        case nnx.ConvTranspose():
            table = {"kernel": ("weight", ConvTransposeKernel(flipped=not module.transpose_kernel))}
        case nnx.Embed():
            table = {"embedding": ("weight", IDENTITY)}
        case nnx.BatchNorm() | nnx.InstanceNorm():
            table = {
                "scale": ("weight", IDENTITY),
                "mean": ("running_mean", IDENTITY),
                "var": ("running_var", IDENTITY),
            }
        case nnx.LayerNorm() | nnx.RMSNorm() | nnx.GroupNorm():
            table = {"scale": ("weight", IDENTITY)}
        case nnx.PReLU():
            table = {"negative_slope": ("weight", Scalar())}
        case _:
            table = {}
    return table.get(attribute, (attribute, IDENTITY))


def _axes(features: int | tuple[int, ...]) -> tuple[int, ...]:
    return (features,) if isinstance(features, int) else tuple(features)
