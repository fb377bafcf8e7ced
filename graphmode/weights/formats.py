"""Arrays and weight files of other frameworks as numpy arrays of the same bits, and numpy arrays as tensors."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

TORCH_SUFFIXES = (".pt", ".pth", ".bin")
SCRIPT_SUFFIX = ".jit"


def read(path: str | PathLike[str], *, entry: str | None = None) -> dict[str, np.ndarray]:
    """Reads a `state_dict` from a `.safetensors`, `.npz`, `.pt`, `.pth` or `.bin` file, or TorchScript's `.jit`.

    Nothing is unpickled.

    Args:
      path: the file; of numpy's own the names are those that `np.savez` was given.
      entry: for a checkpoint that holds more than the weights, the name that they have in it: `"model_state"`.

    Raises:
      ValueError: where the file is of another kind, would run code when read, or holds no mapping of names to tensors.
      ImportError: where safetensors, or torch for its own files, is not installed.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        if entry is not None:
            raise ValueError(f"entry is {entry!r}, and a .safetensors file holds nothing but tensors; leave it out")
        try:
            from safetensors.numpy import load_file
        except ImportError as error:
            raise ImportError(f"reading {path.name} needs safetensors: pip install 'graphmode[weights]'") from error
        return load_file(path)
    if path.suffix == ".npz":
        return _state_dict(_npz(path), path, entry)
    if path.suffix not in (*TORCH_SUFFIXES, SCRIPT_SUFFIX):
        wanted = ", ".join((".safetensors", ".npz", *TORCH_SUFFIXES))
        raise ValueError(f"path is {path}, and {wanted} or {SCRIPT_SUFFIX} was wanted")
    torch = import_torch(f"reading {path.name}", instead="or convert the file to safetensors")
    if path.suffix == SCRIPT_SUFFIX:
        return _scripted(torch, path, entry)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise ValueError(
            f"path is {path}, which torch.load(weights_only=True) refuses ({str(error).splitlines()[0]}); save its "
            "state_dict() alone, best as safetensors"
        ) from error
    return _state_dict(content, path, entry)


def as_numpy(value: Any) -> np.ndarray:
    """A torch tensor, JAX or numpy array as a numpy array of the same bits; bfloat16 and float8 by `ml_dtypes`.

    Raises:
      TypeError: where the value is no array, or of a kind that numpy cannot hold (sparse, quantized).
    """
    if hasattr(value, "detach"):
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
    return array


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


def _scripted(torch: Any, path: Path, entry: str | None) -> dict[str, np.ndarray]:
    """The weights of a TorchScript archive, whose code is of TorchScript's own and is not run."""
    if entry is not None:
        raise ValueError(f"entry is {entry!r}, and a {SCRIPT_SUFFIX} file holds one module; leave it out")
    try:
        module = torch.jit.load(path, map_location="cpu")
    except RuntimeError as error:
        raise ValueError(
            f"path is {path}, which torch.jit.load refuses ({str(error).splitlines()[0]}); a {SCRIPT_SUFFIX} file is "
            "one that torch.jit.save wrote"
        ) from error
    return _state_dict(module.state_dict(), path, None)


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: as_numpy(arrays[name]) for name in arrays}
    except (TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"path is {path}, which np.load(allow_pickle=False) refuses ({str(error).splitlines()[0]}); save arrays of "
            "numbers alone, with np.savez"
        ) from error


def _state_dict(content: Any, path: Path, entry: str | None) -> dict[str, np.ndarray]:
    if entry is not None:
        if not isinstance(content, Mapping) or entry not in content:
            raise ValueError(f"entry is {entry!r}, and {path} holds {_described(content)}")
        content = content[entry]
    if not isinstance(content, Mapping) or not all(hasattr(value, "shape") for value in content.values()):
        raise ValueError(
            f"{path} holds {_described(content)}, and a mapping of names to tensors was wanted; where it is inside, "
            "name it with entry="
        )
    return {key: as_numpy(value) for key, value in content.items()}


def _described(content: Any) -> str:
    if not isinstance(content, Mapping):
        return type(content).__name__
    shown = ", ".join(f"{key}: {type(value).__name__}" for key, value in list(content.items())[:8])
    return f"a mapping of {len(content)} ({shown}{', ...' if len(content) > 8 else ''})"
