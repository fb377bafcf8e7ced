"""Losses: what is averaged, what is left out, and with what weight."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from ..variants import Called, Fit, Variant, of, signature

PAIRED = "input target size_average reduce reduction"
signature("mse_loss l1_loss soft_margin_loss", PAIRED)
signature("smooth_l1_loss", "input target size_average reduce reduction beta")
signature("huber_loss", "input target reduction delta")
signature("cross_entropy", "input target weight size_average ignore_index reduce reduction label_smoothing")
signature("nll_loss", "input target weight size_average ignore_index reduce reduction")
signature("binary_cross_entropy", "input target weight size_average reduce reduction")
signature("binary_cross_entropy_with_logits", "input target weight size_average reduce reduction pos_weight")
signature("kl_div", "input target size_average reduce reduction log_target")

REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
LOSSES = (
    *REGRESSION,
    "soft_margin_loss",
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
)


@of(*LOSSES)
def reduction(call: Called) -> Iterator[Variant]:
    known = call.get("reduction", "mean")
    for other in ("mean", "sum", "none", *(("batchmean",) if call.name == "kl_div" else ())):
        if other != known:
            yield Variant(
                "reduction", f"reduces the loss by {other!r}", f"give reduction={known!r}", call.with_(reduction=other)
            )
    if known == "mean":
        yield Variant(
            "reduction",
            "divides by the batch alone",
            "divide by the number of elements (of their weights)",
            lambda func, args, kwargs: call.with_(reduction="sum")(func, args, kwargs) / args[0].shape[0],
        )
        yield Variant(
            "reduction",
            "divides by the number of all elements",
            "divide by the weights of those that count",
            lambda func, args, kwargs: call.with_(reduction="sum")(func, args, kwargs) / args[1].numel(),
        )


@of("cross_entropy", "nll_loss")
def classes(call: Called) -> Iterator[Variant | Fit]:
    ignored = call.get("ignore_index", -100)
    classes = call.args[0].shape[1 if call.args[0].dim() > 1 else 0]
    target = call.args[1]
    if bool((target == ignored).any()):
        for row in dict.fromkeys((0, classes - 1, ignored % classes)):
            yield Variant(
                "ignore-index",
                f"counts the targets that are {ignored}, as class {row}",
                f"leave out what is {ignored}: ignore_index",
                lambda func, args, kwargs, row=row: call.with_(ignore_index=-12345)(
                    func, (args[0], args[1].masked_fill(args[1] == ignored, row), *args[2:]), kwargs
                ),
            )
    for other in (0, -1, classes - 1):
        if other != ignored and bool((target == other).any()):
            yield Variant(
                "ignore-index",
                f"leaves out the targets that are {other}",
                f"leave out {ignored} alone",
                call.with_(ignore_index=other),
            )
    if call.get("weight") is not None:
        yield Variant("class-weight", "does not weigh the classes", "give weight", call.with_(weight=None))
    if call.name == "cross_entropy":
        known = float(call.get("label_smoothing", 0.0))
        yield Fit(
            "label-smoothing",
            "smooths labels by {value}",
            "smooth by {known}",
            known,
            lambda value: call.with_(label_smoothing=min(max(value, 0.0), 1.0)),
            (0.0, 0.1, 0.05),
        )


@of(*REGRESSION)
def other_loss(call: Called) -> Iterator[Variant]:
    reduction = call.get("reduction", "mean")
    for name in REGRESSION:
        if name != call.name:
            function = getattr(F, name)
            yield Variant(
                "loss-function",
                f"computes {name} where the reference computes {call.name}",
                f"compute {call.name}",
                lambda func, args, kwargs, function=function: function(*args[:2], reduction=reduction),
                is_guess=True,
            )


@of("cross_entropy", "binary_cross_entropy_with_logits")
def logits(call: Called) -> Iterator[Variant]:
    """What takes logits, given what they have been made of already."""
    name, of = (
        ("softmax", lambda x: x.softmax(1 if x.dim() > 1 else 0))
        if call.name == "cross_entropy"
        else ("sigmoid", torch.sigmoid)
    )
    yield Variant(
        "loss-of-logits",
        f"gives the loss the {name} of what are logits to the reference",
        f"leave the {name} out: the loss takes it itself",
        lambda func, args, kwargs: func(of(args[0]), *args[1:], **kwargs),
    )


@of("kl_div")
def divergence(call: Called) -> Iterator[Variant]:
    known = bool(call.get("log_target", False))
    yield Variant(
        "loss-log-target",
        f"takes the target {'as it is' if known else 'for its logarithm'}",
        f"give log_target={known}",
        call.with_(log_target=not known),
    )


@of("smooth_l1_loss", "huber_loss")
def width(call: Called) -> Iterator[Fit]:
    name = "beta" if call.name == "smooth_l1_loss" else "delta"
    known = float(call.get(name, 1.0))
    yield Fit(
        "loss-width",
        f"has {name}={{value}}",
        f"give {name}={{known}}",
        known,
        lambda value: call.with_(**{name: value}),
        (1.0, 0.5, 2.0),
    )


@of("binary_cross_entropy_with_logits")
def positive(call: Called) -> Iterator[Variant]:
    for name in ("weight", "pos_weight"):
        if call.get(name) is not None:
            yield Variant("class-weight", f"leaves out {name}", f"give {name}", call.with_(**{name: None}))
