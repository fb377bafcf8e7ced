"""What a look inside of a port finds: modules that introduce error, what is off in them, and where they are written."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flax import nnx

from ...report.records import Finding
from ..yardstick import Difference

What = Literal["received", "output", "received_cotangent", "input_gradient", "parameter_gradient", "buffer"]
LIBRARIES = ("flax.", "graphmode.nn.")


@dataclass
class Suspect:
    """A module that introduces error.

    Attributes:
      path: in the port; empty for the model itself.
      call: the first that does.
      findings: what is off, in the order of the passes.
    """

    path: str
    call: int
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Activation:
    """The output of a matched call, as each side computes it by itself, and when the port's is given the right input.

    Attributes:
      module, reference, call: which one.
      tensor: of its outputs.
      inherited: the error of the port's own, of the tensor's scale.
      introduced: the error that this module adds.
    """

    module: str
    reference: str
    call: int
    tensor: str
    inherited: Difference
    introduced: Difference


def finding_of(what: What, tensor: str, found: Difference) -> Finding:
    return Finding(
        what=what,
        tensor=tensor,
        error=found.error,
        index=found.index,
        port_value=found.port,
        reference_value=found.reference,
        note=found.note,
    )


def source_of(module: nnx.Module | None) -> str:
    """Where the module's class says what it does; nothing for a layer of a library, in which no port is wrong."""
    if module is None or type(module).__module__.startswith(LIBRARIES):
        return ""
    try:
        code = inspect.unwrap(type(module).__call__).__code__
        file = inspect.getsourcefile(type(module)) or ""
        # what wraps a call may come from elsewhere
        line = code.co_firstlineno if code.co_filename == file else inspect.getsourcelines(type(module))[1]
        return f"{Path(file).name}:{line}"
    except (AttributeError, TypeError, OSError):
        return ""
