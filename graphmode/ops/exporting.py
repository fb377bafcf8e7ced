"""`exportable`: a dataclass that is a pytree goes through `jax.export` and comes back as itself."""

from __future__ import annotations

import json
from typing import TypeVar

import jax.export

T = TypeVar("T", bound=type)


def exportable(cls: T) -> T:
    """Registers a class of `jax.tree_util.register_dataclass`; its static fields must be numbers and strings."""
    jax.export.register_pytree_node_serialization(
        cls,
        serialized_name=f"graphmode.{cls.__name__}",
        serialize_auxdata=lambda static: json.dumps(static).encode(),
        deserialize_auxdata=lambda static: tuple(json.loads(static)),
    )
    return cls
