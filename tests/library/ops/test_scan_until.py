"""`gm.scan_until` against a loop with `break` and `continue` in eager PyTorch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, padded, run
from flax import nnx
from hypothesis import strategies as st
from nnx_training import value_and_gradient

import graphmode as gm

SIZES = st.fixed_dictionaries({"length": st.sampled_from([0, 1, 40]), "keep_last": st.booleans()})


def sequence(rng, c, dtype):
    xs, h, w = rng.standard_normal((c.length, 2)), rng.standard_normal(2) / 2, rng.standard_normal((2, 2)) / 2
    limit = rng.choice([-9.0, 0.5, 1.2, 9.0])
    return {"xs": xs.astype(dtype), "h": h.astype(dtype), "w": w.astype(dtype), "limit": np.asarray(limit, dtype)}


def rnn(c, xs, h, w, limit):
    def step(h, x):
        h = jnp.tanh(w @ h + x)
        return h, {"h": h, "norm": (h**2).sum()}, h.sum() > limit

    return gm.scan_until(step, h, xs, keep_last=c.keep_last)


def eager_rnn(c, xs, h, w, limit):
    hs, norms, stopped = [], [], False
    for x in xs:
        h = torch.tanh(w @ h + x)
        stopped = bool(h.sum() > limit)
        if stopped and not c.keep_last:
            break
        hs.append(h)
        norms.append((h**2).sum())
        if stopped:
            break
    hs = padded(torch.stack(hs) if hs else xs[:0], c.length)
    norms = padded(torch.stack(norms) if norms else xs[:0, 0], c.length)
    ys = {"values": {"h": hs["values"], "norm": norms["values"]}, "valid": hs["valid"], "count": hs["count"]}
    return h, ys, torch.tensor(stopped)


RNN = Differential("scan_until", SIZES, sequence, rnn, eager_rnn, ("float32", "float64"), ("xs", "h", "w"), exact=False)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([RNN]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def goes_on(c, xs, h, w, limit):
    return rnn(c, xs, h, w, limit + 1)


def other_end(c, xs, h, w, limit):
    return rnn(type(c)(**{**vars(c), "keep_last": not c.keep_last}), xs, h, w, limit)


def adrift(c, xs, h, w, limit):
    carry, ys, stopped = rnn(c, xs, h, w, limit)
    return carry + (w - jax.lax.stop_gradient(w)).sum(), ys, stopped


@pytest.mark.slow
@pytest.mark.parametrize("fault", [goes_on, other_end, adrift])
def test_a_planted_fault_is_caught(fault):
    few = st.fixed_dictionaries({"length": st.just(5), "keep_last": st.booleans()})
    assert is_caught(dataclasses.replace(RNN, configs=few, ours=fault))


def test_under_vmap_gradients_are_those_of_each_lane():
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        xs, starts = rng.uniform(0.1, 1, (4, 40)), np.array([2.0, 9.0, 1.5, 100.0])

        def ours(h, xs):
            # the square root has no finite gradient where a lane that went on would end
            def step(h, x):
                h = jnp.sqrt(jnp.maximum(h - x, 0))
                return h, h * x, h < 1

            h, ys, _ = gm.scan_until(step, h, xs)
            return ys.values.sum() + h, ys.count

        def eager(h, xs):
            total, count = 0, 0
            for x in xs:
                h = torch.sqrt(torch.clamp(h - x, min=0))
                total, count = total + h * x, count + 1
                if h < 1:
                    break
            return total + h, count

        tensors = torch.tensor(starts, requires_grad=True), torch.tensor(xs, requires_grad=True)
        wanted = [eager(*lane) for lane in zip(*tensors, strict=True)]
        sum(total for total, _ in wanted).backward()
        values, counts = jax.vmap(ours)(starts, xs)
        np.testing.assert_allclose(values, [v.item() for v, _ in wanted], rtol=1e-13)
        np.testing.assert_array_equal(counts, [n for _, n in wanted])
        gradients = jax.jit(jax.grad(lambda h, xs: jax.vmap(ours)(h, xs)[0].sum(), (0, 1)))(starts, xs)
        for a, b in zip(gradients, tensors, strict=True):
            np.testing.assert_allclose(a, b.grad, rtol=1e-12)


@pytest.mark.parametrize("length", [3, 7])
def test_a_mapped_graph_within_a_gradient(length):
    # 3 lanes: of 3 steps too, so that axes which change places fit all the same
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        xs, weight = rng.standard_normal((3, length)), rng.standard_normal(length)

        def ours(xs):
            def step(total, x):
                return total + x * x, jnp.sin(total + x), total > 1

            return jnp.sum(gm.scan_until(step, jnp.zeros(()), xs)[1].values * weight)

        def eager(xs):
            total, loss = torch.zeros((), dtype=xs.dtype), 0
            for x, w in zip(xs, weight, strict=True):
                loss, total, stops = loss + torch.sin(total + x) * w, total + x * x, total > 1
                if stops:
                    break
            return loss

        lanes = torch.tensor(xs, requires_grad=True)
        sum(map(eager, lanes)).backward()

        def mapped(xs):
            return jax.vmap(ours)(xs).sum()

        for within in (jax.jit, jax.checkpoint):
            np.testing.assert_allclose(jax.grad(within(mapped))(xs), lanes.grad, rtol=1e-12)


def test_continue_is_a_cond_within_and_a_mask_after():
    xs = np.array([1.0, -2.0, 3.0, -1.0, 5.0, 7.0], np.float32)

    def step(total, x):
        skipped = x < 0
        total = gm.cond(skipped, lambda: total, lambda: total + x)
        return total, (total, ~skipped), total > 8

    total, ys, _ = gm.scan_until(step, 0.0, xs)
    values, taken = ys.values
    picked = gm.compact(values, ys.valid & taken, capacity=6)
    wanted, kept = torch.tensor(0.0), []
    for x in torch.tensor(xs):
        if x < 0:
            continue
        wanted = wanted + x
        kept.append(wanted.item())
        if wanted > 8:
            break
    assert float(total) == wanted.item()
    assert picked.values[: int(picked.count)].tolist() == kept


def test_decoding_ends_with_the_end_token_and_says_when_it_did_not():
    table = jnp.array([3, 0, 1, 2, 4])

    def step(token, _):
        token = table[token]
        return token, token, token == 0

    for length, wanted, ended in ((10, [3, 2, 1, 0], True), (3, [3, 2, 1], False)):
        _, tokens, stopped = gm.scan_until(step, jnp.int32(0), None, length=length)
        assert tokens.values[: int(tokens.count)].tolist() == wanted
        assert tokens.capacity == length
        assert bool(stopped) == ended
        _, tokens, _ = gm.scan_until(step, jnp.int32(0), None, length=length, keep_last=False)
        assert tokens.values[: int(tokens.count)].tolist() == [t for t in wanted if t]


class Cell(nnx.Module):
    def __init__(self):
        self.linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        self.steps = nnx.Variable(jnp.int32(0))

    def __call__(self, h, x):
        self.steps[...] += 1
        return jnp.tanh(self.linear(h) + x)


def test_a_module_in_the_carry_is_changed_and_trained():
    xs = np.linspace(0, 1, 40).astype(np.float32)

    def ours(cell):
        def step(carry, x):
            cell, h = carry
            h = cell(h, x)
            return (cell, h), h, h.sum() > 1

        (_, h), ys, _ = gm.scan_until(step, (cell, jnp.zeros(2)), xs)
        return ys.values.sum() + h.sum()

    def eager(cell):
        h, total = jnp.zeros(2), 0.0
        for x in xs:
            h = cell(h, x)
            total += h.sum()
            if h.sum() > 1:
                break
        return total + h.sum()

    cell, wanted = Cell(), Cell()
    got, expected = value_and_gradient(ours, cell), value_and_gradient(eager, wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    assert 0 < int(cell.steps[...]) == int(wanted.steps[...]) < 40


def test_one_trace_and_no_wasted_step():
    traces, runs = [], []

    def step(h, x):
        traces.append(1)
        jax.debug.callback(lambda _: runs.append(1), x)
        return h + x, h, h > 5

    loop = jax.jit(lambda xs: gm.scan_until(step, 0.0, xs))
    for scale in (0.0, 1.0, 10.0):
        runs.clear()
        count = int(loop(np.full(100, scale, np.float32))[1].count)
        jax.effects_barrier()
        assert len(runs) == count
    assert len(traces) <= 2


def steady(c, x):
    return c, x, False


XS = np.ones(3, np.float32)
UNFIT = [
    (lambda: gm.scan_until(steady, 0.0, None), ValueError, ["xs", "length"]),
    (lambda: gm.scan_until(steady, 0.0, XS, length=4), ValueError, ["length", "4", "3"]),
    (lambda: gm.scan_until(steady, 0.0, {"a": XS, "b": XS[:1]}), ValueError, ["xs", "['b']", "(1,)"]),
    (lambda: gm.scan_until(steady, 0.0, None, length=2.5), TypeError, ["length", "2.5"]),
    (lambda: gm.scan_until(lambda c, x: (c, x), 0.0, XS), TypeError, ["(carry, y, stop)"]),
    (lambda: gm.scan_until(lambda c, x: (c, x, x), 0.0, XS), ValueError, ["stop", "float32"]),
    (lambda: gm.scan_until(lambda c, x: (c, None, x > 0), 0.0, XS), ValueError, ["y", "while_loop"]),
    (lambda: gm.scan_until(lambda c, x: (XS, x, x > 0), 0.0, XS), TypeError, ["init", "float32[]", "float32[3]"]),
]


@pytest.mark.parametrize(("call", "kind", "words"), UNFIT)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_bad_input_is_named(call, kind, words, wrap):
    with pytest.raises(kind) as error:
        wrap(call)()
    assert all(word in str(error.value) for word in words)
