"""The records of the results schema: verdicts, cells, the machine and what it can do at best."""

from .cells import CaseInfo, Cell, Cold, Launches, Memory, Status
from .lockstep import FreeStep, Lockstep, StepFinding, StepKind
from .machine import Environment, Floors, Work
from .parity import Astray, Cause, Divergence, Finding, ModuleEvidence, Parity, Tensor

__all__ = [
    "Astray",
    "CaseInfo",
    "Cause",
    "Cell",
    "Cold",
    "Divergence",
    "Environment",
    "Finding",
    "Floors",
    "FreeStep",
    "Launches",
    "Lockstep",
    "Memory",
    "ModuleEvidence",
    "Parity",
    "Status",
    "StepFinding",
    "StepKind",
    "Tensor",
    "Work",
]
