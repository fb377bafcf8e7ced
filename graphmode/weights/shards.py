"""Weights in several files, as Hugging Face saves large ones: an index says which file holds which key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

INDEX_SUFFIX = ".index.json"


def in_folder(folder: Path) -> Path:
    """The index in a folder, or where there is none its only file of weights; safetensors before PyTorch's own.

    Raises:
      ValueError: where there is none, or several of one kind.
    """
    for pattern in (f"*.safetensors{INDEX_SUFFIX}", "*.safetensors", f"*.bin{INDEX_SUFFIX}", "*.bin"):
        if found := sorted(folder.glob(pattern)):
            if len(found) == 1:
                return found[0]
            names = ", ".join(path.name for path in found[:5]) + (", ..." if len(found) > 5 else "")
            raise ValueError(
                f"path is {folder}, a folder with {len(found)} files {pattern} ({names}); name one, or the "
                f"{INDEX_SUFFIX} that belongs to them"
            )
    raise ValueError(
        f"path is {folder}, a folder without an {INDEX_SUFFIX}, a .safetensors or a .bin file; name the file of weights"
    )


def read_index(path: Path, read: Callable[[Path], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """All that the shards of an index hold.

    Args:
      path: of the index, beside its shards.
      read: for one of them.

    Raises:
      ValueError: where it is no index, a shard is not there, or does not hold a key that it should; all are named.
    """
    try:
        of_key = json.loads(path.read_text())["weight_map"]
        shards = sorted(set(of_key.values()))
        outside = [name for name in shards if Path(name).name != name]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"path is {path}, which is no index of shards: JSON with a weight_map of keys to file names was wanted"
        ) from error
    if indices := [name for name in shards if name.endswith(INDEX_SUFFIX)]:
        raise ValueError(f"path is {path}, which names {indices[0]!r}, an index too; shards are files of weights")
    if outside:
        raise ValueError(f"path is {path}, which names {outside[0]!r}; shards lie beside their index")
    if absent := [name for name in shards if not (path.parent / name).exists()]:
        raise ValueError(f"path is {path}, and of its {len(shards)} shards {', '.join(absent)} are not beside it")
    held = {name: read(path.parent / name) for name in shards}
    if lost := [f"{key} in {name}" for key, name in of_key.items() if key not in held[name]]:
        raise ValueError(f"path is {path}, and its shards lack {', '.join(lost)}; download them again")
    arrays = {key: array for shard in held.values() for key, array in shard.items()}
    return arrays | {key: held[name][key] for key, name in of_key.items()}
