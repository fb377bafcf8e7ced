"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster.

Importing it imports no framework: each name brings what it needs when it is first used, so that a test run or a command
that never uses one does not wait for JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import nn, ops, optim, training, weights
    from .dispatch import dispatch_inline
    from .graph import graphed
    from .memory import keep_freed_memory
    from .ops import *  # noqa: F403  what ops exports is listed there, once
    from .training import train_step
    from .vectors import use_wide_vectors

    __all__ = ["dispatch_inline", "graphed", "keep_freed_memory"]
    __all__ += ["nn", "ops", "optim", "train_step", "training", "use_wide_vectors", "weights"]
    __all__ += ops.__all__
__version__ = "0.1.0"

_MODULES = ("dispatch", "graph", "memory", "nn", "ops", "optim", "training", "vectors", "weights")
_MEMBERS = {
    "dispatch_inline": "dispatch",
    "graphed": "graph",
    "keep_freed_memory": "memory",
    "train_step": "training",
    "use_wide_vectors": "vectors",
}
_WINGS = ("cli", "compare", "models")  # `from graphmode import compare` asks here first


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _MEMBERS:
        value = getattr(import_module(f".{_MEMBERS[name]}", __name__), name)
    elif name == "__all__":
        value = [*_MEMBERS, "nn", "ops", "optim", "training", "weights", *import_module(".ops", __name__).__all__]
    elif name.startswith("_") or name in _WINGS or name not in import_module(".ops", __name__).__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        value = getattr(import_module(".ops", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
