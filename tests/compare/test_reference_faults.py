"""References that cannot judge are refused by name, and ports that draw random numbers are told."""

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check
from graphmode.compare.parity.judge import Judge
from graphmode.compare.report.terminal import parity_text

F = torch.nn.functional


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x):
        return self.fc(self.drop(x))


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.fc(self.drop(x))


class Draws(Port):
    def __call__(self, x):
        return self.fc(self.drop(x, deterministic=False))


def case(forward=Reference.forward, model=Port, **fields):
    reference = type("Theirs", (Reference,), {"forward": forward})
    settings = {"name": "small", "summary": "", "inputs": lambda rng: (rng.standard_normal((20, 6)),)}
    return Case(**{**settings, "reference": reference, "model": model, **fields})


def updates_itself(self, x):
    with torch.no_grad():
        self.fc.weight.mul_(0.9)
    return self.fc(x)


def counts(self, x):
    self.calls += 1
    return self.fc(x) * self.calls


def keeps_what_it_drew(self, x):
    self.drawn = torch.rand(3)
    return self.fc(x), self.drawn


NOT_DETERMINISTIC = ["reference 'default' is not deterministic", "'random 0'"]
REFUSED = {
    "dropout in evaluation": (
        lambda self, x: self.fc(F.dropout(x, 0.5, True)),
        [*NOT_DETERMINISTIC, "in inference", "training=self.training"],
    ),
    "functional dropout in training": (
        lambda self, x: self.fc(F.dropout(x, 0.5, self.training)),
        [*NOT_DETERMINISTIC, "in forward_backward", "torch.nn.Dropout", "a rate of 0"],
    ),
    "noise that is kept": (keeps_what_it_drew, [*NOT_DETERMINISTIC, "It draws random numbers"]),
    "noise": (lambda self, x: (self.fc(x), torch.rand(3)), [*NOT_DETERMINISTIC, "the output 1"]),
    "a path that is rarely dropped": (
        lambda self, x: self.fc(x) if not self.training or torch.rand(()) < 0.8 else 0 * self.fc(x),
        [*NOT_DETERMINISTIC, "in forward_backward"],
    ),
    "state outside of buffers": (
        counts,
        [*NOT_DETERMINISTIC, "outside of its buffers, in self.calls", "register_buffer"],
    ),
    "changes its input": (lambda self, x: self.fc(x.add_(1)), ["changes its inputs in place (input.0)", "x.clone()"]),
    "changes its parameters": (
        updates_itself,
        ["changes its own parameters in forward (fc.weight)", "buffer", "called before"],
    ),
    "gives None": (lambda self, x: None, ["gives None, without a tensor", "let forward return"]),
    "gives nothing": (lambda self, x: {"a": None}, ["gives dict, without a tensor"]),
    "gives a string": (lambda self, x: {"y": self.fc(x), "name": "x"}, ["gives str as name", "cannot be compared"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_reference_that_cannot_judge_is_refused_by_name(what):
    forward, words = REFUSED[what]
    with pytest.raises(CaseError, match="case 'small'") as caught:
        Judge(case(forward), seed=0, dtype="float32", device="cpu").truths(1)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_dropout_modules_and_buffers_are_switched_off_and_restored():
    class Usual(Reference):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(8)

        def forward(self, x):
            return self.norm(super().forward(x))

    truths = Judge(case(reference=Usual), seed=0, dtype="float32", device="cpu").truths(1)
    assert [t.question.mode for t in truths] == ["inference", "forward_backward"]


def test_some_nan_in_outputs_is_noted_by_name_and_count():
    class Logs(torch.nn.Module):
        def forward(self, x):
            return {"log": x.log(), "double": 2 * x}

    class LogsPort(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, x):
            import jax.numpy as jnp

            return {"log": jnp.log(x), "double": 2 * x}

    def inputs(rng):
        x = np.abs(rng.standard_normal((4, 5))) + 0.1
        x[0] = -1.0
        return (x,)

    report = check(case(reference=Logs, model=LogsPort, inputs=inputs, modes=("inference",)), draws=2)
    (note,) = [n for n in report.parity[0].notes if "NaN" in n]
    assert "output log is NaN in 10 of 40 elements" in note


def test_a_port_that_draws_is_told_and_one_with_dropout_off_is_not():
    (right,) = check(case()).parity
    assert right.passed
    assert not right.notes
    (parity,) = check(case(model=Draws), locate=False).parity
    assert not parity.equal
    (note,) = [n for n in parity.notes if "not deterministic" in n]
    assert "the port" in note
    assert "another seed of its nnx.Rngs" in note
    (other,) = check(
        case(model=type("Wrong", (Port,), {"__call__": lambda self, x: self.fc(x) + 1})), locate=False
    ).parity
    assert not any("not deterministic" in n for n in other.notes)


def no_gradient(self, x):
    with torch.no_grad():
        return self.fc(x)


@pytest.mark.parametrize("forward", [no_gradient, lambda self, x: self.fc(x).detach()])
def test_a_reference_without_gradient_is_named_as_the_cause(forward):
    report = check(case(forward), draws=1)
    (parity,) = report.parity
    assert not parity.equal
    (cause,) = report.causes
    assert (cause.id, cause.says) == ("dead-output", "the reference gives no gradient, and the port does")
    assert "modes=('inference',)" in cause.fix
    (line,) = [line for line in parity_text(parity).plain.splitlines() if "NOT equal" in line]
    assert "input gradient input.0, forward_backward, random 0: " in line
    assert line.count(" for 0 ") == 1
    assert "failed" not in line


@pytest.mark.parametrize(
    ("forward", "loss"),
    [(no_gradient, lambda y: (y**2).mean()), (Reference.forward, lambda y: (y.detach() ** 2).mean())],
)
def test_a_reference_without_gradient_under_a_loss(forward, loss):
    (cause,) = check(case(forward, loss=(loss, lambda y: (y**2).mean())), draws=1).causes
    assert cause.says == "the reference gives no gradient, and the port does"


class Two(Port):
    def __call__(self, x):
        return self.fc(x), self.fc(2 * x)


class TwoWrong(Two):
    def __call__(self, x):
        return jax.lax.stop_gradient(self.fc(x)), self.fc(2 * x)


@pytest.mark.parametrize("model", [Two, TwoWrong])
def test_an_output_without_gradient_is_the_cause_only_where_it_explains_all(model):
    report = check(case(lambda self, x: (self.fc(x), self.fc(2 * x).detach()), model), draws=1)
    assert not report.passed
    found = [cause.says for cause in report.causes if cause.id == "dead-output"]
    assert found == (["the reference gives no gradient through its output 1, and the port does"] * (model is Two))


def value_loss(outputs):
    return ((outputs[0] - outputs[1]) ** 2).mean()


def test_an_output_without_gradient_that_the_loss_takes_beside_others():
    forward = lambda self, x: (self.fc(x), self.fc(2 * x).detach())  # noqa: E731
    (cause,) = check(case(forward, Two, loss=(value_loss, value_loss)), draws=1).causes
    assert cause.says == "the reference gives no gradient through its output 1, and the port does"


def test_numpy_outputs_are_refused_where_gradients_are_asked_for():
    def forward(self, x):
        return self.fc(x).detach().numpy()

    with pytest.raises(CaseError, match="gives numpy's ndarray as output on the input 'random 0' in forward_backward"):
        check(case(forward), draws=1)
    assert check(case(forward, modes=("inference",)), draws=1).passed


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ((lambda y: y, lambda y: y.mean()), r"loss\[0\], the PyTorch one, gives the shape \(20, 8\), and a scalar"),
        ((lambda y: 3.0, lambda y: y.mean()), r"loss\[0\], the PyTorch one, gives float"),
        ((lambda y: y.mean(), lambda y: y), r"loss\[1\], the jnp one, gives the shape \(20, 8\), and a scalar"),
    ],
)
def test_a_loss_that_is_no_scalar_is_named(loss, words):
    with pytest.raises(CaseError, match=words):
        check(case(loss=loss), draws=1)


def test_an_input_by_which_no_gradient_can_be_taken_is_named():
    def forward(self, x, target):
        scale = torch.ones(8, dtype=x.dtype)
        first = target * scale
        scale[4:] = 2.0
        return (self.fc(x) - first).square().mean() + (self.fc(x) - target * scale).abs().mean()

    two = lambda rng: (rng.standard_normal((20, 6)), rng.standard_normal((20, 8)))  # noqa: E731
    with pytest.raises(
        CaseError, match=r"it runs where no gradient is taken by input\.1: if none is in training, detach"
    ):
        check(case(forward, inputs=two))
