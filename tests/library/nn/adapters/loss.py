"""Adapters of this room."""

import dataclasses

import jax.numpy as jnp
import torch

import graphmode.nn as ours

from .base import FIRST, LAST, Adapter, to_last


def _called(names):
    """Positional and keyword arguments under their names, for a call that takes them in this order."""

    def named(args, kwargs):
        return {**dict(zip(names, args, strict=False)), **kwargs}

    return named


def _classes_last(array):
    return to_last(array, None) if array.ndim > 2 else array


def _class_loss():
    """Input and (where it is probabilities) target with their classes last; a loss has none."""
    named = _called(["input", "target", "weight"])

    def moved(args, kwargs, layout):
        given = named(args, kwargs)
        if layout == LAST:
            if given["target"].shape == given["input"].shape:
                given["target"] = _classes_last(given["target"])
            given["input"] = _classes_last(given["input"])
        return (), given

    return Adapter(layouts=(LAST, FIRST), inputs=moved)


def _options(options):
    if options is None:
        return None
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    if given["acc_dtype"] is not None:
        given["acc_dtype"] = str(given["acc_dtype"]).removeprefix("torch.")
    return ours.LinearCrossEntropyOptions(**given)


def _build_linear(build, args, kwargs, extras):
    return ours.LinearCrossEntropyLoss(*args, **{**kwargs, "options": _options(kwargs.get("options"))}, **extras)


def _linear_module(args, kwargs, layout):
    input, target = args
    if layout == LAST and jnp.issubdtype(target.dtype, jnp.floating):
        target = _classes_last(target)
    return (input, target), kwargs


def _linear_function(args, kwargs, layout):
    given = _called(["input", "linear_weight", "target"])(args, kwargs)
    weight, bias = given["linear_weight"], given.get("linear_bias")
    if layout == LAST:
        if given["target"].ndim and given["target"].shape == (*given["input"].shape[:-1], *weight.shape[:-1]):
            given["target"] = _classes_last(given["target"])
        weight, bias = jnp.moveaxis(weight, 0, -2), None if bias is None else jnp.moveaxis(bias, 0, -1)
    given |= {"linear_weight": jnp.moveaxis(weight, -1, 0), "linear_bias": bias}
    given["options"] = _options(given.get("options"))
    return (), given


def _with_distance(args, kwargs, layout):
    if isinstance(kwargs.get("distance_function"), torch.nn.PairwiseDistance):
        kwargs = {**kwargs, "distance_function": None}
    return args, kwargs


_CLASSES = _class_loss()
ADAPTERS: dict[str, Adapter] = {
    "NLLLoss": _CLASSES,
    "CrossEntropyLoss": _CLASSES,
    "LinearCrossEntropyLoss": Adapter(layouts=(LAST, FIRST), build=_build_linear, inputs=_linear_module),
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "nll_loss": _CLASSES,
    "cross_entropy": _CLASSES,
    "linear_cross_entropy": Adapter(layouts=(LAST, FIRST), inputs=_linear_function),
    "triplet_margin_with_distance_loss": Adapter(inputs=_with_distance),
}
