"""The examples in docstrings give what they say."""

import doctest
import pkgutil
from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import graphmode

USUAL = vars(graphmode.nn) | {
    "jax": jax,
    "jnp": jnp,
    "np": np,
    "nnx": nnx,
    "optax": optax,
    "gm": graphmode,
    "nn": graphmode.nn,
}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    """The names of all modules with an example; only packages are imported to find them."""
    for root in ("graphmode", "graphmode.models", "graphmode.compare"):
        for found in pkgutil.walk_packages(import_module(root).__path__, f"{root}."):
            spec = found.module_finder.find_spec(found.name)
            if spec is not None and spec.origin is not None and ">>> " in Path(spec.origin).read_text():
                yield found.name


MODULES = sorted(set(modules()))


def test_examples_are_found_in_all_parts():
    parts = {"compare", "models", "nn", "ops", "optim", "training", "weights"}
    assert parts <= {name.split(".")[1] for name in MODULES}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    module, package = import_module(name), import_module(name.rpartition(".")[0])
    globs = {**USUAL, **vars(package), **vars(module)}
    failed, tried = doctest.testmod(module, globs=globs, optionflags=OPTIONS)
    assert (failed, tried > 0) == (0, True)
