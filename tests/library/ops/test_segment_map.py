"""`segment_map` against the loop over experts as people write it in eager PyTorch."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import FLOATING, Differential, cases, is_caught, mask_of, run, values_of
from flax import nnx
from hypothesis import strategies as st

import graphmode as gm

SIZES = st.fixed_dictionaries(
    {
        "rows": st.sampled_from([0, 1, 7, 24]),
        "num_segments": st.sampled_from([1, 4]),
        "block_size": st.sampled_from([1, 3, 32]),
    }
)
COLUMNS, WIDTH = 3, 2


def rows_and_experts(rng, config, dtype):
    """Rows of no group hold what must not leak, and ids out of range."""
    x = values_of(rng, (config.rows, COLUMNS), dtype, special=False)
    ids = rng.integers(0, rng.integers(1, config.num_segments + 1), config.rows).astype(np.int32)
    valid = mask_of(rng, config.rows)
    ids[~valid] = rng.choice([-1, config.num_segments, 2**31 - 1, -(2**31), 0], (~valid).sum())
    x[~valid] = rng.choice([np.nan, np.inf, 0.0])
    weight = values_of(rng, (config.num_segments, COLUMNS, WIDTH), dtype, special=False)
    bias = values_of(rng, (config.num_segments, WIDTH), dtype, special=False)
    scale = values_of(rng, (WIDTH,), dtype, special=False)
    return {"x": x, "ids": ids, "valid": valid, "weight": weight, "bias": bias, "scale": scale}


def ours(c, x, ids, valid, weight, bias, scale):
    groups = gm.segments(ids, num_segments=c.num_segments, valid=valid)

    def expert(parameters, rows):
        length = jnp.sqrt((rows * rows).sum(-1, keepdims=True))  # without a gradient at rows of zeros
        return scale * jnp.tanh((rows / length) @ parameters["weight"] + parameters["bias"])

    return gm.segment_map(expert, {"weight": weight, "bias": bias}, x, groups, block_size=c.block_size)


def eager(c, x, ids, valid, weight, bias, scale):
    out = torch.zeros(len(x), WIDTH, dtype=x.dtype)
    for group in range(c.num_segments):
        rows = (ids == group) & valid
        length = (x[rows] * x[rows]).sum(-1, keepdim=True).sqrt()
        out[rows] = scale * torch.tanh((x[rows] / length) @ weight[group] + bias[group])
    return out


MAP = Differential(
    name="segment_map",
    configs=SIZES,
    arrays=rows_and_experts,
    ours=ours,
    eager=eager,
    dtypes=FLOATING,
    gradients=("x", "weight", "bias", "scale"),
    exact=False,
)


@pytest.mark.parametrize(("one", "dtype", "examples"), cases([MAP]))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def the_next_expert(c, x, ids, valid, **parameters):
    return ours(c, x, jnp.where(ids < c.num_segments - 1, ids + 1, 0), valid, **parameters)


def padding_has_an_expert(c, x, ids, valid, **parameters):
    return ours(c, x, ids.clip(0, c.num_segments - 1), jnp.ones_like(valid), **parameters)


def too_few_blocks(c, x, ids, valid, **parameters):
    """As many as the rows of one group alone would need."""
    room = len(ids) // c.num_segments
    rank = jnp.sum(jnp.tril(ids[:, None] == ids[None], -1), 1)
    return ours(c, x, ids, valid & (rank < room), **parameters)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [the_next_expert, padding_has_an_expert, too_few_blocks])
def test_a_planted_fault_is_caught(fault):
    assert is_caught(dataclasses.replace(MAP, ours=fault))


def test_second_derivatives_agree_with_a_product_over_all():
    rng = np.random.default_rng(0)
    x, weight, ids = rng.standard_normal((9, 3)), rng.standard_normal((4, 3, 2)), rng.integers(0, 4, 9)
    with jax.enable_x64(True):

        def mapped(x, weight):
            expert = lambda w, rows: jnp.sin(rows @ w)  # noqa: E731
            return (gm.segment_map(expert, weight, x, ids, num_segments=4, block_size=2) ** 3).sum()

        def plain(x, weight):
            return (jnp.sin(jnp.einsum("nd,ndf->nf", x, weight[ids])) ** 3).sum()

        for found, wanted in zip(
            jax.tree.leaves(jax.jacrev(jax.grad(mapped, (0, 1)), (0, 1))(x, weight)),
            jax.tree.leaves(jax.jacrev(jax.grad(plain, (0, 1)), (0, 1))(x, weight)),
            strict=True,
        ):
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_modules_made_by_vmap_are_experts():
    experts = nnx.vmap(lambda key: nnx.Linear(3, 2, rngs=nnx.Rngs(key)))(jax.random.split(jax.random.key(0), 4))
    graphdef, state = nnx.split(experts)
    x, ids = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32), np.array([3, 0, 3, 3, 1])
    out = gm.segment_map(lambda own, rows: nnx.merge(graphdef, own)(rows), state, x, ids, num_segments=4)
    kernel, bias = experts.kernel[...], experts.bias[...]
    np.testing.assert_allclose(out, np.einsum("nd,ndf->nf", x, kernel[ids]) + bias[ids], rtol=1e-5, atol=1e-6)


def test_outputs_may_be_a_tree_and_integers():
    def largest(scale, rows):
        return {"value": (scale * rows).max(-1), "where": jnp.argmax(scale * rows, -1)}

    x, ids, scale = jnp.array([[1.0, 5.0], [2.0, -1.0], [0.0, 3.0]]), jnp.array([0, 1, 1]), jnp.array([1.0, -1.0])
    found = jax.jit(lambda x: gm.segment_map(largest, scale, x, ids, num_segments=2))(x)
    assert found["value"].tolist() == [5, 1, 0]
    assert found["where"].tolist() == [1, 1, 0]
    gradient = jax.grad(lambda x: gm.segment_map(largest, scale, x, ids, num_segments=2)["value"].sum())(x)
    assert gradient.tolist() == [[0, 1], [0, -1], [-1, 0]]
    counts = gm.segment_map(lambda step, rows: rows + step, jnp.array([10, 20]), jnp.arange(3), ids, num_segments=2)
    assert counts.tolist() == [10, 21, 22]


def test_rows_that_find_no_group_are_seen():
    x, weight = jnp.ones((4, 2)), jnp.ones((3, 2, 2))
    product = lambda w, rows: rows @ w  # noqa: E731
    lost = gm.segments(jnp.array([0, 3, -1, 2]), num_segments=3)
    assert int(lost.outside) == 2
    assert gm.segment_map(product, weight, x, lost).sum(-1).tolist() == [4, 0, 0, 4]
    spoilt = gm.segments(jnp.array([0, 3, -1, 2]), num_segments=3, on_overflow="nan")
    assert jnp.isnan(gm.segment_map(product, weight, x, spoilt)).all()
    with pytest.raises(Exception, match="2 rows have an id that is not in 0"):
        jax.block_until_ready(gm.segment_map(product, weight, x, jnp.array([0, 3, -1, 2]), num_segments=3))
    some = gm.compact(x, jnp.array([True, False, True, True]), capacity=4)
    assert gm.segment_map(product, weight, some, jnp.zeros(4, int), num_segments=3).sum(-1).tolist() == [4, 4, 4, 0]


def test_one_compilation_for_all_ids():
    traces = []

    @jax.jit
    def mixed(x, ids):
        traces.append(x.shape)
        return gm.segment_map(lambda w, rows: rows @ w, jnp.ones((3, 2, 2)), x, ids, num_segments=3)

    for seed in range(4):
        mixed(np.ones((5, 2)), np.random.default_rng(seed).integers(0, 3, 5))
    assert len(traces) == 1


def test_an_exported_graph_takes_any_number_of_rows():
    weight = jnp.arange(24.0).reshape(3, 4, 2)

    def mixed(x, ids):
        return gm.segment_map(lambda w, rows: rows @ w, weight, x, gm.segments(ids, num_segments=3), block_size=4)

    (rows,) = jax.export.symbolic_shape("rows")
    shapes = jax.ShapeDtypeStruct((rows, 4), jnp.float32), jax.ShapeDtypeStruct((rows,), jnp.int32)
    exported = jax.export.export(jax.jit(mixed))(*shapes)
    for count in (1, 9):
        x, ids = jnp.arange(4.0 * count).reshape(count, 4), jnp.arange(count, dtype=jnp.int32) % 4
        np.testing.assert_array_equal(exported.call(x, ids), mixed(x, ids))


REFUSED = {
    r"parameters\['w'\] has shape \(2, 2, 2\), and \[3, ...\] was wanted, one for each group": lambda x, ids: (
        gm.segment_map(lambda p, rows: rows @ p["w"], {"w": jnp.ones((2, 2, 2))}, x, ids, num_segments=3)
    ),
    r"fn gives shape \(2,\) for 4 rows; give one for each row": lambda x, ids: gm.segment_map(
        lambda w, rows: (rows @ w).sum(0), jnp.ones((3, 2, 2)), x, ids, num_segments=3
    ),
    r"x has shape \(4, 2\), and groups were made for 3 rows": lambda x, ids: gm.segment_map(
        lambda w, rows: rows @ w, jnp.ones((3, 2, 2)), x, ids[:3], num_segments=3
    ),
    r"block_size is 0": lambda x, ids: gm.segment_map(
        lambda w, rows: rows @ w, jnp.ones((3, 2, 2)), x, ids, num_segments=3, block_size=0
    ),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED)
def test_what_does_not_fit_is_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call(jnp.ones((4, 2)), jnp.zeros(4, int))


def test_groups_without_their_number_are_refused():
    with pytest.raises(TypeError, match="give num_segments with it"):
        gm.segment_map(lambda w, rows: rows @ w, jnp.ones((3, 2, 2)), jnp.ones((4, 2)), jnp.zeros(4, int))
