"""What rounding decides in the reference itself: two right ports part there, and the report says so."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.examination import Examination

import graphmode as gm

WIDTH = 12  # a mean of which is no number of few digits
NOTE = "rounding alone moves it in the reference, too"


class Binary(torch.nn.Module):
    """A product with signs, half of which take away what the other half gives, and a kink at zero."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.slope = torch.nn.Parameter(torch.full((WIDTH,), 0.25))

    def forward(self, x):
        scale = self.weight.abs().mean(1, keepdim=True).detach()
        weight = scale * self.weight.sign() + self.weight - self.weight.detach()
        h = torch.nn.functional.linear(x.sign(), weight)
        return torch.where(h > 0, h, h * self.slope)


class Port(nnx.Module):
    forgets = False

    def __init__(self, rngs: nnx.Rngs):
        self.weight = nnx.Param(jnp.zeros((WIDTH, WIDTH)))
        self.slope = nnx.Param(jnp.full((WIDTH,), 0.25))

    def __call__(self, x):
        weight = self.weight[...]
        scale = jax.lax.stop_gradient(jnp.abs(weight).mean(1))
        through = weight - jax.lax.stop_gradient(weight)
        h = scale * (jnp.sign(x) @ jnp.sign(weight).T) + jnp.sign(x) @ through.T
        return jnp.where(h > 0, h, h * (0.2 if self.forgets else self.slope[...]))


class Forgets(Port):
    forgets = True


@pytest.mark.parametrize(("port", "is_told"), [(Port, True), (Forgets, False)])
def test_a_sum_that_is_zero_but_for_rounding_is_told(port, is_told):
    case = Case(
        name="c",
        summary="s",
        reference=Binary,
        model=port,
        inputs=lambda rng: (rng.standard_normal((16, WIDTH)),),
        adversarial=(),
    )
    (parity,) = check(case, draws=1, locate=False).parity
    assert not parity.equal
    assert any(NOTE in note for note in parity.notes) == is_told


class Counting(torch.nn.Module):
    """A kink, a parameter that forward holds within a norm, and what is kept from call to call."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        self.slope.data.mul_((WIDTH / self.slope.data.norm()).clamp(max=1.0))
        h = torch.relu(x * self.slope)
        with torch.no_grad():
            self.mean += 0.1 * (h.mean(0) - self.mean)
        return h


def test_what_is_near_a_kink_leaves_the_reference_as_it_was():
    case = Case(
        name="c",
        summary="s",
        reference=Counting,
        model=Port,
        inputs=lambda rng: (rng.standard_normal((16, WIDTH)),),
        modes=("forward_backward",),
        adversarial=(),
    )
    exam = Examination(case, seed=0, draws=1, locate=False)
    truth = exam.truths[0]
    key, slope = ("parameter_gradient", "slope"), exam.judge.exact.module.slope.tolist()
    exam.judge.rounding.unrest(truth)
    for far in (1, 1e-9):  # that little, it changes smoothly, too
        assert not exam.judge.rounding.is_at_a_kink(truth, key, truth.reference.get(key) + far)
    assert not exam.judge.exact.module.mean.any()
    assert exam.judge.exact.module.slope.tolist() == slope


class Listwise(torch.nn.Module):
    """Of rows that are alike its softmax has no gradient, but for rounding."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(WIDTH, WIDTH)
        self.score = torch.nn.Linear(WIDTH, 1)

    def forward(self, x, relevance):
        score = self.score(torch.relu(self.hidden(x)))[:, 0]
        return -(torch.softmax(relevance, 0) * torch.log_softmax(score, 0)).sum()


class ListwisePort(nnx.Module):
    slip = 0.0

    def __init__(self, rngs: nnx.Rngs):
        self.hidden = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.score = gm.nn.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x, relevance):
        score = self.score(jax.nn.relu(self.hidden(x)))[:, 0]
        wanted = jax.nn.softmax(relevance)
        slip = self.slip * jnp.where((x == 0).all(), score.sum(), 0.0)
        return -(wanted * jax.nn.log_softmax(score)).sum() + slip


class SlipsWhereAlike(ListwisePort):
    slip = 1e-9


@pytest.mark.parametrize(("port", "is_right"), [(ListwisePort, True), (SlipsWhereAlike, False)])
def test_gradients_that_are_zero_but_for_rounding_on_one_input_alone_are_judged_beside_it(port, is_right):
    case = Case(
        name="c",
        summary="s",
        reference=Listwise,
        model=port,
        inputs=lambda rng: (rng.standard_normal((8, WIDTH)), rng.standard_normal(8)),
        edge_inputs={"all alike": lambda rng: (np.zeros((8, WIDTH)), rng.standard_normal(8))},
        adversarial=(),
    )
    assert all(parity.equal for parity in check(case, draws=1, locate=False).parity) == is_right


class Bins(torch.nn.Module):
    """What is cut off at the last bin, and moved beyond it by rounding, has none; what is a whole number is in both."""

    def forward(self, x, target):
        b = (x * 40).clamp(0, 6)
        counts = torch.zeros(7, dtype=x.dtype)
        low, high = b.detach().floor().long(), b.detach().ceil().long()
        counts = counts.index_add(0, low.flatten(), (high - b).flatten())
        counts = counts.index_add(0, high.flatten(), (b - low).flatten())
        return counts, torch.nn.functional.binary_cross_entropy(x.sigmoid(), target)


class BinsPort(nnx.Module):
    most = 6

    def __init__(self, rngs: nnx.Rngs):
        pass

    def __call__(self, x, target):
        b = jnp.clip(x * 40, 0, self.most)
        low, high = (jax.lax.stop_gradient(f(b)).astype(int) for f in (jnp.floor, jnp.ceil))
        counts = jnp.zeros(7, x.dtype).at[low].add(high - b).at[high].add(b - low)
        return counts, gm.nn.functional.binary_cross_entropy(jax.nn.sigmoid(x), target)


class FewerBins(BinsPort):
    most = 5


@pytest.mark.parametrize(("port", "is_right"), [(BinsPort, True), (FewerBins, False)])
def test_a_reference_that_raises_where_rounding_moves_it_is_judged_without(port, is_right):
    """Targets of one are no targets where they are moved beyond it."""
    case = Case(
        name="c",
        summary="s",
        reference=Bins,
        model=port,
        inputs=lambda rng: (rng.standard_normal((8, WIDTH)), rng.integers(0, 2, (8, WIDTH)).astype(float)),
        adversarial=(),
    )
    assert all(parity.equal for parity in check(case, draws=1, locate=False).parity) == is_right
