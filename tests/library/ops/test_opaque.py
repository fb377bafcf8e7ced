"""`gm.opaque`: foreign code in a graph, with its shapes and its backward, against `torch.autograd.Function`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, run, values_of
from hypothesis import strategies as st
from jax import lax

import graphmode as gm

DTYPES = ("float32", "float64")


class Foreign(torch.autograd.Function):
    """A forward that no tracer sees, and a backward that is not its derivative."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return torch.as_tensor(np.fmod(x.numpy(), x.numpy().dtype.type(0.75))) + y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * (1 + x), (gradient * y).cos()


def ours(c, x, y):
    return gm.opaque(
        lambda x, y: np.fmod(x, x.dtype.type(0.75)) + y,
        x,
        y,
        result=x if c.result == "given" else None,
        backward=lambda args, out, ct: (ct * (1 + args[0]), jnp.cos(ct * args[1])),
        vmap_method=c.method,
    )


def two_arrays(rng, config, dtype):
    return {name: values_of(rng, config.shape, dtype, special=False) for name in ("x", "y")}


OPAQUE = Differential(
    name="opaque",
    configs=st.fixed_dictionaries(
        {
            "shape": st.sampled_from([(), (0,), (2, 3)]),
            "result": st.sampled_from(["given", "learnt"]),
            "method": st.sampled_from(["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"]),
        }
    ),
    arrays=two_arrays,
    ours=ours,
    eager=lambda c, x, y: Foreign.apply(x, y),
    dtypes=DTYPES,
    gradients=("x", "y"),
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([OPAQUE]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


@pytest.mark.slow
def test_a_planted_fault_is_caught():
    looked_into = dataclasses.replace(OPAQUE, ours=lambda c, x, y: jnp.fmod(x, 0.75) + y)
    swapped = dataclasses.replace(OPAQUE, ours=lambda c, x, y: ours(c, x, y) + 0 * y)
    assert is_caught(looked_into)
    assert is_caught(dataclasses.replace(OPAQUE, ours=lambda c, x, y: ours(c, y, x)))
    assert not is_caught(swapped)


def torch_forward(x, w):
    return torch.nn.functional.gelu(torch.from_numpy(x) @ torch.from_numpy(w))


def torch_backward(x, w, gradient):
    tensors = [torch.from_numpy(a).requires_grad_() for a in (x, w)]
    return torch.autograd.grad(torch.nn.functional.gelu(tensors[0] @ tensors[1]), tensors, torch.from_numpy(gradient))


def through_torch(x, w):
    """A function of PyTorch, forward and backward on the host."""
    return gm.opaque(
        torch_forward,
        x,
        w,
        result=jnp.matmul,
        backward=lambda args, out, ct: gm.opaque(torch_backward, *args, ct, result=args),
    )


def test_a_function_of_pytorch_with_its_autograd():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4, 5)).astype(np.float32), rng.standard_normal((5, 2)).astype(np.float32)

    def loss(apply, x, w):
        return (apply(x, w) ** 2).sum()

    def plain(x, w):
        return jax.nn.gelu(x @ w, approximate=False)

    for transform in (lambda f: f, jax.jit):
        found = transform(jax.vmap(jax.value_and_grad(lambda x, w: loss(through_torch, x, w), (0, 1)), (0, None)))(x, w)
        wanted = jax.vmap(jax.value_and_grad(lambda x, w: loss(plain, x, w), (0, 1)), (0, None))(x, w)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), found, wanted)


def test_without_a_backward_a_gradient_is_refused_and_never_zero():
    def fn(x):
        return gm.opaque(np.sin, x, result=x).sum()

    for derivative in (jax.grad(fn), jax.jacfwd(fn), jax.grad(lambda x: jax.jit(fn)(x)), jax.vmap(jax.grad(fn))):
        for wrap in (jax.jit, lambda f: f):
            with pytest.raises(
                ValueError, match=r"opaque\(sin\) is differentiated, and has no backward; give backward="
            ):
                wrap(derivative)(np.ones((2, 3), np.float32))

    def in_scan(x):
        return lax.scan(lambda c, _: (gm.opaque(np.sin, c, result=c), None), x, length=2)[0]

    with pytest.raises(ValueError, match="no backward"):
        jax.jit(jax.grad(in_scan))(1.0)
    # where no gradient has to go through, none is missed
    assert jax.jit(jax.grad(lambda x: x * fn(lax.stop_gradient(x))))(0.0) == 0
    assert jax.jit(jax.grad(lambda x: x * gm.opaque(np.sin, 1.0)))(2.0) == np.sin(np.float32(1))
    assert jax.jit(jax.grad(lambda x: x * gm.opaque(np.argmax, jnp.stack([x, x + 1]))))(2.0) == 1


def test_gradient_inside_a_scan_with_what_the_loop_closes_over():
    def fn(x, scale, box):
        def step(carry, i):
            return box(carry, scale * i), None

        return lax.scan(step, x, jnp.arange(1.0, 4))[0]

    def box(x, k):
        return gm.opaque(lambda x: np.sin(x), x, result=x, backward=lambda args, out, ct: (ct * jnp.cos(args[0]) * k,))

    def plain(x, k):
        straight = jnp.sin(x)
        return lax.stop_gradient(straight) + lax.stop_gradient(k) * (straight - lax.stop_gradient(straight))

    x, scale = np.float32(0.3), np.float32(2)
    found = jax.jit(jax.vmap(jax.grad(lambda x, s: fn(x, s, box), (0, 1)), (0, None)))(x[None], scale)
    wanted = jax.grad(lambda x, s: fn(x, s, plain), (0, 1))(x, scale)
    np.testing.assert_allclose(found[0][0], wanted[0], rtol=1e-5)
    assert found[1][0] == wanted[1] == 0


def test_second_derivatives_by_a_traced_backward():
    def sin(x):
        return gm.opaque(np.sin, x, result=x, backward=lambda args, out, ct: ct * cos(*args))

    def cos(x):
        return gm.opaque(np.cos, x, result=x, backward=lambda args, out, ct: -ct * sin(*args))

    for order, wanted in ((jax.grad(sin), np.cos), (jax.grad(jax.grad(sin)), lambda x: -np.sin(x))):
        np.testing.assert_allclose(jax.jit(order)(0.5), wanted(0.5), rtol=1e-6)


def test_pytrees_integers_and_no_gradient():
    def host(tree, index):
        return {"row": tree["table"][index], "count": len(index)}

    def fn(table, index):
        return gm.opaque(
            host,
            {"table": table},
            index,
            result={"row": jax.ShapeDtypeStruct((2, 3), jnp.float32), "count": jax.ShapeDtypeStruct((), jnp.int32)},
            backward=lambda args, out, ct: ({"table": args[0]["table"].at[args[1]].set(ct["row"])}, ct["count"]),
        )

    table, index = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([2, 0])
    out = jax.jit(fn)(table, index)
    np.testing.assert_array_equal(out["row"], table[index])
    assert int(out["count"]) == 2
    gradient = jax.jit(jax.grad(lambda t: fn(t, index)["row"].sum()))(table)
    np.testing.assert_array_equal(gradient[index], 1)
    # None says that there is no gradient
    zero = jax.grad(lambda x: gm.opaque(np.sign, x, result=x, backward=lambda args, out, ct: (None,)))(2.0)
    assert zero == 0


def test_the_host_may_change_its_copies_and_give_numbers():
    def host(x):
        x += 1
        return float(x.sum())

    x = np.ones(3, np.float32)
    one_number = jax.ShapeDtypeStruct((), jnp.bfloat16)
    assert jax.jit(lambda x: gm.opaque(host, x, result=one_number))(x) == gm.opaque(host, x, result=one_number) == 6
    assert x.tolist() == [1, 1, 1]


def test_side_effects_happen_as_often_as_the_graph_says():
    seen = []

    def fn(x):
        gm.opaque(lambda x: seen.append(float(x)), x, has_side_effects=True)
        return 2 * x

    jax.block_until_ready(jax.jit(fn)(1.0))
    jax.block_until_ready(jax.jit(jax.vmap(fn))(np.array([2.0, 3.0])))
    jax.block_until_ready(jax.jit(lambda x: lax.fori_loop(0, 2, lambda i, x: fn(x), x))(5.0))
    fn(7.0)
    jax.effects_barrier()
    assert seen == [1, 2, 3, 5, 10, 7]
    pure = []
    jax.block_until_ready(jax.jit(lambda x: (gm.opaque(lambda x: pure.append(1) or x, x, result=x), 2 * x)[1])(1.0))
    assert pure == []


def test_side_effects_in_order_with_a_backward():
    seen = []

    def record(x, name):
        seen.append(name)
        return x

    @jax.jit
    @jax.value_and_grad
    def fn(x):
        for name in "abcde":
            x = 2 * gm.opaque(
                lambda x, name=name: record(x, name),
                x,
                result=x,
                has_side_effects=True,
                ordered=True,
                backward=lambda args, out, ct: ct,
            )
        return x

    assert [float(y) for y in fn(1.0)] == [32, 32]
    jax.effects_barrier()
    assert seen == list("abcde")


def test_time_and_random_numbers_are_drawn_at_each_run():
    """H06: what Python reads while it traces is a constant; an argument, a key, or a box with side effects is not."""
    ticks = iter(range(100))

    def clock():
        return np.int32(next(ticks))

    frozen = jax.jit(lambda: jnp.asarray(clock()))
    assert [int(frozen()) for _ in range(2)] == [0, 0]
    number = jax.ShapeDtypeStruct((), jnp.int32)
    running = jax.jit(lambda: gm.opaque(clock, result=number, has_side_effects=True))
    assert [int(running()) for _ in range(3)] == [1, 2, 3]
    draw = jax.jit(lambda key: jax.random.normal(key))
    keys = jax.random.split(jax.random.key(0))
    assert draw(keys[0]) != draw(keys[1])
    assert draw(keys[0]) == draw(keys[0])


def test_a_tensor_as_list_index_and_as_key():
    """H07: a list of arrays is stacked and read by `jnp.take`; functions are picked by `lax.switch`."""
    rows = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    table = {"relu": jax.nn.relu, "tanh": jnp.tanh}
    eager_table = [torch.relu, torch.tanh]

    @jax.jit
    def fn(i, k, x):
        # `fill` makes a wrong index NaN, where the default would read the last row; -1 wraps in every mode
        row = jnp.take(jnp.stack(rows), jnp.where(i < 0, len(rows), i), axis=0, mode="fill")
        return row, lax.switch(k, list(table.values()), x)

    for i, k in ((0, 0), (2, 1), (1, 1)):
        row, y = fn(i, k, -0.5)
        np.testing.assert_array_equal(row, rows[torch.tensor(i)])
        np.testing.assert_allclose(y, eager_table[torch.tensor(k)](torch.tensor(-0.5)), rtol=1e-6)
    assert np.isnan(fn(3, 0, 0.0)[0]).all()
    assert np.isnan(fn(-1, 0, 0.0)[0]).all()


def test_one_compilation_for_all_values():
    traces = []

    @jax.jit
    def fn(x):
        traces.append(1)
        return gm.opaque(np.sin, x, result=x)

    for x in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(fn(x), np.sin(np.float32(x)), rtol=1e-6)
    assert len(traces) == 1


WRONG = [
    (lambda x: x[:2], jax.ShapeDtypeStruct((3,), jnp.float32), r"float32\[2\], and float32\[3\] was expected"),
    (lambda x: x > 0, jax.ShapeDtypeStruct((3,), jnp.float32), r"bool\[3\], and float32\[3\] was expected"),
    (lambda x: x, jax.ShapeDtypeStruct((3,), jnp.int32), r"float32\[3\], and int32\[3\] was expected"),
    (lambda x: (x, x), jax.ShapeDtypeStruct((3,), jnp.float32), r"PyTreeDef\(\(\*, \*\)\), and PyTreeDef\(\*\) was"),
    (
        lambda x: {"a": x[0]},
        {"a": jax.ShapeDtypeStruct((3,), jnp.float32)},
        r"float32\[\] at \['a'\], and float32\[3\]",
    ),
    (lambda x: 2**40, jax.ShapeDtypeStruct((), jnp.int32), "integers that int32 does not hold"),
    (lambda x: None, jax.ShapeDtypeStruct((), jnp.int32), "PyTreeDef"),
]


@pytest.mark.parametrize(("host", "result", "names"), WRONG)
def test_a_wrong_result_says_what_came_and_what_was_expected(host, result, names):
    x = np.ones(3, np.float32)
    with pytest.raises(ValueError, match=names):
        gm.opaque(host, x, result=result)
    with pytest.raises(jax.errors.JaxRuntimeError, match=names):
        jax.block_until_ready(jax.jit(lambda x: gm.opaque(host, x, result=result))(x))


def fails(x):
    raise RuntimeError("no such file")


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda x: gm.opaque(3, x), TypeError, "fn is 3"),
        (lambda x: gm.opaque(np.sin, x, backward=3), TypeError, r"backward of opaque\(sin\) is 3"),
        (lambda x: gm.opaque(np.sin, x, vmap_method="loop"), ValueError, "vmap_method of .* is 'loop'"),
        (lambda x: gm.opaque(np.sin, x, ordered=True), ValueError, "give has_side_effects=True"),
        (lambda x: gm.opaque(np.sum, x, "sum"), TypeError, "an argument of opaque.sum. is 'sum'.*close over"),
        (lambda x: gm.opaque(fails, x), ValueError, r"opaque\(fails\) has no result, and fails on zeros"),
        (
            lambda x: gm.opaque(np.sin, x, vmap_method="expand_dims", has_side_effects=True),
            ValueError,
            "with side effects it is 'sequential'",
        ),
        (
            lambda x: gm.opaque(np.sin, x, backward=lambda args, out, ct: (ct, ct)),
            ValueError,
            "gives 2 cotangents, and a tuple of 1 was wanted",
        ),
        (
            lambda x: gm.opaque(np.sin, x, backward=lambda args, out, ct: ct.sum()),
            ValueError,
            r"gives float32\[\] for argument 0, and float32\[3\] was wanted",
        ),
    ],
)
def test_bad_input(wrap, call, error, names):
    with pytest.raises(error, match=names):
        wrap(call)(jnp.ones(3, jnp.float32))
