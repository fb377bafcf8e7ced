"""A case whose loss is wrong: the loss is looked into as a module is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from graphmode.compare import Case, check

LABELS = np.array([0, 1, 2, 3, -100, 1, 0, 2])
ZEROS = np.zeros((8, 4))
TARGETS = np.array([0, 1, 2, 3, 3, 1, 0, 2])
WORDS = np.array([[1, 2], [3, 1]])


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 9), torch.nn.Linear(9, 4)

    def forward(self, x):
        return {"scores": self.b(torch.tanh(self.a(x)))}


class Port(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(6, 9, rngs=rngs), nnx.Linear(9, 4, rngs=rngs)

    def __call__(self, x):
        return {"scores": self.b(jnp.tanh(self.a(x)))}


def case(of_torch, of_jax):
    return Case(
        name="with_a_loss",
        summary="s",
        reference=Reference,
        model=lambda rngs: Port(rngs),
        inputs=lambda rng: (rng.standard_normal((8, 6)),),
        adversarial=(),
        loss=(lambda out: of_torch(out["scores"]), lambda out: of_jax(out["scores"])),
    )


def log_likelihood(scores):
    counted = LABELS >= 0
    chosen = jax.nn.log_softmax(scores)[jnp.arange(8), jnp.where(counted, LABELS, 0)]
    return counted, jnp.where(counted, chosen, 0)


def smoothed_over_the_others(scores):
    share = jnp.where(jax.nn.one_hot(TARGETS, 4) > 0, 0.9, 0.1 / 3)
    return -(share * jax.nn.log_softmax(scores)).sum(-1).mean()


def triplets(scores, power):
    eps = 1e-6 if power == 1 else 0
    near, far = (((scores[:4] - other + eps) ** 2).sum(-1) for other in (scores[4:], scores[::-1][:4]))
    if power == 1:
        near, far = jnp.sqrt(near), jnp.sqrt(far)
    return jnp.maximum(near - far + 0.5, 0)


def aligned(scores):
    """Of two sequences of 4 steps."""
    rows = jax.nn.log_softmax(scores).reshape(4, 2, 4).swapaxes(0, 1)
    return optax.ctc_loss(rows, jnp.zeros((2, 4)), jnp.asarray(WORDS), jnp.zeros((2, 2)), blank_id=0)


def ctc(scores):
    rows = F.log_softmax(scores, -1).reshape(4, 2, 4)
    return F.ctc_loss(rows, torch.from_numpy(WORDS), torch.tensor([4, 4]), torch.tensor([2, 2]))


def labels():
    return torch.from_numpy(LABELS)


@pytest.mark.parametrize(
    ("of_torch", "of_jax", "id", "says"),
    [
        (lambda x: (x**2).mean(), lambda x: (x**2).sum(), "reduction", "takes the sum for the mean"),
        (
            lambda x: F.cross_entropy(x, labels()),
            lambda x: -log_likelihood(x)[1].mean(),
            "reduction",
            "divides by the batch alone",
        ),
        (
            lambda x: F.cross_entropy(x, labels(), label_smoothing=0.1),
            lambda x: -log_likelihood(x)[1].sum() / log_likelihood(x)[0].sum(),
            "label-smoothing",
            "smooths labels by 0",
        ),
        (
            lambda x: F.huber_loss(x, torch.zeros_like(x)),
            lambda x: jnp.abs(x).mean(),
            "loss-function",
            "computes l1_loss where the reference computes huber_loss",
        ),
        (
            lambda x: F.cross_entropy(x, torch.from_numpy(TARGETS), label_smoothing=0.1),
            smoothed_over_the_others,
            "label-smoothing",
            "shares the smoothing of 0.1 among the other classes alone",
        ),
        (
            ctc,
            lambda x: aligned(x).mean(),
            "reduction",
            "does not divide each loss by the length of its target before the mean",
        ),
        (
            lambda x: F.triplet_margin_loss(x[:4], x[4:], x.flip(0)[:4], margin=0.5),
            lambda x: triplets(x, power=2).mean(),
            "loss-of-squares",
            "takes the squares of the distances",
        ),
        (
            lambda x: F.triplet_margin_loss(x[:4], x[4:], x.flip(0)[:4], margin=0.25),
            lambda x: triplets(x, power=1).mean(),
            "loss-margin",
            "has a margin of 0.5",
        ),
        (
            lambda x: F.poisson_nll_loss(x**2, torch.from_numpy(TARGETS).to(x)[:, None].expand(8, 4)),
            lambda x: (x**2 - TARGETS[:, None] * jnp.log(x**2 + 1e-8)).mean(),
            "loss-log-input",
            "takes the input as it is, not for a logarithm",
        ),
        (
            lambda x: F.binary_cross_entropy_with_logits(x, torch.from_numpy(ZEROS).to(x)),
            lambda x: -jax.nn.log_sigmoid(-jax.nn.sigmoid(x)).mean(),
            "loss-of-logits",
            "gives the loss the sigmoid of what are logits to the reference",
        ),
        (
            lambda x: F.cross_entropy(x, labels()) + 0.01 * (x**2).mean(),
            lambda x: -log_likelihood(x)[1].sum() / log_likelihood(x)[0].sum() + 0.03 * (x**2).mean(),
            "scale",
            "multiplies by 0.03",
        ),
    ],
)
def test_what_is_wrong_in_a_loss_is_named(of_torch, of_jax, id, says):
    report = check(case(of_torch, of_jax), hasty=True)
    assert not report.passed
    (divergence,) = report.divergences
    assert divergence.outside
    assert (divergence.causes[0].id, divergence.causes[0].says) == (id, says)
    assert all(cause.id != "gradient-scale" for cause in divergence.causes)
    assert "arises in the case's loss\n" in str(report)


def test_a_loss_that_nothing_known_explains_is_not_explained():
    wrong = case(lambda x: F.cross_entropy(x, labels()), lambda x: jnp.sin(x * jnp.arange(4)).sum())
    (divergence,) = check(wrong, hasty=True).divergences
    assert divergence.outside
    assert divergence.causes == []


def test_a_wrong_border_is_not_taken_for_a_wrong_loss():
    right = case(lambda x: (x**2).mean(), lambda x: (x**2).mean())
    wrong = dataclasses.replace(right, to_reference=lambda out: {"scores": out["scores"][:, ::-1]})
    report = check(wrong, hasty=True)
    assert all(not divergence.causes for divergence in report.divergences if divergence.outside)
    assert "arises in the case's to_reference\n" in str(report)
    assert "its output, scores after to_reference, is off by" in str(report)
