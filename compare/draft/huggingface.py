"""Models of `transformers`: what is the package's framework around them, and what stands for it in a port."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

import torch

from .names import Scope

# modules whose classes, decorators and functions load, dispatch and report, and are no part of a model
_FRAMEWORK = (
    "modeling_utils", "modeling_layers", "utils", "integrations", "masking_utils", "generation", "cache_utils",
    "modeling_flash_attention_utils", "modeling_rope_utils", "processing_utils",
)  # fmt: skip
_ROTARY = "_compute_"  # as the functions begin that give the frequencies of rotary embeddings, which are of a model


def is_framework(found: Any) -> bool:
    """Whether a class or function is of the framework, rather than of a model."""
    package, _, rest = str(getattr(found, "__module__", None)).partition(".")
    if rest == "modeling_rope_utils" and str(getattr(found, "__name__", "")).startswith(_ROTARY):
        return False
    return package == "transformers" and rest.split(".")[0] in _FRAMEWORK and isinstance(found, type | FunctionType)


def is_decorator(found: Any) -> bool:
    """Whether a decorator only documents, records or dispatches what it decorates."""
    return is_framework(found) or str(getattr(found, "__module__", "")).startswith("transformers.utils")


def is_output(found: Any) -> bool:
    """Whether it is a class of named results, which leaves out what is None."""
    return isinstance(found, type) and any(
        base.__name__ == "ModelOutput" and base.__module__.startswith("transformers.") for base in found.__mro__
    )


def gives_activation(node: ast.expr, scope: Scope) -> bool:
    """Whether it is `ACT2FN[name]`, or `get_activation(name)`: a module by the name of an activation."""
    if isinstance(node, ast.Subscript):
        return type(scope.find(node.value)).__name__ == "ClassInstantier"
    found = scope.find(node.func) if isinstance(node, ast.Call) else None
    return getattr(found, "__module__", "") == "transformers.activations" and isinstance(found, FunctionType)


def chosen_function(node: ast.expr, scope: Scope) -> ast.expr | None:
    """The eager function of `ALL_ATTENTION_FUNCTIONS.get_interface(name, eager)`; None of anything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 2:
        return None
    is_registry = type(scope.find(node.func.value)).__name__ == "AttentionInterface"
    return node.args[1] if is_registry and node.func.attr == "get_interface" else None


def stands_for(found: type) -> str | None:
    """The name of the helper, or of Flax's class, that a class of the framework is in a port."""
    if not is_framework(found):
        return None
    if found.__name__ == "PreTrainedModel":
        return "PreTrainedModel"
    return "nnx.Module" if issubclass(found, torch.nn.Module) else "object"
