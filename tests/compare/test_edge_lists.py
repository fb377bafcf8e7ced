"""Ports that are dense under a mask where the reference has a list: who is to blame for what a layer receives."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.inside.layouts import are_among

from graphmode import nn

WIDTH, NODES = 4, 7


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(WIDTH + 1, WIDTH)

    def forward(self, x, src, dst, edge):
        messages = torch.tanh(self.lin(torch.cat([x[src], edge[:, None]], -1)))
        return torch.zeros_like(x).index_add_(0, dst, messages)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def forward(self, places, x):
        d2 = (places[:, None] - places[None]).pow(2).sum(-1)
        dst, src = ((d2 < 2) & ~torch.eye(len(places), dtype=torch.bool)).nonzero(as_tuple=True)
        return self.layer(x, src, dst, torch.exp(-3 * d2[dst, src]))


class PortLayer(nnx.Module):
    sign = 1

    def __init__(self, rngs):
        self.lin = nn.Linear(WIDTH + 1, WIDTH, rngs=rngs)

    def __call__(self, x, near, edge):
        pairs = jnp.concatenate([jnp.broadcast_to(x[None], (*near.shape, WIDTH)), edge[..., None]], -1)
        return self.sign * jnp.where(near[..., None], jnp.tanh(self.lin(pairs)), 0).sum(1)


class OtherSign(PortLayer):
    sign = -1


class Port(nnx.Module):
    layer, decay = PortLayer, 3

    def __init__(self, rngs):
        self.layer = type(self).layer(rngs)

    def __call__(self, places, x):
        d2 = ((places[:, None] - places[None]) ** 2).sum(-1)
        near = (d2 < 2) & ~jnp.eye(len(places), dtype=bool)
        return self.layer(x, near, jnp.exp(-self.decay * d2))


class OtherDecay(Port):
    decay = 2


class WrongInside(Port):
    layer = OtherSign


@pytest.mark.parametrize(("port", "blamed"), [(OtherDecay, ""), (WrongInside, "layer")])
def test_a_layer_that_receives_what_is_wrong_is_not_blamed(port, blamed):
    def inputs(rng):
        return rng.standard_normal((NODES, 3)), rng.standard_normal((NODES, WIDTH))

    case = Case(name="c", summary="s", reference=Net, model=port, inputs=inputs, adversarial=(), modes=("inference",))
    report = check(case, compiled=False, hasty=True)
    assert [each.module for each in report.divergences] == [blamed]
    if not blamed:
        assert [cause.says for cause in report.first_divergence.causes] == ["multiplies by -2"]


class Normed(torch.nn.Module):
    """A sparse matrix of edges, each divided by the root of how many there are of its row."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edges):
        dst, src = (torch.cat([ends, torch.arange(len(x))]) for ends in edges)
        root = torch.zeros(len(x), dtype=x.dtype).index_add(0, dst, torch.ones(len(dst), dtype=x.dtype)).rsqrt()
        matrix = torch.sparse_coo_tensor(torch.stack([dst, src]), root[dst] * root[src], (len(x), len(x)))
        return torch.sparse.mm(matrix.coalesce(), self.lin(x))


class NormedPort(nnx.Module):
    counted = 0

    def __init__(self, rngs):
        self.lin = nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, edges):
        dst, src = both = jnp.concatenate([edges, jnp.tile(jnp.arange(len(x)), (2, 1))], 1)
        root = jnp.zeros(len(x)).at[both[self.counted]].add(1) ** -0.5
        return jnp.zeros_like(x).at[dst].add((root[dst] * root[src])[:, None] * self.lin(x)[src])


class CountsColumns(NormedPort):
    counted = 1


@pytest.mark.parametrize(("port", "is_right"), [(NormedPort, True), (CountsColumns, False)])
def test_a_sparse_matrix_is_looked_at_by_all_its_elements(port, is_right):
    def inputs(rng):
        return rng.standard_normal((NODES, WIDTH)), rng.integers(0, NODES, (2, 12))

    fields = {"summary": "s", "adversarial": (), "modes": ("inference",)}
    report = check(Case(name="c", reference=Normed, model=port, inputs=inputs, **fields), compiled=False, hasty=True)
    assert report.passed == is_right
    for each in report.divergences:
        assert [cause.id for cause in each.causes] == ["wiring"]
        assert "index_add" in each.causes[0].says
        assert each.astray is not None
    assert "was not found" not in str(report)


def test_elements_are_found_among_others():
    dense = np.random.default_rng(0).standard_normal((5, 5, 3))
    listed = dense[[0, 3, 4, 4], [1, 0, 2, 3]]
    assert are_among(dense, listed)
    assert are_among(dense, listed.T)
    assert are_among(dense, listed[:0])
    assert are_among(dense * (1 + 1e-15), listed)
    assert not are_among(dense, listed + 1e-6)
    assert not are_among(dense[:0], listed)
