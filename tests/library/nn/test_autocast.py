"""Autocast gives every function the dtype that PyTorch's gives it, and is seen by JAX's caches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import graphmode
from graphmode import nn
from graphmode.nn.autocast import RULES, autocast_dtype
from graphmode.weights import load

from .samples import FUNCTIONS, function_samples
from .sides import adapter_of, call
from .trees import tensors_of

CASTABLE = [
    name
    for name, info in FUNCTIONS.items()
    if name == info.name.removeprefix("nn.functional.")
    and torch.float32 in info.dtypes
    and hasattr(nn.functional, name)
]
RANDOM = ("dropout", "rrelu", "fractional_max_pool", "multi_head_attention_forward")


@pytest.mark.parametrize("name", CASTABLE)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_results_have_the_dtype_of_pytorchs_on_a_cpu(name, dtype):
    """PyTorch's rules for CUDA need a GPU to be seen; those for a CPU are the same mechanism with another table."""
    sample = next(function_samples(name, dtype=torch.float32, seed=0), None)
    adapter = adapter_of(sample)
    if name.startswith(RANDOM) or "dropout" in name or (adapter.skip and adapter.skip(sample.args, sample.kwargs)):
        pytest.skip("draws at random")
    given = getattr(torch, dtype)

    def halved(tree):
        if isinstance(tree, torch.Tensor):
            return tree.detach().to(given) if tree.is_floating_point() else tree
        if isinstance(tree, tuple | list):
            return type(tree)(halved(item) for item in tree)
        return {k: halved(v) for k, v in tree.items()} if isinstance(tree, dict) else tree

    args, kwargs = halved((sample.args, sample.kwargs))
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = sample.function(*args, **kwargs)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"PyTorch has no such kernel: {str(error)[:80]}")
    with nn.autocast(jnp.bfloat16, device_type="cpu"):
        layout = adapter.layouts[-1] if adapter.layouts else None
        found = jax.eval_shape(lambda: call(sample, layout, dtype))
    dtypes = [str(value.dtype).removeprefix("torch.") for value in tensors_of(wanted).values()]
    ours = [str(leaf.dtype) for leaf in jax.tree.leaves(found)]
    assert [d for d in ours if "float" in d] == [d for d in dtypes if "float" in d]


RECURRENT = ["RNN", "GRU", "LSTM", "LSTM projected", "RNNCell", "GRUCell", "LSTMCell"]


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("state", [None, "bfloat16", "float32"])
def test_recurrent_states_have_the_dtype_of_pytorchs_on_a_cpu(name, dtype, state):
    name, _, projected = name.partition(" ")
    arguments = (4, 3), {"proj_size": 2} if projected else {}
    theirs, ours = (getattr(side.nn, name) for side in (torch, graphmode))
    theirs, ours = theirs(*arguments[0], **arguments[1]), ours(*arguments[0], **arguments[1], rngs=nnx.Rngs(0))
    load(ours, theirs.state_dict())
    is_cell = name.endswith("Cell")
    x = torch.randn((2, 4) if is_cell else (5, 2, 4), generator=torch.Generator().manual_seed(0))
    hx = None
    if state:
        hx = tuple(torch.ones((2, n) if is_cell else (1, 2, n)) for n in (2 if projected else 3, 3))

    def both(hx, x, asarray):
        hx = hx and tuple(asarray(h, state) for h in hx)
        return asarray(x, dtype), hx if not hx or "LSTM" in name else hx[0]

    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        wanted = jax.tree.leaves(theirs(*both(hx, x, lambda array, dtype: array.to(getattr(torch, dtype)))))
    with nn.autocast(jnp.bfloat16, device_type="cpu"):
        found = jax.tree.leaves(ours(*both(hx, x, lambda array, dtype: jnp.asarray(array.numpy(), dtype))))
    assert [str(array.dtype) for array in found] == [str(array.dtype).removeprefix("torch.") for array in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float32), other.float().numpy(), atol=2**-6)


def test_every_rule_belongs_to_a_function():
    for rules in RULES.values():
        assert not {name for name in rules if not hasattr(nn.functional, name)}


def test_a_jitted_function_is_traced_again_inside():
    linear = nn.Linear(3, 2, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(linear)
    traces = []

    @jax.jit
    def run(state, x):
        traces.append(autocast_dtype())
        return nnx.merge(graphdef, state)(x)

    x = jnp.ones((1, 3))
    assert run(state, x).dtype == jnp.float32
    with nn.autocast(jnp.float16):
        assert run(state, x).dtype == jnp.float16
        with nn.autocast(enabled=False):
            assert run(state, x).dtype == jnp.float32
        with nn.autocast(jnp.bfloat16):
            assert run(state, x).dtype == jnp.bfloat16
    assert run(state, x).dtype == jnp.float32
    assert traces == [None, jnp.float16, jnp.bfloat16]


def test_gradients_are_of_the_parameters_own_dtype():
    linear = nn.Linear(3, 2, rngs=nnx.Rngs(0))
    with nn.autocast(jnp.bfloat16):
        gradients = nnx.grad(lambda linear: linear(jnp.ones((1, 3))).sum())(linear)
    assert gradients.weight.dtype == jnp.float32


def test_float64_is_left_alone():
    with jax.enable_x64(True), nn.autocast(jnp.bfloat16):
        linear = nn.Linear(3, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        assert linear(jnp.ones((1, 3), jnp.float64)).dtype == jnp.float64


def test_what_is_unsafe_is_refused_on_a_gpu_as_pytorch_does():
    probability = jnp.full(3, 0.5)
    with nn.autocast(jnp.float16), pytest.raises(TypeError, match="binary_cross_entropy_with_logits"):
        nn.functional.binary_cross_entropy(probability, probability)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"dtype": jnp.float32}, "dtype is float32; choose"), ({"device_type": "tpu"}, "device_type is 'tpu'; choose")],
)
def test_bad_arguments_are_named(arguments, told):
    with pytest.raises(ValueError, match=told):
        nn.autocast(**arguments)
