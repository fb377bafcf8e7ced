"""What is not finite in float32 alone, which PyTorch avoids: the operation that makes it, and its line."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as TF
from flax import nnx
from graphmode.compare import Case, check

import graphmode as gm

HERE = Path(__file__)


def line_with(text):
    return next(i for i, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(f"# {text}"))


class Reference(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.fc, self.act = torch.nn.Linear(4, 4), Function(forward)

    def forward(self, x):
        return self.act(self.fc(x))


class Function(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.function = forward

    def forward(self, x):
        return self.function(x)


class FunctionPort(nnx.Module):
    def __init__(self, forward):
        self.function = forward

    def __call__(self, x):
        return self.function(x)


class Port(nnx.Module):
    def __init__(self, forward, rngs):
        self.fc, self.act = gm.nn.Linear(4, 4, rngs=rngs), FunctionPort(forward)

    def __call__(self, x):
        return self.act(self.fc(x))


def told(reference, port, **fields):
    case = Case(
        name="c",
        summary="s",
        reference=lambda: Reference(reference),
        model=lambda rngs: Port(port, rngs),
        inputs=lambda rng: (rng.standard_normal((5, 4)),),
        edge_inputs={"large": lambda rng: (500 * rng.standard_normal((5, 4)),)},
        adversarial=(),
        **fields,
    )
    report = check(case, draws=1, compiled=False)
    assert report.equal, str(report)
    assert not report.precise
    (found,) = report.divergences
    assert (found.module, found.input, found.dtype) == ("act", "large", "float32"), str(report)
    assert all("are not finite, and PyTorch's are" in finding.note for finding in found.findings)
    (cause,) = found.causes
    return cause


def log_of_sigmoid(x):
    small = jax.nn.sigmoid(x)  # vanishes
    return jnp.log(small)  # takes the logarithm


def log_of_sum(x):
    large = jnp.exp(x)  # overflows
    return jnp.log1p(large)


def test_a_logarithm_of_what_float32_holds_for_zero_is_named():
    cause = told(TF.logsigmoid, log_of_sigmoid, modes=("inference",))
    assert cause.id == "not-finite"
    assert cause.says.startswith(
        f"gives -inf in float32 in log at {HERE.name}:{line_with('takes the logarithm')}, of 0, where float64 has -"
    )
    assert cause.says.endswith(f"is 0 in float32, by logistic at {HERE.name}:{line_with('vanishes')}")


def test_what_is_beyond_the_range_of_float32_is_named():
    cause = told(lambda x: torch.logaddexp(x, x * 0), log_of_sum, modes=("inference",))
    assert cause.id in ("not-finite", "overflow")
    assert f"in exp at {HERE.name}:{line_with('overflows')}" in cause.says


def test_a_gradient_by_what_is_left_out_is_named():
    def reference(x):
        return torch.zeros_like(x).masked_scatter(x > 0, x[x > 0].log())

    def port(x):
        rates = jnp.where(x > 0, x, jnp.exp(x))  # of large ones, too
        kept = jnp.log(rates)  # is left out
        return jnp.where(x > 0, kept, 0.0)

    cause = told(reference, port)
    assert cause.id == "not-finite-gradient"
    first, second = (f"at {HERE.name}:{line_with(text)}" for text in ("of large ones, too", "is left out"))
    assert cause.says.startswith(
        f"has no finite derivative in float32 in exp {first}, log {second}, and one in float64"
    )


def test_a_mask_of_infinities_is_none():
    def masked(x):
        scores = jnp.where(x > 0, x, -jnp.inf)
        return jnp.log(jax.nn.softmax(scores, -1) + 0)  # of a score far below

    def reference(x):
        return torch.log_softmax(x.masked_fill(x <= 0, -np.inf), -1)

    cause = told(reference, masked, modes=("inference",))
    assert f"in log at {HERE.name}:{line_with('of a score far below')}, of 0" in cause.says
