"""What PyTorch rejects in its own test cases is rejected here, by an error that names an argument."""

import inspect
import re

import jax
import pytest
import torch

import graphmode.nn as ours

from .samples import FUNCTIONS, MODULES, rejected_calls
from .sides import adapter_of, call

THERE = [
    *(name for name in MODULES if hasattr(ours, name)),
    *(name for name, info in FUNCTIONS.items() if hasattr(ours.functional, info.name.removeprefix("nn.functional."))),
]
CALLS = [(sample, wanted) for name in THERE for sample, wanted in rejected_calls(name)]


@pytest.mark.parametrize(("sample", "wanted"), CALLS, ids=[sample.label for sample, _ in CALLS])
def test_rejected(sample, wanted):
    layouts = adapter_of(sample).layouts
    refusals = (ValueError, TypeError, IndexError, NotImplementedError)
    with jax.enable_x64(True), pytest.raises(refusals) as raised:
        call(sample, layouts[-1] if layouts else None, None)
    message = str(raised.value)
    names = set(_arguments(sample))
    assert any(re.search(rf"\b{name}\b", message) for name in names), f"names none of {names}: {message}\n{wanted}"


def _arguments(sample):
    if not sample.build:
        return inspect.signature(getattr(ours.functional, sample.subject)).parameters
    cls = getattr(ours, sample.subject)
    return {**inspect.signature(cls.__init__).parameters, **inspect.signature(cls.__call__).parameters}


def test_every_class_of_torch_nn_is_here_or_is_refused_with_what_to_use():
    from graphmode.nn.refused import REFUSED

    public = {name for name in dir(torch.nn) if inspect.isclass(getattr(torch.nn, name)) and not name.startswith("_")}
    public = {name for name in public if issubclass(getattr(torch.nn, name), torch.nn.Module)}
    assert {name for name in public if not hasattr(ours, name)} <= REFUSED.keys()
    assert not {name for name in REFUSED if hasattr(ours, name)}
    for name in REFUSED:
        with pytest.raises(
            AttributeError, match=f"graphmode.nn has no {name}: .*use|graphmode.nn has no {name}: shard"
        ):
            getattr(ours, name)
