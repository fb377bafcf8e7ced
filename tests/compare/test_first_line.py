"""Where no known difference explains a wrong port: the line that first computes what the reference does not."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from graphmode.compare.parity.causes.values import WHOLE, Values
from told_lines import checked, divergence_of
from told_lines import lines_with as marked

import graphmode as gm

HERE = Path(__file__)


lines_with = functools.partial(marked, __file__)


class StateSpace(torch.nn.Module):
    """A scan in steps, of which the port makes one of all steps at once."""

    def __init__(self):
        super().__init__()
        self.rates = torch.nn.Parameter(torch.randn(4, 3) * 0.3)
        self.steps = torch.nn.Linear(4, 4)
        self.mixes = torch.nn.Linear(4, 6)

    def forward(self, x):
        rates, dt = -torch.exp(self.rates), torch.nn.functional.softplus(self.steps(x))
        b, c = self.mixes(x).chunk(2, -1)
        state, found = torch.zeros(len(x), 4, 3, dtype=x.dtype), []
        for t in range(x.shape[1]):
            moved = torch.exp(dt[:, t, :, None] * rates) * state
            state = moved + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]  # the reference's input
            found.append((state * c[:, t, None]).sum(-1))
        return torch.stack(found, 1)


class StateSpacePort(nnx.Module):
    def __init__(self, rngs, fault=""):
        self.rates = nnx.Param(jnp.zeros((4, 3)))
        self.steps, self.mixes = gm.nn.Linear(4, 4, rngs=rngs), gm.nn.Linear(4, 6, rngs=rngs)
        self.fault = fault

    def __call__(self, x):
        rates, dt = -jnp.exp(self.rates[...]), jax.nn.softplus(self.steps(x))[..., None]
        b, c = jnp.split(self.mixes(x), 2, -1)
        decay = jnp.exp(dt * rates)
        taken = dt
        if self.fault == "held":
            taken = (decay - 1) / rates  # held
        if self.fault == "bilinear":
            decay = (1 + dt * rates / 2) / (1 - dt * rates / 2)  # bilinear

        def after(p, q):
            if self.fault == "order":
                return p[0] * q[0], p[0] * q[1] + p[1]  # order
            return p[0] * q[0], q[0] * p[1] + q[1]

        _, states = jax.lax.associative_scan(after, (decay, taken * b[:, :, None] * x[..., None]), axis=1)
        return (states * c[:, :, None]).sum(-1)


@pytest.mark.parametrize("fault", ["held", "bilinear", "order"])
def test_a_formula_in_a_port_that_takes_all_steps_at_once(fault):
    found, text = checked(
        StateSpace, lambda rngs: StateSpacePort(rngs, fault), lambda rng: (rng.standard_normal((2, 4, 4)),)
    )
    (line,) = lines_with(fault)
    assert any(each.startswith(f"{line} (") for each in found.port), found
    assert all(each.startswith(HERE.name) for each in found.reference)
    if fault == "held":
        (theirs,) = lines_with("the reference's input")
        assert found.reference == [f"{theirs} (mul)"]
    assert " ".join(text.split()).count(f"leaves the reference's way at {found.port[0]}") == 1


class Scores(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.o = torch.nn.Linear(6, 6)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        scores = 5 * torch.tanh(scores / 5)
        places = torch.arange(x.shape[1])
        scores = scores.masked_fill(places[None] > places[:, None], -1e9)
        return self.o(scores.softmax(-1) @ x)


class ScoresPort(nnx.Module):
    """Two numbers are wrong at once, which no single one of them explains, and the mask is a thousand million wide."""

    def __init__(self, rngs):
        self.q, self.k, self.o = (gm.nn.Linear(6, 6, rngs=rngs) for _ in range(3))

    def __call__(self, x):
        scores = self.q(x) @ self.k(x).swapaxes(-1, -2)
        scores = 30 * jnp.tanh(scores / 30)  # capped
        places = jnp.arange(x.shape[1])
        scores = jnp.where(places[None] > places[:, None], -1e9, scores)
        return self.o(jax.nn.softmax(scores, -1) @ x)


def test_a_masked_value_is_not_taken_for_another():
    found, _ = checked(Scores, ScoresPort, lambda rng: (rng.standard_normal((2, 5, 6)),))
    (line,) = lines_with("capped")
    assert found.port == [f"{line} (div)"]


def leaned(x, by, over):
    return torch.tanh(x * by) + x.exp() / (1 + over.square())


class Leaning(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by, self.over = (torch.nn.Parameter(torch.randn(4)) for _ in range(2))

    def forward(self, x):
        return leaned(x, self.by, self.over).cumsum(-1)


def leaned_in_jax(x, by, over):
    return jnp.tanh(x * by) + jnp.exp(x) / (1 + over**2)  # leaned


class LeaningPort(nnx.Module):
    def __init__(self, rngs):
        self.by, self.over = nnx.Param(jnp.zeros(4)), nnx.Param(jnp.zeros(4))

    def __call__(self, x):
        return jnp.cumsum(self.part(x), -1)  # its part

    def part(self, x):
        one = jax.vmap(lambda row: leaned_in_jax(row, self.over[...], self.by[...]))  # leans
        return one(x)


def test_what_calls_the_function_of_a_line_is_told():
    """It may be right, and be given what is wrong."""
    found = divergence_of(Leaning, LeaningPort, lambda rng: (rng.standard_normal((2, 4)),)).astray
    (line,), (caller,) = lines_with("leaned"), lines_with("leans")
    (told,) = found.port
    assert told.startswith(f"{line} (mul")
    assert told.endswith(f"; called at {caller})")


class Rolled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.mix(torch.roll(x, (-2, -1), (1, 2))).relu()


class RolledPort(nnx.Module):
    def __init__(self, rngs):
        self.mix = gm.nn.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        turned = jnp.roll(x[:, ::-1], (-2, 1), (1, 2))  # rolled
        return jax.nn.relu(self.mix(turned))


def test_what_only_moves_values_is_told_too():
    found, _ = checked(Rolled, RolledPort, lambda rng: (rng.standard_normal((2, 7, 5, 4)),))
    (line,) = lines_with("rolled")
    assert [each.split()[0] for each in found.port] == [line]


class Remembering(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(4, 4)

    def forward(self, x, memory):
        y = self.mix(x)
        return y.relu(), torch.cat([memory, x], 1)[:, -3:].detach()


class RememberingPort(nnx.Module):
    def __init__(self, rngs):
        self.mix = gm.nn.Linear(4, 4, rngs=rngs)

    def __call__(self, x, memory):
        y = self.mix(x)
        memory = jnp.concatenate([memory, y / 2], 1)  # remembered
        return jax.nn.relu(y), jax.lax.stop_gradient(memory[:, -3:])


def test_what_hands_on_its_argument_hides_no_line():
    def inputs(rng):
        return rng.standard_normal((3, 2, 4)), rng.standard_normal((3, 2, 4))

    found, _ = checked(Remembering, RememberingPort, inputs)
    (line,) = lines_with("remembered")
    assert found.port == [f"{line} (div)"]


class Fused(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        v = torch.tanh(x)
        return self.o(torch.nn.functional.scaled_dot_product_attention(self.q(x), x, v))  # in one function


class WrittenOut(nnx.Module):
    def __init__(self, rngs):
        self.q, self.o = gm.nn.Linear(6, 6, rngs=rngs), gm.nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        scores = self.q(x) @ x.swapaxes(-1, -2)
        scores = scores / 6**0.5
        scores = scores + 0.3 * scores**2  # which the function has not inside
        return self.o(jax.nn.softmax(scores, -1) @ jnp.tanh(x))


def test_a_function_that_the_port_writes_out_is_what_it_lacks():
    found, _ = checked(Fused, WrittenOut, lambda rng: (rng.standard_normal((2, 5, 6)),))
    (ours,), (theirs,) = lines_with("which the function has not inside"), lines_with("in one function")
    assert found.port == [f"{ours} (integer_pow)"]
    assert found.reference == [f"{theirs} (scaled_dot_product_attention)"]


class Turn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x, turns):
        q, (cos, sin) = self.q(x), turns
        return self.o((q * cos + q.roll(3, -1) * sin) @ x.transpose(-1, -2) @ x)


class Turning(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Turn(), Turn()])

    def forward(self, x):
        angles = torch.arange(x.shape[1])[:, None] / 100 ** (torch.arange(3) / 3)
        angles = torch.cat((angles, angles), -1)
        for layer in self.layers:
            x = x + layer(x, (angles.cos(), angles.sin()))
        return x


class TurnPort(nnx.Module):
    def __init__(self, rngs):
        self.q, self.o = gm.nn.Linear(6, 6, rngs=rngs), gm.nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x, angles):
        q = self.q(x)
        cos, sin = jnp.tile(jnp.cos(angles), 2), jnp.tile(jnp.sin(angles), 2)
        turned = q * cos + jnp.roll(q, 3, -1) * sin
        return self.o(turned @ x.swapaxes(-1, -2) @ x)


class TurningPort(nnx.Module):
    """Its layers are handed angles, of which the reference's have cosines and sines."""

    def __init__(self, rngs):
        self.layers = nnx.List([TurnPort(rngs), TurnPort(rngs)])

    def __call__(self, x):
        angles = jnp.arange(x.shape[1])[:, None] / 90 ** (jnp.arange(3) / 3)  # angles
        for layer in self.layers:
            x = x + layer(x, angles)
        return x


def test_what_a_module_is_handed_that_the_reference_s_is_not_is_told_where_it_is_made():
    case = Case(
        name="c",
        summary="s",
        reference=Turning,
        model=TurningPort,
        inputs=lambda rng: (rng.standard_normal((2, 5, 6)),),
        modes=("inference",),
    )
    report = check(case)
    (line,) = lines_with("angles")
    assert [each.module for each in report.divergences] == ["layers.0", "layers.1"]
    for each in report.divergences:
        assert each.astray.port == [f"{line} (div)"]
        assert each.astray.handed == "TurningPort"
    assert f"at {line} (div), in TurningPort, which hands this module what comes of it" in " ".join(str(report).split())


def test_the_ports_line_stands_with_a_cause_too():
    class Gelu(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x)

    class GeluPort(nnx.Module):
        def __init__(self, rngs):
            pass

        def __call__(self, x):
            return jax.nn.gelu(x)  # in its other form

    case = Case(name="c", summary="s", reference=Gelu, model=GeluPort, inputs=lambda rng: (rng.standard_normal(9),))
    report = check(case, hasty=True)
    (divergence,) = report.divergences
    (line,) = lines_with("in its other form")
    assert [cause.id for cause in divergence.causes] == ["gelu-form"]
    assert divergence.astray.port[0].startswith(f"{line} (")
    assert f"the port's line: {line} (" in str(report)


def test_values_are_found_however_they_lie():
    draw = np.random.default_rng(0).standard_normal
    image, sequence = draw((2, 3, 4, 5)), [draw((2, 6)) for _ in range(4)]
    known = Values([image, *sequence, np.arange(10)])
    assert known.have(image.transpose(0, 2, 3, 1))
    assert known.have(image.transpose(2, 0, 1, 3).reshape(8, 15))
    assert known.have(np.stack(sequence, 1))
    assert known.have(image[:, 1])
    assert known.have(image[:, :, :2])
    assert known.have(np.zeros(7))
    assert known.have(np.arange(10.0))
    assert not known.have(image + 1e-6)
    assert not known.have(-image)
    assert not known.have(image[::-1])
    assert not known.have(np.stack([*sequence[:3], draw((2, 6))]))
    mask = np.where(np.tri(6), 0, np.finfo(float).min)
    assert not Values([mask]).have(draw((3, 6, 6)) + mask)


class Settles(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.out = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.step(x))
        return self.out(torch.sin(x) * torch.exp(x).cumsum(-1))


class SettlesOtherwise(nnx.Module):
    def __init__(self, rngs):
        self.step, self.out = gm.nn.Linear(6, 6, rngs=rngs), gm.nn.Linear(6, 6, rngs=rngs)

    def __call__(self, x):
        def body(carry):
            return carry[0] + 1, jnp.tanh(self.step(carry[1]))

        _, x = jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))
        return self.out(jnp.sin(x) * jnp.arctan(x * x).cumsum(-1))  # after the loop


def test_of_a_port_that_calls_a_module_within_a_while_loop():
    found, _ = checked(Settles, SettlesOtherwise, lambda rng: (rng.standard_normal((3, 6)),), modes=("inference",))
    (line,) = lines_with("after the loop")
    assert [each.split(" ")[0] for each in found.port] == [line]


class UntilEnough(torch.nn.Module):
    """Adds up the steps of each line, until that is enough."""

    def __init__(self):
        super().__init__()
        self.steps = torch.nn.Linear(6, 9)

    def forward(self, x):
        lines = []
        for line in torch.exp(self.steps(x)):
            total = line.new_zeros(())
            for step in line:
                total = total + torch.log1p(step)
                if total > 4:
                    break
            lines.append(torch.sqrt(total) * total)
        return torch.stack(lines)


class PortOfUntilEnough(nnx.Module):
    def __init__(self, rngs):
        self.steps = gm.nn.Linear(6, 9, rngs=rngs)

    def __call__(self, x):
        added = jnp.log1p(jnp.exp(self.steps(x)))  # of all steps, where the reference has those before it is enough
        before = jnp.cumsum(added, 1) - added
        total = jnp.where(before > 4, 0, added).sum(1)
        return jnp.cbrt(total) * total  # another root


@pytest.mark.slow
def test_more_than_the_reference_has_that_comes_to_nothing_is_not_told():
    found, text = checked(
        UntilEnough, PortOfUntilEnough, lambda rng: (rng.standard_normal((5, 6)),), modes=("inference",)
    )
    assert [line.split()[0] for line in found.port] == lines_with("another root"), text


class Tracks(torch.nn.Module):
    """A state of each row, moved by what is seen of it."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.randn(4))

    def forward(self, y, seen):
        x, w = y.new_zeros(len(y), 4), y.new_ones(len(y))
        for t in range(y.shape[1]):
            m = seen[:, t]
            if m.any():
                e = y[m, t] - torch.tanh(x[m])
                k = torch.sigmoid(e * self.gain).prod(-1) * w[m]
                x, w = x.clone(), w.clone()
                x[m] = x[m] + k[:, None] * torch.sin(e)
                w[m] = w[m] / (1 + k)
        return torch.exp(-x) * w[:, None]


class PortOfTracks(nnx.Module):
    def __init__(self, rngs):
        self.gain = nnx.Param(jnp.zeros(4))

    def __call__(self, y, seen):
        def update(x, w, y):
            e = y - jnp.tanh(x)
            k = jax.nn.sigmoid(e * self.gain[...]).prod() * w
            return x + k * jnp.sin(e), w / (1 + k * k)  # another share

        def step(carry, at):
            y, m = at
            x, w = jax.vmap(update)(*carry, y)
            return (jnp.where(m[:, None], x, carry[0]), jnp.where(m, w, carry[1])), None

        start = jnp.zeros((len(y), 4), y.dtype), jnp.ones(len(y), y.dtype)
        (x, w), _ = jax.lax.scan(step, start, (y.swapaxes(0, 1), seen.T))
        return jnp.exp(-x) * w[:, None]


@pytest.mark.slow
def test_what_is_computed_for_rows_that_a_mask_leaves_out_is_not_told():
    def inputs(rng):
        return rng.standard_normal((5, 7, 4)), rng.random((5, 7)) > 0.5

    found, text = checked(Tracks, PortOfTracks, inputs, modes=("inference",))
    assert [line.split()[0] for line in found.port] == lines_with("another share"), text


class Caching(torch.nn.Module):
    """Attention to what is in a cache that grows."""

    def __init__(self):
        super().__init__()
        self.key, self.query = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        self.register_buffer("keys", torch.zeros(6, 4))
        self.register_buffer("n", torch.tensor(0))

    def forward(self, x):
        n, t = int(self.n), len(x)
        keys = torch.cat([self.keys[:n].clone(), self.key(x)])
        out = (self.query(x) @ keys.T).softmax(-1) @ keys
        self.keys[n : n + t] = keys[n:].detach()
        self.n.copy_((self.n + t) % 6)
        return out


class PortOfCaching(nnx.Module):
    def __init__(self, rngs):
        self.key, self.query = nnx.Linear(4, 4, use_bias=False, rngs=rngs), nnx.Linear(4, 4, use_bias=False, rngs=rngs)
        self.keys, self.n = nnx.BatchStat(jnp.zeros((6, 4))), nnx.BatchStat(jnp.array(0))

    def __call__(self, x):
        n, t = self.n[...], len(x)
        keys = jax.lax.dynamic_update_slice(self.keys[...], self.key(x), (n, 0))
        scores = jnp.where(jnp.arange(6) < n + t, self.query(x) @ keys.T, -jnp.inf)
        self.keys[...], self.n[...] = jax.lax.stop_gradient(keys), (n + t) % 6
        return jax.nn.softmax(scores, -1) @ jnp.tanh(keys)  # of what it keeps


def test_a_buffer_that_is_filled_up_and_masked_is_not_told():
    found, text = checked(Caching, PortOfCaching, lambda rng: (rng.standard_normal((3, 4)),), modes=("inference",))
    assert [line.split()[0] for line in found.port] == lines_with("of what it keeps"), text


class Counting(torch.nn.Module):
    """Counts what is not small, and keeps the last row, of what a mask leaves."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 1)
        self.register_buffer("rejected", torch.tensor(0))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x, seen):
        y = self.fc(x)[:, 0]
        small = y < 0.2
        self.rejected += (seen & ~small).sum()
        self.last.copy_(x[-1] * 2)
        return torch.tanh((y * (seen & small)).sum())


class PortOfCounting(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(4, 1, rngs=rngs)
        self.rejected, self.last = nnx.BatchStat(jnp.array(0)), nnx.BatchStat(jnp.zeros(4))

    def __call__(self, x, seen):
        y = self.fc(x)[:, 0]
        small = y < 0.2
        self.last[...] = 2 * jax.lax.stop_gradient(x[-1])
        self.rejected[...] += jnp.sum(~small)  # of all rows
        return jnp.tanh(jnp.sum(jnp.where(seen & small, y, 0)))


def test_the_line_of_a_buffer_that_is_wrong_alone_is_told():
    def inputs(rng):
        return rng.standard_normal((8, 4)), rng.random(8) < 0.7

    fields = {"modes": ("forward_backward",), "adversarial": ()}
    case = Case(name="c", summary="s", reference=Counting, model=PortOfCounting, inputs=inputs, **fields)
    (divergence,) = check(case, hasty=True).divergences
    assert [cause.id for cause in divergence.causes] == ["mask-missing"]
    assert [line.split()[0] for line in divergence.astray.port] == lines_with("of all rows")


class Spectrum(torch.nn.Module):
    """Differences of a spectrum from frame to frame."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(8), persistent=False)

    def forward(self, x):
        s = torch.stft(x, 8, 4, 8, self.window, center=False, return_complex=True)
        x = torch.log(s.real**2 + s.imag**2 + 1e-3)
        t = x.shape[-1] - 2
        return (x[..., 2 : 2 + t] - x[..., :t]) / 2


class PortOfSpectrum(nnx.Module):
    """Its window is symmetric, and its kernel is right, though the reference has none."""

    def __init__(self, rngs):
        self.window = nnx.Cache(jnp.asarray(np.hanning(8)))

    def __call__(self, x):
        starts = np.arange(0, x.shape[1] - 7, 4)
        frames = x[:, starts[:, None] + np.arange(8)] * self.window[...]  # with a window
        x = jnp.log(jnp.abs(jnp.fft.rfft(frames)) ** 2 + 1e-3)
        kernel, t = jnp.array([-1.0, 0.0, 1.0]) / 2, x.shape[1] - 2
        return sum(kernel[i] * x[:, i : i + t] for i in range(3)).swapaxes(1, 2)


def test_a_constant_that_the_reference_has_not_is_told_after_what_inputs_make():
    fields = {"modes": ("inference",), "adversarial": ()}
    case = Case(
        name="c",
        summary="s",
        reference=Spectrum,
        model=PortOfSpectrum,
        inputs=lambda rng: (rng.standard_normal((3, 40)),),
        **fields,
    )
    (divergence,) = check(case, hasty=True).divergences
    assert [cause.id for cause in divergence.causes] == ["window"]
    assert divergence.astray.port[0].split()[0] in lines_with("with a window")


class Groups(torch.nn.Module):
    """For each row the sum over the rows of its group, of which there are none for some."""

    def __init__(self):
        super().__init__()
        self.own, self.others = torch.nn.Linear(4, 5), torch.nn.Linear(4, 5, bias=False)
        self.scale = torch.nn.Parameter(torch.tensor([1.0, 1.1, 1.2, 1.3]))

    def forward(self, x, group):
        rows = [torch.sigmoid(self.own(x[n])[None] + self.others(x[group == n])).sum(0) for n in range(len(x))]
        return torch.stack(rows) * self.scale[group.clamp(max=3)][:, None]


class PortOfGroups(nnx.Module):
    def __init__(self, rngs):
        self.own, self.others = nnx.Linear(4, 5, rngs=rngs), nnx.Linear(4, 5, use_bias=False, rngs=rngs)
        self.scale = nnx.Param(jnp.ones(4))

    def __call__(self, x, group):
        def one(_, at):
            row, n = at
            gates = jax.nn.sigmoid(self.own(row)[None] + self.others(x))
            return None, jnp.sum(jnp.where((group == n)[:, None], gates, 0), axis=0)

        _, rows = jax.lax.scan(one, None, (x, jnp.arange(len(x))))
        return rows * self.scale[...][jnp.minimum(group, 2)][:, None]  # limits the group


def test_a_call_that_is_a_part_of_what_is_around_it_is_not_handed_what_the_next_gives():
    """Of no rows nothing is recorded that could be handed on; the calls after it are given what is theirs."""

    def inputs(rng):
        return rng.standard_normal((6, 4)), np.array([4, 1, 2, 1, 5, 3])

    found, text = checked(Groups, PortOfGroups, inputs, modes=("inference",))
    assert [line.split()[0] for line in found.port] == lines_with("limits the group"), text


class Reservoir(torch.nn.Module):
    """Keeps rows in places that are drawn, and gives how far others are from those."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(4, 4))
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, draws):
        for count, (row, draw) in enumerate(zip(x.detach(), draws, strict=True)):
            place = count if count < 4 else int(draw * (count + 1))
            if place < 4:
                self.kept[place] = row
        return ((x * self.weight)[:, None] - self.kept.clone()).pow(2).sum(-1).min(1).values


class PortOfReservoir(nnx.Module):
    def __init__(self, rngs):
        self.kept, self.weight = nnx.BatchStat(jnp.zeros((4, 4))), nnx.Param(jnp.ones(4))

    def __call__(self, x, draws):
        def offer(carried, item):
            (kept, count), (row, draw) = carried, item
            place = jnp.where(count < 4, count, jnp.floor(draw * count).astype(int))  # in another place
            return (kept.at[place].set(row, mode="drop"), count + 1), None  # in another place

        (kept, _), _ = jax.lax.scan(offer, (self.kept[...], 0), jax.lax.stop_gradient((x, draws)))
        self.kept[...] = kept
        return jnp.sum(((x * self.weight[...])[:, None] - kept) ** 2, axis=-1).min(1)


def test_a_buffer_whose_rows_are_the_references_in_other_places_is_not_taken_for_right():
    def inputs(rng):
        return rng.standard_normal((9, 4)), rng.random(9)

    fields = {"modes": ("forward_backward",), "adversarial": ()}
    case = Case(name="c", summary="s", reference=Reservoir, model=PortOfReservoir, inputs=inputs, **fields)
    (divergence,) = check(case, hasty=True).divergences
    lines = [line.split()[0] for line in divergence.astray.port]
    assert lines, divergence
    assert set(lines) <= set(lines_with("in another place")), divergence


class Covers(torch.nn.Module):
    """Of a ray that ends in a wall next to nothing goes on."""

    def __init__(self):
        super().__init__()
        self.alpha, self.colour = torch.nn.Linear(4, 6), torch.nn.Linear(4, 6)

    def forward(self, x):
        alpha = torch.sigmoid(self.alpha(x))
        left = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha], 1), 1)
        weights = torch.cat([alpha * left[:, :-1], left[:, -1:] + 1e-10], 1)
        colour = torch.nn.functional.pad(torch.tanh(self.colour(x)), (0, 1))
        left = 1 - weights.sum(1)  # next to nothing
        return (weights * colour).sum(1) + left


class PortOfCovers(nnx.Module):
    def __init__(self, rngs):
        self.alpha, self.colour = gm.nn.Linear(4, 6, rngs=rngs), gm.nn.Linear(4, 6, rngs=rngs)

    def __call__(self, x):
        alpha = jax.nn.sigmoid(self.alpha(x))
        left = jnp.cumprod(jnp.pad(1 - alpha, ((0, 0), (1, 0)), constant_values=1), 1)
        weights = jnp.concatenate([alpha * left[:, :-1], left[:, -1:] + 1e-10], 1)
        colour = 3 * jax.nn.relu(self.colour(x))  # where the colour is another
        return (weights * jnp.pad(colour, ((0, 0), (0, 1)))).sum(1) + (1 - jnp.sum(weights, 1))


def test_what_is_left_where_all_cancels_is_not_told():
    told, _ = checked(Covers, PortOfCovers, lambda rng: (rng.standard_normal((5, 4)),), modes=("inference",))
    assert [line.partition(" ")[0] for line in told.port] == lines_with("where the colour is another")
    assert not set(lines_with("next to nothing")) & {line.partition(" ")[0] for line in told.reference}


class Total(torch.nn.Module):
    """A loss that is a sum of all."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 1)

    def forward(self, x):
        return torch.sin(self.fc(x)).sum()


class PortOfTotal(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        each = jnp.sin(self.fc(x)) ** 3  # another summand
        return each.sum()


def test_what_is_only_summed_up_is_not_idle():
    told, _ = checked(Total, PortOfTotal, lambda rng: (rng.standard_normal((2, 4)),), modes=("inference",))
    assert [line.partition(" ")[0] for line in told.port] == lines_with("another summand")


def test_all_that_is_replaced_has_another_sum_and_other_limits():
    for array in (np.arange(5), np.random.default_rng(0).standard_normal((3, 4))):
        others = WHOLE.replaced(array)
        assert np.isin(others, array).all()
        assert all(other(others) != other(array) for other in (np.sum, np.max, np.min))


def test_parts_that_others_lack():
    draw = np.random.default_rng(0).standard_normal
    rows, others = draw((4, 6)), draw((2, 6))
    known = Values([*rows, *draw(3)])
    lacking = known.lacking(np.concatenate([rows[:3], others]))
    assert lacking.axes == (0,)
    assert list(np.flatnonzero(lacking.which)) == [3, 4]
    np.testing.assert_array_equal(lacking.replaced(np.concatenate([rows[:3], others])), rows[[0, 1, 2, 0, 1]])
    assert known.lacking(rows) is None
    assert known.lacking(others) is None
    some = np.array([rows[0, 1], others[0, 0], 1.0])  # an element, another, and a number that may be written
    assert list(np.flatnonzero(known.lacking(some).which)) == [1]
    assert known.lacking(np.stack([some, others[0, :3]])) is None


def test_a_random_key_is_no_value_that_is_looked_for():
    key, draw = jax.random.key(0), np.random.default_rng(0).standard_normal
    known = Values([key, draw(3)])
    assert known.have(key)
    assert known.lacking(key) is None
    assert not known.have_whole(key)


def test_a_number_is_found_as_an_element_and_a_count_is_not():
    row = np.random.default_rng(0).standard_normal(7)
    known = Values([row, np.arange(4.0)])
    assert known.have_element(row[3:4])
    assert not known.have_element(row[3:4] + 1e-6)
    assert not known.have_element(np.array([2.0]))


class Filtered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.filter = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.randn(6))

    def forward(self, x):
        spectrum = torch.fft.rfft(self.inner(x), norm="ortho") * torch.fft.rfft(torch.sin(self.filter))
        return torch.fft.irfft(spectrum, n=6, norm="forward")


class PortOfFiltered(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.filter = gm.nn.Linear(6, 6, rngs=rngs), nnx.Param(jnp.zeros(6))

    def __call__(self, x):
        filter = jnp.cbrt(self.filter[...])  # in place of a sine
        spectrum = jnp.fft.rfft(self.inner(x), norm="ortho") * jnp.fft.rfft(filter)
        return jnp.fft.irfft(spectrum, n=6, norm="forward")


def test_what_a_transform_is_divided_by_is_not_told():
    told, _ = checked(Filtered, PortOfFiltered, lambda rng: (rng.standard_normal((4, 6)),), modes=("inference",))
    assert [line.partition(" ")[0] for line in told.port] == lines_with("in place of a sine")


class Windows(torch.nn.Module):
    """What is written into a tensor part by part, as the modes of a Fourier layer are."""

    def __init__(self):
        super().__init__()
        self.first, self.last = (torch.nn.Parameter(torch.randn(2, 2)) for _ in range(2))

    def forward(self, x):
        out = torch.zeros_like(x)
        out[:, :3, :2] = x[:, :3, :2] @ self.first
        out[:, -3:, :2] = x[:, -3:, :2] @ self.last
        return torch.tanh(out)


class WindowsPort(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Param(jnp.zeros((2, 2))), nnx.Param(jnp.zeros((2, 2)))

    def __call__(self, x):
        out = jnp.zeros_like(x).at[:, :3, :2].set(x[:, :3, :2] @ self.first[...])
        out = out.at[:, 3:6, :2].set(x[:, -3:, :2] @ self.last[...])  # window
        return jnp.tanh(out)


def test_what_is_written_part_by_part_is_had_between():
    found, _ = checked(Windows, WindowsPort, lambda rng: (rng.standard_normal((2, 8, 4)),))
    (line,) = lines_with("window")
    assert found.port == [f"{line} (concatenate)"], found


class Ragged(torch.nn.Module):
    """Sets of as many rows as each has, of which the port computes all rows at once."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)

    def forward(self, rows, lengths):
        found = []
        for x in rows.split(lengths.tolist()):
            apart = torch.tanh(self.fc(x)) * (1 + len(x)) ** 0.5
            weights = apart / apart.square().sum(0).sqrt()
            found.append(torch.cos(weights + apart.sin()).sum(0))
        return self.out(torch.stack(found))


class RaggedPort(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.out = gm.nn.Linear(3, 5, rngs=rngs), gm.nn.Linear(5, 2, rngs=rngs)

    def __call__(self, rows, lengths):
        ids = jnp.repeat(jnp.arange(3), lengths, total_repeat_length=9)
        scale = jnp.sqrt(1 + lengths.astype(rows.dtype))
        apart = jnp.tanh(self.fc(rows)) * scale[ids][:, None]
        total = jnp.sqrt(jax.ops.segment_sum(apart**2, ids, 3))
        weights = apart / total[ids]
        shifted = jnp.cos(weights + jnp.sin(apart) * jnp.cos(apart))  # shifted
        return self.out(jax.ops.segment_sum(shifted, ids, 3))


def test_rows_of_several_sets_at_once_are_those_of_each():
    sets = lambda rng: (rng.standard_normal((9, 3)), rng.permutation([2, 4, 3]))  # noqa: E731
    astray, told = checked(Ragged, RaggedPort, sets)
    assert {each.partition(" ")[0] for each in astray.port} == set(lines_with("shifted")), told


class Stopping(torch.nn.Module):
    """A loop that ends at the first row which is large."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 4)

    def forward(self, x):
        total = torch.zeros(4, dtype=x.dtype)
        for row in x:
            if row.mean() > 0.5:
                break
            h = self.fc(row)
            total = total + torch.cos(h) * torch.tanh(h)
        return total


class StoppingPort(nnx.Module):
    def __init__(self, rngs):
        self.fc = gm.nn.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        total, stopped = jnp.zeros(4), jnp.array(False)
        for row in x:
            stopped = stopped | (row.mean() > 0.5)
            on = ~stopped
            h = self.fc(row)
            total = total + jnp.where(on, jnp.cos(h) * jnp.tanh(h) ** 3, 0)  # cubed
        return total


def test_a_mask_that_goes_on_for_one_that_stops_is_not_told_beside_what_is_computed():
    astray, told = checked(Stopping, StoppingPort, lambda rng: (rng.standard_normal((5, 3)),))
    assert {each.partition(" ")[0] for each in astray.port} == set(lines_with("cubed")), told
