"""`gm.while_loop` and `gm.fori` against `while` and `for` in eager PyTorch, values and gradients."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run
from flax import nnx
from hypothesis import strategies as st
from nnx_training import value_and_gradient

import graphmode as gm

BOUNDS = (0, 1, 7, 40)
STEPS = st.fixed_dictionaries({"max_steps": st.sampled_from(BOUNDS)})


def shrinking(rng, c, dtype):
    # trip counts of 0, 1, about the bound, and beyond it
    trips = rng.choice([0, 1, c.max_steps, c.max_steps + 1, rng.integers(0, 20)])
    w = np.array([0.5, 0.25, 0.75])
    x = np.array([2.0 ** min(trips, 60) * (0.75 if trips else 0.25), *rng.standard_normal(2)])
    return {"x": x.astype(dtype), "w": w.astype(dtype)}


def shrink(c, x, w):
    def body(s):
        return {"x": s["x"] * w, "n": s["n"] + 1}

    (s, cut_short) = gm.while_loop(lambda s: s["x"][0] > 0.5, body, {"x": x, "n": 0}, max_steps=c.max_steps)
    return s["x"], s["n"], cut_short


def eager_shrink(c, x, w):
    n = 0
    while x[0] > 0.5 and n < c.max_steps:
        x, n = x * w, n + 1
    return x, torch.tensor(n), x[0] > 0.5


WHILE = Differential("while_loop", STEPS, shrinking, shrink, eager_shrink, ("float32", "float64"), ("x", "w"))


def ranges(rng, c, dtype):
    lower = rng.integers(-3, 4)
    upper = lower + rng.choice([-2, 0, 1, c.max_steps, c.max_steps + 1, rng.integers(0, 12)])
    x, w = rng.standard_normal((2, 3))
    return {"x": x.astype(dtype), "w": (w / 4).astype(dtype), "lower": np.int32(lower), "upper": np.int32(upper)}


def walk(c, x, w, lower, upper):
    return gm.fori(lower, upper, lambda i, x: jnp.sin(x) * w + i.astype(x.dtype) / 8, x, max_steps=c.max_steps)


def eager_walk(c, x, w, lower, upper):
    for i in range(int(lower), min(int(upper), int(lower) + c.max_steps)):
        x = torch.sin(x) * w + i / 8
    return x, upper - lower > c.max_steps


FORI = Differential("fori", STEPS, ranges, walk, eager_walk, ("float32", "float64"), ("x", "w"), exact=False)


def collatz(rng, c, dtype):
    return {"n": rng.integers(1, 30).astype(dtype)}


def ours_collatz(c, n):
    def body(s):
        n, steps = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    (n, steps), cut_short = gm.while_loop(lambda s: s[0] > 1, body, (n, 0), max_steps=c.max_steps)
    return n, steps, cut_short


def eager_collatz(c, n):
    steps = 0
    while n > 1 and steps < c.max_steps:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return n, torch.tensor(steps), n > 1


COLLATZ = Differential("while_loop of integers", STEPS, collatz, ours_collatz, eager_collatz, ("int32",))


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([WHILE, FORI, COLLATZ]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def one_more(c, x, w):
    return shrink(SimpleNamespace(max_steps=c.max_steps + 1), x, w)


def silent(c, x, w):
    x, n, cut_short = shrink(c, x, w)
    return x, n, cut_short & False


def through_the_end(c, x, w):
    x, n, cut_short = shrink(c, x, w)
    return x + 0 * (jax.lax.stop_gradient(x) - x) + (w - jax.lax.stop_gradient(w)), n, cut_short


@pytest.mark.slow
@pytest.mark.parametrize("fault", [one_more, silent, through_the_end])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(WHILE, configs=st.just({"max_steps": 3}), ours=fault))


def test_a_fori_that_starts_late_is_caught():
    late = dataclasses.replace(
        FORI, configs=st.just({"max_steps": 3}), ours=lambda c, x, w, lower, upper: walk(c, x, w, lower + 1, upper)
    )
    assert is_caught(late)


def descent(x, w, max_steps=50):
    # sqrt has no finite gradient at 0, where a lane that went on would end
    def body(s):
        x, n = s
        return jnp.maximum(jnp.sqrt(x - 1) * w, 0), n + 1

    (x, n), cut_short = gm.while_loop(lambda s: s[0] > 1, body, (x, 0), max_steps=max_steps)
    return x, n, cut_short


def eager_descent(x, w, max_steps=50):
    n = 0
    while x > 1 and n < max_steps:
        x, n = torch.clamp(torch.sqrt(x - 1) * w, min=0), n + 1
    return x, n


@pytest.mark.parametrize("max_steps", [1, 3, 50, 1500])
def test_lanes_that_are_done_are_frozen_and_poison_no_gradient(max_steps):
    with jax.enable_x64(True):
        x, w = np.array([0.5, 1.0, 1.5, 40.0, 3.0, -2.0, 9000.0]), np.float64(1.2)
        mapped = jax.vmap(lambda x, w: descent(x, w, max_steps), (0, None))
        values, counts, cut_short = jax.jit(mapped)(x, w)
        tensors = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
        wanted = [eager_descent(one, tensors[1], max_steps) for one in tensors[0]]
        np.testing.assert_allclose(values, [v.item() for v, _ in wanted], rtol=1e-13)
        np.testing.assert_array_equal(counts, [n for _, n in wanted])
        np.testing.assert_array_equal(cut_short, [v.item() > 1 for v, _ in wanted])
        sum(v for v, _ in wanted).backward()
        gradients = jax.jit(jax.grad(lambda x, w: mapped(x, w)[0].sum(), (0, 1)))(x, w)
        for ours, theirs in zip(gradients, tensors, strict=True):
            np.testing.assert_allclose(ours, theirs.grad, rtol=1e-12)
        inner = jax.vmap(jax.grad(lambda x, w: descent(x, w, max_steps)[0]), (0, None))(x, w)
        np.testing.assert_allclose(inner, tensors[0].grad, rtol=1e-12)
        forward = jax.jvp(lambda w: mapped(x, w)[0].sum(), (w,), (1.0,))[1]
        np.testing.assert_allclose(forward, tensors[1].grad, rtol=1e-12)
        twofold = jax.vmap(mapped, (0, None))
        square = np.stack([x, x[::-1]])
        both = jax.jit(jax.grad(lambda x: twofold(x, w)[0].sum()))(square)
        np.testing.assert_allclose(both, np.stack([tensors[0].grad, tensors[0].grad.flip(0)]), rtol=1e-12)


def branch(x):
    return gm.cond(x.sum() > 1, jnp.sqrt, lambda x: jnp.log(x + 1.5), x)


def branch_of_jax(x):
    return jax.lax.cond(x.sum() > 1, jnp.sqrt, lambda x: jnp.log(x + 1.5), x)


def mapped_rows(x):
    root = gm.compact(x, x > 0.5, capacity=2).map(jnp.sqrt)
    return root.scatter(x > 0.5, into=jnp.log(jnp.maximum(x, 0.1) + 1.5))


@pytest.mark.parametrize("body", [branch, branch_of_jax, mapped_rows])
def test_lanes_branch_each_for_itself_within_a_loop(body):
    with jax.enable_x64(True):
        xs, trips = np.array([[0.9, 0.8], [-0.7, 0.4], [3.0, -1.2], [0.2, 0.3]]), np.array([3, 2, 0, 5])

        def ours(x, trips):
            return gm.fori(0, trips, lambda _, x: body(x), x, max_steps=6)[0].sum()

        def unrolled(x, trips):
            for _ in range(trips):
                x = body(x)
            return x.sum()

        wanted = [jax.grad(unrolled)(x, int(n)) for x, n in zip(xs, trips, strict=True)]
        assert np.isfinite(wanted).all()

        def mapped(xs):
            return jax.vmap(ours)(xs, jnp.array(trips)).sum()

        for loss in (mapped, jax.checkpoint(mapped)):
            np.testing.assert_allclose(jax.jit(jax.grad(loss))(xs), wanted, rtol=1e-12)


@pytest.mark.parametrize("lanes_end_apart", [True, False])
def test_a_gradient_of_its_own_within_a_loop_that_is_mapped(lanes_end_apart):
    with jax.enable_x64(True):
        xs, trips = np.random.default_rng(2).standard_normal((3, 4)), np.array([2, 0, 3])
        trips = trips if lanes_end_apart else np.full(3, 2)
        w = np.eye(4) * 0.9

        def body(x, w):
            return jnp.tanh(gm.clip_gradient(x @ w, max_value=0.05))

        def ours(x, w, n):
            state, _ = gm.while_loop(lambda s: s[1] < n, lambda s: (body(s[0], w), s[1] + 1), (x, 0), max_steps=4)
            return state[0].sum() * state[1]

        def unrolled(x, w, n):
            for _ in range(n):
                x = body(x, w)
            return x.sum() * n

        lanes = [jax.grad(unrolled, (0, 1))(x, w, int(n)) for x, n in zip(xs, trips, strict=True)]
        of_xs, of_w = np.stack([x for x, _ in lanes]), sum(w for _, w in lanes)

        def mapped(xs, w):
            if lanes_end_apart:
                return jax.vmap(ours, (0, None, 0))(xs, w, jnp.array(trips)).sum()
            return jax.vmap(ours, (0, None, None))(xs, w, 2).sum()

        def twice(xs, w):
            return jax.vmap(mapped, (0, None))(xs[None], w).sum()

        for loss in (mapped, jax.checkpoint(mapped), twice):
            got = jax.jit(jax.grad(loss, (0, 1)))(xs, w)
            np.testing.assert_allclose(got[0], of_xs, rtol=1e-12)
            np.testing.assert_allclose(got[1], of_w, rtol=1e-12)
        with pytest.raises(TypeError, match="forward-mode"):
            jax.jvp(lambda x: mapped(x, w), (xs,), (xs,))


def test_second_derivatives():
    with jax.enable_x64(True):

        def ours(x):
            return gm.while_loop(lambda s: s > 0.3, lambda s: jnp.sin(s) * 0.9, x, max_steps=100)[0]

        def eager(x):
            while x > 0.3:
                x = torch.sin(x) * 0.9
            return x

        x = torch.tensor(2.0, dtype=torch.float64)
        wanted = torch.autograd.functional.hessian(eager, x)
        for hessian in (jax.hessian(ours), jax.jacrev(jax.jacrev(ours)), jax.jacrev(jax.jacfwd(ours))):
            np.testing.assert_allclose(hessian(2.0), wanted, rtol=1e-12)


def test_loops_within_loops():
    with jax.enable_x64(True):

        def ours(x, w, n):
            def outer(i, x):
                return gm.while_loop(lambda x: x > 1, lambda x: x * w, x * 3, max_steps=50)[0]

            return gm.fori(0, n, outer, x, max_steps=40)[0]

        def eager(x, w, n):
            for _ in range(n):
                x = x * 3
                while x > 1:
                    x = x * w
            return x

        for n in (0, 1, 5):
            tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (2.0, 0.7)]
            wanted = torch.autograd.grad(eager(*tensors, n), tensors, allow_unused=True)
            got = jax.jit(jax.grad(ours, (0, 1)))(2.0, 0.7, n)
            for a, b in zip(got, wanted, strict=True):
                np.testing.assert_allclose(a, 0 if b is None else b, rtol=1e-12)


class Cell(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(3)
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, momentum=0.9, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, x):
        self.calls[...] += 1
        return jnp.tanh(self.drop(self.norm(self.linear(x)))) + x


@pytest.mark.parametrize(("trips", "max_steps"), [(0, 6), (4, 6), (9, 6), (1, 70), (9, 70)])
def test_modules_in_the_state_are_changed_and_trained(trips, max_steps):
    x = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

    cut = []

    def ours(cell):
        (same, y), cut_short = gm.fori(
            0, jnp.int32(trips), lambda i, s: (s[0], s[0](s[1])), (cell, x), max_steps=max_steps
        )
        assert same is cell
        cut.append(cut_short)
        return (y**2).sum()

    def eager(cell):
        y = x
        for _ in range(min(trips, max_steps)):
            y = cell(y)
        return (y**2).sum()

    cell, wanted = Cell(), Cell()
    value, gradient = value_and_gradient(ours, cell)
    eager_value, eager_gradient = value_and_gradient(eager, wanted)
    np.testing.assert_allclose(value, eager_value, rtol=1e-5)
    assert bool(cut[0]) == (trips > max_steps)
    assert gradient
    for a, b in zip(gradient, eager_gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)
    for a, b in zip(jax.tree.leaves(nnx.state(cell)), jax.tree.leaves(nnx.state(wanted)), strict=True):
        if jnp.issubdtype(a.dtype, jnp.number):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_module_that_is_closed_over_gets_its_gradient_and_may_not_be_changed():
    linear = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    x = jnp.linspace(0.1, 1, 3)

    def ours(linear):
        return gm.while_loop(lambda x: x.sum() < 3, lambda x: x + jnp.tanh(linear(x)) ** 2, x, max_steps=64)[0].sum()

    def unrolled(linear):
        y = x
        while y.sum() < 3:
            y = y + jnp.tanh(linear(y)) ** 2
        return y.sum()

    for a, b in zip(jax.tree.leaves(nnx.grad(ours)(linear)), jax.tree.leaves(nnx.grad(unrolled)(linear)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    cell = Cell()
    with pytest.raises(Exception, match="trace level") as error:
        gm.while_loop(lambda x: x.sum() < 3, cell, jnp.ones((4, 3)), max_steps=3)
    assert "operand" in error.value.__notes__[0]


def test_what_the_body_leaves_alone_is_not_carried():
    linear = nnx.Linear(30, 30, rngs=nnx.Rngs(0))

    def loss(linear, x, table):
        (_, x, _), _ = gm.while_loop(
            lambda s: s[1].sum() < 3, lambda s: (s[0], s[0](s[1]) * s[2], s[2]), (linear, x, table), max_steps=64
        )
        return x.sum()

    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x: loss(linear, x, jnp.ones(30))))(jnp.ones(30)))
    assert "[8,30,30]" not in jaxpr
    assert "f32[8,30]" in jaxpr


def test_memory_of_the_gradient_grows_far_slower_than_max_steps():
    def held(max_steps):
        def loss(x):
            return gm.while_loop(lambda x: x[0] > 1, lambda x: jnp.sin(x) * 0.9, x, max_steps=max_steps)[0].sum()

        return jax.jit(jax.grad(loss)).lower(jnp.ones(1000)).compile().memory_analysis().temp_size_in_bytes

    few, many = held(32), held(32**3)
    assert many < 4 * few  # 1024 times as many steps
    assert many < 1000 * 4 * 32 * 12


def test_steps_are_traced_a_fixed_number_of_times_and_run_as_often_as_needed():
    traces, runs = [], []

    def body(x):
        traces.append(1)
        jax.debug.callback(lambda _: runs.append(1), x)
        return x * 0.5

    loop = jax.jit(lambda x: gm.while_loop(lambda x: x > 1, body, x, max_steps=10**6))
    for x, trips in ((0.5, 0), (3.0, 2), (1000.0, 10)):
        runs.clear()
        jax.block_until_ready(loop(x))
        jax.effects_barrier()
        assert len(runs) == trips
    assert len(traces) <= 2
    traces.clear()
    gradient = jax.jit(jax.grad(lambda x: gm.while_loop(lambda x: x > 1, body, x, max_steps=10**6)[0]))
    for x, trips in ((0.5, 0), (1000.0, 10)):
        runs.clear()
        jax.block_until_ready(gradient(x))
        jax.effects_barrier()
        assert len(runs) <= 5 * trips  # a factor of 32 in max_steps costs one more
    assert len(traces) <= 2


def test_without_a_bound():
    def halve(x):
        return gm.while_loop(lambda x: x > 1, lambda x: x / 2, x)

    x, cut_short = jax.jit(halve)(9.0)
    assert float(x) == 0.5625
    assert not cut_short
    assert float(jax.jvp(lambda x: halve(x)[0], (9.0,), (1.0,))[1]) == 0.0625
    np.testing.assert_array_equal(jax.vmap(lambda x: halve(x)[0])(jnp.array([0.5, 4.0])), [0.5, 1.0])
    with pytest.raises(ValueError, match="give max_steps"):
        jax.grad(lambda x: halve(x)[0])(9.0)


def test_fori_with_bounds_known_while_tracing_needs_no_max_steps():
    value, gradient = jax.value_and_grad(lambda x: gm.fori(0, 3, lambda i, y: y * x, 1.0)[0])(2.0)
    assert (float(value), float(gradient)) == (8.0, 12.0)
    assert not gm.fori(3, 0, lambda i, y: y * 2, 1.0)[1]


def test_fori_at_the_end_of_the_range_of_int32():
    end = jnp.int32(2**31 - 1)
    x, cut_short = gm.fori(end - 2, end, lambda i, x: x + 1, 0, max_steps=5)
    assert (int(x), bool(cut_short)) == (2, False)
    x, cut_short = gm.fori(jnp.int32(-(2**31)), end, lambda i, x: x + 1, 0, max_steps=5)
    assert (int(x), bool(cut_short)) == (5, True)


def test_python_numbers_keys_and_nan_conditions():
    chain, _ = gm.fori(0, 6, lambda i, s: (*s[1:], jnp.bfloat16(2)), (0, 0, 0, 0, 0, 0))
    assert all(x.dtype == jnp.bfloat16 and x == 2 for x in chain)
    (x, n), _ = gm.while_loop(lambda s: s[1] < 3, lambda s: (s[0] + jnp.bfloat16(0.5), s[1] + 1), (0, 0), max_steps=5)
    assert x.dtype == jnp.bfloat16
    assert n.dtype == jnp.int32
    key, _ = gm.fori(0, 3, lambda i, k: jax.random.split(k)[0], jax.random.key(0), max_steps=40)
    wanted = jax.random.key(0)
    for _ in range(3):
        wanted = jax.random.split(wanted)[0]
    assert (jax.random.key_data(key) == jax.random.key_data(wanted)).all()

    def noisy(x):
        def body(i, s):
            key, noise = jax.random.split(s[0])
            return key, s[1] * jax.random.normal(noise)

        return gm.fori(0, jnp.int32(3), body, (jax.random.key(0), x), max_steps=40)[0][1]

    np.testing.assert_allclose(jax.grad(noisy)(2.0), noisy(2.0) / 2, rtol=1e-6)
    x, cut_short = gm.while_loop(lambda x: x > 1, lambda x: x * jnp.nan, 2.0, max_steps=5)
    assert np.isnan(x)
    assert not cut_short


def test_an_nnx_state_is_plain_data():
    graphdef, state = nnx.split(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    final, _ = gm.fori(0, 3, lambda i, s: jax.tree.map(lambda x: x * 2, s), state)
    np.testing.assert_array_equal(nnx.merge(graphdef, final).kernel[...], 8 * nnx.merge(graphdef, state).kernel[...])


def always(_):
    return True


ONE = jnp.ones(())
UNFIT = [
    (lambda: gm.while_loop(lambda s: s, lambda s: s, 1.0, max_steps=3), ValueError, ["cond", "float32[]", "bool"]),
    (lambda: gm.while_loop(lambda s: s > 0, lambda s: s, jnp.ones(3), max_steps=3), ValueError, ["cond", "bool[3]"]),
    (lambda: gm.while_loop(lambda s: (True, True), lambda s: s, 1.0, max_steps=3), ValueError, ["cond"]),
    (
        lambda: gm.while_loop(always, lambda s: {"a": s["a"].astype(int)}, {"a": ONE}, max_steps=3),
        TypeError,
        ["init['a']", "float32[]", "int32[]"],
    ),
    (lambda: gm.while_loop(always, lambda s: s[:1], jnp.ones(3), max_steps=3), TypeError, ["[3]", "[1]"]),
    (lambda: gm.while_loop(always, lambda s: (s, s), 1.0, max_steps=3), TypeError, ["structure"]),
    (lambda: gm.while_loop(always, lambda s: 1.5, jnp.int32(1), max_steps=3), TypeError, ["int32", "float32"]),
    (lambda: gm.while_loop(always, lambda s: s, {"a": "x"}, max_steps=3), TypeError, ["'x'", "no array"]),
    (lambda: gm.while_loop(always, lambda s: s, 1.0, max_steps=2.0), TypeError, ["max_steps", "2.0"]),
    (lambda: gm.while_loop(always, lambda s: s, 1.0, max_steps=True), TypeError, ["max_steps", "True"]),
    (lambda: gm.while_loop(always, lambda s: s, 1.0, max_steps=-1), ValueError, ["max_steps", "-1"]),
    (lambda: gm.while_loop(always, lambda s: s, 1.0, max_steps=2**31), ValueError, ["max_steps"]),
    (
        lambda: jax.jit(lambda n: gm.while_loop(always, lambda s: s, 1.0, max_steps=n))(3),
        TypeError,
        ["max_steps", "traced", "static_argnames"],
    ),
    (lambda: gm.while_loop(always, nnx.clone, Cell(), max_steps=3), TypeError, ["NNX object"]),
    (
        lambda: gm.while_loop(lambda c: c(jnp.ones((4, 3))).sum() > 0, lambda c: c, Cell(), max_steps=3),
        TypeError,
        ["body"],
    ),
    (lambda: gm.fori(0, 3.0, lambda i, s: s, 1.0, max_steps=3), ValueError, ["upper", "float32", "int"]),
    (lambda: gm.fori(jnp.zeros(2, int), 3, lambda i, s: s, 1.0, max_steps=3), ValueError, ["lower", "[2]"]),
]


@pytest.mark.parametrize(("call", "kind", "words"), UNFIT)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(call, kind, words, wrap):
    with pytest.raises(kind) as error:
        wrap(call)()
    assert all(word in str(error.value) for word in words)
