"""Idioms of plain JAX that need no function of ours: indices out of range, writes to one place, padded graphs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import graphmode as gm


def test_an_index_out_of_range_reads_a_fill_value_and_is_no_index_from_the_end():
    x = jnp.arange(1.0, 4)

    @jax.jit
    def read(x, i):
        return x.at[i].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)

    assert read(x, jnp.array([0, 2])).tolist() == [1, 3]
    assert jnp.isnan(read(x, jnp.array([-1, 3, 1]))).tolist() == [True, True, False]
    gradient = jax.grad(lambda x: jnp.nansum(read(x, jnp.array([-1, 3, 1]))))(x)
    assert gradient.tolist() == [0, 1, 0]


def test_an_index_out_of_range_raises_where_that_is_wanted():
    @jax.jit
    def read(x, i):
        gm.check((i >= 0) & (i < x.shape[0]), "index {i} is out of range", i=i)
        return x[i]

    assert float(read(jnp.arange(3.0), 2)) == 2
    with pytest.raises(IndexError):
        torch.arange(3.0)[3]
    with pytest.raises(Exception, match="index 3 is out of range"):
        jax.block_until_ready(read(jnp.arange(3.0), 3))


def test_of_several_writes_to_one_place_the_last_one_wins():
    """`x[i] = rows` on a CPU in eager PyTorch; which one wins in a scatter is not to be relied on."""
    rng = np.random.default_rng(0)
    x, rows = rng.standard_normal((5, 2)).astype(np.float32), rng.standard_normal((40, 2)).astype(np.float32)
    i = rng.integers(0, 4, 40).astype(np.int32)

    @jax.jit
    def write(x, i, rows):
        last = gm.segment_max(jnp.arange(i.shape[0]), gm.segments(i, num_segments=x.shape[0]), empty=-1)
        return jnp.where((last >= 0)[:, None], rows[last], x)

    wanted = torch.from_numpy(x).clone()
    for place, row in zip(i.tolist(), torch.from_numpy(rows), strict=True):
        wanted[place] = row
    np.testing.assert_array_equal(write(x, i, rows), wanted)


def test_several_additions_to_one_place_all_count():
    i = np.array([0, 1, 0, 0], np.int32)
    added = jax.jit(lambda i: jnp.zeros(3).at[i].add(1.0))(i)
    assert added.tolist() == torch.zeros(3).index_put((torch.from_numpy(i).long(),), torch.ones(4), True).tolist()


def attention_of_pytorch(nodes, sources, targets):
    scores = (nodes[sources] * nodes[targets]).sum(-1)
    out = torch.zeros_like(nodes)
    for node in range(len(nodes)):
        edges = targets == node
        if edges.any():
            out[node] = (torch.softmax(scores[edges], 0)[:, None] * nodes[sources[edges]]).sum(0)
    return out


def test_graphs_of_varying_size_at_one_capacity():
    """Edges and nodes are padded with NaN and indices out of range; one compilation serves every graph."""
    node_room, edge_room, traces = 8, 20, []

    @jax.jit
    def attention(nodes, sources, targets, real_nodes, real_edges):
        traces.append(nodes.shape)

        def loss(nodes):
            groups = gm.segments(targets, num_segments=node_room, valid=real_edges)
            ends = [nodes.at[i].get(mode="fill", fill_value=0) for i in (sources, targets)]
            shares = gm.segment_softmax((ends[0] * ends[1]).sum(-1), groups)
            pooled = gm.segment_sum(jnp.where(real_edges[:, None], shares[:, None] * ends[0], 0), groups)
            whole = gm.segment_mean(pooled, gm.segments(jnp.zeros(node_room, int), num_segments=1, valid=real_nodes))
            return whole.sum(), (pooled, whole)

        return jax.value_and_grad(loss, has_aux=True)(nodes)

    for seed in range(5):
        rng = np.random.default_rng(seed)
        n, e = rng.integers(1, node_room + 1), rng.integers(0, edge_room + 1)
        nodes, ends = rng.standard_normal((n, 3)).astype(np.float32), rng.integers(0, n, (2, e)).astype(np.int32)
        tensor = torch.from_numpy(nodes).requires_grad_()
        pooled = attention_of_pytorch(tensor, *torch.from_numpy(ends).long())
        if e:
            pooled.mean(0).sum().backward()

        room = np.full((node_room, 3), np.nan, np.float32)
        room[:n] = nodes
        edges = np.full((2, edge_room), 10**6, np.int32)
        edges[:, :e] = ends
        (_, (got, whole)), gradient = attention(room, *edges, np.arange(node_room) < n, np.arange(edge_room) < e)
        np.testing.assert_allclose(got[:n], pooled.detach(), atol=1e-5)
        np.testing.assert_allclose(whole[0], pooled.detach().mean(0), atol=1e-5)
        np.testing.assert_allclose(gradient[:n], tensor.grad if e else np.zeros_like(nodes), atol=1e-5)
        assert not np.any(gradient[n:])
    assert len(traces) == 1


def eager_experts(h, expert, weights):
    """The loop of a mixture-of-experts layer as people write it."""
    out = torch.zeros_like(h)
    for e, weight in enumerate(weights):
        out[expert == e] = h[expert == e] @ weight
    return out


def experts_by_capacity(h, expert, weights, capacity):
    out, lost = jnp.zeros_like(h), []
    for e in range(weights.shape[0]):
        rows = gm.compact(h, expert == e, capacity=capacity)
        lost.append(rows.overflow)
        out = rows.map(lambda row, e=e: row @ weights[e]).scatter(expert == e, into=out)
    return out, jnp.stack(lost)


def experts_by_sorting(h, expert, weights):
    """Drops nothing: the rows in the order of their experts, in one ragged product."""
    order = jnp.argsort(expert, stable=True)
    sizes = jnp.bincount(expert, length=weights.shape[0])
    return jnp.zeros_like(h).at[order].set(jax.lax.ragged_dot(h[order], weights, sizes.astype(jnp.int32)))


@pytest.mark.parametrize("seed", range(4))
def test_experts_on_the_rows_that_chose_them(seed):
    rng = np.random.default_rng(seed)
    h, weights = rng.standard_normal((12, 5)), rng.standard_normal((3, 5, 5))
    expert = rng.integers(0, [3, 1, 2, 3][seed], 12)
    tensors = [torch.from_numpy(a).requires_grad_() for a in (h, weights)]
    wanted = eager_experts(tensors[0], torch.from_numpy(expert), tensors[1])
    gradients = torch.autograd.grad(wanted.square().sum(), tensors)
    with jax.enable_x64(True):
        out, lost = jax.jit(experts_by_capacity, static_argnums=3)(h, expert, weights, 12)
        assert not lost.any()
        for found, ours in (
            (out, lambda h, w: experts_by_capacity(h, expert, w, 12)[0]),
            (jax.jit(experts_by_sorting)(h, expert, weights), lambda h, w: experts_by_sorting(h, expert, w)),
        ):
            np.testing.assert_allclose(found, wanted.detach(), rtol=1e-12, atol=1e-12)
            for got, want in zip(
                jax.grad(lambda h, w, f=ours: (f(h, w) ** 2).sum(), (0, 1))(h, weights), gradients, strict=True
            ):
                np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-11)
        capacity = int(np.bincount(expert, minlength=3).max()) - 1
        _, lost = experts_by_capacity(h, expert, weights, capacity)
        np.testing.assert_array_equal(lost, np.bincount(expert, minlength=3) > capacity)
