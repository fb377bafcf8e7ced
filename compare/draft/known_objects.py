"""What stands for an object that is known before a run: a class, a function, a constant of PyTorch or the user's."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from graphmode import nn

from .huggingface import is_framework
from .left import DISTRIBUTIONS, DTYPES, HELPERS, LEGACY
from .model import CHANNELS, has_own_init, holds_code, is_function_of_gradients, is_registry, layer_of
from .names import UNKNOWN, imported_as, is_of_einops, is_of_torch, torch_name
from .recognition import Recognition
from .running_torch import runs_torch
from .tables import FUNCTIONS

_TYPES: dict[type, str] = {
    torch.Tensor: "jax.Array",
    torch.nn.Module: "nnx.Module",
    torch.nn.Parameter: "nnx.Param",
    torch.finfo: "jnp.finfo",
    torch.iinfo: "jnp.iinfo",
    torch.autograd.Function: "object",
    PackedSequence: "nn.utils.rnn.PackedSequence",
}
# as annotations, or where kinds are asked for
_ONLY_TYPES: dict[type, str] = {torch.dtype: "jnp.dtype", torch.device: "jax.Device", torch.Size: "tuple"}


class KnownObjects(Recognition):
    """Of one class or function."""

    def _named(self, node: ast.Attribute | ast.Name, found: Any) -> str | None:
        """What stands for an object that is known before a run."""
        if isinstance(found, torch.dtype):
            return DTYPES.get(str(found).removeprefix("torch."), None) or self._left(node)
        if isinstance(found, type) and found in _TYPES:
            return _TYPES[found]
        if isinstance(found, type) and self._names_types and found in _ONLY_TYPES:
            return _ONLY_TYPES[found]
        if isinstance(found, type) and found in LEGACY:
            return "jax.Array" if self._names_types else LEGACY[found]
        ours = DISTRIBUTIONS.get(found) if isinstance(found, type) else None
        if ours is not None and ours not in self.model.classes.values():
            self.model.helpers.add(ours)
            return ours
        if is_framework(found) and isinstance(found, type) and issubclass(found, torch.nn.Module):
            return "nnx.Module"
        if is_framework(found) and found.__name__ in HELPERS:
            self.model.helpers.add(found.__name__)
            return str(found.__name__)
        if is_framework(found) and found.__module__.endswith(".masking_utils") and isinstance(found, FunctionType):
            self._note(f"{found.__name__} runs PyTorch: write the mask that it gives with jnp")
        if isinstance(found, type) and (found in self.model.classes or issubclass(found, torch.nn.Module)):
            return self._class_named(found)
        if isinstance(node, ast.Attribute) and is_of_torch(self.scope.find(node.value)):
            if isinstance(found, float):
                return f"jnp.{node.attr}"
            if isinstance(found, str | bool | int):
                return repr(str(found) if isinstance(found, str) else found)
        if isinstance(found, FunctionType) and found in self.model.functions:
            return self.model.functions[found]
        name = torch_name(found)
        if name is not None:
            return self._function_of(name) or self._left(node)
        if isinstance(node, ast.Name) and (isinstance(found, torch.Tensor) or not is_of_torch(found)):
            return self._name(node.id, found)
        if is_of_torch(found):
            return self._left(node)
        if isinstance(node, ast.Attribute) and isinstance(self.scope.find(node.value), ModuleType):
            self._note_torch(ast.unparse(node), found)
        return None

    def _class_named(self, found: type) -> str:
        if is_of_einops(found):
            self.model.helpers.add(found.__name__)
            self.model.imports |= {"import einops", "from typing import Any"}
            return found.__name__
        layer = None if found in self.model.classes and has_own_init(found) else layer_of(found)
        name = self.model.classes.get(found) or f"{'nn.' * is_of_torch(found)}{found.__name__}"
        if layer is None:
            return name
        try:
            ours = getattr(nn, layer.__name__)
        except AttributeError as error:
            self._note(str(error))
            return name
        if not self._names_types and "data_format" in inspect.signature(ours.__init__).parameters:
            self.model.imports.add("from functools import partial")
            return f"partial({name}, {CHANNELS})"
        return name

    def _function_of(self, name: str) -> str | None:
        """What stands for a function of PyTorch's that is handed on; None where nothing takes the same arguments."""
        name = name.rstrip("_")  # the value is that of what does not write in place
        short = name.rpartition(".")[2]
        if name in ("zeros", "ones", "empty") or (self._builds and name in ("rand", "randn")):
            return f"(lambda *size: jnp.{'ones' if name == 'ones' else 'zeros'}(size))"
        if name.startswith("nn.functional.") and hasattr(nn.functional, short):
            takes = inspect.signature(getattr(nn.functional, short)).parameters.get("data_format")
            if takes is None or takes.default is None:
                return f"nn.functional.{short}"
            self.model.imports.add("from functools import partial")
            return f"partial(nn.functional.{short}, {CHANNELS})"
        if name.startswith("nn.utils.") and (ours := our_util(name)) is not None:
            if not takes_rngs(ours):
                return name
            self.model.imports.add("from functools import partial")
            return f"partial({name}, rngs=rngs)" if self._builds else None
        rule = FUNCTIONS.get(name)
        plain = re.match(r"(jnp\.\w+|jax\.\w+\.\w+|nn\.functional\.\w+)\(", rule.template) if rule else None
        if plain is not None:
            return plain[1]
        return f"nn.functional.{short}" if hasattr(nn.functional, short) else None

    def _left(self, node: ast.expr) -> str | None:
        holder = self.scope.find(node.value) if isinstance(node, ast.Attribute) else UNKNOWN
        holder = getattr(self.scope.find(node), "__self__", holder)  # of a method that has a name of its own
        if is_function_of_gradients(holder) and getattr(self.scope.find(node), "__name__", "") == "apply":
            self.model.helpers.add("apply_function")
            self.model.imports.add("from functools import partial")
            return f"partial(apply_function, {self.model.classes[holder]})"  # type: ignore[index]
        found, told = self.scope.find(node), f"{ast.unparse(node)} is PyTorch's"
        if isinstance(found, type) and issubclass(found, torch.distributions.Distribution):
            told += ": write out its log_prob and its entropy, and draw with jax.random"
        self._note(told)
        return None

    def _name(self, name: str, found: Any) -> str | None:
        """A name of the original's module, which the port imports from there unless it is Python's."""
        if found is UNKNOWN or name not in self.scope.outer:
            return None
        is_object = not isinstance(found, type | FunctionType)
        if holds_code(found) or (is_object and (runs_torch(found) or is_registry(found))):
            known = self.model.add_constant(name, found)
            return None if known == name else known
        if isinstance(found, ModuleType):
            if found in (torch.nn, torch.nn.functional):
                return found.__name__.removeprefix("torch.")
            if not is_of_torch(found):
                self.model.imports.add(f"import {found.__name__}" + (f" as {name}" if name != found.__name__ else ""))
        else:
            module = str(getattr(found, "__module__", None))
            self._note_torch(name, found)
            is_pythons = module in sys.stdlib_module_names and hasattr(sys.modules.get(module), name)
            place = module if is_pythons else self.model.home
            self.model.imports.add(f"from {place} import {name}" if is_pythons else imported_as(name, place))
        return None

    def _note_torch(self, name: str, found: Any) -> None:
        if runs_torch(found):
            self._note(f"{name} runs PyTorch, and is taken from the original: write it anew here")


def our_util(name: str) -> Any:
    """The function here that is one of `torch.nn.utils`, by its place below `torch`; None where there is none."""
    *holders, short = name.split(".")[2:]
    return getattr(functools.reduce(getattr, holders, nn.utils), short, None)


def takes_rngs(function: Any) -> bool:
    return "rngs" in inspect.signature(function).parameters
