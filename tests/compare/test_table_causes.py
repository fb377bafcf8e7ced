"""Tables that a port makes otherwise: anchors, positions, kernels, which no input makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from told_causes import causes

from graphmode import nn

SIDE, WIDTH, BATCH = 3, 4, 2
SOBEL = [[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]


def anchors():
    """`[9, 4]`: centre x and y, width and height."""
    rows = [((j + 0.5) / SIDE, (i + 0.5) / SIDE, 0.5, 0.25) for i in range(SIDE) for j in range(SIDE)]
    return np.array(rows)


class Boxes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("anchors", torch.tensor(anchors()), persistent=False)

    def forward(self, x):
        deltas, anchors = self.fc(x), self.anchors.to(x)
        centre = anchors[:, :2] + 0.1 * deltas[..., :2] * anchors[:, 2:]
        return torch.cat([centre, anchors[:, 2:] * torch.exp(0.2 * deltas[..., 2:])], -1)


class PortBoxes(nnx.Module):
    def __init__(self, rngs):
        self.fc = nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        deltas, table = self.fc(x), jnp.asarray(anchors()[:, [1, 0, 2, 3]], x.dtype)
        centre = table[:, :2] + 0.1 * deltas[..., :2] * table[:, 2:]
        return jnp.concatenate([centre, table[:, 2:] * jnp.exp(0.2 * deltas[..., 2:])], -1)


def relative(stride):
    """`[9, 9]`: where the table of biases holds that of a pair of places."""
    at = np.stack(np.meshgrid(range(SIDE), range(SIDE), indexing="ij"), -1).reshape(-1, 2)
    apart = at[:, None] - at[None] + SIDE - 1
    return apart[..., 0] * stride + apart[..., 1]


class Biased(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(2 * SIDE * (2 * SIDE - 1)))
        self.register_buffer("index", torch.tensor(relative(2 * SIDE - 1)), persistent=False)

    def forward(self, x):
        return torch.softmax(x @ x.mT + self.table[self.index], -1) @ x


class PortBiased(nnx.Module):
    def __init__(self, rngs):
        self.table = nnx.Param(jnp.zeros(2 * SIDE * (2 * SIDE - 1)))

    def __call__(self, x):
        scores = x @ x.mT + self.table[...][jnp.asarray(relative(2 * SIDE))]
        return jax.nn.softmax(scores, -1) @ x


class Edges(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.conv2d(x, torch.tensor(SOBEL, dtype=x.dtype)[None, None], padding=1)


class PortEdges(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        kernel = jnp.asarray([SOBEL[0], [1.0, 0.0, 0.0], SOBEL[2]], x.dtype)
        return jax.lax.conv(x, kernel[None, None], (1, 1), "SAME")


def rows(rng):
    return (rng.standard_normal((BATCH, SIDE * SIDE, WIDTH)),)


def pictures(rng):
    return (rng.standard_normal((BATCH, 1, 6, 6)),)


@pytest.mark.parametrize(
    ("reference", "port", "inputs", "says"),
    [
        (Boxes, PortBoxes, rows, "makes anchors otherwise: with its places along axis 1 in the order (1, 0, 2, 3)"),
        (Biased, PortBiased, rows, "makes index otherwise: [0, 0] is 14 for 12; 72 of 81 differ"),
        (Edges, PortEdges, pictures, "makes what tensor gives otherwise: [1, 0] is 1 for 0"),
    ],
)
def test_a_table_that_is_made_otherwise_is_named_with_how_it_differs(reference, port, inputs, says):
    told = causes(reference, port, inputs, modes=("inference",))
    assert [(id, words.startswith(says)) for id, words in told] == [("table", True)], told
