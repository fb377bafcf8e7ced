"""What a call takes in the port that the reference makes later, or elsewhere in its turn of a loop; parts that are cut
at another number, or left out of what changes the rest."""

from pathlib import Path

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from told_causes import causes

import graphmode as gm

HERE = Path(__file__)
SLOTS, WIDTH, STEPS = 4, 5, 3


def line_with(text):
    return next(i for i, line in enumerate(HERE.read_text().splitlines(), 1) if f"# where {text}" in line)


class Memory(torch.nn.Module):
    """Each step reads the memory by what it is given, and then writes into it."""

    def __init__(self):
        super().__init__()
        self.reads, self.writes = torch.nn.Linear(WIDTH, SLOTS), torch.nn.Linear(WIDTH, SLOTS)
        self.erase = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        memory, found = x.new_full((len(x), SLOTS, WIDTH), 0.1), []
        for step in x.unbind(1):
            read = self.reads(step).softmax(-1)  # where it reads
            write = self.writes(step).softmax(-1)  # where it writes
            found.append(torch.matmul(read.unsqueeze(1), memory).squeeze(1))  # the reference reads
            kept = 1 - write.unsqueeze(-1) * torch.sigmoid(self.erase(step)).unsqueeze(1)
            memory = memory * kept + write.unsqueeze(-1) * step.unsqueeze(1)
        return torch.stack(found, 1), memory


class MemoryPort(nnx.Module):
    fault = ""

    def __init__(self, rngs):
        self.reads, self.writes = gm.nn.Linear(WIDTH, SLOTS, rngs=rngs), gm.nn.Linear(WIDTH, SLOTS, rngs=rngs)
        self.erase = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        memory, found = jnp.full((len(x), SLOTS, WIDTH), 0.1, x.dtype), []
        for t in range(x.shape[1]):
            step = x[:, t]
            read, write = jax.nn.softmax(self.reads(step)), jax.nn.softmax(self.writes(step))
            added = (read if self.fault == "place" else write)[..., None] * step[:, None]
            before = memory
            memory = memory * (1 - write[..., None] * jax.nn.sigmoid(self.erase(step))[:, None]) + added
            of = memory if self.fault == "order" else before
            found.append(jnp.einsum("bn,bnm->bm", read, of))
        return jnp.stack(found, 1), memory


class WritesFirst(MemoryPort):
    fault = "order"


class WritesWhereItReads(MemoryPort):
    fault = "place"


def steps(rng):
    return (rng.standard_normal((2, STEPS, WIDTH)),)


def test_a_memory_that_is_read_after_it_is_written_is_named():
    ((id, says), *_) = causes(Memory, WritesFirst, steps)
    assert id == "wiring-order"
    assert says.startswith("gives what add gives to matmul, which the reference computes before that")


def test_another_tensor_of_the_same_turn_is_named_for_all_turns():
    ((id, says), *_) = causes(Memory, WritesWhereItReads, steps)
    given, usual = (f"what softmax gives at {HERE.name}:{line_with(text)}" for text in ("it reads", "it writes"))
    assert id == "wiring"
    assert says == f"gives {given} to unsqueeze in each turn of a loop, where the reference gives {usual}"


EXPERTS = 3


class Switch(torch.nn.Module):
    """Each token goes to one expert, which takes no more than its capacity; the others stay as they are."""

    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        weights, routes = self.router(x).softmax(-1).max(-1)
        capacity, out = len(x) // EXPERTS, torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            taken = (routes == number).nonzero()[:, 0]
            kept, dropped = taken[:capacity], taken[capacity:]
            out[kept] = expert(x[kept])
            out[dropped] = x[dropped]
        return out * weights[:, None]


class SwitchPort(nnx.Module):
    fault = ""

    def __init__(self, rngs):
        self.router = gm.nn.Linear(WIDTH, EXPERTS, rngs=rngs)
        self.experts = nnx.List([gm.nn.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(EXPERTS)])

    def __call__(self, x):
        shares = jax.nn.softmax(self.router(x))
        weights, chosen = shares.max(-1, keepdims=True), jax.nn.one_hot(shares.argmax(-1), EXPERTS, dtype=x.dtype)
        place, capacity = jnp.cumsum(chosen, axis=0) - 1, len(x) // EXPERTS
        kept = chosen * (place <= capacity if self.fault == "capacity" else place < capacity)
        out = sum(kept[:, i, None] * expert(x) for i, expert in enumerate(self.experts))
        dropped = (1 - kept.sum(-1, keepdims=True)) * x
        return out * weights + dropped if self.fault == "scale" else (out + dropped) * weights


class TakesOneMore(SwitchPort):
    fault = "capacity"


class DroppedAsTheyAre(SwitchPort):
    fault = "scale"


def tokens(rng):
    return (rng.standard_normal((24, WIDTH)),)


def test_a_capacity_that_is_compared_by_less_or_equal_is_named():
    ((id, says), *_) = causes(Switch, TakesOneMore, tokens)
    assert (id, says[:41]) == ("bound", "cuts at 9 where the reference cuts at 8: ")


def test_a_factor_that_is_left_out_of_what_is_written_before_is_named():
    ((id, says), *_) = causes(Switch, DroppedAsTheyAre, tokens)
    assert (id, says) == ("written-part", "leaves mul out of what is written into a part of its tensor before")


class Pairs(torch.nn.Module):
    """Left and right, above and below lie beside each other."""

    def __init__(self):
        super().__init__()
        self.reach = torch.nn.Linear(WIDTH, 4)

    def forward(self, x):
        sides = self.reach(x).exp()
        across, along = sides[..., 0::2], sides[..., 1::2]
        return across.amin(-1) / across.amax(-1) * along.amin(-1) / along.amax(-1)


class Halves(nnx.Module):
    def __init__(self, rngs):
        self.reach = gm.nn.Linear(WIDTH, 4, rngs=rngs)

    def __call__(self, x):
        across, along = jnp.split(jnp.exp(self.reach(x)), 2, -1)
        return across.min(-1) / across.max(-1) * along.min(-1) / along.max(-1)


def test_halves_for_every_second_element_are_named():
    ((id, says), *_) = causes(Pairs, Halves, tokens)
    assert (id, says) == ("interleaved", "cuts axis 1 into 2 pieces, where the reference takes every second element")


class Gated(torch.nn.Module):
    """A state that a gate keeps, step by step."""

    def __init__(self):
        super().__init__()
        self.gate, self.new = torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            both = torch.cat([h, step], -1)
            z, q = torch.sigmoid(self.gate(both)), torch.tanh(self.new(both))
            h = (1 - z) * h + z * q
        return h


class KeepsByTheOther(nnx.Module):
    def __init__(self, rngs):
        self.gate, self.new = gm.nn.Linear(2 * WIDTH, WIDTH, rngs=rngs), gm.nn.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        h = jnp.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            both = jnp.concatenate([h, x[:, t]], -1)
            z, q = jax.nn.sigmoid(self.gate(both)), jnp.tanh(self.new(both))
            h = z * h + (1 - z) * q
        return h


def test_a_gate_and_one_minus_it_for_one_another_are_named():
    ((id, says), *_) = causes(Gated, KeepsByTheOther, steps)
    assert (id, says) == ("gate-swapped", "takes a share and one minus it for one another")


class Standardised(torch.nn.Module):
    """By running statistics, which are 0 and 1 as long as nothing has been trained on."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * y.mean((0, 1)))
                self.variance.mul_(0.9).add_(0.1 * y.var((0, 1)))
            return y
        return (y - self.mean) / torch.sqrt(self.variance + 1e-3)


class AddsBesideTheRoot(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.mean, self.variance = nnx.BatchStat(jnp.zeros(WIDTH)), nnx.BatchStat(jnp.ones(WIDTH))
        self.training = True

    def __call__(self, x):
        y = self.fc(x)
        if self.training:
            now = jax.lax.stop_gradient(y)
            self.mean[...] = 0.9 * self.mean[...] + 0.1 * now.mean((0, 1))
            self.variance[...] = 0.9 * self.variance[...] + 0.1 * now.var((0, 1), ddof=1)
            return y
        return (y - self.mean[...]) / (jnp.sqrt(self.variance[...]) + 1e-3)


def test_what_fits_the_first_running_statistics_alone_is_not_told():
    assert causes(Standardised, AddsBesideTheRoot, steps) == [("epsilon-place", "adds 0.001 to the root, not under it")]


def added(x, y, sums):
    """The sum of two points in a ball, of three sums."""
    both, first, second = sums
    return ((1 + 2 * both + second) * x + (1 - first) * y) / (1 + 2 * both + first * second)


class Ball(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.bias = torch.nn.Parameter(torch.randn(WIDTH) / WIDTH)

    def forward(self, x):
        x, y = torch.tanh(self.fc(x)), self.bias
        return added(x, y, [product.sum(-1, keepdim=True) for product in (x * y, x * x, y * y)])


class OtherBall(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x):
        x, y = jnp.tanh(self.fc(x)), self.bias[...]
        return added(x, y, [product.sum(-1, keepdims=True) for product in (x * y, y * y, x * x)])


def test_what_one_function_gives_for_a_batch_and_for_a_bias_in_place_of_one_another_is_named():
    ((id, _), *_) = causes(Ball, OtherBall, steps)
    assert id == "tensors-exchanged"


class Filling(torch.nn.Module):
    """A count of what is stored and alike: nothing is stored at first, and what there is no room for is zero."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kinds", torch.zeros(4))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        return x + (self.kinds[: int(self.filled)] == 0).sum()


class OneTooMany(nnx.Module):
    def __init__(self, rngs):
        self.kinds, self.filled = nnx.BatchStat(jnp.zeros(4)), nnx.BatchStat(jnp.zeros((), int))

    def __call__(self, x):
        return x + ((self.kinds[...] == 0) & (jnp.arange(4) <= self.filled[...])).sum()


def test_a_count_that_is_zero_as_yet_is_no_number_of_the_line():
    told = causes(Filling, OneTooMany, lambda rng: (rng.standard_normal((2, 3)),))
    assert not [says for id, says in told if id == "index"]
