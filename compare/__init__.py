"""The comparison harness: is the port the same as the original, and how fast is each way of running them.

`check`, `bench` and `run` need PyTorch (`pip install 'graphmode[compare]'`); a `Case` and its reports do not. Each name
is imported when it is first used: pytest loads its plugin from here, and waits for no framework.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assertion import assert_parity
    from .case import Case, CaseError, channels_first, channels_last
    from .comparison import Plan, bench, run
    from .parity.check import CheckReport, check

_LAZY = {
    "Case": "case",
    "CaseError": "case",
    "channels_first": "case",
    "channels_last": "case",
    "assert_parity": "assertion",
    "CheckReport": "parity.check",
    "check": "parity.check",
    "Plan": "comparison",
    "bench": "comparison",
    "run": "comparison",
}

__all__ = [
    "Case",
    "CaseError",
    "CheckReport",
    "Plan",
    "assert_parity",
    "bench",
    "channels_first",
    "channels_last",
    "check",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{_LAZY[name]}", __name__)
    return getattr(module, name)
