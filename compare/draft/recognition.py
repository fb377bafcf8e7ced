"""What an expression gives: a tensor, a mask, sizes, parameters, as far as its code tells."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from .kinds import Kind, has_only_lengths, kind_of
from .model import Model, is_self
from .names import UNKNOWN, Scope, is_of_torch, torch_name
from .picked_rows import Picked
from .reading import tree_of
from .settled import asks_how_it_runs
from .spans import Spans

if TYPE_CHECKING:
    from .views import View

_OF_SHAPES = frozenset(["size", "dim", "numel", "nelement", "ndimension", "append", "is_floating_point"])
_GIVE_MASKS = frozenset(
    ["bool", "isnan", "isinf", "isfinite", "isclose", "eq", "ne", "lt", "le", "gt", "ge"]
    + [f"logical_{name}" for name in ("and", "or", "not", "xor")]
)
# how names of what says where, or how many, end
_OF_PLACES = re.compile(r"(idxs?|ind(ex|exes|ices|s)?|ids?|pos|positions?|places?|order|lens?|lengths?|counts?|num)$")
_OF_NO_GRADIENT = frozenset(["shape", "dtype", "device", "ndim"])
_PLAIN = frozenset(["int", "float", "bool", "str", "NoneType", "Size", "dtype", "device", "function", "method", "type"])
_OF_PARAMETERS = (torch.nn.ParameterList, torch.nn.ParameterDict)


class Recognition:
    """What is known of one class or function, and so of what its expressions give.

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
        self._keeps_no_grad = False  # whether what buffers are given has none
        self._stopped_names: set[str] = set()  # local names of what has none
        self._in_no_grad = False  # whether what is assigned has none
        self._views: dict[str, View] = {}  # local names that share their memory with something else
        self._variables: set[str] = set()  # local names of variables of Flax
        self._counted: set[str] = set()  # local names of numbers that only a run knows
        self._lone_slices: set[int] = set()  # slices that stand in an index beside whole axes alone
        self._bare: set[int] = set()  # expressions that give variables of Flax, and not their values
        self._taking: set[int] = set()  # variables of Flax among several targets, which take values
        self._now: ast.stmt | None = None  # the statement that is written
        self._after: list[list[str]] = [[]]  # what is written after it
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
        self._code: ast.FunctionDef | None = None  # the function that is written
        self._picked = Picked()  # in it
        self._rest: dict[int, Sequence[ast.stmt]] = {}  # what follows a statement in its block
        self._with_rest: set[int] = set()  # statements that are written with what follows them
        self._as_if: set[int] = set()  # those behind `elif` that are statements of their own in the port
        self._renamed: dict[int, str] = {}  # what names stand for after a module has written into what they name
        self._last_read: dict[str, int] = {}  # the last line of that function that reads a name
        self._taken: set[int] = set()  # calls whose result what they write into takes
        self._given_back: tuple[str, ...] = ()  # what a function that gives nothing writes into
        self._names_types = False
        self._draws = False
        self._under_mask = ""  # the mask under which elements are computed, which is left out
        self._selected: dict[str, str] = {}  # local names of what a mask selects, and the mask in the original
        self._mask_names: dict[str, str] = {}  # by these masks, their names in the port
        self._seen_selecting: set[int] = set()  # statements of which is known whether they give such a name
        self._put_aside = ""  # what stands for them there, with `{}` for all, where the others may have no derivative
        self._unpacked: dict[int, int] = {}  # the number of targets of a value that is unpacked

    @property
    def scope(self) -> Scope:
        return self._scopes[-1]

    @property
    def notes(self) -> list[str]:
        """What was noted of an expression that is in no statement."""
        return self._notes[-1]

    def _note(self, text: str) -> None:
        self._notes[-1].append(text)

    @contextlib.contextmanager
    def _in_types(self) -> Iterator[None]:
        """Where a class stands for its kind, and is not called."""
        self._names_types = True
        try:
            yield
        finally:
            self._names_types = False

    def _is_buffer(self, node: ast.expr) -> bool:
        is_own = self._is_own(node) and self.owner is not None
        return is_own and node.attr in self.model.buffers.get(self.owner, ())  # type: ignore[attr-defined, arg-type]

    def _key(self, function: ast.FunctionDef) -> tuple[str, int, str]:
        """What a function is known by that was seen as it ran."""
        first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        return self.spans.file, first, function.name

    def modules_at(self, node: ast.expr) -> list[torch.nn.Module]:
        """The modules that an expression stood for as the original ran, or was made; none where that is not known."""
        if isinstance(node, ast.Name):
            seen = self.model.observed.modules.get(self._key(self._code), {}) if self._code is not None else {}
            return seen.get(node.id, [])
        if isinstance(node, ast.Attribute):
            found = [getattr(each, node.attr, None) for each in self.modules_at(node.value)]
            if not found and self._is_own(node) and self.owner is not None:
                found = [self.model.instances.get((self.owner, node.attr))]
        elif isinstance(node, ast.Subscript):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            found = [one for each in self.modules_at(node.value) for one in _elements(each, index)]
        else:
            return []
        modules = [each for each in found if isinstance(each, torch.nn.Module)]
        return modules if len(modules) == len(found) else []

    def _is_counted(self, node: ast.expr | None) -> bool:
        """Whether it is a number that only a run of the graph knows, as `int()` of a tensor gives, in PyTorch."""
        if isinstance(node, ast.Name):
            return node.id in self._counted or self._seen(node) == "Tensor"
        if isinstance(node, ast.BinOp):
            return self._is_counted(node.left) or self._is_counted(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._is_counted(node.operand)
        if not isinstance(node, ast.Call) or self._builds:
            return node is not None and self._is_state(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("int", "float", "min", "max", "abs"):
            return any(self._is_counted(each) or self._is_value(each) for each in node.args)
        return isinstance(node.func, ast.Attribute) and node.func.attr == "item" and self._is_tensor(node.func.value)

    def _is_value(self, node: ast.expr) -> bool:
        """Whether it is a tensor's value, and not one of shapes."""
        return self._is_tensor(node) and not (isinstance(node, ast.Subscript) and ".shape" in ast.unparse(node.value))

    def _seen(self, node: ast.expr) -> str:
        """The type of what a local name stood for as the original ran; empty where that is not known, or changed."""
        if not isinstance(node, ast.Name) or self._code is None:
            return ""
        return self.model.observed.kinds.get(self._key(self._code), {}).get(node.id, "")

    def _has_held(self, node: ast.expr) -> bool:
        """Whether a local name stood for lists or dicts of tensors alone, as the original ran."""
        seen = self.model.observed.containers.get(self._key(self._code), {}) if self._code is not None else {}
        is_container = isinstance(node, ast.Name) and self._seen(node) in ("list", "tuple", "dict")
        return is_container and seen.get(node.id, False)  # type: ignore[attr-defined]

    def _has_held_plain(self, node: ast.expr) -> bool:
        """Whether a local name stood for lists or dicts of numbers and texts alone, as the original ran."""
        seen = self.model.observed.plain.get(self._key(self._code), {}) if self._code is not None else {}
        is_container = isinstance(node, ast.Name) and self._seen(node) in ("list", "tuple", "dict")
        return is_container and seen.get(node.id, False)  # type: ignore[attr-defined]

    def _is_mapping(self, node: ast.expr, key: ast.expr) -> bool:
        """Whether it is a mapping, by what it was as the original ran, or by the key that is asked of it."""
        is_one = self._seen(node) in ("dict", "OrderedDict", "defaultdict") or self._kind(node) is Kind.MAPPING
        return is_one or self._kind(key) is Kind.TEXT

    def _is_state(self, node: ast.expr) -> bool:
        """Whether it is a parameter or buffer that the class has of its own."""
        return self._is_own(node) and self.owner is not None and node.attr in self.model.variables.get(self.owner, ())

    def _may_have_gradient(self, *nodes: ast.AST) -> bool:
        """Whether a gradient may go through expressions to something else than buffers."""
        for node in nodes:
            if isinstance(node, ast.Attribute | ast.Call) and ast.unparse(node).endswith((".data", ".detach()")):
                continue
            if isinstance(node, ast.Attribute) and (node.attr in _OF_NO_GRADIENT or self._is_buffer(node)):
                continue
            if isinstance(node, ast.Call) and self._is_own(node.func):  # whose parameters may have one
                return True
            if isinstance(node, ast.Attribute) and self._holds_gradient(node):
                return True
            if isinstance(node, ast.Name) and self._names_gradient(node):
                return True
            if self._may_have_gradient(*ast.iter_child_nodes(node)):
                return True
        return False

    def _holds_gradient(self, node: ast.Attribute) -> bool:
        if node.attr in ("weight", "bias") or self._is_own(node):
            return self._is_tensor(node) or not self._is_own(node)
        held = [getattr(each, node.attr, None) for each in self.modules_at(node.value)]
        return any(isinstance(each, torch.nn.Parameter) for each in held)

    def _names_gradient(self, node: ast.Name) -> bool:
        if node.id in self._stopped_names | self._counted or node.id not in self.scope.local or node.id == "self":
            return False
        seen = self.model.observed.kinds.get(self._key(self._code), {}) if self._code is not None else {}
        if node.id in self._tensors or not seen:
            return node.id in self._tensors or self._kind(node) not in (Kind.NUMBER, Kind.TEXT)
        return seen.get(node.id, "") not in _PLAIN and not self.modules_at(node)

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression gives a tensor, as far as its code tells."""
        if isinstance(node, ast.Name):
            return node.id in self._tensors and node.id not in self._picked.counts
        if isinstance(node, ast.Call):
            return self._gives_tensors(node)
        if isinstance(node, ast.Attribute):
            if is_self(node.value):
                is_variable = self.owner is not None and node.attr in self.model.variables.get(self.owner, ())
                return is_variable or self._kind(node) is Kind.ARRAY
            if node.attr in ("saved_tensors", "saved_variables"):
                return True
            modules = self.modules_at(node.value) if not self._builds else []
            if modules and all(isinstance(getattr(each, node.attr, None), torch.Tensor) for each in modules):
                return True
            return node.attr in ("T", "mT", "real", "imag", "data") and self._is_tensor(node.value)
        if isinstance(node, ast.Subscript):
            if self._has_held_plain(node.value):
                return False
            if self._counted_selection(node) is not None:
                return True
            if isinstance(node.slice, ast.Tuple) and any(isinstance(each, ast.Slice) for each in node.slice.elts):
                return True
            return self._is_tensor(node.value) or (not isinstance(node.slice, ast.Slice) and self._has_held(node.value))
        parts = {
            ast.BinOp: ("left", "right"),
            ast.UnaryOp: ("operand",),
            ast.IfExp: ("body", "orelse"),
            ast.NamedExpr: ("value",),
        }
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
            is_said = "mask" in node.id and not _OF_PLACES.search(node.id)
            return node.id in self._masks or (node.id in self._tensors and is_said)
        if isinstance(node, ast.Compare):
            return self._is_tensor(node)
        if isinstance(node, ast.Subscript):
            return self._is_mask(node.value) and self._is_tensor(node.value)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Invert) and self._is_mask(node.operand)
        if isinstance(node, ast.BinOp):
            joins = isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor)
            return joins and self._is_mask(node.left) and self._is_mask(node.right)
        if not isinstance(node, ast.Call):
            return False
        if ast.unparse(node.func) == "bool" and len(node.args) == 1:
            return self._is_value(node.args[0])
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = (torch_name(self.scope.find(node.func)) or method).rpartition(".")[2]
        return name in _GIVE_MASKS

    def _says_where(self, node: ast.expr) -> bool:
        """Whether it holds a device and a dtype alone, as what is handed on to layers that are built."""
        if isinstance(node, ast.Name):
            given = self.scope.given.get(node.id, ())
            return bool(given) and all(each is not None and self._says_where(each) for each in given)
        keys = [getattr(each, "value", None) for each in node.keys] if isinstance(node, ast.Dict) else []
        return bool(keys) and all(key in ("device", "dtype") for key in keys)

    def _is_selection(self, node: ast.expr) -> bool:
        """Whether it is what a mask selects: `x[mask]`, or a name for it that is read under the mask."""
        if isinstance(node, ast.Name):
            return node.id in self._selected and isinstance(node.ctx, ast.Load)
        return isinstance(node, ast.Subscript) and self._is_mask(node.slice) and self._is_tensor(node.value)

    def _counted_selection(self, node: ast.expr) -> ast.expr | None:
        """What a mask selects, if an expression gives the number of its rows, or elements; else None."""
        counted: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            counted = node.value.value if ast.unparse(node.slice) == "0" else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
            told = f"{node.func.attr}({', '.join(map(ast.unparse, node.args))})"
            counted = node.func.value if told in ("size(0)", "numel()", "nelement()") else None
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and len(node.args) == 1:
            counted = node.args[0]
        return counted if counted is not None and self._is_selection(counted) else None

    def _gives_tensors(self, call: ast.Call) -> bool:
        if self._counted_selection(call) is not None:
            return True
        found = self.scope.find(call.func)
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            return False
        if isinstance(found, type) and issubclass(found, torch.distributions.Distribution):
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
        if self.is_distribution(function.value):
            return function.attr in ("log_prob", "entropy", "rsample", "sample", "cdf")
        return function.attr not in _OF_SHAPES and self._is_tensor(function.value)

    def is_distribution(self, node: ast.expr) -> bool:
        """Whether it is one of PyTorch's distributions."""
        if isinstance(node, ast.Name):
            given = self.scope.given.get(node.id, ()) if node.id in self.scope.local else ()
            return bool(given) and all(isinstance(each, ast.Call) and self.is_distribution(each) for each in given)
        found = self.scope.find(node.func) if isinstance(node, ast.Call) else None
        return isinstance(found, type) and issubclass(found, torch.distributions.Distribution)

    @staticmethod
    def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
        return isinstance(node, ast.Attribute) and is_self(node.value)

    def _is_container(self, node: ast.expr) -> TypeGuard[ast.Attribute]:
        """Whether it is a bare `nn.Module()` that the class holds, for what it is given later."""
        held = self.model.instances.get((self.owner, node.attr)) if self._is_own(node) and self.owner else None
        return type(held) is torch.nn.Module


def _elements(module: torch.nn.Module, index: Any) -> list[torch.nn.Module | None]:
    """One of the modules in a container, or all where it is not known which."""
    if not isinstance(module, torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ModuleDict):
        return [None]
    try:
        return [*module.children()] if index is None else [module[index]]
    except (IndexError, KeyError, TypeError):
        return [None]


def _says_other(function: Any) -> bool:
    """Whether a function is said to give what is no tensor, or gives what Python's own tests say."""
    if not isinstance(function, FunctionType):
        return False
    if function.__annotations__.get("return") in (bool, int, float, str, "bool", "int", "float", "str"):
        return True
    try:
        tree = tree_of(function)
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
