"""The keys of a `state_dict` that a module has under other names, found by their shapes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment

from .rules import Rename

Shape = tuple[int, ...]
Pair = tuple[str, str]  # a key, or the part that its module is, and what the module here calls it

MOST_RULES = 40
MOST_COMPARED = 40_000  # pairs of names, which take a second
FIELDS = "ijklmn"


def other_names(missing: Mapping[str, Shape], unused: Mapping[str, Shape]) -> tuple[Rename, ...]:
    """The rules by which all missing keys are unused ones of their shapes; none where some have no counterpart.

    Modules go to modules that hold the same names with the same shapes, and what is left goes key by key. Of several
    alike those are paired whose names and numbers are the most alike.

    Args:
      missing: the shapes in PyTorch's layout that the module needs.
      unused: those that the `state_dict` has.
    """
    pairs: list[Pair] = []
    for split in (_modules, _keys):
        needed, there = split(missing), split(unused)
        for kind in dict.fromkeys(needed.values()):
            wanted, given = ([name for name, own in side.items() if own == kind] for side in (needed, there))
            if len(wanted) > len(given) or len(wanted) * len(given) > MOST_COMPARED:
                continue
            paired = list(_likeliest(wanted, given))
            pairs += paired
            for key, path in paired:
                missing, unused = _without(missing, path), _without(unused, key)
    rules = tuple(Rename(key, path) for key, path in _patterns(pairs))
    return rules if not missing and len(rules) <= MOST_RULES else ()


def _modules(shapes: Mapping[str, Shape]) -> dict[str, frozenset[tuple[str, Shape]]]:
    """By the module, what it holds; a parameter of the whole is none of a module."""
    found: dict[str, set[tuple[str, Shape]]] = {}
    for key, shape in shapes.items():
        module, _, name = key.rpartition(".")
        if module:
            found.setdefault(module, set()).add((name, shape))
    return {module: frozenset(held) for module, held in found.items()}


def _keys(shapes: Mapping[str, Shape]) -> dict[str, frozenset[tuple[str, Shape]]]:
    return {key: frozenset({("", shape)}) for key, shape in shapes.items()}


def _without(shapes: Mapping[str, Shape], name: str) -> dict[str, Shape]:
    return {key: shape for key, shape in shapes.items() if key != name and key.rpartition(".")[0] != name}


def _likeliest(wanted: list[str], given: list[str]) -> Iterator[Pair]:
    scores = np.array([[_likeness(path, key) for key in given] for path in wanted])
    for row, column in zip(*linear_sum_assignment(scores, maximize=True), strict=True):
        yield given[column], wanted[row]


def _likeness(path: str, key: str) -> float:
    """Of their words, and more where their numbers are the same or one's last word begins as the other's."""
    last, other = path.rpartition(".")[2], key.rpartition(".")[2]
    begins = 0.5 * (last.startswith(other) or other.startswith(last))
    same_numbers = _numbers(path) == _numbers(key)
    return difflib.SequenceMatcher(None, path, key, autojunk=False).ratio() + begins + same_numbers


def _numbers(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split(".") if part.isdigit())


def _patterns(pairs: Iterable[Pair]) -> dict[Pair, None]:
    """The pairs without what both end in, and one for all of the numbers that both sides have."""
    found: dict[Pair, None] = {}
    for key, path in pairs:
        keys, paths = key.split("."), path.split(".")
        while len(keys) > 1 and len(paths) > 1 and keys[-1] == paths[-1]:
            keys, paths = keys[:-1], paths[:-1]
        if keys == paths:
            continue
        numbers, others = _numbers(".".join(keys)), _numbers(".".join(paths))
        shared = min(len(numbers), len(others), len(FIELDS))
        if numbers[:shared] == others[:shared]:
            keys, paths = (_with_fields(parts, FIELDS[:shared]) for parts in (keys, paths))
        found[".".join(keys), ".".join(paths)] = None
    return found


def _with_fields(parts: list[str], fields: str) -> list[str]:
    left = iter(fields)
    return [f"{{{field}}}" if part.isdigit() and (field := next(left, "")) else part for part in parts]
