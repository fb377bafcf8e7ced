"""`gm.graphed`: what it computes, what it keeps live, and what its guard rejects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import graphmode as gm
from graphmode.graph import command_buffers


def mlp(seed: int = 0) -> nnx.Sequential:
    rngs = nnx.Rngs(seed)
    return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs), nnx.relu)


X = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3)), jnp.float32)


def test_gives_what_the_module_gives_and_writes_its_statistics_back():
    eager, module = mlp(), mlp()
    fast = gm.graphed(module, X)
    for _ in range(3):
        np.testing.assert_allclose(fast(X), eager(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(module.layers[1].mean[...], eager.layers[1].mean[...], rtol=1e-5)
    assert fast.traces == 1


def test_reads_the_current_weights():
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    fast = gm.graphed(module, X)
    module.kernel.set_value(jnp.zeros((3, 2)))
    np.testing.assert_array_equal(fast(X), np.zeros((5, 2)))
    assert fast.traces == 1


def test_shared_variables_are_one():
    class Tied(nnx.Module):
        def __init__(self):
            self.a = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
            self.b = self.a

        def __call__(self, x):
            return self.b(self.a(x))

    module = Tied()
    np.testing.assert_allclose(gm.graphed(module, X)(X), module(X), rtol=1e-6)


def test_trees_in_and_out_and_bound_modules():
    def loss(model, batch, *, scale):
        residual = model(batch["x"]) - batch["y"]
        return {"loss": scale * (residual**2).mean(), "residual": residual}

    batch = {"x": X, "y": jnp.ones((5, 4))}
    module = mlp()
    fast = gm.graphed(loss, module, batch, scale=jnp.float32(2))
    out = fast(batch, scale=jnp.float32(3))
    expected = loss(mlp(), batch, scale=3.0)
    np.testing.assert_allclose(out["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(out["residual"], expected["residual"], rtol=1e-4, atol=1e-6)


def test_backward_is_the_gradient():
    module = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    fast = gm.graphed(module, X, backward=True)
    cotangent = jnp.arange(10.0).reshape(5, 2)
    outputs, gradients = fast(X, cotangent=cotangent)
    np.testing.assert_allclose(outputs, module(X), rtol=1e-6)
    np.testing.assert_allclose(gradients.parameters["kernel"], X.T @ cotangent, rtol=1e-5)
    np.testing.assert_allclose(gradients.parameters["bias"], cotangent.sum(0), rtol=1e-6)
    ((by_x,), by_name) = gradients.inputs
    np.testing.assert_allclose(by_x, cotangent @ module.kernel[...].T, rtol=1e-5)
    assert by_name == {}
    assert fast.traces == 1


def test_backward_of_a_scalar_needs_no_cotangent_and_integers_have_no_gradient():
    def loss(table, index):
        return (table[index] ** 2).sum()

    table, index = jnp.arange(6.0).reshape(3, 2), jnp.asarray([0, 2, 2])
    value, gradients = gm.graphed(loss, table, index, backward=True)(table, index)
    np.testing.assert_allclose(value, loss(table, index))
    np.testing.assert_allclose(gradients.inputs[0][0], jax.grad(loss)(table, index))
    assert gradients.inputs[0][1] is None


@pytest.mark.parametrize(
    ("argument", "error", "words"),
    [
        (jnp.ones((4, 3)), ValueError, ["x has shape [4, 3]", "float32[5, 3]"]),
        (jnp.ones((5, 3), jnp.int32), TypeError, ["x has dtype int32", "float32[5, 3]"]),
        (jnp.ones((5, 3), jnp.bfloat16), TypeError, ["x has dtype bfloat16"]),
        (np.ones((5, 3)), TypeError, ["x has dtype float64"]),
        ("five", TypeError, ["x is str"]),
        ((X, X), TypeError, ["structure", "x: float32[5, 3]"]),
    ],
)
def test_guard_names_the_argument(argument, error, words):
    fast = gm.graphed(lambda x: x * 2, X)
    with pytest.raises(error) as caught:
        fast(argument)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert fast.traces == 1


def test_guard_lets_numpy_and_tracers_of_the_same_kind_through():
    fast = gm.graphed(lambda x: (x * 2).sum(), X)
    np.testing.assert_allclose(fast(np.asarray(X)), fast(X))
    np.testing.assert_allclose(jax.grad(fast)(X), np.full((5, 3), 2.0))
    assert gm.graphed(lambda x: x * 2, np.ones(3))(np.ones(3)).dtype == jnp.float32


def test_it_compiles_once_whatever_holds_the_numbers():
    fast = gm.graphed(lambda x: x * 2, X)
    given = (X, np.asarray(X), jnp.asarray(X), X)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    for x in given:
        fast(x)
    assert fast.traces == 1
    assert compiled.count("/jax/core/compile/backend_compile_duration") == 1


@pytest.mark.parametrize("backward", [False, True])
def test_a_key_is_an_argument(backward):
    def noisy(key, x):
        return (x * jax.random.normal(key, x.shape)).sum()

    key, x = jax.random.key(3), jnp.ones(2)
    fast = gm.graphed(noisy, jax.random.key(0), x, backward=backward)
    found = fast(key, x)
    wanted, gradient = jax.jit(jax.value_and_grad(noisy, 1))(key, x)
    if backward:
        found, gradients = found
        assert gradients.inputs[0][0] is None
        np.testing.assert_array_equal(gradients.inputs[0][1], gradient)
    assert found == wanted
    assert fast.traces == 1
    with pytest.raises(TypeError, match=r"key has dtype uint32, and key<fry>\[\] was wanted"):
        fast(jnp.uint32(3), x)


def test_wrong_use():
    with pytest.raises(TypeError, match="module_or_fn is int"):
        gm.graphed(3, X)
    with pytest.raises(TypeError, match="x is str in the sample"):
        gm.graphed(lambda x: x, "text")
    with pytest.raises(TypeError, match="without a backward pass"):
        gm.graphed(lambda x: x, X)(X, cotangent=X)
    with pytest.raises(TypeError, match="cotangent is missing"):
        gm.graphed(lambda x: x, X, backward=True)(X)
    with pytest.raises(ValueError, match="cotangent"):
        gm.graphed(lambda x: x, X, backward=True)(X, cotangent=X[:2])


def test_compiler_options_reach_xla():
    def double(x):
        return 2 * x

    options = {"xla_embed_ir_in_executable": True}
    np.testing.assert_array_equal(
        gm.graphed(double, jnp.ones(3), compiler_options=options)(jnp.ones(3)), 2 * np.ones(3)
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        gm.graphed(double, jnp.ones(3), compiler_options={"xla_no_such_option": "1"})(jnp.ones(3))


@pytest.mark.parametrize(
    ("is_on_cuda", "flags", "replayed"),
    [
        (True, "", {"WHILE", "CONVOLUTION", "FUSION"}),
        (True, "--xla_gpu_enable_command_buffer=FUSION", None),  # the user's own list
        (False, "", None),
    ],
)
def test_cuda_graphs_hold_convolutions_and_loops_too(monkeypatch, is_on_cuda, flags, replayed):
    monkeypatch.setattr(command_buffers, "_is_on_cuda", lambda: is_on_cuda)
    monkeypatch.setenv("XLA_FLAGS", flags)
    options = command_buffers.command_buffer_options()
    assert options is None if replayed is None else replayed <= set(options[command_buffers.LIST].split(","))
    np.testing.assert_array_equal(gm.graphed(jnp.negative, X)(X), -X)  # this XLA knows them all
    if options:
        with pytest.raises(jax.errors.JaxRuntimeError, match="NONSENSE"):
            gm.graphed(jnp.negative, X, compiler_options=options | {command_buffers.LIST: "NONSENSE"})(X)
