"""Segment reductions against a Python loop over the groups in eager PyTorch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, mask_of, run, values_of
from hypothesis import strategies as st

import graphmode as gm

ROWS = st.sampled_from([(0, 3), (7, 1), (24, 4)]).flatmap(
    lambda sizes: st.fixed_dictionaries(
        {"rows": st.just(sizes[0]), "num_segments": st.just(sizes[1]), "columns": st.sampled_from([(), (2,)])}
    )
)
NUMBERS = (*FLOATING, "int32")


def rows_and_ids(rng, config, dtype):
    """Rows of no group hold what must not leak, and ids out of range."""
    x = values_of(rng, (config.rows, *config.columns), dtype)
    ids = rng.integers(0, config.num_segments, config.rows).astype(np.int32)
    valid = mask_of(rng, config.rows)
    ids[~valid] = rng.choice([-1, config.num_segments, 2**31 - 1, -(2**31), 0], (~valid).sum())
    if dtype in FLOATING:
        x[~valid] = rng.choice([np.nan, np.inf, 0.0])
    return {"x": x, "ids": ids, "valid": valid}


def groups_of(c, ids, valid):
    return gm.segments(ids, num_segments=c.num_segments, valid=valid)


def each_group(reduce, empty):
    """The eager form: one reduction a group, its rows picked by a mask."""

    def eager(c, x, ids, valid):
        chosen = [x[(ids == group) & valid] for group in range(c.num_segments)]
        nothing = torch.full(c.columns, empty, dtype=reduce(x[:1] if len(x) else x.new_ones(1, *c.columns)).dtype)
        return torch.stack([reduce(rows) if len(rows) else nothing for rows in chosen])

    return eager


def softmax_of_each_group(c, x, ids, valid):
    out = torch.zeros_like(x)
    for group in range(c.num_segments):
        rows = (ids == group) & valid
        out[rows] = torch.softmax(x[rows], 0)
    return out


def variance(rows):
    return torch.var(rows, 0) if len(rows) > 1 else torch.zeros(rows.shape[1:], dtype=rows.dtype)


def floor_mean(c, x, ids, valid):
    """Integers have a mean in `scatter_reduce` alone."""
    x, ids = x[valid], ids[valid].long()
    index = ids.reshape(-1, *[1] * len(c.columns)).expand(x.shape)
    zeros = torch.zeros(c.num_segments, *c.columns, dtype=x.dtype)
    return zeros.scatter_reduce(0, index, x, "mean", include_self=False)


def reduction(name, ours, reduce, *, empty=0, **options):
    return Differential(
        name=name,
        configs=ROWS,
        arrays=rows_and_ids,
        ours=lambda c, x, ids, valid: ours(x, groups_of(c, ids, valid)),
        eager=each_group(reduce, empty),
        gradients=("x",),
        **options,
    )


SUM = reduction("segment_sum", gm.segment_sum, lambda rows: rows.sum(0), exact=False)
MAX = reduction("segment_max", gm.segment_max, lambda rows: rows.amax(0))
TABLE = [
    SUM,
    MAX,
    reduction("segment_min", gm.segment_min, lambda rows: rows.amin(0)),
    reduction("segment_mean", gm.segment_mean, lambda rows: rows.mean(0), exact=False, dtypes=FLOATING),
    reduction("segment_var", gm.segment_var, variance, exact=False, dtypes=FLOATING),
    reduction("segment_prod", gm.segment_prod, lambda rows: rows.prod(0), empty=1, exact=False, dtypes=NUMBERS),
    reduction(
        "segment_logsumexp",
        gm.segment_logsumexp,
        lambda rows: rows.logsumexp(0),
        empty=-torch.inf,
        exact=False,
        dtypes=FLOATING,
    ),
    Differential(
        name="segment_mean of integers",
        configs=ROWS,
        arrays=rows_and_ids,
        ours=lambda c, x, ids, valid: gm.segment_mean(x, groups_of(c, ids, valid)),
        eager=floor_mean,
        dtypes=("int32",),
    ),
    Differential(
        name="segment_softmax",
        configs=ROWS,
        arrays=rows_and_ids,
        ours=lambda c, x, ids, valid: gm.segment_softmax(x, groups_of(c, ids, valid)),
        eager=softmax_of_each_group,
        dtypes=FLOATING,
        gradients=("x",),
        exact=False,
    ),
]
REDUCTIONS = [
    gm.segment_sum,
    gm.segment_mean,
    gm.segment_var,
    gm.segment_prod,
    gm.segment_max,
    gm.segment_min,
    gm.segment_softmax,
    gm.segment_logsumexp,
]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_a_loop_over_the_groups(one, dtype, examples):
    run(one, dtype, examples)


def wrapping(c, x, ids, valid):
    return jnp.zeros((c.num_segments, *x.shape[1:]), x.dtype).at[ids].add(x)


def padding_in_the_last_group(c, x, ids, valid):
    groups = groups_of(c, ids, valid)
    ids = jnp.minimum(groups.ids, c.num_segments - 1)
    return gm.segment_sum(x, dataclasses.replace(groups, given=ids))


def masked_by_product(c, x, ids, valid):
    inside = valid.reshape(-1, *[1] * (x.ndim - 1))
    return gm.segment_sum(x * inside.astype(x.dtype), groups_of(c, jnp.where(valid, ids, 0), None))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [wrapping, padding_in_the_last_group, masked_by_product])
def test_a_planted_fault_in_a_sum_is_caught(fault):
    assert is_caught(dataclasses.replace(SUM, ours=fault))


def empty_is_infinite(c, x, ids, valid):
    return jax.ops.segment_max(x, groups_of(c, ids, valid).ids, c.num_segments)


def one_tie_takes_all(c, x, ids, valid):
    groups = groups_of(c, ids, valid)
    found = jax.lax.stop_gradient(gm.segment_max(x, groups))
    inside = groups.inside.reshape(-1, *[1] * (x.ndim - 1))
    ties = inside & (x == found.at[groups.ids].get(mode="fill", fill_value=0))
    flowing = jnp.where(ties, x - jax.lax.stop_gradient(x), 0)
    return found + jnp.where(jnp.isfinite(found), gm.segment_sum(jnp.where(jnp.isfinite(x), flowing, 0), groups), 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [empty_is_infinite, one_tie_takes_all])
def test_a_planted_fault_in_a_maximum_is_caught(fault):
    assert is_caught(dataclasses.replace(MAX, ours=fault))


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("padding", [np.nan, np.inf, -np.inf, 3e38, 0.0])
def test_padding_leaks_into_no_value_and_no_gradient(reduce, padding):
    real = np.array([0.5, -2.0, 3.0, 0.0], np.float32)
    x = np.insert(real, [0, 2, 4], padding).astype(np.float32)
    ids = np.array([9, 0, 0, -1, 2, 2, 1])
    valid = np.array([False, True, True, False, True, True, False])

    def loss(x, ids, valid):
        values = reduce(x, gm.segments(ids, num_segments=3, valid=valid))
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0) ** 2), values

    (_, values), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(x, ids, valid)
    (_, wanted), clean = jax.jit(jax.value_and_grad(loss, has_aux=True))(real, ids[valid], np.ones(4, bool))
    if reduce is gm.segment_softmax:
        assert not values[~valid].any()
        values = values[valid]
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(gradient[valid], clean)
    assert not np.any(gradient[~valid])
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_forward_and_reverse_derivatives_agree_with_finite_differences(reduce):
    x = np.array([0.5, -2.0, 3.0, 0.25, 1.5, -1.0])
    ids = np.array([0, 2, 0, 0, 2, 7])
    with jax.enable_x64(True):
        of = lambda x: reduce(x, gm.segments(ids, num_segments=4, valid=ids < 4))  # noqa: E731
        forward = jax.jacfwd(lambda x: jnp.nan_to_num(of(x)))(x)
        reverse = jax.jacrev(lambda x: jnp.nan_to_num(of(x)))(x)
        steps = np.eye(6) * 1e-6
        numeric = np.stack([np.nan_to_num(of(x + h) - of(x - h)) / 2e-6 for h in steps], -1)
    np.testing.assert_allclose(forward, numeric, atol=1e-8)
    np.testing.assert_allclose(reverse, numeric, atol=1e-8)


def test_a_product_through_zeros_has_the_gradient_of_torch():
    x = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 5.0, 4.0], np.float32)
    ids = np.array([0, 0, 0, 1, 1, 1, 2])
    gradient = jax.grad(lambda x: gm.segment_prod(x, gm.segments(ids, num_segments=3)).sum())(x)
    tensor = torch.from_numpy(x).requires_grad_()
    sum(tensor[torch.from_numpy(ids == group)].prod() for group in range(3)).backward()
    np.testing.assert_array_equal(gradient, tensor.grad)


def test_nan_is_seen_where_it_is_and_nowhere_else():
    groups = gm.segments(jnp.array([0, 0, 1, 1]), num_segments=2)
    x = jnp.array([1.0, jnp.nan, 2.0, 3.0])
    for reduce in REDUCTIONS[:-2]:
        assert jnp.isnan(reduce(x, groups)).tolist() == [True, False]
    gradient = jax.grad(lambda x: gm.segment_max(x, groups).sum())(x)
    wanted = torch.tensor([1.0, torch.nan], requires_grad=True)
    wanted.max().backward()
    assert gradient.tolist() == [*wanted.grad.tolist(), 0.0, 1.0]


def test_groups_of_infinities():
    groups = gm.segments(jnp.array([0, 0, 1, 1, 2]), num_segments=3)
    x = np.array([-np.inf, -np.inf, np.inf, 1.0, -np.inf], np.float32)
    wanted = [torch.from_numpy(x[a:b]).logsumexp(0).item() for a, b in ((0, 2), (2, 4), (4, 5))]
    assert gm.segment_logsumexp(x, groups).tolist() == wanted
    gradient = jax.grad(lambda x: gm.segment_logsumexp(x, groups)[jnp.array([0, 2])].sum())(x)
    assert gradient[jnp.array([0, 1, 4])].tolist() == [0, 0, 0], "torch gives NaN, which would spoil a whole step"
    assert np.isnan(gm.segment_softmax(x, groups)[:2]).all()


def test_sixteen_bits_are_added_in_thirty_two():
    ones = np.ones(1000, jnp.bfloat16)
    groups = gm.segments(np.zeros(1000, np.int32), num_segments=1)
    assert float(gm.segment_sum(ones, groups)[0]) == float(torch.ones(1000, dtype=torch.bfloat16).sum())
    assert float(gm.segment_mean(ones, groups)[0]) == 1


def test_the_value_of_an_empty_group_is_the_callers_choice():
    groups = gm.segments(jnp.array([1]), num_segments=2)
    x = jnp.array([4.0])
    for reduce in (gm.segment_mean, gm.segment_max, gm.segment_min, gm.segment_prod, gm.segment_logsumexp):
        assert reduce(x, groups, empty=-7).tolist() == [-7, 4]
    assert gm.segment_var(x, groups, empty=-7).tolist() == [-7, -7]
    assert gm.segment_var(x, groups, correction=0, empty=-7).tolist() == [-7, 0]
    assert gm.segment_sum(x, groups).tolist() == [0, 4]


def test_counts():
    ids = np.random.default_rng(0).integers(0, 5, 40)
    counts = gm.segments(ids, num_segments=7).counts
    assert counts.tolist() == torch.bincount(torch.from_numpy(ids), minlength=7).tolist()
    assert counts.dtype == jnp.int32


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1, -(2**31)])
def test_ids_out_of_range_are_seen(bad):
    ids = np.array([0, bad, 2, bad], np.int32)
    x = np.arange(4.0, dtype=np.float32)
    groups = jax.jit(lambda ids: gm.segments(ids, num_segments=3))(ids)
    assert int(groups.outside) == 2
    assert bool(groups.overflow)
    assert gm.segment_sum(x, groups).tolist() == [0, 0, 2]

    spoilt = jax.jit(lambda x, ids: gm.segment_sum(x, gm.segments(ids, num_segments=3, on_overflow="nan")))
    assert np.isnan(spoilt(x, ids)).all()
    assert spoilt(x, np.array([0, 1, 2, 0], np.int32)).tolist() == [3, 1, 2]
    assert np.isnan(jax.vmap(spoilt)(np.stack([x, x]), np.stack([ids, 0 * ids]))).tolist() == [[True] * 3, [False] * 3]

    strict = jax.jit(lambda ids: gm.segments(ids, num_segments=3, on_overflow="raise").ids)
    assert strict(np.array([0, 1, 2, 0], np.int32)).tolist() == [0, 1, 2, 0]
    with pytest.raises(Exception, match=r"2 rows have an id that is not in 0 \.\.\. 2"):
        jax.block_until_ready(strict(ids))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64, np.uint64])
def test_ids_of_any_width_do_not_wrap_into_range(dtype):
    with jax.enable_x64(True):
        largest = np.iinfo(dtype).max
        wide = np.array([0, 1, min(int(largest), 2**32 + 1)], dtype)
        groups = gm.segments(jnp.asarray(wide), num_segments=300 if dtype in (np.int8, np.uint8) else 3)
        seen = 0 if dtype in (np.int8, np.uint8) else 1
        assert int(groups.outside) == seen
        assert groups.ids.dtype == jnp.int32


def test_rows_and_ids_that_are_padded():
    x = jnp.array([1.0, jnp.nan, 3.0, 4.0, 5.0])
    some = gm.compact(x, jnp.array([True, False, True, True, False]), capacity=4)
    ids = gm.compact(jnp.array([0, 0, 1, 0, 1]), jnp.array([True, False, True, True, False]), capacity=4)
    groups = gm.segments(ids, num_segments=2)
    assert gm.segment_sum(some, groups).tolist() == [5, 3]
    everyone = gm.segments(jnp.array([0, 1, 0, 0]), num_segments=2)
    assert gm.segment_mean(some, everyone).tolist() == [2.5, 3]
    short = gm.compact(jnp.array([0, 1, 1]), jnp.array([True] * 3), capacity=2)
    assert int(gm.segments(short, num_segments=2).outside) == 1


def test_one_compilation_for_all_ids():
    traces = []

    @jax.jit
    def pool(x, ids):
        traces.append(x.shape)
        return [reduce(x, gm.segments(ids, num_segments=3)) for reduce in REDUCTIONS]

    for seed in range(4):
        pool(np.arange(5.0), np.random.default_rng(seed).integers(-1, 4, 5))
    assert len(traces) == 1


def test_a_carry_of_scan():
    groups = gm.segments(jnp.array([0, 1, 0]), num_segments=2)

    def step(carry, x):
        total, groups = carry
        return (total + gm.segment_sum(x, groups), groups), None

    (total, _), _ = jax.lax.scan(step, (jnp.zeros(2), groups), jnp.ones((5, 3)))
    assert total.tolist() == [10, 5]


GROUPS = gm.segments(np.array([0, 1]), num_segments=2)
BAD = {
    "ids that are floats": (lambda: gm.segments(jnp.ones(3), num_segments=2), TypeError, "ids has dtype float32"),
    "ids of rank 2": (lambda: gm.segments(jnp.ones((3, 1), int), num_segments=2), ValueError, r"shape \(3, 1\)"),
    "ids that are one": (lambda: gm.segments(1, num_segments=2), ValueError, "ids is a scalar"),
    "no groups": (lambda: gm.segments(jnp.array([0]), num_segments=0), ValueError, "num_segments is 0"),
    "a float of groups": (lambda: gm.segments(jnp.array([0]), num_segments=2.0), TypeError, "num_segments is 2.0"),
    "a mask of numbers": (
        lambda: gm.segments(jnp.array([0]), num_segments=2, valid=jnp.array([1])),
        ValueError,
        "valid has dtype int32",
    ),
    "a mask too long": (
        lambda: gm.segments(jnp.array([0]), num_segments=2, valid=jnp.array([True, True])),
        ValueError,
        r"valid has shape \(2,\)",
    ),
    "complex rows": (lambda: gm.segment_max(jnp.ones(2, complex), GROUPS), TypeError, "complex numbers have no order"),
    "an unknown policy": (
        lambda: gm.segments(jnp.array([0]), num_segments=2, on_overflow="drop"),
        ValueError,
        "on_overflow is 'drop'",
    ),
    "ids in place of groups": (
        lambda: gm.segment_sum(jnp.ones(2), jnp.array([0, 1])),
        TypeError,
        "give num_segments with it",
    ),
    "too many rows": (lambda: gm.segment_sum(jnp.ones(3), GROUPS), ValueError, r"x has shape \(3,\)"),
    "no rows": (lambda: gm.segment_max(1.0, GROUPS), ValueError, "x is a scalar"),
    "a mean of bools": (lambda: gm.segment_mean(jnp.ones(2, bool), GROUPS), ValueError, "x has dtype bool"),
    "a variance of integers": (lambda: gm.segment_var(jnp.ones(2, int), GROUPS), ValueError, "wants floats"),
    "a softmax of integers": (lambda: gm.segment_softmax(jnp.ones(2, int), GROUPS), ValueError, "wants floats"),
    "NaN among integers": (
        lambda: gm.segment_sum(
            jnp.ones(1, int), gm.segments(jnp.array([0]), num_segments=2, on_overflow="nan")
        ),
        ValueError,
        "int32 has no NaN",
    ),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what, jitted):
    make, error, message = BAD[what]
    with pytest.raises(error, match=message):
        (jax.jit(make) if jitted else make)()


def test_traced_number_of_groups_is_named():
    with pytest.raises(TypeError, match="num_segments is traced"):
        jax.jit(lambda n: gm.segments(jnp.array([0]), num_segments=n))(3)
