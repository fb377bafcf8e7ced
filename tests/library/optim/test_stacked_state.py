"""What an optimizer keeps for stacked layers, and PyTorch's for each of them."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import graphmode as gm
from graphmode.weights import Stacked, load, named_arrays

from .optimizer_cases import in_double

LAYERS, WIDTH = 3, 4
RULES = [Stacked("blocks.{i}", "layers")]


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


class Port(nnx.Module):
    def __init__(self, rngs):
        make = nnx.split_rngs(splits=LAYERS)(nnx.vmap(lambda rngs: gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)))
        self.layers = make(rngs)

    def __call__(self, x):
        run = nnx.scan(lambda layer, x: jnp.tanh(layer(x)), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        return run(self.layers, x)


def trained(reference, optimizer, x, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (reference(x) ** 2).mean().backward()
        optimizer.step()


def trained_here(port, tx, state, x, steps):
    graphdef, params = nnx.split(port)
    gradient = jax.jit(jax.grad(lambda params: (nnx.merge(graphdef, params)(x) ** 2).mean()))
    for _ in range(steps):
        updates, state = tx.update(gradient(params), state, params)
        params = optax.apply_updates(params, updates)
    return nnx.merge(graphdef, params), state


def begun(make):
    torch.manual_seed(0)
    reference = Reference().double()
    x = torch.randn(5, WIDTH, dtype=torch.float64)
    optimizer = make(reference.named_parameters())
    trained(reference, optimizer, x, 3)
    port = Port(nnx.Rngs(0))
    load(port, reference.state_dict(), RULES)
    return reference, x, optimizer, port


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (torch.optim.SGD, gm.optim.sgd),
        (torch.optim.Adam, gm.optim.adam),
        (torch.optim.NAdam, gm.optim.nadam),
        (torch.optim.Rprop, gm.optim.rprop),
    ],
)
def test_a_training_goes_on_here_and_there(theirs, ours):
    options = {"lr": 0.01, **({"momentum": 0.9} if theirs is torch.optim.SGD else {})}
    with in_double():
        reference, x, optimizer, port = begun(lambda named: theirs(named, **options))
        tx = ours(**options)
        state = gm.optim.from_torch(optimizer.state_dict(), tx, port, rules=RULES)
        port, state = trained_here(port, tx, state, jnp.asarray(x.numpy()), 3)
        trained(reference, optimizer, x, 3)
        names = [name for name, _ in reference.named_parameters()]
        written = gm.optim.to_torch(state, tx, port, rules=RULES, names=names)
        for name, array in named_arrays(port, RULES).items():
            np.testing.assert_allclose(array, reference.state_dict()[name], rtol=0, atol=1e-12)
    expected = optimizer.state_dict()
    assert written["state"].keys() == expected["state"].keys()
    for index, kept in expected["state"].items():
        for key, value in kept.items():
            torch.testing.assert_close(written["state"][index][key], value, rtol=1e-10, atol=1e-12)


def test_layers_of_other_numbers_of_steps_are_refused():
    with in_double():
        _, _, optimizer, port = begun(lambda named: torch.optim.Adam(named, lr=0.01))
        for index in (2, 3):  # the second layer's
            state = copy.deepcopy(optimizer.state_dict())
            state["state"][index]["step"] += 1
            with pytest.raises(ValueError, match=r"blocks.1.* has made 4 steps, and layers before it in .* 3"):
                gm.optim.from_torch(state, gm.optim.adam(lr=0.01), port, rules=RULES)
        state = copy.deepcopy(optimizer.state_dict())
        del state["state"][2]
        with pytest.raises(ValueError, match=r"blocks.1.weight: has no state, and layers before it .* have"):
            gm.optim.from_torch(state, gm.optim.adam(lr=0.01), port, rules=RULES)


def test_what_an_optimizer_sees_as_a_matrix_is_refused():
    with in_double():
        _, _, optimizer, port = begun(lambda named: torch.optim.Adafactor(named, lr=0.01))
        with pytest.raises(ValueError, match=r"layers.weight: .* layers that are stacked have to be apart"):
            gm.optim.from_torch(optimizer.state_dict(), gm.optim.adafactor(lr=0.01), port, rules=RULES)
