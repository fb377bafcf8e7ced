"""Gradients that a compiled graph's rounding alone keeps from NaN; what cannot be near zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.away_from_zero import singular
from graphmode.compare.parity.causes.graph import INLINED

import graphmode as gm

WIDTH = 4


def moved(x, y, sums):
    """One point of a ball, moved by another: nothing, where that is its opposite."""
    both, first, second = sums
    return ((1 + 2 * both + second) * x + (1 - first) * y) / (1 + 2 * both + first * second)


class Distances(torch.nn.Module):
    """Of each point to each other one."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        z = torch.tanh(self.fc(x)) / 3
        rows = []
        for i in range(len(z)):
            a, b = -z[i].expand_as(z), z
            apart = moved(a, b, [p.sum(-1, keepdim=True) for p in (a * b, a * a, b * b)]).norm(dim=-1)
            rows.append(torch.atanh(apart))
        far = torch.stack(rows)
        return torch.softmax(-far.masked_fill(torch.eye(len(z), dtype=torch.bool), 1e9), -1), z


class Port(nnx.Module):
    length = staticmethod(lambda x: gm.safe_norm(x, axis=-1))

    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        z = jnp.tanh(self.fc(x)) / 3
        a, b = -z[:, None], z[None]
        apart = self.length(moved(a, b, [jnp.sum(p, -1, keepdims=True) for p in (a * b, a * a, b * b)]))
        far = jnp.where(jnp.eye(z.shape[0], dtype=bool), 1e9, jnp.arctanh(apart))
        return jax.nn.softmax(-far, -1), z


class Unsafe(Port):
    length = staticmethod(lambda x: jnp.linalg.norm(x, axis=-1))


class Chosen(Port):
    """The largest of constants is computed in the dtype that they have in this run."""

    def __call__(self, x):
        return super().__call__(x + jnp.argmax(jnp.zeros(1, x.dtype)))


@pytest.mark.parametrize(("port", "is_right"), [(Port, True), (Chosen, True), (Unsafe, False)])
def test_a_distance_to_itself_that_rounding_keeps_from_zero_is_seen(port, is_right):
    case = Case(
        name="c",
        summary="s",
        reference=Distances,
        model=port,
        inputs=lambda rng: (rng.standard_normal((6, WIDTH)),),
        modes=("forward_backward",),
        adversarial=(),
    )
    report = check(case)
    assert report.passed == is_right
    assert not [note for note in report.parity[0].notes if "was not found out" in note]
    causes = [cause for each in report.divergences for cause in each.causes]
    assert [cause.id for cause in causes] == ([] if is_right else ["nan-gradient"])
    assert all("sqrt" in cause.says for cause in causes)


NEVER_ZERO = {
    "softmax": lambda x: jnp.log(jax.nn.softmax(x)),
    "log_softmax": jax.nn.log_softmax,
    "deviation": lambda x: x / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5),
    "root mean square": lambda x: x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6),
    "limit": lambda x: jnp.log(jnp.maximum(x, 1e-6)),
    "clip": lambda x: jnp.sqrt(jnp.clip(x, 0.1, 2.0)),
    "sum of squares and one": lambda x: jnp.sqrt(1 + jnp.sum(x * x, -1)),
    "product": lambda x: jnp.log(jnp.exp(x) * (1 + jnp.abs(x))),
    "sigmoid": lambda x: jnp.log(jax.nn.sigmoid(x).reshape(-1)[::2]),
    "a power": lambda x: (jnp.square(x) + 0.5) ** 1.5,
    "a number": lambda x: x * jnp.sqrt(2.0) + jnp.log(jnp.arange(1.0, 4.0)),
}
MAYBE_ZERO = {
    "norm": lambda x: jnp.linalg.norm(x, axis=-1),
    "less than nothing": lambda x: jnp.sqrt(jnp.square(x) - 1e-5),
    "one less": lambda x: jnp.sqrt(1 - jnp.tanh(x)),
    "maximum with zero": lambda x: jnp.log(jax.nn.relu(x)),
    "deviation": lambda x: x / jnp.std(x, -1, keepdims=True),
    "selected": lambda x: jnp.log(jnp.where(x > 0, jnp.exp(x), x)),
    "a power": lambda x: jnp.abs(x) ** 0.3,
    "rows beyond the end": lambda x: jnp.log(jnp.take(jnp.exp(x), jnp.array([0, 9]), 0, mode="fill", fill_value=0)),
    "a whole part": lambda x: jnp.sqrt(jnp.exp(x).astype(int).astype(float)),
    "a remainder": lambda x: jnp.sqrt(jnp.exp(x) % 2.0),
    "sorted beside others": lambda x: jnp.log(jax.lax.sort((jnp.exp(x), x), num_keys=1)[1]),
}


@pytest.mark.parametrize(
    ("function", "wanted"),
    [(f, False) for f in NEVER_ZERO.values()] + [(f, True) for f in MAYBE_ZERO.values()],
    ids=[*NEVER_ZERO, *(f"{name}, maybe zero" for name in MAYBE_ZERO)],
)
def test_what_cannot_be_zero_is_told_from_what_can(function, wanted):
    graph = jax.make_jaxpr(function)(np.zeros((2, 3), np.float32))
    assert bool(singular(graph, INLINED)) == wanted


def test_integers_of_64_bits_are_taken():
    def function(x, index):
        return jnp.log(jnp.exp(x) + jnp.take_along_axis(index, index, 0, mode="fill"))

    with jax.enable_x64(True):
        graph = jax.make_jaxpr(function)(np.zeros(3), np.arange(3))
    assert singular(graph, INLINED)
