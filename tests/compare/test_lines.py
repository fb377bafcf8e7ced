"""Lines of many lengths, each of which the reference runs by itself, beside a batch as wide as the longest."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, Plan, check, run
from graphmode.compare.parity.inside.fixed_size import EndToEnd, fixed_size_layout, layout_of_lines
from graphmode.compare.parity.inside.layouts import Layouts

import graphmode as gm
from graphmode import nn

LINES, STEPS, WIDTH = 3, 9, 4


def inputs(rng):
    x = rng.normal(size=(LINES, STEPS, WIDTH)).astype(np.float32)
    return x, np.array([STEPS, 4, 7])


class Reference(torch.nn.Module):
    """A convolution and a recurrent layer on each line, and statistics of all of them."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(WIDTH, 5, 3, padding=1, stride=2)
        self.norm = torch.nn.BatchNorm1d(5)
        self.rnn = torch.nn.GRU(5, 6, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(12, 2)

    def forward(self, x, lengths):
        lines = [self.conv(line[None, :n].mT) for line, n in zip(x, lengths.tolist(), strict=True)]
        normed = self.norm(torch.cat(lines, 2)).split([line.shape[2] for line in lines], 2)
        given = [self.head(self.rnn(torch.relu(line).mT)[0])[0] for line in normed]
        return torch.nn.utils.rnn.pad_sequence(given, batch_first=True)


class Port(nnx.Module):
    def __init__(self, rngs, eps=1e-5, slope=0.0):
        self.conv = nn.Conv1d(WIDTH, 5, 3, padding=1, stride=2, rngs=rngs)
        self.norm = nn.BatchNorm1d(5, eps=eps)
        self.rnn = nn.GRU(5, 6, batch_first=True, bidirectional=True, rngs=rngs)
        self.head = nn.Linear(12, 2, rngs=rngs)
        self.slope = slope

    def __call__(self, x, lengths):
        there = gm.lengths_to_mask(lengths, x.shape[1])[..., None]
        y, lengths = self.conv(jnp.where(there, x, 0)), -(-lengths // 2)
        there = gm.lengths_to_mask(lengths, y.shape[1])[..., None]
        y = self.norm(y, mask=there)
        y = jnp.where(y > 0, y, self.slope * y)
        y = self.head(self.rnn(y, lengths=lengths)[0])
        return jnp.where(there, y, 0)


def case(port):
    return Case(name="c", summary="s", reference=Reference, model=port, inputs=inputs, adversarial=())


class SwappedGates(Port):
    def __init__(self, rngs):
        super().__init__(rngs)
        gates = self.rnn.weight_hh_l0.shape[-1] // 3

        class Swapped(nn.GRU):
            def __call__(self, *args, **kwargs):
                kept = {name: x[...] for name, x in vars(self).items() if isinstance(x, nnx.Param)}
                for name, tensor in kept.items():
                    r, z, n = jnp.split(tensor, [gates, 2 * gates], -1)
                    getattr(self, name)[...] = jnp.concatenate([z, r, n], -1)
                try:
                    return super().__call__(*args, **kwargs)
                finally:
                    for name, tensor in kept.items():
                        getattr(self, name)[...] = tensor

        self.rnn.__class__ = Swapped


class Flipped(Port):
    def __init__(self, rngs):
        super().__init__(rngs)

        class Backwards(nn.Conv1d):
            def __call__(self, x):
                kernel = self.weight[...]
                self.weight[...] = kernel[::-1]
                y = super().__call__(x)
                self.weight[...] = kernel
                return y

        self.conv.__class__ = Backwards


def test_the_right_port_is_equal_and_all_its_modules_are_seen():
    (parity,) = run([case(Port)], Plan(speed=False, modules=True)).parity
    assert parity.passed
    assert {each.port for each in parity.modules} == {"", "conv", "norm", "rnn", "head"}
    assert all(each.introduced is not None and each.introduced < 1e-14 for each in parity.modules)


@pytest.mark.parametrize(
    ("port", "module", "cause"),
    [
        (lambda rngs: Port(rngs, eps=1e-3), "norm", "epsilon"),
        (SwappedGates, "rnn", "gate-order"),
        (lambda rngs: Port(rngs, slope=0.1), "", "activation"),
        (Flipped, "conv", "kernel-flipped"),
    ],
)
def test_an_error_is_found_where_it_arises_and_explained(port, module, cause):
    report = check(case(port), hasty=True)
    assert not report.passed
    assert [each.module for each in report.divergences] == [module], str(report)
    assert [each.id for each in report.causes] == [cause], str(report)


def test_two_axes_that_count_as_one_are_found_by_value():
    x, lengths = inputs(np.random.default_rng(0))
    port = x.astype(np.float64)
    rows = np.concatenate([line[:n] for line, n in zip(port, lengths, strict=True)])
    layout = fixed_size_layout(port, rows, Layouts().fit, (), 1e-10, given=False)
    assert layout is not None
    np.testing.assert_array_equal(layout.to_reference(port), rows)
    there = np.arange(STEPS) < lengths[:, None]
    np.testing.assert_array_equal(layout.beyond(port), port[~there])
    again = layout.to_port(2 * rows)
    np.testing.assert_array_equal(again, np.where(there[..., None], 2 * port, port))
    np.testing.assert_array_equal(layout.gradient_to_port(rows), np.where(there[..., None], port, 0))


def test_lines_lie_where_their_lengths_say_whatever_the_values_are():
    x, lengths = inputs(np.random.default_rng(0))
    images = np.moveaxis(x, 2, 1)[:, :, None]  # [lines, channels, 1, steps]
    wanted = np.concatenate([line[None, :, :, :n] for line, n in zip(images, lengths, strict=True)], 3)
    port = np.moveaxis(images, 1, 3)
    layout = layout_of_lines(port + 1, wanted, EndToEnd(3, tuple(lengths.tolist())), Layouts().fit)
    assert layout is not None
    np.testing.assert_allclose(layout.to_reference(port), wanted)
    np.testing.assert_array_equal(layout.to_port(wanted)[2, :, :7], port[2, :, :7])
    assert layout_of_lines(port, wanted, EndToEnd(3, (STEPS + 1, 4, 7)), Layouts().fit) is None


class Sets(torch.nn.Module):
    """A layer on what a mask keeps of each set, and its largest values."""

    def __init__(self):
        super().__init__()
        self.phi, self.head = torch.nn.Linear(WIDTH, 5), torch.nn.Linear(5, 2)

    def forward(self, x, mask):
        kept = [self.phi(row[m]) for row, m in zip(x, mask, strict=True)]
        return self.head(torch.stack([h.amax(0) if len(h) else h.new_zeros(5) for h in kept]))


class SetsPort(nnx.Module):
    def __init__(self, rngs, least=-jnp.inf):
        self.phi, self.head, self.least = nn.Linear(WIDTH, 5, rngs=rngs), nn.Linear(5, 2, rngs=rngs), least

    def __call__(self, x, mask):
        largest = jnp.where(mask[..., None], self.phi(x), self.least).max(1)
        return self.head(jnp.where(mask.any(1)[:, None], largest, 0))


def sets(rng):
    mask = rng.random((6, STEPS)) < 0.5
    mask[2] = False
    return rng.normal(size=(6, STEPS, WIDTH)).astype(np.float32), mask


def test_rows_that_a_mask_with_holes_keeps_accuse_no_module_that_takes_them():
    made = lambda port: Case(name="c", summary="s", reference=Sets, model=port, inputs=sets, adversarial=())  # noqa: E731
    assert check(made(SetsPort)).passed
    report = check(made(lambda rngs: SetsPort(rngs, least=0.0)), hasty=True)
    (divergence,) = report.divergences
    assert divergence.module == ""
    assert {finding.tensor for finding in divergence.findings} == {"0 of head"}
