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
signature("poisson_nll_loss", "input target log_input full size_average eps reduce reduction")
signature("gaussian_nll_loss", "input target var full eps reduction")
signature("ctc_loss", "log_probs targets input_lengths target_lengths blank reduction zero_infinity")
signature("triplet_margin_loss", "anchor positive negative margin p eps swap size_average reduce reduction")
signature("margin_ranking_loss cosine_embedding_loss", "input1 input2 target margin size_average reduce reduction")
signature("hinge_embedding_loss", "input target margin size_average reduce reduction")
signature("multi_margin_loss", "input target p margin weight size_average reduce reduction")
signature("multilabel_soft_margin_loss", "input target weight size_average reduce reduction")
signature("multilabel_margin_loss", PAIRED)

REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
LOSSES = (
    *REGRESSION,
    "soft_margin_loss",
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "poisson_nll_loss",
    "gaussian_nll_loss",
    "ctc_loss",
    "triplet_margin_loss",
    "margin_ranking_loss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "multilabel_margin_loss",
)
MARGINS = {
    "triplet_margin_loss": 1.0,
    "margin_ranking_loss": 0.0,
    "cosine_embedding_loss": 0.0,
    "hinge_embedding_loss": 1.0,
    "multi_margin_loss": 1.0,
}
FLAGS = {  # their usual values, and what a port does that takes the other, where it is False and where it is True
    "log_input": (True, ("takes the input for its logarithm", "takes the input as it is, not for a logarithm")),
    "full": (False, ("adds the constant terms", "leaves out the constant terms")),
    "swap": (False, ("swaps anchor and positive where that is nearer", "keeps the anchor even where it is farther")),
    "zero_infinity": (False, ("takes an infinite loss for 0", "keeps an infinite loss")),
}


@of(*LOSSES)
def reduction(call: Called) -> Iterator[Variant]:
    known = call.get("reduction", "mean")
    for other in ("mean", "sum", "none", *(("batchmean",) if call.name == "kl_div" else ())):
        if other != known:
            yield Variant(
                "reduction", f"reduces the loss by {other!r}", f"give reduction={known!r}", call.with_(reduction=other)
            )
    if call.name == "ctc_loss":
        if known == "mean":
            yield Variant(
                "reduction",
                "does not divide each loss by the length of its target before the mean",
                "divide each loss by the length of its target, then take the mean",
                lambda func, args, kwargs: call.with_(reduction="none")(func, args, kwargs).mean(),
            )
            yield Variant(
                "reduction",
                "divides the sum of the losses by the sum of the lengths of the targets",
                "divide each loss by the length of its target, then take the mean",
                lambda func, args, kwargs: (
                    call.with_(reduction="sum")(func, args, kwargs) / torch.as_tensor(args[3]).sum()
                ),
            )
        return
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
        if known:
            yield Variant(
                "label-smoothing",
                f"shares the smoothing of {known:g} among the other classes alone",
                "share it among all classes, the right one too",
                call.with_(label_smoothing=known * classes / (classes - 1)),
            )
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


@of("poisson_nll_loss", "gaussian_nll_loss", "ctc_loss", "triplet_margin_loss")
def flags(call: Called) -> Iterator[Variant]:
    for name, (usual, (where_false, where_true)) in FLAGS.items():
        if name in call.names:
            known = bool(call.get(name, usual))
            says = where_true if known else where_false
            yield Variant(
                f"loss-{name.replace('_', '-')}", says, f"give {name}={known}", call.with_(**{name: not known})
            )


@of(*MARGINS)
def margin(call: Called) -> Iterator[Variant | Fit]:
    known = float(call.get("margin", MARGINS[call.name]))
    yield Fit(
        "loss-margin",
        "has a margin of {value}",
        "give margin={known}",
        known,
        lambda value: call.with_(margin=value),
        (0.0, 0.2, 0.3, 0.5, 1.0),
    )
    if "p" in call.names:
        power = call.get("p", 2 if call.name == "triplet_margin_loss" else 1)
        for other in (1, 2):
            if other != power:
                yield Variant("loss-power", f"has p={other}", f"give p={power}", call.with_(p=other))
    if call.name == "triplet_margin_loss":
        yield Variant(
            "loss-of-squares",
            "takes the squares of the distances",
            "take the distances themselves",
            lambda func, args, kwargs: _of_squares(call, *args[:3]),
        )


def _of_squares(call: Called, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    near, far = (((anchor - other) ** 2).sum(-1) for other in (positive, negative))
    losses = (near - far + float(call.get("margin", 1.0))).clamp(min=0)
    reduction = call.get("reduction", "mean")
    return losses if reduction == "none" else getattr(losses, reduction)()


@of("ctc_loss")
def alignment(call: Called) -> Iterator[Variant]:
    blank, classes = int(call.get("blank", 0)), call.args[0].shape[-1]
    for other in dict.fromkeys((0, classes - 1)):
        if other != blank:
            yield Variant(
                "ctc-blank",
                f"takes class {other} for the blank",
                f"take class {blank} for the blank: blank={blank}",
                call.with_(blank=other),
            )
    yield Variant(
        "ctc-lengths",
        "takes all steps of the input, those after its length too",
        "leave out the steps after input_lengths",
        lambda func, args, kwargs: func(
            *args[:2], torch.full_like(torch.as_tensor(args[2]), len(args[0])), *args[3:], **kwargs
        ),
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
