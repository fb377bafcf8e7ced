"""int64, which JAX holds as int32 where x64 is off: carried by name, with the same bits on the way back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import graphmode as gm
from graphmode.weights import Permute, Rule, WeightsError, load, to_state_dict

INT32 = np.iinfo(np.int32)


class Buffer(nnx.Variable):
    """Of no kind that the library knows."""


def port(shape=(4,), dtype=jnp.int32) -> nnx.Dict:
    return nnx.Dict(perm=Buffer(jnp.zeros(shape, dtype)))


@given(arrays(np.int64, st.sampled_from([(), (0,), (3,), (2, 3)]), elements=st.integers(INT32.min, INT32.max)))
def test_the_same_bits_come_back(values):
    module = port(values.shape)
    load(module, {"perm": torch.from_numpy(values)})
    assert module["perm"].dtype == jnp.int32
    back = to_state_dict(module)["perm"]
    assert back.dtype == torch.int64
    assert back.numpy().tobytes() == values.tobytes()


def test_the_last_load_counts():
    module = port()
    for dtype in (torch.int64, torch.int32, torch.int64, torch.int16):
        load(module, {"perm": torch.arange(4, dtype=dtype)})
        assert to_state_dict(module)["perm"].dtype == dtype
    with jax.enable_x64(True):
        load(module, {"perm": torch.arange(4) + 2**40})
        assert to_state_dict(module)["perm"].tolist() == [2**40 + i for i in range(4)]


@pytest.mark.parametrize("value", [INT32.max + 1, INT32.min - 1])
def test_values_that_do_not_fit_are_named(value):
    wrong = torch.zeros(2, 3, dtype=torch.int64)
    wrong[1, 2] = value
    module = port((2, 3))
    with pytest.raises(WeightsError) as raised:
        load(module, {"perm": wrong})
    (problem,) = raised.value.problems
    assert problem.startswith(f"perm: {value} at [1, 2] does not fit into int32, and jax_enable_x64 is off")
    assert not module["perm"][...].any()


def test_a_float_variable_takes_no_integers():
    with pytest.raises(WeightsError, match="perm: dtype int64, and perm has float32"):
        load(port(dtype=jnp.float32), {"perm": torch.arange(4)})


def test_through_a_rule_with_a_transform():
    rules = [Rule("table", "perm", Permute((1, 0)))]
    module, table = port((3, 2)), torch.arange(6).reshape(2, 3)
    load(module, {"table": table}, rules)
    np.testing.assert_array_equal(module["perm"][...], table.T)
    back = to_state_dict(module, rules)["table"]
    assert back.dtype == torch.int64
    assert torch.equal(back, table)


def test_tied_variables_and_abstract_ones():
    def tied():
        module = port()
        module["copy"] = module["perm"]
        return module

    module = nnx.eval_shape(tied)
    load(module, {"perm": torch.arange(4), "copy": torch.arange(4)})
    assert {key: tensor.dtype for key, tensor in to_state_dict(module).items()} == dict.fromkeys(
        ("perm", "copy"), torch.int64
    )


@pytest.mark.parametrize("through", [nnx.clone, lambda module: nnx.merge(*nnx.split(module))], ids=["clone", "split"])
def test_copies_of_a_module_know_it(through):
    module = port()
    load(module, {"perm": torch.arange(4)})
    assert to_state_dict(through(module))["perm"].dtype == torch.int64


class Permuted(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.perm = Buffer(jnp.arange(4))
        self.linear = gm.nn.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.linear(x[:, self.perm[...]])


def loss(model, batch):
    return jnp.mean(model(batch) ** 2)


@pytest.mark.parametrize("is_loaded_first", [True, False])
@pytest.mark.parametrize("placement", [None, "data_parallel"])
def test_a_training_step_carries_them(is_loaded_first, placement):
    loaded = Permuted(nnx.Rngs(0))
    load(loaded, {"perm": torch.tensor([3, 1, 0, 2]), "linear.weight": torch.ones(1, 4), "linear.bias": torch.ones(1)})
    placed = {} if placement is None else {"placement": getattr(gm.training, placement)()}
    own = loaded if is_loaded_first else Permuted(nnx.Rngs(1))
    step = gm.train_step(own, loss, gm.optim.sgd(lr=0.1), **placed)
    states = [step.init(loaded), step.init()]
    batch = jnp.arange(8.0).reshape(2, 4)
    for state in states:
        after, _ = step(state, batch)
        again, _ = step(step.init(step.model(after)), batch)
        assert to_state_dict(step.model(again))["perm"].dtype == torch.int64
    assert step.traces == 1
    assert to_state_dict(loaded)["perm"].tolist() == [3, 1, 0, 2]
