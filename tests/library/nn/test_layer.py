"""An error raised in a layer names the layer's path in the model, whatever the model is made of."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from graphmode import nn


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.linear = nn.Linear(4, width, rngs=rngs)

    def __call__(self, x):
        return self.linear(x)


class Model(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([Block(4, rngs), Block(3, rngs), Block(4, rngs)])
        self.head = nnx.Sequential(nn.ReLU(), nn.Linear(7, 2, rngs=rngs))

    def __call__(self, x, *, through_head=False):
        if through_head:
            return self.head(x)
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def model():
    return Model(nnx.Rngs(0))


def in_jit(model, x, **kwargs):
    graphdef, state = nnx.split(model)
    return jax.jit(lambda state, x: nnx.merge(graphdef, state)(x, **kwargs))(state, x)


@pytest.mark.parametrize(
    "call", [lambda model, x, **k: model(x, **k), in_jit, lambda m, x, **k: nnx.jit(lambda m, x: m(x, **k))(m, x)]
)
def test_the_path_goes_from_the_outermost_module(model, call):
    with pytest.raises(ValueError, match=r"^blocks\.2\.linear \(Linear\): input has shape \(1, 3\), and "):
        call(model, jnp.ones((1, 4)))
    with pytest.raises(ValueError, match=r"^head\.layers\.1 \(Linear\): input has shape \(1, 4\), and "):
        call(model, jnp.ones((1, 4)), through_head=True)


def test_a_layer_by_itself_gives_its_class():
    with pytest.raises(ValueError, match=r"^Linear: input has shape \(3,\), and \[\.\.\., in_features = 4\]"):
        nn.Linear(4, 2, rngs=nnx.Rngs(0))(jnp.ones(3))


def test_other_errors_are_left_alone():
    class Fails(nn.Layer):
        def __call__(self, error):
            raise error

    with pytest.raises(KeyError, match=r"^'a'$"):
        Fails()(KeyError("a"))
    with pytest.raises(ValueError, match=r"^\(3,\)$|^3$"):
        Fails()(ValueError(3))
