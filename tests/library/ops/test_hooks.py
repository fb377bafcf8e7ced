"""Hooks, clipped, scaled and reversed gradients against `Tensor.register_hook`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st
from jax import lax

import graphmode as gm

SHAPES = st.fixed_dictionaries({"shape": st.sampled_from([(), (5,), (2, 3)])})


def one_array(rng, config, dtype):
    return {"x": values_of(rng, config.shape, dtype, special=False)}


def hooked(fn):
    """PyTorch: the square of `x`, `fn` on its gradient."""

    def eager(c, x):
        y = x * x
        if y.requires_grad:
            y.register_hook(fn)
        return 3 * y

    return eager


def clipped_by_norm(gradient):
    parameter = torch.zeros_like(gradient)
    parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([parameter], 0.5)
    return parameter.grad


def case(name, ours, theirs):
    return Differential(
        name=name,
        configs=SHAPES,
        arrays=one_array,
        ours=lambda c, x: 3 * ours(x * x),
        eager=hooked(theirs),
        dtypes=FLOATING,
        gradients=("x",),
    )


HOOK = case("gradient_hook", lambda y: gm.gradient_hook(y, jnp.sin), torch.sin)
LOOK = case("gradient_hook that looks", lambda y: gm.gradient_hook(y, lambda g: None), lambda g: None)
SCALE = case("scale_gradient", lambda y: gm.scale_gradient(y, 0.25), lambda g: 0.25 * g)
REVERSE = case("reverse_gradient", lambda y: gm.reverse_gradient(y, 2), lambda g: -2 * g)
CLIP = case("clip_gradient", lambda y: gm.clip_gradient(y, max_value=0.5), lambda g: g.clamp(-0.5, 0.5))
CLIP_NORM = case("clip_gradient by norm", lambda y: gm.clip_gradient(y, max_norm=0.5), clipped_by_norm)
VALUE = Differential(
    name="value_hook",
    configs=SHAPES,
    arrays=one_array,
    ours=lambda c, x: gm.value_hook(gm.value_hook(x, lambda x: None), lambda x: 2 * x) ** 2,
    eager=lambda c, x: (2 * x) ** 2,
    dtypes=FLOATING,
    gradients=("x",),
)
TABLE = [HOOK, LOOK, SCALE, REVERSE, CLIP, CLIP_NORM, VALUE]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


FAULTS = [
    (HOOK, lambda c, x: 3 * x * x),
    (REVERSE, lambda c, x: 3 * gm.scale_gradient(x * x, 2)),
    (CLIP, lambda c, x: gm.clip_gradient(3 * x * x, max_value=0.5)),
    (CLIP_NORM, lambda c, x: 3 * gm.gradient_hook(x * x, lambda g: 0.5 * g / (jnp.linalg.norm(g) + 1e-6))),
]


@pytest.mark.slow
@pytest.mark.parametrize(("one", "fault"), FAULTS, ids=[one.name for one, _ in FAULTS])
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


def test_a_pytree_with_integers_and_keys():
    tree = {"w": jnp.array([1.0, 2.0]), "n": jnp.int32(3), "key": jax.random.key(0)}
    seen = []

    def fn(gradient):
        seen.append(gradient)
        return {**gradient, "w": 10 * gradient["w"]}

    def loss(w):
        hooked = gm.gradient_hook({**tree, "w": w}, fn)
        return (hooked["w"] * hooked["n"]).sum() + jax.random.uniform(hooked["key"])

    assert jax.jit(jax.grad(loss))(tree["w"]).tolist() == [30, 30]
    assert seen[0]["n"] is None
    assert seen[0]["key"] is None
    assert jax.grad(lambda w: gm.scale_gradient({**tree, "w": w}, 2)["w"].sum())(tree["w"]).tolist() == [2, 2]


def test_clipping_takes_the_norm_of_the_whole_tree():
    x = {"a": np.array([3.0, 0], np.float32), "b": np.float32(4)}
    parameters = [torch.zeros(2), torch.zeros(())]
    for parameter, gradient in zip(parameters, (torch.tensor([3.0, 0]), torch.tensor(4.0)), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(parameters, 2.0)

    def loss(x):
        clipped = gm.clip_gradient(x, max_norm=2.0)
        return 3 * clipped["a"][0] + 4 * clipped["b"]

    found = jax.jit(jax.grad(loss))(x)
    np.testing.assert_allclose(found["a"], parameters[0].grad, rtol=1e-6)
    np.testing.assert_allclose(found["b"], parameters[1].grad, rtol=1e-6)


def exploding(w, limit):
    """A recurrence whose gradient is clipped at each step, as a hook on the hidden state does."""

    def step(h, i):
        h = gm.clip_gradient(w * h, max_value=limit)
        return gm.gradient_hook(h, lambda g: g * jnp.where(i == 2, 0.5, 1)), None

    return lax.scan(step, 1.0 + 0 * w, jnp.arange(4))[0]


def test_in_a_scan_with_what_the_loop_closes_over():
    def eager(w, limit):
        h = torch.ones(())
        for i in range(4):
            h = w * h
            h.register_hook(lambda g: g.clamp(-limit, limit))
            h = h * 1
            h.register_hook(lambda g, i=i: g * (0.5 if i == 2 else 1))
        return h

    weights, limits = np.array([0.5, 1.5, 3], np.float32), np.array([0.7, 1, 2], np.float32)
    # the limit is traced, mapped and differentiated around the hook, and gets no gradient
    found = jax.jit(jax.vmap(jax.grad(exploding, (0, 1))))(weights, limits)
    for i, (w, limit) in enumerate(zip(weights, limits, strict=True)):
        w = torch.tensor(w, requires_grad=True)
        (wanted,) = torch.autograd.grad(eager(w, float(limit)), w)
        np.testing.assert_allclose(found[0][i], wanted, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(exploding)(weights[i], limit), wanted, rtol=1e-5)
    assert found[1].tolist() == [0, 0, 0]


def test_a_hook_gets_the_whole_gradient_once():
    x = torch.tensor(2.0, requires_grad=True)
    y = x * 1
    y.register_hook(torch.square)
    (y * 3 + y * 4).backward()

    def loss(x):
        y = gm.gradient_hook(x, jnp.square)
        return y * 3 + y * 4

    assert jax.grad(loss)(2.0).item() == x.grad.item() == 49


def test_scaling_works_forward_and_twice():
    def fn(x):
        return gm.reverse_gradient(x, 3.0) ** 3

    assert jax.jvp(fn, (2.0,), (1.0,))[1] == jax.grad(fn)(2.0) == -36
    assert jax.grad(jax.grad(fn))(2.0) == jax.jacfwd(jax.grad(fn))(2.0) == 9 * 12
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda x: gm.gradient_hook(x, jnp.sin), (2.0,), (1.0,))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.hessian(lambda x: gm.gradient_hook(x, jnp.sin) ** 2)(2.0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: gm.gradient_hook(x, jnp.square), torch.square),
        (lambda x: gm.gradient_hook(x, lambda g: None), lambda g: None),
        (lambda x: gm.clip_gradient(x, max_value=5.0), lambda g: g.clamp(-5, 5)),
        (lambda x: gm.clip_gradient(x, max_norm=2.0), lambda g: g * (2 / (g.norm() + 1e-6)).clamp(max=1)),
        (lambda x: gm.scale_gradient(x, 0.5), lambda g: 0.5 * g),
    ],
    ids=["hook", "look", "clip", "clip by norm", "scale"],
)
def test_second_and_third_derivatives(ours, theirs):
    start = np.array([0.2, 1.0, -1.5], np.float32)
    tensor = torch.tensor(start, requires_grad=True)
    y = tensor * 1
    y.register_hook(theirs)
    value, found = (y**4).sum(), lambda x: (ours(x) ** 4).sum()
    for _ in range(3):
        (gradient,) = torch.autograd.grad(value, tensor, create_graph=True)
        value, before = gradient.sum(), found
        found = lambda x, before=before: jax.grad(before)(x).sum()  # noqa: E731
        np.testing.assert_allclose(jax.jit(jax.grad(before))(start), gradient.detach(), rtol=1e-5)


def test_a_hook_prints_the_gradient(capsys):
    def look(g):
        gm.debug_print("gradient {g}", g=g)

    jax.jit(jax.vmap(jax.grad(lambda x: gm.gradient_hook(x, look) ** 2)))(np.array([1.0, 2.0]))
    jax.effects_barrier()
    assert capsys.readouterr().out.split("\n")[:2] == ["gradient 2.0", "gradient 4.0"]


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x + 10

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (1 + x)


@jax.custom_vjp
def with_own_backward(x):
    return 2 * x + 10


with_own_backward.defvjp(lambda x: (2 * x + 10, x), lambda x, gradient: (gradient * (1 + x),))


def test_autograd_function_is_custom_vjp():
    """G01: `save_for_backward` is the residual; `ctx.needs_input_grad` is what `jit` leaves out by itself."""
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    (wanted,) = torch.autograd.grad(Backwards.apply(tensor).sin().sum(), tensor)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: jnp.sin(with_own_backward(x)).sum()))(x), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda x: jnp.sin(with_own_backward(x))))(x), wanted, rtol=1e-5)


def test_backward_and_step_are_value_and_grad_and_an_update():
    """G03, with G04: `detach` is `stop_gradient`, and a `no_grad` block is one around what leaves it."""
    import optax

    start = np.array([1.0, -2.0], np.float32)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    update = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def step(w, state):
        loss, gradient = jax.value_and_grad(lambda w: (w**2 * lax.stop_gradient(w)).sum())(w)
        change, state = update.update(gradient, state)
        return optax.apply_updates(w, change), state, loss

    w, state = start, update.init(start)
    for _ in range(3):
        optimizer.zero_grad()
        wanted = (parameter**2 * parameter.detach()).sum()
        wanted.backward()
        optimizer.step()
        w, state, loss = step(w, state)
        np.testing.assert_allclose(loss, wanted.detach(), rtol=1e-5)
        np.testing.assert_allclose(w, parameter.detach(), rtol=1e-5)


def test_one_compilation_for_all_limits():
    traces = []

    @jax.jit
    def graph(x, limit):
        traces.append(1)
        return jax.grad(lambda x: gm.clip_gradient(x, max_norm=limit) ** 2)(x)

    found = [float(graph(3.0, limit)) for limit in (1.0, 2.0, 8.0)]
    np.testing.assert_allclose(found, [1, 2, 6], rtol=1e-5)
    assert len(traces) == 1


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda x: gm.gradient_hook(x > 0, jnp.sin), TypeError, "x of gradient_hook holds bool"),
        (lambda x: gm.gradient_hook((), jnp.sin), TypeError, "holds no array"),
        (lambda x: gm.gradient_hook(x, 3), TypeError, "fn is 3"),
        (lambda x: gm.gradient_hook(x, jnp.sum), ValueError, r"fn gives float32\[\], and float32\[3\] was wanted"),
        (
            lambda x: gm.gradient_hook(x, lambda g: g > 0),
            ValueError,
            r"fn gives bool\[3\], and float32\[3\] was wanted",
        ),
        (lambda x: gm.gradient_hook(x, lambda g: (g, g)), ValueError, "structure of the gradient"),
        (lambda x: gm.value_hook(x, jnp.sum), ValueError, r"fn gives float32\[\], and float32\[3\] was wanted"),
        (lambda x: gm.scale_gradient(x, x), ValueError, r"scale is float32\[3\], and one real number"),
        (lambda x: gm.clip_gradient(x), ValueError, "max_value is None and max_norm is None; give one"),
        (lambda x: gm.clip_gradient(x, max_norm=1, max_value=1), ValueError, "give one of them"),
        (lambda x: gm.clip_gradient(x, max_norm=x), ValueError, r"max_norm is float32\[3\]"),
        (lambda x: gm.clip_gradient(x, max_norm=-1.0), ValueError, "max_norm is -1.0; give a number of at least 0"),
        (lambda x: gm.clip_gradient(x, max_value=float("nan")), ValueError, "max_value is nan"),
    ],
)
def test_bad_input(wrap, call, error, names):
    with pytest.raises(error, match=names):
        wrap(call)(jnp.ones(3, jnp.float32))
