"""How the weight of a layer lies here, and what the layer calls its sizes."""

from __future__ import annotations

import torch

_TURNED = {
    f"{name}{dims}d": axes
    for name in ("Conv", "ConvTranspose")
    for dims, axes in enumerate(("2, 1, 0", "3, 2, 0, 1", "4, 3, 0, 1, 2"), 1)
}


def turn_of(kind: type | None) -> str:
    """What turns the weight of a layer to PyTorch's layout."""
    if kind is None or not issubclass(kind, torch.nn.Linear | torch.nn.modules.conv._ConvNd):
        return ""
    return next((f".transpose({_TURNED[each.__name__]})" for each in kind.__mro__ if each.__name__ in _TURNED), ".T")


def sizes_of(layer: type) -> dict[str, str]:
    """What a layer calls the sizes of its weight, by number or slice."""
    if issubclass(layer, torch.nn.Linear):
        return {"0": "self.out_features", "1": "self.in_features"}
    first, second = "self.out_channels", "self.in_channels"
    if issubclass(layer, torch.nn.modules.conv._ConvTransposeNd):
        first, second = second, first
    return {"0": first, "1": f"({second} // self.groups)", "2:": "self.kernel_size"} | {
        f"-{dims}:": "self.kernel_size" for dims in (1, 2, 3) if f"{dims}d" in layer.__name__
    }
