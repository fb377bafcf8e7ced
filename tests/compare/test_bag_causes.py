"""Bags of rows, pieces that come in groups, and what a mask takes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

import graphmode as gm

ROWS, WIDTH = 12, 4


class Bags(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="mean")

    def forward(self, rows, offsets):
        return self.bag(rows, offsets)


class BagsPort(nnx.Module):
    side, more = "right", 0.0

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros((ROWS, WIDTH)))

    def reduced(self, x, of_bag, count):
        return jax.ops.segment_sum(x, of_bag, num_segments=len(count)) / (count[:, None] + self.more)

    def __call__(self, rows, offsets):
        of_bag = jnp.searchsorted(offsets, jnp.arange(len(rows)), side=self.side) - 1
        return self.reduced(self.weight[...][rows], of_bag, jnp.diff(jnp.append(offsets, len(rows))))


class Left(BagsPort):
    side = "left"

    def reduced(self, x, of_bag, count):
        own = jax.ops.segment_sum(jnp.ones(len(x)), of_bag, num_segments=len(count))
        return super().reduced(x, of_bag, own)


class More(BagsPort):
    more = 1e-6


class Summed(BagsPort):
    def reduced(self, x, of_bag, count):
        return jax.ops.segment_sum(x, of_bag, num_segments=len(count))


def bags(rng):
    return rng.integers(0, ROWS, 20), np.array([0, 3, 5, 11])


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (Left, "bag-ends", "counts the first row of each bag to the bag before, and the very first to none"),
        (More, "constant", "divides by the number of a bag's rows + 1e-06"),
        (Summed, "reduction", "takes the sum of a bag's rows for the mean"),
    ],
)
def test_what_is_done_with_a_bag_is_named(port, id, says):
    class Whole(nnx.Module):
        def __init__(self, rngs):
            self.bag = port(rngs)

        def __call__(self, rows, offsets):
            return self.bag(rows, offsets)

    assert (id, says) in causes(Bags, Whole, bags)


class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="mean", padding_idx=0)

    def forward(self, rows):
        return self.bag(rows)


class OverAll(nnx.Module):
    def __init__(self, rngs):
        self.bag = gm.nn.Embedding(ROWS, WIDTH, padding_idx=0, rngs=rngs)

    def __call__(self, rows):
        return self.bag(rows).mean(1)


def test_a_mean_that_counts_what_pads_a_bag_is_named():
    found = causes(Padded, OverAll, lambda rng: (rng.integers(0, 3, (6, 4)),))
    assert found == [("padding-index", "divides by the number of all rows of a bag, those of row 0, too")]


class RaggedBags(torch.nn.Module):
    mode, padding = "max", None

    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode=self.mode, padding_idx=self.padding)

    def forward(self, rows, offsets):
        return self.bag(rows, offsets)


class RaggedPadded(RaggedBags):
    mode, padding = "mean", 0


class RaggedPort(nnx.Module):
    def __init__(self, rngs):
        self.bag = Largest(rngs)

    def __call__(self, rows, offsets):
        return self.bag(rows, offsets)


class Largest(BagsPort):
    def reduced(self, x, of_bag, count):
        return jax.ops.segment_max(x, of_bag, num_segments=len(count))


class RaggedPaddedPort(RaggedPort):
    def __init__(self, rngs):
        self.bag = OverRagged(rngs)


class OverRagged(BagsPort):
    def __call__(self, rows, offsets):
        of_bag = jnp.searchsorted(offsets, jnp.arange(len(rows)), side="right") - 1
        summed = jax.ops.segment_sum(jnp.where(rows[:, None] > 0, self.weight[...][rows], 0), of_bag, len(offsets))
        return summed / jnp.diff(jnp.append(offsets, len(rows)))[:, None]


@pytest.mark.parametrize(
    ("reference", "port", "offsets", "told"),
    [
        (RaggedBags, RaggedPort, [0, 3, 3, 11], ("empty-bag", "gives -inf for a bag without rows")),
        (
            RaggedPadded,
            RaggedPaddedPort,
            [0, 3, 5, 11],
            ("padding-index", "divides by the number of all rows of a bag, those of row 0, too"),
        ),
    ],
)
def test_bags_of_several_lengths(reference, port, offsets, told):
    assert told in causes(reference, port, lambda rng: (rng.integers(0, 3, 20), np.array(offsets)))


class Squared(BagsPort):
    def reduced(self, x, of_bag, count):
        return super().reduced(x * x * x, of_bag, count)


class SquaredPort(RaggedPort):
    def __init__(self, rngs):
        self.bag = Squared(rngs)


def test_a_function_that_is_written_out_is_said_to_be_begun_and_not_left():
    case = Case(name="c", summary="s", reference=Bags, model=SquaredPort, inputs=bags, adversarial=())
    told = str(check(case, compiled=False, hasty=True))
    assert "the port writes out what is one function in the reference, embedding_bag, from test_bag_causes.py:" in told
    assert "leaves the reference's way" not in told


class Waves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(1 + 6, WIDTH)

    def forward(self, x):
        waves = [wave(x * 2**k) for k in range(3) for wave in (torch.sin, torch.cos)]
        return self.fc(torch.cat([x, *waves], -1))


class WavesPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(1 + 6, WIDTH, rngs=rngs)

    def __call__(self, x):
        waves = [wave(x * 2**k) for wave in (jnp.sin, jnp.cos) for k in range(3)]
        return self.fc(jnp.concatenate([x, *waves], -1))


def test_pieces_that_are_grouped_otherwise_are_named():
    ((id, says),) = causes(Waves, WavesPort, lambda rng: (rng.standard_normal((6, 1)),))
    assert (id, says.split(", where")[0]) == (
        "pieces-order",
        "joins every 2nd piece, after the first, and then the others likewise",
    )


class Present(torch.nn.Module):
    """The mean over those that are there; nothing else tells which these are."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        h = self.fc(x)
        return h[h.sum(-1) > 0].mean(0)


class Absent(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.fc(x).mean(0)


def test_a_mask_that_takes_out_is_named_where_it_is_left_out():
    told = causes(Present, Absent, lambda rng: (rng.standard_normal((9, WIDTH)),))
    assert told == [("mask-missing", "takes all, and not those alone that a mask holds for")]
