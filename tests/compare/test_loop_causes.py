"""Causes of a scan that goes wrong where the reference loops: a state one turn behind, or not carried at all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.call_limit import NeverEnds
from graphmode.compare.parity.causes import explain
from graphmode.compare.parity.causes.change import Change
from graphmode.compare.parity.causes.wrong_call import WrongCall
from graphmode.compare.parity.inside.calls import CallId
from looked_into import look
from told_causes import causes

import graphmode as gm

SIZE, LENGTH = 4, 5


class Reference(torch.nn.Module):
    def __init__(self, reads_in_the_loop=False, cell=False):
        super().__init__()
        self.w, self.u = (torch.nn.Parameter(torch.randn(SIZE, SIZE)) for _ in range(2))
        self.reads_in_the_loop = reads_in_the_loop
        if cell:
            self.cell = torch.nn.Linear(SIZE, SIZE)

    def step(self, x, h):
        return self.cell(h) + x if hasattr(self, "cell") else torch.tanh(x + h @ self.u)

    def forward(self, x):
        h = torch.zeros(x.shape[0], SIZE, dtype=x.dtype)
        outs = []
        for t in range(x.shape[1]):
            h = self.step(x[:, t], h)
            outs.append(h @ self.w if self.reads_in_the_loop else h)
        outs = torch.stack(outs, 1)
        return outs if self.reads_in_the_loop else outs @ self.w


class Port(nnx.Module):
    def __init__(self, rngs, cell=False, *, hands_out="new", carries="new"):
        self.w, self.u = nnx.Param(rngs.normal((SIZE, SIZE))), nnx.Param(rngs.normal((SIZE, SIZE)))
        self.hands_out, self.carries = hands_out, carries
        self.cell = nnx.Linear(SIZE, SIZE, rngs=rngs) if cell else None

    def __call__(self, x):
        def step(h, x):
            new = jnp.tanh(x + h @ self.u) if self.cell is None else self.cell(h) + x
            both = {"old": h, "new": new}
            return both[self.carries], both[self.hands_out]

        start = jnp.zeros((len(x), SIZE), x.dtype)
        return jax.lax.scan(step, start, x.swapaxes(0, 1))[1].swapaxes(0, 1) @ self.w


@pytest.mark.parametrize("reads_in_the_loop", [False, True])
@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize(
    ("wrong", "id"), [({"hands_out": "old"}, "state-behind"), ({"carries": "old"}, "state-not-carried")]
)
def test_what_a_scan_hands_out_and_carries_is_told(reads_in_the_loop, cell, wrong, id):
    case = Case(
        name="loop",
        summary="s",
        reference=lambda: Reference(reads_in_the_loop, cell),
        model=lambda rngs: Port(rngs, cell, **wrong),
        inputs=lambda rng: (rng.standard_normal((3, LENGTH, SIZE)).astype(np.float32),),
    )
    found = look(case, "forward_backward")
    (divergence,) = found.divergences()
    assert [cause.id for cause in explain(found, divergence).causes] == [id]


class Shrunk(torch.nn.Module):
    """Until little is left, or for so long that nobody waits for it."""

    def forward(self, x):
        for _ in range(100_000):
            if x.sum() <= 1:
                break
            x = x * 0.5
        return x


class ShrunkPort(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.4, x)


def test_a_change_that_keeps_a_loop_going_is_given_up():
    inputs = lambda rng: (rng.uniform(1, 2, (4, 3)),)  # noqa: E731
    case = Case(name="c", summary="s", reference=Shrunk, model=ShrunkPort, inputs=inputs, modes=("inference",))
    found = look(case, "inference")
    (divergence,) = found.divergences()
    replay = WrongCall(found, CallId(divergence.module, divergence.call)).replay
    first = next(site.number for site in replay.sites() if site.name == "mul")
    with pytest.raises(NeverEnds):
        replay.run(Change(lambda func, args, kwargs: args[0] * float("nan"), frozenset([first])))


class Bounded(ShrunkPort):
    def __call__(self, x):
        (x, _), _ = gm.while_loop(lambda s: s[0].sum() > 1, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0), max_steps=3)
        return x


def test_a_loop_that_its_bound_ends_is_told_by_its_line():
    inputs = lambda rng: (rng.uniform(1, 2, (4, 3)),)  # noqa: E731
    case = Case(name="c", summary="s", reference=Shrunk, model=Bounded, inputs=inputs, modes=("inference",))
    (parity,) = check(case, draws=1, hasty=True, compiled=False).parity
    assert any("max_steps=3 ends the loop at test_loop_causes.py:" in note for note in parity.notes), parity.notes


class Residual(torch.nn.Module):
    """Products with a residual, each with a tangent but the last."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(3, SIZE, SIZE))

    def forward(self, x):
        for i, weight in enumerate(self.weights):
            new = x @ weight
            x = x + (torch.tanh(new) if i < 2 else new)
        return x


class TangentToTheLast(nnx.Module):
    def __init__(self, rngs):
        self.weights = nnx.Param(jnp.zeros((3, SIZE, SIZE)))

    def __call__(self, x):
        for weight in self.weights[...]:
            x = x + jnp.tanh(x @ weight)
        return x


def test_an_activation_too_many_in_one_turn_is_named():
    ((id, says),) = causes(Residual, TangentToTheLast, lambda rng: (rng.standard_normal((5, SIZE)),))
    assert (id, says) == ("activation-extra", "applies tanh to what matmul gives, which it gives to add in one turn")


class Stepped(torch.nn.Module):
    """By steps that grow until little is left to the end, of which the last is kept."""

    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.tensor(0.3))

    def forward(self, y, end):
        t, step = torch.zeros_like(end), self.step.clone()
        while t < end:
            step = torch.minimum(step, end - t)
            y, t = y + step * torch.tanh(y), t + step
            step = step * 1.25
        return y, step + 0.1


class SteppedPort(nnx.Module):
    def __init__(self, rngs):
        self.step = nnx.BatchStat(jnp.array(0.3))

    def __call__(self, y, end):
        def turn(carry, _):
            t, step, y = carry
            live, step = t < end, jnp.minimum(step, end - t)
            y, t = jnp.where(live, y + step * jnp.tanh(y), y), jnp.where(live, t + step, t)
            return (t, step * 1.25, y), None  # as after the end

        (_, step, y), _ = jax.lax.scan(turn, (jnp.zeros_like(end), self.step[...].astype(y.dtype), y), None, length=12)
        return y, step + 0.1


def test_a_turn_after_the_end_that_changes_what_is_carried_is_told():
    inputs = lambda rng: (rng.standard_normal((3, 4)), 0.5 + rng.random(()))  # noqa: E731
    ((id, says),) = causes(Stepped, SteppedPort, inputs)
    assert (id, says[:44]) == ("turn-too-many", "takes a turn of the loop more than the refer")
