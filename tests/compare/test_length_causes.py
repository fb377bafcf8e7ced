"""Batches of several lengths: what a port does where a row has ended, and what it divides by; edges as evidence."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from jax import lax
from told_causes import causes

WIDTH, TIME = 3, 5
LENGTHS = (5, 3, 2, 4)


class Tagger(torch.nn.Module):
    """A state that stays where a row has ended; the mean over what is no padding."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        held = mask.to(x.dtype).t()
        state = x[:, 0]
        for t in range(1, x.shape[1]):
            state = torch.where(held[t].unsqueeze(1).bool(), torch.tanh(self.inner(state)) + x[:, t], state)
        scores = (x.square().sum(-1) * mask).sum(1) + state.sum(1)
        return scores.sum() / held.sum()


class Port(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def mask(self, x, lengths):
        return jnp.arange(x.shape[1]) < lengths[:, None]

    def chosen(self, valid, new, old):
        return jnp.where(valid[:, None], new, old)

    def mean(self, scores, mask):
        return scores.sum() / mask.sum()

    def __call__(self, x, lengths):
        mask = self.mask(x, lengths)

        def step(state, xs):
            x, valid = xs
            return self.chosen(valid, jnp.tanh(self.inner(state)) + x, state), None

        state, _ = lax.scan(step, x[:, 0], (jnp.swapaxes(x, 0, 1)[1:], mask.T[1:]))
        scores = (jnp.square(x).sum(-1) * mask).sum(1) + state.sum(1)
        return self.mean(scores, mask)


class GoesOn(Port):
    def chosen(self, valid, new, old):
        return new


class MeanOfRows(Port):
    def mean(self, scores, mask):
        return scores.mean()


class MeanOfAll(Port):
    def mean(self, scores, mask):
        return scores.sum() / mask.size


class OneMore(Port):
    def mask(self, x, lengths):
        return jnp.arange(x.shape[1]) <= lengths[:, None]


class Scaled(Port):
    def mean(self, scores, mask):
        return 2.25 * scores.sum() / mask.sum()


class ByRoot(Port):
    def mean(self, scores, mask):
        return scores.sum() / jnp.sqrt(mask.sum() / 3.5)  # 14 are held: 2.6457513 times 14, and that alone


def batch(*lengths):
    return lambda rng: (rng.standard_normal((len(lengths), TIME, WIDTH)), np.array(lengths))


def told(port, **edges):
    fields = {"edge_inputs": {name: batch(*lengths) for name, lengths in edges.items()}}
    return causes(Tagger, port, batch(*LENGTHS), modes=("inference",), **fields)


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (GoesOn, "branch", "always takes the first branch"),
        (MeanOfRows, "count", "takes the size of axis 1 for the number of those that the mask holds for"),
        (MeanOfAll, "count", "takes the number of all elements for the number of those that the mask holds for"),
        (OneMore, "comparison", "compares with <= for <"),
        (Scaled, "scale", "has the product 2.25 times"),
    ],
)
def test_what_goes_wrong_where_rows_end_is_named(port, id, says):
    found = told(port, few=(2, 1))
    assert found[0][0] == id
    assert says in [words for _, words in found], found


@pytest.mark.parametrize(("edges", "is_told"), [({}, True), ({"full": (5, 5)}, False)])
def test_a_number_that_edge_inputs_contradict_is_not_told(edges, is_told):
    found = told(ByRoot, **edges)
    assert any("times" in says or "divides" in says for _, says in found) == is_told, found


class Centred(torch.nn.Module):
    """What is left of each row without its mean, which leaves padding out."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, lengths):
        held = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
        x = self.inner(x) * held
        mean = x.sum(1, keepdim=True) / lengths.view(-1, 1, 1).to(x.dtype)
        return torch.tanh(x - mean) * held


class CentredPort(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, lengths):
        held = (jnp.arange(x.shape[1]) < lengths[:, None])[..., None]
        x = self.inner(x) * held
        return jnp.tanh(x - x.mean(1, keepdims=True)) * held


def test_a_mean_over_padding_is_told_where_the_reference_divides_by_lengths():
    shorter = lambda rng: (rng.standard_normal((2, 3, WIDTH)), np.array([1, 3]))  # noqa: E731
    found = causes(Centred, CentredPort, batch(*LENGTHS), modes=("inference",), edge_inputs={"shorter": shorter})
    assert found == [("count", "divides by as many as are summed up, padding among them, for the lengths")]
