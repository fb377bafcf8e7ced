"""An error raised in a layer names the layer's path in the model, whatever the model is made of."""

import jax
import jax.numpy as jnp
import pytest
import torch
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


NO_ARRAYS = {
    "a torch.Tensor, and an array was wanted: give jnp.asarray({}.detach().cpu().numpy())": torch.ones(2, 4, 4),
    "a list, and an array was wanted: give jnp.asarray({})": [[[1.0] * 4]],
    "None, and an array was wanted": None,
}
READERS = {
    "input": lambda: nn.LayerNorm(4),
    "query": lambda: nn.MultiheadAttention(4, 2, rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize("told", NO_ARRAYS)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_array_is_named(name, told):
    layer, value = READERS[name](), NO_ARRAYS[told]
    with pytest.raises(TypeError) as caught:
        layer(*[value] * (3 if name == "query" else 1))
    assert str(caught.value) == f"{type(layer).__name__}: {name} is {told.format(name)}"


def test_a_function_names_a_tensor_of_pytorchs():
    with pytest.raises(TypeError, match=r"input is a torch.Tensor, and an array was wanted: give jnp"):
        nn.functional.avg_pool2d(torch.ones(1, 3, 4, 4), 2)


def test_an_error_of_another_kind_stays():
    class Own(nn.Layer):
        def __call__(self, x):
            return x.nothing

    with pytest.raises(AttributeError, match="nothing"):
        Own()(jnp.ones(1))
