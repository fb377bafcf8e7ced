"""`gm.cond` and `gm.switch` against eager PyTorch's `if` and list of functions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, run, values_of
from flax import nnx
from hypothesis import strategies as st
from nnx_training import value_and_gradient

import graphmode as gm

MODES = ("select", "branch")
SIZES = st.fixed_dictionaries({"size": st.sampled_from([0, 5]), "under_vmap": st.sampled_from(MODES)})


def vector_and_weight(rng, c, dtype):
    return {"x": values_of(rng, c.size, dtype, special=False), "w": values_of(rng, (), dtype, special=False)}


def with_index(rng, c, dtype):
    return {**vector_and_weight(rng, c, dtype), "i": np.int32(rng.integers(3))}


def positive(x):
    return (x > 0).any()


def two_way(c, x, w):
    # w is closed over, x is an operand
    return gm.cond(
        positive(x),
        lambda x: {"y": x * w, "n": jnp.int32(1)},
        lambda x: {"y": x, "n": jnp.int32(2)},
        x,
        under_vmap=c.under_vmap,
    )


def eager_two_way(c, x, w):
    if positive(x):
        return {"y": x * w, "n": torch.tensor(1)}
    return {"y": x, "n": torch.tensor(2)}


COND = Differential("cond", SIZES, vector_and_weight, two_way, eager_two_way, gradients=("x", "w"))
COND_BOOL = dataclasses.replace(
    COND,
    ours=lambda c, x, w: gm.cond(w, lambda x: ~x, lambda x: x, x, under_vmap=c.under_vmap),
    eager=lambda c, x, w: ~x if w else x,
    dtypes=("bool",),
)
COND = dataclasses.replace(COND, dtypes=(*FLOATING, "int32"))
BRANCHES = [lambda x, w: x * w, lambda x, w: x - w, lambda x, w: x]
SWITCH = Differential(
    "switch",
    SIZES,
    with_index,
    lambda c, x, w, i: gm.switch(i, BRANCHES, x, w, on_out_of_range="clamp", under_vmap=c.under_vmap),
    lambda c, x, w, i: BRANCHES[int(i)](x, w),
    dtypes=(*FLOATING, "int32"),
    gradients=("x", "w"),
)


def nested(c, x, w):
    return gm.cond(
        positive(x),
        lambda x: gm.cond(w > 0, lambda x: x * w, lambda x: x - w, x, under_vmap=c.under_vmap),
        lambda x: -x,
        x,
        under_vmap=c.under_vmap,
    )


def eager_nested(c, x, w):
    if positive(x):
        if w > 0:
            return x * w
        return x - w
    return -x


NESTED = Differential("nested cond", SIZES, vector_and_weight, nested, eager_nested, ("float64",), ("x", "w"))


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([COND, COND_BOOL, SWITCH, NESTED]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def swapped(c, x, w):
    return gm.cond(~positive(x), lambda x: {"y": x * w, "n": jnp.int32(1)}, lambda x: {"y": x, "n": jnp.int32(2)}, x)


def detached(c, x, w):
    return two_way(c, x, jax.lax.stop_gradient(w))


def one_off(c, x, w, i):
    return gm.switch(i + 1, BRANCHES, x, w, on_out_of_range="clamp")


@pytest.mark.slow
@pytest.mark.parametrize(("one", "fault"), [(COND, swapped), (COND, detached), (SWITCH, one_off)])
def test_a_planted_fault_is_caught(one, fault):
    few = st.just({"size": 5, "under_vmap": "select"})
    assert is_caught(dataclasses.replace(one, configs=few, ours=fault))


def roots(x, scale, mode):
    return gm.cond(x > 0, lambda x: jnp.sqrt(x) * scale, lambda x: scale * x * x, x, under_vmap=mode)


def eager_roots(x, scale):
    return torch.sqrt(x) * scale if x > 0 else scale * x * x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lanes", [[4.0, 9.0], [-1.0, 0.0], [4.0, -1.0, 0.0, 9.0]], ids=["all", "none", "mixed"])
def test_gradients_under_vmap_are_free_of_the_branch_not_taken(mode, lanes):
    with jax.enable_x64(True):
        x, scale = np.array(lanes), np.float64(1.5)

        def total(x, scale):
            return jax.vmap(roots, (0, None, None))(x, scale, mode).sum()

        values, gradients = jax.jit(jax.value_and_grad(total, (0, 1)))(x, scale)
        tensors = torch.tensor(x, requires_grad=True), torch.tensor(scale, requires_grad=True)
        wanted = sum(eager_roots(one, tensors[1]) for one in tensors[0])
        wanted.backward()
        np.testing.assert_allclose(values, wanted.item(), rtol=1e-14)
        for ours, theirs in zip(gradients, tensors, strict=True):
            np.testing.assert_allclose(ours, theirs.grad, rtol=1e-14)
        forward = jax.jvp(total, (x, scale), (np.ones_like(x), np.float64(0)))[1]
        np.testing.assert_allclose(forward, tensors[0].grad.sum(), rtol=1e-14)
        each = jax.vmap(jax.grad(roots), (0, None, None))(x, scale, mode)
        np.testing.assert_allclose(each, tensors[0].grad, rtol=1e-14)
        twice = jax.grad(lambda scale: total(x, scale) ** 2)(scale)
        np.testing.assert_allclose(twice, 2 * wanted.item() * tensors[1].grad, rtol=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_under_nested_vmap(mode):
    x = np.array([[4.0, -1.0, 0.0], [-1.0, -2.0, -3.0], [1.0, 9.0, 16.0]], np.float32)
    inner = jax.vmap(roots, (0, None, None))
    gradient = jax.jit(jax.grad(lambda x, s: jax.vmap(inner, (0, None, None))(x, s, mode).sum(), (0, 1)))(x, 1.5)
    tensors = torch.tensor(x, requires_grad=True), torch.tensor(1.5, requires_grad=True)
    sum(eager_roots(one, tensors[1]) for one in tensors[0].flatten()).backward()
    np.testing.assert_allclose(gradient[0], tensors[0].grad, rtol=1e-6)
    np.testing.assert_allclose(gradient[1], tensors[1].grad, rtol=1e-6)
    columns = jax.vmap(jax.vmap(roots, (0, 0, None)), (None, 0, None))  # predicates mapped inside alone
    x, scales = x[0], np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], np.float32)
    got = jax.grad(lambda x: columns(x, scales, mode).sum())(x)
    wanted = torch.tensor(x, requires_grad=True)
    sum(eager_roots(a, s) for row in torch.tensor(scales) for a, s in zip(wanted, row, strict=True)).backward()
    np.testing.assert_allclose(got, wanted.grad, rtol=1e-6)


def test_a_branch_that_no_lane_takes_is_not_run():
    runs = []

    def costly(x):
        jax.debug.callback(lambda _: runs.append(1), x)
        return jnp.sin(x)

    mapped = jax.vmap(lambda p, x: gm.cond(p, costly, lambda x: x, x, under_vmap="branch"))
    gradient = jax.jit(jax.grad(lambda x, p: mapped(p, x).sum()))
    x = jnp.arange(4.0)
    for lanes, ran in ((np.zeros(4, bool), False), (np.ones(4, bool), True), (np.arange(4) == 2, True)):
        for f in (lambda x, p: jax.jit(mapped)(p, x), gradient):
            runs.clear()
            jax.block_until_ready(f(x, lanes))
            jax.effects_barrier()
            assert bool(runs) == ran
    text = jax.jit(mapped).lower(x > 0, x).as_text()
    assert "stablehlo.case" in text
    plain = jax.jit(jax.vmap(lambda p, x: jax.lax.cond(p, jnp.sin, lambda x: x, x)))
    assert "stablehlo.case" not in plain.lower(x > 0, x).as_text()


def test_weights_are_not_copied_for_each_lane():
    weight, x = jnp.ones((8, 8)), jnp.ones((5, 8))
    mapped = jax.vmap(lambda p, x: gm.cond(p, lambda x: weight @ x, lambda x: x, x, under_vmap="branch"))
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda x, p: mapped(p, x).sum()))(x, x[:, 0] > 0))
    assert "[5,8,8]" not in jaxpr


class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, momentum=0.9, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.Variable(jnp.int32(0))

    def __call__(self, x):
        self.calls[...] += 1
        return self.drop(self.norm(self.linear(x)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taken", [True, False])
def test_modules_change_where_their_branch_is_taken(mode, taken):
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)

    def ours(net):
        y, same = gm.cond(
            jnp.asarray(taken), lambda net, x: (net(x), net), lambda net, x: (2 * x, net), net, x, under_vmap=mode
        )
        assert same is net
        return (y**2).sum()

    def eager(net):
        return ((net(x) if taken else 2 * x) ** 2).sum()

    net, wanted = Net(), Net()
    value, gradient = value_and_gradient(ours, net, jit=True)
    eager_value, eager_gradient = value_and_gradient(eager, wanted)
    np.testing.assert_allclose(value, eager_value, rtol=1e-6)
    for a, b in zip(gradient, eager_gradient, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert int(net.calls[...]) == int(wanted.calls[...]) == taken
    np.testing.assert_allclose(net.norm.mean[...], wanted.norm.mean[...], rtol=1e-6)
    np.testing.assert_array_equal(net.drop.rngs.count[...], wanted.drop.rngs.count[...])


def test_a_module_given_twice_is_one_module():
    net = Net()

    def both(a, b):
        a.calls[...] += 1
        b.calls[...] += 1
        return b.calls[...]

    assert int(gm.cond(True, both, lambda a, b: a.calls[...], net, net)) == 2
    assert int(net.calls[...]) == 2


def test_a_module_that_is_only_read_may_come_from_outside_a_vmap():
    net = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    x = jnp.linspace(-1, 1, 12).reshape(4, 3)
    operand = jax.vmap(lambda x: gm.cond(x[0] > 0, lambda net, x: net(x), lambda net, x: x, net, x))(x)
    closure = jax.vmap(lambda x: gm.cond(x[0] > 0, net, lambda x: x, x))(x)
    wanted = np.where(x[:, :1] > 0, net(x), x)
    np.testing.assert_allclose(operand, wanted, rtol=1e-6)
    np.testing.assert_allclose(closure, wanted, rtol=1e-6)


def test_variables_states_and_new_modules_go_through():
    count = nnx.Variable(jnp.int32(3))

    def add(count):
        count[...] += 1

    gm.cond(True, add, lambda count: None, count)
    assert int(count[...]) == 4
    graphdef, state = nnx.split(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    doubled = gm.cond(True, lambda s: jax.tree.map(lambda x: 2 * x, s), lambda s: s, state)
    np.testing.assert_array_equal(nnx.merge(graphdef, doubled).kernel[...], 2 * nnx.merge(graphdef, state).kernel[...])
    made = gm.cond(True, lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0)), lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(1)))
    np.testing.assert_array_equal(made.kernel[...], nnx.Linear(2, 2, rngs=nnx.Rngs(0)).kernel[...])


def test_python_numbers_take_the_dtype_of_the_other_branch():
    assert gm.cond(True, lambda: 1, lambda: jnp.bfloat16(2)).dtype == jnp.bfloat16
    assert gm.switch(2, [lambda: jnp.float32(1), lambda: 2, lambda: 3.0]).dtype == jnp.float32
    assert gm.cond(True, lambda: 1, lambda: 2.0).dtype == jnp.float32


def test_keys_and_empty_results():
    key = jax.random.key(1)
    for mode in MODES:
        got = gm.cond(True, lambda k: jax.random.split(k)[0], lambda k: k, key, under_vmap=mode)
        assert (jax.random.key_data(got) == jax.random.key_data(jax.random.split(key)[0])).all()
    assert gm.cond(True, lambda: None, lambda: None) is None


X = np.ones(2, np.float32)
UNFIT = [
    (lambda: gm.cond(X > 0, lambda: 1, lambda: 2), ValueError, ["pred", "bool[2]", "jnp.where", "vmap"]),
    (lambda: gm.cond(1, lambda: 1, lambda: 2), ValueError, ["pred", "int32", "!= 0"]),
    (lambda: gm.cond(jnp.float32(1), lambda: 1, lambda: 2), ValueError, ["pred", "float32"]),
    (lambda: gm.cond(True, lambda: {"a": X}, lambda: {"a": X[:1]}), TypeError, ["['a']", "[2]", "[1]", "true_fn"]),
    (lambda: gm.cond(True, lambda: X, lambda: X.astype(int)), TypeError, ["float32[2]", "int32[2]", "false_fn"]),
    (lambda: gm.cond(True, lambda: {"a": X}, lambda: {"b": X}), TypeError, ["['a']", "['b']"]),
    (lambda: gm.cond(True, lambda: (X, X), lambda: [X, X]), TypeError, ["containers"]),
    (lambda: gm.cond(True, lambda: 1.5, lambda: jnp.int32(2)), TypeError, ["float32", "int32"]),
    (lambda: gm.cond(True, lambda: "a", lambda: "a"), TypeError, ["'a'", "arrays"]),
    (lambda: gm.cond(True, lambda: 1, lambda: 2, under_vmap="both"), ValueError, ["under_vmap", "both"]),
    (lambda: gm.switch(0, []), ValueError, ["branches", "empty"]),
    (lambda: gm.switch(1.0, [lambda: 1]), ValueError, ["index", "float32"]),
    (lambda: gm.switch(True, [lambda: 1]), ValueError, ["index", "bool", "cond"]),
    (lambda: gm.switch(X.astype(int), [lambda: 1]), ValueError, ["index", "[2]", "vmap"]),
    (lambda: gm.switch(0, [lambda: X, lambda: X[:1]]), TypeError, ["branches[0]", "branches[1]", "[2]", "[1]"]),
    (lambda: gm.switch(0, [lambda: 1, lambda: 2], on_out_of_range="nan"), ValueError, ["nan", "int32"]),
    (lambda: gm.switch(0, [lambda: 1], on_out_of_range="wrap"), ValueError, ["on_out_of_range", "wrap"]),
]


@pytest.mark.parametrize(("call", "kind", "words"), UNFIT)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(call, kind, words, wrap):
    with pytest.raises(kind) as error:
        wrap(call)()
    assert all(word in str(error.value) for word in words)


def test_a_module_that_changes_its_structure_or_is_closed_over_and_changed_is_refused():
    net = Net()

    def grows(net):
        net.more = nnx.Variable(jnp.ones(2))

    with pytest.raises(TypeError, match="structure of a module"):
        gm.cond(True, grows, lambda net: None, net)

    def reshapes(net):
        net.calls[...] = jnp.zeros(2, jnp.int32)

    with pytest.raises((TypeError, ValueError), match=r"calls|shape"):
        gm.cond(True, reshapes, lambda net: None, net)
    with pytest.raises(Exception, match="trace level") as error:
        gm.cond(True, lambda: net(jnp.ones((4, 3))), lambda: jnp.ones((4, 3)))
    assert "operand" in error.value.__notes__[0]
    assert int(net.calls[...]) == 0


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("mode", MODES)
def test_an_index_out_of_range_is_never_silent(index, mode):
    fns = [lambda: 0.0, lambda: 1.0, lambda: 2.0]
    with pytest.raises(IndexError, match=f"{index}.*0 to 2"):
        gm.switch(index, fns)
    compiled = jax.jit(lambda i: gm.switch(i, fns, under_vmap=mode))
    with pytest.raises(Exception, match=f"{index}.*0 to 2"):
        (jax.block_until_ready(compiled(index)), jax.effects_barrier())
    assert np.isnan(jax.jit(lambda i: gm.switch(i, fns, on_out_of_range="nan", under_vmap=mode))(index))
    assert float(gm.switch(index, fns, on_out_of_range="clamp", under_vmap=mode)) == (0 if index < 0 else 2)
    lanes = jax.vmap(lambda i: gm.switch(i, fns, on_out_of_range="nan", under_vmap=mode))(jnp.array([1, index]))
    np.testing.assert_array_equal(lanes, [1, np.nan])


def test_a_wide_index_does_not_wrap():
    with jax.enable_x64(True):
        fns = [lambda: 0.0, lambda: 1.0]
        assert np.isnan(jax.jit(lambda i: gm.switch(i, fns, on_out_of_range="nan"))(np.int64(2**32)))


@pytest.mark.parametrize(("dtype", "branches"), [("int8", 130), ("uint8", 260)])
def test_more_branches_than_a_narrow_index_counts(dtype, branches):
    index, fns = np.dtype(dtype).type(100), [lambda: 0.0] * 100 + [lambda: 1.0] + [lambda: 2.0] * (branches - 101)
    assert float(jax.jit(lambda i: gm.switch(i, fns, on_out_of_range="nan"))(index)) == 1


def test_branches_are_traced_once():
    traces = []

    def noted(name):
        def branch(x):
            traces.append(name)
            return x

        return branch

    run_it = jax.jit(lambda p, x: gm.cond(p, noted("a"), noted("b"), x))
    for p in (True, False, True):
        run_it(p, 1.0)
    assert sorted(traces) == ["a", "b"]


def test_one_conditional_without_vmap():
    text = jax.jit(lambda p, x: gm.cond(p, jnp.sin, jnp.cos, x)).lower(True, 1.0).as_text()
    assert text.count("stablehlo.case") == 1
    assert "callback" not in text


def test_what_is_no_predicate_index_or_list_of_branches():
    with pytest.raises(ValueError, match="pred is None, and a 0-d bool was wanted"):
        gm.cond(None, lambda: 1, lambda: 2)
    with pytest.raises(ValueError, match="index is None, and one integer was wanted"):
        gm.switch(None, [jnp.sin], 1.0)
    functions = {"sin": jnp.sin, "cos": jnp.cos}
    with pytest.raises(TypeError, match=r"branches is a mapping, .* give list\(branches\.values\(\)\), and as index"):
        gm.switch(0, functions, 1.0)
    assert gm.switch(list(functions).index("cos"), list(functions.values()), 0.0) == 1.0
    with pytest.raises(TypeError, match="branches is a function; give a list"):
        gm.switch(0, lambda x: x, 1.0)
    with pytest.raises(TypeError, match=r"branches\[1\] is 3, and a function was wanted"):
        gm.switch(0, [jnp.sin, 3], 1.0)
