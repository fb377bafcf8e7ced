"""A reference that casts to float32 by itself, or makes constants in float32, accuses no port that computes alike."""

import contextlib
import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, asked_dtype, check
from graphmode.compare.asked_dtype import as_float64
from graphmode.compare.widened import grouped_mm, in_float64, let_ask_for_gradients, take_constants

import graphmode as gm
from graphmode.weights import Drop

WIDTH = 6


class Norm(torch.nn.Module):
    """As Llama's: in float32, whatever comes in."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        h = x.to(torch.float32)
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("freq", 1 / 100 ** (torch.arange(WIDTH).float() / WIDTH), persistent=False)
        self.shift = torch.linspace(0, 1, WIDTH)

    def forward(self, x):
        times = torch.arange(x.shape[-2])
        return x * torch.cos(times[:, None].float() * self.freq + self.shift) + 0.9 ** times[:, None]


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.positions = Norm(), Positions()

    def forward(self, x):
        return torch.softmax(self.positions(self.norm(x)), -1, dtype=torch.float32).to(x.dtype)


class PortNorm(nnx.Module):
    def __init__(self, cast, eps):
        self.weight, self.cast, self.eps = nnx.Param(jnp.ones(WIDTH)), cast, eps

    def __call__(self, x):
        h = x.astype(self.cast) if self.cast else x
        return self.weight[...] * (h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + self.eps)).astype(x.dtype)


class PortPositions(nnx.Module):
    def __call__(self, x):
        times = jnp.arange(x.shape[-2])[:, None]
        angles = times / 100 ** (jnp.arange(WIDTH) / WIDTH) + jnp.linspace(0, 1, WIDTH)
        return x * jnp.cos(angles) + 0.9**times


class Port(nnx.Module):
    def __init__(self, cast, eps=1e-6):
        self.norm, self.positions = PortNorm(cast, eps), PortPositions()

    def __call__(self, x):
        return jax.nn.softmax(self.positions(self.norm(x)), -1)


def case(**how):
    return Case(
        name="casting",
        summary="casts to float32 by itself",
        reference=Reference,
        model=lambda rngs: Port(**how),
        inputs=lambda rng: (rng.standard_normal((3, 4, WIDTH)),),
        adversarial=(),
    )


@pytest.mark.parametrize("cast", [None, jnp.float32, np.float32, "float32"])
def test_a_port_may_cast_as_the_reference_does_or_not(cast):
    report = check(case(cast=cast), draws=1, hasty=True, compiled=False)
    assert report.passed, str(report)


def test_a_bug_beside_such_constants_is_found_where_it_is():
    report = check(case(cast=jnp.float32, eps=1e-5), draws=1, hasty=True, compiled=False)
    assert [d.module for d in report.divergences] == ["norm"]
    assert "1e-05" in report.causes[0].says


def test_a_cast_is_wider_and_bits_are_not():
    asked = []
    with in_float64(asked.append):
        assert (
            torch.ones(2, dtype=torch.float32).dtype == torch.ones(2, dtype=torch.int64).float().dtype == torch.float64
        )
        assert asked == [torch.float32] * 2
        assert torch.ones(2).bfloat16().to(torch.float16).dtype == torch.float16
        assert asked[2:] == [torch.bfloat16, torch.float16]
        assert torch.zeros(2, dtype=torch.int32).view(torch.float32).dtype == torch.float32
    assert torch.zeros(1).dtype == torch.float32


ASKING = {
    "astype": lambda x, dtype: x.astype(dtype),
    "convert_element_type": jax.lax.convert_element_type,
    "asarray": jnp.asarray,
    "array": lambda x, dtype: jnp.array(x, dtype=dtype),
    "zeros": lambda x, dtype: jnp.zeros(3, dtype),
    "full": lambda x, dtype: jax.lax.full((3,), 0.1, dtype),
    "arange": lambda x, dtype: jnp.arange(3, dtype=dtype),
    "linspace": lambda x, dtype: jnp.linspace(0, 1, 3, dtype=dtype),
    "iota": lambda x, dtype: jax.lax.iota(dtype, 3),
    "mean": lambda x, dtype: x.mean(dtype=dtype),
    "matmul": lambda x, dtype: jnp.matmul(x, x, preferred_element_type=dtype),
    "dot_general": lambda x, dtype: jax.lax.dot_general(x, x, (((0,), (0,)), ((), ())), preferred_element_type=dtype),
    "normal": lambda x, dtype: jax.random.normal(jax.random.key(0), (3,), dtype),
    "compiled": lambda x, dtype: jax.jit(lambda x: x.astype(dtype))(x),
    "scanned": lambda x, dtype: jax.lax.scan(lambda c, y: (c + y.astype(dtype), c), jnp.zeros((), dtype), x)[1],
}


@pytest.mark.parametrize("asked", [jnp.float32, np.float32, "float32", np.dtype("float32")], ids=str)
@pytest.mark.parametrize("name", ASKING)
def test_float32_is_float64_for_a_port_that_asks_for_it_in_any_way(name, asked):
    with jax.enable_x64(True):
        x = jnp.arange(3) / 3.0
        ask = jax.jit(lambda x: ASKING[name](x, asked))
        assert ask(x).dtype == jnp.float32
        with as_float64("float32", "complex64"):
            assert ask(x).dtype == ASKING[name](x, asked).dtype == jnp.float64
        assert ask(x).dtype == ASKING[name](x, asked).dtype == jnp.float32
    assert jnp.float32 == np.float32


def test_bits_and_other_dtypes_stay_what_they_are():
    with jax.enable_x64(True), as_float64("float32", "complex64"):
        bits = jnp.ones(2, jnp.int32)
        assert bits.view(jnp.float32).dtype == jax.lax.bitcast_convert_type(bits, np.float32).dtype == jnp.float32
        assert bits.astype(jnp.bfloat16).dtype == jnp.bfloat16
        assert bits.astype(jnp.complex64).dtype == jnp.complex128


def test_a_jax_without_that_place_is_told_by_name(monkeypatch):
    monkeypatch.setattr(asked_dtype, "CANONICAL", "gone")
    asked_dtype._install.cache_clear()
    with (
        pytest.raises(RuntimeError, match=r"has no gone, by which .* constraints.txt"),
        as_float64("float32", "complex64"),
    ):
        pass


def test_other_threads_see_nothing_of_it():
    both, seen = threading.Barrier(2), {}

    def run(name, context):
        with jax.enable_x64(True), context:
            both.wait()
            seen[name] = jnp.zeros(1, jnp.float32).dtype
            both.wait()

    threads = [
        threading.Thread(target=run, args=given)
        for given in (("follows", as_float64("float32", "complex64")), ("other", contextlib.nullcontext()))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"follows": jnp.float64, "other": jnp.float32}


def test_constants_are_taken_and_random_numbers_kept():
    class Drawn(Positions):
        def __init__(self):
            super().__init__()
            self.noise = torch.randn(WIDTH)

    module = Drawn().double()
    noise = module.noise.clone()
    assert take_constants(module, Drawn, set()) == ["freq", "shift"]
    np.testing.assert_allclose(module.freq, 1 / 100 ** (np.arange(WIDTH) / WIDTH), rtol=1e-15)
    assert torch.equal(module.noise, noise)
    assert take_constants(Drawn().double(), Drawn, {"freq"}) == ["shift"]


def test_sines_of_many_positions_are_taken_though_rounding_takes_them_far():
    class Waves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            rates = 1.0 / 100 ** (torch.arange(4) / 4)
            self.register_buffer("table", torch.sin(torch.arange(5000.0)[:, None] * rates), persistent=False)
            self.noise = torch.randn(4, generator=torch.Generator().manual_seed(0))
            self.drawn = torch.ones(4) + 1e-3 * torch.randn(4)

    module = Waves().double()
    assert take_constants(module, Waves, set()) == ["table", "noise"]  # which has a seed
    np.testing.assert_allclose(
        module.table, np.sin(np.arange(5000)[:, None] / 100 ** (np.arange(4) / 4)), rtol=0, atol=1e-12
    )


class Faint(torch.nn.Module):
    """What is made of its constants is small beside the rest, but on zeros."""

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.waves = torch.sin(torch.arange(WIDTH) * 0.7)

    def forward(self, x):
        return self.mix(x) + 1e-4 * self.waves


class FaintPort(nnx.Module):
    def __init__(self, rngs, rate=0.7):
        self.mix, self.rate = gm.nn.Linear(WIDTH, WIDTH, bias=False, rngs=rngs), rate

    def __call__(self, x):
        return self.mix(x) + 1e-4 * jnp.sin(jnp.arange(WIDTH) * self.rate)


@pytest.mark.parametrize(("rate", "passes"), [(0.7, True), (0.7 + 1e-7, False)])
def test_constants_that_matter_on_the_checks_own_inputs_alone_are_taken_likewise(rate, passes):
    case = Case(
        name="c",
        summary="s",
        reference=Faint,
        model=lambda rngs: FaintPort(rngs, rate),
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)),),
        adversarial=("zeros",),
    )
    report = check(case, hasty=True)
    assert report.passed is passes, report


def test_constants_that_are_frozen_parameters_are_taken_likewise():
    class Shifted(torch.nn.Module):
        """As EDSR takes a mean away, and divides."""

        def __init__(self):
            super().__init__()
            self.shift = torch.nn.Conv2d(3, 3, 1)
            self.shift.weight.data = torch.eye(3)[..., None, None] / 0.9
            self.shift.bias.data = torch.tensor([0.3, 0.1, 0.7])
            self.requires_grad_(False)

        def forward(self, x):
            return self.shift(x)

    class Port(nnx.Module):
        def __init__(self, rngs):
            self.divisor = 0.9

        def __call__(self, x):
            return x / self.divisor + jnp.array([0.3, 0.1, 0.7])[:, None, None]

    case = Case(
        name="c",
        summary="s",
        reference=Shifted,
        model=Port,
        inputs=lambda rng: (rng.standard_normal((2, 3, 4, 4)),),
        weights=[Drop("shift.*", "constants")],
        adversarial=(),
    )
    assert check(case).passed


class Shifted(torch.nn.Module):
    """As SchNet takes the logarithm of 2 away, in float32's digits."""

    def __init__(self):
        super().__init__()
        self.shift = torch.log(torch.tensor(2.0)).item()
        self.rate, self.noise = 0.1, torch.rand(()).item()

    def forward(self, x):
        return torch.nn.functional.softplus(self.rate * x) - self.shift


class ShiftedPort(nnx.Module):
    def __init__(self, rngs, shift):
        self.shift = shift

    def __call__(self, x):
        return jax.nn.softplus(0.1 * x) - self.shift


def test_numbers_of_pythons_that_come_of_tensors_are_taken_likewise():
    module = Shifted().double()
    noise = module.noise
    assert take_constants(module, Shifted, set()) == ["shift"]
    assert (module.shift, module.rate, module.noise) == (np.log(2), 0.1, noise)


@pytest.mark.parametrize(("shift", "passes"), [(np.log(2), True), (Shifted().shift, True), (0.693147, False)])
def test_a_port_has_such_a_number_with_all_digits_or_in_the_references(shift, passes):
    def inputs(rng):
        return (rng.standard_normal((3, 4)),)

    def port(rngs):
        return ShiftedPort(rngs, shift)

    report = check(Case(name="c", summary="s", reference=Shifted, model=port, inputs=inputs, adversarial=()))
    assert report.passed == passes


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q = self.proj(x)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)[:, 0]


class PortAttention(nnx.Module):
    def __init__(self, rngs):
        self.proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        q = self.proj(x)[:, :, None]
        return jax.nn.dot_product_attention(q, q, q)[:, :, 0]


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x * torch.nn.functional.hardsigmoid(self.proj(x))


class PortGate(nnx.Module):
    gate = staticmethod(jax.nn.hard_sigmoid)

    def __init__(self, rngs):
        self.proj = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return x * self.gate(self.proj(x))


class GateOfOurs(PortGate):
    gate = staticmethod(gm.nn.functional.hardsigmoid)


class WrongGate(PortGate):
    gate = staticmethod(lambda x: jax.nn.hard_sigmoid(x) + 1e-9 * x)


@pytest.mark.parametrize(
    ("reference", "port", "equal"),
    [
        (Attention, PortAttention, True),  # whose softmax JAX takes in float32, always
        (Gate, PortGate, True),  # PyTorch's backward kernel has 1/6 in float32
        (Gate, GateOfOurs, True),
        (Gate, WrongGate, False),
    ],
)
def test_what_a_library_has_in_float32_is_no_fault_of_the_port(reference, port, equal):
    def inputs(rng):
        return (rng.standard_normal((3, 4, WIDTH)),)

    report = check(Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=()))
    assert report.parity[-1].equal == equal, str(report)


class Table(torch.nn.Module):
    """Sines that are made as it is built, in float32 whatever the default is."""

    def __init__(self):
        super().__init__()
        places = torch.arange(40, dtype=torch.float32)[:, None]
        self.table = torch.sin(places * torch.exp(-torch.arange(WIDTH, dtype=torch.float32) * 0.7))

    def forward(self, x):
        return x * self.table[: x.shape[0]].to(x.dtype)


class PortTable(nnx.Module):
    def __init__(self, rngs, slower):
        places = jnp.arange(40, dtype=jnp.float32)[:, None]
        self.table = nnx.data(jnp.sin(places * jnp.exp(-jnp.arange(WIDTH, dtype=jnp.float32) * slower)))

    def __call__(self, x):
        return x * self.table[: x.shape[0]].astype(x.dtype)


@pytest.mark.parametrize(("slower", "passes"), [(0.7, True), (0.7000005, False)])
def test_a_table_that_both_make_in_float32_is_taken_in_float64(slower, passes):
    def inputs(rng):
        return (rng.standard_normal((40, WIDTH)),)

    case = Case(name="c", summary="s", reference=Table, model=lambda rngs: PortTable(rngs, slower), inputs=inputs)
    report = check(case)
    assert report.passed == passes, report
    assert any("are taken in float64" in note for note in report.parity[0].notes) or not passes


TABLE = np.random.default_rng(0).uniform(0, 32, (WIDTH, 2)).astype(np.float32)
TABLE_OF_JAX = jnp.asarray(TABLE)


class Areas(torch.nn.Module):
    """Of boxes that are float32, whatever comes in."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("boxes", torch.from_numpy(TABLE), persistent=False)

    def forward(self, x):
        return self.fc(x) * (self.boxes[:, 0] * self.boxes[:, 1])


@dataclasses.dataclass(frozen=True)
class Config:
    boxes: np.ndarray


CONFIG, HELD = Config(TABLE), {"pair": (TABLE_OF_JAX, "more")}


def table_of(table):
    return lambda: jnp.asarray(table)


TABLES = {
    "an array of numpy's that becomes one of JAX's": lambda: jnp.array(TABLE.copy()),
    "one that numpy computes with": lambda: TABLE,
    "one of JAX's": lambda: TABLE_OF_JAX,
    "one of a configuration": lambda: CONFIG.boxes,
    "one in containers": lambda: HELD["pair"][0],
    "one around a function": table_of(TABLE_OF_JAX),
    "a default": lambda table=TABLE: table,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_what_a_port_computes_of_constants_in_float32_has_all_digits_in_float64(table):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x):
            boxes = table()
            return self.fc(x) * (boxes[:, 0] * boxes[:, 1])

    case = Case(
        name="c", summary="s", reference=Areas, model=Port, inputs=lambda rng: (rng.standard_normal((9, WIDTH)),)
    )
    report = check(case, hasty=True)
    assert report.passed, report
    assert TABLE.dtype == TABLE_OF_JAX.dtype == jnp.asarray(TABLE).dtype == np.float32
    assert CONFIG.boxes is TABLE
    assert HELD["pair"][0] is TABLE_OF_JAX


AREAS = jnp.sqrt(TABLE_OF_JAX[:, 0])


class Roots(Areas):
    def forward(self, x):
        return self.fc(x) * self.boxes[:, 0].sqrt()


class RootsPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.fc(x) * AREAS


def test_what_was_computed_in_float32_before_the_port_is_called_is_named():
    case = Case(
        name="c", summary="s", reference=Roots, model=RootsPort, inputs=lambda rng: (rng.standard_normal((9, WIDTH)),)
    )
    report = check(case, hasty=True)
    (cause,) = report.divergences[0].causes
    assert cause.id == "table-float32"


OFFSETS = torch.tensor([3, 3, 8], dtype=torch.int32)


@pytest.mark.parametrize(
    ("a", "b", "offs"),
    [
        ((9, 4), (3, 4, 8), OFFSETS),
        ((3, 4, 8), (3, 8, 4), None),
        ((3, 4, 8), (8, 12), OFFSETS),
        ((4, 12), (12, 8), OFFSETS),
    ],
)
def test_products_of_groups_in_float64_are_those_of_the_kernel(a, b, offs):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(*a, generator=generator), torch.randn(*b, generator=generator)
    wanted = torch.nn.functional.grouped_mm(a, b, offs=offs)
    with in_float64():
        found = torch.nn.functional.grouped_mm(a.double(), b.double(), offs=offs)
        by_name = torch.nn.functional.grouped_mm(mat_a=a.double(), mat_b=b.double(), offs=offs)
    assert torch.equal(found, by_name)
    assert found.dtype == torch.float64
    assert found.shape == wanted.shape
    part = tuple(slice(8) if size in (9, 12) else slice(None) for size in wanted.shape)  # the kernel leaves more unset
    torch.testing.assert_close(found.float()[part], wanted[part])
    assert grouped_mm(a, b, offs=offs, out_dtype=torch.bfloat16).dtype == torch.bfloat16


class Grouped(torch.nn.Module):
    """Experts whose tokens stand side by side, as `transformers` multiplies by them."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = torch.nn.Linear(WIDTH, 3), torch.nn.Parameter(torch.randn(3, 8, 8) / 3)

    def forward(self, x):
        scores, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        offs = torch.bincount(chosen, minlength=3).cumsum(0).to(torch.int32)
        x = torch.nn.functional.pad(x, (0, 2))
        made = torch.nn.functional.grouped_mm(x[order], self.experts, offs=offs)
        return made[order.argsort()] * scores[:, None]


class GroupedPort(nnx.Module):
    def __init__(self, rngs, wrong=False):
        self.gate, self.experts = gm.nn.Linear(WIDTH, 3, rngs=rngs), nnx.Param(jnp.zeros((3, 8, 8)))
        self.wrong = wrong

    def __call__(self, x):
        odds = jax.nn.softmax(self.gate(x), -1)
        x, chosen = jnp.pad(x, ((0, 0), (0, 2))), odds.argmax(-1)
        experts = self.experts[...].swapaxes(1, 2) if self.wrong else self.experts[...]
        return jnp.einsum("ni,nio->no", x, experts[chosen]) * odds.max(-1, keepdims=True)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_reference_that_multiplies_by_groups_is_judged_in_float64(wrong):
    case = Case(
        name="c",
        summary="s",
        reference=Grouped,
        model=lambda rngs: GroupedPort(rngs, wrong),
        inputs=lambda rng: (rng.standard_normal((7, WIDTH)),),
        adversarial=(),
    )
    report = check(case, hasty=True)
    assert report.passed is not wrong, report
    assert not wrong or "weight-transposed" in str(report), report


class Checkpointed(torch.nn.Module):
    """Asks for a gradient of what it computed, as feature extractors of `transformers` do in training."""

    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        hidden = x[:, None]
        if self.training:
            hidden.requires_grad = True
        return self.mix(hidden)


class CheckpointedPort(nnx.Module):
    def __init__(self, rngs):
        self.mix = gm.nn.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return self.mix(x[:, None])


def test_a_reference_may_ask_for_the_gradient_of_what_it_computed():
    case = Case(
        name="c",
        summary="s",
        reference=Checkpointed,
        model=CheckpointedPort,
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)),),
        adversarial=(),
    )
    report = check(case)
    assert report.passed, report


def test_a_scripted_module_runs_on_as_it_is():
    """Its class has no forward whose code could be read."""
    module = torch.nn.Sequential(torch.jit.script(torch.nn.Tanh()), Checkpointed())
    let_ask_for_gradients(module)
    x = torch.ones(2, WIDTH, requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None
