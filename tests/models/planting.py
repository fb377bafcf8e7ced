"""Faults planted into the zoo's Hugging Face ports, and the module that a check finds for each."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec

import pytest
from flax import nnx
from graphmode.compare import Case, check

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: pip install 'graphmode[huggingface]'"
)
Plant = Callable[[nnx.Module], None]


def part(model: nnx.Module, path: str) -> nnx.Module:
    return next(m for p, m in nnx.iter_modules(model) if ".".join(map(str, p)) == path)


def becomes(path: str, kind: type[nnx.Module]) -> Plant:
    def plant(model):
        part(model, path).__class__ = kind

    return plant


def has(path: str, **attributes) -> Plant:
    def plant(model):
        for name, value in attributes.items():
            setattr(part(model, path), name, value)

    return plant


def planted(case: Case, plant: Plant):
    """The case's model with a fault in it, to take its place."""

    def build(rngs):
        model = case.model(rngs)
        plant(model)
        return model

    return build


def located(case: Case, plants: Mapping[str, Plant], **fields) -> dict[str, list[str]]:
    """The modules that a check of the inference blames, by the plant's name; `AssertionError` where one is equal."""
    ports = {name: planted(case, plant) for name, plant in plants.items()}
    report = check(replace(case, model=ports, modes=("inference",), **fields), draws=1)
    assert not [p.variant for p in report.parity if p.equal]
    return {p.variant: [d.module for d in p.divergences] for p in report.parity}
