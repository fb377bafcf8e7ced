"""Names, attributes and parts of tensors, as a port has them."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

import torch
from torch.nn.utils.rnn import PackedSequence

from graphmode import nn

from .huggingface import is_framework
from .kinds import Kind, has_only_lengths, kind_of
from .left import DTYPES, HELPERS, LEGACY
from .model import (
    CHANNELS,
    Model,
    has_own_init,
    holds_code,
    is_function_of_gradients,
    is_module,
    is_registry,
    is_self,
    layer_of,
)
from .names import UNKNOWN, Scope, imported_as, is_of_torch, torch_name
from .rules import as_operand
from .running_torch import runs_torch
from .settled import asks_how_it_runs, settled
from .spans import Spans
from .tables import FUNCTIONS

_OF_SHAPES = frozenset(["size", "dim", "numel", "nelement", "ndimension", "append", "is_floating_point"])
_GIVE_MASKS = frozenset(
    ["bool", "isnan", "isinf", "isfinite", "isclose", "eq", "ne", "lt", "le", "gt", "ge"]
    + [f"logical_{name}" for name in ("and", "or", "not", "xor")]
)
_OF_PARAMETERS = (torch.nn.ParameterList, torch.nn.ParameterDict)
_TYPES: dict[type, str] = {
    torch.Tensor: "jax.Array",
    torch.nn.Module: "nnx.Module",
    torch.nn.Parameter: "nnx.Param",
    torch.finfo: "jnp.finfo",
    torch.iinfo: "jnp.iinfo",
    torch.autograd.Function: "object",
    PackedSequence: "nn.utils.rnn.PackedSequence",
}


_TURNED = {
    f"{name}{dims}d": axes
    for name in ("Conv", "ConvTranspose")
    for dims, axes in enumerate(("2, 1, 0", "3, 2, 0, 1", "4, 3, 0, 1, 2"), 1)
}


class Expressions:
    """What the code of one class or function says, expression by expression.

    Args:
      model: what is known of the whole.
      spans: the text of its source.
      scope: the names of its module.
      owner: the class that the code belongs to; None of a function.
      kept: the names of its methods that the port has.
    """

    def __init__(
        self, model: Model, spans: Spans, scope: Scope, owner: type | None = None, kept: frozenset[str] = frozenset()
    ):
        self.model, self.spans, self.owner, self.kept = model, spans, owner, kept
        self._scopes = [scope]
        self._notes: list[list[str]] = [[]]
        self._builds = False
        self._tensors: set[str] = set()
        self._no_grad = False  # whether what is returned has no gradient
        self._in_no_grad = False  # whether what is assigned has none
        self._views: dict[str, str] = {}  # local names of views, and what each is
        self.heads: dict[str, str] = {}  # layers that multiply by an embedding's weight, and which
        self._aliases: dict[str, FunctionType] = {}  # local names of the user's functions
        self._masks: set[str] = set()  # local names of masks
        self._asked: set[str] = set()  # local names of what a question of values says
        self._packed: set[str] = set()  # local names of packed sequences
        self._as_laid = False  # whether weights are written as they lie here
        self._lists: set[str] = set()  # arguments that are said to be lists
        self._sized: set[str] = set()  # expressions that have a length
        self._plain_functions: set[str] = set()  # local names of the user's functions that make no modules
        self._as_pass: set[int] = set()
        self._inner: dict[str, ast.FunctionDef] = {}  # functions within the one that is written
        self._last_read: dict[str, int] = {}  # the last line of that function that reads a name
        self._taken: set[int] = set()  # calls whose result what they write into takes
        self._given_back: tuple[str, ...] = ()  # what a function that gives nothing writes into
        self._names_types = False
        self._draws = False
        self._under_mask = ""  # the mask under which elements are computed, which is left out
        self._unpacked: dict[int, int] = {}  # the number of targets of a value that is unpacked

    @property
    def scope(self) -> Scope:
        return self._scopes[-1]

    def written(self, node: ast.AST) -> str:
        """The text of a node in the port."""
        made = self._expression(node) if isinstance(node, ast.expr) else None
        return self.spans.spliced(node, self.written) if made is None else made

    def _call(self, node: ast.Call) -> str | None:
        raise NotImplementedError

    def _pair(self, node: ast.Call) -> tuple[str, str] | None:
        raise NotImplementedError

    def _asks_for_values(self, test: ast.expr) -> bool:
        raise NotImplementedError

    def _expression(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Call):
            return self._size_of_weight(node) or self._call(node)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            return self._reference(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot) and self._is_own(node.left):
            return self.spans.spliced(node, lambda part: ast.unparse(part) if part is node.left else self.written(part))
        if isinstance(node, ast.Compare) and not self._names_types and self._compares_classes(node):
            with self._in_types():
                return self.spans.spliced(node, self.written)
        if isinstance(node, ast.JoinedStr):
            return self._formatted(node)
        if isinstance(node, ast.BoolOp):
            return self._what_is_open(node)
        if isinstance(node, ast.IfExp) and (always := settled(node.test, self.scope)) is not None:
            return self.written(node.body if always else node.orelse)
        if isinstance(node, ast.IfExp) and self._asks_for_values(node.test):
            self._note("C01: a branch on values: gm.cond, or jnp.where")
        if isinstance(node, ast.Subscript) and self._is_own(node.value) and node.value.attr == "_modules":
            return f"getattr(self, {self.written(node.slice)})"
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.Not)
            and ast.unparse(node.operand) == "self.training"
        ):
            return "self.use_running_average"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and self._is_of_parameters(node.value):
            return f"{self.spans.spliced(node, self.written)}[...]"
        if isinstance(node, ast.Subscript) and self._under_mask and ast.unparse(node.slice) == self._under_mask:
            return self.written(node.value)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if self._is_mask(node.slice) and self._is_tensor(node.value):
                self._note("S01: x[mask]: gm.compact with a capacity, or what follows under the mask")
            return self._size_of_weight(node) or self._part_of_pair(node.value, node.slice)
        return None

    def _formatted(self, node: ast.JoinedStr) -> str | None:
        """A text with values in it, as it was typed where Python can read that; None where no value is another."""
        text, made = self.spans.text(*self.spans.of(node)), copy.deepcopy(node)
        for part in (each for each in ast.walk(made) if isinstance(each, ast.FormattedValue)):
            value = ast.unparse(part.value)
            part.value = ast.Name(self._anew(value))
            text = text.replace(f"{{{value}", f"{{{part.value.id}") if part.value.id != value else text
        whole = ast.unparse(made)
        if whole == ast.unparse(node):
            return None
        return text if _is_read_as(text, whole) else whole

    def _anew(self, text: str) -> str:
        """An expression that has no place of its own in the file."""
        outer, self.spans = self.spans, Spans(text)
        try:
            return self.written(ast.parse(text, mode="eval").body)
        finally:
            self.spans = outer

    def _compares_classes(self, node: ast.Compare) -> bool:
        """Whether classes of modules are compared, which stand for their kinds there."""
        named = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
        return any(is_module(self.scope.find(each)) for each in named)

    def _size_of_weight(self, node: ast.Subscript | ast.Call) -> str | None:
        """A size of the weight of the layer that a class is derived from, as the layer has it."""
        index = node.slice if isinstance(node, ast.Subscript) else node.args[0] if node.args else None
        shape = node.value if isinstance(node, ast.Subscript) else node.func
        if isinstance(shape, ast.Call) and not shape.args:
            shape = shape.func
        if index is None or not isinstance(shape, ast.Attribute) or shape.attr not in ("shape", "size"):
            return None
        layer = layer_of(self.owner)
        if not self._is_own(shape.value) or shape.value.attr != "weight" or not turn_of(layer):
            return None
        return _sizes_of(layer).get(ast.unparse(index))  # type: ignore[arg-type]

    def _what_is_open(self, node: ast.BoolOp) -> str | None:
        """The parts of a condition that are not settled, joined; None where all or none of them are."""
        passes = isinstance(node.op, ast.And)
        left = [each for each in node.values if settled(each, self.scope) is not passes]
        if len(left) in (0, len(node.values)):
            return None
        text = f" {'and' if passes else 'or'} ".join(map(self.written, left))
        return text if len(left) == 1 else f"({text})"

    def _part_of_pair(self, value: ast.expr, index: ast.expr) -> str | None:
        if isinstance(index, ast.Constant) and index.value in (0, 1) and isinstance(value, ast.Call):
            pair = self._pair(value)
            return None if pair is None else pair[1 if index.value else 0]
        return None

    def _reference(self, node: ast.Attribute | ast.Name) -> str | None:
        found = self.scope.find(node)
        if found is not UNKNOWN and not isinstance(found, ModuleType):
            return self._named(node, found)
        if isinstance(node, ast.Name):
            return self._name(node.id, found)
        if node.attr in ("values", "indices") and isinstance(node.value, ast.Call):
            pair = self._pair(node.value)
            if pair is not None:
                return pair[node.attr == "indices"]
        if is_self(node.value):
            return self._own(node.attr)
        if node.attr == "training" and isinstance(node.value, ast.Name):
            return f"(not {node.value.id}.use_running_average)"
        if node.attr == "device" and not is_self(node.value):  # a graph's arrays are where it runs
            return "None"
        if node.attr == "type" and isinstance(node.value, ast.Attribute) and node.value.attr == "device":
            return '"cpu"'
        if node.attr == "saved_variables":
            return f"{self.written(node.value)}.saved_tensors"
        if node.attr == "requires_grad":
            self._note("requires_grad: False here; of what a gradient is taken, jax.grad says where it is called")
            return "False"
        if isinstance(node.ctx, ast.Load) and settled(node, self.scope) is False:
            return "False"
        if node.attr == "data" and isinstance(node.value, ast.Name) and node.value.id in self._packed:
            self._note(f"{ast.unparse(node)}: as many steps as the lengths say: .padded, and a mask of what is real")
            return None
        if node.attr == "data":
            text = self.written(node.value)
            return as_operand(text) if self._builds or self._is_buffer(node.value) else f"jax.lax.stop_gradient({text})"
        if node.attr == "dtype" and isinstance(node.value, ast.Attribute) and node.value.attr in ("weight", "bias"):
            return f"{self.written(node.value.value)}.{node.value.attr}.dtype"
        if self._is_container(node.value) and not self._builds:
            held = self.model.instances[self.owner, node.value.attr]  # type: ignore[index]
            is_variable = node.attr in {*held._parameters, *held._buffers}
            return f"{self.written(node.value)}.{node.attr}[...]" if is_variable else None
        if node.attr in ("weight", "bias") and isinstance(node.value, ast.Attribute) and is_self(node.value.value):
            return self._of_child(node, node.value.attr)
        return None

    def _is_container(self, node: ast.expr) -> TypeGuard[ast.Attribute]:
        """Whether it is a bare `nn.Module()` that the class holds, for what it is given later."""
        held = self.model.instances.get((self.owner, node.attr)) if self._is_own(node) and self.owner else None
        return type(held) is torch.nn.Module

    def _of_child(self, node: ast.Attribute, name: str) -> str | None:
        """A parameter of a module inside, turned to PyTorch's layout where it lies otherwise here."""
        kind = self.model.children.get(self.owner, {}).get(name) if self.owner is not None else None
        if kind is None or not is_of_torch(kind):
            return None
        return f"{self.written(node.value)}.{node.attr}[...]{turn_of(kind) if node.attr == 'weight' else ''}"

    def _own(self, name: str) -> str | None:
        if name == "_modules":
            self._note("self._modules: PyTorch's; take the layers by their names")
        if name == "training":
            return "(not self.use_running_average)"
        turn = turn_of(layer_of(self.owner)) if name == "weight" else ""
        is_read = self.owner is not None and name in self.model.variables.get(self.owner, ())
        if is_read and (turn or not self._builds):
            return f"self.{name}[...]{'' if self._as_laid else turn}"
        return None

    def _named(self, node: ast.Attribute | ast.Name, found: Any) -> str | None:
        """What stands for an object that is known before a run."""
        if isinstance(found, torch.dtype):
            return DTYPES.get(str(found).removeprefix("torch."), None) or self._left(node)
        if isinstance(found, type) and found in _TYPES:
            return _TYPES[found]
        if isinstance(found, type) and found in LEGACY:
            return "jax.Array" if self._names_types else LEGACY[found]
        if is_framework(found) and isinstance(found, type) and issubclass(found, torch.nn.Module):
            return "nnx.Module"
        if is_framework(found) and found.__name__ in HELPERS:
            self.model.helpers.add(found.__name__)
            return str(found.__name__)
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

    @contextlib.contextmanager
    def _in_types(self) -> Iterator[None]:
        """Where a class stands for its kind, and is not called."""
        self._names_types = True
        try:
            yield
        finally:
            self._names_types = False

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
        self._note(f"{ast.unparse(node)} is PyTorch's")
        return None

    def _name(self, name: str, found: Any) -> str | None:
        """A name of the original's module, which the port imports from there unless it is Python's."""
        if found is UNKNOWN or name not in self.scope.outer:
            return None
        is_object = not isinstance(found, type | FunctionType)
        if holds_code(found) or (is_object and (runs_torch(found) or is_registry(found))):
            self.model.constants.setdefault(name, self.model.home)
            return None
        if isinstance(found, ModuleType):
            if found is torch.nn.functional:
                return "nn.functional"
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

    def _is_buffer(self, node: ast.expr) -> bool:
        is_own = self._is_own(node) and self.owner is not None
        return is_own and node.attr in self.model.buffers.get(self.owner, ())  # type: ignore[attr-defined, arg-type]

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression gives a tensor, as far as its code tells."""
        if isinstance(node, ast.Name):
            return node.id in self._tensors
        if isinstance(node, ast.Call):
            return self._gives_tensors(node)
        if isinstance(node, ast.Attribute):
            if is_self(node.value):
                is_variable = self.owner is not None and node.attr in self.model.variables.get(self.owner, ())
                return is_variable or self._kind(node) is Kind.ARRAY
            if node.attr in ("saved_tensors", "saved_variables"):
                return True
            return node.attr in ("T", "mT", "real", "imag", "data") and self._is_tensor(node.value)
        if isinstance(node, ast.Subscript):
            return self._is_tensor(node.value)
        parts = {ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",), ast.IfExp: ("body", "orelse")}
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return False
        if isinstance(node, ast.Compare):
            return any(map(self._is_tensor, [node.left, *node.comparators]))
        return any(self._is_tensor(getattr(node, name)) for name in parts.get(type(node), ()))

    def _kind(self, node: ast.expr) -> Kind | None:
        """What an expression gives; None where it is not known."""
        return kind_of(node, self.scope, self.model.settings.get(self.owner, {}) if self.owner is not None else {})

    def _has_only_lengths(self, node: ast.expr) -> bool:
        """Whether it gives sizes of which none is -1."""
        settings = self.model.settings.get(self.owner, {}) if self.owner is not None else {}
        return has_only_lengths(node, self.scope, settings)

    def _is_of_parameters(self, node: ast.expr) -> bool:
        """Whether it is a list or dict of parameters that the class holds, as its methods read it."""
        kind = self.model.children.get(self.owner, {}).get(node.attr) if self._is_own(node) and self.owner else None
        return kind is not None and not self._builds and issubclass(kind, _OF_PARAMETERS)

    def _is_mask(self, node: ast.expr) -> bool:
        """Whether an expression gives a tensor of truth values, as far as its code tells."""
        if isinstance(node, ast.Name):
            return node.id in self._masks or (node.id in self._tensors and "mask" in node.id)
        if isinstance(node, ast.Compare):
            return self._is_tensor(node)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Invert) and self._is_mask(node.operand)
        if isinstance(node, ast.BinOp):
            joins = isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor)
            return joins and self._is_mask(node.left) and self._is_mask(node.right)
        if not isinstance(node, ast.Call):
            return False
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = (torch_name(self.scope.find(node.func)) or method).rpartition(".")[2]
        return name in _GIVE_MASKS

    def _gives_tensors(self, call: ast.Call) -> bool:
        found = self.scope.find(call.func)
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            return False
        if is_of_torch(found):
            return not asks_how_it_runs(found) and torch_name(found) not in ("is_tensor", "is_floating_point", "numel")
        if _says_other(getattr(self.owner, call.func.attr, None) if self._is_own(call.func) else found):
            return False
        function, takes_some = call.func, any(map(self._is_tensor, call.args))
        if not isinstance(function, ast.Attribute):  # of a module that a loop goes over, or of the user's
            return takes_some and (found is UNKNOWN or isinstance(found, FunctionType))
        if is_self(function.value):
            return takes_some or (self.owner is not None and function.attr in self.model.children.get(self.owner, {}))
        return function.attr not in _OF_SHAPES and self._is_tensor(function.value)

    @staticmethod
    def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
        return isinstance(node, ast.Attribute) and is_self(node.value)

    @property
    def notes(self) -> list[str]:
        """What was noted of an expression that is in no statement."""
        return self._notes[-1]

    def _note(self, text: str) -> None:
        self._notes[-1].append(text)


def turn_of(kind: type | None) -> str:
    """What turns the weight of a layer to PyTorch's layout."""
    if kind is None or not issubclass(kind, torch.nn.Linear | torch.nn.modules.conv._ConvNd):
        return ""
    return next((f".transpose({_TURNED[each.__name__]})" for each in kind.__mro__ if each.__name__ in _TURNED), ".T")


def _sizes_of(layer: type) -> dict[str, str]:
    """What a layer calls the sizes of its weight, by number or slice."""
    if issubclass(layer, torch.nn.Linear):
        return {"0": "self.out_features", "1": "self.in_features"}
    first, second = "self.out_channels", "self.in_channels"
    if issubclass(layer, torch.nn.modules.conv._ConvTransposeNd):
        first, second = second, first
    return {"0": first, "1": f"({second} // self.groups)", "2:": "self.kernel_size"} | {
        f"-{dims}:": "self.kernel_size" for dims in (1, 2, 3) if f"{dims}d" in layer.__name__
    }


def _is_read_as(text: str, other: str) -> bool:
    """Whether Python reads both texts as one expression."""
    try:
        return ast.dump(ast.parse(f"({text})")) == ast.dump(ast.parse(f"({other})"))
    except SyntaxError:
        return False


def our_util(name: str) -> Any:
    """The function here that is one of `torch.nn.utils`, by its place below `torch`; None where there is none."""
    *holders, short = name.split(".")[2:]
    return getattr(functools.reduce(getattr, holders, nn.utils), short, None)


def takes_rngs(function: Any) -> bool:
    return "rngs" in inspect.signature(function).parameters


def _says_other(function: Any) -> bool:
    """Whether a function is said to give what is no tensor, or gives what Python's own tests say."""
    if not isinstance(function, FunctionType):
        return False
    if function.__annotations__.get("return") in (bool, int, float, str, "bool", "int", "float", "str"):
        return True
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # of a lambda within an expression
        return False
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    returned += [node.body for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    return bool(returned) and all(each is not None and is_test(each) for each in returned)


def is_test(node: ast.expr) -> bool:
    """Whether it asks for identity or kind, of which tensors give a bool."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.BoolOp):
        return all(map(is_test, node.values))
    if isinstance(node, ast.BinOp):
        return is_test(node.left) and is_test(node.right)
    if isinstance(node, ast.Compare):
        return all(isinstance(each, ast.Is | ast.IsNot | ast.In | ast.NotIn) for each in node.ops)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "callable", "hasattr", "bool")
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)
