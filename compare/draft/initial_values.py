"""Statements that only set initial values, which the weights that are loaded replace."""

from __future__ import annotations

import ast
import re
from types import FunctionType
from typing import Any

import torch

from .assignments import Assignments
from .calls import MOVES
from .huggingface import stands_for
from .in_place import only_initialises, writer
from .initial import WALKS, applied_sets_more, is_no_grad, sets_more, sets_own
from .model import has_own_init, is_module, is_self, is_super, layer_of
from .names import torch_name
from .settled import only_reports, settled
from .ties import is_tie


class InitialValues(Assignments):
    """Of one class or function."""

    def _vanishes(self, node: ast.stmt) -> bool:
        """Whether a statement only sets initial values, which the weights that are loaded replace."""
        if isinstance(node, ast.For) and self._builds:
            over = node.iter.func if isinstance(node.iter, ast.Call) else None
            if isinstance(over, ast.Attribute) and is_self(over.value) and over.attr in WALKS and not sets_more(node):
                return True
        if isinstance(node, ast.With) and self._builds:
            return is_no_grad(node) and not any(map(sets_own, ast.walk(node)))
        if isinstance(node, ast.If) and (always := settled(node.test, self.scope)) is not None:
            return all(map(self._vanishes, node.body if always else node.orelse))
        if isinstance(node, ast.Assign) and (self._sets_where_or_first(node) or self._makes_head(node)):
            return True
        if isinstance(node, ast.If | ast.For):
            return all(map(self._vanishes, [*node.body, *node.orelse]))
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            return False
        function = node.value.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        if name == "__init__" and is_super(function):
            return self.owner is not None and is_module(self.owner) and self._is_plain(self.owner)
        found = self.scope.find(function)
        if self._builds and torch_name(found) == "manual_seed":
            return True
        if (torch_name(found) or "").startswith("nn.init.") or only_reports(found):
            return True
        if self._builds and (only_initialises(found) or self._only_initialises(value=node.value, found=found)):
            return True
        if self._builds and name.endswith("_") and re.search(r"\b(weight|bias|data)\b", ast.unparse(function)):
            return True
        if self._builds and name == "apply" and isinstance(function, ast.Attribute) and self._is_own(function.value):
            return not self._applies_more(node.value)
        if self._builds and name in MOVES and name not in ("train", "eval") and self._moves(node.value):
            return True
        if name == "requires_grad_" and isinstance(function, ast.Attribute):
            return self._builds or (self._is_tensor(function.value) and not self._is_state(function.value))
        if not isinstance(function, ast.Attribute) or not is_self(function.value):
            return False
        if "state_dict" in name and name.endswith("hook"):  # what is done to the files of the original
            return self.owner is not None and hasattr(torch.nn.Module, name)
        if self._builds and name in MOVES and self.owner is not None:
            return getattr(torch.nn.Module, name) is getattr(self.owner, name)
        if name == "apply":
            return not self._applies_more(node.value)
        return self.owner is not None and hasattr(self.owner, name) and self._initialises(name)

    def _applies_more(self, call: ast.Call) -> bool:
        """Whether what is applied to all modules sets more than values, which is noted."""
        given = call.args[0] if call.args else None
        if given is None:
            return False
        applied = self.scope.find(given)
        if isinstance(given, ast.Attribute) and is_self(given.value):
            applied = getattr(self.owner, given.attr, None)
        if not applied_sets_more(applied):
            return False
        self._note("apply sets attributes of modules: write them where the modules are made")
        return True

    def _sets_where_or_first(self, node: ast.Assign) -> bool:
        """Whether it names a device, or writes an initial value."""
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Attribute) and target.attr in ("data", "inplace") and self._builds:
            return target.attr == "data" or not is_self(target.value)
        if isinstance(target, ast.Attribute) and self._builds and self._marks(target):
            return True
        if not isinstance(target, ast.Name) or len(node.targets) > 1:
            return False
        is_device = isinstance(value, ast.Attribute) and value.attr == "device"
        return is_device or (isinstance(value, ast.Call) and self.scope.find(value.func) is torch.device)

    def _only_initialises(self, value: ast.Call, found: Any) -> bool:
        """Whether it is a user's function that writes initial values into a parameter that it is given."""
        if not isinstance(found, FunctionType) or self.model.functions.get(found) in self.model.builders:
            return False
        held = [each for each in value.args if isinstance(each, ast.Attribute)]
        is_parameter = [
            each.attr in ("weight", "bias") or (self._is_own(each) and self._is_tensor(each)) for each in held
        ]
        return any(is_parameter) and bool(
            ((made := writer(found)) and made.holders(value)) or found.__name__.endswith("_")
        )

    def _marks(self, target: ast.Attribute) -> bool:
        """Whether it is an attribute of a tensor, which says how to train or to begin with it."""
        held = target.value
        is_parameter = isinstance(held, ast.Attribute) and held.attr in ("weight", "bias")
        is_own = self._is_own(held) and self.owner is not None and held.attr in self.model.variables.get(self.owner, ())
        return is_parameter or is_own or (isinstance(held, ast.Name) and target.attr.startswith("require"))

    def _makes_head(self, node: ast.Assign) -> bool:
        """Whether it makes a layer that only multiplies by an embedding's weight, or ties it."""
        target = node.targets[0]
        return (self._is_own(target) and target.attr in self.heads) or is_tie(node, self.heads)

    def _is_plain(self, owner: type) -> bool:
        """Whether nothing that it is derived from has anything to begin with."""
        keeps_settings = any(stands_for(each) == "PreTrainedModel" for each in owner.__mro__)
        return layer_of(owner) is None and not keeps_settings and not any(map(has_own_init, owner.__mro__[1:]))

    def _initialises(self, name: str) -> bool:
        return name not in self.kept and callable(getattr(self.owner, name)) and name not in dir(torch.nn.Module)
