"""What is written into a part of a tensor, sequences of several lengths, and an epsilon beside a root."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

from graphmode import nn as gnn

WIDTH, LENGTH = 6, 5


def rows(rng):
    return (rng.standard_normal((4, WIDTH)).astype(np.float32),)


class Layer(torch.nn.Module):
    def __init__(self, after):
        super().__init__()
        self.fc, self.after = torch.nn.Linear(WIDTH, WIDTH), after

    def forward(self, x):
        return self.after(self.fc(x), x)


class PortLayer(nnx.Module):
    def __init__(self, rngs, after):
        self.fc, self.after = nnx.Linear(WIDTH, WIDTH, rngs=rngs), after

    def __call__(self, x):
        return self.after(self.fc(x), x)


def told(reference, port):
    return causes(lambda: Layer(reference), lambda rngs: PortLayer(rngs, port), rows)


def masked(y, x):
    y = y.clone()
    y[(x > 0.2) & (x < 2.0)] = 0
    return y.cumsum(-1)


def first_of_row(y, x):
    y = y.clone()
    y[:, 0] = 2.0
    return y.cumsum(-1)


@pytest.mark.parametrize(
    ("reference", "port", "cause"),
    [
        (masked, lambda y, x: jnp.cumsum(y, -1), ("mask-missing", "leaves the masked assignment out")),
        (
            masked,
            lambda y, x: jnp.cumsum(jnp.where((x > 0.2) & (x < 2.0), y, 0), -1),
            ("mask-polarity", "assigns where the mask does not hold"),
        ),
        (masked, lambda y, x: jnp.cumsum(jnp.where((x > 0.2) & (x < 2.0), 1.5, y), -1), ("mask-value", "assigns 1.5")),
        (
            first_of_row,
            lambda y, x: jnp.cumsum(y, -1),
            ("assignment-missing", "leaves the assignment to a part out"),
        ),
        (
            lambda y, x: y.index_fill(1, torch.tensor([0, 3]), 0.0).cumsum(-1),
            lambda y, x: jnp.cumsum(y, -1),
            ("assignment-missing", "leaves index_fill out"),
        ),
        (
            lambda y, x: y.masked_scatter(x > 0, x).cumsum(-1),
            lambda y, x: jnp.cumsum(y, -1),
            ("mask-missing", "leaves masked_scatter out"),
        ),
    ],
    ids=["left-out", "turned", "number", "part", "index", "scatter"],
)
def test_an_assignment_that_is_left_out_or_another_is_named(reference, port, cause):
    assert cause in told(reference, port)


def at_whole_bins(y, x):
    low, high, y, z = (2 * x).floor().long(), (2 * x).ceil().long(), y.clone(), x.clone()
    low[(high > 0) & (low == high)] -= 1
    high[(low < 1) & (low == high)] += 1
    y += low
    z += high
    return y * z


def at_bins(y, x):
    return (y + jnp.floor(2 * x)) * (x + jnp.ceil(2 * x))


@pytest.mark.parametrize(
    ("reference", "port", "ends"),
    [
        (lambda y, x: (y.flip(-1) > 0).long().cumsum(-1).flip(-1) * y, lambda y: jnp.cumsum(y > 0, -1) * y, "start"),
        (lambda y, x: (y > 0).cumsum(-1) * y, lambda y: jnp.cumsum(y[:, ::-1] > 0, -1)[:, ::-1] * y, "end"),
    ],
    ids=["start", "end"],
)
def test_a_running_sum_is_told_from_which_end_the_port_takes_it(reference, port, ends):
    assert ("axis", f"sums from the {ends}") in told(reference, lambda y, x: port(y))


def test_that_two_are_left_out_is_told_before_comparisons_that_come_to_the_same():
    whole = causes(
        lambda: Layer(at_whole_bins), lambda rngs: PortLayer(rngs, at_bins), lambda rng: (np.round(*rows(rng)),)
    )
    assert whole == [("mask-missing", "leaves the masked assignment out")]


def under(y, x):
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-3)


def under_a_power(y, x):
    return y * (y.pow(2).mean(-1, keepdim=True) + 1e-3).pow(-0.5)


def beside(y, x):
    return y / (y.pow(2).mean(-1, keepdim=True).sqrt() + 1e-3)


def deviation(y, x):
    return y / (y.std(-1, keepdim=True) + 1e-3)


def squares(y):
    return jnp.mean(y**2, -1, keepdims=True)


@pytest.mark.parametrize(
    ("reference", "port", "says"),
    [
        (under, lambda y, x: y / (jnp.sqrt(squares(y)) + 1e-3), "adds 0.001 to the root, not under it"),
        (under_a_power, lambda y, x: y / (jnp.sqrt(squares(y)) + 1e-3), "adds 0.001 to the root, not under it"),
        (beside, lambda y, x: y / jnp.sqrt(squares(y) + 1e-3), "adds 0.001 under the root"),
        (
            lambda y, x: beside(y, x).abs() ** (1 + x.abs()),
            lambda y, x: jnp.abs(y / jnp.sqrt(squares(y) + 1e-3)) ** (1 + jnp.abs(x)),
            "adds 0.001 under the root",
        ),
        (
            deviation,
            lambda y, x: y / jnp.sqrt(y.var(-1, keepdims=True, ddof=1) + 1e-3),
            "adds 0.001 under the root",
        ),
    ],
    ids=["rsqrt", "power", "sqrt", "before a power of tensors", "std"],
)
def test_an_epsilon_on_the_other_side_of_a_root_is_named(reference, port, says):
    assert ("epsilon-place", says) in told(reference, port)


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x, lengths):
        pack = torch.nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.rnn(pack)
        return torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)[0], torch.tanh(last)


class PortPacked(nnx.Module):
    def __init__(self, rngs):
        self.rnn = gnn.GRU(WIDTH, WIDTH, batch_first=True, rngs=rngs)

    def __call__(self, x, lengths):
        outputs, last = self.run(x, lengths)
        return outputs, jnp.tanh(last)

    def run(self, x, lengths):
        return self.rnn(x, lengths=lengths)


class WithoutLengths(PortPacked):
    def run(self, x, lengths):
        return self.rnn(x)


class PaddingSetToZero(PortPacked):
    def run(self, x, lengths):
        outputs, last = self.rnn(x)
        return jnp.where(jnp.arange(LENGTH)[None, :, None] < lengths[:, None, None], outputs, 0), last


class SortedLengths(PortPacked):
    def run(self, x, lengths):
        return self.rnn(x, lengths=-jnp.sort(-lengths))


class SortedResults(PortPacked):
    def run(self, x, lengths):
        order = jnp.argsort(-lengths)
        outputs, last = self.rnn(x, lengths=lengths)
        return outputs[order], last[:, order]


def of_lengths(rng):
    return rng.standard_normal((3, LENGTH, WIDTH)).astype(np.float32), np.array([3, 5, 2])


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (WithoutLengths, "lengths-missing", "runs over the padding: takes no lengths"),
        (PaddingSetToZero, "lengths-missing", "runs over the padding, and sets its outputs there to zero"),
        (SortedLengths, "lengths-order", "takes the lengths from the longest"),
        (SortedResults, "lengths-order", "leaves outputs and last states in the order of the lengths"),
    ],
)
def test_lengths_of_packed_sequences_that_are_not_taken_are_named(port, id, says):
    told = causes(Packed, port, of_lengths, modules={"rnn": None})  # the lengths are the model's to give
    assert any(found == id and words.startswith(says) for found, words in told)


@pytest.mark.parametrize(
    ("port", "id", "says"),
    [
        (WithoutLengths, "lengths-missing", "runs over the padding: takes no lengths"),
        (PaddingSetToZero, "lengths-missing", "runs over the padding: takes no lengths"),
        (
            SortedLengths,
            "layer-extra",
            "hands what sort gives to rnn where the reference hands its input 1 (lengths): the call",
        ),
    ],
)
def test_lengths_that_a_layer_does_not_take_are_named_where_it_is_looked_at_alone(port, id, says):
    assert any(found == id and words.startswith(says) for found, words in causes(Packed, port, of_lengths))


class Words:
    """`(reference, port, what is said)`."""

    residual = (
        lambda y, x: torch.tanh(x + y),
        lambda y, x: jnp.tanh(y),
        "does not add the residual (of the sum, the first is missing)",
    )
    two_branches = (
        lambda y, x: torch.tanh(torch.sin(y) + torch.cos(y)),
        lambda y, x: jnp.tanh(jnp.sin(y)),
        "does not add the second summand",
    )
    triangle = (
        lambda y, x: torch.triu(y.T @ x, 1) @ x.T,
        lambda y, x: jnp.triu(y.T @ x) @ x.T,
        "takes the triangle from diagonal 0",
    )
    no_reshape = (
        lambda y, x: torch.tanh(y.T @ x).t() * 2,
        lambda y, x: jnp.tanh(y.T @ x) * 2,
        "leaves t out",
    )


@pytest.mark.parametrize("name", [name for name in vars(Words) if not name.startswith("_")])
def test_words_say_what_is_there(name):
    reference, port, says = getattr(Words, name)
    assert says in [words for _, words in told(reference, port)]


def test_pieces_that_no_call_makes_are_unpacked():
    def unpacked(y, x):
        a, b, c = y.reshape(4, 3, 2).transpose(0, 1)
        return a * 2 + torch.sin(b) - torch.cos(c)

    def other(y, x):
        a, c, b = jnp.swapaxes(y.reshape(4, 3, 2), 0, 1)
        return a * 2 + jnp.sin(b) - jnp.cos(c)

    says = "unpacks a tensor in the order (0, 2, 1), where the reference's is (0, 1, 2)"
    assert ("pieces-order", says) in told(unpacked, other)


def test_a_variance_that_is_written_out_has_a_divisor():
    def normed(y, x):
        apart = y - y.mean(-1, keepdim=True)
        return apart / ((apart**2).mean(-1, keepdim=True) + 1e-8).sqrt()

    def other(y, x):
        return (y - y.mean(-1, keepdims=True)) / jnp.sqrt(jnp.var(y, -1, keepdims=True, ddof=1) + 1e-8)

    assert told(normed, other) == [("ddof", "divides by n - 1")]


def test_both_shares_of_a_mean_are_another_number():
    def mixed(y, x):
        return 0.1 * y + 0.9 * torch.sin(y)

    found = told(mixed, lambda y, x: 0.3 * y + 0.7 * jnp.sin(y))
    assert found == [("momentum", "takes 0.7 and 1 less that for the shares 0.9 and 0.1")]


def test_what_is_one_number_is_not_what_is_told():
    def apart(y, x):
        return y.new_zeros(()) + (torch.sin(y) - torch.cos(y)).square().mean(), torch.cos(y)

    found = told(apart, lambda y, x: (0 * jnp.mean(y), jnp.sin(y)))
    assert found == [("wiring", "gives what sin gives where the reference gives what cos gives")]


def test_a_divisor_is_left_out():
    def mean(y, x):
        return (y / (1 + x.square())).mean(-1)

    assert told(mean, lambda y, x: y.mean(-1)) == [("factor-missing", "leaves the divisor out")]
    ((_, says),) = told(lambda y, x: y / (1 + x.square()), lambda y, x: y)
    assert says.endswith(": the divisor is left out")


def test_what_a_number_multiplies_is_left_out():
    def gated(y, x):
        return torch.sin(y) + 0.9 * (x > 0).to(y.dtype) * torch.cos(y)

    def other(y, x):
        return jnp.sin(y) + 0.9 * jnp.cos(y)

    assert ("factor-missing", "has the number 0.9 alone: leaves what it multiplies out") in told(gated, other)


class Cut(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(WIDTH, WIDTH, 4, padding=3)

    def forward(self, x):
        return torch.tanh(self.conv(x)[:, :, : x.shape[-1]])


class PortCut(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(WIDTH, WIDTH, (4,), padding="SAME", rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(jnp.swapaxes(self.conv(jnp.swapaxes(x, 1, 2)), 1, 2))


def test_the_fix_of_a_padding_says_what_is_cut():
    from graphmode.compare import Case, check

    inputs = lambda rng: (rng.standard_normal((2, WIDTH, 9)).astype(np.float32),)  # noqa: E731
    report = check(Case(name="c", summary="s", reference=Cut, model=PortCut, inputs=inputs, adversarial=()))
    (cause,) = report.divergences[0].causes
    assert cause.id == "padding"
    assert "cut" in cause.fix
    assert "stride" not in cause.fix


class Refined(torch.nn.Module):
    """Slots that a cell moves from what they were before a norm, all rows of the batch as one."""

    def __init__(self):
        super().__init__()
        self.norm, self.cell = torch.nn.LayerNorm(WIDTH), torch.nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x):
        normed = self.norm(x)
        return self.cell(torch.tanh(normed).reshape(-1, WIDTH), x.reshape(-1, WIDTH)).reshape(x.shape)


class RefinedPort(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.cell = gnn.LayerNorm(WIDTH, rngs=rngs), gnn.GRUCell(WIDTH, WIDTH, rngs=rngs)

    def before(self, x, normed):
        return normed

    def __call__(self, x):
        normed = self.norm(x)
        before = self.before(x, normed).reshape(-1, WIDTH)
        return self.cell(jnp.tanh(normed).reshape(-1, WIDTH), before).reshape(x.shape)


class RefinedInAnotherOrder(RefinedPort):
    def before(self, x, normed):
        return x.swapaxes(0, 1)


@pytest.mark.parametrize(
    ("port", "told"),
    [
        (RefinedPort, [("wiring", "hands what norm gives to cell where the reference hands what reshape gives")]),
        (RefinedInAnotherOrder, []),  # the same tensor
    ],
)
def test_another_tensor_is_named_where_it_is_laid_out_anew_on_its_way(port, told):
    def slots(rng):
        return (rng.standard_normal((3, 2, WIDTH)),)

    assert causes(Refined, port, slots)[:1] == told


def test_exchanged_shares_of_no_running_mean_are_no_momentum():
    def mixed(y, x):
        return 0.1 * y + 0.9 * torch.sin(y)

    other = lambda y, x: 0.9 * y + 0.1 * jnp.sin(y)  # noqa: E731
    layers = {"reference": lambda: Layer(mixed), "model": lambda rngs: PortLayer(rngs, other)}
    report = check(Case(name="c", summary="s", inputs=rows, adversarial=(), **layers))
    (cause, *_) = [each for each in report.causes if each.id == "momentum"]
    assert "momentum" not in cause.fix, cause


def test_a_mask_that_keeps_the_other_end_of_what_is_drawn_is_named():
    dropped = lambda y, x: y.div(0.7) * torch.floor(0.7 + x.sigmoid())  # noqa: E731
    found = told(dropped, lambda y, x: jnp.where(jax.nn.sigmoid(x) < 0.7, y / 0.7, 0))
    assert found == [("mask-drawn", "keeps where what is drawn is below 0.7, where the reference keeps from 0.3 on")]
