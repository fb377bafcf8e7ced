"""What is likely meant where the keys of a `state_dict` are not those that a module needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any

from .rules import Rename

# tensors that PyTorch computes a parameter from, by what their names add to its own, the call that ends it, and the
# function of graphmode that computes it likewise
COMPUTED_FROM = {
    ("_g", "_v"): ("torch.nn.utils.remove_weight_norm({module})", "nn.utils.weight_norm"),
    ("_orig", "_u", "_v"): ('torch.nn.utils.remove_spectral_norm({module}, "{name}")', "nn.utils.spectral_norm"),
    ("_orig", "_mask"): ('torch.nn.utils.prune.remove({module}, "{name}")', ""),
}


def check_state_dict(state_dict: Any) -> None:
    """Raises `TypeError` for what is no mapping of names, with what to give in its place."""
    if isinstance(state_dict, Mapping):
        if strange := [key for key in state_dict if not isinstance(key, str)]:
            raise TypeError(f"state_dict has the key {strange[0]!r}; give a mapping of names to tensors")
        return
    if isinstance(state_dict, str | PathLike):
        raise TypeError(f"state_dict is {str(state_dict)!r}, a path; give graphmode.weights.read of it")
    came = f"the class {state_dict.__name__}" if isinstance(state_dict, type) else type(state_dict).__name__
    advice = "its state_dict()" if hasattr(state_dict, "state_dict") else "a mapping of names to tensors"
    raise TypeError(f"state_dict is {came}; give {advice}")


def nested_weights(content: Any) -> list[str]:
    """The names in a checkpoint under which there is a mapping of names to tensors."""
    if not isinstance(content, Mapping):
        return []
    return [
        name
        for name, value in content.items()
        if isinstance(value, Mapping) and value and all(hasattr(tensor, "shape") for tensor in value.values())
    ]


def common_prefix(missing: Sequence[str], unused: Collection[str]) -> Rename | None:
    """The rule by which most missing keys are unused ones: a prefix that the keys have on one side alone."""
    for first in missing[: len(missing) // 2 + 1]:  # of so many one fits at least, where most do
        for key in unused:
            if key.endswith(f".{first}"):
                prefix = key.removesuffix(f".{first}")
                fitting = sum(f"{prefix}.{name}" in unused for name in missing)
                sides = prefix, ""
            elif first.endswith(f".{key}"):
                prefix = first.removesuffix(f".{key}")
                within = (name.removeprefix(f"{prefix}.") for name in missing if name.startswith(f"{prefix}."))
                fitting = sum(name in unused for name in within)
                sides = "", prefix
            else:
                continue
            if 2 * fitting > len(missing) and all(prefix.split(".")) and "{" not in prefix:
                return Rename(*sides)
    return None


def computed(missing: Collection[str], unused: Collection[str]) -> dict[str, tuple[list[str], str]]:
    """Missing keys whose tensor PyTorch computes from unused ones: those, and what to do."""
    parts: dict[str, list[str]] = {}
    for key in unused:
        if match := re.fullmatch(r"((?:.+\.)?)parametrizations\.(\w+)\..+", key):
            parts.setdefault(match[1] + match[2], []).append(key)
    found = {}
    for key in missing:
        module, _, name = key.rpartition(".")
        module = f"reference.{module}" if module else "reference"
        if key in parts:
            call = f'torch.nn.utils.parametrize.remove_parametrizations({module}, "{name}")'
            found[key] = parts[key], _advice(call, _parametrization(parts[key]))
            continue
        for ends, (call, ours) in COMPUTED_FROM.items():
            if all(key + end in unused for end in ends):
                found[key] = [key + end for end in ends], _advice(call.format(module=module, name=name), ours)
    return found


def _advice(call: str, ours: str) -> str:
    kept = f"build the layer here with graphmode.{ours}, or " if ours else ""
    return f"{kept}call {call} before state_dict()"


def _parametrization(keys: Collection[str]) -> str:
    if any(key.endswith("._u") for key in keys):
        return "nn.utils.parametrizations.spectral_norm"
    if any(key.endswith(".original1") for key in keys):
        return "nn.utils.parametrizations.weight_norm"
    return "nn.utils.parametrize.register_parametrization"
