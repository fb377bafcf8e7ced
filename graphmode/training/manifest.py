"""What a checkpoint says of itself: its format, what wrote it, and the name, shape and dtype of every array."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

FORMAT = 1
FOLDER = "manifest"
KEPT = {"step": int, "data": dict, "arrays": dict}  # since format 1; checksums came later
SHOWN = 20


def named_leaves(state: Any) -> dict[str, Any]:
    """The arrays of a state by dotted name, in the order of its leaves."""
    variables = {_name(path) for path, _ in jtu.tree_leaves_with_path(state, is_leaf=_is_variable)}
    found = [(_name(path), leaf) for path, leaf in jtu.tree_leaves_with_path(state)]
    found = [(short if (short := name.removesuffix(".value")) in variables else name, leaf) for name, leaf in found]
    named = dict(found)
    if len(named) != len(found):
        names = [name for name, _ in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"state has more than one array named {', '.join(twice)}; rename a variable of the model")
    return named


def make_manifest(
    state: Any, step: int, data: Any, metrics: Mapping[str, Any] | None, checksums: Mapping[str, int]
) -> dict[str, Any]:
    """The manifest of a state, to be written as JSON.

    Raises:
      TypeError: where `data` or `metrics` are not what JSON holds.
    """
    from .. import __version__

    data = {} if data is None else data
    if not isinstance(data, dict) or not _same(_through_json(data), data):
        raise TypeError(
            f"data is {_short(data)}, and a dict was wanted that JSON gives back as it is: names to numbers, strings, "
            "lists and such dicts (int(x) of an array, lists in place of tuples)"
        )
    try:
        told = {name: float(value) for name, value in (metrics or {}).items()}
    except (TypeError, ValueError, AttributeError):
        raise TypeError(f"metrics is {_short(metrics)}, and a mapping of names to scalars was wanted") from None
    return {
        "format": FORMAT,
        "graphmode": __version__,
        "jax": jax.__version__,
        "step": step,
        "data": data,
        "metrics": told,
        "arrays": {name: describe(leaf) for name, leaf in named_leaves(state).items()},
        "checksums": dict(checksums),
    }


def describe(array: Any) -> dict[str, Any]:
    """Shape and dtype as JSON has them; the dtype of random-number keys is `key<fry>` and the like."""
    return {"shape": list(array.shape), "dtype": str(array.dtype)}


def is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    """The manifest of a checkpoint's folder.

    Raises:
      ValueError: where it is none, or of a newer format, or lacks what all have.
    """
    try:
        manifest = json.loads((checkpoint / FOLDER / "data.json").read_text())
        version = int(manifest["format"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{checkpoint} is no checkpoint of graphmode: it has no {FOLDER}/data.json that can be read "
            f"({type(error).__name__}: {error})"
        ) from error
    if version > FORMAT:
        raise ValueError(
            f"{checkpoint} is written by a newer graphmode ({manifest.get('graphmode')}): format {version}, and this "
            f"one reads up to {FORMAT}; update graphmode"
        )
    if lost := [name for name, kind in KEPT.items() if not isinstance(manifest.get(name), kind)]:
        raise ValueError(f"{checkpoint} is damaged: its {FOLDER}/data.json has no {', '.join(lost)}")
    return manifest


def is_complete(checkpoint: Path) -> bool:
    """Whether a folder is a whole checkpoint, of whatever format."""
    try:
        return "format" in json.loads((checkpoint / FOLDER / "data.json").read_text())
    except (OSError, ValueError, TypeError):
        return False


def check_fits(checkpoint: Path, manifest: Mapping[str, Any], wanted: Any) -> None:
    """Raises one `ValueError` that names every array of the checkpoint which is not as the state wants it."""
    held: Mapping[str, Any] = manifest["arrays"]
    asked = {name: describe(leaf) for name, leaf in named_leaves(wanted).items()}
    problems = _told("missing from it", asked.keys() - held.keys(), lambda name: f"{name} {_type(asked[name])}")
    problems += _told("in it and not wanted", held.keys() - asked.keys(), lambda name: f"{name} {_type(held[name])}")
    differing = {name for name in asked.keys() & held.keys() if asked[name] != held[name]}
    problems += _told(
        "of another shape or dtype",
        differing,
        lambda name: f"{name} is {_type(held[name])}, and {_type(asked[name])} was wanted",
    )
    if problems:
        raise ValueError(
            f"{checkpoint} is of another model, optimizer or step than the one given:\n" + "\n".join(problems)
        )


def told_changes(manifest: Mapping[str, Any], checksums: Mapping[str, int]) -> str:
    """Names every array that is not as it was saved, by the checksums of what was restored; empty where all are.

    Checkpoints that were written before there were checksums have none, and pass.
    """
    saved: Mapping[str, int] = manifest.get("checksums", {})
    changed = [name for name, value in checksums.items() if saved.get(name, value) != value]
    if not changed:
        return ""
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    verb = "is" if len(changed) == 1 else "are"
    return f"{', '.join(changed[:SHOWN])}{more} {verb} not what was saved at step {manifest['step']}, by the checksum"


def _name(path: Any) -> str:
    return jtu.keystr(path, simple=True, separator=".")


def _is_variable(node: Any) -> bool:
    return isinstance(node, nnx.Variable)


def _told(what: str, names: set[str], line: Callable[[str], str]) -> list[str]:
    if not names:
        return []
    shown = [f"  {line(name)}" for name in sorted(names)[:SHOWN]]
    more = [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return [f"{len(names)} {what}:", *shown, *more]


def _type(described: Mapping[str, Any]) -> str:
    return f"{described['dtype']}{described['shape']}"


def _through_json(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None


def _same(read: Any, given: Any) -> bool:
    if isinstance(read, dict) and isinstance(given, dict):
        return read.keys() == given.keys() and all(_same(read[key], given[key]) for key in read)
    if isinstance(read, list) and isinstance(given, list):
        return len(read) == len(given) and all(map(_same, read, given))
    return bool(read == given) or bool(read != read and given != given)  # a loss may not be a number


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 200 else f"{told[:200]}..."
