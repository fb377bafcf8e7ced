"""A look inside: modules matched, and the one that introduces error named, whatever earlier ones did."""

import dataclasses

import block_sample
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from block_sample import becomes, sets
from flax import nnx
from graphmode.compare import Case, CaseError, channels_last, check
from graphmode.compare.parity.inside.torch_calls import recorded
from looked_into import look

from graphmode import nn
from graphmode.weights import Rename

MIXERS = [f"mixers.{i}{name}" for i in (0, 1) for name in ("", ".norm", ".inner", ".outer")]


def test_a_right_port_introduces_nothing_anywhere():
    found = look(block_sample.case())
    assert not found.divergences()
    assert {m.port: m.reference for m in found.matching.matches} == {
        path: path for path in ("", "conv", "bn", "relu", "project", "head", *MIXERS)
    }
    assert not found.matching.only_port
    assert not found.matching.only_reference
    assert max(a.introduced.error for a in found.activations) < 1e-13


def doubled(self, x):
    return 2 * type(self).__mro__[1].__call__(self, x)


def stopped(self, x):
    return jax.lax.stop_gradient(type(self).__mro__[1].__call__(self, x))


def without_residual(self, x):
    return self.outer(jax.nn.gelu(self.inner(self.norm(x)), approximate=False)) / 2


def skips_norm(self, x):
    return x + self.outer(jax.nn.gelu(self.inner(x), approximate=False)) / 2


@pytest.mark.parametrize(
    ("plant", "wrong"),
    [
        (sets("mixers.1.norm", eps=1e-3), {"mixers.1.norm"}),
        (sets("bn", momentum=0.9), {"bn"}),
        (becomes("mixers.0.inner", __call__=doubled), {"mixers.0.inner"}),
        (becomes("mixers.0", __call__=without_residual), {"mixers.0"}),
        (becomes("mixers.1", __call__=skips_norm), {"mixers.1"}),
        (becomes("", softmax=lambda self, h: jax.nn.softmax(h, axis=0)), {""}),
        (becomes("", flat=lambda self, h: h.reshape(h.shape[0], -1)), {""}),
        (becomes("mixers.1.outer", __call__=stopped), {"mixers.1.outer"}),
        (
            lambda m: (sets("bn", eps=1e-3)(m), becomes("mixers.1", __call__=without_residual)(m)),
            {"bn", "mixers.1"},
        ),
    ],
)  # fmt: skip
def test_the_modules_that_introduce_error_are_named_and_no_other(plant, wrong):
    found = look(block_sample.case(plant)).divergences()
    assert {d.module for d in found if not d.outside} == wrong
    assert not any(d.outside for d in found)


def test_inherited_and_introduced_error_are_told_apart():
    found = look(block_sample.case(sets("conv", padding_mode="reflect")), "inference")
    errors = {a.module: (a.inherited.error, a.introduced.error) for a in found.activations if a.call == 0}
    assert errors["conv"][1] > 1e-3
    assert errors["head"][0] > 1e-6
    assert errors["head"][1] < 1e-13


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        logits = self.linear(x)
        return logits, logits.softmax(-1)


class Keeping(torch.nn.Module):
    """Logits are an output of a module that uses them itself, and go out by a hook, as transformers has it."""

    def __init__(self):
        super().__init__()
        self.router = Router()
        self.router.register_forward_hook(lambda module, args, output: setattr(module, "kept", output[0]))

    def forward(self, x):
        weights = self.router(x)[1]
        return weights * x[:, :3], self.router.kept.exp()


class RouterPort(nnx.Module):
    def __init__(self, rngs):
        self.linear = nn.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        logits = self.linear(x)
        return logits, jax.nn.softmax(logits, -1)


class KeepingPort(nnx.Module):
    def __init__(self, rngs):
        self.router = RouterPort(rngs)

    def __call__(self, x):
        logits, weights = self.router(x)
        return weights * x[:, :3], jnp.exp(logits)


def test_an_output_that_a_hook_keeps_is_used_by_others():
    case = Case(
        name="c",
        summary="s",
        reference=Keeping,
        model=KeepingPort,
        inputs=lambda rng: (rng.standard_normal((5, 4)),),
    )
    assert not look(case).divergences()


class Pair(torch.nn.Module):
    """Two outputs, of which nobody uses the second."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(6))

    def forward(self, x):
        return x * self.weight.detach() + self.weight, x - self.weight


class First(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()

    def forward(self, x):
        return self.pair(x)[0]


class PairPort(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros(6))

    def __call__(self, x):
        return x * self.weight[...] + self.weight[...], x - self.weight[...]


class FirstPort(nnx.Module):
    def __init__(self, rngs):
        self.pair = PairPort(rngs)

    def __call__(self, x):
        return self.pair(x)[0]


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.fc(self.norm(x))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Normed(), torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.head(self.block(x) + x)


class NormedPort(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.fc = nn.LayerNorm(6), nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return self.fc(self.norm(x))


class ResidualPort(nnx.Module):
    def __init__(self, rngs):
        self.block, self.head = NormedPort(rngs), nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return self.head(self.block(x) + self.block.norm(x))


def test_who_calls_a_module_of_anothers_once_more_is_to_blame_for_its_gradients():
    found = look(Case(name="residual", summary="s", reference=Residual, model=ResidualPort, inputs=_rows))
    assert {each.module for each in found.divergences()} == {""}


def test_an_output_that_leads_nowhere_has_no_gradient_to_cancel():
    found = look(Case(name="pair", summary="s", reference=First, model=FirstPort, inputs=_rows))
    assert {each.module for each in found.divergences()} == {"pair"}


class Scaled(torch.nn.Module):
    """Its scale is a parameter, or the average of another one's."""

    def __init__(self, averages=False):
        super().__init__()
        scale = torch.linspace(1, 2, 6)
        self.scale = torch.nn.Parameter(scale)
        if averages:
            del self.scale
            self.register_buffer("scale", torch.ones(6))

    def forward(self, x):
        return torch.sin(x * self.scale)


class Averaging(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.average = Scaled(), Scaled(averages=True)

    def forward(self, x):
        if self.training:
            self.average.scale.lerp_(self.net.scale.detach(), 0.1)
        return self.net(x), self.average(x)


class ScaledPort(nnx.Module):
    def __init__(self, variable):
        self.scale = variable(jnp.ones(6))

    def __call__(self, x):
        return jnp.sin(x * self.scale[...])


class AveragingPort(nnx.Module):
    def __init__(self, rngs):
        self.net, self.average = ScaledPort(nnx.Param), ScaledPort(nnx.BatchStat)
        self.training = True

    def __call__(self, x):
        if self.training:
            new = jax.lax.stop_gradient(self.net.scale[...])
            self.average.scale[...] = 0.1 * self.average.scale[...] + 0.9 * new
        return self.net(x), self.average(x)


def test_who_writes_anothers_buffer_is_to_blame_for_it():
    case = Case(name="averaging", summary="s", reference=Averaging, model=AveragingPort, inputs=_rows)
    found = look(case).divergences()
    assert {each.module for each in found} == {""}
    assert {finding.tensor for each in found for finding in each.findings} == {"average.scale"}


class SetLoss(torch.nn.Module):
    """Takes the labels and weights of each row as lists of as many as it has."""

    def forward(self, scores, labels, weights):
        odds = scores.log_softmax(-1)
        total = 0
        for i, (t, w) in enumerate(zip(labels, weights, strict=True)):
            total = total - (w * odds[i, : len(w)].gather(1, t[:, None])[:, 0]).sum() / len(w)
        return total


class Sets(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.criterion = torch.nn.Linear(4, 3), SetLoss()

    def forward(self, x, labels, weights, counts):
        cut = [[row[:n] for row, n in zip(rows, counts.tolist(), strict=True)] for rows in (labels, weights)]
        return self.criterion(self.mix(x), *cut)


class SetLossPort(nnx.Module):
    def __call__(self, scores, labels, weights, counts, steps):
        odds = jnp.take_along_axis(jax.nn.log_softmax(scores, -1), labels[..., None], -1)[..., 0]
        valid = steps < counts[:, None]
        return -jnp.where(valid, weights * odds, 0).sum() / counts.sum()  # of all rows together


class SetsPort(nnx.Module):
    def __init__(self, rngs):
        self.mix, self.criterion = nn.Linear(4, 3, rngs=rngs), SetLossPort()

    def __call__(self, x, labels, weights, counts):
        return self.criterion(self.mix(x), labels, weights, counts, jnp.arange(x.shape[1]))


def test_padded_rows_and_counts_are_not_held_against_lists():
    """There are four of each, and none stands for another."""
    report = check(
        Case(
            name="c",
            summary="s",
            reference=Sets,
            model=SetsPort,
            inputs=lambda rng: (
                rng.standard_normal((2, 5, 4)),
                rng.integers(0, 3, (2, 5)),
                rng.uniform(0.5, 1.5, (2, 5)),
                np.array([2, 4]),
            ),
            adversarial=(),
        ),
        hasty=True,
    )
    assert report.divergences[0].module == "criterion", report


def test_a_wrong_to_model_is_no_modules_fault():
    case = block_sample.case(to_model=lambda given: (jnp.moveaxis(given[0], 1, -1)[:, ::-1],))
    (found,) = look(case, "inference").divergences()
    assert found.outside


class ByOrder(nnx.Module):
    """Names of its own for modules without weights."""

    def __init__(self, rngs: nnx.Rngs):
        self.fc = nn.Linear(6, 6, rngs=rngs)
        self.first = nn.ReLU()
        self.second = nn.GELU()

    def __call__(self, x):
        return self.second(self.fc(self.first(x)))


def by_order(**settings) -> Case:
    def reference():
        return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(6, 6), torch.nn.GELU())

    given = {"weights": (Rename("1", "fc"),), **settings}
    return Case(name="o", summary="s", reference=reference, model=ByOrder, inputs=_rows, **given)


def _rows(rng):
    return (rng.standard_normal((5, 6)),)


def test_modules_are_matched_by_order_where_names_fail():
    found = look(by_order()).matching
    assert {(m.port, m.reference, m.how) for m in found.matches} == {
        ("", "", "the root"),
        ("fc", "1", "weights"),
        ("first", "0", "order"),
        ("second", "2", "order"),
    }


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).flatten(2).tanh()


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()

    def forward(self, x):
        return self.first(x)


class LayerOfTheName(nnx.Module):
    """Its layer has the name of the block that it is in there."""

    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Conv(3, 4, (3, 3), padding="VALID", rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        return jnp.tanh(x.transpose(0, 3, 1, 2).reshape(len(x), 4, -1))


def test_a_layer_is_matched_with_a_layer_and_not_with_a_block_of_its_name():
    case = Case(
        name="n",
        summary="s",
        reference=Blocks,
        model=LayerOfTheName,
        inputs=lambda rng: (rng.standard_normal((2, 3, 5, 5)),),
        to_model=channels_last,
        weights=(Rename("first.conv", "first"),),
    )
    assert look(case).matching.to_reference("first") == "first.conv"


def test_a_table_corrects_the_matches_and_names_what_is_not_there():
    matching = look(by_order(modules={"first": None})).matching
    assert matching.to_reference("first") is None
    assert [node.path for node in matching.only_reference] == ["0"]
    with pytest.raises(CaseError, match="'frist', and the port calls no module of that path; did you mean 'first'"):
        look(by_order(modules={"frist": "0"}))


def test_gradients_are_those_of_one_use_where_a_module_works_in_place():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = torch.nn.ReLU(inplace=True)

        def forward(self, x):
            y = x * 1
            z = self.relu(y)  # writes into y as well
            return y + 3 * z

    x = torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True)
    module = Twice()
    with recorded(module) as calls:
        module(x).sum().backward()
    plain = torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True)
    module(plain).sum().backward()
    assert torch.equal(x.grad, plain.grad)
    inner = calls["relu", 0]
    assert inner.inputs["0"].tolist() == [-1, 2]
    assert inner.input_gradients["0"].tolist() == [0, 4]


class FirstRows(torch.nn.Module):
    """The sum of a layer's outputs for the first `count` rows, as many as there are, one by one where asked."""

    def __init__(self, one_by_one):
        super().__init__()
        self.fc = torch.nn.Linear(3, 5)
        self.act = torch.nn.Tanh()
        self.one_by_one = one_by_one

    def forward(self, x, count):
        rows = x[: int(count)]
        if self.one_by_one:
            return sum(self.act(self.fc(row[None]))[0] for row in rows)
        return self.act(self.fc(rows)).sum(0)


class AllRows(nnx.Module):
    """All rows at once, and a mask."""

    def __init__(self, rngs, *, factor=1.0, more=0):
        self.fc = nn.Linear(3, 5, rngs=rngs)
        self.act = nn.Tanh()
        self.factor, self.more = factor, more
        if factor != 1.0:
            self.fc = sets_factor(self.fc, factor)

    def __call__(self, x, count):
        kept = jnp.arange(len(x)) < count + self.more
        return jnp.where(kept[:, None], self.act(self.fc(x)), 0).sum(0)


def sets_factor(layer, factor):
    class Scaled(type(layer)):
        def __call__(self, x):
            return factor * super().__call__(x)

    object.__setattr__(layer, "__class__", Scaled)
    return layer


@pytest.mark.parametrize(
    ("one_by_one", "wrong", "accused"),
    [
        (False, {"factor": 1.01}, ["fc"]),
        (True, {"factor": 1.01}, ["fc"]),
        (False, {"more": 1}, [""]),
        (True, {"more": 1}, [""]),
        (True, {}, []),
        (False, {}, []),
    ],
)
def test_a_port_of_another_structure_is_judged_where_it_can_be_compared(one_by_one, wrong, accused):
    case = Case(
        name="first_rows",
        summary="",
        reference=lambda: FirstRows(one_by_one),
        model=lambda rngs: AllRows(rngs, **wrong),
        inputs=lambda rng: (rng.standard_normal((4, 3)), np.int64(4)),
        edge_inputs={"fewer": lambda rng: (rng.standard_normal((4, 3)), np.int64(2))},
        adversarial=(),
    )
    report = check(case, draws=1)
    assert report.passed is not bool(accused)
    assert [each.module for each in report.divergences] == accused


def test_a_check_says_where_and_is_quiet_about_right_ports():
    report = check(block_sample.case(sets("mixers.1.norm", eps=1e-3)), draws=1, hasty=True)
    assert report.first_divergence.module == "mixers.1.norm"
    assert report.first_divergence.source == ""  # the layer is a library's: its file says nothing about the port
    assert [cause.id for cause in report.causes] == ["epsilon"]
    assert "eps=0.001" in str(report)
    assert (
        check(block_sample.case(sets("mixers.1.norm", eps=1e-3)), draws=1, locate=False, hasty=True).divergences == []
    )
    right = check(dataclasses.replace(block_sample.case()), draws=1)
    assert right.passed
    assert right.divergences == []


class Turned(torch.nn.Module):
    """Complex numbers, each turned and shrunk."""

    def __init__(self):
        super().__init__()
        self.by = torch.nn.Parameter(torch.randn(5, dtype=torch.cfloat))

    def forward(self, z):
        return z * self.by / (1 + z.abs())


class Spectrum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turned = Turned()

    def forward(self, x):
        z = self.turned(torch.fft.rfft(x))
        return (z * torch.fft.rfft(x.flip(-1)).conj()).real


class TurnedPort(nnx.Module):
    def __init__(self):
        self.by = nnx.Param(jnp.zeros(5, jnp.complex64))

    def __call__(self, z):
        return z * self.by[...] / (1 + jnp.abs(z))


class NotConjugate(nnx.Module):
    def __init__(self, rngs):
        self.turned = TurnedPort()

    def __call__(self, x):
        z = self.turned(jnp.fft.rfft(x))
        return (z * jnp.fft.rfft(x[:, ::-1])).real


def test_a_module_of_complex_numbers_is_not_accused_of_its_gradients():
    case = Case(
        name="c", summary="s", reference=Spectrum, model=NotConjugate, adversarial=(),
        inputs=lambda rng: (rng.standard_normal((3, 8)),),
    )  # fmt: skip
    assert {each.module for each in check(case, hasty=True).divergences} == {""}
