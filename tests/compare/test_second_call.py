"""State from one call to the next: left over, forgotten, or made otherwise; and buffers that forward assigns anew."""

import importlib
import math
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, CaseError, check

import graphmode as gm

explaining = importlib.import_module("graphmode.compare.parity.causes")
WIDTH = 5


class Kept(nnx.Variable):
    pass


class Reference(torch.nn.Module):
    """A mean of what came by in training, from zero, assigned anew or written in place."""

    anew = False

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        h = self.fc(x)
        if self.training:
            mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            if self.anew:
                self.mean = mean
            else:
                self.mean.copy_(mean)
        return h - self.mean


class Anew(Reference):
    anew = True


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.mean = Kept(jnp.zeros(WIDTH))
        self.training = True

    def moved(self, h):
        return 0.9 * self.mean[...] + 0.1 * jax.lax.stop_gradient(h).mean(0)

    def moves(self):
        return self.training

    def __call__(self, x):
        h = self.fc(x)
        if self.moves():
            self.mean[...] = self.moved(h)
        return h - self.mean[...]


class WithoutDecay(Port):
    """From zero, it is the same after one call."""

    def moved(self, h):
        return self.mean[...] + 0.1 * jax.lax.stop_gradient(h).mean(0)


class Counted(torch.nn.Module):
    """A mean whose share is what the number of calls makes of it; at the same input it stays where it is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.mean.lerp_(x.detach().mean(0), max(0.1, 1 / float(self.steps)))
        return x - self.mean


class CountsLate(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, is_late=True):
        self.mean, self.steps = Kept(jnp.zeros(WIDTH)), Kept(jnp.zeros((), int))
        self.training, self.is_late = True, is_late

    def __call__(self, x):
        if self.training:
            steps = self.steps[...] + 1
            share = jnp.maximum(0.1, 1 / jnp.maximum(steps - self.is_late, 1))
            self.steps[...] = steps
            self.mean[...] += jax.lax.stop_gradient(share * (x.mean(0) - self.mean[...]))
        return x - self.mean[...]


class Normed(torch.nn.Module):
    """Divides by a standard deviation that training moves, from one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("var", torch.ones(WIDTH))

    def forward(self, x):
        if self.training:
            self.var.lerp_(x.detach().var(0), 0.5)
            return x
        return x / self.var.sqrt()


class NormedPort(nnx.Module):
    power = 0.5

    def __init__(self, rngs: nnx.Rngs):
        self.var, self.training = Kept(jnp.ones(WIDTH)), True

    def __call__(self, x):
        if self.training:
            self.var[...] = 0.5 * self.var[...] + 0.5 * jax.lax.stop_gradient(x.var(0, ddof=1))
            return x
        return x / self.var[...] ** self.power


class OtherPower(NormedPort):
    """Of one, every power is the same."""

    power = 1.0


class Ring(torch.nn.Module):
    """Keeps the last rows, in a ring."""

    def __init__(self, room):
        super().__init__()
        self.register_buffer("rows", torch.zeros(room, WIDTH))
        self.register_buffer("next", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            places = self.next + torch.arange(len(x))
            self.rows[self.placed(places)] = x.detach()
            self.next.copy_(self.placed(self.next + len(x)))
        return x @ self.rows.clone().T

    def placed(self, places):
        return places % len(self.rows)


class Full(Ring):
    """Fails where it has no room."""

    def placed(self, places):
        return places


class Wraps(nnx.Module):
    def __init__(self, room):
        self.rows, self.next = Kept(jnp.zeros((room, WIDTH))), Kept(jnp.zeros((), int))
        self.training = True

    def written(self, x):
        return self.rows[...].at[(self.next[...] + jnp.arange(len(x))) % len(self.rows)].set(x)

    def __call__(self, x):
        if self.training:
            self.rows[...] = self.written(jax.lax.stop_gradient(x))
            self.next[...] = (self.next[...] + len(x)) % len(self.rows)
        return x @ self.rows[...].T


class WritesTheEnd(Wraps):
    """What starts too late to fit is moved to the end."""

    def written(self, x):
        return jax.lax.dynamic_update_slice(self.rows[...], x, (self.next[...], jnp.zeros_like(self.next[...])))


class Maxima(torch.nn.Module):
    """Keeps the last four maxima, each in its place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.ones(4))
        self.register_buffer("n", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        with torch.no_grad():
            self.largest[self.n % 4] = x.abs().max()
            self.n += 1
        return x / self.largest.max()


class OfThree(nnx.Module):
    """In the fourth call it writes where the reference would in the fifth."""

    places = 3

    def __init__(self, rngs):
        self.largest, self.n = Kept(jnp.ones(4)), Kept(jnp.zeros((), int))

    def __call__(self, x):
        largest = self.largest[...].at[self.n[...] % self.places].set(jax.lax.stop_gradient(jnp.abs(x).max()))
        self.largest[...], self.n[...] = largest, self.n[...] + 1
        return x / jnp.max(largest)


class OfOne(OfThree):
    places = 1


class Distant(torch.nn.Module):
    """Counts calls, and takes another row of a table for each."""

    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(8, WIDTH)
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        x = x[1:]
        self.at += len(x)
        n = self.at - torch.arange(len(x)) - 1
        far = 4 + (torch.log(n.clamp(min=1).double() / 4) / math.log(2.5) * 4).long()
        return x + self.rows(torch.where(n < 4, n, far.clamp(max=7)))


class Rounds(nnx.Module):
    """In the second call alone this gives what its difference is, which is not limited there."""

    def __init__(self, rngs):
        self.rows, self.at = gm.nn.Embedding(8, WIDTH, rngs=rngs), Kept(jnp.zeros((), int))

    def __call__(self, x):
        x = x[1:]
        self.at[...] += len(x)
        n = self.at[...] - jnp.arange(len(x)) - 1
        far = 4 + jnp.round(jnp.log(jnp.maximum(n, 1) / 4) / math.log(2.5) * 4).astype(int)
        return x + self.rows(jnp.where(n < 4, n, jnp.minimum(far, 7)))


class Forgets(Port):
    def __call__(self, x):
        h = self.fc(x)
        return h - (self.moved(h) if self.training else self.mean[...])


class LateInEvaluation(Port):
    """It moves in evaluation, too, after it has been used."""

    def __call__(self, x):
        if self.training:
            return super().__call__(x)
        h = self.fc(x)
        given = h - self.mean[...]
        self.mean[...] = self.moved(h)
        return given


class OwnSwitch(Port):
    """What switches it has another name than any that Flax knows."""

    def train(self, **attributes):
        super().train(**attributes)
        self.learns = True

    def eval(self, **attributes):
        super().eval(**attributes)
        self.learns = False

    def moves(self):
        return self.learns


def case(reference, port, **fields):
    return Case(
        name="c",
        summary="s",
        reference=reference,
        model=port,
        inputs=lambda rng: (rng.standard_normal((4, WIDTH)).astype(np.float32),),
        **fields,
    )


@pytest.mark.parametrize("reference", [Reference, Anew])
@pytest.mark.parametrize("port", [Port, OwnSwitch])
def test_a_port_that_keeps_the_same_state_passes(reference, port):
    report = check(case(reference, port))
    assert report.passed, report


@pytest.mark.parametrize("reference", [Reference, Anew])
@pytest.mark.parametrize(
    ("port", "mode", "id", "word"),
    [
        (WithoutDecay, "forward_backward", "scale-missing", "leaves out the constant 0.9"),
        (
            LateInEvaluation,
            "inference",
            "state-left",
            "keeps mean for the next call, which the",
        ),
    ],
)
def test_what_shows_in_the_next_call_alone_is_caught(reference, port, mode, id, word):
    report = check(case(reference, port))
    (each,) = report.divergences
    (cause,) = each.causes
    assert not report.passed
    assert (each.mode, each.input, cause.id) == (mode, "random 0, called again", id)
    assert cause.says.startswith(word)
    assert {finding.what for finding in each.findings} == {"output", "buffer"}


def ring(reference, port, room, **fields):
    return case(lambda: reference(room), lambda rngs: port(room), modes=("forward_backward",), adversarial=(), **fields)


@pytest.mark.parametrize(
    ("right", "wrong", "id"),
    [
        (case(Counted, partial(CountsLate, is_late=False)), case(Counted, CountsLate), "buffer-order"),
        (ring(Ring, Wraps, 6), ring(Ring, WritesTheEnd, 6), "state-otherwise"),
        # by what n will be after the call, if calls before did not say otherwise
        (None, case(Maxima, OfThree, modes=("forward_backward",), adversarial=()), "state-otherwise"),
        (None, case(Distant, Rounds, modes=("inference",), adversarial=()), "state-otherwise"),
    ],
    ids=["a share", "a ring", "a place", "a difference"],
)
def test_what_shows_after_several_calls_on_other_inputs_is_caught(right, wrong, id):
    report = check(right) if right else None
    assert report is None or report.passed, report
    (each,) = check(wrong).divergences
    assert [cause.id for cause in each.causes] == [id]


def test_what_has_been_told_is_looked_into_once():
    wrong = case(Maxima, OfOne, modes=("inference", "forward_backward"), adversarial=())
    with mock.patch.object(explaining, "explain", wraps=explaining.explain) as explain:
        (each,) = check(wrong).divergences
    assert each.input == "random 0, called again"
    assert explain.call_count == 2  # as it is compiled quickly, and soundly


def test_evaluation_comes_after_training():
    right = check(case(Normed, NormedPort, adversarial=()))
    assert right.passed, right
    report = check(case(Normed, OtherPower, adversarial=()))
    (each,) = report.divergences
    assert (each.mode, each.input) == ("inference", "random 0, after training")
    assert [(cause.id, cause.says) for cause in each.causes] == [("function-missing", "leaves sqrt out")]


def test_an_edge_input_comes_after_another_input():
    """Whole batches fill the ring twice, and a longer one is the first that has no room at its end."""
    edge = {"five": lambda rng: (rng.standard_normal((5, WIDTH)),)}
    report = check(ring(Ring, WritesTheEnd, 8, edge_inputs=edge))
    wrong = {tensor.input for parity in report.parity for tensor in parity.tensors if not tensor.equal}
    assert wrong == {"five, called again"}


def test_what_the_reference_fails_at_is_not_asked():
    report = check(ring(Full, Wraps, 9))
    assert report.passed, report


@pytest.mark.parametrize("reference", [Reference, Anew])
def test_a_buffer_that_is_not_written_is_caught_in_the_first_call(reference):
    report = check(case(reference, Forgets), hasty=True)
    assert [cause.id for each in report.divergences for cause in each.causes] == ["buffer-not-written"]


def test_a_position_that_is_not_set_back_is_named_with_its_module():
    class Cached(nnx.Module):
        def __init__(self):
            self.position = nnx.Cache(jnp.zeros((), jnp.int32))

        def __call__(self, x):
            start = self.position[...]
            self.position[...] = start + 1
            return jnp.roll(x, start)

    class Holder(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.inner = Cached()

        def __call__(self, x):
            return self.inner(x)

    report = check(case(torch.nn.Identity, Holder, modes=("inference",)))
    (each,) = report.divergences
    assert (each.module, each.kind) == ("inner", "Cached")
    assert each.causes[0].says == "keeps inner.position for the next call, and the reference keeps nothing"
    assert "error arises in inner (Cached)" in str(report)


def test_parameters_that_forward_replaces_are_refused():
    class Replaces(Reference):
        def forward(self, x):
            self.fc.weight = torch.nn.Parameter(self.fc.weight * 0.5)
            return self.fc(x)

    with pytest.raises(CaseError, match=r"changes its own parameters in forward \(fc.weight\)"):
        check(case(Replaces, Port))


class Auxiliary(torch.nn.Module):
    """Another structure in training, as models with auxiliary heads give."""

    def __init__(self):
        super().__init__()
        self.fc, self.aux = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        return (h, self.aux(h)) if self.training else h


class AuxiliaryPort(nnx.Module):
    factor = 1.0

    def __init__(self, rngs: nnx.Rngs):
        self.fc, self.aux = nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 2, rngs=rngs)
        self.training = True

    def __call__(self, x):
        h = jnp.tanh(self.factor * self.fc(x))
        return (h, self.aux(h)) if self.training else h


LOSS = (lambda given: given[0].sum() + given[1].sum(), lambda given: given[0].sum() + given[1].sum())


@pytest.mark.parametrize("loss", [None, LOSS], ids=["cotangents", "loss"])
def test_outputs_may_have_another_structure_in_training(loss):
    assert check(case(Auxiliary, AuxiliaryPort, loss=loss)).passed

    class Doubled(AuxiliaryPort):
        factor = 2.0

    report = check(case(Auxiliary, Doubled, loss=loss), hasty=True)
    assert not report.passed
    assert report.divergences[0].causes
    assert not any("no look inside" in note for note in report.parity[0].notes)


class Rounds(torch.autograd.Function):
    """Rounds within limits; the gradient goes on between them alone."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x.abs() <= limit)
        return torch.minimum(torch.maximum(x, -limit), limit).mul(4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        (inside,) = ctx.saved_tensors
        return gradient * inside, None


class Quantised(torch.nn.Module):
    """Its limit is the largest value of the first batch, and moves towards that of each later one."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("limit", torch.zeros(()))

    def forward(self, x):
        if self.training:
            largest = x.detach().abs().max()
            self.limit.copy_(torch.where(self.limit == 0, largest, 0.9 * self.limit + 0.1 * largest))
        return self.fc(Rounds.apply(x, self.limit))


@jax.custom_vjp
def rounds(x, limit):
    return jnp.round(4 * jnp.clip(x, -limit, limit)) / 4


rounds.defvjp(
    lambda x, limit: (rounds(x, limit), (jnp.abs(x) <= limit, limit)),
    lambda kept, gradient: (gradient * kept[0], jnp.zeros_like(kept[1])),
)


class QuantisedPort(nnx.Module):
    rounds = staticmethod(rounds)

    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.limit, self.training = Kept(jnp.zeros(())), True

    def __call__(self, x):
        if self.training:
            largest = jnp.abs(jax.lax.stop_gradient(x)).max()
            limit = self.limit[...]
            self.limit[...] = jnp.where(limit == 0, largest, 0.9 * limit + 0.1 * largest)
        return self.fc(self.rounds(x, self.limit[...]))


class LetsAllThrough(QuantisedPort):
    """In the first call all lies within the limits, and this is the same."""

    @staticmethod
    def rounds(x, limit):
        return x + jax.lax.stop_gradient(rounds(x, limit) - x)


def test_gradients_that_are_wrong_on_what_earlier_calls_left_are_caught_and_explained():
    right = check(case(Quantised, QuantisedPort, adversarial=()))
    assert right.passed, right
    report = check(case(Quantised, LetsAllThrough, adversarial=()))
    each, *_ = report.divergences
    assert each.mode == "forward_backward"
    assert each.input.endswith(", called again")
    assert {finding.what for finding in each.findings} == {"input_gradient"}
    assert "straight-through" in {cause.id for cause in each.causes}


class GradientOfEachSecondCall(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            self.steps += 1
        return y if self.steps % 2 else y + torch.tanh(y).detach()


class NotStopped(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.steps, self.training = Kept(jnp.zeros((), int)), True

    def __call__(self, x):
        y = self.fc(x)
        if self.training:
            self.steps[...] = self.steps[...] + 1
        return jnp.where(self.steps[...] % 2, y, y + jnp.tanh(y))


def test_gradients_of_later_calls_are_asked_before_the_optimizer_is_accused():
    pair = partial(torch.optim.SGD, lr=0.1), optax.sgd(0.1)
    report = check(case(GradientOfEachSecondCall, NotStopped, adversarial=(), optimizer=pair))
    (each,) = report.divergences
    assert each.mode == "forward_backward", report
    assert each.input.endswith(", called again")
    assert [cause.id for cause in each.causes] == ["stop-gradient"]
