"""float16 with dynamic loss scaling beside `torch.amp.GradScaler`, bfloat16 beside `torch.autocast`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from graphmode.compare.parity.yardstick import PRECISE_RATIO, error_ratio
from torch_loops import (
    as_tensors,
    assert_identical,
    assert_same,
    batches,
    cross_entropy,
    host,
    in_double,
    in_torch,
    pair,
    torch_cross_entropy,
)

import graphmode as gm
from graphmode.training import LossScaling

FACTORS = {
    "overflows": [1, np.inf, 1, 1, 1, np.inf, np.nan, 1, 1, 1, 1, 1, 1, 1],
    "at first": [np.inf, np.inf, np.inf, 1, 1, 1, 1],
    "none": [1] * 8,
}


def times_factor(model, batch):
    return cross_entropy(model, batch) * batch["factor"][0]


def with_factors(factors, dtype="float64"):
    return [
        batch | {"factor": np.full(8, factor, dtype)}
        for batch, factor in zip(batches(len(factors), dtype=dtype), factors, strict=True)
    ]


def in_scaler(net, optimizer, given, scaling, clip_norm=None):
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=scaling.init_scale,
        growth_factor=scaling.growth_factor,
        backoff_factor=scaling.backoff_factor,
        growth_interval=scaling.growth_interval,
    )
    scales, skipped = [], []
    for batch in given:
        scales.append(scaler.get_scale())
        optimizer.zero_grad()
        tensors = as_tensors(batch)
        scaler.scale(torch_cross_entropy(net, tensors) * tensors["factor"][0]).backward()
        if clip_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
        scaler.step(optimizer)
        scaler.update()
        skipped.append(scaler.get_scale() < scales[-1])
    return [*scales, scaler.get_scale()], skipped


@pytest.mark.parametrize("clip_norm", [None, 0.3])
@pytest.mark.parametrize("factors", FACTORS.values(), ids=FACTORS)
@pytest.mark.usefixtures("double")
def test_scales_skips_and_parameters_are_those_of_grad_scaler(factors, clip_norm):
    """Autocast leaves float64 as it is, on both sides: what is left is the scaling, to ten digits."""
    net, model = pair()
    scaling = LossScaling(init_scale=1024.0, growth_interval=3)
    given = with_factors(factors)
    scales, skipped = in_scaler(net, torch.optim.AdamW(net.parameters(), lr=0.01), given, scaling, clip_norm)
    step = gm.train_step(
        model, times_factor, gm.optim.adamw(lr=0.01), precision="float16", loss_scaling=scaling, clip_norm=clip_norm
    )
    state = step.init()
    for number, batch in enumerate(given):
        before = host((state.params, state.optimizer))
        state, metrics = step(state, batch)
        assert float(metrics["loss_scale"]) == scales[number]
        assert bool(metrics["skipped"]) == skipped[number]
        if skipped[number]:
            assert_identical(host((state.params, state.optimizer)), before)
        else:
            assert any(a.tobytes() != b.tobytes() for a, b in zip(host(state.params), before, strict=False))
    assert skipped == [not np.isfinite(factor) for factor in factors]
    assert float(state.scale.value) == scales[-1]
    assert int(state.step) == len(factors)
    assert int(state.bad_step) == -1
    assert_same(step, state, net)


@pytest.mark.parametrize("factor", [1.5, 4.0])
@pytest.mark.usefixtures("double")
def test_growth_ends_at_the_largest_number(factor):
    net, model = pair()
    scaling = LossScaling(init_scale=2.0**126, growth_factor=factor, growth_interval=1)
    given = with_factors([1e-30] * 4)
    scales, _ = in_scaler(net, torch.optim.SGD(net.parameters(), lr=0.01), given, scaling)
    step = gm.train_step(
        model, times_factor, gm.optim.sgd(lr=0.01), precision="float16", loss_scaling=scaling, clip_norm=None
    )
    state, found = step.init(), []
    for batch in given:
        state, metrics = step(state, batch)
        found.append(float(metrics["loss_scale"]))
    assert [*found, float(state.scale.value)] == scales


def test_a_value_beyond_float16_is_skipped_in_true_half_precision():
    _, model = pair(dtype=torch.float32)
    step = gm.train_step(
        model,
        cross_entropy,
        gm.optim.adamw(lr=0.01),
        precision="float16",
        loss_scaling=LossScaling(init_scale=128.0, growth_interval=100),
    )
    given = batches(4, dtype="float32")
    given[2]["image"][0, 0, 0, 0] = 1e6
    state, kept, scales = step.init(), [], []
    for batch in given:
        state, _ = step(state, batch)
        kept.append(host((state.params, state.optimizer)))
        scales.append(float(state.scale.value))
        assert {str(x.dtype) for x in kept[-1]} == {"float32", "int32"}
    assert_identical(kept[1], kept[2])
    assert any(a.tobytes() != b.tobytes() for a, b in zip(kept[0], kept[1], strict=True))
    assert scales == [128.0, 128.0, 64.0, 64.0]


def test_float16_lowers_its_products_and_skips_by_a_conditional():
    model = gm.nn.Linear(3, 2, rngs=nnx.Rngs(0))
    text = {}
    for precision in ("float32", "float16"):
        step = gm.train_step(
            model, lambda m, b: jnp.mean(m(b) ** 2), gm.optim.sgd(), precision=precision, on_nonfinite="ignore"
        )
        text[precision] = step.lower(step.init(), np.ones((4, 3), np.float32)).as_text()
    assert text["float32"].count("stablehlo.case") == 0
    assert text["float16"].count("stablehlo.case") == 1
    assert "xf16>" in text["float16"]
    assert "xf16>" not in text["float32"]


@pytest.mark.usefixtures("double")
def test_a_loss_that_stays_nan_is_bad_once_the_scale_is_smaller_than_any_need():
    _, model = pair()
    scaling = LossScaling(init_scale=4.0, smallest=0.5)
    step = gm.train_step(model, times_factor, gm.optim.adamw(), precision="float16", loss_scaling=scaling)
    state, seen = step.init(), []
    before = host((state.params, state.optimizer))
    for batch in with_factors([np.nan] * 6 + [1.0]):
        state, _ = step(state, batch)
        seen.append((int(state.step), int(state.bad_step), float(state.scale.value)))
    assert seen == [(1, -1, 2.0), (2, -1, 1.0), (3, -1, 0.5), *[(3, 3, 0.5)] * 4]
    assert_identical(host((state.params, state.optimizer)), before)


@pytest.mark.usefixtures("double")
def test_accumulated_parts_overflow_together():
    net, model = pair()
    scaling = LossScaling(init_scale=64.0)
    step = gm.train_step(
        model, times_factor, gm.optim.sgd(lr=0.1), precision="float16", loss_scaling=scaling, accumulate=2
    )
    given = with_factors([1, 1])
    state, _ = step(step.init(), given[0])
    in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), given[:1], parts=2)
    assert_same(step, state, net)
    given[1]["factor"][4:] = np.inf
    before = host(state.params)
    state, metrics = step(state, given[1])
    assert bool(metrics["skipped"])
    assert_identical(host(state.params), before)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_accumulated_parts_overflow_where_pytorchs_do(parts):
    """In float16, whose largest number 65504 the initial scale exceeds and its part does not always."""
    reference = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(reference.weight)
    model = gm.nn.Linear(1, 1, bias=False, rngs=nnx.Rngs(0))
    gm.weights.load(model, reference.state_dict())
    optimizer = torch.optim.SGD(reference.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3)
    step = gm.train_step(
        model,
        lambda model, x: jnp.mean(model(x).astype(jnp.float32)),
        gm.optim.sgd(lr=1e-4),
        precision="float16",
        loss_scaling=LossScaling(init_scale=2.0**16, growth_interval=3),
        accumulate=parts,
    )
    state, skips = step.init(), []
    for number in range(12):
        x = np.full((12, 1), [0.4, 0.9, 1.7][number % 3], np.float32)
        scale = scaler.get_scale()
        optimizer.zero_grad()
        for part in np.split(x, parts):
            with torch.autocast("cpu", torch.float16):
                y = reference(torch.from_numpy(part))
            scaler.scale(y.float().mean() / parts).backward()
        scaler.step(optimizer)
        scaler.update()
        state, metrics = step(state, x)
        assert float(metrics["loss_scale"]) == scale
        skips.append(bool(metrics["skipped"]))
        assert skips[-1] == (scaler.get_scale() < scale)
        ours = gm.weights.to_state_dict(step.model(state))["weight"]
        torch.testing.assert_close(ours, reference.weight.detach(), rtol=1e-6, atol=0)
    assert 0 < sum(skips) < 12


def test_bfloat16_is_as_precise_as_pytorchs_autocast():
    """64 losses over 64 steps, three times, each against the same in float64."""
    ours, theirs, exact = [], [], []
    _, model = pair(dtype=torch.float32)
    step = gm.train_step(model, cross_entropy, gm.optim.sgd(lr=0.1), precision="bfloat16")
    for seed in range(3):
        given = batches(64, seed=seed, dtype="float32")
        state, found = step.init(), []
        for batch in given:
            state, metrics = step(state, batch)
            found.append(metrics["loss"])
        ours.append(np.array(found, np.float32))
        assert {x.dtype for x in host(state.params)} == {np.dtype("float32")}
        net, _ = pair(dtype=torch.float32)
        low = torch.autocast("cpu", torch.bfloat16)(torch_cross_entropy)
        theirs.append(
            np.array(in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), given, loss=low)[0], np.float32)
        )
        with in_double():
            net, _ = pair(dtype=torch.float32)
            net = net.double()
            wide = [batch | {"image": batch["image"].astype(np.float64)} for batch in given]
            exact.append(np.array(in_torch(net, torch.optim.SGD(net.parameters(), lr=0.1), wide)[0]))
    assert step.traces == 1
    ratio = error_ratio(ours, theirs, exact, dtype="bfloat16")
    assert ratio is not None
    assert ratio <= PRECISE_RATIO
    errors = [np.abs(a - b).max() for a, b in zip(ours, exact, strict=True)]
    assert min(errors) > 1e-6, "nothing was computed in bfloat16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth_factor": 1.0}, "growth_factor is 1.0"),
        ({"backoff_factor": 1.0}, "backoff_factor is 1.0"),
        ({"backoff_factor": 0.0}, "backoff_factor is 0.0"),
        ({"growth_interval": 0}, "growth_interval is 0"),
        ({"init_scale": 0.0}, "init_scale 0.0"),
    ],
)
def test_scaling_that_does_not_scale_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LossScaling(**arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_element_is_found(bad):
    tree = {"a": jnp.ones((3, 4)), "b": jnp.ones(()), "c": jnp.zeros((0,)), "d": jnp.arange(3)}
    finite = gm.training.loss_scaling.all_finite
    assert bool(finite(tree))
    assert not bool(finite(tree | {"a": tree["a"].at[1, 2].set(bad)}))
    assert not bool(finite(tree | {"b": jnp.asarray(bad)}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_element_among_many_is_found(bad, dtype):
    finite = jax.jit(gm.training.loss_scaling.all_finite)
    many = jnp.full((128, 128), jnp.finfo(dtype).max, dtype)  # as large as they may be, and a sum of them is not
    assert bool(finite(many))
    for at in ((0, 0), (57, 3), (127, 127)):
        assert not bool(finite(many.at[at].set(bad)))
