"""`gm.masked_fill` and `gm.masked_scatter` against the tensor methods of the same names."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import Differential, cases, is_caught, mask_of, run, values_of
from hypothesis import strategies as st

import graphmode as gm

SHAPES = st.sampled_from(
    [
        {"shape": shape, "mask_shape": mask_shape, "more": more}
        for shape, mask_shape in [
            ((), ()),
            ((0,), (0,)),
            ((7,), (7,)),
            ((40,), (40,)),
            ((3, 4), (4,)),
            ((3, 4), (3, 1)),
            ((4,), (3, 4)),
            ((3, 1), (1, 5)),
            ((2, 3, 4), (2, 3, 4)),
        ]
        for more in (0, 2)
    ]
)


def x_mask_value(rng, config, dtype):
    return {
        "x": values_of(rng, config.shape, dtype),
        "mask": np.asarray(mask_of(rng, config.mask_shape)),
        "value": values_of(rng, (), dtype),
    }


def x_mask_source(rng, config, dtype):
    size = int(np.prod(np.broadcast_shapes(config.shape, config.mask_shape)))
    arrays = x_mask_value(rng, config, dtype)
    return {"x": arrays["x"], "mask": arrays["mask"], "source": values_of(rng, (size + config.more,), dtype)}


def x_mask_short(rng, config, dtype):
    arrays = x_mask_source(rng, config, dtype)
    return {**arrays, "source": arrays["source"][: max(1, arrays["source"].size // 2)]}


def as_far_as_it_goes(c, x, mask, source):
    x, mask = (a.clone() for a in torch.broadcast_tensors(x, mask))
    places = mask.flatten().nonzero().squeeze(1)
    taken = min(len(places), source.numel())
    return x.flatten().index_put((places[:taken],), source[:taken]).reshape(x.shape), mask.sum()


FILL = Differential(
    name="masked_fill",
    configs=SHAPES,
    arrays=x_mask_value,
    ours=lambda c, x, mask, value: gm.masked_fill(x, mask, value),
    eager=lambda c, x, mask, value: x.masked_fill(mask, value),
    gradients=("x", "value"),
)
FILL_NUMBER = dataclasses.replace(
    FILL,
    name="masked_fill-number",
    ours=lambda c, x, mask, value: gm.masked_fill(x, mask, 1.5),
    eager=lambda c, x, mask, value: x.masked_fill(mask, 1.5),
    gradients=("x",),
    dtypes=("float32", "bfloat16", "int32", "bool"),
)
SCATTER = Differential(
    name="masked_scatter",
    configs=SHAPES,
    arrays=x_mask_source,
    ours=lambda c, x, mask, source: gm.masked_scatter(x, mask, source),
    eager=lambda c, x, mask, source: x.masked_scatter(mask, source),
    gradients=("x", "source"),
)
SCATTER_SHORT = dataclasses.replace(
    SCATTER,
    name="masked_scatter-short-source",
    arrays=x_mask_short,
    ours=lambda c, x, mask, source: gm.masked_scatter(x, mask, source, on_overflow="flag"),
    eager=as_far_as_it_goes,
)
THERE_AND_BACK = Differential(
    name="masked_scatter-of-compact",
    configs=st.sampled_from(
        [
            {"rows": r, "columns": c, "capacity": k}
            for r, c, k in [(9, (), 9), (9, (2,), 12), (40, (3,), 40), (1, (), 1)]
        ]
    ),
    arrays=lambda rng, c, dtype: {"x": values_of(rng, (c.rows, *c.columns), dtype), "mask": mask_of(rng, c.rows)},
    ours=lambda c, x, mask: there_and_back(c, x, mask),
    eager=lambda c, x, mask: torch.index_put(x, (mask,), torch.exp(-x[mask])),
    dtypes=("float32", "float64"),
    gradients=("x",),
    exact=False,
)


def there_and_back(c, x, mask):
    picked = gm.compact(x, mask, capacity=c.capacity)
    changed = dataclasses.replace(picked, values=jnp.exp(-picked.values))
    return gm.masked_scatter(x, mask.reshape(-1, *(1 for _ in c.columns)), changed)


@pytest.mark.parametrize(
    ("one", "dtype", "examples"), cases([FILL, FILL_NUMBER, SCATTER, SCATTER_SHORT, THERE_AND_BACK])
)
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def by_product(c, x, mask, value):
    return x * (~mask).astype(x.dtype) + value * mask.astype(x.dtype)


def leading(c, x, mask, value):
    return jnp.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), value, x) if x.ndim == 2 else x


@pytest.mark.slow
@pytest.mark.parametrize("fault", [by_product, leading])
def test_a_planted_fault_of_masked_fill_is_caught(fault):
    assert is_caught(dataclasses.replace(FILL, ours=fault))


def one_late(c, x, mask, source):
    return gm.masked_scatter(x, mask, jnp.roll(source, 1))


def cut_silently(c, x, mask, source):
    written, count = gm.masked_scatter(x, mask, source, on_overflow="flag")
    return written, jnp.minimum(count, source.size)


def last_repeated(c, x, mask, source):
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    at = jnp.cumsum(jnp.broadcast_to(mask, shape)) - 1
    return jnp.where(mask, source[at.reshape(shape)], x), jnp.sum(jnp.broadcast_to(mask, shape))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"), [(SCATTER, one_late), (SCATTER_SHORT, cut_silently), (SCATTER_SHORT, last_repeated)]
)
def test_a_planted_fault_of_masked_scatter_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


def finished(form, *arguments):
    jax.block_until_ready(form(*arguments))
    jax.effects_barrier()


def test_a_source_that_is_too_short_raises_as_in_pytorch():
    x, mask, source = np.zeros(4, np.float32), np.array([True, True, False, True]), np.ones(3, np.float32)
    write = jax.jit(gm.masked_scatter)
    np.testing.assert_array_equal(
        write(x, mask, source), torch.zeros(4).masked_scatter(*map(torch.tensor, (mask, source)))
    )
    with pytest.raises(Exception, match="mask picks 4 places, and source has 3 entries"):
        finished(write, x, np.ones(4, bool), source)


def test_a_source_that_is_too_short_spoils_all_on_demand():
    write = jax.jit(lambda mask: gm.masked_scatter(jnp.zeros(4), mask, jnp.ones(3), on_overflow="nan"))
    assert bool(jnp.isnan(write(np.ones(4, bool))).all())
    assert write(np.arange(4) > 0).tolist() == [0, 1, 1, 1]


def test_a_source_as_large_as_x_costs_no_check():
    mask = np.ones(3, bool)
    text = str(jax.make_jaxpr(lambda source: gm.masked_scatter(jnp.zeros(3), mask, source))(jnp.ones(3)))
    assert "callback" not in text
    assert "callback" in str(jax.make_jaxpr(lambda s: gm.masked_scatter(jnp.zeros(3), mask, s))(jnp.ones(2)))


def test_padding_of_a_source_is_never_written():
    source = gm.Padded(jnp.array([9.0, 1.0, jnp.nan, 2.0]), jnp.array([False, True, False, True]), jnp.int32(2))
    mask = np.array([True, True, True, False, False])
    written, count = gm.masked_scatter(jnp.zeros(5), mask, source, on_overflow="flag")
    assert written.tolist() == [1, 2, 0, 0, 0]
    assert int(count) == 3
    gradient = jax.grad(
        lambda v: (
            gm.masked_scatter(jnp.ones(5), mask, gm.Padded(v, source.valid, source.count), on_overflow="flag")[0] ** 2
        ).sum()
    )(source.values)
    assert gradient.tolist() == [0, 2, 0, 4]


@pytest.mark.parametrize("write", [gm.masked_fill, gm.masked_scatter])
def test_what_stands_under_the_mask_reaches_no_gradient(write):
    x = jnp.array([jnp.nan, 4.0, jnp.inf])
    value = 1.0 if write is gm.masked_fill else jnp.ones(3)
    gradient = jax.grad(lambda x: jnp.sqrt(write(x, ~jnp.isfinite(x), value)).sum())(x)
    assert gradient.tolist() == [0, 0.25, 0]


def test_a_value_is_differentiated_in_forward_mode_too():
    mask = np.array([True, False, True])
    for form in (
        lambda v: gm.masked_fill(jnp.zeros(3), mask, v[0]),
        lambda v: gm.masked_scatter(jnp.zeros(3), mask, v),
    ):
        values = jnp.arange(1.0, 4.0)
        np.testing.assert_array_equal(jax.jacfwd(form)(values), jax.jacrev(form)(values))


def test_one_compilation_for_all_masks():
    traces = []

    @jax.jit
    def write(mask, source):
        traces.append(mask.shape)
        return gm.masked_scatter(jnp.zeros(5), mask, source), gm.masked_fill(jnp.zeros(5), mask, source[0])

    for seed in range(4):
        write(np.random.default_rng(seed).random(5) < 0.5, np.ones(5, np.float32))
    assert len(traces) == 1


MASK, X = np.ones(3, bool), np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("error", "form", "arguments", "words"),
    [
        (ValueError, gm.masked_fill, (X, np.ones(3), 0), ["mask", "float", "bool"]),
        (ValueError, gm.masked_fill, (np.zeros((3, 2)), MASK, 0), ["mask", "(3,)", "(3, 2)", "broadcast", "[:, None]"]),
        (ValueError, gm.masked_fill, (X, MASK, np.zeros(1)), ["value", "(1,)", "()"]),
        (ValueError, gm.masked_fill, (X.astype(np.float16), MASK, -1e9), ["value", "float16"]),
        (ValueError, gm.masked_fill, (X.astype(np.int32), MASK, np.inf), ["value", "inf", "int32"]),
        (ValueError, gm.masked_scatter, (X, np.ones(3, int), X), ["mask", "int", "bool"]),
        (ValueError, gm.masked_scatter, (np.zeros((3, 2)), MASK, X), ["mask", "(3,)", "(3, 2)"]),
        (TypeError, gm.masked_scatter, (X, MASK, np.zeros(3, np.int32)), ["source", "int32", "float32"]),
        (TypeError, gm.masked_scatter, (X, MASK, gm.Padded({"a": X}, MASK, np.int32(3))), ["source", "dict"]),
    ],
)
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "jit"])
def test_bad_input_is_named(error, form, arguments, words, traced):
    with pytest.raises(error) as raised:
        jax.jit(lambda mask: form(arguments[0], mask, arguments[2]))(arguments[1]) if traced else form(*arguments)
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(("x", "policy", "word"), [(X, "clip", "clip"), (X.astype(np.int32), "nan", "int32")])
def test_a_bad_policy_is_named(x, policy, word):
    with pytest.raises(ValueError, match=word):
        gm.masked_scatter(x, MASK, x, on_overflow=policy)


def test_a_mask_of_rows_is_given_the_axes_of_x():
    """`x[mask] = scalar` and `x[mask] = rows` of PyTorch, whose mask covers leading axes."""
    x, mask, rows = torch.zeros(4, 2), torch.tensor([True, False, True, True]), torch.arange(6.0).reshape(3, 2)
    filled, written = x.clone(), x.clone()
    filled[mask], written[mask] = 7, rows
    ours = [torch.Tensor.numpy(t) for t in (x, mask[:, None], rows)]
    np.testing.assert_array_equal(gm.masked_fill(ours[0], ours[1], 7), filled)
    np.testing.assert_array_equal(gm.masked_scatter(*ours), written)
