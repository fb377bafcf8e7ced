"""`gm.check`: the error comes, once, with its values, from wherever in a graph the check is."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import graphmode as gm

Raised = (gm.CheckError, jax.errors.JaxRuntimeError)
GOOD, BAD = np.array([1.0, 4.0], np.float32), np.array([1.0, -4.0], np.float32)


def roots(x):
    gm.check(x >= 0, "root of {x}", x=x)
    return jnp.sqrt(x)


def unused(x):
    gm.check(x.min() >= 0, "{x} has a negative entry", x=x)
    return jnp.zeros(3)


def in_scan(x):
    def step(carry, xi):
        gm.check(xi >= 0, "negative: {xi}", xi=xi)
        return carry + xi, None

    return lax.scan(step, jnp.zeros((), x.dtype), x)[0]


def in_while(x):
    def body(state):
        i, total = state
        gm.check(x[i] >= 0, "entry {i} is {xi}", i=i, xi=x[i])
        return i + 1, total + x[i]

    return lax.while_loop(lambda state: state[0] < 2, body, (0, jnp.zeros((), x.dtype)))[1]


def in_fori(x):
    def body(i, total):
        gm.check(x[i] >= 0, "entry {i} is {xi}", i=i, xi=x[i])
        return total + x[i]

    return lax.fori_loop(0, 2, body, jnp.zeros((), x.dtype))


def in_branch(x):
    def fail():
        gm.check(False, "not for {x}", x=x)
        return 0.0

    return lax.cond((x < 0).any(), fail, lambda: 1.0)


def overflowing(x):
    return gm.compact(x, x < 0, capacity=1, on_overflow="raise").values.sum() + jnp.minimum(0, x.min())


def nested_jit(x):
    return jax.jit(roots)(x)


@jax.custom_vjp
def with_own_gradient(x):
    return roots(x).sum()


with_own_gradient.defvjp(lambda x: (roots(x).sum(), x), lambda x, ct: (ct * x,))

PLACES = [roots, unused, in_scan, in_while, in_fori, in_branch, nested_jit, with_own_gradient, jax.checkpoint(roots)]
REVERSIBLE = [roots, unused, in_scan, in_branch, nested_jit, with_own_gradient, jax.checkpoint(roots)]
VMAPPED = [roots, unused, in_scan, nested_jit, with_own_gradient, jax.checkpoint(roots), in_fori, in_while]


def name_of(fn):
    return getattr(fn, "__name__", "checkpoint")


@pytest.mark.parametrize("fn", PLACES, ids=name_of)
def test_a_failing_check_raises_and_leaves_nothing_behind(fn):
    graph = jax.jit(fn)
    for _ in range(2):
        jax.block_until_ready(graph(GOOD))
        with pytest.raises(jax.errors.JaxRuntimeError, match="-4"):
            jax.block_until_ready(graph(BAD))
        jax.effects_barrier()
    checked = gm.checked(graph)
    for _ in range(2):
        np.testing.assert_array_equal(checked(GOOD), graph(GOOD))
        with pytest.raises(gm.CheckError, match="-4"):
            checked(BAD)
    jax.effects_barrier()


@pytest.mark.parametrize("fn", REVERSIBLE, ids=name_of)
def test_gradients(fn):
    def loss(x):
        return fn(x).sum()

    for graph in (gm.checked(jax.jit(jax.grad(loss))), gm.checked(jax.grad(jax.jit(loss))), gm.checked(jax.grad(loss))):
        assert np.isfinite(graph(GOOD)).all()
        with pytest.raises(gm.CheckError, match="-4"):
            graph(BAD)


@pytest.mark.parametrize("fn", VMAPPED, ids=name_of)
@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
def test_vmap_names_the_lanes(fn, wrap):
    graph = gm.checked(wrap(jax.vmap(fn)))
    lanes = np.stack([GOOD, BAD, GOOD, BAD])
    graph(lanes[::2])
    with pytest.raises(gm.CheckError, match=r"-4.*\(in lanes 1, 3 of 4 under vmap; the values are those of the first"):
        graph(lanes)


def test_nested_vmap_and_values_that_are_not_mapped():
    def fn(x, limit, name):
        gm.check(x < limit, "{name}: {x} is over {limit}", x=x, limit=limit, name="level")
        return x

    graph = gm.checked(jax.jit(jax.vmap(jax.vmap(lambda x, y: fn(x, y, "level"), (0, None)), (0, 0))))
    with pytest.raises(gm.CheckError, match=r"^level: 7.0 is over 6.0 \(in lane \(1, 2\) of 2 x 3 under vmap\)$"):
        graph(np.array([[1, 2, 3], [1, 2, 7.0]]), np.array([4.0, 6.0]))
    # a predicate that is the same in all lanes fails in all of them, and where nothing is mapped there are no lanes
    for limit, wanted in ((lambda x: 1 + 0 * x, r"over 1.0 \(in lanes 0, 1 of 2"), (lambda x: 1.0, r"over 1.0$")):
        with pytest.raises(gm.CheckError, match=wanted):
            gm.checked(jax.jit(jax.vmap(lambda x, y, limit=limit: fn(y, limit(x), ""), (0, None))))(np.zeros(2), 5.0)


def test_grad_of_vmap_and_vmap_of_grad():
    lanes = np.stack([GOOD, BAD])
    for fn in (jax.vmap(jax.grad(lambda x: roots(x).sum())), jax.grad(lambda x: jax.vmap(roots)(x).sum())):
        with pytest.raises(gm.CheckError, match=r"lane 1 of 2"):
            gm.checked(jax.jit(fn))(lanes)
    for fn in (jax.jacfwd(roots), jax.hessian(lambda x: roots(x).sum())):
        with pytest.raises(gm.CheckError, match="-4"):
            gm.checked(jax.jit(fn))(BAD)


def test_outside_jit_it_is_a_plain_value_error():
    with pytest.raises(gm.CheckError, match=r"root of \[ 1. -4.\] \(1 of 2 entries do not hold, the first at \[1\], "):
        roots(BAD)
    with pytest.raises(ValueError, match=r"where x is -4\.0"):
        jax.grad(lambda x: roots(x).sum())(BAD)
    assert issubclass(gm.CheckError, ValueError)


def test_the_message_is_short_and_names_every_value():
    x = np.arange(10_000.0, dtype=np.float32)
    with pytest.raises(gm.CheckError) as caught:
        gm.checked(jax.jit(lambda x: gm.check(x < 9_999, "too large", x=x, limit=9_999)))(x)
    text = str(caught.value)
    assert text.startswith("too large; x is [")
    assert "limit is 9999" in text
    assert "the first at [9999], where x is 9999.0" in text
    assert len(text) < 250


@pytest.mark.parametrize(
    ("message", "values", "wanted"),
    [
        ("{loss:.2f}", {"loss": np.float32(0.125)}, "0.12"),
        ("{n}", {"n": 3}, "3"),
        ("{n:d}", {"n": np.int32(3)}, "3"),
        ("{x.shape} {x[1]}", {"x": np.arange(3)}, "(3,) 1"),
        ("{b:.1f}", {"b": jnp.bfloat16(1.5)}, "1.5"),
        ("{tree}", {"tree": {"a": np.float32(1)}}, "{'a': np.float32(1.0)}"),
        ("{{}}", {}, "{}"),
        ("{key}", {"key": jax.random.key(3)}, "[0 3]"),
    ],
)
def test_formats(message, values, wanted):
    with pytest.raises(gm.CheckError) as caught:
        gm.checked(jax.jit(lambda ok, arrays: gm.check(ok, message, **values)))(False, 0)
    assert str(caught.value) == wanted


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("arguments", "error", "names"),
    [
        (lambda x: (x, "m", {}), TypeError, "ok has dtype float32, and bool was wanted"),
        (lambda x: (x > 0, "value {y}", {"x": x}), ValueError, "message 'value {y}' does not fit .*x"),
        (lambda x: (x > 0, "value {", {}), ValueError, "double literal braces"),
        (lambda x: (x > 0, "{x:.2f}", {"x": x}), ValueError, "arrays without a spec"),
        (lambda x: (x > 0, 3, {}), TypeError, "message is 3"),
    ],
)
def test_bad_input(wrap, arguments, error, names):
    def use(x):
        ok, message, values = arguments(x)
        gm.check(ok, message, **values)

    with pytest.raises(error, match=names):
        wrap(use)(jnp.ones(2, jnp.float32))


def test_other_errors_pass_through_checked():
    def host(x):
        raise RuntimeError("of another kind")

    with pytest.raises(Exception, match="of another kind") as caught:
        gm.checked(jax.jit(lambda x: jax.debug.callback(host, x)))(1.0)
    assert not isinstance(caught.value, gm.CheckError)
    with pytest.raises(TypeError, match="unsupported operand"):
        gm.checked(jax.jit(lambda x: x - "a"))(1.0)


def test_one_compilation_for_all_values_and_no_call_of_the_host_where_it_holds(monkeypatch):
    traces = []

    @jax.jit
    def graph(x):
        traces.append(x)
        return roots(x)

    for value in (1.0, 2.0, 3.0):
        graph(np.full(2, value))
    assert len(traces) == 1
    # the callback is inside the branch that a check which holds does not take
    jaxpr = str(jax.make_jaxpr(lambda x: roots(x))(GOOD))
    assert jaxpr.index("cond") < jaxpr.index("debug_callback")


def test_lanes_that_take_no_part():
    """Both sides of a vmapped cond run, so the branch's predicate goes into the check."""

    def side(x, *, takes_part):
        gm.check((x >= 0) | ~takes_part, "negative: {x}", x=x)
        return jnp.sqrt(x)

    def fn(x):
        positive = x >= 0
        return lax.cond(positive, lambda: side(x, takes_part=positive), lambda: 0.0)

    assert gm.checked(jax.jit(jax.vmap(fn)))(BAD).tolist() == [1, 0]


def test_overflow_raises_with_both_numbers():
    x = -np.arange(1.0, 4.0)
    for wrap in (lambda fn: fn, jax.jit):
        with pytest.raises(gm.CheckError, match="compact found 3 entries, and its capacity is 1"):
            gm.checked(wrap(overflowing))(x)
    with pytest.raises(gm.CheckError, match="in lane 1 of 2"):
        gm.checked(jax.jit(jax.vmap(overflowing)))(np.stack([np.ones(3), x]))


def test_export():
    graph = jax.jit(roots)
    np.testing.assert_array_equal(graph(GOOD), [1, 2])
    with pytest.raises(NotImplementedError, match="host_callbacks"):
        jax.export.export(graph)(GOOD)
    with gm.no_callbacks():
        exported = jax.export.export(graph)(GOOD)
    np.testing.assert_array_equal(jax.export.deserialize(exported.serialize()).call(GOOD), [1, 2])
    # what was traced for export is not what runs afterwards
    with pytest.raises(gm.CheckError):
        gm.checked(graph)(BAD)


def test_the_process_ends_quietly_after_an_error():
    code = textwrap.dedent("""
        import logging; logging.disable(logging.CRITICAL)
        import jax, jax.numpy as jnp, graphmode as gm
        @jax.jit
        def root(x):
            gm.check(x >= 0, "root of {x}", x=x)
            return jnp.sqrt(x)
        for call in (gm.checked(root), root):
            try:
                jax.block_until_ready(call(-4.0))
            except (ValueError, jax.errors.JaxRuntimeError) as error:
                print(type(error).__name__)
    """)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["CheckError", "JaxRuntimeError"]
    assert "Traceback" not in ended.stderr


def silent_under_vmap(ok, message, **values):
    """A planted fault: the form of a first try, a callback under a cond, which a vmap would make for every lane."""

    def look(ok, values):
        raise ValueError(message.format(**values))

    lax.cond(jnp.all(ok), lambda ok, values: None, lambda ok, values: jax.debug.callback(look, ok, values), ok, values)


def test_a_callback_under_a_cond_would_accuse_good_lanes(monkeypatch):
    monkeypatch.setattr(gm, "check", silent_under_vmap)
    with pytest.raises(Raised):
        jax.block_until_ready(jax.jit(jax.vmap(roots))(np.stack([GOOD, GOOD])))
