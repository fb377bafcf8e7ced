"""Masked reductions and moments against eager PyTorch on the entries that the mask picks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, mask_of, run, values_of
from hypothesis import strategies as st

import graphmode as gm

NEUTRAL = {torch.bool: False, torch.int32: -(2**31)}
SHAPES = {
    "shapes": st.sampled_from(
        [((4, 5), (4, 5)), ((4, 5), (5,)), ((2, 3, 4), (2, 1, 4)), ((3, 0), (3, 0)), ((6,), (6,))]
    ),
    "axis": st.sampled_from([None, 0, -1]),
}
EXACT_DTYPES = (*FLOATING, "int32", "bool")


def poisoned(rng, config, dtype, *, nan=False):
    """Values with NaN and infinity in the padding, and with `nan` among the valid too."""
    shape, mask_shape = config.shapes
    x, mask = values_of(rng, shape, dtype), mask_of(rng, mask_shape)
    if dtype in FLOATING:
        x = np.where(mask, x, rng.choice([np.nan, np.inf, -np.inf, 0.0], shape)).astype(x.dtype)
        if nan and rng.random() < 0.3:
            x = np.where(rng.random(shape) < 0.2, np.nan, x).astype(x.dtype)
    return {"x": x, "mask": mask}


def poisoned_with_nan(rng, config, dtype):
    return poisoned(rng, config, dtype, nan=True)


def slices(c, x, mask, reduce):
    """`reduce(entries, mask)` of every slice along the axis, in a loop, as eager code would write it."""
    mask = mask.expand(x.shape)
    if c.axis is None:
        return reduce(x.reshape(-1), mask.reshape(-1)).reshape((1,) * x.ndim if c.axis == 0 else ())
    x, mask = x.movedim(c.axis, -1), mask.movedim(c.axis, -1)
    rows = zip(x.reshape(-1, x.shape[-1]), mask.reshape(-1, x.shape[-1]), strict=True) if x.numel() else ()
    nothing = reduce(x.new_zeros(0), mask.new_zeros(0))
    found = [reduce(*row) for row in rows] or [nothing] * int(np.prod(x.shape[:-1]))
    out = torch.stack(found) if found else nothing.new_zeros(0)
    out = out.reshape(x.shape[:-1])
    return out.unsqueeze(c.axis) if c.axis == 0 else out


def reduction(name, ours, reduce, *, dtypes=EXACT_DTYPES, arrays=poisoned, exact=False, gradients=("x",), **more):
    return Differential(
        name=name,
        configs=st.fixed_dictionaries({**SHAPES, **more}),
        arrays=arrays,
        ours=ours,
        eager=lambda c, x, mask: slices(c, x, mask, lambda x, mask: reduce(c, x, mask)),
        dtypes=dtypes,
        gradients=gradients,
        exact=exact,
    )


def eager_variance(c, x, mask):
    variance = x[mask].var(correction=c.correction)
    # PyTorch's gradient of an undefined variance is NaN; ours is 0.
    return variance if mask.sum() > c.correction else variance.detach()


def eager_max(c, x, mask):
    return x[mask].amax() if mask.any() else torch.tensor(NEUTRAL.get(x.dtype, -torch.inf), dtype=x.dtype)


def eager_min(c, x, mask):
    return x[mask].amin() if mask.any() else torch.tensor(7 if x.dtype != torch.bool else True, dtype=x.dtype)


def eager_argmax(c, x, mask):
    return mask.nonzero()[x[mask].argmax(), 0] if mask.any() else torch.tensor(len(x))


def eager_softmax(c, x, mask):
    def of_slice(x, mask):
        return torch.zeros_like(x).masked_scatter(mask, x[mask].softmax(0))

    x_last, mask_last = x.movedim(c.axis, -1), mask.expand(x.shape).movedim(c.axis, -1)
    if not x.numel():
        return x * 1
    flat = zip(x_last.reshape(-1, x_last.shape[-1]), mask_last.reshape(-1, x_last.shape[-1]), strict=True)
    return torch.stack([of_slice(*row) for row in flat]).reshape(x_last.shape).movedim(-1, c.axis)


SUM = reduction("masked_sum", lambda c, x, mask: gm.masked_sum(x, mask, c.axis, keepdims=c.axis == 0), None)
SUM = dataclasses.replace(SUM, eager=lambda c, x, mask: slices(c, x, mask, lambda x, mask: x[mask].sum()))
MEAN = reduction(
    "masked_mean",
    lambda c, x, mask: gm.masked_mean(x, mask, c.axis, keepdims=c.axis == 0),
    lambda c, x, mask: x[mask].mean(),
    dtypes=FLOATING,
)
VAR = reduction(
    "masked_var",
    lambda c, x, mask: gm.masked_var(x, mask, c.axis, correction=c.correction, keepdims=c.axis == 0),
    eager_variance,
    dtypes=FLOATING,
    correction=st.sampled_from([0, 1, 2]),
)
MAX = reduction(
    "masked_max",
    lambda c, x, mask: gm.masked_max(x, mask, c.axis, keepdims=c.axis == 0),
    eager_max,
    arrays=poisoned_with_nan,
    exact=True,
)
MIN = reduction(
    "masked_min",
    lambda c, x, mask: gm.masked_min(x, mask, c.axis, empty=1 if x.dtype == jnp.bool_ else 7, keepdims=c.axis == 0),
    eager_min,
    arrays=poisoned_with_nan,
    exact=True,
)
ARGMAX = reduction(
    "masked_argmax",
    lambda c, x, mask: gm.masked_argmax(x, mask, c.axis, keepdims=c.axis == 0),
    eager_argmax,
    dtypes=(*FLOATING, "int32"),
    arrays=poisoned_with_nan,
    exact=True,
    gradients=(),
)
SOFTMAX = Differential(
    name="masked_softmax",
    configs=st.fixed_dictionaries({**SHAPES, "axis": st.sampled_from([0, -1])}),
    arrays=poisoned,
    ours=lambda c, x, mask: gm.masked_softmax(x, mask, c.axis),
    eager=eager_softmax,
    dtypes=FLOATING,
    gradients=("x",),
    exact=False,
)
TABLE = [SUM, MEAN, VAR, MAX, MIN, ARGMAX, SOFTMAX]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (SUM, lambda c, x, mask: jnp.sum(x * mask, c.axis, keepdims=c.axis == 0)),
        (MEAN, lambda c, x, mask: jnp.mean(jnp.where(mask, x, 0), c.axis, keepdims=c.axis == 0)),
        (VAR, lambda c, x, mask: gm.masked_var(x, mask, c.axis, keepdims=c.axis == 0)),
        (MAX, lambda c, x, mask: jnp.max(jnp.where(mask, x, 0), c.axis, keepdims=c.axis == 0, initial=-jnp.inf)),
        (ARGMAX, lambda c, x, mask: gm.masked_argmax(x, mask, c.axis, keepdims=c.axis == 0) - ~jnp.any(mask)),
        (SOFTMAX, lambda c, x, mask: jax.nn.softmax(jnp.where(mask, x, -jnp.inf), c.axis)),
    ],
    ids=lambda value: getattr(value, "name", "fault"),
)
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))


BAD = [jnp.nan, jnp.inf, -jnp.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("ours", "eager"),
    [
        (lambda x, m: gm.masked_sum(x, m) ** 2, lambda x: x.sum() ** 2),
        (lambda x, m: gm.masked_mean(x, m), lambda x: x.mean()),
        (lambda x, m: gm.masked_var(x, m), lambda x: x.var()),
        (lambda x, m: gm.masked_max(x, m), lambda x: x.amax()),
        (lambda x, m: gm.masked_min(x, m), lambda x: x.amin()),
        (lambda x, m: (gm.masked_softmax(x, m) ** 2).sum(), lambda x: (x.softmax(0) ** 2).sum()),
        (lambda x, m: gm.masked_moments(x, m).var ** 2, lambda x: x.var(correction=0) ** 2),
        (lambda x, m: gm.masked_moments(x, m).unbiased_var ** 2, lambda x: x.var() ** 2),
    ],
    ids=["sum", "mean", "var", "max", "min", "softmax", "biased", "unbiased"],
)
def test_the_gradient_knows_nothing_of_the_padding(ours, eager, bad):
    mask = np.array([True, False, True, True, False])
    x = np.array([1.0, 0, 4.0, 4.0, 0])
    tensor = torch.tensor(x, requires_grad=True)
    eager(tensor[torch.tensor(mask)]).backward()
    with jax.enable_x64():
        given = jnp.where(mask, x, bad)
        backward = jax.jit(jax.grad(ours))(given, mask)
        forward = jax.jacfwd(ours)(given, mask)
    np.testing.assert_allclose(backward, tensor.grad.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(forward, tensor.grad.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "reduce", [gm.masked_sum, gm.masked_mean, gm.masked_var, gm.masked_max, gm.masked_min, gm.masked_softmax]
)
@pytest.mark.parametrize("bad", [*BAD, 0.0])
def test_nothing_valid_has_no_gradient(reduce, bad):
    x = jnp.full(3, bad)
    gradient = jax.grad(lambda x: reduce(x, jnp.zeros(3, bool)).sum())(x)
    assert gradient.tolist() == [0, 0, 0]


def test_a_guard_around_an_undefined_variance_is_differentiable():
    def guarded(x, mask):
        return jnp.where(mask.sum() > 1, gm.masked_var(x, mask), 0)

    assert jax.grad(guarded)(jnp.ones(3), np.array([True, False, False])).tolist() == [0, 0, 0]


def test_the_largest_entry_is_minus_infinity():
    x, mask = jnp.full(3, -jnp.inf), np.array([False, True, True])
    assert gm.masked_argmax(x, mask).item() == 1
    assert jax.grad(gm.masked_max)(x, mask).tolist() == [0, 0.5, 0.5]


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8", "bool"])
def test_integers_are_summed_in_the_default_integer(dtype):
    total = gm.masked_sum(jnp.ones(3, dtype), jnp.array([True, True, False]))
    assert total.dtype == jnp.int32
    assert (total - 5).item() == -3


def test_half_precision_is_summed_in_single():
    x = np.full(4096, 1.001, np.float16)
    assert gm.masked_mean(x, np.ones(4096, bool)).dtype == jnp.float16
    assert gm.masked_mean(x, np.ones(4096, bool)).item() == torch.tensor(x).mean().item()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: gm.masked_sum(x, jnp.ones((3, 4))), "bool was wanted"),
        (lambda x: gm.masked_sum(gm.Padded(x, x[:, 0] > 0, 3), x[:, 0] > 0), "x is a Padded"),
        (lambda x: gm.masked_sum(x, jnp.ones((5,), bool)), r"shape \(5,\)"),
        (lambda x: gm.masked_sum(x, jnp.ones((3,), bool)), r"give mask\[..., None\]"),
        (lambda x: gm.masked_sum(x[0], jnp.ones((3, 4), bool)), "does not broadcast"),
        (lambda x: gm.masked_mean(x, jnp.ones((3, 4), bool), 2), "axis is 2"),
        (lambda x: gm.masked_mean(x, jnp.ones((3, 4), bool), (0, -2)), "twice"),
        (lambda x: gm.masked_mean(x, jnp.ones((3, 4), bool), ()), "axis is empty"),
        (lambda x: gm.masked_mean(x, jnp.ones((3, 4), bool), 1.0), "axis is 1.0"),
        (lambda x: gm.masked_mean(x.astype(int), jnp.ones((3, 4), bool)), "floating"),
        (lambda x: gm.masked_var(x > 0, jnp.ones((3, 4), bool)), "floating"),
        (lambda x: gm.masked_softmax(x.astype(int), jnp.ones((3, 4), bool)), "floating"),
        (lambda x: gm.masked_max(x.astype(int), jnp.ones((3, 4), bool), empty=jnp.nan), "empty is nan"),
        (lambda x: gm.masked_max(x + 1j, jnp.ones((3, 4), bool)), "no order"),
        (lambda x: gm.masked_argmax(x, jnp.ones((3, 4), bool), (0, 1)), "one integer"),
        (lambda x: gm.masked_softmax(x, jnp.ones((3, 4), bool), None), "one integer"),
        (lambda x: gm.masked_moments(x.astype(int), jnp.ones((3, 4), bool)), "floating"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_bad_input_says_what_is_wanted(call, words, compiled):
    with pytest.raises((ValueError, TypeError), match=words):
        (jax.jit(call) if compiled else call)(jnp.ones((3, 4)))


def test_one_compilation_for_all_masks():
    traces = []

    @jax.jit
    def reduce(x, mask):
        traces.append(x.shape)
        return (
            gm.masked_mean(x, mask),
            gm.masked_argmax(x, mask),
            gm.masked_softmax(x, mask),
            gm.masked_moments(x, mask),
        )

    for seed in range(4):
        reduce(np.arange(5.0), np.random.default_rng(seed).random(5) < 0.5)
    assert len(traces) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_are_those_of_batch_norm_on_the_unpadded(dtype):
    rng = np.random.default_rng(0)
    lengths = [3, 0, 5, 1]
    sequences = [rng.normal(3, 2, (n, 4)).astype(dtype) for n in lengths]
    x = np.full((4, 6, 4), np.nan, dtype)
    mask = np.arange(6) < np.array(lengths)[:, None]
    x[mask] = np.concatenate(sequences)
    norm = torch.nn.BatchNorm1d(4, momentum=1.0, dtype=getattr(torch, dtype))
    wanted = norm(torch.tensor(np.concatenate(sequences))).detach().numpy()
    with jax.enable_x64(dtype == "float64"):
        moments = jax.jit(lambda x: gm.masked_moments(x, mask[..., None], (0, 1)))(x)
        normed = (x - moments.mean) * jax.lax.rsqrt(moments.var + norm.eps)
    tight = {"rtol": 0, "atol": 1e-12 if dtype == "float64" else 1e-5}
    np.testing.assert_allclose(moments.mean, norm.running_mean, **tight)
    np.testing.assert_allclose(moments.unbiased_var, norm.running_var, **tight)
    np.testing.assert_allclose(np.asarray(normed)[mask], wanted, **tight)
    assert moments.entries.tolist() == [9] * 4


def test_layer_norm_of_padded_rows_stays_finite():
    x = jnp.array([[1.0, 2.0, 3.0], [jnp.nan] * 3])
    mask = np.array([[True], [False]])

    def loss(weight, x):
        moments = gm.masked_moments(x, mask, 1, keepdims=True)
        normed = (jnp.where(mask, x, 0) - moments.mean) * jax.lax.rsqrt(moments.var + 1e-5)
        return gm.masked_sum(normed * weight, mask)

    weight = torch.ones(3, requires_grad=True)
    torch.nn.functional.layer_norm(torch.tensor([1.0, 2.0, 3.0]), (3,), weight).sum().backward()
    by_weight, by_x = jax.grad(loss, (0, 1))(jnp.ones(3), x)
    np.testing.assert_allclose(by_weight, weight.grad, atol=1e-6)
    assert jnp.isfinite(by_x).all()
    assert by_x[1].tolist() == [0, 0, 0]
    empty = gm.masked_moments(x, mask, 1)
    assert empty.entries.tolist() == [3, 0]
    assert (empty.mean[1].item(), empty.var[1].item()) == (0, 0)
    assert jnp.isnan(empty.unbiased_var[1])
