"""Inputs of the check's own making: what counts on them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check
from graphmode.compare.parity import judge

import graphmode.nn as gnn


class Objects(torch.nn.Module):
    """A mean over what is of some class, which divides by 1 where nothing is."""

    def forward(self, scores, labels):
        chosen = (labels > 0).float()
        return (scores * chosen).sum() / chosen.sum().clamp(min=1)


class ObjectsPort(nnx.Module):
    def __init__(self, limits: bool):
        self.limits = limits

    def __call__(self, scores, labels):
        count = (labels > 0).sum()
        return (scores * (labels > 0)).sum() / (jnp.maximum(count, 1) if self.limits else count)


@pytest.mark.parametrize("limits", [True, False])
def test_a_count_that_is_never_zero_by_chance_is_asked_for_none(limits):
    case = Case(
        name="objects",
        summary="an empty class",
        reference=Objects,
        model=lambda _: ObjectsPort(limits),
        inputs=lambda rng: (rng.standard_normal(80).astype("float32"), rng.integers(0, 4, 80)),
    )
    report = check(case)
    assert report.passed == limits, report
    assert limits or "'the least integers'" in str(report)


def case(forward, port, inputs=lambda rng: (rng.standard_normal((4, 6)),), **fields) -> Case:
    """A model of two functions, without parameters."""

    class Reference(torch.nn.Module):
        def forward(self, *args):
            return forward(*args)

    class Port(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, *args):
            return port(*args)

    return Case(name="own", summary="", reference=Reference, model=Port, inputs=inputs, **fields)


def relu_like(x):
    return jnp.where(x > 0, x, 0)


def over_its_norm(x, least=0.0, added=0.0):
    squares = (x**2).sum(1, keepdims=True)
    norm = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
    return x / (jnp.maximum(norm, least) + added)


@pytest.mark.parametrize(
    ("forward", "port", "label"),
    [
        (torch.sign, lambda x: jnp.where(x < 0, -1.0, 1.0), "zeros"),
        (lambda x: x.argmax(1), lambda x: x.shape[1] - 1 - jnp.argmax(x[:, ::-1], axis=1), "ties"),
        (lambda x: x * (x.sum() < 12), lambda x: x, "all positive"),
        (lambda x: torch.linalg.norm(x, dim=1), lambda x: jnp.sqrt((x**2).sum(1)), "zeros"),
        (torch.nn.functional.normalize, lambda x: over_its_norm(x, added=1e-12), "1e-06 as large"),
        (torch.nn.functional.normalize, lambda x: over_its_norm(x, least=1e-8), "1e-09 as large"),
    ],
    ids=[
        "the sign of zero",
        "the last of ties",
        "a branch that random inputs never take",
        "the gradient is NaN",
        "an epsilon that is added, not the least",
        "a larger epsilon",
    ],
)
def test_a_fault_that_random_inputs_do_not_show_is_caught(forward, port, label):
    report = check(case(forward, port), draws=1)
    assert not report.passed, str(report)
    assert label in {t.input for t in report.parity[0].tensors if not t.equal}
    assert check(case(forward, port, adversarial=()), draws=1).passed


def without_repeats(x):
    """How many words a row of scores spells: repeats are one, and 0 is between words."""
    words = x.argmax(-1)
    return ((words[:, 1:] != words[:, :-1]) & (words[:, 1:] != 0)).sum(1) + (words[:, 0] != 0)


def blanks_first(x):
    """Wrong where a blank is between two of the same word."""
    words = jnp.argmax(x, -1)

    def step(last, word):
        return jnp.where(word != 0, word, last), (word != 0) & (word != last)

    return jax.vmap(lambda row: jax.lax.scan(step, 0, row)[1].sum())(words)


def test_a_blank_between_repeats_is_met():
    def inputs(rng):
        return (rng.standard_normal((2, 5, 100)).astype(np.float32),)

    report = check(case(without_repeats, blanks_first, inputs, modes=("inference",)), draws=1)
    assert {t.input for t in report.parity[0].tensors if not t.equal} == {"few peaks"}, str(report)


def test_the_right_epsilon_passes():
    report = check(case(torch.nn.functional.normalize, lambda x: over_its_norm(x, least=1e-12)), draws=1)
    assert report.passed, str(report)


def test_another_gradient_at_a_kink_is_said_and_is_no_failure():
    report = check(case(torch.relu, lambda x: jnp.maximum(x, 0)), draws=1)
    assert report.passed, str(report)
    assert any(
        "on 'zeros', an input of the check's own, gradients differ" in text for text in report.parity[0].warnings
    )


def test_a_gradient_that_differs_by_little_is_not_taken_for_one_at_a_kink():
    """Beyond 20 PyTorch's softplus is linear: at 20.5 its gradient is 1e-9 more."""
    inputs, kinds = lambda rng: (0.2 * rng.standard_normal((8, 12)),), ("a large mean",)
    softplus = torch.nn.functional.softplus
    report = check(case(softplus, jax.nn.softplus, inputs, adversarial=kinds), draws=1, locate=False)
    assert not report.equal, str(report)


def test_lost_digits_at_a_large_mean_are_said():
    def fast(x):
        mean = x.mean(1, keepdims=True)
        return (x - mean) / jnp.sqrt((x**2).mean(1, keepdims=True) - mean**2 + 1e-5)

    def inputs(rng):
        return (rng.standard_normal((8, 64)),)

    report = check(case(lambda x: torch.layer_norm(x, (64,)), fast, inputs), draws=1)
    assert report.equal, str(report)
    assert any("times PyTorch's error in float32" in warning for warning in report.parity[0].warnings)


def checked_for_zero(x):
    assert (x != 0).all(), "no zeros, please"
    return x


def scaled_up(x):
    while x.abs().sum() < 1:
        x = 2 * x
    return x


@pytest.mark.parametrize(
    ("forward", "port", "why"),
    [
        (torch.log, jnp.log, "the reference's answer is not finite"),
        (
            lambda x: torch.topk(x, 2).indices,
            lambda x: jax.lax.top_k(x, 2)[1],
            "the reference's topk promises no order among ties",
        ),
        (lambda x: x / x.abs().sum(), lambda x: x / jnp.abs(x).sum(), "the reference's answer is not finite"),
        (checked_for_zero, lambda x: x, "the reference raises AssertionError"),
        (scaled_up, lambda x: x, "a loop of the reference's does not end there"),
    ],
    ids=["log", "topk", "a quotient", "a check", "a loop without an end"],
)
def test_what_the_reference_does_not_define_is_not_asked_and_that_is_said(forward, port, why):
    report = check(case(forward, port, lambda rng: (rng.uniform(0.5, 2, (4, 6)),)), draws=1)
    assert report.passed, str(report)
    assert "zeros" not in report.parity[0].inputs
    (note,) = (note for note in report.parity[0].notes if f"({why}" in note)
    kinds = note.partition(f" ({why}")[0].rpartition("; ")[2].rpartition(": ")[2]  # all of one reason stand before it
    assert "'zeros'" in kinds.split(", ")
    assert note.count(why) == 1


WRITES = {
    "__setitem__": lambda places, i, x: places.__setitem__((slice(None), i), x.T),
    "index_put_": lambda places, i, x: places.T.index_put_((i,), x),
    "index_copy_": lambda places, i, x: places.index_copy_(1, i, x.T),
    "scatter_": lambda places, i, x: places.T.scatter_(0, i[:, None].expand_as(x), x),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_several_times_to_one_place_is_not_asked(name):
    """PyTorch hands its gradient to all that was written there, and JAX to what is kept."""

    def forward(x, index):
        places = torch.zeros(3, 200, dtype=x.dtype)
        WRITES[name](places, index, x)
        return places

    def port(x, index):
        return jnp.zeros((3, 200)).at[:, index].set(x.T)

    def inputs(rng):
        return rng.standard_normal((6, 3)), rng.choice(200, 6, replace=False)

    report = check(case(forward, port, inputs, adversarial=("few values", "all positive")), draws=1)
    assert report.passed, str(report)
    assert report.parity[0].inputs == ["random 0", "all positive"]
    assert any(f"{name} writes several times to one place" in note for note in report.parity[0].notes)


def test_it_is_said_in_which_mode_the_reference_does_not_define_it():
    length = case(
        lambda x: x.square().sum(-1).sqrt(),
        lambda x: jnp.sqrt(jnp.square(x).sum(-1)),
        modes=("inference", "forward_backward"),
    )
    report = check(length, draws=1)
    assert report.passed, str(report)
    told = "'zeros' (in forward_backward, not in inference: the reference's answer is not finite"
    assert any(told in note for note in report.parity[0].notes)


def test_a_shape_that_the_port_does_not_take_is_said_and_is_no_failure():
    def fixed(x):
        assert x.shape == (4, 6), "made for four rows"
        return 2 * x

    report = check(case(lambda x: 2 * x, fixed), draws=1)
    assert report.passed, str(report)
    (warning,) = (each for each in report.parity[0].warnings if "precision" not in each)
    assert "on 'a batch of one'" in warning
    assert "made for four rows" in warning


def test_a_batch_of_one_is_not_asked_where_values_say_how_large_an_output_is():
    """Nodes with the numbers of their graphs: as many sums as graphs, which a port knows ahead."""
    graphs = np.array([0, 0, 1, 1])

    def forward(x):
        index = torch.tensor(graphs[: len(x)])
        return torch.zeros(int(index.max()) + 1, 6, dtype=x.dtype).index_add(0, index, x)

    report = check(case(forward, lambda x: jax.ops.segment_sum(x, graphs[: len(x)], 2)), draws=1)
    assert report.passed, str(report)
    assert "a batch of one" not in report.parity[0].inputs
    told = "'a batch of one' (the reference's output has shape (1, 6) where a batch of 4 gives (2, 6))"
    assert any(told in note for note in report.parity[0].notes)


@pytest.mark.parametrize("longest", [9, None])
def test_few_values_are_not_asked_where_they_say_how_long_an_output_is(longest):
    """Lengths of which one is always the longest: a port has as many steps."""

    def inputs(rng):
        lengths = rng.integers(2, 10, 6)
        lengths[0] = 9
        return rng.standard_normal((6, 9)).astype(np.float32), lengths

    def forward(x, lengths):
        return x[:, : longest or int(lengths.max())] * lengths[:, None]

    report = check(case(forward, lambda x, lengths: x * lengths[:, None], inputs), draws=2)
    assert report.passed, str(report)
    told = r"'few values' \(the reference's output has shape \(6, \d\) where random inputs give \(6, 9\)\)"
    assert ("few values" in report.parity[0].inputs) == (longest is not None)
    assert any(re.search(told, note) for note in report.parity[0].notes) == (longest is None), report.parity[0].notes


def test_a_batch_of_one_is_asked_where_several_rows_of_an_output_are_one_of_the_batch():
    report = check(case(lambda x: x.repeat(3, 1), lambda x: jnp.tile(x, (3, 1))), draws=1)
    assert "a batch of one" in report.parity[0].inputs


def test_an_edge_input_is_not_asked_again_and_keeps_its_name():
    def zeros(rng):
        return (np.zeros((4, 6)),)

    def ones(rng):
        return (np.ones((4, 6)),)

    asked = check(case(torch.relu, relu_like, edge_inputs={"nothing": zeros}), draws=1).parity[0].inputs
    assert "nothing" in asked
    assert "zeros" not in asked
    asked = check(case(torch.relu, relu_like, edge_inputs={"zeros": ones}), draws=1).parity[0].inputs
    assert {"zeros", "zeros, derived"} <= set(asked)


def test_a_fault_on_them_is_located():
    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.Hardshrink(0.0)
            self.fc = torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.fc(self.act(x) + (x == 0))

    class Shifted(nnx.Module):
        def __call__(self, x):
            return jnp.where(x == 0, 0.5, x)

    class Port(nnx.Module):
        def __init__(self, rngs):
            self.act = Shifted()
            self.fc = gnn.Linear(6, 3, rngs=rngs)

        def __call__(self, x):
            return self.fc(self.act(x) + (x == 0))

    wrong = Case(
        name="own", summary="", reference=Reference, model=Port, inputs=lambda rng: (rng.standard_normal((4, 6)),)
    )
    report = check(wrong, draws=1)
    assert not report.equal
    assert [d.module for d in report.divergences] == ["act"], str(report)


def test_what_a_case_asks_shows_in_the_report():
    asked = case(torch.relu, relu_like, adversarial=("zeros",))
    (parity,) = check(asked, draws=1).parity
    assert parity.inputs == ["random 0", "zeros"]
    assert any("that the check derives by itself, zeros were tried" in note for note in parity.notes)
    for wrong in (("zero",), "zeros"):
        with pytest.raises(CaseError, match="adversarial names '"):
            case(torch.relu, relu_like, adversarial=wrong)


class Norms(torch.nn.Module):
    """Norms of what is constant where the input is zero: each multiplies what rounding makes of that by 316."""

    def __init__(self, count):
        super().__init__()
        self.linears = torch.nn.ModuleList(torch.nn.Linear(6, 6, bias=False) for _ in range(count))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(6, track_running_stats=False) for _ in range(count))
        for norm in self.norms:
            torch.nn.init.normal_(norm.bias)

    def forward(self, x):
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = norm(linear(x))
        return x


class RoundsByRow(gnn.Linear):
    """As right, and equal rows do not give equal rows."""

    def __call__(self, x):
        return jnp.where(jnp.arange(len(x))[:, None] % 2 == 0, super().__call__(x), 3 * super().__call__(x / 3))


def norms_case(eps, count=5):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.linears = nnx.List([RoundsByRow(6, 6, bias=False, rngs=rngs) for _ in range(count)])
            self.norms = nnx.List([gnn.BatchNorm1d(6, eps=eps, track_running_stats=False) for _ in range(count)])

        def __call__(self, x):
            for linear, norm in zip(self.linears, self.norms, strict=True):
                x = norm(linear(x))
            return x

    return Case(
        name="norms",
        summary="",
        reference=lambda: Norms(count),
        model=Port,
        inputs=lambda rng: (rng.standard_normal((7, 6)),),
        modes=("forward_backward",),
        adversarial=("zeros",),
    )


def test_rounding_that_norms_of_what_is_constant_multiply_accuses_nobody():
    for count in (5, 16):  # as much as there is, and more
        (right,) = check(norms_case(1e-5, count)).parity
        assert right.equal, right.tensors
    (wrong,) = check(norms_case(1.001e-5), locate=False).parity
    assert not wrong.equal


class Loudness(torch.nn.Module):
    """A spectrogram's logarithm, normalised: of silence, rounding over an epsilon."""

    def forward(self, x):
        x = torch.log(x.abs() + 1e-6)
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


class PortLoudness(nnx.Module):
    shift = 0.0

    def __call__(self, x):
        x = jnp.log(jnp.abs(x) + 1e-6)
        pieces = x.reshape(*x.shape[:-1], 7, -1).sum(-1)  # in another order than PyTorch
        mean = pieces.sum(-1, keepdims=True) / x.shape[-1]
        return (x - mean) / (x.std(-1, keepdims=True, ddof=1) + 1e-5) + self.shift * (jnp.abs(mean) > 13)


class WrongOfSilence(PortLoudness):
    shift = 1e-5


@pytest.mark.parametrize(("port", "passes"), [(PortLoudness, True), (WrongOfSilence, False)])
def test_rounding_that_an_epsilon_divides_accuses_nobody(port, passes):
    report = check(
        Case(
            name="c",
            summary="s",
            reference=Loudness,
            model=lambda rngs: port(),
            inputs=lambda rng: (rng.standard_normal((3, 2, 77)).astype(np.float32),),
            adversarial=("zeros",),
            modes=("inference",),  # the gradient of jnp.std is NaN there, which is a difference
        )
    )
    assert report.passed == passes, str(report)


class Masked(torch.nn.Module):
    """Holds its causal mask, of zeros and infinities, as a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))

    def forward(self, x):
        return (x[:, None] + self.mask).softmax(-1).cumsum(-1)


class MaskedPort(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.mask = nnx.Variable(jnp.zeros((3, 3)))

    def __call__(self, x):
        return jnp.cumsum(jax.nn.softmax(x[:, None] + self.mask[...], axis=-1), axis=-1)


def test_a_buffer_of_infinities_leaves_no_input_out():
    case = Case(
        name="m", summary="s", reference=Masked, model=MaskedPort, inputs=lambda rng: (rng.standard_normal((4, 3)),)
    )
    parity = check(case).parity[0]
    assert {"zeros", "ties", "a large mean", "a batch of one"} <= set(parity.inputs)
    assert not parity.notes


@pytest.mark.parametrize(("kinds", "asked"), [(None, False), (("zeros",), True)])
def test_a_large_model_is_asked_those_that_its_case_names(monkeypatch, kinds, asked):
    monkeypatch.setattr(judge, "MOST_PARAMETERS", -1)
    report = check(case(torch.sin, jnp.sin, adversarial=kinds), draws=1)
    (parity,) = report.parity
    assert report.passed
    assert ("zeros" in parity.inputs) == asked
    assert any("since the model is large" in note for note in parity.notes) != asked


class Pooled(torch.nn.Module):
    """Means of embeddings under a mask; the first row of the table does not learn."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(6, 4, padding_idx=0)

    def forward(self, ids, mask):
        weights = mask.to(self.table.weight.dtype)[..., None]
        return (self.table(ids) * weights).sum(1) / weights.sum(1).clamp(min=1)


class PortOfPooled(nnx.Module):
    def __init__(self, rngs, *, learns):
        self.table = gnn.Embedding(6, 4, padding_idx=None if learns else 0, rngs=rngs)

    def __call__(self, ids, mask):
        weights = mask.astype(self.table.weight[...].dtype)[..., None]
        return (self.table(ids) * weights).sum(1) / jnp.maximum(weights.sum(1), 1)


def padded(rng):
    mask = np.arange(6) < rng.integers(2, 6, (4, 1))
    return rng.integers(1, 6, (4, 6)) * mask, mask


def report_on_pooled(model, kind, *, learns=False, reference=Pooled):
    case = Case(
        name="pooled",
        summary="s",
        reference=reference,
        model=lambda rngs: model(rngs, learns=learns),
        inputs=padded,
        adversarial=(kind,),
    )
    return check(case, hasty=True)


@pytest.mark.parametrize("learns", [False, True])
def test_a_gradient_that_differs_where_no_kink_is_fails_the_port(learns):
    report = report_on_pooled(PortOfPooled, "masks of ones", learns=learns)
    assert report.passed is not learns, str(report)
    if learns:
        assert "masks of ones" in str(report)


class Repeated(torch.nn.Module):
    def forward(self, x, keep):
        return x * keep.repeat_interleave(3)[:, None]


class PortOfRepeated(nnx.Module):
    def __init__(self, rngs, *, learns):
        self.tiles = learns

    def __call__(self, x, keep):
        return x * (jnp.tile(keep, 3) if self.tiles else jnp.repeat(keep, 3))[:, None]


@pytest.mark.parametrize("tiles", [False, True])
def test_a_mask_that_is_of_one_value_in_all_draws_hides_no_order(tiles):
    case = Case(
        name="repeated",
        summary="s",
        reference=Repeated,
        model=lambda rngs: PortOfRepeated(rngs, learns=tiles),
        inputs=lambda rng: (rng.standard_normal((6, 16)), np.ones(2, bool)),
        adversarial=("masks of ones", "masks of both values"),
    )
    report = check(case, hasty=True)
    assert report.passed is not tiles, str(report)
    assert not tiles or "masks of both values" in str(report), str(report)


class PortByLength(PortOfPooled):
    """Right for masks that are one stretch from the start."""

    def __call__(self, ids, mask):
        return super().__call__(ids, jnp.arange(mask.shape[1]) < mask.sum(1, keepdims=True))


class Bins(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ends", torch.tensor([-0.7, 0.1, 0.9]))
        self.register_buffer("scale", torch.ones(5))
        self.table = torch.nn.Embedding(4, 3)

    def forward(self, x):
        return self.table(torch.bucketize(x, self.ends)), x * self.scale


class BinsPort(nnx.Module):
    side = "left"

    def __init__(self, rngs):
        self.ends, self.scale = nnx.BatchStat(jnp.zeros(3)), nnx.BatchStat(jnp.zeros(5))
        self.table = gnn.Embedding(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.table(jnp.searchsorted(self.ends[...], x, side=self.side)), x * self.scale[...]


class OtherSide(BinsPort):
    side = "right"


@pytest.mark.parametrize(("port", "is_right"), [(BinsPort, True), (OtherSide, False)])
def test_what_a_buffer_holds_is_met(port, is_right):
    def inputs(rng):
        return (rng.standard_normal((6, 5)).astype(np.float32),)

    report = check(Case(name="own", summary="", reference=Bins, model=port, inputs=inputs), draws=1, hasty=True)
    assert report.passed == is_right, str(report)
    assert {t.input for t in report.parity[0].tensors if not t.equal} == (
        {"values of buffers"} if not is_right else set()
    )


@pytest.mark.parametrize("model", [PortOfPooled, PortByLength])
def test_a_port_that_takes_a_mask_for_a_length_is_told_so(model):
    report = report_on_pooled(model, "masks with holes")
    assert report.passed
    told = [each for each in report.parity[0].warnings if "takes what a mask leaves for one stretch" in each]
    assert len(told) == (model is PortByLength)  # in both modes, and said once


class Parted(Pooled):
    """Where its mask has holes, another rounding parts what is equal in it."""

    def forward(self, ids, mask):
        steps = 0.1 * mask.to(self.table.weight.dtype)
        holes = (mask[:, 1:] & ~mask[:, :-1]).any(1, keepdim=True) & mask[:, :1]
        return super().forward(ids, mask) + 1e-4 * (holes & (steps[:, :1] < steps).any(1, keepdim=True))


def test_a_mask_with_holes_alone_is_told_why_it_tells_otherwise():
    report = report_on_pooled(PortByLength, "masks with holes", reference=Parted)
    (told,) = (each for each in report.parity[0].warnings if each.startswith("on 'masks with holes'"))
    assert "takes what a mask leaves for one stretch" in told


class Transport(torch.nn.Module):
    """What stands in for infinity cancels but for its rounding where a mask holds nowhere."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 5)

    def forward(self, x, mask):
        left = 0.2 * torch.where(mask, 0.0, -1e30).to(x.dtype)[..., None]
        right = -0.2 * torch.where(mask[:, :1], 0.0, -1e30).to(x.dtype)[..., None]
        return torch.exp(torch.cat([left + right, -left - right], 1) - torch.cat([self.fc(x) ** 2] * 2, 1))


class PortOfTransport(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 5, rngs=rngs)

    def __call__(self, x, mask):
        left = 0.2 * jnp.where(mask, 0.0, -1e30)[..., None]
        right = -0.2 * jnp.where(mask[:, :1], 0.0, -1e30)[..., None]
        cost = self.fc(x) ** 2
        return jnp.exp(jnp.concatenate([left - cost + right, -left - cost - right], axis=1))


def test_what_overflows_by_rounding_in_some_elements_is_decided_by_it_in_all():
    def inputs(rng):
        return rng.standard_normal((2, 4, 3)), np.arange(4) < rng.integers(4, 5, (2, 1))

    kinds = ("masks of zeros",)
    report = check(
        Case(name="c", summary="s", reference=Transport, model=PortOfTransport, inputs=inputs, adversarial=kinds)
    )
    assert report.passed, report
