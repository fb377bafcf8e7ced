"""The comparison harness: is the port the same as the original, and how fast is each way of running them.

`check`, `bench` and `run` need PyTorch (`pip install 'graphmode[compare]'`); a `Case` and its reports do not.
"""

from typing import TYPE_CHECKING, Any

from .case import Case, CaseError, channels_first, channels_last

if TYPE_CHECKING:
    from .comparison import Plan, bench, run
    from .parity.check import CheckReport, check
    from .parity.lockstep.run import lockstep
    from .parity.shrink.run import Shrunk, shrink
    from .report.records import Lockstep

_LAZY = {
    "CheckReport": "parity.check",
    "check": "parity.check",
    "Lockstep": "report.records",
    "lockstep": "parity.lockstep.run",
    "Shrunk": "parity.shrink.run",
    "shrink": "parity.shrink.run",
    "Plan": "comparison",
    "bench": "comparison",
    "run": "comparison",
}

__all__ = [
    "Case",
    "CaseError",
    "CheckReport",
    "Lockstep",
    "Plan",
    "Shrunk",
    "bench",
    "channels_first",
    "channels_last",
    "check",
    "lockstep",
    "run",
    "shrink",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{_LAZY[name]}", __name__)
    return getattr(module, name)
