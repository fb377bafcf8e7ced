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
from looked_into import look

WIDTH = 6


def rows(rng):
    return (rng.standard_normal((5, WIDTH)),)


def examined(reference, port, mode, inputs=rows):
    """What diverges, and its causes: `[(module, causes), ...]`."""
    case = Case(name="root", summary="s", reference=reference, model=lambda rngs: port(), inputs=inputs)
    found = look(case, mode)
    return [(each.module, explain(found, each).causes) for each in found.divergences()]


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
    found = examined(Moving, lambda: PortMoving(written), "forward_backward")
    told = [(module, cause.id, cause.says) for module, causes in found for cause in causes]
    assert told == (
        [] if names is None else [("", "buffer-not-written", f"does not write what it computes for {names}")]
    )
    assert len(found) == len(told)


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
    found = examined(Judge, lambda: PortJudge(sure), "inference")
    assert [module for module, _ in found] == ([] if right else [""])
    assert all("comparison" in [cause.id for cause in causes] for _, causes in found)


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


def test_another_turn_of_a_loop_is_said_to_be_one():
    ((module, (cause,)),) = examined(Descent, PortDescent, "inference")
    assert (module, cause.id) == ("", "wiring")
    assert cause.says == "gives what sub gives in an earlier call than the reference"


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


def graph(rng):
    mask = np.stack([np.arange(7) % 2 == 0, np.ones(7, bool)], 1)
    return rng.standard_normal((7, WIDTH)), rng.integers(0, 7, (2, 20)), mask


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
    found = examined(Passing, lambda: PortPassing(**changes), "inference", graph)
    assert [(module, causes[0].id) for module, causes in found] == ([] if cause is None else [("", cause)])


class TwoTables(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Embedding(7, WIDTH), torch.nn.Embedding(7, WIDTH)

    def forward(self, words):
        h = torch.tanh(self.first(words) + self.second(words.flip(0)))
        return torch.nn.functional.linear(h, self.second.weight)


class PortOfTwoTables(nnx.Module):
    def __init__(self, head, stopped=False):
        self.first, self.second = (nnx.Embed(7, WIDTH, rngs=nnx.Rngs(0)) for _ in range(2))
        self.head, self.stopped = head, stopped

    def __call__(self, words):
        h = jnp.tanh(self.first(words) + self.second(words[::-1]))
        table = getattr(self, self.head).embedding[...]
        return h @ (jax.lax.stop_gradient(table) if self.stopped else table).T


@pytest.mark.parametrize(
    ("head", "stopped", "cause"), [("first", False, "swapped-weights"), ("second", True, "stop-gradient")]
)
def test_a_table_that_makes_a_head(head, stopped, cause):
    def words(rng):
        return (rng.integers(0, 7, (4, 3)),)

    ((module, told),) = examined(TwoTables, lambda: PortOfTwoTables(head, stopped), "forward_backward", words)
    assert module == ""
    assert [each.id for each in told] == [cause]
