"""The line of a wrong port whose cause is known is that which makes what the cause changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from told_lines import divergence_of, lines_of, lines_with

import graphmode as gm

GRID = 4


class Assigned(torch.nn.Module):
    """A loss of the cells of a grid that boxes are in, of those that are there."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x, boxes, valid):
        out = self.head(x)
        loss, count = out.new_zeros(()), 0
        for b in range(len(x)):
            kept = boxes[b][valid[b]] * GRID
            column, row = kept[:, 0].long(), kept[:, 1].long()
            cells = out[b, row, column]
            near = torch.sigmoid(cells[:, :2]) + torch.stack([column, row], 1)
            loss = loss + (near - kept).square().sum() + torch.tanh(cells[:, 2]).sum()
            count += len(kept)
        return loss / max(count, 1)


class AssignedPort(nnx.Module):
    def __init__(self, rngs):
        self.head = gm.nn.Linear(6, 3, rngs=rngs)

    def one(self, out, boxes, valid):
        kept = boxes * GRID
        column, row = kept[:, 0].astype(jnp.int32), kept[:, 1].astype(jnp.int32)
        cells = out[column, row]  # the cells
        near = jax.nn.sigmoid(cells[:, :2]) + jnp.stack([column, row], 1)
        far = jnp.square(near - kept).sum(1) + jnp.tanh(cells[:, 2])
        return jnp.where(valid, far, 0).sum()

    def __call__(self, x, boxes, valid):
        loss = jax.vmap(self.one)(self.head(x), boxes, valid).sum()
        return loss / jnp.maximum(valid.sum(), 1)


def test_the_line_of_exchanged_indices_under_a_mask_is_that_which_indexes():
    def inputs(rng):
        boxes = rng.uniform(0, 1, (3, 5, 2))
        return rng.standard_normal((3, GRID, GRID, 6)), boxes, rng.random((3, 5)) < 0.6

    divergence = divergence_of(Assigned, AssignedPort, inputs)
    assert [cause.id for cause in divergence.causes] == ["index-order"]
    assert lines_of(divergence) == lines_with(__file__, "the cells")


class Classes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(6, 5)

    def forward(self, x, shares):
        return torch.nn.functional.cross_entropy(self.head(x), shares.softmax(-1))


class ClassesPort(nnx.Module):
    def __init__(self, rngs):
        self.head = gm.nn.Linear(6, 5, rngs=rngs)

    def __call__(self, x, shares):
        found = jax.nn.log_softmax(self.head(x))
        lost = -found * jax.nn.softmax(shares)
        return lost.mean()  # of the classes, too


def test_what_a_function_of_pytorch_computes_inside_is_no_line():
    inputs = lambda rng: (rng.standard_normal((7, 6)), rng.standard_normal((7, 5)))  # noqa: E731
    divergence = divergence_of(Classes, ClassesPort, inputs)
    assert lines_of(divergence) == lines_with(__file__, "of the classes, too")


class Doubled(torch.nn.Module):
    """What one network chooses is judged by another."""

    def __init__(self):
        super().__init__()
        self.online, self.target = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, now, later):
        best = self.online(later).argmax(1)
        value = self.target(later).gather(1, best[:, None])[:, 0]
        return self.online(now), value


class DoubledPort(nnx.Module):
    def __init__(self, rngs):
        self.online, self.target = gm.nn.Linear(4, 3, rngs=rngs), gm.nn.Linear(4, 3, rngs=rngs)

    def __call__(self, now, later):
        best = jnp.argmax(self.target(later), axis=1)  # by the other one
        value = jnp.take_along_axis(self.target(later), best[:, None], axis=1)[:, 0]
        return self.online(now), value


def test_two_of_one_kind_that_are_called_as_often_as_each_other_are_not_exchanged():
    inputs = lambda rng: (rng.standard_normal((8, 4)), rng.standard_normal((8, 4)))  # noqa: E731
    divergence = divergence_of(Doubled, DoubledPort, inputs)
    assert not divergence.module
    (cause,) = divergence.causes
    assert (cause.id, cause.says) == (
        "layer-repeated",
        "calls target where the reference calls online, in call 1 of it",
    )
    assert lines_of(divergence) == lines_with(__file__, "by the other one")


class Windowed(torch.nn.Module):
    """Looks at a window, and at a few that all see, of which the port computes all."""

    def __init__(self):
        super().__init__()
        self.q, self.k = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

    def forward(self, x, keep, seen):
        q, k = self.q(x), self.k(x)
        rows, live = F.pad(k, (0, 0, 1, 1)), F.pad(keep & ~seen, (1, 1))
        near = torch.stack([(q * rows[:, i : i + x.shape[1]]).sum(-1) for i in range(3)], -1)
        near = near - 0.3 * (torch.arange(3) - 1).abs()
        near = near.masked_fill(~live.unfold(1, 3, 1), -1e4)
        found = []
        for b in range(len(x)):
            at = seen[b].nonzero()[:, 0]
            found.append(torch.cat([q[b] @ k[b, at].t(), near[b]], -1).softmax(-1)[:, len(at) :])
        return torch.stack(found)


class WindowedPort(nnx.Module):
    def __init__(self, rngs):
        self.q, self.k = gm.nn.Linear(3, 4, rngs=rngs), gm.nn.Linear(3, 4, rngs=rngs)

    def distances(self):
        return jnp.abs(jnp.arange(3) - 1)

    def live(self, keep, seen):
        return keep & ~seen

    def __call__(self, x, keep, seen):
        q, k = self.q(x), self.k(x)
        rows = jnp.pad(k, ((0, 0), (1, 1), (0, 0)))
        live = jnp.pad(self.live(keep, seen), ((0, 0), (1, 1)))  # whom it may see
        at = np.arange(x.shape[1])[:, None] + np.arange(3)
        near = jnp.einsum("btd,btwd->btw", q, rows[:, at])
        bias = 0.3 * self.distances()  # how far it is
        near = jnp.where(live[:, at], near - bias, -1e4)
        all_of = jnp.where(seen[:, None], jnp.einsum("btd,bgd->btg", q, k), -jnp.inf)
        return jax.nn.softmax(jnp.concatenate([all_of, near], axis=-1), axis=-1)[..., x.shape[1] :]


class SeesTwice(WindowedPort):
    def live(self, keep, seen):
        return keep


class Signed(WindowedPort):
    def distances(self):
        return jnp.arange(3) - 1


@pytest.mark.parametrize(("port", "mark"), [(SeesTwice, "whom it may see"), (Signed, "how far it is")])
def test_where_the_reference_has_what_the_cause_makes_the_line_is_that_of_what_comes_of_it(port, mark):
    def inputs(rng):
        seen = rng.random((3, 8)) < 0.3
        seen[:, 0] = True
        return rng.standard_normal((3, 8, 3)), np.arange(8) < rng.integers(4, 9, (3, 1)), seen

    divergence = divergence_of(Windowed, port, inputs)
    assert divergence.causes
    assert lines_of(divergence) == lines_with(__file__, mark)


class Kept(torch.nn.Module):
    """The least weights go: the first of an order."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        order = self.fc.weight.detach().abs().flatten().argsort()
        mask = torch.ones(36, dtype=x.dtype)
        mask[order[:9]] = 0
        return torch.nn.functional.linear(x, self.fc.weight * mask.view(6, 6))


class KeptByRank(nnx.Module):
    """One more goes: by the rank of each, of which the reference has the inverse alone."""

    def __init__(self, rngs):
        self.fc = gm.nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        weight = self.fc.weight[...].T
        rank = jnp.argsort(jnp.argsort(jnp.abs(jax.lax.stop_gradient(weight)).reshape(-1)))
        on = rank > 9  # one more
        return x @ (weight * on.reshape(6, 6)).T


def test_an_order_by_its_inverse_is_the_references():
    divergence = divergence_of(Kept, KeptByRank, lambda rng: (rng.standard_normal((4, 6)),))
    assert lines_of(divergence) == lines_with(__file__, "one more")
