"""`gm.debug_print`: a line for each lane that asks for one, wherever in a graph."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import graphmode as gm


@pytest.fixture
def printed(capsys):
    def lines():
        jax.effects_barrier()
        return capsys.readouterr().out.splitlines()

    return lines


def every_third(x):
    def step(total, i):
        total = total + x
        gm.debug_print("step {i} total {total}", i=i, total=total, when=i % 3 == 2)
        return total, total

    return lax.scan(step, 0 * x, jnp.arange(6))[0]


def eager_every_third(x):
    total = 0 * x
    for i in range(6):
        total = total + x
        if i % 3 == 2:
            print(f"step {i} total {float(total)}")
    return total


def test_prints_what_the_eager_loop_prints(printed):
    eager_every_third(torch.tensor(1.5))
    wanted = printed()
    for graph in (every_third, jax.jit(every_third), jax.jit(jax.grad(every_third)), jax.grad(jax.jit(every_third))):
        graph(1.5)
        assert printed() == wanted


def halved(x):
    """A branch with a print in it: the branch's own predicate goes into `when`."""
    large = x > 2

    def yes(x):
        gm.debug_print("{x} is large", x=x, when=large)
        return x / 2

    return lax.cond(large, yes, lambda x: x, x)


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
def test_only_the_lanes_that_take_the_branch(wrap, printed):
    x = np.array([1.0, 3.0, 2.0, 4.0])
    wrap(halved)(3.0)
    assert printed() == ["3.0 is large"]
    wrap(jax.vmap(halved))(x)
    assert printed() == ["3.0 is large", "4.0 is large"]
    wrap(jax.vmap(jax.grad(halved)))(x)
    assert printed() == ["3.0 is large", "4.0 is large"]
    wrap(jax.vmap(jax.vmap(halved)))(x.reshape(2, 2))
    assert printed() == ["3.0 is large", "4.0 is large"]


def test_the_plain_print_prints_for_all_lanes(printed):
    """The fault that this is for; a form of ours without the predicate would be caught by the test above."""

    def plain(x):
        return lax.cond(x > 2, lambda x: jax.debug.print("{x} is large", x=x) or x / 2, lambda x: x, x)

    jax.jit(jax.vmap(plain))(np.array([1.0, 3.0]))
    assert printed() == ["1.0 is large", "3.0 is large"]


def test_no_call_of_the_host_where_no_lane_asks(monkeypatch):
    calls = []
    monkeypatch.setattr("graphmode.ops.host.callback._lanes_where", lambda *args: calls.append(args) or [])

    def fn(x):
        gm.debug_print("{x}", x=x, when=x > 10)
        return x

    jax.block_until_ready(jax.jit(fn)(1.0))
    jax.block_until_ready(jax.jit(jax.vmap(fn))(np.arange(3.0)))
    jax.effects_barrier()
    assert calls == []
    jax.block_until_ready(jax.jit(jax.vmap(fn))(np.arange(30.0)))
    jax.effects_barrier()
    assert len(calls) == 1


def test_ordered_lines_come_in_program_order_also_under_vmap(printed):
    def fn(x):
        for name in "abc":
            gm.debug_print("{} {x}", name, x=x, ordered=True)
        return x

    jax.jit(fn)(1)
    assert printed() == ["a 1", "b 1", "c 1"]
    jax.jit(jax.vmap(fn))(np.arange(2))
    assert printed() == ["a 0", "a 1", "b 0", "b 1", "c 0", "c 1"]


def test_in_a_while_loop(printed):
    def fn(n):
        def body(i):
            gm.debug_print("{i}", i=i, when=(i % 2 == 0) & (i < n))
            return i + 1

        return lax.while_loop(lambda i: i < n, body, 0)

    jax.jit(fn)(3)
    assert printed() == ["0", "2"]
    # finished lanes run on with the others, and `when` keeps them quiet
    jax.jit(jax.vmap(fn))(np.array([1, 4]))
    assert printed() == ["0", "0", "2"]


def test_formats(printed):
    @jax.jit
    def fn(x, key):
        gm.debug_print("{} {:.2f} {name} {x.shape} {tree}", 3, x[0], name="a", x=x, tree=[x[1]])

    fn(np.array([0.125, 1.0], np.float32), 0)
    assert printed() == ["3 0.12 a (2,) [np.float32(1.0)]"]


def test_export_and_one_compilation(printed):
    traces = []

    @jax.jit
    def fn(x):
        traces.append(1)
        gm.debug_print("{x}", x=x)
        return x

    fn(1.0), fn(2.0)
    assert len(traces) == 1
    assert printed() == ["1.0", "2.0"]
    with gm.no_callbacks():
        assert jax.export.export(fn)(1.0).call(3.0) == 3
    assert printed() == []


@pytest.mark.parametrize("wrap", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda x: gm.debug_print("{y}", x=x), ValueError, "fmt '{y}' does not fit the values given .x"),
        (lambda x: gm.debug_print("{}"), ValueError, "does not fit the values given .none"),
        (lambda x: gm.debug_print("hm", x=x), ValueError, "does not show x"),
        (lambda x: gm.debug_print("{x:.2f}", x=x), ValueError, "format arrays without a spec"),
        (lambda x: gm.debug_print("{x}", x=x, when=x), TypeError, "when has dtype float32"),
        (lambda x: gm.debug_print("{x}", x=x, when=x > 0), ValueError, r"when has shape \(3,\)"),
        (lambda x: gm.debug_print(x), TypeError, "a format string was wanted"),
    ],
)
def test_bad_input(wrap, call, error, names):
    with pytest.raises(error, match=names):
        wrap(call)(jnp.ones(3, jnp.float32))
