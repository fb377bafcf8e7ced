"""The comparison harness: is the port the same as the original, and how fast is each way of running them.

`check`, `bench` and `run` need PyTorch (`pip install 'graphmode[compare]'`); a `Case` and its reports do not. Each name
is imported when it is first used: pytest loads its plugin from here, and waits for no framework.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assertion import assert_parity
    from .case import Case, CaseError, channels_first, channels_last
    from .comparison import bench, run
    from .parity.check import CheckReport, check
    from .parity.lockstep.run import lockstep
    from .parity.shrink.run import Shrunk, shrink
    from .plan import Plan
    from .report.records import Lockstep

_LAZY = {
    "Case": "case",
    "CaseError": "case",
    "channels_first": "case",
    "channels_last": "case",
    "assert_parity": "assertion",
    "CheckReport": "parity.check",
    "check": "parity.check",
    "Lockstep": "report.records",
    "lockstep": "parity.lockstep.run",
    "Shrunk": "parity.shrink.run",
    "shrink": "parity.shrink.run",
    "Plan": "plan",
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
    "assert_parity",
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
