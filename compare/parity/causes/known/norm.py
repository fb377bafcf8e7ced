"""Normalisation: epsilon, momentum, which variance, which axes, whose statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..variants import Called, Fit, Variant, after, instead, of, signature

signature("layer_norm", "input normalized_shape weight bias eps")
signature("rms_norm", "input normalized_shape weight eps")
signature("group_norm", "input num_groups weight bias eps")
signature("batch_norm", "input running_mean running_var weight bias training momentum eps")
signature("instance_norm", "input running_mean running_var weight bias use_input_stats momentum eps")
signature("local_response_norm", "input size alpha beta k")
signature("normalize", "input p dim eps")

EPSILONS = (1e-6, 1e-5, 1e-3, 1e-12, 0.0, 1e-8, 1e-7, 1.1920928955078125e-07, 2.220446049250313e-16, 1e-4, 1e-2)
NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm")


@of(*NORMS, "normalize")
def epsilon(call: Called) -> Iterator[Variant | Fit]:
    known = call.get("eps", 1e-12 if call.name == "normalize" else 1e-5)
    if known is None:  # rms_norm takes the dtype's own
        known = torch.finfo(call.args[0].dtype).eps
    for value in EPSILONS:
        if value != known:
            says = f"adds eps={value:g} to the variance"
            yield Variant(
                "epsilon", says, f"give eps={known:g}; Flax's own layers have another default", call.with_(eps=value)
            )
    yield Fit(
        "epsilon",
        "adds eps={value} to the variance",
        "give eps={known}; Flax's own layers have another default",
        float(known),
        lambda value: call.with_(eps=value),
        EPSILONS,
    )


@of("instance_norm")
def backward_in_order(call: Called) -> Iterator[Variant]:
    """Of a batch of one PyTorch takes a gradient in channels last order for one in the usual order."""
    x = call.args[0]
    if x.dim() < 4 or len(x) > 1:
        return
    yield Variant(
        "reference-gradient",
        "has the gradient of instance_norm, where PyTorch's own is wrong: of a batch of one it takes what comes back "
        "in channels last order for another order",
        "give the reference a batch of two, or let the gradient come back in order there: "
        "y.register_hook(lambda g: g.contiguous()); PyTorch trains with the wrong one",
        after(_InOrder.apply),
    )


class _InOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.contiguous()


def _class_of(call: Called) -> str:
    kind = "InstanceNorm" if call.name == "instance_norm" else "BatchNorm"
    return f"{kind}{max(call.args[0].dim() - 2, 1)}d"


COUNTED = "; where it is None it is 1 / (the batches so far), which is 1 for the first"


@of("batch_norm", "instance_norm")
def momentum(call: Called) -> Iterator[Variant | Fit]:
    known = call.get("momentum", 0.1)
    if call.get("running_mean") is None or not isinstance(known, float):
        return
    yield Variant(
        "momentum",
        f"keeps {known:g} of the old statistics, and takes {1 - known:g} of the new",
        f"PyTorch's momentum {known:g} is Flax's {1 - known:g}: nnx.BatchNorm(momentum={1 - known:g}), or "
        f"gm.nn.{_class_of(call)}(momentum={known:g})",
        call.with_(momentum=1 - known),
    )
    yield Fit(
        "momentum",
        "updates its statistics with a momentum of {value} in PyTorch's sense",
        "PyTorch's momentum is {known}, and Flax's is 1 less that" + (COUNTED if known == 1 else ""),
        known,
        lambda value: call.with_(momentum=value),
        (0.01, 0.99, 0.9, 0.1, 0.001),
    )


@of("batch_norm")
def statistics(call: Called) -> Iterator[Variant]:
    training, mean = bool(call.get("training", False)), call.get("running_mean")
    if mean is not None:
        did, wanted = ("the running statistics", "of the batch") if training else ("those of the batch", "that it kept")
        yield Variant(
            "norm-mode",
            f"normalises by {did} where the reference takes the statistics {wanted}",
            f"run it with use_running_average={not training} (gm.nn: {'train' if training else 'eval'} mode)",
            call.with_(training=not training),
        )
    if training and mean is not None:
        yield Variant(
            "variance",
            "keeps the biased variance of the batch as its running variance",
            f"multiply the variance that is kept by n / (n - 1), as gm.nn.{_class_of(call)} does",
            instead(_biased),
        )
        yield Variant(
            "statistics-not-kept",
            "does not update its running statistics",
            "let the layer write its statistics: training mode, and the state carried out of the step",
            instead(_not_kept),
        )
        yield Variant(
            "variance",
            "normalises by the unbiased variance of the batch",
            "normalise by the biased variance: jnp.var(x, ddof=0)",
            instead(_unbiased),
        )


@of("layer_norm", "rms_norm", "group_norm", "instance_norm")
def variance(call: Called) -> Iterator[Variant]:
    fix = "normalise by the biased variance: jnp.var(x, ddof=0)"
    if call.name == "layer_norm":
        yield Variant(
            "epsilon-place",
            "adds eps to the standard deviation",
            "add eps to the variance, inside the root",
            instead(_layer_outside),
        )
        yield Variant("variance", "normalises by the unbiased variance", fix, instead(_layer_unbiased))
        yield Variant(
            "mean-not-removed",
            "does not subtract the mean, as RMSNorm",
            "subtract the mean: LayerNorm",
            instead(_without_mean),
        )
        yield from _other_axes(call)
    if call.name == "rms_norm":
        yield Variant(
            "mean-removed",
            "subtracts the mean, as LayerNorm",
            "take the root mean square alone: RMSNorm",
            instead(
                lambda x, shape, weight=None, eps=None: F.layer_norm(
                    x, shape, weight, None, torch.finfo(x.dtype).eps if eps is None else eps
                )
            ),
        )
        yield Variant("scale-plus-one", "multiplies by 1 + weight", "multiply by the weight", _with_weight(call, 1.0))
        yield Variant(
            "epsilon-place",
            "adds eps to the root mean square",
            "add eps to the mean square, inside the root",
            instead(_rms_outside),
        )
    if call.name == "instance_norm":
        yield Variant(
            "norm-axis",
            "takes the statistics over the batch, too, as BatchNorm",
            "take them over each image's own pixels: InstanceNorm",
            instead(_over_the_batch),
        )
    if call.name == "group_norm":
        groups, channels = call.get("num_groups"), call.args[0].shape[1]
        for other in range(1, channels + 1):
            if channels % other == 0 and other != groups:
                yield Variant(
                    "groups",
                    f"normalises over {other} groups",
                    f"give num_groups={groups}",
                    call.with_(num_groups=other),
                )
        yield Variant(
            "groups",
            "takes every n-th channel into a group",
            "take neighbouring channels into a group",
            instead(_interleaved_groups),
        )


@of(*NORMS)
def affine(call: Called) -> Iterator[Variant]:
    if call.get("weight") is not None:
        yield Variant(
            "scale-missing", "does not multiply by the weight", "multiply by the weight", call.with_(weight=None)
        )
    if call.get("bias") is not None:
        yield Variant("bias-missing", "does not add the bias", "add the bias", call.with_(bias=None))
    yield Variant(
        "norm-missing",
        "leaves the normalisation out",
        f"call the reference's {call.name}",
        lambda func, args, kwargs: args[0].clone(),
    )


def _other_axes(call: Called) -> Iterator[Variant]:
    x, shape = call.args[0], tuple(call.get("normalized_shape"))
    if len(shape) != 1:
        return
    for axis in range(x.dim() - 1):
        if x.shape[axis] > 1:

            def moved(
                x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, axis: int = axis
            ) -> Any:
                centred = x - x.mean(axis, keepdim=True)
                normal = centred / torch.sqrt(x.var(axis, unbiased=False, keepdim=True) + eps)
                return normal * (1 if weight is None else weight) + (0 if bias is None else bias)

            yield Variant("norm-axis", f"normalises over axis {axis}", "normalise over the last axis", instead(moved))
    if x.dim() > 2:

        def whole(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
            normal = F.layer_norm(x, x.shape[1:], None, None, eps)
            return normal * (1 if weight is None else weight) + (0 if bias is None else bias)

        yield Variant(
            "norm-axis", "normalises over all axes but the first", "normalise over the last axis", instead(whole)
        )


def _with_weight(call: Called, more: float):
    return call.with_(weight=lambda weight: weight + more)


def _batch_axes(x: torch.Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _biased(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    out = F.batch_norm(x, mean.clone(), var.clone(), weight, bias, training, momentum, eps)
    with torch.no_grad():  # what the backward pass keeps stays as it is
        mean.lerp_(x.mean(_batch_axes(x)), momentum)
        var.lerp_(x.var(_batch_axes(x), unbiased=False), momentum)
    return out


def _not_kept(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    return F.batch_norm(x, None, None, weight, bias, True, momentum, eps)


def _unbiased(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    F.batch_norm(x.detach(), mean, var, weight, bias, training, momentum, eps)
    axes = _batch_axes(x)
    shape = [1, -1] + [1] * (x.dim() - 2)
    normal = (x - x.mean(axes, keepdim=True)) / torch.sqrt(x.var(axes, unbiased=True, keepdim=True) + eps)
    return normal * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))


def _layer_unbiased(x, shape, weight=None, bias=None, eps=1e-5):
    axes = list(range(-len(shape), 0))
    normal = (x - x.mean(axes, keepdim=True)) / torch.sqrt(x.var(axes, unbiased=True, keepdim=True) + eps)
    return normal * (1 if weight is None else weight) + (0 if bias is None else bias)


def _without_mean(x, shape, weight=None, bias=None, eps=1e-5):
    out = F.rms_norm(x, shape, weight, eps)
    return out if bias is None else out + bias


def _rms_outside(x, shape, weight=None, eps=None):
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    axes = list(range(-len(shape), 0))
    normal = x / (x.pow(2).mean(axes, keepdim=True).sqrt() + eps)
    return normal if weight is None else normal * weight


def _interleaved_groups(x, num_groups, weight=None, bias=None, eps=1e-5):
    order = torch.arange(x.shape[1]).reshape(-1, num_groups).T.reshape(-1)
    normal = F.group_norm(x[:, order], num_groups, None, None, eps)[:, torch.argsort(order)]
    shape = [1, -1] + [1] * (x.dim() - 2)
    return normal * (1 if weight is None else weight.reshape(shape)) + (0 if bias is None else bias.reshape(shape))


def _layer_outside(x, shape, weight=None, bias=None, eps=1e-5):
    axes = list(range(-len(shape), 0))
    normal = (x - x.mean(axes, keepdim=True)) / (x.var(axes, unbiased=False, keepdim=True).sqrt() + eps)
    return normal * (1 if weight is None else weight) + (0 if bias is None else bias)


def _over_the_batch(
    x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    return F.batch_norm(x, None, None, weight, bias, True, momentum, eps)
