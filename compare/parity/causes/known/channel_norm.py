"""Norms over channels and of weights: the statistics of other axes, and what a length is divided and multiplied by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..variants import Called, Fit, Variant, instead, of, signature

signature("local_response_norm", "input size alpha beta k")
signature("_weight_norm", "v g dim")
signature("normalize", "input p dim eps")
EPSILONS = (1e-5, 1e-6, 1e-8, 1e-10)
THROUGH = "let it through: no jax.lax.stop_gradient there"


@of("group_norm", "instance_norm")
def at_each_position(call: Called) -> Iterator[Variant]:
    """The statistics of each pixel over its channels, as of a LayerNorm that has the channels last."""
    weight, bias, eps = call.get("weight"), call.get("bias"), call.get("eps", 1e-5)

    def normalised(func: Any, args: Any, kwargs: Any) -> Any:
        last = args[0].movedim(1, -1)
        return F.layer_norm(last, last.shape[-1:], weight, bias, eps).movedim(-1, 1)

    if call.args[0].dim() > 2:
        yield Variant(
            "norm-axis",
            "takes the statistics over the channels at each position, as LayerNorm with channels last",
            f"take them over the positions, too, as {call.name} does",
            normalised,
        )


@of("_weight_norm")
def of_weight(call: Called) -> Iterator[Variant]:
    """The direction and the length of a weight."""
    axis = call.get("dim", 0)
    fix = f"g * v / |v|, with the norm over all axes of the weight but {axis}"
    for other in range(call.args[0].dim()):
        if other != axis:
            yield Variant("norm-axis", f"takes a norm for each place of axis {other}", fix, instead(_kept(other)))
        yield Variant("norm-axis", f"takes the norm over axis {other} alone", fix, instead(_over(other)))
    yield Variant("norm-axis", "takes the norm of the whole weight", fix, instead(lambda v, g, dim=0: g * v / v.norm()))
    yield Variant("norm-missing", "does not divide by the norm", fix, instead(lambda v, g, dim=0: g * v))
    yield Variant("scale-missing", "does not multiply by the length", fix, instead(_without_length))
    yield Variant("stop-gradient", "stops the gradient by the norm", THROUGH, instead(_constant_norm))


@of("normalize")
def length(call: Called) -> Iterator[Variant | Fit]:
    """`torch.nn.functional.normalize`: each vector divided by its length."""
    x, order, axis = call.args[0], call.get("p", 2.0), call.get("dim", 1)
    fix = f"divide by the norm over axis {axis}: x / jnp.maximum(jnp.linalg.norm(x, axis={axis}, keepdims=True), eps)"
    yield Variant("norm-missing", "does not divide by the length", fix, lambda func, args, kwargs: args[0].clone())
    for other in range(x.dim()):
        if other != axis % x.dim():
            yield Variant("norm-axis", f"takes the length over axis {other}", fix, call.with_(dim=other))
    if x.dim() > 2:
        axes = tuple(range(2, x.dim()))
        yield Variant("norm-axis", f"takes the length over axes {axes}", fix, call.with_(dim=axes))
    yield Variant(
        "norm-axis", "takes the length of all axes but the first", fix, call.with_(dim=tuple(range(1, x.dim())))
    )
    yield Variant("scale", "divides by the squared length", fix, instead(_by_square))
    yield Variant("stop-gradient", "stops the gradient by the length", THROUGH, instead(_constant_length))
    eps = call.get("eps", 1e-12)
    adds = "adds {value} to the length, where the reference limits the length to " + f"{eps:g}"
    yield Variant("limits", adds.format(value=f"{eps:g}"), fix, _added_to_length(eps))
    yield Fit("limits", adds, fix, 0.0, _added_to_length, EPSILONS)
    for power in (1.0, 2.0):
        if power != order:
            yield Variant("exponent", f"takes the {power:g}-norm", f"take the {order:g}-norm", call.with_(p=power))


@of("local_response_norm")
def response(call: Called) -> Iterator[Variant | Fit]:
    size, alpha = call.get("size"), call.get("alpha", 1e-4)
    yield Variant(
        "scale",
        "multiplies the sum of squares by alpha, as the paper does",
        "multiply it by alpha / size, as PyTorch does",
        call.with_(alpha=alpha * size),
    )
    for name, known in (("alpha", alpha), ("beta", call.get("beta", 0.75)), ("k", call.get("k", 1.0))):
        yield Fit(
            "scale" if name == "alpha" else "exponent" if name == "beta" else "constant",
            f"has {name}={{value}}",
            f"give {name}={{known}}",
            float(known),
            lambda value, name=name: call.with_(**{name: value}),
            (0.5, 1.0, 2.0),
        )


def _constant_length(
    x: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None
) -> torch.Tensor:
    return x / x.detach().norm(p, dim, keepdim=True).clamp_min(eps)


def _added_to_length(value: float) -> Any:
    def run(x: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> torch.Tensor:
        return x / (x.norm(p, dim, keepdim=True) + value)

    return instead(run)


def _by_square(x: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> torch.Tensor:
    return x / (x * x).sum(dim, keepdim=True)


def _kept(axis: int) -> Any:
    return lambda v, g, dim=0: g * v / v.norm(dim=[a for a in range(v.dim()) if a != axis], keepdim=True)


def _constant_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return g * v / v.detach().norm(dim=[axis for axis in range(v.dim()) if axis != dim], keepdim=True)


def _over(axis: int) -> Any:
    return lambda v, g, dim=0: g * v / v.norm(dim=axis, keepdim=True)


def _without_length(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return torch._weight_norm(v, torch.ones_like(g), dim)
