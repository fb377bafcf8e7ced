"""`check` on small models: verdicts, what it refuses, and that faults of every kind turn it red."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check
from graphmode.compare.draw import check_inputs, edge_input
from graphmode.compare.parity.adversarial import KINDS

from graphmode.weights import Drop, Rename, WeightsError


class Reference(torch.nn.Module):
    """Linear layers, a square one among them, normalisations of two kinds, and a gelu."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 8)
        self.square = torch.nn.Linear(8, 8)
        self.ln = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.fc(x))
        h = h + self.ln(self.square(h))
        return {"logits": self.head(h), "hidden": (h, h.argmax(-1))}


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, *, epsilon=1e-5, fast_variance=False):
        self.fc = nnx.Linear(6, 8, rngs=rngs)
        self.square = nnx.Linear(8, 8, rngs=rngs)
        self.ln = nnx.LayerNorm(8, epsilon=epsilon, use_fast_variance=fast_variance, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))

    def square_layer(self, h):
        return self.square(h)

    def join(self, h, update):
        return h + update

    def __call__(self, x):
        h = self.gelu(self.fc(x))
        h = self.join(h, self.ln(self.square_layer(h)))
        return {"logits": self.head(h), "hidden": (h, h.argmax(-1))}


def faulty(**members) -> type[Port]:
    return type("Faulty", (Port,), members)


def case(model=Port, **fields) -> Case:
    settings = {
        "name": "small",
        "summary": "",
        "reference": Reference,
        "model": model,
        "inputs": lambda rng: (rng.standard_normal((20, 6)),),
        "edge_inputs": {"zeros": lambda rng: (np.zeros((20, 6)),)},
    }
    return Case(**{**settings, **fields})


def test_switches_that_pytorchs_own_test_suite_has_locked(monkeypatch):
    switches = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(switches, "__allow_nonbracketed_mutation_flag", False)  # as importing it leaves them
    assert torch.backends.flags_frozen()
    assert check(case()).passed


def test_a_correct_port_passes_with_evidence():
    edges = {"zeros": lambda rng: (np.zeros((20, 6)),), "one": lambda rng: (rng.standard_normal((1, 6)),)}
    report = check(case(edge_inputs=edges))
    assert report.passed, str(report)
    (parity,) = report.parity
    kinds = {(t.kind, t.mode) for t in parity.tensors}
    assert kinds == {
        ("output", "inference"),
        ("output", "forward_backward"),
        ("input_gradient", "forward_backward"),
        ("parameter_gradient", "forward_backward"),
    }
    assert {t.name for t in parity.tensors if t.kind == "parameter_gradient"} == set(Reference().state_dict())
    assert all(t.error is not None for t in parity.tensors)
    assert parity.inputs[:5] == ["random 0", "random 1", "random 2", "zeros", "one"]
    kinds = set(KINDS) - {"zeros", "few values", "the least integers", "the largest integers"}
    kinds -= {"masks of zeros", "masks of ones", "masks of both values", "masks with holes", "values of buffers"}
    assert set(parity.inputs[5:]) == kinds | {"random 0, other weights"}
    assert "passed" in str(report)


def antisymmetric(layer: nnx.Linear) -> jax.Array:
    kernel = layer.kernel[...]
    return kernel.T - kernel


def at_zero(self: Port, x: jax.Array, wrong: float):
    """The right outputs, but for an input of zeros."""
    return jax.tree.map(
        lambda y: jnp.where(jnp.all(x == 0), wrong + y, y) if jnp.issubdtype(y.dtype, jnp.floating) else y,
        Port.__call__(self, x),
    )


FAULTS = {
    "tanh gelu": faulty(gelu=staticmethod(jax.nn.gelu)),
    "relu": faulty(gelu=staticmethod(jax.nn.relu)),
    "epsilon": lambda rngs: Port(rngs, epsilon=1e-6),
    "transposed square weight": faulty(square_layer=lambda self, h: self.square(h) + h @ antisymmetric(self.square)),
    "lost bias": faulty(square_layer=lambda self, h: h @ self.square.kernel[...]),
    "missing residual": faulty(join=lambda self, h, update: update),
    "stopped gradient": faulty(join=lambda self, h, update: h + jax.lax.stop_gradient(update)),
    "hidden float32": faulty(join=lambda self, h, update: h + update.astype(jnp.float32)),
    "hidden bfloat16": faulty(join=lambda self, h, update: h + update.astype(jnp.bfloat16).astype(update.dtype)),
    "new NaN on an edge": faulty(__call__=lambda self, x: at_zero(self, x, jnp.nan)),
    "wrong on an edge": faulty(__call__=lambda self, x: at_zero(self, x, 1e-6)),
    "integers off by one": faulty(
        __call__=lambda self, x: {**(out := Port.__call__(self, x)), "hidden": (out["hidden"][0], out["hidden"][1] + 1)}
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault):
    report = check(case(FAULTS[fault]), locate=False, hasty=True)
    assert not report.equal, fault
    assert not report.passed
    assert "NOT EQUAL" in str(report)


def test_only_precise_sees_a_fast_variance():
    fields = {"inputs": lambda rng: (rng.standard_normal((200, 6)),), "edge_inputs": {}}

    class Offset(Reference):
        def __init__(self):
            super().__init__()
            with torch.no_grad():
                self.square.bias.fill_(30.0)

    fields["reference"] = Offset
    assert check(case(**fields)).passed
    report = check(case(lambda rngs: Port(rngs, fast_variance=True), **fields))
    assert report.equal
    assert not report.precise


def test_a_tensor_of_few_elements_that_is_far_off_is_not_precise():
    def called(self, x):
        return Port.__call__(self, x * jnp.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.1], x.dtype))

    report = check(case(faulty(__call__=called), modes=("inference",)), locate=False)
    tensors = {t.name: t for t in report.parity[0].tensors}
    assert not any(t.equal or t.precise for name, t in tensors.items() if name != "hidden.1"), tensors


class Triples(torch.nn.Module):
    def forward(self, x):
        return 3 * x


class TriplesRoughly(nnx.Module):
    """Off by a few roundings where the first element says so."""

    def __init__(self, rngs: nnx.Rngs):
        pass

    def __call__(self, x):
        return 3 * x * (1 + 5 * jnp.finfo(x.dtype).eps * x[0])


@pytest.mark.parametrize(("unlucky", "precise"), [(0.2, True), (1.0, False)])
def test_one_unlucky_draw_of_an_edge_is_no_loss_of_digits_and_many_are(unlucky, precise):
    def edge(rng):
        x = rng.standard_normal(200)
        x[0] = rng.random() < unlucky
        return (x,)

    def sample(rng):
        x = rng.standard_normal(200)
        x[0] = 0
        return (x,)

    rough = case(TriplesRoughly, reference=Triples, inputs=sample, edge_inputs={"rough": edge})
    seed = next(s for s in range(100) if edge_input(rough, s, "rough")[0][0] == 1)
    report = check(rough, seed=seed)
    assert report.equal
    assert report.precise == precise, str(report)


@pytest.mark.parametrize(("unlucky", "precise"), [(0.2, True), (1.0, False)])
def test_nor_are_unlucky_random_draws(unlucky, precise):
    def sample(rng):
        x = rng.standard_normal(200)
        x[0] = rng.random() < unlucky
        return (x,)

    rough = case(TriplesRoughly, reference=Triples, inputs=sample, modes=("inference",), adversarial=())
    seed = next(s for s in range(1000) if sum(check_inputs(rough, s, i)[0][0] for i in range(3)) >= 2)
    report = check(rough, seed=seed)
    assert report.equal
    assert report.precise == precise, str(report)


def test_a_buffer_that_is_not_updated_is_caught():
    class WithNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = torch.nn.BatchNorm1d(6)

        def forward(self, x):
            return self.bn(x)

    class Forgets(nnx.Module):
        def __init__(self, rngs):
            self.bn = nnx.BatchNorm(6, momentum=0.9, epsilon=1e-5, rngs=rngs)

        def __call__(self, x):
            kept = self.bn.mean[...], self.bn.var[...]
            y = self.bn(x)
            self.bn.mean.set_value(kept[0])
            self.bn.var.set_value(kept[1])
            return y

    (parity,) = check(case(Forgets, reference=WithNorm)).parity
    assert {t.name for t in parity.tensors if not t.equal} == {"bn.running_mean", "bn.running_var"}


def test_a_port_may_keep_arrays_in_plain_attributes():
    class Keeps(Port):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.gain = jnp.ones(8)

        def join(self, h, update):
            return h + update * self.gain

    assert check(case(Keeps), draws=1).passed
    wrong = type("Wrong", (Keeps,), {"join": lambda self, h, update: h + self.gain})
    assert not check(case(wrong), draws=1, locate=False).passed


def test_variants_are_each_judged():
    variants = {"good": Port, "bad": FAULTS["epsilon"]}
    report = check(case(variants))
    assert [(p.variant, p.passed) for p in report.parity] == [("good", True), ("bad", False)]


class Doubled(Reference):
    def forward(self, x):
        out = super().forward(x)
        return {**out, "logits": 2 * out["logits"]}


def test_a_reference_variant_that_disagrees_with_the_judge_is_shown():
    report = check(case(reference={"judge": Reference, "same": Reference, "other": Doubled}))
    assert [(p.side, p.variant, p.passed) for p in report.parity] == [
        ("torch", "same", True),
        ("torch", "other", False),
        ("jax", "default", True),
    ]


def test_the_seed_repeats_a_run():
    def numbers(seed):
        return [(t.name, t.error, t.ratio) for t in check(case(), seed=seed).parity[0].tensors]

    assert numbers(1) == numbers(1)
    assert numbers(1) != numbers(2)


def test_keyword_inputs_integers_and_a_loss():
    class Embeds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(11, 16)

        def forward(self, ids, *, weight):
            return self.table(ids) * weight

    class EmbedsPort(nnx.Module):
        def __init__(self, rngs):
            self.table = nnx.Embed(11, 16, rngs=rngs)

        def __call__(self, ids, *, weight):
            return self.table(ids) * weight

    fields = {
        "reference": Embeds,
        "inputs": lambda rng: {"ids": rng.integers(0, 11, (5, 7)), "weight": rng.standard_normal((5, 7, 1))},
        "edge_inputs": {},
        "loss": (lambda y: (y**2).sum(), lambda y: (y**2).sum()),
    }
    report = check(case(EmbedsPort, **fields))
    assert report.passed, str(report)
    assert {t.name for t in report.parity[0].tensors if t.kind == "input_gradient"} == {"input.weight"}
    wrong_loss = (lambda y: (y**2).sum(), lambda y: (y**2).mean())
    assert not check(case(EmbedsPort, **{**fields, "loss": wrong_loss}), locate=False, hasty=True).equal


def test_layout_conversions_reach_outputs_and_gradients():
    from graphmode.compare import channels_first, channels_last

    class Conv(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, (3, 2), bias=False)

        def forward(self, x):
            return self.conv(x)

    class ConvPort(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 4, (3, 2), padding="VALID", use_bias=False, rngs=rngs)

        def __call__(self, x):
            return self.conv(x)

    fields = {
        "reference": Conv,
        "inputs": lambda rng: (rng.standard_normal((2, 3, 6, 7)),),
        "edge_inputs": {},
        "to_model": channels_last,
        "to_reference": channels_first,
    }
    assert check(case(ConvPort, **fields)).passed


def test_named_tuples_compare_with_tuples():
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: jax.Array
        b: jax.Array

    class Two(torch.nn.Module):
        def forward(self, x):
            return x + 1, x * 2

    class TwoPort(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, x):
            return Pair(x + 1, x * 2)

    assert check(case(TwoPort, reference=Two)).passed


def branching(x):
    return x if x.sum() > 0 else -x


@functools.cache
def cached_table():
    return jnp.asarray([0.5])


class Integers(nnx.Module):
    def __call__(self, x):
        return x.astype(jnp.int32)


LINE = branching.__code__.co_firstlineno + 1
REFUSED = {
    "another structure": (
        {"model": faulty(__call__=lambda self, x: self.head(self.fc(x)))},
        CaseError,
        ["reference's outputs are logits, hidden.0, hidden.1", "to_reference"],
    ),
    "weights that do not match": (
        {"model": lambda rngs: nnx.Sequential(nnx.Linear(6, 9, rngs=rngs))},
        WeightsError,
        ["fc.weight", "ln.weight", "head.bias"],
    ),
    "rules that match nothing": ({"weights": (Rename("x", "y"), Drop("z", "w"))}, WeightsError, ["Rename", "Drop"]),
    "a reference that is no module": ({"reference": lambda: 3}, CaseError, ["reference 'default' gives int"]),
    "a port that is no module": ({"model": lambda rngs: jnp.sin}, CaseError, ["model 'default' gives"]),
    "inputs that are no tuple": ({"inputs": lambda rng: np.ones((2, 6))}, CaseError, ["inputs gives ndarray"]),
    "inputs that are no arrays": ({"inputs": lambda rng: ([1.0],)}, CaseError, ["float at input.0.0"]),
    "a reference that fails": ({"inputs": lambda rng: (np.ones((2, 5)),)}, CaseError, ["reference", "random 0"]),
    "a port that fails, with the line of its author": (
        {"model": faulty(gelu=staticmethod(branching))},
        CaseError,
        [f"port 'default' fails at test_check.py:{LINE} on the input 'random 0'", "TracerBoolConversionError"],
    ),
    "a port that takes numpy": (
        {"model": faulty(gelu=staticmethod(lambda x: jnp.asarray(np.tanh(np.asarray(x)))))},
        CaseError,
        ["fails at test_check.py:", "TracerArrayConversionError: numpy asks", "jnp in place of np: docs/graphable.md"],
    ),
    "a port that keeps what a trace made": (
        {"model": faulty(gelu=staticmethod(lambda x: x * cached_table()))},
        CaseError,
        ["an array that JAX traced in another graph, as functools.cache", "make it with numpy, or in __init__"],
    ),
    "a port that takes a float": (
        {"model": faulty(gelu=staticmethod(lambda x: x * float(x.sum())))},
        CaseError,
        ["ConcretizationTypeError: float(), int()"],
    ),
    "a port without outputs": (
        {"model": faulty(__call__=lambda self, x: None)},
        CaseError,
        ["those of the port 'default' are none at all; give"],
    ),
    "a port that gives text": (
        {"model": faulty(__call__=lambda self, x: "text")},
        CaseError,
        ["the port 'default' gives str on the input 'random 0'", "let __call__ return arrays"],
    ),
    "a port that gives integers": (
        {"model": lambda rngs: Integers(), "reference": torch.nn.Identity},
        CaseError,
        ["the port's floating outputs are none at all (output is int32), and"],
    ),
    "an integer that JAX would wrap": (
        {"inputs": lambda rng: (np.array([[2**31 + 5] * 6]),), "reference": torch.nn.Identity},
        CaseError,
        ["input.0", "cannot hold"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_case_that_cannot_be_compared_is_refused_by_name(what):
    fields, error, words = REFUSED[what]
    if what == "an integer that JAX would wrap":

        class Same(nnx.Module):
            def __init__(self, rngs):
                pass

            def __call__(self, x):
                return x

        fields = {**fields, "model": Same, "edge_inputs": {}}
    with pytest.raises(error) as caught:
        check(case(**fields))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"name": ""}, "name is ''"),
        ({"model": {}}, "model is an empty mapping"),
        ({"inputs": 3}, "inputs is int"),
        ({"modes": ("training",)}, "modes names 'training'"),
        ({"expected": {"trace": "why"}}, "expected names 'trace'"),
        ({"expected": {"other/torch.trace": "why"}}, "the variant 'other'"),
        ({"loss": abs}, "loss must be a pair"),
        ({"interpret": {"nowhere": dict}}, "interpret names 'nowhere'"),
        ({"modules": ["encoder"]}, "modules is list; give a mapping"),
        ({"modules": {"encoder": 3}}, "modules maps 'encoder' to 3"),
        ({"edge_inputs": abs}, "edge_inputs is builtin_function_or_method; give a mapping"),
    ],
)
def test_a_case_checks_its_fields(fields, word):
    with pytest.raises(CaseError, match="small" if fields.get("name", "small") else "case ''") as caught:
        case(**fields)
    assert word in str(caught.value)


def test_cases_are_frozen_and_replaceable():
    assert dataclasses.replace(case(), name="other").name == "other"
