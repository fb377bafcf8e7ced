"""What is known of the model whose port is drafted."""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from .huggingface import is_framework
from .kinds import Kind
from .names import is_of_torch
from .observed import Observed
from .recording import Recording

if TYPE_CHECKING:
    from .shared import Share
    from .ties import Tie

CHANNELS = 'data_format="channels_first"'


@dataclass
class Model:
    """What is known of the model as a whole.

    Attributes:
      classes: the user's modules that are drafted, and the names they have in the port.
      functions: likewise those functions.
      builders: the names of methods and functions that make modules, and so take `rngs`.
      variables: by class, the names of its parameters and buffers.
      buffers: those of them that are buffers.
      absent: those that some module has none of, in the place of one.
      transient: those of the buffers that no state_dict has.
      settings: by class, the plain values that its modules hold, by name, and of which kind each is.
      children: by class, the modules inside, by name, and what each is.
      kinds: the classes of all modules in the model.
      examples: by class, one module of it.
      instances: by class and name, one of the modules inside.
      writing: likewise, what these modules write into what they are given; empty for nothing.
      arrays: by class, the names of lists of tensors.
      lists: by class, the arguments of its `forward` that other code gives as lists.
      ties: the heads that share an embedding's weight.
      shares: other parameters that are one tensor.
      drawers: the classes and functions of these that draw random numbers as they run.
      imports: lines that the port needs.
      constants: containers, modules and tensors that it has of its own, and the modules of the originals.
      origins: the names that these have in their files, where the port has another.
      helpers: names of functions of `written_helpers.py` that it needs.
      starts_otherwise: whether initial values that the original sets were left out.
      home: the module of the original that is read now.
      recording: of what ran while the original was built.
      observed: what the original did as it ran.
      drafted: its statements, as they were drafted.
      renamed: the names in them, by identity, that stand for what was written into what they named.
      counted: the places of branches that ask of no array in the port, though they do in the original.
      lost: the notes of statements that write into what more than one name stands for.
    """

    classes: dict[type, str] = field(default_factory=dict)
    functions: dict[Callable[..., Any], str] = field(default_factory=dict)
    builders: set[str] = field(default_factory=set)
    variables: dict[type, set[str]] = field(default_factory=dict)
    buffers: dict[type, set[str]] = field(default_factory=dict)
    absent: dict[type, set[str]] = field(default_factory=dict)
    transient: dict[type, set[str]] = field(default_factory=dict)
    settings: dict[type, dict[str, Kind | None]] = field(default_factory=dict)
    children: dict[type, dict[str, type]] = field(default_factory=dict)
    kinds: set[type] = field(default_factory=set)
    examples: dict[type, torch.nn.Module] = field(default_factory=dict)
    instances: dict[tuple[type, str], torch.nn.Module] = field(default_factory=dict)
    writing: dict[tuple[type, str], set[str]] = field(default_factory=dict)
    arrays: dict[type, set[str]] = field(default_factory=dict)
    lists: dict[type, set[str]] = field(default_factory=dict)
    ties: list[Tie] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    drawers: set[Any] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    starts_otherwise: bool = False
    home: str = ""
    recording: Recording = field(default_factory=Recording)
    observed: Observed = field(default_factory=Observed)
    drafted: dict[tuple[str, int, int], str] = field(default_factory=dict)
    renamed: set[int] = field(default_factory=set)
    counted: set[tuple[str, int, int]] = field(default_factory=set)
    lost: dict[tuple[str, int, int], list[str]] = field(default_factory=dict)

    def add(self, item: type | Callable[..., Any], name: str) -> None:
        """A class or function that is drafted, by its name, or by one of its own where another has that."""
        held: dict[Any, str] = self.classes if isinstance(item, type) else self.functions
        if item in held:
            return
        taken = {*self.classes.values(), *self.functions.values()}
        held[item] = free_name(name, item.__module__, taken)

    def name_of(self, item: Any, name: str) -> str:
        """What a class or function is called in the port, of this name in its file."""
        return self.classes.get(item) or self.functions.get(item, name)

    def add_constant(self, name: str, value: Any) -> str:
        """Something that a file keeps under a name; gives the name that it has in the port."""
        for known, home in self.constants.items():
            origin = self.origins.get(known, known)
            if origin == name and getattr(sys.modules[home], origin, None) is value:
                return known
        known = free_name(name, self.home, {*self.constants, *self.classes.values(), *self.functions.values()})
        self.constants[known] = self.home
        if known != name:
            self.origins[known] = name
        return known


def free_name(name: str, module: str, taken: set[str]) -> str:
    """A name that nothing else has: with that of its file before it, if need be, and a number behind."""
    if name not in taken:
        return name
    home = module.rpartition(".")[2].strip("_")
    if name.isupper():
        made = f"{home.upper()}_{name}"
    elif name[:1].isupper():
        made = "".join(each.capitalize() for each in home.split("_")) + name
    else:
        made = f"{home}_{name.lstrip('_')}"
    return next(each for each in (made, *(f"{made}_{i}" for i in range(2, len(taken) + 3))) if each not in taken)


def has_own_init(cls: type) -> bool:
    """Whether a module, or a class of the user's that it is derived from, has an `__init__` of its own."""
    own = (base for base in cls.__mro__ if is_module(base) and not is_of_torch(base) and not is_framework(base))
    return any("__init__" in vars(base) for base in own)


def is_mixin(found: Any) -> bool:
    """Whether it is a user's class that modules are derived from besides, and no module itself."""
    if not isinstance(found, type) or is_module(found) or is_of_torch(found) or is_framework(found):
        return False
    top = found.__module__.split(".")[0]
    others = ("builtins", "typing_extensions", "transformers", "einops")
    return top not in sys.stdlib_module_names and top not in others


def is_result(found: Any) -> bool:
    """Whether it is a user's dataclass."""
    return dataclasses.is_dataclass(found) and is_mixin(found)


def holds_code(found: Any) -> bool:
    """Whether it is a container of classes, functions and modules, or one that is filled later."""
    if not isinstance(found, dict | list | tuple | set) or type(found).__name__ == "ClassInstantier":
        return False
    values = list(found.values()) if isinstance(found, dict) else list(found)
    return all(isinstance(each, type | FunctionType | partial | torch.nn.Module) or holds_code(each) for each in values)


def is_registry(found: Any) -> bool:
    """Whether it is an object of a user's class that keeps modules or functions by name."""
    if isinstance(found, type | FunctionType | torch.nn.Module) or not is_mixin(type(found)):
        return False
    kept = [each for each in getattr(found, "__dict__", {}).values() if isinstance(each, dict)]
    return any(is_module(each) or isinstance(each, FunctionType) for values in kept for each in values.values())


def is_module(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, torch.nn.Module)


def is_function_of_gradients(found: Any) -> bool:
    """Whether it is a user's `torch.autograd.Function`."""
    is_one = isinstance(found, type) and issubclass(found, torch.autograd.Function)
    return is_one and not is_of_torch(found)


def layer_of(cls: type | None) -> type | None:
    """The layer of PyTorch's that a class is derived from; None where it is a plain module."""
    base = next((each for each in cls.__mro__ if is_module(each) and is_of_torch(each)), None) if cls else None
    return None if base is torch.nn.Module else base


def is_of_others(found: Any, model: Model) -> bool:
    """Whether it is a function of a package, whose code is no part of the draft."""
    top = str(getattr(found, "__module__", None)).split(".")[0]
    is_function = isinstance(found, FunctionType) and not is_of_torch(found) and not is_framework(found)
    is_own = is_function and (found in model.functions or is_method(found, model))
    return is_function and top not in sys.stdlib_module_names and not is_own


def is_method(found: Any, model: Model) -> bool:
    """Whether a function is one of a class that is drafted."""
    methods = (each for kind in model.classes for each in vars(kind).values())
    return any(found is getattr(each, "__func__", each) for each in methods)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_super(function: ast.expr) -> bool:
    holder = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id == "super"
