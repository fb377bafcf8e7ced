"""What is wrong in the model's own code, outside of its modules: buffers, outputs of other kinds, repeated turns."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case
from graphmode.compare.parity.causes import explain
from test_inside import look

WIDTH = 6


class Moving(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("size", torch.ones(WIDTH))

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
                self.size.mul_(0.9).add_(0.1 * x.abs().mean(0))
        return (x - self.mean) / self.size


class PortMoving(nnx.Module):
    def __init__(self, written: tuple[str, ...]):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(0))
        self.mean = nnx.BatchStat(jnp.zeros(WIDTH))
        self.size = nnx.BatchStat(jnp.ones(WIDTH))
        self.written = written
        self.training = True

    def __call__(self, x):
        x = self.fc(x)
        now = {"mean": self.mean[...], "size": self.size[...]}
        if self.training:
            of = {"mean": x.mean(0), "size": jnp.abs(x).mean(0)}
            now = {name: 0.9 * now[name] + 0.1 * jax.lax.stop_gradient(of[name]) for name in of}
            for name in self.written:
                getattr(self, name)[...] = now[name]
        return (x - now["mean"]) / now["size"]


@pytest.mark.parametrize(
    ("written", "names"), [(("mean", "size"), None), (("size",), "mean"), (("mean",), "size"), ((), "mean, size")]
)
def test_a_buffer_that_is_not_written_is_named(written, names):
    found = look(
        Case(
            name="moving",
            summary="running statistics in the model's own code",
            reference=Moving,
            model=lambda rngs: PortMoving(written),
            inputs=lambda rng: (rng.standard_normal((5, WIDTH)),),
        ),
        "forward_backward",
    )
    divergences = found.divergences()
    assert [d.module for d in divergences] == ([] if names is None else [""])
    for divergence in divergences:
        (cause,) = explain(found, divergence).causes
        assert (cause.id, cause.says) == ("buffer-not-written", f"does not write what it computes for {names}")


@dataclasses.dataclass
class Judged:
    score: Any
    inside: dict[str, Any]
    loss: Any = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class PortJudged:
    score: Any
    inside: dict[str, Any]
    loss: Any = None


class Judge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        score = self.fc(x).sigmoid()
        return Judged(score, {"sure": score > 0.6})


class PortJudge(nnx.Module):
    def __init__(self, sure):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(0))
        self.sure = sure

    def __call__(self, x):
        score = nnx.sigmoid(self.fc(x))
        return PortJudged(score, {"sure": self.sure(score)})


@pytest.mark.parametrize(("sure", "right"), [(lambda x: x > 0.6, True), (lambda x: x < 0.6, False)])
def test_outputs_in_a_dataclass_that_pytorch_does_not_know(sure, right):
    found = look(
        Case(
            name="judge",
            summary="a dataclass for an output",
            reference=Judge,
            model=lambda rngs: PortJudge(sure),
            inputs=lambda rng: (rng.standard_normal((5, WIDTH)),),
        ),
        "inference",
    )
    divergences = found.divergences()
    assert [d.module for d in divergences] == ([] if right else [""])
    for divergence in divergences:
        assert "comparison" in [cause.id for cause in explain(found, divergence).causes]


class Descent(torch.nn.Module):
    """As many steps as it takes."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        y = self.fc(x).sum()
        while abs(y) > 1e-3:
            y = y - y / 3
        return y


class PortDescent(nnx.Module):
    def __init__(self):
        self.fc = nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return jax.lax.while_loop(lambda y: jnp.abs(y) > 0.3, lambda y: y - y / 3, self.fc(x).sum())


def test_turns_of_a_loop_that_no_words_tell_apart_explain_nothing():
    found = look(
        Case(
            name="descent",
            summary="a loop that ends by a value",
            reference=Descent,
            model=lambda rngs: PortDescent(),
            inputs=lambda rng: (rng.standard_normal((5, WIDTH)),),
        ),
        "inference",
    )
    (divergence,) = found.divergences()
    for cause in explain(found, divergence).causes:
        words = cause.says.split(" where the reference gives ")
        assert len(words) == 1 or words[1] not in words[0], cause.says


class Passing(torch.nn.Module):
    """One step of messages along edges, each gated, with a causal convolution and a masked sum before it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, 3))

    def forward(self, x, edges, mask):
        x = torch.nn.functional.conv1d(torch.nn.functional.pad(x.T[None], (2, 0)), self.weight)[0].T
        x = torch.where(mask[:, 0, None], x.tanh(), -x)
        source, target = edges[0], edges[1]
        sums = torch.zeros_like(x).index_add(0, target, x[source])
        return sums, torch.logsumexp(sums, 1)


class PortPassing(nnx.Module):
    def __init__(self, pads=(2, 0), rows=(0, 1), masked=True, reduced=jax.nn.logsumexp):
        self.weight = nnx.Param(jnp.zeros((WIDTH, WIDTH, 3)))
        self.pads, self.rows, self.masked, self.reduced = pads, rows, masked, reduced

    def __call__(self, x, edges, mask):
        windows = jax.lax.conv_general_dilated(x.T[None], self.weight[...], (1,), [self.pads])[0].T
        x = jnp.where(mask[:, 0, None] if self.masked else True, jnp.tanh(windows), -windows)
        source, target = (edges[row] for row in self.rows)
        sums = jnp.zeros_like(x).at[target].add(x[source])
        return sums, self.reduced(sums, axis=1)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"pads": (1, 1)}, "padding"),
        ({"rows": (1, 0)}, "tensors-exchanged"),
        ({"masked": False}, "branch"),
        ({"reduced": jnp.max}, "reduction"),
    ],
)
def test_functions_between_modules(changes, cause):
    found = look(
        Case(
            name="passing",
            summary="messages along edges",
            reference=Passing,
            model=lambda rngs: PortPassing(**changes),
            inputs=lambda rng: (
                rng.standard_normal((7, WIDTH)),
                rng.integers(0, 7, (2, 20)),
                np.stack([np.arange(7) % 2 == 0, np.ones(7, bool)], 1),
            ),
        ),
        "inference",
    )
    divergences = found.divergences()
    assert [d.module for d in divergences] == ([] if cause is None else [""])
    for divergence in divergences:
        assert explain(found, divergence).causes[0].id == cause
