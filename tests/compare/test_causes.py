"""Causes: what a port does instead is named, by trying it on the reference; what nothing known explains is not."""

import block_sample
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from block_sample import becomes, sets
from graphmode.compare.parity.causes import explain
from graphmode.compare.parity.causes.change import Site
from graphmode.compare.parity.causes.dropout import dropout_on
from graphmode.compare.parity.causes.fit import plain, solve
from graphmode.compare.parity.causes.target import Aim, Target
from graphmode.compare.parity.causes.variants import Variant, variants
from looked_into import look
from test_inside import skips_norm, stopped, without_residual

from graphmode import nn


def tanh_gelu(self, x):
    return x + self.outer(jax.nn.gelu(self.inner(self.norm(x)))) / 2


def scaled(self, x):
    return x + 0.75 * self.outer(jax.nn.gelu(self.inner(self.norm(x)), approximate=False)) / 2


def first_mixer_twice(self, x):
    h = self.project(self.flat(self.relu(self.bn(self.conv(x)))))
    for mixer in (self.mixers[0], self.mixers[0]):
        h = self.relu(mixer(h))
    return self.head(self.softmax(h))


def constant_bias(self, x):
    return type(self).__mro__[1].__call__(self, x) - self.bias[...] + 0.3


def noisy(self, x):
    h = type(self).__mro__[1].__call__(self, x)
    return h + 1e-3 * jnp.sin(1e3 * h)


def transposed(self, x):
    return x @ self.weight[...].T + self.bias[...]


def casting(self, x):
    return type(self).__mro__[1].__call__(self, x.astype(jnp.float32).astype(x.dtype))


@pytest.mark.parametrize(
    ("plant", "mode", "cause", "word"),
    [
        (becomes("mixers.0", __call__=tanh_gelu), "inference", "gelu-form", "tanh form"),
        (becomes("mixers.0", __call__=without_residual), "inference", "residual-missing", "residual"),
        (becomes("mixers.1", __call__=skips_norm), "inference", "norm-missing", "where the reference hands"),
        (becomes("mixers.1", __call__=scaled), "inference", "scale", "0.75"),
        (becomes("mixers.1.outer", __call__=stopped), "forward_backward", "stop-gradient", "stops"),
        (becomes("mixers.1.outer", __call__=transposed), "inference", "weight-transposed", "untransposed"),
        (becomes("", softmax=lambda self, h: jax.nn.softmax(h, axis=0)), "inference", "softmax-axis", "axis 0"),
        (becomes("", flat=lambda self, h: h.reshape(h.shape[0], -1)), "inference", "flatten-order", "channels last"),
        (sets("mixers.1.norm", eps=3e-4), "inference", "epsilon", "0.0003"),
        (sets("bn", momentum=0.9), "forward_backward", "momentum", "keeps 0.1"),
        (sets("bn", momentum=0.25), "forward_backward", "momentum", "0.25"),
        (lambda m: setattr(m, "relu", nn.SiLU()), "inference", "activation", "silu for relu"),
        (becomes("", __call__=first_mixer_twice), "inference", "layer-repeated", "mixers.0 where the reference calls"),
        (becomes("mixers.0.inner", __call__=constant_bias), "inference", "parameter-constant", "0.3 in all of bias"),
    ],
)  # fmt: skip
def test_the_cause_is_named(plant, mode, cause, word):
    found = look(block_sample.case(plant), mode)
    (divergence,) = found.divergences()
    causes = explain(found, divergence).causes
    assert causes[0].id == cause
    assert word in causes[0].says
    assert causes[0].residual < 1e-12


@pytest.mark.parametrize("path", ["mixers.0.inner", "conv", "bn", "mixers.1"])
def test_what_nothing_known_explains_is_not_explained(path):
    found = look(block_sample.case(becomes(path, __call__=noisy)), "inference")
    (divergence,) = found.divergences()
    assert divergence.module == path
    assert explain(found, divergence).causes == []


def test_a_hidden_cast_is_named_with_its_line():
    from graphmode.compare import check

    report = check(block_sample.case(becomes("mixers.0.inner", __call__=casting)), draws=1, hasty=True)
    assert report.first_divergence.module == "mixers.0.inner"
    (cause,) = report.first_divergence.causes
    assert cause.id == "hidden-cast"
    assert f"test_causes.py:{casting.__code__.co_firstlineno + 1}" in cause.says


def rounding(self, x):
    return jax.lax.reduce_precision(type(self).__mro__[1].__call__(self, x), exponent_bits=8, mantissa_bits=10)


def test_a_rounding_to_tf32_is_named():
    from graphmode.compare import check

    report = check(block_sample.case(becomes("mixers.0.inner", __call__=rounding)), draws=1, hasty=True)
    (cause,) = report.first_divergence.causes
    assert cause.id == "hidden-cast"
    assert cause.says.startswith("casts float64 to TF32 at test_causes.py:")


def test_a_cast_beside_another_bug_is_not_taken_for_the_whole_of_it():
    from graphmode.compare.parity.causes import explain_casts

    def both(model):
        becomes("mixers.0.inner", __call__=casting)(model)
        sets("mixers.1.norm", eps=1e-3)(model)

    found = look(block_sample.case(both), "inference")
    assert explain_casts(found.port, found.question, found.observed, ["", "mixers.0.inner"]) == {}


def forms(function, *args, **kwargs):
    """What the known differences make of a call, by their ids."""
    site = Site(0, function.__name__, function, args, kwargs, function(*args, **kwargs))
    return [(v.id, v.apply(function, args, kwargs)) for v in variants(site) if isinstance(v, Variant)]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "cause", "wrong"),
    [
        (torch.floor, (torch.tensor([-1.5, 0.7]),), {}, "rounding", [-1, 0]),
        (torch.exp, (torch.tensor([0.0, 2.0]),), {}, "exponent", [1.0, torch.tensor(1.0).exp().item()]),
        (torch.exp, (torch.tensor([0.0, 0.5]),), {}, "exponent", [1.0, torch.tensor(1.0).exp().item()]),
        (torch.round, (torch.tensor([-1.5, 0.7]),), {}, "rounding", [-2, 0]),
        (torch.div, (torch.tensor([-7]), 2), {"rounding_mode": "floor"}, "rounding", [-3]),
        (torch.floor_divide, (torch.tensor([-7]), 2), {}, "rounding", [-3]),
        (torch.remainder, (torch.tensor([-7]), 3), {}, "rounding", [-1]),
        (torch.mul, (torch.tensor([2**20]), 2**12), {}, "integer-overflow", [0]),
        (torch.cumsum, (torch.tensor([2**30, 2**30, 2**30]), 0), {}, "integer-overflow", [2**30, -(2**31), -(2**30)]),
        (torch.Tensor.unflatten, (torch.arange(6), 0, (2, 3)), {}, "head-order", [[0, 2, 4], [1, 3, 5]]),
        (torch.Tensor.unflatten, (torch.arange(6), 0, (2, 3)), {}, "heads", [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_a_known_difference_of_a_call_gives_what_the_port_gives(function, args, kwargs, cause, wrong):
    assert any(id == cause and made.tolist() == wrong for id, made in forms(function, *args, **kwargs))


def test_integers_that_fit_do_not_overflow():
    assert not [id for id, _ in forms(torch.mul, torch.tensor([3]), 4) if id == "integer-overflow"]


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (lambda x, kept: np.where(kept, x / 0.75, 0), "p=0.25 is on"),
        (lambda x, kept: np.where(kept, x, 0), None),  # a mask
        (lambda x, kept: np.where(kept, 2 * x, 0), None),  # too few for this factor
        (lambda x, kept: x / 0.75, None),
    ],
)
def test_dropout_is_told_by_its_mark(made, cause):
    rng = np.random.default_rng(0)
    x, kept = rng.standard_normal((20, 20)), rng.random((20, 20)) < 0.75
    found = dropout_on(Target({("output", "output"): Aim(made(x, kept), x, 1.0)}))
    assert (found and cause in found.says) if cause else found is None


def test_numbers_are_found_and_written_short():
    import numpy as np

    x = np.linspace(0.5, 2, 20)
    value = solve(lambda v: 1 / (x + v) - 1 / (x + 0.0125), 1e-5, (1e-3,))
    assert plain(value, lambda v: abs(v - 0.0125) < 1e-9) == 0.0125
    assert solve(lambda v: x, 1.0) is None
