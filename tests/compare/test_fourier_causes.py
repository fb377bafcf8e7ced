"""Complex parameters, buffers and inputs, Fourier transforms, and what a port makes otherwise of them."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

STEPS, FREQUENCIES, FEATURES = 8, 5, 4


class Reference(torch.nn.Module):
    """A filter with learned complex weights, and a rotation that is no parameter: `[B, time, features]`."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(FREQUENCIES, FEATURES, dtype=torch.cfloat))
        angle = torch.outer(torch.arange(STEPS).float(), 0.1 + torch.arange(FEATURES // 2))
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def forward(self, x):
        x = torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.weight, n=STEPS, dim=1)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.turn).flatten(-2)


class Port(nnx.Module):
    norm, axis = None, 1

    def __init__(self, rngs: nnx.Rngs):
        self.weight = nnx.Param(jnp.zeros((FREQUENCIES, FEATURES), jnp.complex64))

    def factor(self):
        return self.weight[...]

    def turn(self):
        return jnp.exp(1j * jnp.outer(jnp.arange(STEPS), 0.1 + jnp.arange(FEATURES // 2)))

    def __call__(self, x):
        x = jnp.fft.irfft(jnp.fft.rfft(x, axis=self.axis, norm=self.norm) * self.factor(), n=STEPS, axis=1)
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * self.turn()
        return jnp.stack([turned.real, turned.imag], -1).reshape(x.shape)


class Conjugate(Port):
    def factor(self):
        return jnp.conj(super().factor())


class Real(Port):
    def factor(self):
        return super().factor().real


class Ortho(Port):
    norm = "ortho"


class Unturned(Port):
    def turn(self):
        return super().turn().real


def sound(rng):
    return (rng.standard_normal((3, STEPS, FEATURES)),)


def case(port, **fields):
    return Case(name="c", summary="s", reference=Reference, model=port, inputs=sound, **fields)


def test_complex_parameters_and_buffers_keep_what_is_imaginary():
    report = check(case(Port))
    assert report.passed, report
    kinds = {tensor.kind for tensor in report.parity[0].tensors if tensor.name == "weight"}
    assert kinds == {"parameter_gradient"}


@pytest.mark.parametrize(
    ("port", "told"),
    [
        (Conjugate, ("conjugate", "takes the conjugate of operand 2 of mul")),
        (Real, ("imaginary-part", "leaves out what is imaginary in operand 2 of mul")),
        (Ortho, ("fft-norm", "has norm='ortho'")),
        (Unturned, ("imaginary-part", "leaves out what is imaginary in operand 2 of mul")),
    ],
)
def test_what_is_made_otherwise_of_complex_numbers_is_named(port, told):
    assert causes(Reference, port, sound) == [told]


def test_steps_of_training_take_the_gradient_that_pytorch_has():
    import optax

    optimizer = (lambda parameters: torch.optim.SGD(parameters, lr=0.1), optax.sgd(0.1))
    assert check(case(Port, optimizer=optimizer, modes=("train_step",))).passed


class Spectrum(torch.nn.Module):
    def forward(self, z):
        return torch.fft.fft(z).abs()


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (lambda z: jnp.abs(jnp.fft.ifft(z)), ("fft-direction", "computes ifft for fft")),
        (lambda z: jnp.abs(jnp.fft.fft(z, axis=0)), ("axis", "transforms axis 0 for -1")),
    ],
)
def test_complex_inputs_are_in_float64_too(compute, told):
    def inputs(rng):
        return (rng.standard_normal((6, 6)) + 1j * rng.standard_normal((6, 6)),)

    class Right(nnx.Module):
        def __call__(self, z):
            return jnp.abs(jnp.fft.fft(z))

    class Wrong(nnx.Module):
        def __call__(self, z):
            return compute(z)

    right = Case(name="c", summary="s", reference=Spectrum, model=lambda rngs: Right(), inputs=inputs)
    assert check(right).passed
    assert causes(Spectrum, lambda rngs: Wrong(), inputs, modes=("inference",)) == [told]


def test_a_complex_weight_that_is_another_is_caught():
    class Moved(Port):
        def factor(self):
            return super().factor() + np.complex64(1e-6j)

    assert not check(case(Moved), hasty=True, locate=False).passed


class Spectral(torch.nn.Module):
    """A learned product in the lowest frequencies, channels first: `[B, channels, time]`."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(FEATURES, FEATURES, 3, dtype=torch.cfloat))

    def forward(self, x):
        low = torch.fft.rfft(x)[..., :3]
        return torch.fft.irfft(torch.einsum("bix,iox->box", low, self.weight), n=STEPS)


class SpectralPort(nnx.Module):
    equation = "bxi,oix->bxo"

    def __init__(self, rngs: nnx.Rngs):
        self.weight = nnx.Param(jnp.zeros((FEATURES, FEATURES, 3), jnp.complex64))

    def factor(self):
        return self.weight[...]

    def __call__(self, x):
        low = jnp.fft.rfft(x.swapaxes(1, 2), axis=1)[:, :3]
        return jnp.fft.irfft(jnp.einsum(self.equation, low, self.factor()), n=STEPS, axis=1).swapaxes(1, 2)


class Cubed(SpectralPort):
    equation = "bxi,iox->bxo"

    def factor(self):
        return super().factor() * jnp.abs(super().factor()) ** 2


def frames(rng):
    return (rng.standard_normal((3, FEATURES, STEPS)),)


class Listed(Spectral):
    def forward(self, x):
        low = torch.fft.rfft(x)[..., :3]
        return torch.fft.irfft(torch.einsum("bix,iox->box", [low, self.weight]), n=STEPS)


@pytest.mark.parametrize("reference", [Spectral, Listed])
def test_axes_of_equal_length_that_an_einsum_takes_for_one_another_are_told(reference):
    (told,) = causes(reference, SpectralPort, frames)
    assert told == ("weight-transposed", "takes axes 0 and 1 of weight for one another")


def test_the_line_is_found_among_complex_numbers_too():
    case = Case(name="c", summary="s", reference=Spectral, model=Cubed, inputs=frames, adversarial=())
    (divergence,) = check(case, hasty=True).divergences
    assert not divergence.causes
    assert all("fft" not in line for line in divergence.astray.port)
