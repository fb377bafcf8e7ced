"""What is done in another order across a change of layout, and gradients and indices that take the other way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from told_causes import causes

WIDTH = 6
NODES = 9


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.gain = torch.nn.Parameter(torch.linspace(0.2, 0.7, WIDTH))

    def forward(self, x):
        x, given = self.conv(x).contiguous(), x  # of what is contiguous it gives that itself
        return given + (self.gain * self.norm(x.permute(0, 2, 3, 1))).contiguous().permute(0, 3, 1, 2)


class PortBlock(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(WIDTH, WIDTH, (3, 3), rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.gain = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x):
        return jnp.moveaxis(self.last(jnp.moveaxis(x, 1, -1)), -1, 1)


class GainOfTheSum(PortBlock):
    def last(self, x):
        return self.gain * (x + self.norm(self.conv(x)))


class NormFirst(PortBlock):
    def last(self, x):
        return x + self.gain * self.conv(self.norm(x))


def images(rng):
    return (rng.standard_normal((2, WIDTH, 5, 4)).astype(np.float32),)


@pytest.mark.parametrize(("port", "id"), [(GainOfTheSum, "calls-order"), (NormFirst, "module-order")])
def test_another_order_is_named_where_one_side_is_channels_last(port, id):
    assert [each for each, _ in causes(Block, port, images)] == [id]


class Quantized(torch.nn.Module):
    """A codebook's loss and a commitment's, of which one is detached where the other is not."""

    def __init__(self):
        super().__init__()
        self.one, self.other = torch.nn.Linear(WIDTH, 4), torch.nn.Linear(WIDTH, 4)

    def forward(self, x):
        z, q = self.one(x), self.other(x)
        mse = torch.nn.functional.mse_loss
        return mse(q, z.detach()) + 0.25 * mse(q.detach(), z), z + (q - z).detach()


class OtherSide(nnx.Module):
    def __init__(self, rngs):
        self.one, self.other = nnx.Linear(WIDTH, 4, rngs=rngs), nnx.Linear(WIDTH, 4, rngs=rngs)

    def __call__(self, x):
        z, q = self.one(x), self.other(x)
        stopped = jax.lax.stop_gradient
        loss = jnp.mean((stopped(q) - z) ** 2) + 0.25 * jnp.mean((q - stopped(z)) ** 2)
        return loss, z + stopped(q - z)


def test_a_gradient_that_is_stopped_on_the_other_side_is_named():
    rows = lambda rng: (rng.standard_normal((5, WIDTH)).astype(np.float32),)  # noqa: E731
    found = causes(Quantized, OtherSide, rows)
    says = "stops the gradient by the other argument of mse_loss than the reference, in each of its calls"
    assert found == [("stop-gradient", says)]


class OneHot(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x).softmax(-1)
        hard = torch.zeros_like(y).scatter_(-1, y.max(-1, keepdim=True)[1], 1.0)
        return (hard - y).detach() + y


class AllHard(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        y = jax.nn.softmax(self.fc(x))
        hard = jax.nn.one_hot(y.argmax(-1), 4, dtype=y.dtype)
        return jax.lax.stop_gradient(hard - y) + hard


def test_zeros_that_are_filled_are_called_by_what_fills_them():
    ((id, says), *_) = causes(OneHot, AllHard, lambda rng: (rng.standard_normal((6, 4)),))
    assert (id, says) == ("wiring", "gives what scatter_ gives to add where the reference gives what softmax gives")


class Graph(torch.nn.Module):
    """The mean of what the neighbours at the other end of edges send."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edges):
        loops = torch.arange(len(x))
        source, target = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        degree = torch.zeros(len(x), dtype=x.dtype).index_add(0, target, torch.ones(len(target), dtype=x.dtype))
        return torch.zeros_like(x).index_add(0, target, self.fc(x)[source]) / degree[:, None]


class OutDegree(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, edges):
        source, target = (jnp.concatenate([each, jnp.arange(NODES)]) for each in edges)
        degree = jnp.zeros(NODES, x.dtype).at[source].add(1)
        return jnp.zeros_like(x).at[target].add(self.fc(x)[source]) / degree[:, None]


def test_edges_that_are_counted_at_the_other_end_are_named():
    graph = lambda rng: (rng.standard_normal((NODES, WIDTH)).astype(np.float32), rng.integers(0, NODES, (2, 20)))  # noqa: E731
    (found,) = causes(Graph, OutDegree, graph)
    assert found == ("wiring", "gives index_add another tensor than the reference does, also what cat gives")


@pytest.mark.parametrize("given", [((1, 2), (0, 1)), {"shifts": (1, 2), "dims": (0, 1)}])
def test_a_roll_the_other_way_is_named_however_its_arguments_are_given(given):
    class Rolled(torch.nn.Module):
        def forward(self, x):
            return torch.roll(x, **given) if isinstance(given, dict) else torch.roll(x, *given)

    class Back(nnx.Module):
        def __init__(self, rngs):
            del rngs

        def __call__(self, x):
            return jnp.roll(x, (-1, -2), (0, 1))

    def table(rng):
        return (rng.standard_normal((NODES, WIDTH)),)

    assert causes(Rolled, Back, table) == [("shift", "rolls the other way")]


@pytest.mark.parametrize(
    ("shifts", "says"),
    [
        ((2, 1), "rolls each of axes 0, 1 by what is another's"),
        ((1, -2), "rolls the other way along axis 1"),
        ((0, 2), "does not roll along axis 0"),
    ],
)
def test_a_roll_that_is_another_along_one_axis_is_named(shifts, says):
    class Rolled(torch.nn.Module):
        def forward(self, x):
            return torch.roll(x, (1, 2), (0, 1)) * x

    class Otherwise(nnx.Module):
        def __init__(self, rngs):
            del rngs

        def __call__(self, x):
            return jnp.roll(x, shifts, (0, 1)) * x

    found = causes(Rolled, Otherwise, lambda rng: (rng.standard_normal((NODES, WIDTH)),))
    assert found == [("shift", says)]


class Momentum(torch.nn.Module):
    """A step that looks ahead by its momentum."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, kept):
        g = self.fc(x)
        new = 0.9 * kept + g
        return x - 0.5 * (g + 0.8 * new), new.sum()


class NotAhead(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, kept):
        g = self.fc(x)
        before = 0.9 * kept
        return x - 0.5 * (g + before), (before + g).sum()


def test_of_two_tensors_of_one_function_the_one_that_is_taken_for_the_other_is_told_by_its_line():
    draw = lambda rng: (rng.standard_normal((3, WIDTH)), rng.standard_normal((3, WIDTH)))  # noqa: E731
    ((id, says),) = causes(Momentum, NotAhead, draw)
    line = Momentum.forward.__code__.co_firstlineno + 2
    file = "test_moved_causes.py"
    wanted = f"gives add what mul gives at {file}:{line} where the reference gives that at {file}:{line + 1}"
    assert (id, says) == ("wiring", wanted)


class Grid(torch.nn.Module):
    def forward(self, theta):
        return torch.nn.functional.affine_grid(theta, [theta.shape[0], 1, 5, 4], align_corners=False)


class PortGrid(nnx.Module):
    def __init__(self, rngs):
        del rngs

    def base(self):
        return [(2 * jnp.arange(count) + 1) / count - 1 for count in (4, 5)]

    def ordered(self, x, y):
        return x, y

    def turned(self, grid):
        return grid

    def __call__(self, theta):
        x, y = self.ordered(*jnp.meshgrid(*self.base()))
        base = jnp.stack([x, y, jnp.ones_like(x)], -1).astype(theta.dtype)
        return self.turned(jnp.einsum("hwk,bck->bhwc", base, theta))


@pytest.mark.parametrize(
    ("wrong", "id"),
    [
        ({"base": lambda self: [jnp.linspace(-1, 1, count) for count in (4, 5)]}, "align-corners"),
        ({"ordered": lambda self, x, y: (y, x)}, "axes-order"),
        ({"turned": lambda self, grid: grid[..., ::-1]}, "axes-order"),
    ],
)
def test_a_grid_laid_out_otherwise_is_named(wrong, id):
    told = causes(Grid, type("Wrong", (PortGrid,), wrong), lambda rng: (rng.standard_normal((3, 2, 3)),))
    assert [each for each, _ in told] == [id]
