"""Function calls of a module that belong together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...errors import is_of_a_library
from .change import Change, Site

OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "neg": "-",
    "invert": "~",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "getitem": "x[...]",
}  # by what stands between the underscores


def operator(name: str) -> str:
    """The operator that a function is written as; nothing of one that is called by its name."""
    if not name.startswith("__"):
        return ""
    bare = name.strip("_")
    return OPERATORS.get(bare) or OPERATORS.get(bare[1:], "")  # from the right, or in place


@functools.cache
def spelled(name: str) -> str:
    """A function's name, as people write it."""
    return operator(name) or {"to": "Tensor.to"}.get(name, name)


def numbers(sites: list[Site]) -> frozenset[int]:
    """Those of the calls."""
    return frozenset(site.number for site in sites)


def instruction(site: Site) -> Any:
    """What names the reference's own instruction that makes a call, with what leads to it in libraries: the same
    wherever its line is called from, and in all modules of a class."""
    own = next((i for i, each in enumerate(site.place) if not is_of_a_library(each[0].co_filename)), len(site.place))
    return site.name, tuple(each[:2] for each in site.place[: own + 1])


def takes_all(part: Any) -> bool:
    """Whether a part of an index is `:`; others may be arrays, which compare elementwise."""
    return isinstance(part, slice) and part == slice(None)


def written_in(site: Site) -> CodeType | None:
    """The function of the reference's own that makes a call, if it is no method of a module."""
    own = next((each for each in site.place if not is_of_a_library(each[0].co_filename)), None)
    return own[0] if own is not None and own[2] is None else None


def source(site: Site) -> str:
    """The file and line of the reference's own code that a call comes from; nothing where there is none."""
    for code, at, *_ in site.place:
        if not is_of_a_library(code.co_filename):
            lines = [line for start, stop, line in code.co_lines() if start <= at < stop and line is not None]
            return f"{Path(code.co_filename).name}:{lines[0]}" if lines else ""
    return ""


def _of_one_module(site: Site) -> Any:
    return site.name, site.place


def _of_any_module(site: Site) -> Any:
    return site.name, tuple(each[:2] for each in site.place)


def constructs(sites: list[Site]) -> list[list[Site]]:
    """The calls that one instruction of one module makes, in all turns of a loop, in the order of the first."""
    return _grouped(sites, _of_one_module)


def widest_first(sites: list[Site]) -> list[list[Site]]:
    """The calls that one instruction makes wherever it is called from, such as of a function that is called twice;
    that it makes in all modules, such as several heads of one class; and in one module."""
    several = [_grouped(sites, key) for key in (instruction, _of_any_module, _of_one_module)]
    return list({numbers(same): same for tried in several for same in tried}.values())


def _grouped(sites: list[Site], key: Callable[[Site], Any]) -> list[list[Site]]:
    found: dict[Any, list[Site]] = {}
    for site in sites:
        found.setdefault(key(site), []).append(site)
    return list(found.values())


def groups(sites: list[Site]) -> list[list[Site]]:
    """Calls that are written alike, down to their numbers, on tensors of the same shapes, and on others; those of one
    function on tensors of the same shapes; and those of one function: where there are several, the most alike first."""
    found: list[dict[Any, list[Site]]] = [{}, {}, {}, {}]
    for site in sites:
        leaves = pytree.tree_leaves((site.args, site.kwargs))
        shapes = tuple(tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor))
        others = tuple(str(x) for x in leaves if not isinstance(x, torch.Tensor))
        keys = (site.name, shapes, others), (site.name, others), (site.name, shapes), site.name
        for keyed, key in zip(found, keys, strict=True):
            keyed.setdefault(key, []).append(site)
    several = [same for keyed in found for same in keyed.values() if len(same) > 1]
    return [same for i, same in enumerate(several) if same not in several[:i]]


def at_same_instructions(change: Change, here: list[Site], there: list[Site]) -> Change | None:
    """A change of the calls that some instructions make here, at those that they make in another run: of all of them,
    or of the first or the last that each makes.

    Args:
      change: found here.
      here, there: the function calls of the two runs, which may differ in how often a loop turns.

    Returns:
      The same change there; None where it is of other calls, or names tensors or calls by their numbers.
    """
    if not change.is_of_sites_alone:
        return None
    made, elsewhere = _grouped(here, instruction), {instruction(same[0]): same for same in _grouped(there, instruction)}
    changed: list[Site] = []
    for same in made:
        wanted = [site.number in change.sites for site in same]
        found = elsewhere.get(instruction(same[0]), [])
        if all(wanted):
            changed += found
        elif sum(wanted) == 1 and wanted[0]:
            changed += found[:1]
        elif sum(wanted) == 1 and wanted[-1]:
            changed += found[-1:]
        elif any(wanted):
            return None
    return replace(change, sites=numbers(changed))


def is_floating(value: Any) -> bool:
    """Whether it is a floating tensor."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def makers(sites: list[Site], of: Callable[[Any], bool] = is_floating) -> dict[int, Site]:
    """By the identity of a tensor of this kind, floating as it is, the call that made it: no call that hands on what it
    was given, such as `contiguous` does."""
    found: dict[int, Site] = {}
    for site in sites:
        handed_on = (given is site.result for given in pytree.tree_leaves((site.args, site.kwargs)))
        if of(site.result) and not any(handed_on):
            found.setdefault(id(site.result), site)
    return found
