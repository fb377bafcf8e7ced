"""What inputs do not cover is told, with what would tell it; inputs that cover everything are not accused."""

import functools
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity import coverage, function_limits
from graphmode.compare.parity.coverage import Sides, coverage_warnings
from graphmode.compare.parity.function_limits import WatchedLimits
from graphmode.compare.parity.judge import Judge
from graphmode.compare.parity.other_limits import is_told
from graphmode.compare.widened import in_float64


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.spare = torch.nn.Linear(6, 6)
        self.act = torch.nn.ReLU()
        self.gain = 1.0

    def forward(self, x, mask):
        h = self.act(self.fc(x)) + self.spare(x)
        return {"h": torch.where(mask[..., None], h, 0.0) * self.gain, "high": h.sum(-1) > 0}


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(6, 6, rngs=rngs)
        self.spare = nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x, mask):
        h = nnx.relu(self.fc(x)) + self.spare(x)
        return {"h": jnp.where(mask[..., None], h, 0.0), "high": h.sum(-1) > 0}


def inputs(rng, batch=20):
    return rng.standard_normal((batch, 6)), rng.random(batch) < 0.5


def case(**fields):
    settings = {"name": "small", "summary": "", "reference": Reference, "model": Port, "inputs": inputs}
    return Case(**{**settings, **fields})


def warnings(**fields):
    judge = Judge(case(**fields), seed=0, dtype="float32", device="cpu")
    module = judge.references["default"]
    names = [name for name, _ in module.named_parameters()]
    truths = judge.truths(3)
    told = functools.partial(is_told, judge.exact, truths)
    return coverage_warnings(truths, judge.state_dict, names, judge.sides, is_told=told)


def changed(**members):
    return type("Theirs", (Reference,), members)


class Identity(Reference):
    def __init__(self):
        super().__init__()
        torch.nn.init.eye_(self.fc.weight)


class Six(Reference):
    def __init__(self):
        super().__init__()
        self.act = torch.nn.ReLU6()


class Padded(Reference):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(3, 6, padding_idx=0)

    def forward(self, x, mask):
        return {"h": Reference.forward(self, x, mask)["h"] + self.table((x > 0).sum(-1).clamp(1, 2))}


def unused(self, x, mask):
    return {"h": self.act(self.fc(x)) + 0 * mask[..., None]}


def limited(limit):
    """A reference that ends with a function that has limits."""
    return changed(forward=lambda s, x, m: {"h": limit(Reference.forward(s, x, m)["h"])})


UNCOVERED = {
    "a parameter without a gradient": ({"reference": changed(forward=unused)}, ["spare.weight, spare.bias", "zero"]),
    "a constant output": (
        {"reference": changed(forward=lambda s, x, m: {"h": Reference.forward(s, x, m)["h"], "one": torch.ones(3)})},
        ["the output one is the same"],
    ),
    "a symmetric weight": ({"reference": Identity}, ["fc.weight is its own transpose"]),
    "a mask that is all True": (
        {"inputs": lambda rng: (inputs(rng)[0], np.ones(20, bool))},
        ["input.1 is True in every element", "mixes True and False"],
    ),
    "a batch of one": ({"inputs": lambda rng: inputs(rng, 1)}, ["the first axis of every input has length 1"]),
    "draws that are the same": ({"inputs": lambda rng: inputs(np.random.default_rng(0))}, ["all 3 random inputs"]),
    "a side of a relu": ({"reference": Six}, ["no input of ReLU6 act is above 6"]),
    "padding": ({"reference": Padded}, ["no input of table holds 0, its padding_idx", "no gradient"]),
    "a limit of a function": (
        {"reference": limited(lambda h: torch.clamp(h, max=50))},
        ["no input of clamp test_coverage.py:", "is above 50", "another limit, or none"],
    ),
    "one side of a number": (
        {"reference": limited(lambda h: torch.where(h > 50, 0, h))},
        [
            "nothing that is compared by > 50 at test_coverage.py:",
            "is above that on any of the case's inputs",
            "edge input",
        ],
    ),
    "a number that no value is near to": (
        {"reference": limited(lambda h: torch.where(10.0 * (h > 0) >= 5, h, 0))},
        ["compared by >= 5 at test_coverage.py:", "no nearer to that than 0 and 10", "on either side"],
    ),
    "a floor that zeros alone get to, and that is multiplied by them": (
        {"reference": limited(lambda h: (h := h.sigmoid() * (h > 0)) * h.clamp(min=1e-9).log())},
        ["what clamp at test_coverage.py:", "limits at 1e-09", "no nearer to that than 0 and 0.5"],
    ),
    "a limit of a method": ({"reference": limited(lambda h: h.clamp(-60, 0))}, ["clamp", "is below -60"]),
    "a function with branches": (
        {"reference": limited(torch.nn.functional.relu6)},
        ["no input of relu6 test_coverage.py:", "is above 6", "another activation"],
    ),
    "a hinge that is never met": (
        {"reference": limited(lambda h: torch.relu(h - 90))},
        ["no input of relu test_coverage.py:", "is above 0", "another activation"],
    ),
}


def test_inputs_that_cover_everything_are_not_accused():
    assert warnings() == []
    assert warnings(reference=limited(lambda h: h.clamp(min=0).clamp(min=-1e-6))) == []  # met, and a mere guard
    seen = limited(lambda h: (h.sigmoid() * (h > 0)).clamp(min=1e-9).log())
    assert warnings(reference=seen) == []  # with another limit it would be another logarithm
    lengths = limited(lambda h: h / (h > 0).float().sum(-1, keepdim=True).clamp(min=1))
    assert not [w for w in warnings(reference=lengths) if "limits" in w]
    near = limited(lambda h: (h.clamp(min=0) > 1).float() + 0 * h)  # many are near to zero, on either side
    assert not [w for w in warnings(reference=near) if "limits" in w]
    counts = limited(lambda h: torch.where((h > 0).float() + 1 < 1, 0, h))
    assert not [w for w in warnings(reference=counts) if "no nearer" in w]  # 1 and 2, and a count is nothing between
    limit = limited(lambda h: torch.where(h.clamp(max=0.5) < 0.5, h, 0))
    assert not [w for w in warnings(reference=limit) if "compared" in w]  # nothing is above it, and some are no less


@pytest.mark.parametrize("what", UNCOVERED)
def test_what_inputs_do_not_cover_is_told(what):
    fields, words = UNCOVERED[what]
    found = [w for w in warnings(**fields) if all(word in w for word in words)]
    assert len(found) == 1, warnings(**fields)


def test_limits_are_told_of_the_function_that_has_them():
    two = limited(lambda h: torch.relu(h - 90).clamp(max=7))
    both = " ".join(warnings(reference=two))
    assert "no input of relu test_coverage.py:" in both
    assert "no input of clamp test_coverage.py:" in both
    shared = " ".join(warnings(reference=limited(torch.nn.functional.hardsigmoid)))
    assert "above 6" not in shared


def test_another_number_that_something_tells_is_no_gap():
    sides = Sides(compared={(">", "x.py:1", 0.35): (0.0, 0.6)})
    assert not list(sides.number_warnings(lambda *_: True))
    (above,) = sides.number_warnings(lambda place, number, other: other < number)
    assert "another number between 0.35 and 0.6 would pass" in above


EDGES = {
    "a mask that is all True": {"mixed": lambda rng: inputs(rng)},
    "a batch of one": {"two": lambda rng: inputs(rng, 2)},
    "a limit of a function": {"large": lambda rng: (100 * inputs(rng)[0], inputs(rng)[1])},
    "a side of a relu": {"large": lambda rng: (100 * inputs(rng)[0], inputs(rng)[1])},
}


@pytest.mark.parametrize("what", EDGES)
def test_the_edge_input_that_a_warning_asks_for_ends_it(what):
    fields, words = UNCOVERED[what]
    assert not [w for w in warnings(**fields, edge_inputs=EDGES[what]) if all(word in w for word in words)]


class Bounded(Reference):
    """Its weight is limited, which no input changes, and then what it gives."""

    def forward(self, x, mask):
        bounded = self.fc.weight.clamp(0, 9)
        return {"h": (Reference.forward(self, x, mask)["h"] @ bounded).clamp(max=90)}


def test_no_input_is_asked_for_where_the_weights_alone_decide():
    below, given = (w.partition("; ") for w in warnings(reference=Bounded, modes=("inference", "forward_backward")))
    assert "is above 9:" in below[0]
    assert "only other weights, sizes or a later state" in below[2]
    assert "is above 90:" in given[0]
    assert "add an edge input" in given[2]


class LimitedAlike(Reference):
    """One line limits what a parameter gives, and what an input does in training alone."""

    def forward(self, x, mask):
        limited = lambda value, most: value.clamp(max=most)  # noqa: E731
        h = Reference.forward(self, x, mask)["h"] @ limited(self.fc.weight[:6, :6], 9.0)
        return {"h": limited(h, 900.0) if self.training else h}


def test_an_input_is_asked_for_where_a_line_limits_a_parameter_too():
    both = warnings(reference=LimitedAlike, modes=("inference", "forward_backward"))
    below, given = (next(w for w in both if f"is above {limit}:" in w).partition("; ") for limit in (9, 900))
    assert "a later state" in below[2]
    assert "add an edge input" in given[2]


class WithTarget(Reference):
    """Which is not trained by what it gives, and which gives it nevertheless; and one that gives nothing."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(6))

    def forward(self, x, mask):
        with torch.no_grad():
            target = self.spare(x)
        return {"h": torch.where(mask[..., None], self.act(self.fc(x)) + target + 0 * self.unused, 0.0)}


class PortWithTarget(Port):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.unused = nnx.Param(jnp.ones(6))

    def __call__(self, x, mask):
        h = nnx.relu(self.fc(x)) + jax.lax.stop_gradient(self.spare(x))
        return {"h": jnp.where(mask[..., None], h, 0.0)}


def test_what_has_no_gradient_and_an_effect_is_exercised():
    report = check(case(reference=WithTarget, model=PortWithTarget), draws=1)
    assert report.passed, str(report)
    (told,) = (each for each in report.parity[0].warnings if "exactly zero" in each)
    assert told.startswith("the gradient of unused is exactly zero"), told


def test_a_report_shows_them_once_and_still_passes():
    masked = {"model": {"one": Port, "two": Port}, "inputs": lambda rng: (inputs(rng)[0], np.ones(20, bool))}
    report = check(case(**masked, adversarial=("zeros",)))
    assert report.passed, str(report)
    assert all(p.warnings for p in report.parity)
    assert str(report).count("not covered: input.1 is True") == 1
    assert "input.1 is True" not in str(check(case(**masked, adversarial=("masks of both values",))))


def test_gradients_that_are_not_compared_are_noted():
    def half():
        module = Reference()
        module.spare.requires_grad_(False)
        return module

    def notes(reference):
        (parity,) = check(case(reference=reference), draws=1, locate=False).parity
        assert parity.passed
        return [note for note in parity.notes if "requires_grad" in note]

    why = "was not compared: the reference has requires_grad=False there"
    assert notes(Reference) == []
    assert notes(half) == [f"the gradient of spare.weight, spare.bias {why}"]
    assert notes(lambda: Reference().requires_grad_(False)) == [f"the gradient of any parameter {why}"]


def test_an_output_that_training_changes_is_no_constant():
    truths = [
        SimpleNamespace(
            question=SimpleNamespace(mode=mode), reference=SimpleNamespace(outputs={"0": first, "1": np.ones(2)})
        )
        for mode, first in (
            ("inference", np.zeros(2)),
            ("inference", np.zeros(2)),
            ("forward_backward", np.arange(2)),
            ("forward_backward", np.arange(2) + 1),
        )
    ]
    (warning,) = coverage._constant_outputs(truths)
    assert "the output 1 is the same for every input" in warning


def test_what_the_harness_compares_by_itself_is_not_the_references():
    compared = []
    with WatchedLimits(lambda *args: None, lambda *args: compared.append(args)):
        for file in (__file__, function_limits.__file__):
            exec(compile("x > 0.5", file, "eval"), {"x": torch.ones(2)})
    ((_, place, *_),) = compared
    assert place.startswith(Path(__file__).name)


class Warming(torch.nn.Module):
    """A share that every call raises, up to a limit that only later calls get to."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("share", torch.tensor(0.1))

    def forward(self, x):
        if self.training:
            self.share = (self.share * 1.5).clamp(max=1.0)
        return self.fc(x) * self.share, self.share.clone()


class WarmingPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(4, 3, rngs=rngs)
        self.share = nnx.BatchStat(jnp.array(0.1))
        self.training = True

    def __call__(self, x):
        if self.training:
            self.share[...] = jnp.minimum(self.share[...] * 1.5, 1.0)
        return self.fc(x) * self.share[...], self.share[...]


def test_what_later_calls_tell_is_no_gap():
    draw = lambda rng: (rng.standard_normal((5, 4)),)  # noqa: E731
    report = check(Case(name="c", summary="s", reference=Warming, model=WarmingPort, inputs=draw, adversarial=()))
    assert report.passed
    (parity,) = report.parity
    assert not any("constant would pass" in each or "another number" in each for each in parity.warnings)


def refuses(x):
    if x.min() < -9 or (
        x.max() > 9  # in its lines, too
    ):
        raise ValueError("out of range")
    assert (x < 8).all()
    return x > 0.5


def test_what_is_compared_to_refuse_it_has_no_other_side():
    compared = []
    with WatchedLimits(lambda *args: None, lambda *args: compared.append(args)):
        refuses(torch.ones(2))
        with in_float64():
            refuses(torch.ones(2))
    assert [number for *_, number in compared] == [0.5, 0.5]
