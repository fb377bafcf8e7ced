"""What is no cause: what fits by chance, what mends one gradient of two, and what was right before any change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

WIDTH = 6


def rows(rng):
    return (rng.standard_normal((5, WIDTH)).astype(np.float32),)


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.after(self.fc(x))

    def after(self, x):
        return x


class Port(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.after(self.fc(x))

    def after(self, x):
        return x


def test_a_dtype_alone_is_no_matter_of_training_and_evaluation():
    class Cast(Port):
        def after(self, x):
            return x.astype(jnp.float32)

    assert [id for id, _ in causes(Linear, Cast, rows)] == ["hidden-cast"]


def test_the_limits_of_a_dtype_are_told_by_how_to_have_them_in_any():
    class Adds(Linear):
        def after(self, x):
            return torch.sqrt(x * x + torch.finfo(x.dtype).eps)

    class AddsFloat32s(Port):
        def after(self, x):
            return jnp.sqrt(x * x + float(jnp.finfo(jnp.float32).eps))

    case = Case(name="c", summary="s", reference=Adds, model=AddsFloat32s, inputs=rows, adversarial=())
    fixes = [cause.fix for each in check(case, compiled=False, hasty=True).divergences for cause in each.causes]
    assert "use jnp.finfo(x.dtype).eps, which is 2.22045e-16 in float64" in fixes


def test_that_an_activation_is_left_out_is_told_before_one_that_is_the_same_there():
    class Soft(Linear):
        def after(self, x):
            return TF.softplus(0.3 * torch.tanh(x))

    class Left(Port):
        def after(self, x):
            return 0.3 * jnp.tanh(x)

    assert causes(Soft, Left, rows)[0][0] == "activation-missing"


def test_the_sign_of_a_bias_by_distance_is_told_and_no_other_end():
    class Biased(Linear):
        def after(self, x):
            place = torch.arange(WIDTH)
            scores = x[:, :, None] * x[:, None, :] + (place[None] - place[:, None]).to(x.dtype)
            return scores.softmax(-1)

    class Turned(Port):
        def after(self, x):
            place = jnp.arange(WIDTH)
            return jax.nn.softmax(x[:, :, None] * x[:, None, :] + (place[:, None] - place[None]), -1)

    assert causes(Biased, Turned, rows)[0][0] == "sign"


def test_one_number_that_is_off_on_every_input_is_made_right_by_no_number():
    class Determinant(Linear):
        def forward(self, x):
            return self.fc(x), 12 * torch.linalg.slogdet(self.fc.weight)[1]

    class Sign(Port):
        def __call__(self, x):
            return self.fc(x), 12 * jnp.linalg.slogdet(self.fc.kernel[...])[0]

    assert causes(Determinant, Sign, rows) == []


@pytest.mark.parametrize("name", ["max", "mean", "sum"])
def test_another_reduction_than_the_least_along_an_axis_is_told(name):
    class Least(Linear):
        def after(self, x):
            return 2 * x.min(1)[0]

    class Other(Port):
        def after(self, x):
            return 2 * getattr(x, name)(1)

    assert causes(Least, Other, rows)[0] == ("reduction", f"takes the {name} for the min")


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = torch.nn.Embedding(9, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, ids, x):
        return self.loss(self.embed(ids), self.fc(x))

    def loss(self, words, x):
        return TF.mse_loss(words, x.detach()) + 0.25 * TF.l1_loss(words.detach(), x)


class PortWords(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.fc = nnx.Embed(9, WIDTH, rngs=rngs), nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, ids, x):
        return self.loss(self.embed(ids), self.fc(x))

    def loss(self, words, x):
        still = jax.lax.stop_gradient
        return ((still(x) - words) ** 2).mean() + 0.25 * jnp.abs(x - still(words)).mean()


def words_and_rows(rng):
    return rng.integers(0, 9, 5), *rows(rng)


def test_what_mends_one_gradient_and_not_the_others_is_no_cause():
    class Beta(PortWords):  # two factors
        def loss(self, words, x):
            still = jax.lax.stop_gradient
            return 0.3 * ((still(x) - words) ** 2).mean() + 0.7 * jnp.abs(x - still(words)).mean()

    assert causes(Words, Beta, words_and_rows) == []


def test_a_gradient_that_does_not_reach_an_embedding_is_explained():
    class Stopped(PortWords):
        def __call__(self, ids, x):
            return self.loss(jax.lax.stop_gradient(self.embed(ids)), self.fc(x))

    assert [id for id, _ in causes(Words, Stopped, words_and_rows)] == ["stop-gradient"]


class Twice(Linear):
    def forward(self, x):
        return self.fc(self.fc(x).tanh())


class PortTwice(Port):
    def __call__(self, x):
        return self.fc(jax.lax.stop_gradient(jnp.tanh(self.fc(x))))


class PortFirst(Port):
    def __call__(self, x):
        return self.fc(jnp.tanh(self.fc(jax.lax.stop_gradient(x))))


@pytest.mark.parametrize("port", [PortTwice, PortFirst])
def test_a_gradient_that_is_stopped_before_one_of_two_calls_is_explained(port):
    told = causes(Twice, port, rows)
    assert [id for id, _ in told] == ["stop-gradient"] * len(told)
    assert told


class Masked(Linear):
    def forward(self, x, mask):
        return (self.fc(x) + (1 - mask) * -3.4e38).softmax(-1)


class PortMasked(Port):
    def __call__(self, x, mask):
        return jax.nn.softmax(self.fc(x) + (1 - mask) * -3.4e38, -1)


def masked_rows(rng):
    mask = np.ones((5, WIDTH), np.float32)
    mask[:, -1] = 0
    return *rows(rng), mask


@pytest.mark.parametrize("wrong", [False, True])
def test_the_gradient_by_a_mask_of_large_numbers_hides_no_other(wrong):
    class Stopped(PortMasked):
        def __call__(self, x, mask):
            return jax.nn.softmax(jax.lax.stop_gradient(self.fc(x)) + (1 - mask) * -3.4e38, -1)

    if wrong:
        assert causes(Masked, Stopped, masked_rows) == [("stop-gradient", "stops the gradient by argument 0 of add")]
    else:
        case = Case(name="c", summary="s", reference=Masked, model=PortMasked, inputs=masked_rows, adversarial=())
        assert check(case).passed


def test_a_port_may_hold_an_array_that_is_no_variable():
    class Scaled(Linear):
        def after(self, x):
            return x * torch.arange(1.0, WIDTH + 1)

    class Held(Port):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.scale = jnp.arange(1.0, WIDTH + 1)

        def after(self, x):
            return x * self.scale

    assert check(Case(name="c", summary="s", reference=Scaled, model=Held, inputs=rows)).passed


def test_a_number_of_many_digits_is_not_told_beside_a_plain_one():
    class Shares(Linear):
        def after(self, x):
            shares = torch.softmax(x, 0)
            return shares / (shares.sum() + 8e-5)

    class Other(Port):
        def after(self, x):
            shares = jax.nn.softmax(x, axis=0)
            return shares / (shares.sum() + 1e-5)

    told = causes(Shares, Other, rows)
    assert [says for _, says in told] == ["adds 1e-05"]


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (lambda x: x - 0.25, lambda x: x - 0.7, "subtracts 0.7"),
        (lambda x: 1.5 - x * x, lambda x: 0.7 - x * x, "subtracts from 0.7"),
    ],
)
def test_another_number_that_is_subtracted_is_told_as_that(right, wrong, says):
    class Less(Linear):
        def after(self, x):
            return torch.tanh(right(x))

    class Other(Port):
        def after(self, x):
            return jnp.tanh(wrong(x))

    assert says in [told for _, told in causes(Less, Other, rows)]


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (lambda x: x.clamp(min=0.1), lambda x: x, "does not limit: clamp is left out"),
        (lambda x: x.clamp_max(0.1), lambda x: x, "does not limit: clamp_max is left out"),
        (TF.hardtanh, lambda x: x, "does not limit: hardtanh is left out"),
        (lambda x: x.clamp(-0.2, 0.3), lambda x: jnp.maximum(x, -0.2), "has no upper limit in clamp"),
    ],
    ids=["clamp", "clamp_max", "hardtanh", "one side"],
)
def test_a_limit_that_is_left_out_is_told(right, wrong, says):
    class Limited(Linear):
        def after(self, x):
            return torch.sin(right(x))

    class Other(Port):
        def after(self, x):
            return jnp.sin(wrong(x))

    assert any(told.startswith(says) for _, told in causes(Limited, Other, rows))


def test_a_summand_left_out_before_the_greatest_is_taken_is_not_one_that_is_repeated_otherwise():
    class Best(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(0.5 * torch.randn(4))

        def forward(self, x):
            return x.sum(), (x + self.bias).argmax(-1)

    class Without(nnx.Module):
        def __init__(self, rngs):
            self.bias = nnx.Param(jnp.zeros(4))

        def __call__(self, x):
            return x.sum(), x.argmax(-1)

    def square(rng):
        return (rng.standard_normal((4, 4)),)

    assert [id for id, _ in causes(Best, Without, square, modes=("inference",))] == ["parameter-missing"]


def root_rows(rng, width=WIDTH):
    return (rng.standard_normal((5, WIDTH)), rng.uniform(0.1, 1, (5, width)), rng.uniform(0.1, 1, (5, width)))


@pytest.mark.parametrize("width", [WIDTH, 1])
def test_what_is_not_subtracted_is_told_as_that_and_as_nothing_else(width):
    class Rooted(Linear):
        def forward(self, x, a, s):
            return (4 - a - s**2).sqrt() * self.fc(x)

    class Left(Port):
        def __call__(self, x, a, s):
            return jnp.sqrt(4 - a) * self.fc(x)

    told = causes(Rooted, Left, lambda rng: root_rows(rng, width), modes=("inference",))
    assert told == [("residual-missing", "does not subtract the second term")]


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (lambda a, s: a - 2 * s, ("residual-twice", "subtracts its input 2 (s) twice")),
        (lambda a, s: 2 * a - s, ("residual-twice", "takes its input 1 (a) twice")),
        (lambda a, s: -s, ("residual-missing", "leaves its input 1 (a) out (of the difference, the first is missing)")),
    ],
)
def test_terms_of_a_difference_that_are_left_out_or_taken_twice_are_told(after, cause):
    class Centred(Linear):
        def forward(self, x, a, s):
            return self.fc(x) * (a - s)

    class Wrong(Port):
        def __call__(self, x, a, s):
            return self.fc(x) * after(a, s)

    assert cause in causes(Centred, Wrong, root_rows, modes=("inference",))


def test_another_number_in_a_tensor_of_one_is_no_power():
    class Sized(Linear):
        def __init__(self):
            super().__init__()
            self.register_buffer("sizes", torch.tensor([3.9, 1.6, 1.56, 0.7]).repeat(WIDTH, 1))

        def after(self, x):
            return x / (self.sizes[:, 0] ** 2 + self.sizes[:, 1] ** 2).sqrt()

    class OtherSides(Port):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.sizes = nnx.BatchStat(jnp.zeros((WIDTH, 4)))

        def after(self, x):
            return x / jnp.hypot(self.sizes[:, 2], self.sizes[:, 3])

    assert not [says for _, says in causes(Sized, OtherSides, rows) if "power" in says or "multiplies" in says]


def test_a_straight_through_estimator_that_is_left_out_is_told_as_such():
    class Rounded(Linear):
        def after(self, x):
            return x + (torch.round(x) - x).detach()

    class Left(Port):
        def after(self, x):
            return jax.lax.stop_gradient(jnp.round(x))

    told = causes(Rounded, Left, rows)
    assert told
    assert all(id == "stop-gradient" and "straight-through" in says for id, says in told)


def test_an_input_without_elements_is_looked_into():
    class Edges(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(WIDTH, WIDTH)
            self.edge = Linear()

        def forward(self, x, edges):
            self.edge(edges)
            return self.fc(x)

    class Scaled(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.edge = Port(rngs)

        def __call__(self, x, edges):
            self.edge(edges)
            return 1.5 * self.fc(x)

    def inputs(rng):
        return (*rows(rng), np.zeros((0, WIDTH), np.float32))

    case = Case(name="c", summary="s", reference=Edges, model=Scaled, inputs=inputs, adversarial=())
    report = check(case, compiled=False, hasty=True)
    assert not report.passed
    assert "no look inside" not in str(report)
