"""A case whose loss is wrong: the loss is looked into as a module is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from graphmode.compare import Case, check

LABELS = np.array([0, 1, 2, 3, -100, 1, 0, 2])
ZEROS = np.zeros((8, 4))


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
