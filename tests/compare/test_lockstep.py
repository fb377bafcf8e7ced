"""Lockstep training: correct ports pass over several seeds, and a planted fault is named by step, kind and tensor."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check, lockstep
from graphmode.compare.report.json_form import from_json, to_json
from graphmode.compare.report.records import Lockstep

import graphmode as gm

LR = 0.02


class Reference(torch.nn.Module):
    """The bias before the normalisation has a gradient of zero but for rounding, of which Adam makes steps."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 8)
        self.bn = torch.nn.BatchNorm1d(8)
        self.drop = torch.nn.Dropout(0.25)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.bn(self.fc(x)))))


class Port(nnx.Module):
    def __init__(self, rngs, momentum=0.1, p=0.25):
        self.fc = gm.nn.Linear(6, 8, rngs=rngs)
        self.bn = gm.nn.BatchNorm1d(8, momentum=momentum)
        self.drop = gm.nn.Dropout(p)
        self.head = gm.nn.Linear(8, 5, rngs=rngs)

    def forward(self, x):
        return self.head(self.drop(nnx.relu(self.bn(self.fc(x)))))

    def __call__(self, x):
        return self.forward(x)


def torch_sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=LR, **options)


def torch_adam(**options):
    return lambda parameters: torch.optim.Adam(parameters, lr=LR, **options)


def torch_adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, lr=LR, weight_decay=0.1, **options)


def torch_rmsprop(**options):
    return lambda parameters: torch.optim.RMSprop(parameters, lr=LR, **options)


def clipped(parameters):
    optimizer = torch.optim.SGD(parameters, lr=LR, momentum=0.9)
    optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(parameters, 0.5) and None)
    return optimizer


def case(optimizer, model=Port, reference=Reference, **fields) -> Case:
    settings = {
        "name": "stepped",
        "summary": "",
        "reference": reference,
        "model": model,
        "inputs": lambda rng: (rng.standard_normal((12, 6)),),
        "optimizer": optimizer,
        "modes": ("train_step",),
    }
    return Case(**{**settings, **fields})


rmsprop = {"decay": 0.99, "eps_in_sqrt": False}
CORRECT = {
    "sgd": (torch_sgd(), optax.sgd(LR)),
    "nesterov": (torch_sgd(momentum=0.9, nesterov=True), optax.sgd(LR, momentum=0.9, nesterov=True)),
    "coupled decay": (
        torch_sgd(momentum=0.9, weight_decay=0.1),
        optax.chain(optax.add_decayed_weights(0.1), optax.sgd(LR, momentum=0.9)),
    ),
    "adam": (torch_adam(), optax.adam(LR)),
    "adamw": (torch_adamw(), optax.adamw(LR, weight_decay=0.1)),
    "scheduled adam": (torch_adam(), optax.adam(lambda count: LR)),
    "rmsprop": (torch_rmsprop(), optax.rmsprop(LR, **rmsprop)),
    "rmsprop, momentum after the rate": (
        torch_rmsprop(momentum=0.9, centered=True),
        optax.rmsprop(LR, momentum=0.9, centered=True, **rmsprop),
    ),
    "adagrad": (
        lambda parameters: torch.optim.Adagrad(parameters, lr=LR),
        gm.optim.adagrad(lr=LR),
    ),
    "graphmode's adamw": (torch_adamw(), gm.optim.adamw(lr=LR, weight_decay=0.1)),
    "graphmode's sgd": (torch_sgd(momentum=0.9, dampening=0.1), gm.optim.sgd(LR, momentum=0.9, dampening=0.1)),
}


class Marked(Reference):
    def forward(self, x):
        return {"y": super().forward(x), "margin": 0.5, "classes": 5}


class MarkedPort(Port):
    def __call__(self, x):
        return {"y": self.forward(x), "margin": 0.5, "classes": 5}


def test_a_number_of_pythons_own_among_the_outputs_has_no_gradient():
    given = case((torch_sgd(), optax.sgd(LR)), MarkedPort, Marked, modes=("forward_backward", "train_step"))
    assert check(given).passed
    assert lockstep(given, steps=2).passed


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_port_passes_over_several_seeds(name):
    for seed in range(3 if name in ("adam", "coupled decay") else 1):
        result = lockstep(case(CORRECT[name]), steps=4, seed=seed)
        assert result.passed, str(result)
        compared = {"output", "buffer", "parameter_gradient", "input_gradient", "update", "parameter"}
        assert result.worst.keys() == compared | ({"optimizer_state"} if name != "sgd" else set())
        assert [at.step for at in result.curve] == [1, 2, 3, 4]
        assert result.notes == []


class Weighted(torch.nn.Module):
    """The second weight's gradient is next to nothing beside the first one's, and Adam steps it no less for that."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return (x * self.weight).sum(-1)


class RoundedPort(nnx.Module):
    """Its gradients have the rounding errors of numbers of size one."""

    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.ones(2))

    def __call__(self, x):
        return ((x + 1) * self.weight).sum(-1) - self.weight.sum()


@pytest.mark.parametrize("eps", [1e-8, 1e-6])
def test_rounding_of_a_gradient_is_no_fault_of_the_optimizer_and_its_epsilon_is(eps):
    result = lockstep(
        case(
            (torch_adam(), optax.adam(LR, eps=eps)),
            RoundedPort,
            Weighted,
            inputs=lambda rng: (rng.standard_normal((4, 2)) * [1.0, 1e-9],),
        ),
        steps=2,
    )
    assert "parameter_gradient" not in result.failed
    assert result.passed is (eps == 1e-8)


def test_the_free_run_parts_as_rounding_does():
    result = lockstep(case(CORRECT["coupled decay"]), steps=6)
    assert all(at.port <= 100 * at.rounding < at.rounding_float32 for at in result.curve), str(result)
    wrong = lockstep(case((torch_sgd(), optax.sgd(LR * 1.001))), steps=6)
    assert all(at.port > 1000 * at.rounding for at in wrong.curve), str(wrong)


def third_is_negative():
    drawn = []

    def inputs(rng):
        drawn.append(None)
        return (rng.standard_normal((12, 6)) - (5 if len(drawn) == 3 else 0),)

    return inputs


class LostGradient(Port):
    """Loses a gradient where the batch is negative, as that of the third step is."""

    def __call__(self, x):
        h = self.drop(nnx.relu(self.bn(self.fc(x))))
        weight = self.head.weight[...]
        kept = jax.lax.cond(x.mean() < -1, jax.lax.stop_gradient, lambda w: w, weight)
        return h @ kept + self.head.bias[...]


# what is wrong: optimizer, further fields, and the first step, kind and tensors that must be named
FAULTS = {
    "learning rate": ((torch_sgd(), optax.sgd(LR * 1.0001)), {}, 1, "update", None),
    "momentum": ((torch_sgd(momentum=0.9), optax.sgd(LR, momentum=0.8)), {}, 2, "optimizer_state", None),
    "momentum lost": ((torch_sgd(momentum=0.9), optax.sgd(LR)), {}, 2, "update", None),
    "nesterov": ((torch_sgd(momentum=0.9), optax.sgd(LR, momentum=0.9, nesterov=True)), {}, 1, "update", None),
    "decoupled for coupled": (
        (torch_adam(weight_decay=0.1), optax.adamw(LR, weight_decay=0.1)),
        {},
        1,
        "optimizer_state",
        None,
    ),
    "coupled for decoupled": (
        (torch_adamw(), optax.chain(optax.add_decayed_weights(0.1), optax.adam(LR))),
        {},
        1,
        "optimizer_state",
        None,
    ),
    "decay of optax": ((torch_adamw(), optax.adamw(LR)), {}, 1, "update", None),
    "epsilon": ((torch_adam(), optax.adam(LR, eps=1e-6)), {}, 1, "update", None),
    "second beta": ((torch_adam(), gm.optim.adam(lr=LR, betas=(0.9, 0.99))), {}, 1, "optimizer_state", None),
    "rmsprop's decay": ((torch_rmsprop(), optax.rmsprop(LR, eps_in_sqrt=False)), {}, 1, "optimizer_state", None),
    "statistics' momentum": (
        CORRECT["adam"],
        {"model": lambda rngs: Port(rngs, momentum=0.01)},
        1,
        "buffer",
        "bn.running_mean",
    ),
    "gradient lost in a branch": (
        CORRECT["adam"],
        {"model": LostGradient, "inputs": third_is_negative()},
        3,
        "parameter_gradient",
        "head.weight",
    ),
    "clipping": (
        (torch_sgd(momentum=0.9), optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(LR, momentum=0.9))),
        {},
        1,
        "optimizer_state",
        None,
    ),
    "clipping without 1e-6": (
        (clipped, optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(LR, momentum=0.9))),
        {},
        1,
        "optimizer_state",
        None,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault):
    optimizer, fields, step, kind, tensor = FAULTS[fault]
    result = lockstep(case(optimizer, **fields), steps=3)
    first = result.first
    assert not result.passed
    assert (first.step, first.kind) == (step, kind), str(result)
    assert tensor is None or first.tensor == tensor
    assert first.port_value != first.reference_value
    assert f"first in step {step}: {kind.replace('_', ' ')} {first.tensor}" in str(result)


class TwoHeads(torch.nn.Module):
    """Which of two heads is used is the batch's to say: the other has no gradient."""

    def __init__(self):
        super().__init__()
        self.left = torch.nn.Linear(6, 4)
        self.right = torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.left(x) if x.mean() > -1 else self.right(x)


class TwoHeadsPort(nnx.Module):
    def __init__(self, rngs):
        self.left = gm.nn.Linear(6, 4, rngs=rngs)
        self.right = gm.nn.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        return jax.lax.cond(x.mean() > -1, lambda: self.left(x), lambda: self.right(x))


def test_an_absent_gradient_is_told_from_zero():
    pair = {"model": TwoHeadsPort, "reference": TwoHeads}
    result = lockstep(case(CORRECT["adamw"], **pair), steps=2)
    assert (result.first.step, result.first.kind) == (1, "update"), str(result)
    assert result.first.tensor.startswith("right.")
    assert "no gradient here in this step (None)" in result.first.note
    assert lockstep(case(CORRECT["sgd"], **pair), steps=4).passed


def test_an_unknown_state_is_not_compared_and_said_so():
    def init(params):
        return jax.tree.map(jnp.zeros_like, params), ()

    def update(gradients, state, params):
        kept = jax.tree.map(lambda m, g: 0.9 * m + g, state[0], gradients)
        return jax.tree.map(lambda m: -LR * m, kept), (kept, ())

    own = optax.GradientTransformation(init, update)
    result = lockstep(case((torch_sgd(momentum=0.9), own)), steps=4)
    assert result.passed, str(result)
    assert "optimizer_state" not in result.worst
    assert any("not compared" in note for note in result.notes)
    wrong = lockstep(case((torch_sgd(momentum=0.8), own)), steps=4)
    assert (wrong.first.step, wrong.first.kind) == (2, "update")


class Warmed(torch.optim.Optimizer):
    """What it counts, and its momentum, are in attributes; so is what its rate is a factor of, in a hook."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": LR})
        self.count, self.kept, factors = 0, {}, itertools.count(1)
        self.register_step_pre_hook(lambda *_: self.param_groups[0].update(lr=LR * next(factors)))

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        for p in self.param_groups[0]["params"]:
            self.kept[p] = 0.9 * self.kept.get(p, 0) + p.grad / self.count
            p -= self.param_groups[0]["lr"] * self.kept[p]


@pytest.mark.parametrize("momentum", [0.9, 0.8])
def test_what_an_optimizer_keeps_beside_its_state_dict_is_carried(momentum):
    rate = optax.scale_by_learning_rate(lambda count: LR * (count + 1.0))
    pair = Warmed, optax.chain(optax.scale_by_schedule(lambda n: 1 / (n + 1.0)), optax.trace(momentum), rate)
    result = lockstep(case(pair, lambda rngs: gm.nn.Linear(6, 4, rngs=rngs), lambda: torch.nn.Linear(6, 4)), steps=4)
    assert result.passed is (momentum == 0.9), str(result)
    assert result.passed or (result.first.step, result.first.kind) == (2, "update")
    assert max(at.port for at in result.curve) < 1e-12 or not result.passed


class Images(torch.nn.Module):
    def __init__(self, *drops):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.drops = torch.nn.ModuleList(
            drops or [torch.nn.Dropout(0.3), torch.nn.Dropout2d(0.4), torch.nn.AlphaDropout(0.2)]
        )

    def forward(self, x):
        for drop in self.drops:
            x = drop(torch.relu(self.conv(x)))
        return x


class ImagesPort(nnx.Module):
    """Square and with as many channels as pixels: only values tell the layout of a mask."""

    def __init__(self, rngs, *drops):
        self.conv = gm.nn.Conv2d(3, 3, 3, padding=1, rngs=rngs)
        self.drops = nnx.List(drops or [nnx.Dropout(0.3), gm.nn.Dropout2d(0.4), gm.nn.AlphaDropout(0.2)])

    def __call__(self, x):
        for drop in self.drops:
            x = drop(nnx.relu(self.conv(x)))
        return x


def images(model=ImagesPort, reference=Images) -> Case:
    from graphmode.compare import channels_first, channels_last

    layout = {"to_model": channels_last, "to_reference": channels_first}
    return case(CORRECT["adam"], model, reference, inputs=lambda rng: (rng.standard_normal((3, 3, 3, 3)),), **layout)


def test_dropout_runs_on_the_masks_of_the_reference():
    for one in (images(), case(CORRECT["adamw"])):
        result = lockstep(one, steps=2, dropout=True)
        assert result.dropout
        assert result.passed, str(result)


def test_a_wrong_rate_of_dropout_is_named():
    assert lockstep(case(CORRECT["adam"], lambda rngs: Port(rngs, p=0.5)), steps=1).passed
    result = lockstep(case(CORRECT["adam"], lambda rngs: Port(rngs, p=0.5)), steps=1, dropout=True)
    assert result.first.kind == "output", str(result)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (images(lambda rngs: ImagesPort(rngs, gm.nn.Dropout(0.5))), "do not match: the port calls drops.0, and"),
        (
            images(lambda rngs: ImagesPort(rngs, gm.nn.Dropout2d(0.5)), lambda: Images(torch.nn.Dropout(0.5))),
            "drops whole features",
        ),
        (
            images(reference=lambda: Images(torch.nn.Dropout(0.5), torch.nn.RReLU(), torch.nn.Dropout(0.5))),
            "outside of its dropout modules",
        ),
    ],
)
def test_dropouts_that_do_not_match_are_refused(pair, words):
    with pytest.raises(CaseError, match=words):
        lockstep(pair, steps=1, dropout=True)


def test_what_cannot_be_trained_is_refused_by_name():
    with pytest.raises(CaseError, match="has no optimizer"):
        lockstep(case(None, modes=()))
    with pytest.raises(ValueError, match="steps is 0"):
        lockstep(case(CORRECT["sgd"]), steps=0)
    with pytest.raises(ValueError, match="variant is 'other'"):
        lockstep(case(CORRECT["sgd"]), variant="other")


def test_a_parameter_that_the_port_does_not_train_is_named():
    class Frozen(Port):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.head.bias = nnx.Variable(self.head.bias[...])

    result = lockstep(case(CORRECT["sgd"], Frozen), steps=1)
    assert (result.first.kind, result.first.tensor) == ("update", "head.bias")


def test_the_result_is_a_record():
    result = lockstep(case((torch_sgd(), optax.sgd(1.0))), steps=1)
    text = to_json(result)
    assert from_json(text, Lockstep) == result
    assert json.loads(text)["findings"][0]["kind"] == "update"
    assert np.isfinite(result.first.error)


def test_the_command_trains_in_lockstep(tmp_path):
    from typer.testing import CliRunner

    from graphmode.cli import app

    result = CliRunner().invoke(app, ["check", "weighted_product", "--steps", "2", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "lockstep over 2 steps: passed" in result.output
    (trained,) = json.loads((tmp_path / "results.json").read_text())["lockstep"]
    assert (trained["case"], trained["steps"], trained["findings"]) == ("weighted_product", 2, [])
    assert len(trained["curve"]) == 2


def test_the_headline_tells_of_training_that_parts():
    from graphmode.compare.report.headline import headline
    from graphmode.compare.report.records import Lockstep, Parity, StepFinding
    from graphmode.compare.report.results import Results
    from sample_results import environment

    parted = Lockstep(case="c", variant="v", steps=9, seed=0, findings=[StepFinding(step=7, kind="buffer", tensor="b")])
    parity = [Parity(case="c", variant="v", side="jax", equal=True, precise=True, inputs=["random 0"], tensors=[])]
    made = {"created": "", "seed": 0, "quick": False, "environment": environment(), "complete": True}
    told = headline(Results(**made, parity=parity, lockstep=[parted]))
    assert told.verdict == "1 finding fails this run."
    assert told.failures == ("c (v): training in lockstep parts: buffer b, step 7",)
