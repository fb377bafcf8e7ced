"""The examples in docstrings give what they say."""

import doctest
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import graphmode

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    """The names of all modules with an example, told without importing them."""
    for found in pkgutil.walk_packages(graphmode.__path__, "graphmode."):
        spec = found.module_finder.find_spec(found.name)
        if spec is not None and spec.origin is not None and ">>> " in Path(spec.origin).read_text():
            yield found.name


MODULES = sorted(modules())


def test_examples_are_found_in_all_parts():
    parts = {"compare", "models", "nn", "ops", "optim", "training", "weights"}
    assert parts <= {name.split(".")[1] for name in MODULES}


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    failed, tried = doctest.testmod(import_module(name), optionflags=OPTIONS)
    assert (failed, tried > 0) == (0, True)
