"""Which keys of a `state_dict` make which variables of a module, and what is wrong with the rules that say so."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flax import nnx

from .conventions import Leaf, leaves, module_rules
from .rules import Rename, Rule, Stacked, Tied, WeightRule, groups
from .transforms import Stack, Transform


class WeightsError(ValueError):
    """Weights that do not match a module.

    Attributes:
      problems: one line for each key, variable or rule that failed; the message lists all of them.
    """

    def __init__(self, problems: Sequence[str], *, subject: str):
        self.problems = tuple(problems)
        self.subject = subject
        super().__init__(f"{subject}: {len(problems)} problem(s)\n" + "\n".join(f"  - {line}" for line in problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(WeightsError, self.problems, subject=self.subject), ()


@dataclass(frozen=True)
class Group:
    """Variables that are made from these keys together; mostly one of each."""

    keys: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    transform: Transform
    by: Rule | Rename | Stacked | None = None  # of the rules that were given, the one that says so

    @property
    def paths(self) -> str:
        return ", ".join(leaf.path for leaf in self.leaves)


def as_rules(rules: Any) -> tuple[WeightRule, ...]:
    """Raises `TypeError` where they are no rules, or one by itself."""
    if isinstance(rules, WeightRule):
        raise TypeError(f"rules is {rules!r} by itself; give a list: [{rules!r}]")
    wanted = "a list of Rule, Rename, Stacked, Drop and Tied of graphmode.weights"
    if isinstance(rules, str | Mapping) or not isinstance(rules, Iterable):
        raise TypeError(f"rules is {rules!r}; give {wanted}")
    rules = tuple(rules)
    if unknown := [rule for rule in rules if not isinstance(rule, WeightRule)]:
        raise TypeError(f"rules has {unknown[0]!r}; give {wanted}")
    return rules


def make_plan(module: nnx.Module, rules: tuple[WeightRule, ...]) -> tuple[list[Group], list[str]]:
    """The groups that cover every variable once for each of its paths, and the problems with the rules.

    Raises:
      TypeError: where the module is a class, None, or PyTorch's.
    """
    if isinstance(module, type):
        raise TypeError(f"module is the class {module.__name__}; give an instance: {module.__name__}(...)")
    if module is None:
        raise TypeError("module is None; give the port, an nnx.Module")
    if hasattr(module, "load_state_dict") and not isinstance(module, nnx.Pytree):
        raise TypeError(f"module is {type(module).__name__}, a module of PyTorch; give the port, an nnx.Module")
    by_path: dict[str, Leaf] = {}
    problems: list[str] = []
    for leaf in leaves(module):
        if getattr(leaf.variable.get_value(), "shape", None) is None:
            problems.append(f"{leaf.path}: holds {type(leaf.variable.get_value()).__name__}; only arrays are carried")
        else:
            by_path[leaf.path] = leaf
    taken: set[str] = set()
    plan: list[Group] = []
    matched: Counter[Any] = Counter()
    explicit = [(rule, rule) for rule in rules if isinstance(rule, Rule)]
    for rule, by in (*explicit, *_renamed(module_rules(module), rules)):
        for keys, paths in groups(rule, by_path):
            if any(path in taken for path in paths):
                continue
            matched[by] += 1
            taken.update(paths)
            if absent := [path for path in paths if path not in by_path]:
                problems.append(f"{rule}: the module has no {', '.join(absent)}")
                continue
            members = tuple(by_path[path] for path in paths)
            plan.append(Group(keys, members, rule.transform or members[0].transform, by))
    for leaf in by_path.values():
        if leaf.path not in taken:
            try:
                group = _by_name(leaf, rules)
            except ValueError as error:
                problems.append(str(error))
                continue
            matched[group.by] += 1
            plan.append(group)
    idle = [rule for rule in rules if isinstance(rule, Rule | Rename | Stacked) and not matched[rule]]
    problems += [f"{rule}: matches no variable; {_instead(rule, by_path, plan)}" for rule in idle]
    return plan, problems + _clashes(plan, rules)


def _by_name(leaf: Leaf, rules: Iterable[WeightRule]) -> Group:
    """By the first `Rename` or `Stacked` that matches its name.

    Raises:
      ValueError: where that is a `Stacked`, and the variable lacks an axis, or has no layer in it.
    """
    shape = tuple(leaf.variable.get_value().shape)
    for rule in rules:
        if isinstance(rule, Rename) and (key := rule.apply(leaf.name)) is not None:
            return Group((key,), (leaf,), leaf.transform, rule)
        if isinstance(rule, Stacked):
            counts = shape[: len(rule.fields)]
            if rule.apply(leaf.name, [0] * len(rule.fields)) is None:
                continue
            if len(counts) < len(rule.fields) or 0 in counts:
                fields = ", ".join(rule.fields)
                raise ValueError(f"{rule}: {leaf.path} has shape {shape}, and an axis for each of {fields} was wanted")
            return Group(rule.apply(leaf.name, counts) or (), (leaf,), Stack(counts, leaf.transform), rule)
    return Group((leaf.name,), (leaf,), leaf.transform)


def renamed(name: str, rules: Iterable[WeightRule]) -> tuple[str, Rename | None]:
    """The key of this name by the first `Rename` that matches it, and that rule."""
    for rule in rules:
        if isinstance(rule, Rename) and (key := rule.apply(name)) is not None:
            return key, rule
    return name, None


def _renamed(found: Iterable[Rule], rules: tuple[WeightRule, ...]) -> Iterator[tuple[Rule, Rename | None]]:
    for rule in found:
        keys, renames = zip(*(renamed(key, rules) for key in rule.keys), strict=True)
        yield Rule(keys, rule.paths, rule.transform), renames[0]


def _clashes(plan: Iterable[Group], rules: Iterable[WeightRule]) -> list[str]:
    """Keys that would be written by several variables, and ties to a key that none writes."""
    problems = []
    makers: dict[str, Group] = {}
    for group in plan:
        for key in group.keys:
            first = makers.setdefault(key, group)
            if [id(leaf.variable) for leaf in first.leaves] != [id(leaf.variable) for leaf in group.leaves]:
                problems.append(
                    f"{key}: stands for both {first.paths} and {group.paths}; give each a key with a Rule, or tie "
                    "them in the port"
                )
    for rule in rules:
        if isinstance(rule, Tied) and rule.same_as not in makers:
            problems.append(f"{rule}: no variable has the key {rule.same_as}")
    return problems


def _instead(rule: WeightRule, by_path: Mapping[str, Leaf], plan: Iterable[Group]) -> str:
    """What to write for a rule that matches nothing: before another one that takes all that it would, a name where it
    has NNX's path in its place, or what there is."""
    for first, leaf in ((group.by, leaf) for group in plan for leaf in group.leaves):
        if first is not None and _takes(rule, leaf.name):
            return f"{first} is tried before it, and takes {leaf.name}: put the narrower one first"
    for leaf in by_path.values():
        if leaf.path != leaf.name and _takes(rule, leaf.path):
            return f"write its path as PyTorch would spell it: {leaf.path} is {leaf.name} there"
    return f"the module has {_sample(by_path)}"


def _takes(rule: WeightRule, name: str) -> bool:
    if isinstance(rule, Stacked):
        return rule.apply(name, [1] * len(rule.fields)) is not None
    return isinstance(rule, Rename) and rule.apply(name) is not None


def _sample(paths: Mapping[str, Any]) -> str:
    shown = list(paths)[:5]
    return ", ".join(shown) + (f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else "")
