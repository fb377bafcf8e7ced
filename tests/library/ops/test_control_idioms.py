"""Control flow and state for which a JAX idiom, or one of `ops` in a common form, is the whole answer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from nnx_training import value_and_gradient

import graphmode as gm


def test_an_elementwise_if_guards_the_argument_and_the_result():
    x = np.array([-1.0, 0.0, 4.0], np.float32)

    def ours(x):
        positive = x > 0
        return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), x).sum()

    tensor = torch.tensor(x, requires_grad=True)
    sum(torch.sqrt(t) if t > 0 else t for t in tensor).backward()
    np.testing.assert_allclose(jax.grad(ours)(x), tensor.grad)
    one_where = jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), x).sum())(x)
    assert np.isnan(one_where[0])


@pytest.mark.parametrize("t", [-1.0, 0.5, 2.0])
@pytest.mark.parametrize("flag", [True, False])
def test_boolean_operators_and_chains(t, flag):
    def ours(t, flag):
        inside = (t > 0) & (t < 1)
        return gm.cond(inside & ~flag | (t > 1), lambda t: jnp.maximum(t, 0.75), lambda t: -t, t)

    t, flag = torch.tensor(t), torch.tensor(flag)
    wanted = max(t, torch.tensor(0.75)) if (0 < t < 1 and not flag) or t > 1 else -t
    assert float(jax.jit(ours)(t.numpy(), flag.numpy())) == wanted.item()


@pytest.mark.parametrize("x", [[-3.0, 1.0], [0.1, 0.2], [3.0, 1.0]])
def test_an_early_return_is_the_rest_in_the_other_branch(x):
    def eager(x):
        if x.sum() < 0:
            return x
        x = x * 2
        if x.sum() < 1:
            return -x
        return torch.sin(x)

    def ours(x):
        def rest(x):
            x = x * 2
            return gm.cond(x.sum() < 1, jnp.negative, jnp.sin, x)

        return gm.cond(x.sum() < 0, lambda x: x, rest, x)

    tensor = torch.tensor(x, requires_grad=True)
    wanted = eager(tensor)
    wanted.sum().backward()
    np.testing.assert_allclose(jax.jit(ours)(np.array(x, np.float32)), wanted.detach(), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: ours(x).sum())(np.array(x, np.float32)), tensor.grad, rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "none"])
def test_a_dict_of_functions_is_a_switch_over_its_order(name):
    names = ["relu", "tanh", "none"]
    x = np.array([-1.0, 2.0], np.float32)
    ours = jax.jit(lambda i, x: gm.switch(i, [jax.nn.relu, jnp.tanh, lambda x: x], x))(names.index(name), x)
    eager = {"relu": torch.relu, "tanh": torch.tanh, "none": lambda x: x}[name](torch.tensor(x))
    np.testing.assert_allclose(ours, eager, rtol=1e-6)


class Block(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return x + jnp.tanh(self.norm(self.linear(x)))


def test_equal_layers_are_scanned_with_their_statistics():
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    stacked, layers = (make() for make in (lambda: gm.stack_layers(blocks()), blocks))
    traces = []

    def step(block, x):
        traces.append(1)
        return block(x)

    def scanned(stacked):
        return (nnx.scan(step, in_axes=(0, nnx.Carry), out_axes=nnx.Carry)(stacked, x) ** 2).sum()

    def unrolled(layers):
        y = x
        for layer in layers:
            y = layer(y)
        return (y**2).sum()

    value, gradient = value_and_gradient(scanned, stacked)
    wanted, layerwise = value_and_gradient(unrolled, layers)
    assert len(traces) <= 2
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for i, leaf in enumerate(gradient):
        np.testing.assert_allclose(leaf, np.stack(layerwise[i :: len(gradient)]), atol=1e-4)
    np.testing.assert_allclose(
        stacked.norm.mean[...], np.stack([layer.norm.mean[...] for layer in layers]), rtol=1e-4, atol=1e-7
    )


def blocks():
    return nnx.List([Block(nnx.Rngs(i)) for i in range(4)])


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], ["layers", "empty"]),
        ([nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Linear(3, 3, rngs=nnx.Rngs(0))], ["layers[1]", "layers[0]"]),
        ([nnx.Linear(2, 2, rngs=nnx.Rngs(0)), Block(nnx.Rngs(0))], ["layers[1]", "layers[0]"]),
        ([jnp.ones(2)], ["layers[0]", "NNX"]),
    ],
)
def test_unequal_layers_are_named(layers, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        gm.stack_layers(layers)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
def test_recursion_by_value_is_a_loop_over_a_stack(tolerance):
    """Adaptive quadrature, which splits an interval as often as its values ask for."""

    def rule(f, a, b):
        return (b - a) / 6 * (f(a) + 4 * f((a + b) / 2) + f(b))

    def eager(f, a, b, tolerance):
        middle = (a + b) / 2
        halves = rule(f, a, middle) + rule(f, middle, b)
        if abs(halves - rule(f, a, b)) <= tolerance:
            return halves
        return eager(f, a, middle, tolerance / 2) + eager(f, middle, b, tolerance / 2)

    def ours(w, capacity):
        def f(x):
            return jnp.sin(w * x * x)

        def body(state):
            stack, total = state
            stack, (a, b, allowed) = stack.pop()
            middle = (a + b) / 2
            halves = rule(f, a, middle) + rule(f, middle, b)
            split = jnp.abs(halves - rule(f, a, b)) > allowed
            stack = stack.push((middle, b, allowed / 2), when=split).push((a, middle, allowed / 2), when=split)
            return stack, total + jnp.where(split, 0, halves)

        task = (jnp.float64(0), jnp.float64(3), jnp.float64(tolerance))
        start = gm.Stack.empty(task, capacity=capacity).push(task), jnp.float64(0)
        (stack, total), cut_short = gm.while_loop(lambda s: s[0].size > 0, body, start, max_steps=2000)
        return total, stack.overflow | stack.underflow | cut_short

    with jax.enable_x64(True):
        w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        wanted = eager(lambda x: torch.sin(w * x * x), 0.0, 3.0, tolerance)
        wanted.backward()
        (total, lost), gradient = jax.jit(jax.value_and_grad(lambda w: ours(w, 16), has_aux=True))(2.0)
        np.testing.assert_allclose(total, wanted.item(), rtol=1e-12)
        np.testing.assert_allclose(gradient, w.grad, rtol=1e-10)
        assert not lost
        assert bool(ours(jnp.float64(2.0), 1)[1])


def test_a_stack_says_what_it_lost_and_what_it_had_not():
    stack = gm.Stack.empty(jnp.int32(0), capacity=1)
    assert not stack.overflow
    full = stack.push(4)
    over = full.push(5)
    assert (int(full.size), bool(full.overflow)) == (1, False)
    assert (int(over.size), bool(over.overflow)) == (1, True)
    left, top = over.pop()
    assert (int(top), bool(left.overflow), bool(left.underflow)) == (4, True, False)
    empty, nothing = left.pop()
    assert (int(nothing), int(empty.size), bool(empty.underflow)) == (0, 0, True)
    assert int(full.push(7, when=False).pop()[1]) == 4
    with pytest.raises(ValueError, match="shape"):
        stack.push(jnp.ones(2))
    with pytest.raises(ValueError, match="when"):
        stack.push(1, when=1)


@pytest.mark.parametrize("max_steps", [3, 200])
def test_a_fixed_point_has_the_gradient_of_its_equation(max_steps):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        weight, shift = rng.standard_normal((4, 4)) / 6, rng.standard_normal(4)

        def ours(weight, shift):
            x, cut_short = gm.fixed_point(
                lambda x: jnp.tanh(weight @ x + shift), jnp.zeros(4), tol=1e-15, max_steps=max_steps
            )
            return (x**2).sum(), cut_short

        (value, cut_short), gradient = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(weight, shift)
        assert bool(cut_short) == (max_steps == 3)
        if max_steps == 3:
            assert all(np.isnan(g).all() for g in gradient)
            return
        tensors = [torch.tensor(a, requires_grad=True) for a in (weight, shift)]
        x = torch.zeros(4, dtype=torch.float64)
        for _ in range(300):
            x = torch.tanh(tensors[0] @ x + tensors[1])
        (x**2).sum().backward()
        np.testing.assert_allclose(value, (x**2).sum().item(), rtol=1e-12)
        for a, b in zip(gradient, tensors, strict=True):
            np.testing.assert_allclose(a, b.grad, rtol=1e-11, atol=1e-13)
        forward = jax.jvp(lambda s: ours(weight, s)[0], (shift,), (np.ones(4),))[1]
        np.testing.assert_allclose(forward, tensors[1].grad.sum(), rtol=1e-11)
        lanes = jax.vmap(jax.grad(lambda s: ours(weight, s)[0]))(np.stack([shift, -shift]))
        np.testing.assert_allclose(lanes, np.stack([tensors[1].grad, -tensors[1].grad]), rtol=1e-11)


def test_a_fixed_point_that_is_none_is_told():
    assert gm.fixed_point(lambda x: 2 * x + 1, 1.0, max_steps=9)[1]
    assert gm.fixed_point(lambda x: x * jnp.nan, 1.0, max_steps=9)[1]
    assert gm.fixed_point(lambda x: x * jnp.where(jnp.arange(8192) == 7, jnp.nan, 1.0), jnp.ones(8192), max_steps=9)[1]
    assert not gm.fixed_point(lambda x: x, jnp.ones(3), max_steps=1)[1]
    with pytest.raises(TypeError, match="int32"):
        gm.fixed_point(lambda x: x, 1, max_steps=9)


def test_in_place_writes_are_new_arrays():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    tensor = torch.tensor(x)
    tensor[0, 1] = 9
    tensor[1] += 2
    tensor[:, 2] *= -1
    ours = jax.jit(lambda x: x.at[0, 1].set(9).at[1].add(2).at[:, 2].multiply(-1))(x)
    np.testing.assert_array_equal(ours, tensor)


def test_a_view_that_is_written_to_is_written_back():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    tensor = torch.tensor(x)
    row = tensor[0]
    row += 1
    row[1] = 7

    def ours(x):
        row = x[0] + 1
        return x.at[0].set(row.at[1].set(7))

    np.testing.assert_array_equal(jax.jit(ours)(x), tensor)


class Remembering(nnx.Module):
    """`self.cache.append(x)` at a fixed capacity."""

    def __init__(self, capacity):
        self.cache = nnx.Variable(jnp.zeros((capacity, 2)))
        self.size = nnx.Variable(jnp.int32(0))

    def __call__(self, x):
        self.cache[...] = self.cache[...].at[self.size[...]].set(x, mode="drop")
        self.size[...] += 1
        held = jnp.arange(len(self.cache[...])) < self.size[...]
        return gm.Padded(self.cache[...], held, self.size[...])


def test_a_list_that_grows_is_a_variable_with_a_size():
    rows = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    remembering = Remembering(4)
    step = nnx.jit(lambda m, x: m(x))
    for i, row in enumerate(rows):
        held = step(remembering, row)
        assert int(held.count) == i + 1
        np.testing.assert_array_equal(held.values[: i + 1], rows[: min(i + 1, 4)])
        assert bool(held.overflow) == (i == 4)
    looped = Remembering(4)

    def body(i, state):
        module, _ = state
        return module, module(jnp.asarray(rows)[i]).count

    gm.fori(0, jnp.int32(3), body, (looped, 0), max_steps=4)
    np.testing.assert_array_equal(looped.cache[...][:3], rows[:3])


def test_batch_statistics_leave_padding_out():
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    mask = np.array([True, False, True, True, False, True])
    x[~mask] = np.nan
    norm = nnx.BatchNorm(3, momentum=0.9, epsilon=1e-5, use_fast_variance=False, rngs=nnx.Rngs(0))
    eager = torch.nn.BatchNorm1d(3)
    wanted = eager(torch.tensor(x[mask]))
    clean = jnp.where(mask[:, None], x, 0)
    y = nnx.jit(lambda norm, x, mask: norm(x, mask=mask[:, None]))(norm, clean, mask)
    np.testing.assert_allclose(y[mask], wanted.detach(), atol=1e-5)
    np.testing.assert_allclose(norm.mean[...], eager.running_mean, atol=1e-6)
    # flax keeps the biased variance, PyTorch the unbiased one
    biased = 0.9 + (eager.running_var - 0.9) * 3 / 4
    np.testing.assert_allclose(norm.var[...], biased, atol=1e-5)


def test_a_mode_is_a_static_flag_with_one_trace_each():
    drop, traces = nnx.Dropout(0.5, rngs=nnx.Rngs(0)), []

    @functools.partial(nnx.jit, static_argnames="training")
    def forward(drop, x, *, training):
        traces.append(training)
        return drop(x, deterministic=not training)

    x = jnp.ones(100)
    for training in (True, False, True, False):
        y = forward(drop, x, training=training)
        assert bool((y == 0).any()) == training
    assert sorted(traces) == [False, True]
