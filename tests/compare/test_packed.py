"""Packed sequences of the reference beside padded arrays with lengths."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run
from graphmode.compare.parity.inside.packed import packed_layouts, unpacked
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from graphmode import nn

TIME, BATCH, WIDTH = 6, 4, 3
WORDS = 7


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.rnn = torch.nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.out = torch.nn.Linear(2 * WIDTH, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed, _ = self.rnn(packed)
        padded, _ = pad_packed_sequence(packed, batch_first=True, total_length=TIME)
        return self.out(padded)


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embedding = nn.Embedding(WORDS, WIDTH, rngs=rngs)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True, rngs=rngs)
        self.out = nn.Linear(2 * WIDTH, 2, rngs=rngs)

    def lengths(self, lengths):
        return lengths

    def last(self, y):
        return y

    def __call__(self, words, lengths):
        y, _ = self.rnn(self.embedding(words), lengths=self.lengths(lengths))
        return self.last(self.out(y))


class Doubled(Port):
    def last(self, y):
        return 2 * y


class Bent(Port):
    def last(self, y):
        return jnp.abs(y) - jnp.square(y) / 3  # no known cause


class BentOfPacked(Bent):
    """It packs, too."""

    def __call__(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=TIME)
        return self.last(self.out(padded))


class OneMore(Port):
    def lengths(self, lengths):
        return jnp.minimum(lengths + 1, TIME)


class WithoutLengths(Port):
    def __call__(self, words, lengths):
        seen = jnp.arange(TIME)[None] < lengths[:, None]
        y, _ = self.rnn(self.embedding(words) * seen[..., None])
        return self.out(y * seen[..., None])


def case(port, *, longest=TIME):
    def inputs(rng):
        return rng.integers(0, WORDS, (BATCH, TIME)), np.array([3, longest, 1, 4])

    return Case(name="c", summary="s", reference=Encoder, model=port, inputs=inputs, adversarial=())


def test_a_right_port_introduces_nothing_in_any_module():
    results = run([case(Port)], Plan(speed=False, modules=True))
    (parity,) = results.parity
    assert parity.passed
    by_path = {each.port: each for each in parity.modules}
    assert by_path["rnn"].equal
    assert by_path["rnn"].introduced is not None
    assert by_path["rnn"].introduced < 1e-14


@pytest.mark.parametrize("port", [Doubled, OneMore])
def test_the_module_that_is_wrong_is_accused_alone(port):
    assert [each.module for each in check(case(port), hasty=True).divergences] == [""]


@pytest.mark.parametrize("longest", [TIME, TIME - 1])
def test_lengths_that_are_not_taken_are_named_however_long_the_padding_is(longest):
    report = check(case(WithoutLengths, longest=longest), hasty=True)
    assert [(each.module, each.causes[0].id) for each in report.divergences] == [("rnn", "lengths-missing")]


def test_packing_is_no_sorting_among_ties():
    def inputs(rng):
        return rng.integers(0, WORDS, (BATCH, TIME)), np.array([3, TIME, 3, TIME])

    tied = dataclasses.replace(case(Port), inputs=inputs, adversarial=("few values",))
    (parity,) = check(tied, draws=1).parity
    assert parity.passed
    assert "few values" in parity.inputs, parity.notes


@pytest.mark.parametrize("port", [Bent, BentOfPacked])
def test_the_line_is_looked_for_where_a_packed_layer_lies_within_what_is_wrong(port):
    report = check(case(port), compiled=False, hasty=True)
    assert not report.passed
    assert "was not found" not in str(report)
    bent = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "# no known cause" in line)
    assert f"test_packed.py:{bent} (" in str(report)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_layout_goes_there_and_back(is_sorted, batch_first):
    lengths = torch.tensor([5, 3, 3, 1] if is_sorted else [3, 5, 1, 3])
    padded = torch.randn(4, 5, 2)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=is_sorted)
    fields = {f"0.{name}": value for name, value in packed._asdict().items() if value is not None}
    tensors, packings = unpacked({name: value.numpy() for name, value in fields.items()} | {"1": np.ones(3)})
    assert list(tensors) == ["0.data", "0.lengths", "1"]
    assert tensors["0.lengths"].tolist() == lengths.tolist()
    shape = (4, 7, 2) if batch_first else (7, 4, 2)
    (layout,) = packed_layouts(tensors["0.data"], packings["0.data"], shape)
    there = layout.to_port(tensors["0.data"])
    wanted = np.zeros((4, 7, 2), np.float32)
    for i, length in enumerate(lengths):
        wanted[i, :length] = padded[i, :length]
    np.testing.assert_array_equal(there, wanted if batch_first else wanted.swapaxes(0, 1))
    np.testing.assert_array_equal(layout.to_reference(there), tensors["0.data"])
