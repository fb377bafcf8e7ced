"""Adapters of this room: PyTorch's own masks, handed on."""

from __future__ import annotations

import torch

from .base import FIRST, LAST, Adapter, to_first, to_last


def _mask(input: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """Where the gradient passes; by the outputs, a zero of the input would look dropped."""
    (noise,) = torch.autograd.grad(outputs.sum(), input, retain_graph=True)
    return noise != 0


def _of_elements(module, args, kwargs, outputs):
    return {"mask": _mask(args[0], outputs)}


def _of_features(batched):
    """`batched`: rank -> whether the first axis is a batch."""

    def given(module, args, kwargs, outputs):
        mask = _mask(args[0], outputs)
        if mask.ndim > 1 and mask.numel():
            spatial = tuple(range(1 + batched(mask.ndim), mask.ndim))
            mask = mask.amax(spatial, keepdim=True) if spatial else mask
        return {"mask": mask}

    def inputs(args, kwargs, layout):
        if layout == LAST and args[0].ndim > 1:
            at = int(batched(args[0].ndim))
            args = (_moved(args[0], at), *args[1:])
            kwargs = {**kwargs, "mask": _moved(kwargs["mask"], at)}
        return args, kwargs

    def outputs(out, args, kwargs, layout):
        return _back(out, int(batched(out.ndim))) if layout == LAST and out.ndim > 1 else out

    return Adapter(layouts=(LAST, FIRST), inputs=inputs, outputs=outputs, given=given)


def _moved(array, channel):
    return to_last(array, array.ndim - channel - 1)


def _back(array, channel):
    return to_first(array, array.ndim - channel - 1)


_ELEMENTS = Adapter(given=_of_elements)
_ONE, _TWO, _THREE = (_of_features(batched) for batched in (lambda n: n == 3, lambda n: True, lambda n: n == 5))

ADAPTERS: dict[str, Adapter] = {
    "Dropout": _ELEMENTS,
    "AlphaDropout": _ELEMENTS,
    "Dropout1d": _ONE,
    "Dropout2d": _TWO,
    "Dropout3d": _THREE,
    "FeatureAlphaDropout": _TWO,
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "dropout": _ELEMENTS,
    "alpha_dropout": _ELEMENTS,
    "dropout1d": _ONE,
    "dropout2d": _TWO,
    "dropout3d": _THREE,
    "feature_alpha_dropout": _TWO,
}
