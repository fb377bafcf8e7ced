"""Modules that the reference calls in its loop and the port on all steps at once, or the other way round."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run
from graphmode.compare.parity.inside.steps import Steps

from graphmode import nn


class Reference(torch.nn.Module):
    """Normalises all steps at once; the head is called within the loop."""

    def __init__(self):
        super().__init__()
        self.norm, self.cell = torch.nn.LayerNorm(4), torch.nn.RNNCell(4, 6)
        self.head = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))

    def forward(self, x):
        return self.forward_from(self.norm(x))

    def forward_from(self, x):
        h = x.new_zeros(x.shape[0], 6)
        outputs = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outputs.append(self.head(h))
        return torch.stack(outputs, 1)


class Port(nnx.Module):
    """Normalises within the loop; the head is called on all steps."""

    def __init__(self, rngs, eps=1e-5, approximate="none", stop=False):
        self.norm, self.cell = nn.LayerNorm(4, eps=eps, rngs=rngs), nn.RNNCell(4, 6, rngs=rngs)
        self.head = nn.Sequential(
            nn.Linear(6, 5, rngs=rngs), nn.GELU(approximate=approximate), nn.Linear(5, 2, rngs=rngs)
        )
        self.stop = stop

    def __call__(self, x):
        def step(self, h, x):
            h = self.cell(self.norm(x), h)
            return h, h

        every = nnx.StateAxes({...: None})
        scan = nnx.scan(step, in_axes=(every, nnx.Carry, 1), out_axes=(nnx.Carry, self.axis))
        h = scan(self, jnp.zeros((x.shape[0], 6), x.dtype), x)[1]
        return self.read(jax.lax.stop_gradient(h) if self.stop else h)

    axis = 1

    def read(self, h):
        return self.head(h)


class TimeFirst(Port):
    axis = 0

    def read(self, h):
        return self.head(h).swapaxes(0, 1)


class Flat(Port):
    """All steps of all rows as one batch."""

    def read(self, h):
        return self.head(h.reshape(-1, 6)).reshape(*h.shape[:2], 2)


class FlatReference(Reference):
    """Likewise, before the loop."""

    def forward(self, x):
        rows, steps, width = x.shape
        return super().forward_from(self.norm(x.reshape(-1, width)).reshape(rows, steps, width))


def case(make, shape=(3, 5, 4), reference=Reference):
    return Case(
        name="hoisted",
        summary="a loop that is elsewhere",
        reference=reference,
        model=make,
        inputs=lambda rng: (rng.standard_normal(shape),),
        adversarial=(),
    )


def judged(*args):
    return check(case(*args), draws=1, compiled=False, hasty=True)


SIDES = [(Port, Reference), (TimeFirst, Reference), (Flat, FlatReference)]
FAULTS = [
    ({"eps": 1e-3}, "norm", "epsilon"),
    ({"approximate": "tanh"}, "head.1", "gelu-form"),
    ({"stop": True}, "", "stop-gradient"),
]


@pytest.mark.parametrize(("make", "reference"), SIDES)
def test_a_right_port_passes_and_all_its_modules_are_seen(make, reference):
    (parity,) = run([case(make, (3, 5, 4), reference)], Plan(speed=False, modules=True)).parity
    assert parity.passed
    by_path = {each.port: each for each in parity.modules}
    assert set(by_path) == {"", "norm", "cell", "head", "head.0", "head.1", "head.2"}
    assert all(each.introduced is not None and each.introduced < 1e-14 for each in parity.modules)


@pytest.mark.parametrize(("fault", "module", "cause"), FAULTS)
def test_a_wrong_one_is_located_and_explained(fault, module, cause):
    (found,) = judged(partial(Port, **fault)).divergences
    assert (found.module, found.reference) == (module, module)
    assert [each.id for each in found.causes] == [cause]


@pytest.mark.parametrize("shape", [(3, 5, 4), (4, 4, 4)])
@pytest.mark.parametrize(("make", "reference"), SIDES)
def test_values_tell_how_steps_lie(make, reference, shape):
    (found,) = judged(partial(make, approximate="tanh"), shape, reference).divergences
    assert found.module == "head.1"


class NormOfAll(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x.swapaxes(1, 2)).swapaxes(1, 2)


class NormOfEach(nnx.Module):
    def __init__(self, rngs):
        self.norm = nn.BatchNorm1d(4, rngs=rngs)

    def __call__(self, x):
        return jnp.stack([self.norm(x[:, t]) for t in range(x.shape[1])], 1)


def test_what_treats_steps_together_is_not_excused():
    verdict = judged(NormOfEach, (3, 5, 4), NormOfAll)
    assert not verdict.equal
    assert verdict.divergences


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(self.norm(x))


class NormedTwice(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.fc = nn.LayerNorm(4, rngs=rngs), nn.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.norm(x) + self.fc(self.norm(x))


def test_what_a_port_calls_twice_on_all_is_no_step_of_two():
    (found,) = judged(NormedTwice, (2, 2, 4), Residual).divergences
    assert found.module == ""
    assert [each.id for each in found.causes] == ["wiring"]


class TorchOffset(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(5, 4))

    def forward(self):
        return self.weight


class OffsetOnce(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = TorchOffset()

    def forward(self, x):
        return x + self.offset()


class Offset(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.ones((5, 4)))

    def __call__(self, x, t):
        return x + 1.1 * self.weight[t]


class OffsetOfEach(nnx.Module):
    def __init__(self, rngs):
        self.offset = Offset(rngs)

    def __call__(self, x):
        return jnp.stack([self.offset(x[:, t], t) for t in range(x.shape[1])], 1)


def test_a_module_that_takes_nothing_has_no_steps():
    verdict = judged(OffsetOfEach, (3, 5, 4), OffsetOnce)
    assert not verdict.equal
    assert [each.module for each in verdict.divergences] == [""]


@pytest.mark.parametrize("steps", [Steps(3, 0), Steps(3, 1), Steps(3, 2), Steps(3, 0, True), Steps(3, 1, True)])
def test_steps_are_cut_and_joined(steps):
    each = [np.arange(8.0).reshape(2, 4) + 100 * i for i in range(3)]
    whole = steps.join(each)
    assert whole.size == 24
    assert whole.ndim == (2 if steps.merged else 3)
    for made, wanted in zip(steps.cut(whole), each, strict=True):
        np.testing.assert_array_equal(made, wanted)
    for made, wanted in zip(steps.cut(torch.tensor(whole)), each, strict=True):
        np.testing.assert_array_equal(made, wanted)


def test_what_holds_no_such_steps():
    for steps in (Steps(5, 0), Steps(3, 4), Steps(5, 0, merged=True)):
        with pytest.raises(ValueError, match=r"holds no \d steps|cannot reshape"):
            steps.cut(np.zeros((2, 3)))
