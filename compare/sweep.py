"""A case at another batch size."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from .case import MODES, Case, CaseError, Inputs
from .errors import describe_with_line

T = TypeVar("T")


def resized(case: Case, size: int) -> Case:
    """The case with the inputs that its `sweep` gives for this batch size; parity stays what was found before.

    Raises:
      CaseError: where it has no `sweep`, or the size is below 1.
    """
    if case.sweep is None:
        raise CaseError(
            f"case {case.name!r} has no sweep; give it one: sweep=lambda rng, batch: (rng.standard_normal((batch, 8)),)"
        )
    if size < 1:
        raise CaseError(f"--sweep names the batch size {size}; give sizes from 1 on")
    return dataclasses.replace(
        case,
        inputs=functools.partial(_inputs, case, size),
        check_inputs=case.check_inputs or case.inputs,
        edge_inputs={},
        interpret={},
    )


def narrowed(case: Case, references: Iterable[str], models: Iterable[str]) -> Case:
    """The case with these variants alone, and the judge, whatever is said of the others."""
    judge = next(iter(case.references))
    kept = {name: make for name, make in case.references.items() if name in {judge, *references}}
    ports = {name: make for name, make in case.models.items() if name in set(models)}
    known = {**kept, **ports}
    return dataclasses.replace(
        case,
        reference=kept,
        model=ports or case.models,
        expected=_of(case.expected, known),
        patience=_of(case.patience, known),
    )


def _inputs(case: Case, size: int, rng: np.random.Generator) -> Inputs:
    assert case.sweep is not None
    try:
        return case.sweep(rng, size)
    except Exception as error:
        raise CaseError(
            f"case {case.name!r}: sweep fails at the batch size {size} with {describe_with_line(error)}"
        ) from error


def _of(said: Mapping[str, T], variants: Mapping[str, object]) -> dict[str, T]:
    """What is said of all variants, of a mode, and of these variants."""
    kept = {"", *MODES, *variants}
    return {key: value for key, value in said.items() if key.rpartition("/")[0] in kept}
