"""Gradients at ties and at vectors of zeros; groups of channels, sides of output padding, statistics over the batch."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from flax import nnx
from graphmode.compare import Case, channels_first, channels_last, check

import graphmode as gm

HERE = Path(__file__)


class Reference(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Port(nnx.Module):
    def __init__(self, function):
        self.function = function

    def __call__(self, *inputs):
        return self.function(*inputs)


def small_integers(rng):
    x = rng.integers(-1, 2, (5, 4, 6)).astype(np.float32)
    x[1, 2] = 0
    return (x,)


def cause_of(reference, port, inputs=small_integers, **changes):
    report = check(
        Case(
            name="c",
            summary="s",
            reference=reference if isinstance(reference, type) else lambda: Reference(reference),
            model=port if isinstance(port, type) else lambda rngs: Port(port),
            inputs=inputs,
            adversarial=(),
            **changes,
        )
    )
    (cause,) = report.divergences[0].causes
    return cause.id, cause.says


def root_of_squares(x, axis=-1, keepdims=False):
    return jnp.sqrt((x**2).sum(axis, keepdims=keepdims))


def apart(x):
    return root_of_squares(x[:, :, None, :] - x[:, None, :, :])


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        (lambda x: x.norm(dim=-1), root_of_squares),
        (lambda x: torch.linalg.norm(x, dim=-1, keepdim=True), lambda x: root_of_squares(x, -1, True)),
        (lambda x: TF.normalize(x, dim=2), lambda x: x / jnp.maximum(root_of_squares(x, 2, True), 1e-12)),
        (lambda x: torch.cdist(x, x), apart),
    ],
    ids=["norm", "linalg.norm", "normalize", "cdist"],
)
def test_nan_in_the_gradient_of_a_length_is_named(reference, port):
    line = next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if "return jnp.sqrt(" in text)
    id, says = cause_of(reference, port)
    assert id == "nan-gradient"
    assert says.startswith(f"has no finite derivative in sqrt at {HERE.name}:{line}, for ")


def test_a_function_that_is_right_but_at_its_kink_is_not_told_as_left_out():
    counts = lambda rng: (np.abs(small_integers(rng)[0]),)  # noqa: E731
    found = cause_of(lambda x: x / (1 + x.abs().mean()), lambda x: x / (1 + jnp.abs(x).mean()), counts)
    assert found == ("kink-gradient", "has 1 of the gradient where abs has its kink")


@pytest.mark.parametrize("take", [lambda found: found.values, lambda found: found[0]], ids=["by name", "by place"])
def test_a_gradient_that_is_shared_among_ties_is_named(take):
    found = cause_of(lambda x: take(x.max(-1)), lambda x: x.max(-1))
    assert found == ("kink-gradient", "shares the gradient among equal elements")


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        (lambda x: x.clamp(-0.5, 0.5), lambda x: jnp.clip(x, -0.5, 0.5)),
        (lambda x: torch.clamp(input=x, max=0.5), lambda x: jnp.minimum(x, 0.5)),
        (lambda x: TF.hardtanh(x), lambda x: jnp.clip(x, -1, 1)),
        (lambda x: x + x.round(), jnp.round),
    ],
    ids=["clamp", "by name", "hardtanh", "round"],
)
def test_a_gradient_that_is_handed_on_where_the_references_is_zero_is_named(reference, port):
    def straight_through(x):
        return (x if port is jnp.round else 0) + x + jax.lax.stop_gradient(port(x) - x)

    def inputs(rng):
        return (rng.standard_normal((5, 7)),)

    id, says = cause_of(reference, straight_through, inputs)
    assert id == "straight-through"
    assert says.endswith(" on as it is, where the reference's is zero")


class Averaged(torch.nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean((0, 1)), self.share)
        return x - self.mean


class OtherShare(nnx.Module):
    """As if its share were that of what was there."""

    def __init__(self, share):
        self.share, self.training = share, True
        self.mean = nnx.BatchStat(jnp.zeros(6))

    def __call__(self, x):
        if self.training:
            mean = self.share * self.mean[...] + (1 - self.share) * x.mean((0, 1))
            self.mean[...] = jax.lax.stop_gradient(mean)
        return x - self.mean[...]


@pytest.mark.parametrize("share", [0.1, 0.75])
def test_the_shares_of_lerp_taken_for_one_another_are_named(share):
    report = check(
        Case(
            name="c",
            summary="s",
            reference=lambda: Averaged(share),
            model=lambda rngs: OtherShare(share),
            inputs=lambda rng: (rng.standard_normal((5, 4, 6)),),
            modes=("forward_backward",),
            adversarial=(),
        )
    )
    (cause,) = report.divergences[0].causes
    kept = max(share, 1 - share)
    assert (cause.id, cause.says) == (
        "momentum",
        f"takes the shares {kept:.6g} and {1 - kept:.6g} for one another",
    )


class Grouped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(6, 4, 3, padding=1, groups=2)

    def forward(self, x):
        return self.conv(x)


def grouped(parts):
    class Port(nnx.Module):
        def __init__(self, rngs):
            self.conv = Shuffled(6, 4, 3, padding=1, groups=2, rngs=rngs)

        def __call__(self, x):
            return self.conv(x)

    class Shuffled(gm.nn.Conv2d):
        def __call__(self, x):
            return super().__call__(x.reshape(*x.shape[:-1], -1, parts).swapaxes(-1, -2).reshape(x.shape))

    return Port


IMAGES = {
    "inputs": lambda rng: (rng.standard_normal((2, 6, 5, 7)),),
    "to_model": channels_last,
    "to_reference": channels_first,
}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (2, "takes every n-th channel into a group"),
        (3, "takes channels in the order of [3, 2], not [2, 3]"),
    ],
)
def test_the_order_of_channels_in_groups_is_named(parts, says):
    assert cause_of(Grouped, grouped(parts), **IMAGES) == ("groups", says)


class Grown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.ConvTranspose2d(6, 3, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.conv(x)


class PaddedBefore(gm.nn.ConvTranspose2d):
    """The output padding of the height goes before it."""

    def __call__(self, x):
        whole = super().__call__(x)
        return whole[:, : 2 * x.shape[1], 1:-1]


class PortGrown(nnx.Module):
    def __init__(self, rngs):
        self.conv = PaddedBefore(6, 3, 3, stride=2, padding=0, output_padding=1, rngs=rngs)

    def __call__(self, x):
        return self.conv(x)


def test_an_axis_whose_output_padding_is_at_the_other_side_is_named():
    id, says = cause_of(Grown, PortGrown, **IMAGES)
    assert (id, says) == (
        "output-padding",
        "cuts -1 at the start and +1 at the end of axis 2 beside what the reference cuts",
    )


def test_statistics_over_the_batch_are_named_for_an_instance_norm():
    def over_the_batch(x: jax.Array) -> jax.Array:
        return (x - x.mean((0, 2), keepdims=True)) / jnp.sqrt(x.var((0, 2), keepdims=True) + 1e-5)

    found = cause_of(TF.instance_norm, over_the_batch, lambda rng: (rng.standard_normal((4, 3, 8)),))
    assert found == ("norm-axis", "takes the statistics over the batch, too, as BatchNorm")


class Normed(torch.nn.Module):
    """Of a batch of one, what comes back to the norm is in channels last order."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.InstanceNorm2d(4)

    def forward(self, x, w):
        return torch.einsum("bchw,ck->bhwk", self.norm(x), w)


class NormedPort(nnx.Module):
    def __init__(self, rngs):
        self.norm = gm.nn.InstanceNorm2d(4, data_format="NCHW")

    def __call__(self, x, w):
        return jnp.einsum("bchw,ck->bhwk", self.norm(x), w)


def test_a_gradient_that_pytorch_itself_has_wrong_is_said_to_be_so():
    def inputs(rng):
        return rng.standard_normal((1, 4, 3, 5)), rng.standard_normal((4, 2))

    assert cause_of(Normed, NormedPort, inputs)[0] == "reference-gradient"


class Ranked(torch.nn.Module):
    """What comes first counts most; of what ties, PyTorch says nothing."""

    def forward(self, x):
        return (x.sort(dim=-1, descending=True, stable=True).values / torch.arange(1, x.shape[-1] + 1)).sum(-1)


class RankedOtherwise(nnx.Module):
    def __init__(self, rngs):
        pass

    def __call__(self, x):
        return (jnp.sort(x)[..., ::-1] / jnp.arange(1, x.shape[-1] + 1)).sum(-1)


@pytest.mark.parametrize("ties", [True, False])
def test_a_gradient_that_ties_decide_is_said_to_be_one(ties):
    def inputs(rng):
        return ((rng.integers(0, 3, (4, 9)) if ties else rng.standard_normal((4, 9))).astype(np.float64),)

    case = Case(name="c", summary="s", reference=Ranked, model=RankedOtherwise, inputs=inputs, adversarial=())
    (parity,) = check(case, hasty=True).parity
    assert parity.equal == (not ties)
    told = [note for note in parity.notes if "they lie at a kink or a tie" in note]
    assert bool(told) == ties
    assert all("the reference's own gradient of input.0 is another one" in note for note in told)
