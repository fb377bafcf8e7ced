"""What is compiled without optimisations accuses nobody: two fusions of a graph may round the same values otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.quick_compile import QUICKLY, SOUNDLY


class Largest(torch.nn.Module):
    """Squares of the largest of each group, of values that a batch norm gives."""

    def forward(self, x):
        dims = tuple(range(x.ndim - 1))
        x = (x - x.mean(dims)) / torch.sqrt(x.var(dims, unbiased=False) + 1e-5)
        return x.amax(-2) ** 2


class PortLargest(nnx.Module):
    factor = 1.0

    def __init__(self, rngs):
        pass

    def __call__(self, x):
        axes = tuple(range(x.ndim - 1))
        x = (x - x.mean(axes)) / jnp.sqrt(x.var(axes) + 1e-5)
        return self.factor * x.max(-2) ** 2


class Doubled(PortLargest):
    factor = 2.0


def groups(rng):
    return (rng.standard_normal((3, 24, 8, 16)).astype(np.float32),)


def gradient(x, options):
    return np.asarray(jax.jit(jax.grad(total)).lower(x).compile(options)(x))


def total(x):
    return PortLargest(None)(x).sum()


def test_without_optimisations_a_gradient_is_lost_and_soundly_it_is_not():
    """If this fails in its first line, QUICKLY has become sound, and nothing need be compiled anew."""
    with jax.enable_x64(True):
        x = jnp.asarray(groups(np.random.default_rng(0))[0], jnp.float64)
        right = np.asarray(jax.grad(total)(x))  # operation by operation
        scale = np.abs(right).max()
        assert np.abs(gradient(x, QUICKLY) - right).max() > 0.1 * scale
        assert np.abs(gradient(x, SOUNDLY) - right).max() < 1e-12 * scale


@pytest.mark.parametrize(("port", "equal"), [(PortLargest, True), (Doubled, False)])
def test_a_right_port_is_equal_all_the_same(port, equal):
    report = check(
        Case(name="c", summary="s", reference=Largest, model=port, inputs=groups, adversarial=("a large mean",)),
        draws=1,
        locate=False,
    )
    assert report.equal == equal, str(report)
    assert not any("kink" in warning for warning in report.parity[0].warnings)
