"""A buffer that a call reads and writes: a port that does so in the other order."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

WIDTH = 4


class Following(torch.nn.Module):
    """A mean that is moved before it is used, and a memory that is used before it is written."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.randn(WIDTH))
        self.register_buffer("memory", torch.randn(6, WIDTH))

    @torch.no_grad()
    def follow(self, h):
        self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)

    def forward(self, x):
        h = self.fc(x)
        self.follow(h)
        scores = (h - self.mean) @ self.memory.clone().T
        with torch.no_grad():
            self.memory[: len(h)] = h
        return scores


def port(late=False, early=False):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.mean, self.memory = nnx.BatchStat(jnp.zeros(WIDTH)), nnx.BatchStat(jnp.zeros((6, WIDTH)))

        def __call__(self, x):
            h = self.fc(x)
            fixed = jax.lax.stop_gradient(h)
            mean, memory = 0.9 * self.mean[...] + 0.1 * fixed.mean(0), self.memory[...].at[: len(h)].set(fixed)
            scores = (h - (self.mean[...] if late else mean)) @ (memory if early else self.memory[...]).T
            self.mean[...], self.memory[...] = mean, memory
            return scores

    return Port


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"late": True}, "computes with what mean held before this call"),
        ({"early": True}, "computes with what memory will hold after this call"),
    ],
)
def test_a_buffer_that_is_read_on_the_other_side_of_its_write_is_told(wrong, says):
    found = causes(Following, port(**wrong), lambda rng: (rng.standard_normal((3, WIDTH)),))
    assert {(id, words.startswith(says)) for id, words in found} == {("buffer-order", True)}, found


class Scaled(torch.nn.Module):
    """Divided by a mean before that is moved, in one function: by a write, or as another tensor."""

    def __init__(self, assigns):
        super().__init__()
        self.fc, self.assigns = torch.nn.Linear(WIDTH, WIDTH), assigns
        self.register_buffer("size", torch.ones(()))

    def forward(self, x):
        h = self.fc(x)
        given = h / (self.size if self.assigns else self.size.clone())
        if self.training:
            with torch.no_grad():
                moved = 0.9 * self.size + 0.1 * h.square().mean().sqrt()
            if self.assigns:
                self.size = moved
            else:
                self.size.copy_(moved)
        return given


class ScaledByMoved(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.size = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.BatchStat(jnp.ones(()))
        self.training = True

    def __call__(self, x):
        h = self.fc(x)
        if self.training:
            size = jnp.sqrt(jnp.mean(jax.lax.stop_gradient(h) ** 2))
            self.size[...] = 0.9 * self.size[...] + 0.1 * size
        return h / self.size[...]


@pytest.mark.parametrize("assigns", [True, False])
def test_a_read_that_is_no_part_of_the_write_is_moved_alone(assigns):
    found = causes(lambda: Scaled(assigns), ScaledByMoved, lambda rng: (rng.standard_normal((3, WIDTH)),))
    told = "computes with what size will hold after this call, where the reference has yet to write it"
    assert found == [("buffer-order", told)]


class Warmed(torch.nn.Module):
    """A share by the number of earlier calls, which Python has."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("steps", torch.tensor(1))

    def forward(self, x):
        share = min(1.0, self.steps.item() / 4) if self.training else 1.0
        self.steps += 1
        h = self.fc(x)
        return h + share * torch.tanh(h)


class WarmedByThis(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.steps = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.BatchStat(jnp.array(0))
        self.training = True

    def __call__(self, x):
        self.steps[...] += 1
        share = jnp.minimum(1.0, self.steps[...] / 4) if self.training else 1.0
        h = self.fc(x)
        return h + share * jnp.tanh(h)


def test_a_count_that_is_read_as_a_number_after_its_write_is_told():
    found = causes(Warmed, WarmedByThis, lambda rng: (rng.standard_normal((3, WIDTH)),))
    told = "computes with what steps will hold after this call, where the reference has yet to write it"
    assert found == [("buffer-order", told)]


class WritesNothing(port()):
    def __call__(self, x):
        h = self.fc(x)
        return (h - self.mean[...]) @ self.memory[...].T


def test_writes_that_never_happen_are_told_with_what_reads_them():
    found = causes(Following, WritesNothing, lambda rng: (rng.standard_normal((3, WIDTH)),))
    told = "does not write what it computes for mean, memory, and goes on with what they held"
    assert ("buffer-not-written", told) in found


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        return torch.tanh(x @ self.weight)


class Teacher(torch.nn.Module):
    """A head that follows another, and is moved before it is asked."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = torch.nn.Linear(WIDTH, WIDTH), Head()

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.head.weight.mul_(0.9).add_(self.fc.weight, alpha=0.1)
        return self.fc(x), self.head(x), self.head(2 * x)


class HeadPort(nnx.Module):
    def __init__(self):
        self.weight = nnx.BatchStat(jnp.zeros((WIDTH, WIDTH)))

    def __call__(self, x):
        return jnp.tanh(x @ self.weight[...])


class MovedAfterwards(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.head, self.training = nnx.Linear(WIDTH, WIDTH, rngs=rngs), HeadPort(), True

    def __call__(self, x):
        given = self.fc(x), self.head(x), self.head(2 * x)
        if self.training:
            self.head.weight[...] = 0.9 * self.head.weight[...] + 0.1 * jax.lax.stop_gradient(self.fc.kernel[...].T)
        return given


def test_a_module_that_is_written_after_its_call_is_told():
    found = causes(Teacher, MovedAfterwards, lambda rng: (rng.standard_normal((3, WIDTH)),))
    told = "computes with what head.weight held before this step, which the reference writes anew before it calls it"
    assert found == [("buffer-order", told)]


class Centred(torch.nn.Module):
    """Each row is written into in place, through a view of it."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.fc(x).clone()
        for i in range(len(y)):
            row = y[i]
            row -= row.mean()
        return y.relu()


class NotPutBack(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(self.fc(x))


def test_what_is_written_through_a_view_and_lost_is_told():
    found = causes(Centred, NotPutBack, lambda rng: (rng.standard_normal((3, WIDTH)),))
    told = "loses what is written into what __getitem__ gives, which in the reference is a view of its tensor"
    assert ("write-missing", told) in found


class Iterated(torch.nn.Module):
    """The largest singular value, by two steps that each begin where the one before left."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.register_buffer("u", torch.nn.functional.normalize(torch.randn(WIDTH), dim=0))

    def forward(self, x):
        with torch.no_grad():
            for _ in range(2):
                v = torch.nn.functional.normalize(self.weight @ self.u, dim=0)
                u = torch.nn.functional.normalize(self.weight.T @ v, dim=0)
                self.u.copy_(u)
        return x @ self.weight / torch.dot(v, self.weight @ u)


class WritesAtLast(nnx.Module):
    def __init__(self, rngs):
        self.weight, self.u = nnx.Param(jnp.zeros((WIDTH, WIDTH))), nnx.BatchStat(jnp.zeros(WIDTH))

    def __call__(self, x):
        weight = jax.lax.stop_gradient(self.weight[...])
        v = weight @ self.u[...]  # in both of the steps
        u = weight.T @ (v / jnp.linalg.norm(v))
        u = self.u[...] = u / jnp.linalg.norm(u)
        return x @ self.weight[...] / jnp.dot(v / jnp.linalg.norm(v), self.weight[...] @ u)


def test_a_write_in_one_turn_that_never_happens_is_told():
    found = causes(Iterated, WritesAtLast, lambda rng: (rng.standard_normal((3, WIDTH)),))
    assert found == [("wiring", "does not write into u by copy_, call 1 of 2")]


class Masked(torch.nn.Module):
    """The least of its weights are left out, once it is told how many."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.register_buffer("mask", torch.ones(6, 6))

    def prune(self, limit):
        self.mask.copy_(self.fc.weight.detach().abs() > limit)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.fc.weight * self.mask, self.fc.bias)


class Around(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Masked()

    def forward(self, x):
        self.inner.prune(0.2)
        return torch.tanh(self.inner(x))


class MaskedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.mask = nnx.Linear(6, 6, rngs=rngs), nnx.BatchStat(jnp.ones((6, 6)))

    def prune(self, limit):
        self.mask[...] = (jnp.abs(jax.lax.stop_gradient(self.fc.kernel[...].T)) > limit).astype(self.mask.dtype)

    def __call__(self, x):
        return x @ (self.fc.kernel[...] * self.mask[...].T) + self.fc.bias[...]


class AroundPort(nnx.Module):
    def __init__(self, rngs):
        self.inner = MaskedPort(rngs)

    def __call__(self, x):
        self.inner.prune(0.25)
        return jnp.tanh(self.inner(x))


def test_a_module_is_not_accused_of_what_its_caller_writes_into_it():
    case = Case(
        name="c", summary="s", reference=Around, model=AroundPort, adversarial=(),
        inputs=lambda rng: (rng.standard_normal((4, 6)),), modes=("forward_backward",),
    )  # fmt: skip
    (divergence,) = check(case, hasty=True).divergences
    assert not divergence.module
    assert [finding.tensor for finding in divergence.findings] == ["inner.mask"]
    (cause,) = divergence.causes
    assert cause.id == "threshold"
    assert "for 0.2" in cause.says
