"""`torch.autocast`, as `nn.autocast` has it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import torch

AUTOCAST: type = torch.amp.autocast_mode.autocast
OFF = "nn.autocast(enabled=False)"
_PRODUCTS = frozenset(("matmul", "mm", "bmm", "baddbmm", "addmm", "mv", "einsum"))
_LOW = {"cpu": "jnp.bfloat16", "cuda": "jnp.float16"}  # unless the call says which


def is_autocast(found: Any) -> bool:
    """Whether it is PyTorch's class, or one of those for a device."""
    return isinstance(found, type) and issubclass(found, AUTOCAST)


def autocast(node: ast.Call, found: Any, written: Callable[[ast.AST], str]) -> str | None:
    """The call for the same dtype by the same device's rules; None where its arguments do not tell them."""
    if any(isinstance(each, ast.Starred) for each in node.args) or any(each.arg is None for each in node.keywords):
        return None
    try:
        given = inspect.signature(found).bind(*node.args, **{str(each.arg): each.value for each in node.keywords})
    except TypeError:
        return None
    chosen: dict[str, ast.expr] = dict(given.arguments)
    enabled, dtype = chosen.get("enabled"), chosen.get("dtype")
    further = [] if enabled is None or ast.unparse(enabled) == "True" else [f"enabled={written(enabled)}"]
    if further == ["enabled=False"]:
        return OFF
    device = {torch.cuda.amp.autocast: "cuda", torch.cpu.amp.autocast: "cpu"}.get(found)
    if device is None:
        named = chosen["device_type"]
        device = str(named.value) if isinstance(named, ast.Constant) else written(named).strip("'\"")
    if device not in _LOW:
        return None
    of_cpu = ['device_type="cpu"'] if device == "cpu" else []
    low = _LOW[device] if dtype is None or ast.unparse(dtype) == "None" else written(dtype)
    return f"nn.autocast({', '.join([low, *of_cpu, *further])})"


def multiplies(node: ast.AST) -> bool:
    """Whether code multiplies matrices, other than by layers, where no inner context leaves them their own dtype."""
    if isinstance(node, ast.MatMult) or (isinstance(node, ast.Attribute) and node.attr in _PRODUCTS):
        return True
    if isinstance(node, ast.With) and any("enabled=False" in ast.unparse(each) for each in node.items):
        return False
    return any(map(multiplies, ast.iter_child_nodes(node)))
