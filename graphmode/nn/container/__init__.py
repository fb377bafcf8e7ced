"""Containers of modules and parameters, with PyTorch's names for what is inside."""

from .modules import ModuleDict, ModuleList
from .parameters import ParameterDict, ParameterList
from .sequential import Sequential

__all__: list[str] = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
