"""Causes in sequence models and in what is kept from step to step, on modules that nobody planted them in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.causes import explain
from looked_into import look

WIDTH, PAST = 4, 3


class Block(torch.nn.Module):
    """Attention with a past, a norm by hand, and a running mean."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH))
        self.register_buffer("kept", torch.randn(WIDTH))

    def forward(self, x, past, keep):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        turned = x * torch.cos(torch.arange(PAST, PAST + x.shape[1])[:, None])
        keys = torch.cat([past, turned], 1)
        scores = turned @ keys.transpose(-1, -2)
        scores = scores.masked_fill(~torch.ones_like(scores).bool().tril(PAST), -1e9)
        scores = scores + keep[:, None].to(x.dtype)
        if self.training:
            with torch.no_grad():
                self.kept.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        return scores.softmax(-1) @ keys - self.kept, keys, turned


class Port(nnx.Module):
    def __init__(self):
        self.weight, self.kept = nnx.Param(jnp.ones(WIDTH)), nnx.BatchStat(jnp.zeros(WIDTH))
        self.training = True

    start, diagonal, share = PAST, PAST, 0.9

    def square(self, x):
        return (x * x).mean(-1, keepdims=True)

    def masked(self, keep):
        return keep[:, None]

    def learns(self):
        return self.training

    def outputs(self, y, keys, turned):
        return y, keys, turned

    def __call__(self, x, past, keep):
        x = x * jax.lax.rsqrt(self.square(x) + 1e-6) * self.weight[...]
        turned = x * jnp.cos(jnp.arange(self.start, self.start + x.shape[1]).astype(x.dtype)[:, None])
        keys = jnp.concatenate([past, turned], 1)
        scores = turned @ keys.swapaxes(-1, -2)
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool), self.diagonal), scores, -1e9)
        scores = scores + self.masked(keep)
        if self.learns():
            self.kept[...] = self.share * self.kept[...] + (1 - self.share) * jax.lax.stop_gradient(x).mean((0, 1))
        return self.outputs(jax.nn.softmax(scores, -1) @ keys - self.kept[...], keys, turned)


def case(**changes):
    return Case(
        name="block",
        summary="a block with a past",
        reference=Block,
        model=lambda rngs: type("Changed", (Port,), changes)(),
        inputs=lambda rng: (
            rng.standard_normal((2, 5, WIDTH)),
            rng.standard_normal((2, PAST, WIDTH)),
            rng.standard_normal((2, PAST + 5)),
        ),
        adversarial=(),
    )


def test_the_port_is_right():
    assert check(case(), draws=1, hasty=True, compiled=False).passed


@pytest.mark.parametrize(
    ("changes", "mode", "cause", "word"),
    [
        ({"start": 0}, "inference", "position-offset", "goes on from 3"),
        ({"diagonal": 0}, "inference", "causal-mask", "diagonal 0"),
        ({"square": lambda self, x: x.var(-1, keepdims=True)}, "inference", "mean-removed", "variance"),
        ({"share": 0.1}, "forward_backward", "momentum", "0.9 and 0.1"),
        ({"learns": lambda self: True}, "inference", "mode", "in evaluation what"),
        ({"learns": lambda self: False}, "forward_backward", "buffer-not-written", "goes on with what it held"),
        ({"outputs": lambda self, y, keys, turned: (turned, keys, y)}, "inference", "wiring", "gives"),
    ],
)
def test_the_cause_is_named(changes, mode, cause, word):
    found = look(case(**changes), mode)
    (divergence,) = found.divergences()
    assert (divergence.module, divergence.outside) == ("", False)
    causes = explain(found, divergence).causes
    assert causes[0].id == cause
    assert word in causes[0].says


def test_a_port_that_never_learns_may_be_in_evaluation():
    found = look(case(learns=lambda self: False), "forward_backward")
    assert "mode" in {cause.id for each in found.divergences() for cause in explain(found, each).causes}


class Keys(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, scores, keep):
        return scores + keep[:, None, None].to(scores.dtype) * self.weight


class PortKeys(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.zeros((4, 4)))

    def __call__(self, scores, keep):
        return scores + keep[:, None, :, None] * self.weight[...]


def test_a_mask_of_keys_taken_for_one_of_queries():
    masks = Case(
        name="keys",
        summary="a mask of keys",
        reference=Keys,
        model=lambda rngs: PortKeys(),
        inputs=lambda rng: (rng.standard_normal((2, 3, 4, 4)), rng.standard_normal((2, 4))),
    )
    found = look(masks, "inference")
    (cause,) = explain(found, found.divergences()[0]).causes
    assert (cause.id, "[:, None, :, None]" in cause.says) == ("new-axis", True)


class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.peep = torch.nn.Parameter(torch.randn(WIDTH))

    def forward(self, x, c):
        new = torch.sigmoid(x) * c + torch.tanh(x)
        return torch.sigmoid(x + self.peep * new) * torch.tanh(new), new


class Loop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, x):
        c, found = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], c)
            found.append(h)
        return torch.stack(found, 1)


class PortCell(nnx.Module):
    def __init__(self):
        self.peep = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x, c):
        new = jax.nn.sigmoid(x) * c + jnp.tanh(x)
        return jax.nn.sigmoid(x + self.peep[...] * c) * jnp.tanh(new), new


class PortLoop(nnx.Module):
    def __init__(self):
        self.cell = PortCell()

    def __call__(self, x):
        def step(c, x):
            h, c = self.cell(x, c)
            return c, h

        return jax.lax.scan(step, jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1))[1].swapaxes(0, 1)


def test_a_cause_holds_at_later_calls_too():
    """From a state of zeros the old state in place of the new looks like no peephole at all."""
    cells = Case(
        name="cell",
        summary="a peephole",
        reference=Loop,
        model=lambda rngs: PortLoop(),
        inputs=lambda rng: (rng.standard_normal((2, 4, WIDTH)),),
    )
    found = look(cells, "inference")
    (divergence,) = found.divergences()
    causes = explain(found, divergence).causes
    assert (divergence.module, causes[0].id) == ("cell", "wiring")
    assert "its input 1" in causes[0].says


class Buckets(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 2)

    def forward(self, x):
        n = torch.arange(len(x))
        return self.table((torch.log(n + 1.0) * 1.5).long().clamp(max=4)) + x[:, None]


class PortBuckets(nnx.Module):
    def __init__(self, rngs):
        self.table = nnx.Embed(5, 2, rngs=rngs)

    def __call__(self, x):
        n = jnp.arange(len(x))
        return self.table(jnp.minimum(n // 2, 1)) + x[:, None]


def test_few_integers_are_no_evidence_of_arithmetic():
    buckets = Case(
        name="buckets",
        summary="positions in buckets",
        reference=Buckets,
        model=PortBuckets,
        inputs=lambda rng: (rng.standard_normal(5),),
    )
    found = look(buckets, "inference")
    (divergence,) = found.divergences()
    assert explain(found, divergence).causes == []


class Largest(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x.amax(-1) * self.weight


class PortLargest(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.ones(()))

    def __call__(self, x):
        return x.max(-1) * self.weight[...]


@pytest.mark.parametrize("length", [8, 5000])
def test_a_lost_nan_is_said_where_it_is_lost(length):
    largest = Case(
        name="largest",
        summary="the largest of many",
        reference=Largest,
        model=lambda rngs: PortLargest(),
        inputs=lambda rng: (rng.standard_normal((2, length)),),
        adversarial=(),
    )
    (parity,) = check(largest, draws=1).parity
    x = np.zeros((2, length), np.float32)
    x[1] = np.nan
    lost = not np.isnan(jax.jit(lambda x: x.max(-1))(x)[1])
    told = [w for w in parity.warnings if "overlook NaN (at test_sequence_causes.py" in w]
    assert parity.passed
    assert bool(told) == lost


class Halved(torch.nn.Module):
    def forward(self, x):
        assert not x.isnan().any(), "a loop that never ends on NaN"
        while not x.norm() <= 1:
            x = x / 2
        return x


class HalvedPort(nnx.Module):
    def __call__(self, x):
        return jax.lax.while_loop(lambda x: jnp.linalg.norm(x) > 1, lambda x: x / 2, x)


def test_nothing_is_run_on_nan_where_no_reduction_loses_it(monkeypatch):
    handed = []
    usual = Halved.forward
    monkeypatch.setattr(Halved, "forward", lambda self, x: (handed.append(bool(x.isnan().any())), usual(self, x))[1])
    case = Case(
        name="c",
        summary="s",
        reference=Halved,
        model=lambda rngs: HalvedPort(),
        inputs=lambda rng: (rng.standard_normal((9, 8)),),
        modes=("inference",),
    )
    assert check(case).passed
    assert handed
    assert not any(handed)


class Settled(torch.nn.Module):
    def forward(self, x):
        while not x.amax() <= 1:
            x = x / 2
        return x


class SettledPort(nnx.Module):
    def __call__(self, x):
        return x / 2 ** jnp.maximum(jnp.ceil(jnp.log2(x.max())), 0)


class LoopedPort(nnx.Module):
    def __call__(self, x):
        return jax.lax.while_loop(lambda x: ~(x.max() <= 1), lambda x: x / 2, x)


@pytest.mark.parametrize("port", [SettledPort, LoopedPort])
def test_a_check_ends_where_a_loop_never_does_on_nan(port):
    case = Case(
        name="c",
        summary="s",
        reference=Settled,
        model=lambda rngs: port(),
        inputs=lambda rng: (np.abs(rng.standard_normal((2, 5000))),),
        modes=("inference",),
        adversarial=(),
    )
    told = check(case, draws=1).parity[0].warnings
    assert not [warning for warning in told if "NaN" in warning]
