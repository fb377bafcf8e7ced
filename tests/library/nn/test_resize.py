"""Interpolation and grid sampling where PyTorch's own samples do not go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from graphmode import nn
from graphmode.nn import functional as F
from graphmode.nn.resize import taps

from .judging import Verdict, judge_equal
from .samples import function_sample


def image(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def agrees(sample):
    verdict = Verdict(sample.subject)
    judge_equal(sample, verdict)
    assert not verdict.failures, "\n".join(verdict.failures)
    assert verdict.tried


RESIZES = {
    "whole enlargement": {"size": (10, 21), "mode": "bilinear"},
    "whole enlargement, cubic": {"scale_factor": (2, 3), "mode": "bicubic"},
    "enlargement by a given factor that is none of the sizes'": {"scale_factor": 2.3, "mode": "bilinear"},
    "the same, recomputed": {"scale_factor": 2.3, "mode": "bicubic", "recompute_scale_factor": True},
    "shrunk": {"size": (3, 2), "mode": "bicubic"},
    "to one pixel with corners aligned": {"size": 1, "mode": "bilinear", "align_corners": True},
    "cubic, corners aligned": {"size": (9, 5), "mode": "bicubic", "align_corners": True},
    "antialias, shrunk": {"size": (2, 3), "mode": "bilinear", "antialias": True},
    "antialias, enlarged": {"size": (11, 9), "mode": "bicubic", "antialias": True},
    "antialias, both, by a factor": {"scale_factor": (0.4, 1.7), "mode": "bicubic", "antialias": True},
    "antialias, corners aligned": {"size": (3, 9), "mode": "bilinear", "antialias": True, "align_corners": True},
    "nearest by a factor": {"scale_factor": 0.6, "mode": "nearest"},
    "nearest-exact by a factor": {"scale_factor": 1.9, "mode": "nearest-exact"},
    "nearest, shrunk by a whole number": {"size": (1, 3), "mode": "nearest"},
    "area": {"size": (2, 10), "mode": "area"},
}


@pytest.mark.parametrize("name", RESIZES)
def test_interpolation(name):
    agrees(function_sample("interpolate", image(2, 3, 5, 7), **RESIZES[name]))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_factor_that_leaves_or_doubles_a_length_counts_as_in_pytorch(axes, mode):
    x = np.arange(3**axes, dtype=np.float32).reshape(1, 1, *[3] * axes)
    for factor in (1.3, 2.1):
        wanted = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=factor, mode=mode)
        found = F.interpolate(jnp.asarray(x), scale_factor=factor, mode=mode, data_format="channels_first")
        np.testing.assert_array_equal(found, wanted.numpy())


@pytest.mark.parametrize("name", [name for name, how in RESIZES.items() if how["mode"] != "area"])
def test_an_empty_batch_stays_empty(name):
    wanted = torch.nn.functional.interpolate(image(0, 3, 5, 7), **RESIZES[name])
    found, pull = jax.vjp(lambda x: F.interpolate(x, **RESIZES[name], data_format="NCHW"), jnp.zeros((0, 3, 5, 7)))
    assert found.shape == wanted.shape
    assert pull(found)[0].shape == (0, 3, 5, 7)


def test_many_taps_are_summed_in_a_loop(monkeypatch, retraced):
    monkeypatch.setattr(taps, "UNROLLED", 3)
    for mode in ("bilinear", "bicubic", "area"):
        agrees(function_sample("interpolate", image(2, 3, 5, 7), size=(8, 2), mode=mode))


SPREADS = {
    "area": {"size": (3, 4), "mode": "area"},
    "area, of many pixels": {"size": (1, 1), "mode": "area"},
    "bilinear": {"size": (5, 17), "mode": "bilinear"},
    "bilinear, whole": {"scale_factor": 2, "mode": "bilinear"},
    "bilinear, corners aligned": {"size": (13, 5), "mode": "bilinear", "align_corners": True},
    "bicubic": {"size": (5, 17), "mode": "bicubic"},
    "antialias": {"size": (2, 4), "mode": "bilinear", "antialias": True},
    "antialias, cubic": {"size": (2, 21), "mode": "bicubic", "antialias": True},
}


@pytest.mark.parametrize("pixel", [(0, 0), (3, 4), (6, 8)])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", SPREADS)
def test_a_pixel_that_is_not_finite_reaches_no_further_than_pytorchs(name, value, pixel):
    x = image(1, 2, 7, 9, dtype=torch.float32).detach()
    x[0, 1, *pixel] = value
    wanted = torch.nn.functional.interpolate(x, **SPREADS[name])
    found = F.interpolate(jnp.asarray(x.numpy()), **SPREADS[name], data_format="NCHW")
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SPREADS)
def test_a_gradient_that_is_not_finite_reaches_no_further_than_pytorchs(name):
    x = image(1, 2, 7, 9, dtype=torch.float32)
    out = torch.nn.functional.interpolate(x, **SPREADS[name])
    cotangent = torch.ones_like(out)
    cotangent[0, 1, out.shape[2] // 2, out.shape[3] // 2] = np.inf
    (wanted,) = torch.autograd.grad(out, x, cotangent)
    _, pull = jax.vjp(lambda x: F.interpolate(x, **SPREADS[name], data_format="NCHW"), jnp.asarray(x.detach().numpy()))
    (found,) = pull(jnp.asarray(cotangent.numpy()))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("out", [3, 14, 15, 29, 64, 100])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_takes_the_pixel_that_pytorch_takes(mode, out):
    x = torch.arange(29.0)[None, None]
    wanted = torch.nn.functional.interpolate(x, size=out, mode=mode)
    found = F.interpolate(jnp.asarray(x.numpy()), out, mode=mode, data_format="NCL")
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_far_outside_and_on_the_borders(mode, padding_mode, align_corners):
    grid = image(2, 4, 5, 2, seed=1).detach() * 2
    grid[0, 0] = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [0.0, 0.0], [5.5, -7.25]])
    agrees(
        function_sample(
            "grid_sample",
            image(2, 3, 5, 7),
            grid.requires_grad_(),
            mode=mode,
            padding_mode=padding_mode,
            align_corners=align_corners,
        )
    )


def test_an_image_of_numpy_is_sampled():
    x = np.arange(9, dtype="float32").reshape(1, 3, 3, 1)
    np.testing.assert_array_equal(F.grid_sample(x, np.zeros((1, 1, 1, 2), "float32")), [[[[4]]]])


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 1), (2, 3, 4, 5, 2)])
def test_affine_grid(size, align_corners):
    rank = len(size) - 2
    theta = image(2, rank, rank + 1)
    agrees(function_sample("affine_grid", theta, size, align_corners=align_corners))


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (nn.Upsample(scale_factor=2), torch.nn.Upsample(scale_factor=2), (2, 3, 5)),
        (nn.Upsample((4, 6), mode="bicubic"), torch.nn.Upsample((4, 6), mode="bicubic"), (2, 3, 5, 4)),
        (nn.UpsamplingNearest2d(scale_factor=3), torch.nn.UpsamplingNearest2d(scale_factor=3), (2, 3, 5, 4)),
        (nn.UpsamplingBilinear2d((7, 8)), torch.nn.UpsamplingBilinear2d((7, 8)), (2, 3, 5, 4)),
    ],
)
def test_modules(ours, theirs, shape):
    x = image(*shape).detach()
    with jax.enable_x64(True):
        found = ours(jnp.moveaxis(jnp.asarray(x.numpy()), 1, -1))
        np.testing.assert_allclose(jnp.moveaxis(found, -1, 1), theirs(x).numpy(), atol=1e-14)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_bfloat16_is_kept_and_computed_in_float32(mode):
    x = image(2, 3, 6, 7).detach().to(torch.bfloat16)
    wanted = torch.nn.functional.interpolate(x, size=(4, 9), mode=mode)
    found = F.interpolate(jnp.asarray(x.float().numpy(), jnp.bfloat16), (4, 9), mode=mode, data_format="NCHW")
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted.float().numpy(), rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "give one of size and scale_factor"),
        ({"size": 3, "scale_factor": 2}, "not both"),
        ({"size": (3, 4, 5)}, r"size is \(3, 4, 5\)"),
        ({"size": 0}, "size is 0"),
        ({"scale_factor": -1}, "scale_factor is -1"),
        ({"size": 3, "mode": "linear"}, "mode is 'linear', for 1 spatial axes, and input has 2"),
        ({"size": 3, "mode": "cubic"}, "mode is 'cubic'; choose"),
        ({"size": 3, "align_corners": True}, "align_corners is True and mode 'nearest'"),
        ({"size": 3, "antialias": True}, "antialias is for"),
        ({"scale_factor": 0.01}, "give lengths of 1 or more"),
        ({"size": 3, "data_format": "NCDHW"}, "data_format is 'NCDHW'"),
    ],
)
def test_bad_arguments_are_named(arguments, told):
    with pytest.raises(ValueError, match=told):
        F.interpolate(jnp.ones((1, 4, 5, 2)), **arguments)


@pytest.mark.parametrize("mode", ["area", "bilinear", "bicubic"])
def test_integers_have_no_averages(mode):
    with pytest.raises(TypeError, match="input is int32, and a floating dtype was wanted"):
        F.interpolate(jnp.ones((1, 4, 5, 2), jnp.int32), 2, mode=mode)


def test_bad_grids_are_named():
    x = jnp.ones((2, 4, 5, 3))
    with pytest.raises(ValueError, match=r"grid has shape \(2, 3, 3, 3\), and \[2, \*, \*, 2\] was wanted"):
        F.grid_sample(x, jnp.ones((2, 3, 3, 3)))
    with pytest.raises(TypeError, match="input is float32 and grid is bfloat16"):
        F.grid_sample(x, jnp.ones((2, 3, 3, 2), jnp.bfloat16))
    with pytest.raises(ValueError, match="mode is 'bicubic', which is for images"):
        F.grid_sample(jnp.ones((2, 4, 5, 6, 3)), jnp.ones((2, 3, 3, 3, 3)), "bicubic")
    with pytest.raises(ValueError, match=r"Upsample: size is \(1, 2, 3\)"):
        nn.Upsample((1, 2, 3))(x)
