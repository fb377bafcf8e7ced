"""What is settled in a port: it is never scripted or traced by PyTorch, and what only reports use says nothing."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, TypeGuard

import torch

from .names import Scope, is_of_torch
from .reading import tree_of

# by name below torch: what asks how PyTorch runs the code
_NEVER = (
    "jit.is_scripting",
    "jit.is_tracing",
    "compiler.is_compiling",
    "compiler.is_exporting",
    "onnx.is_in_onnx_export",
    "is_autocast_enabled",
    "_dynamo.is_compiling",
    "fx._symbolic_trace.is_fx_tracing",
)
# how and where PyTorch holds a tensor
_NOT_HERE = frozenset(["is_cuda", "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_xpu"])
_OF_RUNS = ("torch.nn.attention", "torch.fx", "torch.jit", "torch.distributed", "torch._subclasses", "torch.nested")
_REPORTS = ("_C._log_api_usage_once", "_logging.warning_once")


def _found(names: tuple[str, ...]) -> list[Any]:
    found = []
    for name in names:
        holder: Any = torch
        for part in name.split("."):
            holder = getattr(holder, part, None)
        found.append(holder)
    return [each for each in found if each is not None]


_ASKS, _TELLS = _found(_NEVER), _found(_REPORTS)


def asks_how_it_runs(found: Any) -> bool:
    """Whether it is a function that tells if PyTorch scripts, traces or compiles: in a port it never does."""
    return any(found is each for each in _ASKS)


def settled(test: ast.expr, scope: Scope) -> bool | None:
    """What a condition always is in a port; None where only a run can tell."""
    if isinstance(test, ast.Constant) and isinstance(test.value, bool):
        return test.value
    if isinstance(test, ast.Attribute) and test.attr in _NOT_HERE:
        return False
    if isinstance(test, ast.Call) and asks_how_it_runs(scope.find(test.func)):
        return False
    if isinstance(test, ast.Call) and scope.find(test.func) is hasattr and len(test.args) == 2:
        return _has(scope.find(test.args[0]), test.args[1])
    if isinstance(test, ast.Call) and scope.find(test.func) is isinstance and len(test.args) == 2:
        return False if _is_never(scope.find(test.args[1])) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _of_devices(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = settled(test.operand, scope)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        ends = isinstance(test.op, ast.Or)
        parts = [settled(each, scope) for each in test.values]
        return ends if ends in parts else None if None in parts else not ends
    return None


def _has(holder: Any, name: ast.expr) -> bool | None:
    """Whether PyTorch has something, as code asks that runs with older versions, too."""
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return hasattr(holder, name.value) if is_text and is_of_torch(holder) else None  # type: ignore[attr-defined]


def _is_never(kind: Any) -> bool:
    """Whether it is a class of how PyTorch runs, such as its masks of blocks, of which nothing in a port is one."""
    return isinstance(kind, type) and kind.__module__.startswith(_OF_RUNS)


def _of_devices(test: ast.Compare) -> bool | None:
    """What a comparison of devices always is: there is one, the CPU to code that asks for its type."""
    left, right = test.left, test.comparators[0]
    is_same: bool | None = None
    if _is_attribute(left, "device") and _is_attribute(right, "device"):
        is_same = True
    elif _is_attribute(left, "type") and _is_attribute(left.value, "device") and isinstance(right, ast.Constant):
        is_same = right.value == "cpu"
    if is_same is None or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return None
    return is_same is isinstance(test.ops[0], ast.Eq)


def _is_attribute(node: ast.expr, name: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == name


def only_reports(found: Any) -> bool:
    """Whether a function tells PyTorch what is used, and gives nothing."""
    if any(found is each for each in _TELLS):
        return True
    if not isinstance(found, FunctionType) or is_of_torch(found):
        return False
    try:
        tree = tree_of(found)
    except (OSError, TypeError, SyntaxError):
        return False
    scope = Scope(found.__globals__)
    nodes = list(ast.walk(tree))
    gives = any(isinstance(node, ast.Return) and node.value is not None for node in nodes)
    return not gives and any(
        isinstance(node, ast.Call) and any(scope.find(node.func) is each for each in _TELLS) for node in nodes
    )
