"""Inputs of a case, drawn reproducibly and cast to what each side takes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax.tree_util as jtu
import numpy as np

from .case import Case, CaseError, Inputs
from .errors import describe_with_line


def generator(case: Case, seed: int, label: str, index: int = 0) -> np.random.Generator:
    """A stream of its own for each case, purpose and index, so that one does not move another."""
    return np.random.default_rng([seed, zlib.crc32(f"{case.name}/{label}".encode()), index])


def random_inputs(case: Case, seed: int, index: int) -> Inputs:
    return _checked(case, "inputs", case.inputs, generator(case, seed, "inputs", index))


def check_inputs(case: Case, seed: int, index: int) -> Inputs:
    """Random inputs for the verdicts: smaller ones, where the case has them."""
    if case.check_inputs is None:
        return random_inputs(case, seed, index)
    return _checked(case, "check_inputs", case.check_inputs, generator(case, seed, "check_inputs", index))


def edge_inputs(case: Case, seed: int) -> Iterator[tuple[str, Inputs]]:
    for name in case.edge_inputs:
        yield name, edge_input(case, seed, name)


def edge_input(case: Case, seed: int, name: str, index: int = 0) -> Inputs:
    return _checked(case, f"edge_inputs[{name!r}]", case.edge_inputs[name], generator(case, seed, name, index))


def signature(inputs: Inputs) -> str:
    """Shapes and dtypes in one line: inputs of one signature run in one graph."""
    leaves = jtu.tree_leaves_with_path(inputs)
    return ", ".join(f"{input_name(path)} {leaf.dtype}[{','.join(map(str, leaf.shape))}]" for path, leaf in leaves)


def input_name(path: tuple[Any, ...]) -> str:
    """`input.0` or `input.mask.left`, from a JAX key path."""
    return "input." + ".".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)


def _checked(case: Case, field: str, make: Callable[[np.random.Generator], Inputs], rng: np.random.Generator) -> Inputs:
    """What `make` gives, floating arrays rounded to float32, which every dtype of a run starts from."""
    try:
        inputs = make(rng)
    except CaseError:
        raise
    except Exception as error:
        raise CaseError(f"case {case.name!r}: {field} fails with {describe_with_line(error)}") from error
    if not isinstance(inputs, tuple | dict):
        raise CaseError(
            f"case {case.name!r}: {field} gives {type(inputs).__name__}, and a tuple of positional arguments or a dict "
            "of keyword arguments was wanted; for one array write (array,)"
        )

    def convert(path: Any, leaf: Any) -> np.ndarray:
        if not isinstance(leaf, np.ndarray | np.generic):
            raise CaseError(
                f"case {case.name!r}: {field} has {type(leaf).__name__} at {input_name(path)}, and numpy arrays were "
                "wanted; a static value belongs into the modules"
            )
        array = np.asarray(leaf)
        return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array

    return jtu.tree_map_with_path(convert, inputs)
