"""Ports that compute in bfloat16 whatever they are given: right where they are declared so, and nowhere else."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check, lockstep
from graphmode.compare.parity.shrink.run import shrink

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


class Scaled(Reference):
    def forward(self, x):
        return 0.3 * super().forward(0.7 * x)


class ScaledCasts(Casts):
    def __call__(self, x):
        return 0.3 * super().__call__(x.astype(jnp.bfloat16) * 0.7)


def test_casts_are_named_beside_numbers_that_they_round_and_nothing_of_the_case_is_accused():
    report = check(case(ScaledCasts, Scaled))
    assert [cause.id for each in report.divergences for cause in each.causes] == ["hidden-cast"]
    assert not any(each.outside for each in report.divergences), str(report)


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


class AsksForComplex(Reference):
    """Of no other dtype than complex64 does it ask."""

    def forward(self, x):
        return (super().forward(x).to(torch.complex64) * (1 + 1j)).real


class Complex(Layers):
    dtype = None

    def __call__(self, x):
        probabilities = jax.nn.softmax(self.out(self.activation(self.norm(self.fc(x)))), -1)
        return (probabilities.astype(jnp.complex64) * (1 + 1j)).real


def test_a_reference_that_asks_for_complex64_alone_is_followed_too():
    report = check(case(Complex, AsksForComplex))
    assert report.equal, str(report)


def trained(model):
    pair = (lambda parameters: torch.optim.SGD(parameters, 0.1)), optax.sgd(0.1)
    return replace(case(model), optimizer=pair)


def test_training_in_lockstep_knows_the_declared_dtype():
    assert not lockstep(trained(Layers), steps=2).passed
    assert lockstep(trained(Layers), steps=2, dtype="bfloat16").passed
    assert not lockstep(trained(Wrong), steps=2, dtype="bfloat16").passed


def test_what_is_wrong_in_bfloat16_is_shrunk_to_its_module():
    with pytest.raises(CaseError, match="the port 'default' is equal"):
        shrink(case(Layers), dtype="bfloat16", location="x.py:CASE")
    found = shrink(case(Wrong), dtype="bfloat16", location="x.py:CASE", budget_s=5)
    assert (found.module, found.failure.pair.spec.dtype) == ("", "bfloat16")
    assert "'bfloat16'" in found.script


@pytest.mark.parametrize("run", [lockstep, shrink])
def test_a_dtype_that_there_is_not_is_refused(run):
    with pytest.raises(ValueError, match="dtype is 'float16'; choose from"):
        run(trained(Layers), dtype="float16")
