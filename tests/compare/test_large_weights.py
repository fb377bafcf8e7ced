"""What overflows in a port with large weights alone, and not in the reference."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

from graphmode import nn

WIDTH = 6


class Scores(torch.nn.Module):
    """Behind a norm, so that large inputs give no large scores."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        scores = self.fc(self.norm(x))
        return torch.nn.functional.logsigmoid(scores), torch.logaddexp(scores, -scores)


class Port(nnx.Module):
    log_sigmoid, logaddexp = staticmethod(jax.nn.log_sigmoid), staticmethod(jnp.logaddexp)

    def __init__(self, rngs):
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        scores = self.fc(self.norm(x))
        return self.log_sigmoid(scores), self.logaddexp(scores, -scores)


def log_of_sigmoid(x):
    return jnp.log(jax.nn.sigmoid(x))


def log_of_sum(x, y):
    return jnp.log(jnp.exp(x) + jnp.exp(y))


def by_quotient(x, y):  # of what may be nothing
    return jnp.maximum(x, y) + jnp.log1p(jnp.exp(-jnp.abs(x - y))) + 0 / jnp.exp(-jnp.abs(x - y))


class LogOfSigmoid(Port):
    log_sigmoid = staticmethod(log_of_sigmoid)


class LogOfSum(Port):
    logaddexp = staticmethod(log_of_sum)


class ByQuotient(Port):
    logaddexp = staticmethod(by_quotient)


@pytest.mark.parametrize(
    ("port", "wrong", "name", "why"),
    [
        (Port, None, "", ""),
        (LogOfSigmoid, log_of_sigmoid, "0", "nothing to take a logarithm of"),
        (LogOfSum, log_of_sum, "1", "overflows"),
        (ByQuotient, by_quotient, "1", "divisor has become zero"),
    ],
    ids=["right", "a sigmoid's logarithm", "a sum's logarithm", "a divisor"],
)
def test_an_exponential_that_overflows_is_said(port, wrong, name, why):
    def inputs(rng):
        return (rng.standard_normal((16, WIDTH)).astype(np.float32),)

    report = check(Case(name="c", summary="s", reference=Scores, model=port, inputs=inputs, modes=("inference",)))
    assert report.passed, report
    told = [warning for warning in report.parity[0].warnings if "times as large" in warning]
    assert all(why in each for each in told)
    if wrong is None:
        assert not told
    else:
        line = inspect.getsourcelines(wrong)[1] + 1
        assert [f"finite in {name}, " in each and f"test_large_weights.py:{line}:" in each for each in told] == [True]


class Masked(torch.nn.Module):
    """Overflows likewise, but for what is masked."""

    def __init__(self):
        super().__init__()
        self.log_scale = torch.nn.Parameter(torch.rand(2, WIDTH))

    def forward(self, x, mask):
        h = torch.exp(self.log_scale)[0] * x
        return torch.softmax(h, 1).masked_fill(mask, 0.0)


class PortMasks(nnx.Module):
    def __init__(self, rngs):
        self.log_scale = nnx.Param(jnp.zeros((2, WIDTH)))

    def __call__(self, x, mask):
        return jax.nn.softmax(jnp.exp(self.log_scale[0]) * x, axis=1) * (1.0 - mask)


def test_what_overflows_in_the_reference_too_is_not_said():
    def inputs(rng):
        return rng.standard_normal((16, WIDTH)), rng.random((16, WIDTH)) < 0.5

    case = Case(name="c", summary="s", reference=Masked, model=PortMasks, inputs=inputs, modes=("inference",))
    (parity,) = check(case).parity
    assert parity.equal
    assert not [warning for warning in parity.warnings if "times as large" in warning]


class Waits(torch.nn.Module):
    """Ends at once with weights as they are, and never with large ones."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        scores = self.fc(x)
        while scores.abs().max() > 100:
            scores = scores * 1.0
        return scores


class PortWaits(nnx.Module):
    def __init__(self, rngs):
        self.fc = nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.fc(x)


class PortLoops(PortWaits):
    def __call__(self, x):
        return jax.lax.while_loop(lambda y: jnp.abs(y).max() > 100, lambda y: y * 1.0, self.fc(x))


@pytest.mark.parametrize("port", [PortWaits, PortLoops])
def test_a_loop_that_large_weights_never_end_is_not_asked(port):
    def inputs(rng):
        return (rng.standard_normal((4, WIDTH)),)

    fields = {"reference": Waits, "model": port, "modes": ("inference",), "adversarial": ()}
    assert check(Case(name="c", summary="s", inputs=inputs, **fields), draws=1).passed
