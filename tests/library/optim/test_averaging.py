"""Averages of weights against torch.optim.swa_utils.AveragedModel in float64."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.optim import swa_utils

from graphmode.optim.averaging import ema, swa

# decay, and torch's function; the multi_avg functions first
AVERAGES = {
    "ema": (ema(0.9), {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}, 1e-13),
    "ema, fast": (ema(0.2), {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.2)}, 1e-13),
    "ema, default": (ema(), {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn()}, 1e-13),
    "ema, none": (ema(0.0), {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.0)}, 0),
    "ema, all": (ema(1.0), {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(1.0)}, 0),
    "ema, single": (ema(0.9), {"avg_fn": swa_utils.get_ema_avg_fn(0.9)}, 1e-13),
    "swa": (swa(), {}, 1e-13),
    "swa, single": (swa(), {"avg_fn": swa_utils.get_swa_avg_fn()}, 1e-13),
    # torch makes the weight 1 / (n_averaged + 1) of an integer tensor: in float32, for float64 parameters too
    "swa, multi": (swa(), {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, 1e-6),
}


def params_of(model: torch.nn.Module) -> dict:
    return {name: jnp.asarray(value.detach().numpy().copy()) for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_as_torch(name: str):
    ours, theirs, tolerance = AVERAGES[name]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4, momentum=0.0)).double()
    averaged = swa_utils.AveragedModel(model, **theirs)
    traces = []

    @jax.jit
    def update(average, params, n):
        traces.append(n)
        return ours.update(average, params, n)

    with jax.enable_x64(True):
        average = ours.init(params_of(averaged.module))
        assert jax.tree.map(lambda x: x.dtype, average)["1.num_batches_tracked"] == jnp.int64
        for n in range(12):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += torch.randn_like(parameter)
            model(torch.randn(5, 3, dtype=torch.float64))  # counts a batch; momentum 0 leaves the other buffers
            averaged.update_parameters(model)
            average = update(average, params_of(model), jnp.int32(n))
            for key, want in averaged.module.state_dict().items():
                np.testing.assert_allclose(average[key], want, rtol=tolerance, atol=tolerance)
                assert average[key].dtype == want.numpy().dtype
        assert average["1.num_batches_tracked"] == 12
        assert len(traces) == 1


def test_first_update_copies_and_a_python_count_counts():
    params = {"w": jnp.asarray([1.0, 2.0]), "mask": jnp.asarray([True, False])}
    for averaging in (ema(1.0), swa()):
        average = averaging.init(jax.tree.map(jnp.zeros_like, params))
        average = averaging.update(average, params, 0)
        assert average["w"].tolist() == [1.0, 2.0]
        assert average["mask"].tolist() == [True, False]
    assert swa().update(average, {"w": jnp.zeros(2), "mask": params["mask"]}, 1)["w"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("decay", [0.9, 0.3])
def test_other_dtypes(dtype: str, decay: float):
    rng = np.random.default_rng(0)
    sides = rng.normal(size=(2, 50)) + (1j * rng.normal(size=(2, 50)) if dtype == "complex64" else 0)
    old, new = (torch.tensor(side).to(getattr(torch, dtype)) for side in sides)
    want = copy.deepcopy(old)
    swa_utils.get_ema_multi_avg_fn(decay)([want], [new], 3)
    wide = torch.complex64 if dtype == "complex64" else torch.float32
    got = ema(decay).update(*(jnp.asarray(x.to(wide).numpy()).astype(dtype) for x in (old, new)), 3)
    assert got.dtype == dtype
    units = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "complex64": 1e-6}[dtype]  # one rounding of the result
    np.testing.assert_allclose(
        np.asarray(got.astype(np.result_type(got.dtype, np.float32) if dtype == "complex64" else jnp.float32)),
        want.to(wide).numpy(),
        rtol=2 * units,
        atol=1e-7,
    )


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
def test_decays_outside_are_refused(decay: float):
    if decay == decay:
        with pytest.raises(ValueError, match="Invalid decay"):
            swa_utils.get_ema_multi_avg_fn(decay)
    with pytest.raises(ValueError, match="decay is"):
        ema(decay)


def test_a_traced_decay_is_refused():
    with pytest.raises(TypeError, match="decay is traced"):
        jax.jit(lambda decay: ema(decay).update(jnp.ones(1), jnp.zeros(1), 1))(0.9)


def test_other_trees_are_refused():
    with pytest.raises(ValueError, match=r"params is .* and average is"):
        swa().update({"w": jnp.zeros(2)}, {"v": jnp.zeros(2)}, 1)
    with pytest.raises(ValueError, match=r"params\['w'\] has shape \(3,\), and its average \(2,\)"):
        swa().update({"w": jnp.zeros(2)}, {"w": jnp.zeros(3)}, 1)


@pytest.mark.parametrize("arguments", [{"start": -1}, {"every": 0}])
def test_a_start_or_period_that_is_none(arguments):
    with pytest.raises(ValueError, match="give a start of at least 0, and an every of at least 1"):
        swa(**arguments)
    with pytest.raises(TypeError, match=r"start is 0\.5, and an integer was wanted"):
        swa(start=0.5)
