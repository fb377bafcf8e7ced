"""Weight files of other frameworks as numpy arrays of the same bits; nothing is unpickled."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .formats import as_numpy, import_torch
from .hints import nested_weights
from .shards import INDEX_SUFFIX, in_folder, read_index

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
SCRIPT_SUFFIX = ".jit"
FLOAT8 = {  # the names in safetensors files of what its reader for numpy has no names for
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}


def read(path: str | PathLike[str], *, entry: str | None = None) -> dict[str, np.ndarray]:
    """Reads a `state_dict` from a `.safetensors`, `.npz`, `.pt`, `.pth`, `.bin`, `.ckpt` or TorchScript's `.jit` file.

    Nothing is unpickled. Shards are read together.

    Args:
      path: the file; of numpy's own the names are those that `np.savez` was given. Of weights in several files (Hugging
        Face's shards) their index, `model.safetensors.index.json`, or the folder that holds it.
      entry: for a checkpoint that holds more than the weights, the name that they have in it: `"model_state"`, or
        `"state_dict"` in Lightning's.

    Raises:
      ValueError: where the file is of another kind, is damaged, would run code when read, or holds no mapping of names
        to tensors; where a shard, or a key in one, is missing.
      ImportError: where safetensors, or torch for its own files, is not installed.
    """
    path = Path(path)
    if path.is_dir():
        path = in_folder(path)
    if path.name.endswith(INDEX_SUFFIX):
        if entry is not None:
            raise ValueError(f"entry is {entry!r}, and shards hold nothing but tensors; leave it out")
        return read_index(path, read)
    if path.suffix == ".safetensors":
        if entry is not None:
            raise ValueError(f"entry is {entry!r}, and a .safetensors file holds nothing but tensors; leave it out")
        return _safetensors(path)
    if path.suffix == ".npz":
        return _state_dict(_npz(path), path, entry)
    if path.suffix not in (*TORCH_SUFFIXES, SCRIPT_SUFFIX):
        wanted = ", ".join((".safetensors", ".npz", *TORCH_SUFFIXES))
        raise ValueError(
            f"path is {path}, and {wanted} or {SCRIPT_SUFFIX} was wanted, or the {INDEX_SUFFIX} of several"
        )
    torch = import_torch(f"reading {path.name}", instead="or convert the file to safetensors")
    if path.suffix == SCRIPT_SUFFIX:
        return _scripted(torch, path, entry)
    return _state_dict(load_torch(torch, path), path, entry)


def load_torch(
    torch: Any, path: Path, *, argument: str = "path", save: str = "its state_dict() alone, best as safetensors"
) -> Any:
    """What `torch.save` wrote, on the CPU.

    Args:
      torch: the module.
      path: of the file.
      argument: what the caller calls the path.
      save: what the caller wants of the file, for the error.

    Raises:
      ValueError: where the file is damaged, or would run code when read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError) as error:
        advice = f"save {save}" if isinstance(error, pickle.UnpicklingError) else "download or save it again"
        raise _refused(path, "torch.load(weights_only=True)", error, advice, argument) from error


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        from safetensors import SafetensorError, deserialize, safe_open
    except ImportError as error:
        raise ImportError(f"reading {path.name} needs safetensors: pip install 'graphmode[weights]'") from error
    try:  # not by safetensors.numpy.load_file, which knows no float8
        with safe_open(path, framework="numpy") as file:
            dtypes = {key: file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118, it is no mapping
            arrays = {key: file.get_tensor(key) for key, dtype in dtypes.items() if not dtype.startswith(("F8", "F4"))}
        if strange := [f"{key} ({dtypes[key]})" for key in dtypes.keys() - arrays.keys() if dtypes[key] not in FLOAT8]:
            raise ValueError(f"path is {path}, whose {', '.join(sorted(strange))} numpy cannot hold; dequantize first")
        if len(arrays) < len(dtypes):
            arrays |= {
                key: np.frombuffer(held["data"], FLOAT8[held["dtype"]]).reshape(held["shape"])
                for key, held in deserialize(path.read_bytes())
                if key not in arrays
            }
    except SafetensorError as error:
        raise _refused(path, "safetensors", error, "download or save it again") from error
    return {key: arrays[key] for key in dtypes}


def _scripted(torch: Any, path: Path, entry: str | None) -> dict[str, np.ndarray]:
    """The weights of a TorchScript archive, whose code is of TorchScript's own and is not run."""
    if entry is not None:
        raise ValueError(f"entry is {entry!r}, and a {SCRIPT_SUFFIX} file holds one module; leave it out")
    try:
        module = torch.jit.load(path, map_location="cpu")
    except RuntimeError as error:
        advice = f"a {SCRIPT_SUFFIX} file is one that torch.jit.save wrote"
        raise _refused(path, "torch.jit.load", error, advice) from error
    return _state_dict(module.state_dict(), path, None)


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: as_numpy(arrays[name]) for name in arrays}
    except (EOFError, TypeError, ValueError, zipfile.BadZipFile) as error:
        advice = "save arrays of numbers alone, with np.savez"
        raise _refused(path, "np.load(allow_pickle=False)", error, advice) from error


def _refused(path: Path, by: str, error: Exception, advice: str, argument: str = "path") -> ValueError:
    """Why a reader takes this file for none of its own, in one line."""
    with path.open("rb") as file:
        start = file.read(64).lstrip()
    kinds = {b"<": "a web page", b"version https://git-lfs": "a pointer of Git LFS"}
    if found := next((kind for begin, kind in kinds.items() if start.startswith(begin)), "" if start else "empty"):
        return ValueError(f"{argument} is {path}, which is {found} and holds no weights; download or save it again")
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    if told := re.search(r"Unsupported global: GLOBAL (\S+)", text):
        reason = f"it holds {told[1]}, and reading that would run code of the file"
    else:
        reason = (re.search(r"WeightsUnpickler error:\s*(.+)", text) or [text, text])[1]
        reason = reason.splitlines()[0].partition(". ")[0].strip(" .")
    return ValueError(f"{argument} is {path}, which {by} refuses ({reason}); {advice}")


def _state_dict(content: Any, path: Path, entry: str | None) -> dict[str, np.ndarray]:
    if entry is not None:
        if not isinstance(content, Mapping) or entry not in content:
            raise ValueError(f"entry is {entry!r}, and {path} holds {_described(content)}")
        content = content[entry]
    if not isinstance(content, Mapping) or not all(hasattr(value, "shape") for value in content.values()):
        inside = " or ".join(f"entry={name!r}" for name in nested_weights(content))
        advice = f"read them with {inside}" if inside else "where it is inside, name it with entry="
        raise ValueError(f"{path} holds {_described(content)}, and a mapping of names to tensors was wanted; {advice}")
    arrays, problems = {}, []
    for key, value in content.items():
        try:
            arrays[key] = as_numpy(value)
        except TypeError as error:
            problems.append(f"{key}: {error}")
    if problems:
        raise ValueError(f"{path} holds what numpy cannot hold\n" + "\n".join(f"  - {line}" for line in problems))
    return arrays


def _described(content: Any) -> str:
    if not isinstance(content, Mapping):
        return type(content).__name__
    shown = ", ".join(f"{key}: {type(value).__name__}" for key, value in list(content.items())[:8])
    return f"a mapping of {len(content)} ({shown}{', ...' if len(content) > 8 else ''})"
