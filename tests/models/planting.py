"""Faults planted into the zoo's Hugging Face ports, and the module that a check finds for each."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.adversarial import KINDS

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: pip install 'graphmode[huggingface]'"
)
Plant = Callable[[nnx.Module], None]
MOST = int(os.environ.get("GRAPHMODE_TEST_FAULTS", "0"))
"""How many of each model's faults are planted; 0 for all, and for every kind of the self-test's."""


def some(faults: Mapping[str, Any]) -> dict[str, Any]:
    """As many of them as are wanted, from the first to the last."""
    return dict(list(faults.items())[:: max(1, len(faults) // MOST)][:MOST]) if MOST else dict(faults)


INPUTS = int(os.environ.get("GRAPHMODE_TEST_INPUTS", "0"))
"""How many of the kinds of a check's own inputs are asked of a whole case; 0 for all."""


def with_some_inputs(case: Case) -> Case:
    """As many of the check's own kinds of inputs as are wanted, others for every case."""
    if not INPUTS or case.adversarial is not None:
        return case
    start = sum(case.name.encode()) % len(KINDS)
    return replace(case, adversarial=(*KINDS[start:], *KINDS[:start])[:INPUTS])


def quickly(case: Case) -> Case:
    """What people run, on the case's own inputs: for a second look at a case that is checked as a whole elsewhere."""
    return replace(case, modes=("inference",), adversarial=())


def assert_drawn_alike(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], rel: float) -> None:
    """The first values of matrices have the same spread, up to a share `rel`, about 0; vectors are the same."""
    for name, wanted in theirs.items():
        if wanted.ndim == 1:
            assert torch.equal(ours[name], wanted), name  # zeros, and ones
        else:
            spread = wanted.std().item()
            assert ours[name].std().item() == pytest.approx(spread, rel=rel), name
            assert abs(ours[name].mean().item()) < 0.1 * spread, name


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
    report = check(replace(case, model=ports, modes=("inference",), **fields), draws=1, hasty=True)
    assert not [p.variant for p in report.parity if p.equal]
    return {p.variant: [d.module for d in p.divergences] for p in report.parity}
