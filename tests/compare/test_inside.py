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
from graphmode.compare.parity.examination import Examination
from graphmode.compare.parity.inside.layouts import Layouts, pair, says_the_same
from graphmode.compare.parity.inside.localise import Look
from graphmode.compare.parity.inside.torch_calls import recorded

from graphmode import nn
from graphmode.weights import Rename

MIXERS = [f"mixers.{i}{name}" for i in (0, 1) for name in ("", ".norm", ".inner", ".outer")]
RNG = np.random.default_rng(0)


def look(case: Case, mode: str = "forward_backward") -> Look:
    exam = Examination(case, seed=0, draws=1, locate=False)
    question = next(t.question for t in exam.truths if t.question.mode == mode)
    port = exam.port_side(next(iter(case.models)), "float64")
    return Look(port, exam.judge.exact, question, case.modules)


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


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)])
def test_layouts_are_found_by_shape(axes):
    reference = RNG.standard_normal((2, 3, 4, 5))
    layout = Layouts().fit(reference.transpose(axes), reference)
    assert layout.axes == axes
    assert np.array_equal(layout.to_reference(layout.to_port(reference)), reference)


def test_a_square_transpose_is_no_layout():
    reference = RNG.standard_normal((4, 4))
    assert Layouts().fit(reference.T, reference).axes == (0, 1)
    cube = RNG.standard_normal((3, 3, 3, 3))
    assert Layouts().fit(np.moveaxis(cube, 1, -1), cube).axes == (0, 2, 3, 1)
    assert Layouts().fit(cube.transpose(1, 0, 2, 3), cube).axes == (0, 1, 2, 3)


def test_what_is_wrong_in_every_layout_lies_as_what_the_call_received():
    cube, wrong = RNG.standard_normal((2, 3, 3, 3, 3))
    layouts = Layouts()
    layouts.fit(np.moveaxis(cube, 1, -1), cube)
    assert layouts.fit(wrong, cube).axes == (0, 2, 3, 1)
    received = pair([cube + 1], {"0": cube + 1}, layouts)
    assert layouts.fit(wrong, cube, received).axes == (0, 1, 2, 3)


def test_tensors_are_paired_by_value_where_shapes_agree():
    a, b = RNG.standard_normal((2, 3, 4))
    pairs = pair([b, a], {"hidden": a, "cell": b}, Layouts())
    assert [(p.name, p.index) for p in pairs] == [("hidden", 1), ("cell", 0)]


KEPT = np.array([[True, True, False], [True, False, False]])
FAR = np.where(KEPT, 0.0, -1e30)
NOTHING_KEPT = np.array([[True, True, False], [False, False, False]])


@pytest.mark.parametrize(
    ("port", "reference", "same"),
    [
        (FAR[:, None, None], np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), True),
        (np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), FAR[:, None, None], True),
        (KEPT, FAR, True),
        (~KEPT, FAR, True),
        (KEPT[:, None, None], np.broadcast_to(FAR[:, None, None], (2, 1, 4, 3)), True),
        (KEPT, KEPT.astype(np.int64), True),
        (np.where(KEPT, 0.0, -np.inf), FAR, True),
        (np.where(KEPT[::-1], 0.0, -1e9), FAR, False),
        (np.where(KEPT, -1e9, 0.0), FAR, False),
        (np.where(NOTHING_KEPT, 0.0, -np.inf), np.where(NOTHING_KEPT, 0.0, -1e30), False),
        (np.where(NOTHING_KEPT, 0.0, -1e9), np.where(NOTHING_KEPT, 0.0, -1e30), True),
        (np.ones((2, 3), bool), np.zeros((2, 3)), True),
        (~KEPT, KEPT, False),
        (KEPT[:, ::-1], FAR, False),
        (np.where(KEPT, 0.0, -1.0), FAR, False),
        (np.where(KEPT, 1e30, 0.0), FAR, False),
        (np.where(KEPT, 0.0, 1.0), np.where(KEPT, 0.0, 2.0), False),
        (FAR[:, :2], FAR, False),
        (KEPT, np.arange(6.0).reshape(2, 3), False),
        (np.arange(3.0), np.broadcast_to(np.arange(3.0) + 1, (2, 3)), False),
    ],
)
def test_another_form_of_an_argument_is_no_error_and_another_argument_is(port, reference, same):
    assert says_the_same(port, reference) is same


def test_a_mask_of_another_form_does_not_make_its_giver_a_suspect():
    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x, mask):
            return torch.softmax(self.fc(x) + mask, -1)

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = Scores()
            self.out = torch.nn.Linear(4, 2)

        def forward(self, x, kept):
            return self.out(self.scores(x, (~kept)[None] * -1e30))

    class ScoresPort(nnx.Module):
        def __init__(self, rngs):
            self.fc = nn.Linear(4, 4, rngs=rngs)

        def __call__(self, x, kept):
            return jax.nn.softmax(jnp.where(kept, 1.01 * self.fc(x), -jnp.inf), -1)

    class Port(nnx.Module):
        def __init__(self, rngs):
            self.scores = ScoresPort(rngs)
            self.out = nn.Linear(4, 2, rngs=rngs)

        def __call__(self, x, kept):
            return self.out(self.scores(x, jnp.broadcast_to(kept, x.shape)))

    wrong = Case(
        name="masked",
        summary="",
        reference=Reference,
        model=Port,
        inputs=lambda rng: (rng.standard_normal((3, 4)), np.array([True, False, True, True])),
    )
    report = check(wrong, draws=1)
    assert [each.module for each in report.divergences] == ["scores"]


class BiasedScores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.bias = torch.nn.Embedding(5, 3)

    def forward(self, x, mask):
        bias = self.bias((torch.arange(5)[:, None] - torch.arange(5)).abs()).permute(2, 0, 1)
        q = self.q(x)
        return self.o((torch.softmax(q @ q.mT + bias[:, None] + mask, -1) @ x).mean(0))


class WithBiasedScores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = BiasedScores()

    def forward(self, x):
        mask = torch.zeros(5, 5, dtype=x.dtype).masked_fill(torch.ones(5, 5).triu(1).bool(), torch.finfo(x.dtype).min)
        return 3 * self.scores(x, mask[None, None])


class ScoresOfSum(nnx.Module):
    def __init__(self, rngs, factor):
        self.q, self.o, self.factor = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs), factor

    def __call__(self, x, bias):
        q = self.q(x)
        return self.o((jax.nn.softmax(self.factor * (q @ q.mT) + bias) @ x).mean(0))


class WithScoresOfSum(nnx.Module):
    """Adds the bias to the mask ahead of the module that the reference adds them in."""

    def __init__(self, rngs, factor=1.0, after=3.0):
        self.bias, self.scores, self.after = nnx.Embed(5, 3, rngs=rngs), ScoresOfSum(rngs, factor), after

    def __call__(self, x):
        bias = self.bias(jnp.abs(jnp.arange(5)[:, None] - jnp.arange(5))).transpose(2, 0, 1)[:, None]
        mask = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), 0, jnp.finfo(x.dtype).min)
        return self.after * self.scores(x, bias + mask)


@pytest.mark.parametrize(
    ("wrong", "modules"), [({}, []), ({"after": 2.0}, [""]), ({"factor": 2.0}, ["scores"])], ids=str
)
def test_a_mask_that_more_was_added_to_is_no_mask_of_fewer_heads(wrong, modules):
    case = Case(
        name="biased",
        summary="s",
        reference=WithBiasedScores,
        model=lambda rngs: WithScoresOfSum(rngs, **wrong),
        inputs=lambda rng: (rng.standard_normal((2, 5, 4)),),
        weights=[Rename("scores.bias", "bias")],
    )
    assert [each.module for each in look(case).divergences()] == modules


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
    report = check(block_sample.case(sets("mixers.1.norm", eps=1e-3)), draws=1)
    assert report.first_divergence.module == "mixers.1.norm"
    assert report.first_divergence.source == ""  # the layer is a library's: its file says nothing about the port
    assert [cause.id for cause in report.causes] == ["epsilon"]
    assert "eps=0.001" in str(report)
    assert check(block_sample.case(sets("mixers.1.norm", eps=1e-3)), draws=1, locate=False).divergences == []
    right = check(dataclasses.replace(block_sample.case()), draws=1)
    assert right.passed
    assert right.divergences == []


class Causal(torch.nn.Module):
    """Padded at both ends by the convolution, and cut after it."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = torch.nn.Conv1d(4, 4, 3, padding=2), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)[..., : x.shape[-1]]).transpose(1, 2))


class PortCausal(nnx.Module):
    """Padded at one end, so that nothing is left to cut."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(4, 4, (3,), padding="CAUSAL", rngs=rngs)
        self.out = nnx.Linear(4, 4, rngs=rngs)

    def act(self, x):
        return jnp.tanh(x)

    def __call__(self, x):
        return self.out(self.act(self.conv(x.transpose(0, 2, 1))))


class WrongCausal(PortCausal):
    def act(self, x):
        return jnp.sin(x)


class Cut(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = torch.nn.Conv1d(4, 4, 3, padding=1), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.conv(x)).transpose(1, 2))


class PortCut(PortCausal):
    """Padded more than the reference, and cut after it: the reference's output is cut to another shape."""

    def __init__(self, rngs):
        super().__init__(rngs)
        self.conv = nnx.Conv(4, 4, (3,), padding=[(2, 2)], rngs=rngs)

    def __call__(self, x):
        return self.out(self.act(self.conv(x.transpose(0, 2, 1))[:, 1:-1]))


class WrongCut(PortCut):
    def act(self, x):
        return jnp.sin(x)


@pytest.mark.parametrize(("reference", "right", "wrong"), [(Causal, PortCausal, WrongCausal), (Cut, PortCut, WrongCut)])
def test_an_output_of_another_shape_that_is_made_up_for_is_no_fault(reference, right, wrong):
    case = Case(
        name="c",
        summary="s",
        reference=reference,
        model=right,
        inputs=lambda rng: (rng.standard_normal((3, 4, 9)),),
        adversarial=(),
    )
    assert not look(case).divergences()
    found = look(dataclasses.replace(case, model=wrong))
    assert list(found.suspects) == [""]
    assert found.unlike[0] == "conv"


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(6, 4, padding_idx=0)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, words):
        return self.head(self.embed(words)).tanh()


class PortWords(nnx.Module):
    """Its embedding has a gradient for the row of padding, which goes no further than what is around it."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(6, 4, rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def masked(self, words, x):
        return jnp.where((words == 0)[..., None], jax.lax.stop_gradient(x), x)

    def last(self, x):
        return jnp.tanh(x)

    def __call__(self, words):
        return self.last(self.head(self.masked(words, self.embed(words))))


class WrongLast(PortWords):
    def last(self, x):
        return 0.9 * jnp.tanh(x)


class WrongMask(PortWords):
    def masked(self, words, x):
        return jnp.where((words == 1)[..., None], jax.lax.stop_gradient(x), x)


@pytest.mark.parametrize(("port", "wrong"), [(PortWords, set()), (WrongLast, {""}), (WrongMask, {"", "embed"})])
def test_a_gradient_that_is_made_up_for_is_no_fault(port, wrong):
    def words(rng):
        return (rng.integers(0, 3, (4, 5)),)

    found = look(Case(name="words", summary="s", reference=Words, model=port, inputs=words))
    assert {each.module for each in found.divergences()} == wrong


class ScaledByWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.tanh(self.fc(x)) * self.fc.weight.detach().sum(0) + self.fc(-x)


class PortOfScaledByWeight(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.fc(x)) * self.fc.kernel[...].sum(1) + self.fc(-x)


class PortOfStoppedWeight(PortOfScaledByWeight):
    def __call__(self, x):
        return jnp.tanh(self.fc(x)) * jax.lax.stop_gradient(self.fc.kernel[...].sum(1)) + self.fc(-x)


def test_a_module_is_not_blamed_for_a_gradient_by_its_parameter_that_comes_from_outside():
    def report(port):
        inputs = {"inputs": lambda rng: (rng.standard_normal((8, 6)),), "adversarial": ()}
        return check(Case(name="c", summary="s", reference=ScaledByWeight, model=port, **inputs))

    assert report(PortOfStoppedWeight).passed
    (found,) = report(PortOfScaledByWeight).divergences
    assert found.module == ""


class WordsByTheirOwnTable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)

    def forward(self, words, more):
        h = torch.tanh(self.embed(words)) + self.embed(more)
        return torch.nn.functional.linear(h / 2, self.embed.weight)


class PortByItsOwnTable(nnx.Module):
    def __init__(self, rngs, *, factor=0.5, stopped=False):
        self.embed = nnx.Embed(7, 4, rngs=rngs)
        self.factor, self.stopped = factor, stopped

    def __call__(self, words, more):
        table = self.embed.embedding[...]
        h = jnp.tanh(self.embed(words)) + self.embed(more)
        return self.factor * h @ (jax.lax.stop_gradient(table) if self.stopped else table).T


@pytest.mark.parametrize("wrong", [{"factor": 0.6}, {"stopped": True}], ids=str)
def test_a_table_that_the_model_reads_besides_is_not_blamed_for_what_the_model_does_with_it(wrong):
    case = Case(
        name="words",
        summary="s",
        reference=WordsByTheirOwnTable,
        model=lambda rngs: PortByItsOwnTable(rngs, **wrong),
        inputs=lambda rng: (rng.integers(0, 7, (2, 3)), rng.integers(0, 7, (2, 3))),
    )
    assert [each.module for each in look(case).divergences()] == [""]
