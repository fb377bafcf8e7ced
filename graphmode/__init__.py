"""Move a model from eager PyTorch to JAX/Flax graph mode, prove that nothing changed, show that it is faster."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import ops, weights
from .graph import graphed
from .memory import keep_freed_memory
from .ops import *  # noqa: F403  what ops exports is listed there, once

if TYPE_CHECKING:
    from . import nn, optim, training
    from .training import train_step

__all__ = ["graphed", "keep_freed_memory", "nn", "ops", "optim", "train_step", "training", "weights"]
__all__ += ops.__all__
__version__ = "0.1.0"

_LATER = ("nn", "optim", "training")  # some hundred files, which a program that needs them imports by naming them


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f".{name}", __name__)
    if name == "train_step":
        return import_module(".training", __name__).train_step
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
