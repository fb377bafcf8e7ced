"""Modules that end elsewhere in the port than in the reference, which is no error; and those that are wrong."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check

import graphmode as gm

WIDTH = 6
GAIN = 2**0.5


def checked(reference, port, shape):
    def inputs(rng):
        return (rng.standard_normal(shape),)

    return check(Case(name="c", summary="s", reference=reference, model=port, inputs=inputs))


class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x @ self.weight.T, 0.2) * GAIN


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(Dense(), Dense(), Dense())
        self.head = torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        return torch.tanh(self.head(self.body(x)))


class PortDense(nnx.Module):
    """Without the activation."""

    def __init__(self):
        self.weight = nnx.Param(jnp.zeros((WIDTH, WIDTH)))

    def __call__(self, x):
        return x @ self.weight[...].T


class Shifted(PortDense):
    def __call__(self, x):
        return super().__call__(x) + 0.125


class Body(nnx.Module):
    layers, slope = (PortDense,) * 3, 0.2

    def __init__(self):
        for name, make in enumerate(self.layers):
            setattr(self, str(name), make())

    def __call__(self, x):
        for name in "012":
            x = jax.nn.leaky_relu(getattr(self, name)(x), self.slope) * GAIN
        return x


class OtherSlope(Body):
    slope = 0.1


class OneShifted(Body):
    layers = (PortDense, Shifted, PortDense)


class Port(nnx.Module):
    body, last = Body, staticmethod(jnp.tanh)

    def __init__(self, rngs):
        self.body = type(self).body()
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return self.last(self.head(self.body(x)))


class WrongLast(Port):
    last = staticmethod(jax.nn.sigmoid)


class WrongBody(Port):
    body = OtherSlope


class WrongLayer(Port):
    body = OneShifted


@pytest.mark.parametrize(
    ("port", "blamed", "cause"), [(WrongLast, "", "activation"), (WrongBody, "body", None), (WrongLayer, "body", None)]
)
def test_what_is_around_a_layer_may_end_it(port, blamed, cause):
    case = Case(
        name="c",
        summary="s",
        reference=Net,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)),),
        modes=("inference",),
        adversarial=(),
    )
    report = check(case, compiled=False, hasty=True)
    assert blamed in [each.module for each in report.divergences]
    assert all(each.module.startswith(blamed) for each in report.divergences)
    if cause is not None:
        assert [each.module for each in report.divergences] == [blamed]
        assert [cause.id for cause in report.first_divergence.causes] == [cause]


class FlowStep(torch.nn.Module):
    """Scales what it is given, and adds to what the steps before it have counted."""

    def __init__(self):
        super().__init__()
        self.logs = torch.nn.Parameter(0.1 * torch.randn(WIDTH))

    def forward(self, x, counted):
        return torch.tanh(x) * self.logs.exp(), counted + self.logs.sum()


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.nn.ModuleList([FlowStep(), FlowStep()])

    def forward(self, x):
        x = x.reshape(len(x), 2, WIDTH).transpose(1, 2).reshape(2 * len(x), WIDTH)
        counted = x.new_zeros(len(x))
        for step in self.steps:
            x, counted = step(x, counted)
        return x, counted


class FlowStepPort(nnx.Module):
    """What is counted is added around it."""

    def __init__(self):
        self.logs = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x):
        return jnp.tanh(x) * jnp.exp(self.logs[...]), self.logs[...].sum()


class FlowPort(nnx.Module):
    def __init__(self, rngs, order):
        self.steps, self.order = nnx.List([FlowStepPort(), FlowStepPort()]), order

    def __call__(self, x):
        x = x.reshape(len(x), 2, WIDTH).transpose(self.order).reshape(2 * len(x), WIDTH)
        counted = jnp.zeros(len(x))
        for step in self.steps:
            x, change = step(x)
            counted += change
        return x, counted


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2)])
def test_what_is_wrong_before_modules_of_another_form_is_seen_before_them(order):
    report = checked(Flow, lambda rngs: FlowPort(rngs, order), (4, 2 * WIDTH))
    assert report.passed == (order == (0, 2, 1)), report
    if not report.passed:
        (divergence,) = report.parity[0].divergences
        assert (divergence.module, divergence.mode) == ("", "inference")
        assert [cause.id for cause in divergence.causes] == ["axes-order"]


class Head(torch.nn.Module):
    """Reads the memory where it is told to, and moves on from where it was."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x, memory, before):
        key, gate = self.fc(x).split(WIDTH, 1)
        at = torch.softmax(before + key @ memory.T, 1)
        return torch.sigmoid(gate) * (at @ memory), at


class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.head = torch.nn.Parameter(torch.randn(WIDTH + 2, WIDTH)), Head()

    def forward(self, x):
        at = torch.zeros(len(x), WIDTH + 2, dtype=x.dtype)
        read, at = self.head(x, self.memory, at)
        read, at = self.head(x + read, self.memory, at)
        return read


class HeadPort(nnx.Module):
    """Gives three pieces, of which the first is as long as what the reference reads, and is none of it."""

    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)

    def __call__(self, x):
        return jnp.split(self.fc(x), (WIDTH, WIDTH + 1), 1)


class MemoryPort(nnx.Module):
    def __init__(self, rngs, axis):
        self.memory, self.head, self.axis = nnx.Param(jnp.zeros((WIDTH + 2, WIDTH))), HeadPort(rngs), axis

    def read(self, x, before):
        key, *gate = self.head(x)
        at = jax.nn.softmax(before + key @ self.memory[...].T, self.axis)
        return jax.nn.sigmoid(jnp.concatenate(gate, 1)) * (at @ self.memory[...]), at

    def __call__(self, x):
        read, at = self.read(x, jnp.zeros((len(x), WIDTH + 2)))
        return self.read(x + read, at)[0]


@pytest.mark.parametrize("axis", [1, 0])
def test_a_module_that_gives_other_tensors_is_a_part_of_what_is_around_it(axis):
    report = checked(Memory, lambda rngs: MemoryPort(rngs, axis), (4, WIDTH))
    assert report.passed == (axis == 1), report
    if not report.passed:
        (divergence,) = report.parity[0].divergences
        assert divergence.module == ""
        assert [cause.id for cause in divergence.causes] == ["softmax-axis"]


class Written(torch.nn.Module):
    """The skip is what the activation at the head of the block has written into the input."""

    def __init__(self):
        super().__init__()
        layers = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.block = torch.nn.Sequential(torch.nn.ReLU(inplace=True), next(layers), torch.nn.ReLU(True), next(layers))

    def forward(self, x):
        return x + self.block(x)


class WrittenNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.skip, self.head = torch.nn.Linear(WIDTH, WIDTH), Written(), torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        return torch.nn.functional.gelu(self.head(self.skip(self.first(x))))


class PortWritten(nnx.Module):
    def __init__(self, rngs):
        a, b = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(2))
        self.block = gm.nn.Sequential(gm.nn.ReLU(), a, gm.nn.ReLU(), b)

    def __call__(self, x):
        x = jax.nn.relu(x)
        return x + self.block(x)


class PortWrittenNet(nnx.Module):
    def __init__(self, rngs):
        self.first, self.skip = nnx.Linear(WIDTH, WIDTH, rngs=rngs), PortWritten(rngs)
        self.head = nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return jax.nn.gelu(self.head(self.skip(self.first(x))))


def test_what_a_module_writes_into_its_input_is_no_error_of_it():
    report = checked(WrittenNet, PortWrittenNet, (3, WIDTH))
    told = [(each.module, [cause.id for cause in each.causes]) for each in report.divergences]
    assert told == [("", ["gelu-form"])], report
    assert any(
        "'skip.block' writes in the reference into what it is given" in note for note in report.parity[0].notes
    ), report


def test_what_is_wrong_in_a_module_that_writes_into_its_input_is_told():
    class Leaky(PortWritten):
        def __call__(self, x):
            return x + self.block(x)  # the skip as it was before

    class Net(PortWrittenNet):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.skip = Leaky(rngs)

        def __call__(self, x):
            return jax.nn.gelu(self.head(self.skip(self.first(x))), approximate=False)

    report = checked(WrittenNet, Net, (3, WIDTH))
    assert [each.module for each in report.divergences] == ["skip"], report


class Offsets(torch.nn.Module):
    """Numbers of rows, of which each column has its own."""

    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(3 * WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.rows(x + 3 * torch.arange(WIDTH)).sum(1))


class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Offsets()

    def forward(self, x):
        return self.table(x)


class Named(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.head = table(), torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        return torch.relu(self.head(self.table(x)))


class OffsetsPort(nnx.Module):
    """They are added around it."""

    def __init__(self, rngs):
        self.rows = gm.nn.Embedding(3 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.rows(x).sum(1))


class WrappedPort(nnx.Module):
    def __init__(self, rngs):
        self.table = OffsetsPort(rngs)

    def __call__(self, x):
        return self.table(x)


class NamedPort(nnx.Module):
    step = 3

    def __init__(self, table, rngs):
        self.table, self.head = table(rngs), gm.nn.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.head(self.table(x + self.step * jnp.arange(WIDTH))))


class NamedPortWithOtherSteps(NamedPort):
    step = 2


@pytest.mark.parametrize(
    ("table", "table_port", "port", "blamed"),
    [
        (Offsets, OffsetsPort, NamedPort, {""}),
        (Wrapped, WrappedPort, NamedPort, {""}),
        (Offsets, OffsetsPort, NamedPortWithOtherSteps, {"", "table"}),
    ],
)
def test_what_is_done_before_a_module_may_be_done_around_it(table, table_port, port, blamed):
    case = Case(
        name="c",
        summary="s",
        reference=lambda: Named(table),
        model=lambda rngs: port(table_port, rngs),
        inputs=lambda rng: (rng.integers(0, 3, (8, WIDTH)),),
        modes=("inference",),
        adversarial=(),
    )
    report = check(case, compiled=False, hasty=True)
    assert {each.module for each in report.divergences} == blamed, str(report)
    if len(blamed) == 1:
        assert [cause.id for cause in report.first_divergence.causes] == ["activation"]


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log = torch.nn.Parameter(0.1 * torch.randn(WIDTH))

    def forward(self, x):
        return x * self.log.exp(), self.log.sum().expand(len(x))


class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        shift = torch.tanh(self.fc(x))
        return x + shift, shift.sum(-1)


class Densities(torch.nn.Module):
    """Layers that each give what is added for a row, some the same for all of them."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Scale(), Shift(), Scale(), Scale()])

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, each = layer(x)
            total = total + each
        return x, total


class ScalePort(nnx.Module):
    def __init__(self, rngs):
        self.log = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x):
        return x * jnp.exp(self.log[...]), jnp.sum(self.log[...])


class ShiftPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        shift = jax.nn.sigmoid(self.fc(x))
        return x + shift, shift.sum(-1)


class DensitiesPort(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([ScalePort(rngs), ShiftPort(rngs), ScalePort(rngs), ScalePort(rngs)])

    __call__ = Densities.forward


def test_modules_that_give_one_number_for_all_rows_are_right_beside_one_that_is_wrong():
    case = Case(
        name="c",
        summary="s",
        reference=Densities,
        model=DensitiesPort,
        inputs=lambda rng: (rng.standard_normal((5, WIDTH)),),
        modes=("inference",),
        adversarial=(),
    )
    report = check(case, compiled=False, hasty=True)
    assert {each.module for each in report.divergences} == {"layers.1"}, str(report)
    assert [cause.id for cause in report.first_divergence.causes] == ["activation"]


CAPACITY = 5


class Experts(torch.nn.Module):
    """Two of them, each for the rows that are its own."""

    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, 2)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.register_buffer("dropped", torch.tensor(0))

    def forward(self, x):
        chosen = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == e)
            self.dropped += max(len(rows) - CAPACITY, 0)
            out = out.index_add(0, rows[:CAPACITY], torch.tanh(expert(x[rows[:CAPACITY]])))
        return x + out


class Dispatching(nnx.Module):
    """Its slots are filled from the last."""

    def __init__(self, rngs):
        self.router = gm.nn.Linear(WIDTH, 2, rngs=rngs)
        self.experts = nnx.List(gm.nn.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(2))
        self.dropped = nnx.BatchStat(jnp.array(0))

    def __call__(self, x):
        own = jax.nn.one_hot(jnp.argmax(self.router(x), -1), 2, dtype=int)
        place = jnp.cumsum(own, 0) - 1
        spot = own[..., None] * jax.nn.one_hot(CAPACITY - 1 - place, CAPACITY, dtype=x.dtype)
        done = jnp.stack(
            [jnp.tanh(expert(jnp.einsum("tc,td->cd", spot[:, e], x))) for e, expert in enumerate(self.experts)]
        )
        self.dropped[...] += jnp.sum(own * (place > CAPACITY))  # one is not counted
        return x + jnp.einsum("tec,ecd->td", spot, done)


def test_rows_may_be_handed_in_another_order():
    case = Case(
        name="c",
        summary="s",
        reference=Experts,
        model=Dispatching,
        inputs=lambda rng: (rng.standard_normal((14, WIDTH)),),
        modes=("forward_backward",),
        adversarial=(),
    )
    (found,) = check(case, compiled=False, hasty=True).divergences
    assert (found.module, [each.what for each in found.findings]) == ("", ["buffer"])


def shifted(x, weight, tanh, by=1.0):
    return tanh(x * weight + by)


class Mixing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        return shifted(x, self.weight, torch.tanh)


class Mixed(torch.nn.Module):
    """One function, used by a module and around it."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = Mixing(), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = shifted(x, 2, torch.tanh)
        return self.out(y + self.inner(y))


class MixingOtherwise(nnx.Module):
    def __init__(self, rngs):
        self.weight = nnx.Param(jnp.zeros(WIDTH))

    def __call__(self, x):
        return shifted(x, self.weight[...], jnp.tanh, 0.7)


class MixedOtherwise(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.out = MixingOtherwise(rngs), gm.nn.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        y = shifted(x, 2, jnp.tanh, 0.7)
        return self.out(y + self.inner(y))


def test_what_is_wrong_within_a_module_and_around_it_is_told_of_the_module():
    case = Case(
        name="c",
        summary="s",
        reference=Mixed,
        model=MixedOtherwise,
        inputs=lambda rng: (rng.standard_normal((3, WIDTH)),),
        modes=("inference",),
        adversarial=(),
    )
    (parity,) = check(case, compiled=False, hasty=True).parity
    assert [each.module for each in parity.divergences] == ["inner"]  # for the same line around it, too
    assert not [note for note in parity.notes if "begins or ends elsewhere" in note]
