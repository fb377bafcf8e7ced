"""A reference that checkpoints is looked into as one that does not."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.checkpoints import no_checkpoints
from graphmode.compare.parity.remarks import written_twice
from torch.utils.checkpoint import checkpoint

import graphmode as gm


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        hidden = self.inner(x)
        return x + self.outer(hidden * hidden.detach().sigmoid())


class Checkpointed(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.blocks = torch.nn.Linear(4, 6), torch.nn.ModuleList([Block(6), Block(6)])
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class PortOfBlock(nnx.Module):
    def __init__(self, width, rngs, stops=True):
        self.inner, self.outer = gm.nn.Linear(width, 2 * width, rngs=rngs), gm.nn.Linear(2 * width, width, rngs=rngs)
        self.stops = stops

    def __call__(self, x):
        hidden = self.inner(x)
        gate = jax.nn.sigmoid(hidden)
        return x + self.outer(hidden * (jax.lax.stop_gradient(gate) if self.stops else gate))


class PortOfCheckpointed(nnx.Module):
    def __init__(self, rngs, stops=True):
        self.first = gm.nn.Linear(4, 6, rngs=rngs)
        self.blocks = nnx.List([PortOfBlock(6, rngs), PortOfBlock(6, rngs, stops)])

    def __call__(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = nnx.remat(lambda block, x: block(x))(block, x)
        return x


def case(reentrant, **settings):
    return Case(
        name="checkpointed",
        summary="s",
        reference=lambda: Checkpointed(reentrant),
        model=lambda rngs: PortOfCheckpointed(rngs, **settings),
        inputs=lambda rng: (rng.standard_normal((5, 4)),),
        adversarial=(),
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_module_is_found_in_a_reference_that_checkpoints(reentrant):
    assert check(case(reentrant), hasty=True).passed
    report = check(case(reentrant, stops=False), hasty=True)
    assert [each.module for each in report.divergences] == ["blocks.1"], str(report)
    assert [cause.id for each in report.divergences for cause in each.causes] == ["stop-gradient"]


class Counted(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6)
        self.reentrant = reentrant

    def forward(self, x):
        return checkpoint(self.norm, self.first(x), use_reentrant=self.reentrant)


class PortOfCounted(nnx.Module):
    def __init__(self, rngs):
        self.first, self.norm = gm.nn.Linear(4, 6, rngs=rngs), gm.nn.BatchNorm1d(6, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.first(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_statistics_that_a_checkpoint_writes_twice_are_no_ports(reentrant):
    wrong = Case(
        name="counted",
        summary="s",
        reference=lambda: Counted(reentrant),
        model=PortOfCounted,
        inputs=lambda rng: (rng.standard_normal((5, 4)),),
        adversarial=(),
    )
    report = check(wrong, hasty=True)
    off = {name for parity in report.parity for name in [t.name for t in parity.tensors if not t.equal]}
    assert "norm.num_batches_tracked" in off, str(report)
    assert any("checkpoint calls modules" in note for parity in report.parity for note in parity.notes), str(report)


@pytest.mark.parametrize("checkpoints", [False, True])
def test_no_checkpoint_is_told_of_where_there_is_none(checkpoints):
    def run(inputs, mode, cotangents):
        if checkpoints:
            checkpoint(torch.sin, torch.ones(1), use_reentrant=False)
        return SimpleNamespace(find=lambda key: np.ones(2))

    question = SimpleNamespace(label="random 0", mode="forward_backward", inputs=(), cotangents=None)
    truth = SimpleNamespace(question=question, reference=SimpleNamespace(buffers={"norm.mean": np.zeros(2)}))
    judge = SimpleNamespace(is_large=False, exact=SimpleNamespace(run=run))
    tensor = SimpleNamespace(kind="buffer", mode="forward_backward", equal=False, input="random 0")
    assert len([*written_twice(SimpleNamespace(truths=[truth], judge=judge), [tensor])]) == checkpoints


@pytest.mark.parametrize("reentrant", [False, True])
def test_without_checkpoints_gradients_are_the_same(reentrant):
    torch.manual_seed(0)
    model = Checkpointed(reentrant)
    values = torch.randn(3, 4)

    def gradients(x):
        model.zero_grad()
        model(x).square().sum().backward()
        return [p.grad.clone().numpy() for p in model.parameters()]

    usual = gradients(values)
    with no_checkpoints():
        np.testing.assert_equal(gradients(values), usual)


def test_a_reentrant_checkpoint_of_what_has_no_gradient_gives_none():
    layer = torch.nn.Linear(4, 4)
    with no_checkpoints():
        assert not checkpoint(layer, torch.ones(2, 4), use_reentrant=True).requires_grad
        assert checkpoint(layer, torch.ones(2, 4), use_reentrant=False).requires_grad
