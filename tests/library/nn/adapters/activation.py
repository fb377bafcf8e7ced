"""Adapters of this room: layouts, and PyTorch's own slopes handed on."""

from __future__ import annotations

import torch

from .base import FIRST, LAST, Adapter, spatial, to_first, to_last


def _of_channels() -> Adapter:
    """Any rank, channels on the second axis; an array of one axis has none."""

    def inputs(args, kwargs, layout):
        if layout == LAST and args[0].ndim > 1:
            args = (to_last(args[0], None), *args[1:])
        return args, kwargs

    def outputs(out, args, kwargs, layout):
        return to_first(out, None) if layout == LAST and out.ndim > 1 else out

    return Adapter(layouts=(LAST, FIRST), inputs=inputs, outputs=outputs)


def _slopes(module, args, kwargs, outputs):
    """The gradient is the slope that was drawn below 0, and 1 above, where it does not matter."""
    (slope,) = torch.autograd.grad(outputs.sum(), args[0], retain_graph=True)
    return {"slope": slope}


ADAPTERS: dict[str, Adapter] = {
    "PReLU": _of_channels(),
    "RReLU": Adapter(given=_slopes),
    "Softmax2d": spatial(2),
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "prelu": _of_channels(),
    "rrelu": Adapter(given=_slopes),
}
