"""Parameters that are one tensor in the original, and whose modules no code of a draft ties."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch

from .ties import ties_of

TIED = "the original ties {} to {}, which are laid out otherwise here: use one of the two in both places"


class Share(NamedTuple):
    """A parameter that is another, too, as what the constructor of a base class ties.

    Attributes:
      holder: the class of the innermost module that both are in and that is drafted.
      target: the parameter as that module reaches it, with `self`.
      value: the other likewise.
      fits: whether both are laid out alike in a port.
    """

    holder: type
    target: str
    value: str
    fits: bool


def shares_of(module: torch.nn.Module, drafted: set[type]) -> list[Share]:
    """The parameters in a model that are others, but for heads, which are no layers of their own in a port."""
    named: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        named.setdefault(id(parameter), []).append(name)
    heads = {tie.key for tie in ties_of(module)}
    found = []
    for names in named.values():
        first, *others = [name for name in names if name not in heads] or names
        seen = [_holder(module, first)]
        for name in others:
            if all(_holder(module, name) is not each for each in seen):  # else it is one module at two places
                seen.append(_holder(module, name))
                found += _share(module, drafted, name, first)
    return list(dict.fromkeys(found))


def with_shares(text: str, shares: Sequence[Share]) -> str:
    """A drafted class that ties at the end of its `__init__` what it does not tie otherwise; as it is where it has
    none."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    inits = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    init = next(inits, None)
    tied = {_ends(*each) for each in _assigned(tree)}
    missing = [each for each in shares if not tied & {_ends(each.target, each.value), _ends(each.value, each.target)}]
    if init is None or not missing:
        return text
    indent = " " * init.body[0].col_offset
    written = [
        f"{indent}{f'{each.target} = {each.value}' if each.fits else f'# TODO {TIED.format(each.target, each.value)}'}"
        for each in missing
    ]
    lines = text.splitlines()
    lines[init.end_lineno : init.end_lineno] = written
    return "\n".join(lines)


def _assigned(tree: ast.AST) -> list[tuple[str, str]]:
    """What is assigned from attribute to attribute, as it is written."""
    return [
        (ast.unparse(target), ast.unparse(node.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]


def _ends(target: str, value: str) -> tuple[str, ...]:
    """The last two names of each, which tell it though it is reached in another way."""
    return tuple(".".join(each.split(".")[-2:]) for each in (target, value))


def _share(module: torch.nn.Module, drafted: set[type], name: str, other: str) -> list[Share]:
    places, others = name.split(".")[:-1], other.split(".")[:-1]
    common = [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(places, others, strict=False))]
    for depth in range(len(common), -1, -1):
        holder = module.get_submodule(".".join(common[:depth]))
        if type(holder) in drafted:
            fits = type(_holder(module, name)) is type(_holder(module, other))
            target, value = (_way(holder, each.split(".")[depth:]) for each in (name, other))
            return [Share(type(holder), target, value, fits)]
    return []


def _holder(module: torch.nn.Module, name: str) -> torch.nn.Module:
    return module.get_submodule(name.rpartition(".")[0])


def _way(holder: torch.nn.Module, names: Sequence[str]) -> str:
    """As code of the holder reaches it: lists by number, dictionaries by name."""
    way, at = "self", holder
    for name in names:
        if isinstance(at, torch.nn.ModuleDict):
            way += f"[{name!r}]"
        else:
            way += f"[{name}]" if name.isdigit() else f".{name}"
        at = at._modules.get(name, at)  # type: ignore[assignment]
    return way
