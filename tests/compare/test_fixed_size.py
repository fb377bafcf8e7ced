"""Tensors as long as their values say, in the reference, beside those of a fixed size that a graph has instead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run
from graphmode.compare.parity.inside.fixed_size import fixed_size_layout
from graphmode.compare.parity.inside.layouts import Layouts, pair
from rows_sample import WIDTH, Rows, RowsPort

import graphmode as gm
from graphmode import nn

ROWS = 7


def inputs(rng):
    return (rng.normal(size=(ROWS, WIDTH)).astype(np.float32),)


def case(reference, port, inputs=inputs):
    return Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=())


class Chosen(Rows):
    """Computes on the rows of a positive sum alone."""

    def forward(self, x):
        chosen = x.sum(1) > 0
        return torch.zeros_like(x).masked_scatter(chosen[:, None], super().forward(x[chosen]))


class Compacted(RowsPort):
    """Those rows first, at the capacity of all."""

    def __call__(self, x):
        counts = x.sum(1) > 0
        chosen = gm.compact(x, counts, capacity=ROWS).map(self.rows, batched=True, sizes=[5, ROWS])
        return chosen.scatter(counts, into=jnp.zeros_like(x))


class Dense(RowsPort):
    """All rows, and those left out in the end."""

    def __call__(self, x):
        return jnp.where((x.sum(1) > 0)[:, None], self.rows(x), 0)


class Leaking(Dense):
    """Rows that do not count come into what does."""

    def __call__(self, x):
        y = self.rows(x)
        counts = (x.sum(1) > 0)[:, None]
        return jnp.where(counts, y + 1e-3 * y.sum(0), 0)


PORTS = [Compacted, Dense]


class ReferenceBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(WIDTH, 5), torch.nn.Linear(5, WIDTH)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.first(x)))


class ChosenBlock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = ReferenceBlock()

    def forward(self, x):
        chosen = x.sum(1) > 0
        return torch.zeros_like(x).masked_scatter(chosen[:, None], self.block(x[chosen]))


def accused(made):
    return [each.module for each in check(made, hasty=True).divergences]


@pytest.mark.parametrize("port", PORTS)
def test_a_right_port_introduces_nothing_in_any_module(port):
    results = run([case(Chosen, port)], Plan(speed=False, modules=True))
    (parity,) = results.parity
    assert parity.passed
    by_path = {each.port: each for each in parity.modules}
    for path in ("first", "norm", "last"):
        assert by_path[path].introduced is not None
        assert by_path[path].introduced < 1e-14


@pytest.mark.parametrize("port", PORTS)
def test_the_module_that_is_wrong_is_accused_alone(port):
    report = check(case(Chosen, lambda rngs: port(rngs, eps=1e-3)), hasty=True)
    assert [each.module for each in report.divergences] == ["norm"]
    assert [cause.id for cause in report.divergences[0].causes] == ["epsilon"]


@pytest.mark.parametrize("port", PORTS)
def test_a_module_that_is_wrong_in_its_gradient_is_accused_alone(port):
    class Stopped(port):
        def rows(self, x):
            return self.last(jax.lax.stop_gradient(jnp.tanh(self.norm(self.first(x)))))

    assert accused(case(Chosen, Stopped)) == [""]


def test_rows_that_do_not_count_and_come_into_what_does_are_the_fault_of_what_is_around_them():
    assert accused(case(Chosen, Leaking)) == [""]


class Grown(torch.nn.Module):
    """Reads its own words, one more at each step."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(11, WIDTH), torch.nn.Linear(WIDTH, 11)

    def forward(self, words):
        for _ in range(3):
            scores = self.out(self.embed(words).cumsum(1)[:, -1])
            words = torch.cat([words, scores.argmax(1, keepdim=True)], 1)
        return words, scores


class Buffered(nnx.Module):
    """The same in a buffer as long as the last step needs."""

    def __init__(self, rngs: nnx.Rngs, scale=1.0):
        self.embed, self.out = nn.Embedding(11, WIDTH, rngs=rngs), nn.Linear(WIDTH, 11, rngs=rngs)
        self.scale = scale

    def __call__(self, words):
        held = words.shape[1]
        words = jnp.pad(words, ((0, 0), (0, 3)))
        for i in range(3):
            scores = self.scale * self.out(jnp.cumsum(self.embed(words), 1)[:, held + i - 1])
            words = words.at[:, held + i].set(scores.argmax(1))
        return words, scores


def sentence(rng):
    return (rng.integers(0, 11, (2, 4)),)


def test_a_buffer_that_fills_up_holds_the_reference_s_words_so_far():
    assert check(case(Grown, Buffered, sentence)).passed
    assert accused(case(Grown, lambda rngs: Buffered(rngs, scale=1.5), sentence)) == [""]


class Padding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(2, 2, 3)

    def forward(self, x):
        return self.conv(x).mean(2)


def test_a_module_that_makes_its_output_longer_by_itself_is_accused():
    class Port(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.conv = nn.Conv1d(2, 2, 3, padding=1, data_format="NCL", rngs=rngs)

        def __call__(self, x):
            return self.conv(x).mean(2)

    assert accused(case(Padding, Port, lambda rng: (rng.normal(size=(2, 2, 8)).astype(np.float32),))) == ["conv"]


def test_places_are_the_first_ones_or_some_in_their_order():
    layouts = Layouts()
    port = np.arange(12.0).reshape(6, 2)

    def find(reference, known=(), given=False):
        return fixed_size_layout(port, np.asarray(reference), layouts.fit, known, layouts.tolerance, given=given)

    assert find(port[:2]).places.tolist() == [0, 1]
    assert find(port[[1, 4, 5]]).places.tolist() == [1, 4, 5]
    assert find(port[[4, 1]]) is None
    assert find(port[[1]], given=True) is None
    known = find(port[[1, 4]])
    assert known.to_port(np.zeros((2, 2)))[:, 0].tolist() == [0, 0, 4, 6, 0, 10]
    assert known.gradient_to_port(np.ones((2, 2)))[:, 0].tolist() == [0, 1, 0, 0, 1, 0]
    assert known.beyond(port)[:, 0].tolist() == [0, 4, 6, 10]
    for given in (False, True):
        assert find(np.full((2, 2), 0.5), [known], given).places.tolist() == [1, 4]


def test_what_is_wrong_has_the_places_of_the_call_around_it():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.first, self.last = nn.Linear(WIDTH, 5, rngs=rngs), nn.Linear(5, WIDTH, rngs=rngs)

        def __call__(self, x):
            return self.last(jax.nn.gelu(self.first(x)))

    class Port(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.block = Block(rngs)

        def __call__(self, x):
            return jnp.where((x.sum(1) > 0)[:, None], self.block(x), 0)

    report = check(case(ChosenBlock, Port), hasty=True)
    (found,) = report.divergences
    assert found.module == "block"
    assert [cause.id for cause in found.causes] == ["gelu-form"]
    assert not any("other shapes" in note for note in report.parity[0].notes)


def test_one_of_several_tensors_is_not_held_against_all_of_them():
    lines = np.arange(24.0).reshape(3, 2, 4)
    both = {"0": lines[:1], "1": lines[1:, :, :3]}
    assert pair([lines], both, Layouts()) == []
    (found,) = pair([lines], {"0": lines[:1]}, Layouts())
    assert found.layout.places.tolist() == [0]
