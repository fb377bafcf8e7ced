"""The classes and functions that a model is made of, where their source is, and what of it a port needs."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ..case import CaseError
from .arguments import handed_lists
from .draws import drawers
from .huggingface import is_framework
from .initial import only_sets_values, sets_more
from .kinds import kind_of_value
from .model import (
    Model,
    holds_code,
    is_function_of_gradients,
    is_mixin,
    is_module,
    is_of_others,
    is_registry,
    is_result,
    is_self,
    layer_of,
)
from .names import UNKNOWN, Scope, is_of_torch, torch_name
from .recording import Recording
from .running_torch import helper_class
from .settled import only_reports
from .spans import Spans
from .ties import ties_of

Written = type | FunctionType
# a function that calls these alone, as one that copies a layer, makes nothing that draws its first values
_WITHOUT_RNGS = (torch.nn.ModuleList, torch.nn.Sequential, copy.deepcopy, range, len, enumerate)


@dataclass(frozen=True)
class Part:
    """A class or function of the model.

    Attributes:
      item: itself.
      node: its source.
      spans: the text of its file.
      scope: the names of its module.
      home: the name of that module.
      kept: of a class, the methods that a port needs.
    """

    item: Written
    node: ast.stmt
    spans: Spans
    scope: Scope
    home: str
    kept: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What it is called there, as a function may be that is written as `name = lambda ...`."""
        return self.node.name  # type: ignore[attr-defined]


def parts_of(build: Any, module: torch.nn.Module, recording: Recording) -> tuple[Model, list[Part]]:
    """What is drafted, in an order in which Python can read it.

    Args:
      build: the class, or the function, that gives the model.
      module: that it gave.
      recording: of what ran meanwhile.

    Raises:
      CaseError: where there is no source.
    """
    model = _known(module, recording)
    if not model.classes and (is_of_torch(build) or not isinstance(build, FunctionType)):
        raise CaseError(f"the model is PyTorch's own {type(module).__name__}: write gm.nn.{type(module).__name__}")
    functions = [_part(build)] if isinstance(build, FunctionType) else []
    parts: list[Part] = []
    while True:
        for cls in _classes_of_calls([*parts, *functions], model):
            model.classes.setdefault(cls, cls.__name__)
        for cls in (each for part in [*parts, *functions] for each in _named_classes(part)):
            model.classes.setdefault(cls, cls.__name__)
        new = [cls for cls in model.classes if all(part.item is not cls for part in parts)]
        parts = _all_keeping([*parts, *map(_part, new)], functions)
        called = _called_functions(parts, functions)
        if not new and len(called) == len(functions):
            break
        functions = called
        model.functions.update((part.item, part.name) for part in functions)
    for part in parts:
        _add_variables(part, model)
    _add_lists(parts, model)
    every = [*parts, *functions]
    model.builders |= _builders(model, every)
    drawing = drawers(every)
    model.drawers |= {part.item for part in every if part.item in drawing and part.name not in model.builders}
    return model, _in_order([*functions, *parts])


def _called_functions(parts: list[Part], functions: list[Part]) -> list[Part]:
    """The functions, with those that the parts call, and these in turn."""
    found = list(functions)
    waiting = [each for part in (*parts, *found) for each in _functions(part)]
    while waiting:
        item = waiting.pop(0)
        if all(part.item is not item for part in found) and (part := _part_or_none(item)) is not None:
            found.append(part)
            waiting += _functions(part)
    return found


def _part_or_none(item: Written) -> Part | None:
    try:
        return _part(item)
    except CaseError:
        return None


def _known(module: torch.nn.Module, recording: Recording) -> Model:
    """What the modules tell that were made: those that the model is of, and those that it was made from."""
    model = Model(recording=recording, ties=ties_of(module))
    for cls in (each for inside in module.modules() for each in _own_classes(type(inside))):
        model.classes.setdefault(cls, cls.__name__)
    made = [each for each, _ in recording.arguments.values() if isinstance(each, torch.nn.Module)]
    for inside in dict.fromkeys([*module.modules(), *made]):
        for cls in _own_classes(type(inside)):
            held = {**inside._parameters, **inside._buffers}
            model.variables.setdefault(cls, set()).update(name for name, value in held.items() if value is not None)
            model.buffers.setdefault(cls, set()).update(inside._buffers)
            model.absent.setdefault(cls, set()).update(name for name, value in held.items() if value is None)
            model.transient.setdefault(cls, set()).update(inside._non_persistent_buffers_set)
            settings = model.settings.setdefault(cls, {})
            kinds = {name: kind_of_value(value) for name, value in vars(inside).items()}
            settings |= {name: kind if settings.get(name, kind) is kind else None for name, kind in kinds.items()}
            model.arrays.setdefault(cls, set()).update(
                name for name, value in vars(inside).items() if _is_of_tensors(value)
            )
            model.children.setdefault(cls, {}).update((name, type(child)) for name, child in inside._modules.items())
            for name, child in inside._modules.items():
                if child is not None:
                    model.instances.setdefault((cls, name), child)
    for cls, absent in model.absent.items():
        model.variables[cls] -= absent
    return model


def _add_variables(part: Part, model: Model) -> None:
    """Of a class of which nothing was made, the parameters and buffers that its code names, and its layer's."""
    if not is_module(part.item) or part.item in model.variables:
        return
    found = {"weight"} if layer_of(part.item) is not None else set()  # type: ignore[arg-type]
    for node in ast.walk(part.node):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("register_buffer", "register_parameter"):
            found |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}  # type: ignore[misc]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = part.scope.find(node.value.func)
            if isinstance(made, type) and issubclass(made, torch.nn.Parameter):
                found |= {each.attr for each in node.targets if isinstance(each, ast.Attribute) and is_self(each.value)}
    model.variables[part.item] = found  # type: ignore[index]


def _is_of_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is torch.Tensor for each in value)


def _add_lists(parts: list[Part], model: Model) -> None:
    """The arguments that are lists, and those that hand them on."""
    found: set[tuple[type, str]] = set()
    while new := {each for part in parts for each in _handed_lists(part, model)} - found:
        found |= new
        for cls, name in new:
            model.lists.setdefault(cls, set()).add(name)


def _handed_lists(part: Part, model: Model) -> Iterator[tuple[type, str]]:
    """The modules inside that a class gives lists, and as which arguments of `forward`."""
    cls: Any = part.item
    body = part.node.body if isinstance(part.node, ast.ClassDef) else []
    for method in (each for each in body if isinstance(each, ast.FunctionDef)):
        own = model.lists.get(cls, set()) if method.name == "forward" else set()
        for name, place in handed_lists(method, part.scope.within(method), own):
            kind: Any = model.children.get(cls, {}).get(name)
            if kind in model.classes:
                names = [*inspect.signature(kind.forward).parameters][1:]
                taken = names[place : place + 1] if isinstance(place, int) else [place]
                yield from ((kind, each) for each in taken)


def _own_classes(cls: type) -> Iterator[type]:
    for each in cls.__mro__:
        is_own = issubclass(each, torch.nn.Module) and not is_of_torch(each) and not is_framework(each)
        if is_own or (is_mixin(each) and is_module(cls)):
            yield each


def _in_order(parts: list[Part]) -> list[Part]:
    """Functions, then classes, in the order of the files, but none before what it takes when Python reads it."""
    left = sorted(parts, key=lambda part: (isinstance(part.item, type), part.home, part.node.lineno))
    taken = {part.item: _taken_when_read(part) for part in parts}
    ordered: list[Part] = []
    while left:
        waiting = {part.item for part in left}
        free = next((part for part in left if not taken[part.item] & waiting - {part.item}), left[0])
        ordered.append(free)
        left.remove(free)
    return ordered


def _taken_when_read(part: Part) -> set[Any]:
    """The classes and functions that a definition takes: bases, decorators, defaults, values of a class."""
    node: Any = part.node
    taken: list[ast.AST] = [*node.decorator_list]
    if isinstance(node, ast.ClassDef):
        taken += [*node.bases, *(each for each in node.body if not isinstance(each, ast.FunctionDef))]
    inside = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
    for each in inside if isinstance(node, ast.ClassDef) else [node]:
        taken += [*each.args.defaults, *filter(None, each.args.kw_defaults)]
    names = (name for each in taken for name in ast.walk(each) if isinstance(name, ast.Name | ast.Attribute))
    found = (_of_alias(part.scope.find(name)) for name in names)
    return {each for item in found for each in item if isinstance(each, type | FunctionType)}


def _of_alias(found: Any) -> list[Any]:
    """An object and, of a partial, what it calls; of the `apply` of an autograd function, that."""
    holder = getattr(found, "__self__", None)
    if is_function_of_gradients(holder):
        return [holder]
    if holds_code(found):
        values = found.values() if isinstance(found, dict) else found
        return [each for value in values for each in _of_alias(value)]
    if isinstance(found, partial):
        inner = [found.func, *found.args, *found.keywords.values()]
        return [found, *(each for value in inner for each in _of_alias(value))]
    if isinstance(found, torch.nn.Module):
        return [found, *dict.fromkeys(each for inside in found.modules() for each in _own_classes(type(inside)))]
    return [found, type(found)] if helper_class(type(found)) or is_registry(found) else [found]


def _part(item: Written) -> Part:
    try:
        bare = inspect.unwrap(item)
        file = inspect.getsourcefile(bare)
        line = inspect.getsourcelines(bare)[1]
        text = Path(file or "").read_text()
    except (OSError, TypeError) as error:
        raise CaseError(
            f"the source of {item.__qualname__} is not to be had ({error}); draft what is in a file"
        ) from error
    if item.__name__ == "<lambda>" and isinstance(item, FunctionType):
        return _named_lambda(item, ast.parse(text), text)
    nodes = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and node.name == item.__name__
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) == max(line, 1)
    ]
    if not nodes:
        raise CaseError(
            f"{item.__qualname__} is not written as a class or def in {Path(file or '').name}; draft what is"
        )
    methods = [item] if isinstance(item, FunctionType) else vars(item).values()
    functions = (inspect.unwrap(each) for each in methods if isinstance(each, FunctionType))
    outer = next((each.__globals__ for each in functions), None) or vars(sys.modules[item.__module__])
    kept = _kept(item) if is_module(item) else frozenset(_methods_in(nodes[0]))  # type: ignore[arg-type]
    return Part(item, nodes[0], Spans(text, file or ""), Scope(outer), item.__module__, kept)


def _named_lambda(item: FunctionType, tree: ast.Module, text: str) -> Part:
    """`name = lambda x: ...` of a file, as the function that it is."""
    for node in tree.body:
        value: Any = getattr(node, "value", None)
        target = (getattr(node, "targets", None) or [None])[0]
        is_named = isinstance(value, ast.Lambda) and isinstance(target, ast.Name)
        if is_named and item.__globals__.get(target.id) is item:
            spans = Spans(text)
            body = spans.text(*spans.of(value.body))
            body = f"({body})" if "\n" in body and not body.startswith("(") else body
            written = f"def {target.id}({ast.unparse(value.args)}):\n    return {body}\n"
            return Part(item, ast.parse(written).body[0], Spans(written), Scope(item.__globals__), item.__module__)
    raise CaseError(f"a lambda in line {item.__code__.co_firstlineno} of {item.__module__} has no name; draft what has")


def _methods_in(node: ast.AST) -> Iterator[str]:
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return (each.name for each in body if isinstance(each, ast.FunctionDef))


def _all_keeping(parts: list[Part], functions: list[Part]) -> list[Part]:
    """The classes with the methods that each keeps: for itself, for what is derived from it, for what others name."""
    while True:
        kept = [part.kept for part in parts]
        parts = [replace(part, kept=_kept_by_all(part, parts)) for part in parts]
        named = _named_of_others([*parts, *functions])
        parts = [_keeping(part, named) for part in parts]
        parts = [replace(part, kept=_kept_by_all(part, parts)) for part in parts]
        if [part.kept for part in parts] == kept:
            return parts


def _keeping(part: Part, named: frozenset[str]) -> Part:
    is_own = isinstance(part.item, type) and is_module(part.item)
    return replace(part, kept=_kept(part.item, named)) if is_own else part  # type: ignore[arg-type]


def _named_of_others(parts: list[Part]) -> frozenset[str]:
    """The attributes that code which is kept reads of other objects than its own."""
    names: set[str] = set()
    for part in parts:
        body = part.node.body if isinstance(part.node, ast.ClassDef) else [part.node]
        is_function = isinstance(part.node, ast.FunctionDef)
        kept = [each for each in body if isinstance(each, ast.FunctionDef) and (is_function or each.name in part.kept)]
        inside = (node for each in kept for node in ast.walk(each) if isinstance(node, ast.Attribute))
        names |= {node.attr for node in inside if not is_self(node.value)}
    return frozenset(names) - frozenset(dir(torch.nn.Module))


def _kept(cls: type, named: frozenset[str] = frozenset()) -> frozenset[str]:
    """The methods that running the model takes, and making it, and those that other code names."""
    methods: dict[str, list[ast.AST]] = {}
    for base in _own_classes(cls):
        for name, each in vars(base).items():
            function = getattr(each, "__func__", getattr(each, "fget", each))
            if isinstance(function, FunctionType):
                methods.setdefault(name, []).append(ast.parse(textwrap.dedent(inspect.getsource(function))))
    found: set[str] = set()
    for waiting, left_out in ((["forward", *named], _sets_initial_values), (["__init__"], _is_left_out_of_init)):
        while waiting:
            name = waiting.pop()
            written = methods.get(name, [])
            if name in found or all(left_out(each, name) for each in written):
                continue
            found.add(name)
            waiting += [n.attr for each in written for n in ast.walk(each) if isinstance(n, ast.Attribute)]
    return frozenset(found)


def _is_left_out_of_init(method: ast.AST, name: str) -> bool:
    return _sets_initial_values(method, name) or only_sets_values(method)


def _sets_initial_values(method: ast.AST, name: str) -> bool:
    if sets_more(method):
        return False
    if name in ("reset_parameters", "_reset_parameters", "init_weights", "_init_weights", "initialize_weights"):
        return True
    nodes = list(ast.walk(method))
    if name == "__init__" or any(_sets_own(node) for node in nodes):
        return False
    return any("init." in ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))


def _sets_own(node: ast.AST) -> bool:
    """Whether it gives a module an attribute, a buffer or a parameter."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_self(node.func.value):
        return node.func.attr in ("register_buffer", "register_parameter", "add_module", "register_module")
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value)


def _named_classes(part: Part) -> list[type]:
    """The modules of the user's that a part names, and no model need have made, and classes that name such."""
    results, named = _results(part), list(_all_named(part))
    results += [type(each) for each in named if is_registry(each) and _is_near(type(each), part)]
    return [
        each
        for each in named
        if _is_users_module(each) or _is_of_modules(each) or _is_helper(each, part) or each in results
    ]


def _is_helper(found: Any, part: Part) -> bool:
    """Whether it is a class of the part's package that is no module, runs PyTorch, and is in a file."""
    return helper_class(found) and _is_near(found, part) and _part_or_none(found) is not None


def _results(part: Part) -> list[type]:
    """The user's dataclasses that the methods of a module give, and what they are derived from."""
    if not is_module(part.item):
        return []
    body = part.node.body if isinstance(part.node, ast.ClassDef) else []
    methods = [each for each in body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
    calls = (node for each in methods for node in ast.walk(each) if isinstance(node, ast.Call))
    found = [item for item in (part.scope.find(call.func) for call in calls) if is_result(item)]
    return [base for item in found for base in item.__mro__ if is_result(base)]


def _all_named(part: Part) -> Iterator[Any]:
    return (each for item in _found_in(part.node, part.scope) for each in _of_alias(item))


def _found_in(node: ast.AST, scope: Scope, kept: frozenset[str] | None = None) -> Iterator[Any]:
    """What the names in code stand for, each where it is; of a class, where methods are kept, in these alone."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield scope.find(node)
    for child in ast.iter_child_nodes(node):
        if kept is not None and isinstance(child, ast.FunctionDef) and child.name not in kept:
            continue
        is_inside = isinstance(node, ast.FunctionDef) and child in node.body
        yield from _found_in(child, scope.within(node) if is_inside else scope)


def _is_users_module(found: Any) -> bool:
    is_users = is_module(found) and not is_of_torch(found) and not is_framework(found)
    return is_users or is_function_of_gradients(found)


def _is_of_modules(found: Any) -> bool:
    """Whether it is a class that is no module, and names modules of the user's, as one of settings may."""
    if not isinstance(found, type) or is_module(found) or is_of_torch(found) or found.__module__ == "builtins":
        return False
    if found.__module__.split(".")[0] in sys.stdlib_module_names or is_framework(found):
        return False
    part = _part_or_none(found)
    return part is not None and any(map(_is_users_module, _all_named(part)))


def _classes_of_calls(parts: Iterable[Part], model: Model) -> list[type]:
    """The classes of what functions of others gave to the parts while the original was built."""
    found: list[type] = []
    for part in parts:
        for node in ast.walk(part.node):
            if isinstance(node, ast.Call) and is_of_others(part.scope.find(node.func), model):
                for _, module in model.recording.at(part.spans.file, node):
                    _collect(module, model.recording, found)
    return found


def _collect(value: Any, recording: Recording, found: list[type]) -> None:
    """The classes of the user's that an object was made of."""
    if isinstance(value, list | tuple | set):
        for each in value:
            _collect(each, recording, found)
    elif isinstance(value, dict):
        _collect(list(value.values()), recording, found)
    elif isinstance(value, partial):
        _collect([value.func, *value.args, *value.keywords.values()], recording, found)
    elif is_module(value):
        found += [each for each in _own_classes(value) if each not in found]
    elif id(value) in recording.arguments:
        _collect(type(value), recording, found)
        if _is_of_modules(type(value)) and type(value) not in found:
            found.append(type(value))
        _collect(recording.arguments[id(value)][1], recording, found)


def _kept_by_all(part: Part, parts: list[Part]) -> frozenset[str]:
    """The methods that a class needs for itself, or for one that is derived from it."""
    derived = (each.kept for each in parts if isinstance(part.item, type) and issubclass(each.item, part.item))  # type: ignore[arg-type]
    return frozenset().union(*derived)


def _functions(part: Part) -> list[Written]:
    """The functions of the user's that a part calls by name."""
    found: list[Written] = []
    inside = _found_in(part.node, part.scope, part.kept if is_module(part.item) else None)
    for item in (each for named in inside for each in _of_alias(named)):
        is_users = isinstance(item, FunctionType) and not is_of_torch(item) and not is_framework(item)
        is_users = is_users and _is_near(item, part)
        is_users = is_users and "." not in item.__qualname__.replace("<locals>.", "")  # a method comes with its class
        if is_users and item not in found and not only_reports(item):
            found.append(item)
    return found


def _is_near(item: Written, part: Part) -> bool:
    return item.__module__.split(".")[0] == part.home.split(".")[0]


def _builders(model: Model, parts: list[Part]) -> set[str]:
    """The names of methods and functions that make modules, or call one that does."""
    bodies: dict[str, list[tuple[Part, ast.FunctionDef]]] = {}
    for part in parts:
        nodes = part.node.body if isinstance(part.node, ast.ClassDef) else [part.node]
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "forward"):
                bodies.setdefault(node.name, []).append((part, node))
    found: set[str] = set()
    while True:
        left = {name: each for name, each in bodies.items() if name not in found}
        new = {name for name, each in left.items() if any(_makes(*one, found, model) for one in each)}
        if not new:
            return found
        found |= new


def _makes(part: Part, function: ast.FunctionDef, builders: set[str], model: Model) -> bool:
    scope = part.scope.within(function)
    called = [scope.find(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
    if all(any(each is known for known in _WITHOUT_RNGS) for each in called):
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            item = scope.find(node.func)
            made = model.recording.at(part.spans.file, node)
            if is_module(item) or (is_of_others(item, model) and made):
                return True
            if item is UNKNOWN and any(isinstance(by, type) or by.co_name in builders for by, _ in made):
                return True
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in builders and torch_name(item) is None:
                return True
    return False
