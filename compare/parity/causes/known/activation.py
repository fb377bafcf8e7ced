"""Activations: another form, another one, another slope, another axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from ..change import Apply
from ..variants import Called, Fit, Variant, instead, of, signature

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu (tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "softsign": F.softsign,
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "quick gelu, x * sigmoid(1.702 x),": lambda x: x * torch.sigmoid(1.702 * x),
    "leaky_relu with slope 0.2": lambda x: F.leaky_relu(x, 0.2),
    "abs": torch.abs,
    "square": torch.square,
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": torch.exp,
}
PLAIN = ("abs", "square", "sin", "cos", "exp")  # functions of jnp
WAVES = ("sin", "cos")  # which are activations, too
NAMES = tuple(dict.fromkeys(name.partition(" ")[0] for name in ACTIVATIONS if name.isidentifier()))

signature("gelu", "input approximate")
signature("leaky_relu", "input negative_slope inplace")
signature("leaky_relu_", "input negative_slope")
signature("elu celu", "input alpha inplace")
signature("hardtanh", "input min_val max_val inplace")
signature("softplus", "input beta threshold")
signature("softmax log_softmax softmin", "input dim")
signature("glu", "input dim")
signature("clamp", "input min max")
signature("hardshrink softshrink", "input lambd")
signature("threshold", "input threshold value")


@of("gelu")
def gelu_form(call: Called) -> Iterator[Variant]:
    exact = call.get("approximate", "none") == "none"
    did, flag, other = ("its tanh form", "False", "tanh") if exact else ("its exact form, by erf", "True", "none")
    yield Variant(
        "gelu-form",
        f"computes gelu in {did}",
        f"write jax.nn.gelu(x, approximate={flag}), or gm.nn.GELU(approximate={'none' if exact else 'tanh'!r})",
        call.with_(approximate=other),
    )


@of(*NAMES, "relu_", "leaky_relu_", "sigmoid_", "tanh_")
def another_activation(call: Called) -> Iterator[Variant]:
    usual = call.name.rstrip("_")
    write = f"write jnp.{usual}" if usual in PLAIN else f"write gm.nn.functional's {usual}, the reference's activation"
    for name, function in ACTIVATIONS.items():
        if name != usual and not (usual == "gelu" and name.startswith("gelu")):
            is_odd = usual in PLAIN and usual not in WAVES and name not in PLAIN
            yield Variant("activation", f"computes {name} for {usual}", write, _of_first(function), is_guess=is_odd)
    if usual not in (*PLAIN, "hardtanh"):  # which has limits, as clamp has
        yield Variant("activation-missing", f"leaves {usual} out", write, _of_first(lambda x: x.clone()))
    yield Variant("activation-twice", f"applies {usual} twice", write, lambda f, a, k: f(f(*a, **k), *a[1:], **k))


@of("relu", "relu_")
def leaky(call: Called) -> Iterator[Fit]:
    says = "computes leaky_relu with negative_slope={value} for relu"
    yield Fit("activation", says, "write jax.nn.relu", 0.0, _leaky, (0.1, 0.3, 0.25))


def _leaky(value: float) -> Apply:
    return _of_first(partial(F.leaky_relu, negative_slope=value))


@of("leaky_relu", "elu", "celu", "hardshrink", "softshrink", "softplus")
def slope(call: Called) -> Iterator[Fit]:
    for name, usual, likely in (
        ("negative_slope", 0.01, (0.01, 0.2, 0.1, 0.3)),
        ("alpha", 1.0, (1.0, 0.5)),
        ("beta", 1.0, (1.0,)),
        ("lambd", 0.5, (0.5,)),
    ):
        if name in call.names:
            known = float(call.get(name, usual))
            says = f"computes {call.name} with {name}={{value}}"
            yield Fit("activation-slope", says, f"give {name}={{known}}", known, _number(call, name), likely)


@of("softplus")
def softplus_to_the_end(call: Called) -> Iterator[Variant]:
    beta, threshold = (float(call.get(name, usual)) for name, usual in (("beta", 1.0), ("threshold", 20.0)))
    given = "" if (beta, threshold) == (1.0, 20.0) else f", beta={beta:g}, threshold={threshold:g}"
    beyond = f"{'' if beta == 1 else f'{beta:g} '}x > {threshold:g}"

    def everywhere(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + torch.log1p(torch.exp(-beta * x.abs())) / beta

    yield Variant(
        "softplus-threshold",
        f"computes softplus everywhere, as jax.nn.softplus does; the reference's is x where {beyond}",
        f"write gm.nn.functional.softplus(x{given})",
        _of_first(everywhere),
    )


@of("hardtanh", "clamp", "clip", "threshold")
def limits(call: Called) -> Iterator[Fit]:
    names = {"hardtanh": ("min_val", "max_val"), "threshold": ("threshold", "value")}.get(call.name, ("min", "max"))
    for name in names:
        known = call.get(name, {"min_val": -1.0, "max_val": 1.0}.get(name))
        if isinstance(known, int | float):
            says = f"limits by {name}={{value}}"
            yield Fit("limits", says, f"give {name}={{known}}", float(known), _number(call, name), (0.0, 1.0, 6.0))


@of("hardtanh", "clamp", "clip", "clamp_min", "clamp_max")
def no_limits(call: Called) -> Iterator[Variant]:
    """Left out, which cannot be told from limits beyond all values."""
    fix = "limit it as the reference does: jnp.clip, jnp.maximum or jnp.minimum"
    says = f"does not limit: {call.name} is left out, or its limits are beyond every value here"
    yield Variant("limits", says, fix, _of_first(lambda x: x.clone()))
    if call.name in ("clamp", "clip") and None not in (call.get("min"), call.get("max")):
        for name, side in (("min", "lower"), ("max", "upper")):
            says = f"has no {side} limit in {call.name}"
            yield Variant("limits", says, fix, call.with_(**{name: None}))


@of("softmax", "log_softmax", "softmin", "glu")
def axis(call: Called) -> Iterator[Variant]:
    x, dim = call.args[0], call.get("dim", -1)
    for other in range(x.dim()):
        if dim is not None and other != dim % x.dim():
            says = f"takes {call.name} over axis {other}"
            yield Variant("softmax-axis", says, f"take it over the reference's axis {dim}", call.with_(dim=other))


@of("sigmoid", "sigmoid_")
def softmax_for_sigmoid(call: Called) -> Iterator[Variant]:
    for dim in range(call.args[0].dim()):
        yield Variant(
            "activation",
            f"computes softmax over axis {dim} for sigmoid",
            "write jax.nn.sigmoid(x): each element by itself",
            _of_first(partial(torch.softmax, dim=dim)),
        )


@of("softmax", "log_softmax")
def no_softmax(call: Called) -> Iterator[Variant]:
    other = "log_softmax" if call.name == "softmax" else "softmax"
    dim = call.get("dim", -1)
    yield Variant(
        "activation",
        f"computes {other} for {call.name}",
        f"write jax.nn.{call.name}(x, axis={dim})",
        _of_first(lambda x: getattr(F, other)(x, dim=dim)),
    )
    yield Variant(
        "activation-missing",
        f"leaves {call.name} out",
        f"write jax.nn.{call.name}(x, axis={dim})",
        _of_first(lambda x: x.clone()),
    )
    yield Variant(
        "activation",
        f"computes sigmoid for {call.name}",
        f"write jax.nn.{call.name}(x, axis={dim})",
        _of_first(torch.sigmoid),
    )


@of("glu")
def gates_swapped(call: Called) -> Iterator[Variant]:
    dim = call.get("dim", -1)

    def swapped(x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        a, b = x.chunk(2, dim)
        return torch.sigmoid(a) * b

    yield Variant(
        "gate-swapped",
        "gates the second half by the first",
        "gate the first half by the second: a * sigmoid(b), with a, b = jnp.split(x, 2, axis)",
        instead(swapped),
    )


def _of_first(function: Callable[[torch.Tensor], torch.Tensor]):
    return lambda func, args, kwargs: function(args[0] if args else kwargs["input"])


def _number(call: Called, name: str):
    return lambda value: call.with_(**{name: value})
