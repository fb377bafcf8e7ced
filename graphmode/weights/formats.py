"""Arrays of other frameworks as numpy arrays of the same bits, and numpy arrays as tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def as_numpy(value: Any) -> np.ndarray:
    """A torch tensor, JAX or numpy array as a numpy array of the same bits; bfloat16 and float8 by `ml_dtypes`.

    Raises:
      TypeError: where the value is no array, or of a kind that numpy cannot hold (sparse, quantized, meta).
    """
    if hasattr(value, "detach"):
        if value.is_meta:
            raise TypeError(
                "is on the device 'meta', which holds no values; load real weights into the PyTorch module first"
            )
        if value.is_quantized:
            raise TypeError(f"is quantized, {value.dtype}; give its dequantize()")
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        name = str(tensor.dtype).removeprefix("torch.")
        if not hasattr(ml_dtypes, name):
            return tensor.numpy()
        torch = import_torch("reading a tensor", instead="or pass numpy arrays")
        bits = torch.int16 if tensor.itemsize == 2 else torch.uint8
        return tensor.contiguous().view(bits).numpy().view(getattr(ml_dtypes, name))
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        raise TypeError(f"{type(value).__name__} is no array of numbers")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_tensor(value: np.ndarray) -> Any:
    """A torch tensor that owns a copy of the array's bits."""
    torch = import_torch("writing a state_dict of tensors", instead="or ask for framework='numpy'")
    if not hasattr(ml_dtypes, value.dtype.name):
        return torch.from_numpy(value.copy())
    bits = value.view(np.int16 if value.itemsize == 2 else np.uint8)
    return torch.from_numpy(bits.copy()).view(getattr(torch, value.dtype.name))


def import_torch(purpose: str, *, instead: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{purpose} needs PyTorch: pip install 'graphmode[compare]', {instead}") from error
    return torch
