"""What is known of the model whose port is drafted."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHANNELS = 'data_format="channels_first"'


@dataclass
class Model:
    """What is known of the model as a whole.

    Attributes:
      classes: the user's modules that are drafted, and the names they have in the port.
      functions: likewise those functions.
      builders: the names of methods and functions that make modules, and so take `rngs`.
      variables: by class, the names of its parameters and buffers.
      absent: those that some module has none of, in the place of one.
      transient: those of the buffers that no state_dict has.
      children: by class, the names of the modules inside.
      imports: lines that the port needs.
      home: the module of the original that is read now.
    """

    classes: dict[type, str] = field(default_factory=dict)
    functions: dict[Callable[..., Any], str] = field(default_factory=dict)
    builders: set[str] = field(default_factory=set)
    variables: dict[type, set[str]] = field(default_factory=dict)
    absent: dict[type, set[str]] = field(default_factory=dict)
    transient: dict[type, set[str]] = field(default_factory=dict)
    children: dict[type, set[str]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    home: str = ""


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_super(function: ast.expr) -> bool:
    holder = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id == "super"
