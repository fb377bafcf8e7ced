"""Ports that compute in bfloat16 whatever they are given: right where they are declared so, and nowhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

WIDTH = 8


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out = torch.nn.Linear(WIDTH, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.fc(x)))).softmax(-1)


class Layers(nnx.Module):
    """Flax's layers, built in bfloat16; the softmax in float32, as is good style."""

    dtype = jnp.bfloat16

    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, 16, dtype=self.dtype, rngs=rngs)
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, use_fast_variance=False, dtype=self.dtype, rngs=rngs)
        self.out = nnx.Linear(16, 4, dtype=self.dtype, rngs=rngs)

    def activation(self, x):
        return jax.nn.relu(x)

    def __call__(self, x):
        x = self.out(self.activation(self.norm(self.fc(x))))
        return jax.nn.softmax(x.astype(jnp.float32), -1).astype(x.dtype)


class Casts(Layers):
    """Layers that follow their inputs, which the port casts itself."""

    dtype = None

    def __call__(self, x):
        return super().__call__(x.astype(jnp.bfloat16)).astype(jnp.bfloat16)


class Wrong(Layers):
    def activation(self, x):
        return x


def case(model, reference=Reference):
    rows = lambda rng: (rng.standard_normal((5, WIDTH)).astype(np.float32),)  # noqa: E731
    return Case(name="c", summary="s", reference=reference, model=model, inputs=rows, adversarial=())


@pytest.mark.parametrize("model", [Layers, Casts])
def test_a_port_in_bfloat16_passes_as_that(model):
    report = check(case(model), dtype="bfloat16")
    assert report.passed, str(report)


@pytest.mark.parametrize(("model", "module"), [(Layers, "fc"), (Casts, "")])
def test_it_fails_where_float32_is_declared_and_the_cast_is_named(model, module):
    report = check(case(model))
    assert not report.equal
    assert not report.precise
    assert [cause.id for cause in report.first_divergence.causes] == ["hidden-cast"]
    says = [cause.says for each in report.divergences if each.module == module for cause in each.causes]
    assert any("to bfloat16 at test_declared_dtype.py:" in words for words in says), str(report)


def test_a_wrong_port_in_bfloat16_is_caught_as_that():
    report = check(case(Wrong), dtype="bfloat16")
    assert not report.equal
    assert [cause.id for cause in report.first_divergence.causes] == ["activation-missing"]


class ReferenceCasts(Reference):
    def forward(self, x):
        return super().forward(x).to(torch.bfloat16).to(x.dtype)


class PortCasts(Layers):
    dtype = None

    def __call__(self, x):
        probabilities = jax.nn.softmax(self.out(self.activation(self.norm(self.fc(x)))), -1)
        return probabilities.astype(jnp.bfloat16).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cast_that_is_the_references_own_is_the_ports_too(dtype):
    report = check(case(PortCasts, ReferenceCasts), dtype=dtype)
    assert report.passed, str(report)
