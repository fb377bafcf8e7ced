"""Layers with the bugs that ports have: the judge sees each on PyTorch's own samples."""

import jax.numpy as jnp
import pytest

from graphmode import nn

from .verdicts import glance_at_module


def setting(**attributes):
    """The layer as it would be with another value of an argument, whatever it was built with."""

    def faulty(cls):
        class Faulty(cls):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                for name, value in attributes.items():
                    setattr(self, name, value(getattr(self, name)) if callable(value) else value)

        return Faulty

    return faulty


def given(change):
    """The layer called with its first input changed."""

    def faulty(cls):
        class Faulty(cls):
            def __call__(self, input, *args, **kwargs):
                return super().__call__(change(input), *args, **kwargs)

        return Faulty

    return faulty


def written(name, change):
    """The layer with a parameter used otherwise than it is held."""

    def faulty(cls):
        class Faulty(cls):
            def __call__(self, *args, **kwargs):
                parameter = getattr(self, name)
                parameter.set_value(change(parameter[...]))
                return super().__call__(*args, **kwargs)

        return Faulty

    return faulty


def gates_in_another_order(weights):
    i, f, g, o = jnp.split(weights, 4, -1)
    return jnp.concatenate([f, i, g, o], -1)


FAULTS = {
    "eps of Flax": ("LayerNorm", setting(eps=1e-6)),
    "eps of Flax in groups": ("GroupNorm", setting(eps=1e-6)),
    "eps where none was given": ("RMSNorm", setting(eps=1e-6)),
    "momentum as the fraction that is kept": ("BatchNorm2d", setting(momentum=lambda m: m if m is None else 1 - m)),
    "twice the eps": ("BatchNorm1d", setting(eps=lambda eps: 2 * eps)),
    "tanh for erf": ("GELU", setting(approximate="tanh")),
    "slope": ("LeakyReLU", setting(negative_slope=0.02)),
    "axis of a softmax": ("Softmax", setting(dim=0)),
    "kernel flipped": ("Conv2d", written("weight", lambda w: w[::-1, ::-1])),
    "kernel transposed": ("Conv1d", written("weight", lambda w: w[::-1])),
    "weights transposed": ("Bilinear", written("weight", lambda w: w[::-1])),
    "padding counted": ("AvgPool2d", setting(count_include_pad=lambda counted: not counted)),
    "gate order": ("LSTMCell", written("weight_ih", gates_in_another_order)),
    "label smoothing dropped": ("CrossEntropyLoss", setting(label_smoothing=0.0, ignore_index=-100)),
    "mean for sum": ("MSELoss", setting(reduction=lambda given: {"mean": "sum", "sum": "mean"}.get(given, given))),
    "hidden bfloat16": ("Tanh", given(lambda x: x.astype(jnp.bfloat16).astype(x.dtype))),
    "hidden float32": ("Sigmoid", given(lambda x: x.astype(jnp.float32).astype(x.dtype))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_judge_sees_it(fault, monkeypatch):
    name, make = FAULTS[fault]
    monkeypatch.setattr(nn, name, make(getattr(nn, name)))
    verdict = glance_at_module(name, 6)
    assert any(" off by " in failure for failure in verdict.failures), verdict.failures[:2]
