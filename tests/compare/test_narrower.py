"""A reference that computes in a narrower dtype than it was asked for."""

import jax.numpy as jnp
import torch
from flax import nnx
from graphmode.compare import Case, check


class Layer(torch.nn.Module):
    def __init__(self, *, autocast):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.autocast = autocast

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast and x.dtype == torch.float32):
            return self.inner(x).to(x.dtype)


class Port(nnx.Module):
    def __init__(self, rngs, *, autocast=False):
        self.inner = nnx.Linear(16, 16, dtype=jnp.bfloat16 if autocast else None, rngs=rngs)

    def __call__(self, x):
        if x.dtype == jnp.float64:
            return x @ self.inner.kernel[...] + self.inner.bias[...]
        return self.inner(x).astype(x.dtype)


def warnings(*, reference, port, rows=8):
    case = Case(
        name="casts",
        summary="s",
        reference=lambda: Layer(autocast=reference),
        model=lambda rngs: Port(rngs, autocast=port),
        inputs=lambda rng: (rng.standard_normal((rows, 16)),),
        adversarial=(),
    )
    report = check(case)
    assert report.passed, report
    return [each for each in report.parity[-1].warnings if "narrower dtype" in each]


def test_a_port_that_drops_autocast_is_warned_of():
    (told,) = warnings(reference=True, port=False)
    assert "output output is off by 0.00" in told
    (told,) = warnings(reference=True, port=False, rows=2)  # of few outputs no rounding is judged
    assert "gradient by inner.weight is off by 0.00" in told


def test_ports_that_compute_as_the_reference_does_are_not():
    assert warnings(reference=False, port=False) == []
    assert warnings(reference=True, port=True) == []
    assert warnings(reference=True, port=True, rows=2) == []
