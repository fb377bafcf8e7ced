"""Convolutions and products with a weight: padding, stride, groups, flips, biases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..variants import Called, Fit, Variant, instead, of, signature

CONVS = ("conv1d", "conv2d", "conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
FLIPPED_TRANSPOSED = (
    "PyTorch's transposed convolution turns its kernel: flip it along each axis of its window for a convolution with "
    "lhs_dilation, or for jax.lax.conv_transpose without transpose_kernel=True, and else leave it as it is"
)
signature(" ".join(CONVS), "input weight bias stride padding dilation groups")
signature(" ".join(TRANSPOSED), "input weight bias stride padding output_padding groups dilation")
signature("linear", "input weight bias")
signature("bilinear", "input1 input2 weight bias")
signature("pad", "input pad mode value")


@of(*CONVS, *TRANSPOSED, "linear", "bilinear")
def bias(call: Called) -> Iterator[Variant]:
    if call.get("bias") is not None:
        yield Variant("bias-missing", "does not add the bias", "add the bias", call.with_(bias=None))
        yield Variant("bias-twice", "adds the bias twice", "add the bias once", call.with_(bias=lambda b: b + b))


@of(*CONVS)
def padding(call: Called) -> Iterator[Variant]:
    """Other padding of the same total, or as `SAME` of JAX has it, and other strides' and dilations' offsets."""
    x, weight = call.args[0], call.args[1]
    rank = weight.dim() - 2
    stride, dilation = (_many(call.get(name, 1), rank) for name in ("stride", "dilation"))
    known = call.get("padding", 0)
    kernel = weight.shape[2:]
    spans = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if isinstance(known, str):
        usual = [(0, 0)] * rank if known == "valid" else [(s // 2, s - s // 2) for s in spans]
    else:
        usual = [(p, p) for p in _many(known, rank)]
    same = []
    for size, step, span in zip(x.shape[2:], stride, spans, strict=True):
        total = max((-(-size // step) - 1) * step + span + 1 - size, 0)
        same.append((total // 2, total - total // 2))
    named = {
        "as SAME does": same,
        "nothing": [(0, 0)] * rank,
        "one more at the end than at the start": [(lo, hi + 1) for lo, hi in usual],
        "all of it at the end": [(0, lo + hi) for lo, hi in usual],
        "all of it at the start": [(lo + hi, 0) for lo, hi in usual],
        "one less at the start, one more at the end": [(max(lo - 1, 0), hi + 1) for lo, hi in usual],
        "one more at the start, one less at the end": [(lo + 1, max(hi - 1, 0)) for lo, hi in usual],
        "one more on each side": [(lo + 1, hi + 1) for lo, hi in usual],
        "one less on each side": [(max(lo - 1, 0), max(hi - 1, 0)) for lo, hi in usual],
        "as SAME does, the larger half at the start": [(hi, lo) for lo, hi in same],
        "the width as the height": usual[::-1],
    }
    tried = [usual]
    for words, pads in named.items():
        if pads not in tried:
            tried.append(pads)
            yield Variant(
                "padding",
                f"pads {words}: {pads}",
                f"pad {usual}{_cut_afterwards(call)}{_not_same(same, stride) if pads == same else ''}",
                instead(_padded(pads)),
            )
    for mode in ("reflect", "replicate", "circular"):
        yield Variant("padding-mode", f"pads with {mode} values", "pad with zeros", instead(_padded(usual, mode)))


def _not_same(same: list[tuple[int, int]], stride: list[int]) -> str:
    by = "what the stride leaves over, and another number for another length" if max(stride) > 1 else str(same)
    return f": JAX's 'SAME' pads {by}, so give numbers"


def _cut_afterwards(call: Called) -> str:
    """What the reference cuts off again, as where a causal convolution pads both ends: nothing where it is not seen."""
    takers = call.ancestry.takers(call.site.result) if call.ancestry is not None else []
    for site in takers:
        whole, part = site.args[0], site.result
        if site.name not in ("__getitem__", "narrow") or whole is not call.site.result or part.dim() != whole.dim():
            continue
        axis = next((axis for axis in range(2, whole.dim()) if part.shape[axis] < whole.shape[axis]), None)
        if axis is None:
            continue
        start = (part.storage_offset() - whole.storage_offset()) // max(whole.stride(axis), 1)
        end = whole.shape[axis] - part.shape[axis] - start
        cuts = [f"{count} at the {place}" for count, place in ((start, "start"), (end, "end")) if count > 0]
        return f", and cut {' and '.join(cuts)} of what comes of it, as the reference does" if cuts else ""
    return ""


@of(*CONVS)
def shape(call: Called) -> Iterator[Variant]:
    weight = call.args[1]
    rank = weight.dim() - 2
    stride, dilation = (_many(call.get(name, 1), rank) for name in ("stride", "dilation"))
    for other in itertools.product((1, 2, 3), repeat=rank):
        if list(other) != dilation and len(set(other)) == 1:
            centre = [d * (k - 1) // 2 for d, k in zip(other, weight.shape[2:], strict=True)]
            yield Variant(
                "dilation", f"has dilation {other}", f"give dilation {tuple(dilation)}", call.with_(dilation=other)
            )
            yield Variant(
                "dilation",
                f"has dilation {other} and padding {tuple(centre)}",
                f"give dilation {tuple(dilation)}",
                call.with_(dilation=other, padding=centre),
            )
            if not isinstance(known := call.get("padding", 0), str):
                wider = [(o - d) * (k - 1) for o, d, k in zip(other, dilation, weight.shape[2:], strict=True)]
                pads = [(p + more, p) for p, more in zip(_many(known, rank), wider, strict=True)]
                yield Variant(
                    "dilation",
                    f"has dilation {other}, and is padded at the start as that needs",
                    f"give dilation {tuple(dilation)}",
                    instead(_padded(pads, dilation=other)),
                )
        if list(other) != stride and len(set(other)) == 1:
            yield Variant("stride", f"has stride {other}", f"give stride {tuple(stride)}", call.with_(stride=other))
    if max(stride) > 1:
        for offset in range(1, max(stride)):
            yield Variant(
                "stride",
                f"strides from element {offset} on",
                "stride from the first element on",
                instead(_offset(offset)),
            )
    groups = call.get("groups", 1)
    if groups > 1:
        per_group = call.args[0].shape[1] // groups
        ways = {groups: "takes every n-th channel into a group"}
        ways.setdefault(
            per_group, f"takes channels in the order of [{per_group}, {groups}], not [{groups}, {per_group}]"
        )
        for parts, says in ways.items():
            yield Variant("groups", says, "take neighbouring channels into a group", instead(_interleaved(parts)))
        yield Variant(
            "groups",
            "lays the groups' outputs out interleaved",
            "lay the groups' outputs out one after the other",
            instead(_interleaved_outputs(groups)),
        )


@of(*CONVS, *TRANSPOSED)
def kernel(call: Called) -> Iterator[Variant]:
    weight = call.args[1]
    space = list(range(2, weight.dim()))
    fix = FLIPPED_TRANSPOSED if call.name in TRANSPOSED else "JAX and PyTorch both correlate: leave the kernel as it is"
    for count in range(1, len(space) + 1):
        for axes in itertools.combinations(space, count):
            yield Variant(
                "kernel-flipped",
                f"takes the kernel flipped along axes {axes}",
                fix,
                call.with_(weight=lambda w, axes=axes: w.flip(axes)),
            )
    for a, b in itertools.combinations(space, 2):
        if weight.shape[a] == weight.shape[b]:
            yield Variant(
                "kernel-transposed",
                "swaps height and width of the kernel",
                "OIHW to HWIO is transpose(2, 3, 1, 0)",
                call.with_(weight=lambda w, a=a, b=b: w.transpose(a, b)),
            )
    groups = call.get("groups", 1)
    if weight.shape[0] == groups * weight.shape[1] and weight.shape[1] > 1:
        yield Variant(
            "weight-transposed",
            "swaps the kernel's inputs and outputs" + (" in each group" if groups > 1 else ""),
            "OIHW to HWIO is transpose(2, 3, 1, 0)",
            call.with_(weight=lambda w: w.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)),
        )


@of(*TRANSPOSED)
def transposed(call: Called) -> Iterator[Variant]:
    rank = call.args[1].dim() - 2
    padding, extra = (_many(call.get(name, 0), rank) for name in ("padding", "output_padding"))
    ends = [(p, q) for p in range(-1, 2) for q in range(-1, 2) if (p, q) != (0, 0)]
    alone = [(axis,) for axis in range(rank)] if rank > 1 else []
    for axes, (lo, hi) in itertools.product([tuple(range(rank)), *alone], ends):
        where = f" of axis {axes[0] + 2}" if axes in alone else ""
        yield Variant(
            "output-padding",
            f"cuts {lo:+d} at the start and {hi:+d} at the end{where} beside what the reference cuts",
            f"pad (d(k-1)-p, d(k-1)-p+output_padding): padding {padding}, output_padding {extra}",
            instead(_cut(axes, lo, hi)),
        )


@of("linear")
def transposed_weight(call: Called) -> Iterator[Variant]:
    weight = call.args[1]
    if weight.dim() == 2 and weight.shape[0] == weight.shape[1]:
        yield Variant(
            "weight-transposed",
            "multiplies by the weight untransposed",
            "PyTorch's weight is [out, in]: carry it transposed",
            call.with_(weight=lambda w: w.T),
        )
    yield Variant("layer-missing", "leaves the linear layer out", "call it", lambda func, args, kwargs: args[0].clone())


@of("pad")
def modes(call: Called) -> Iterator[Variant | Fit]:
    known = call.get("mode", "constant")
    for mode in ("constant", "reflect", "replicate", "circular"):
        if mode != known:
            yield Variant("padding-mode", f"pads in the mode {mode}", f"pad in the mode {known}", call.with_(mode=mode))
    pads = list(call.get("pad"))
    if known != "constant":
        ours = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[known]
        yield Variant(
            "padding-mode",
            "repeats the element at the edge when it reflects, as jnp.pad's mode 'symmetric'",
            f"jnp.pad's mode is {ours!r}",
            lambda func, args, kwargs: _symmetric(args[0], pads),
        )
    flipped = [p for i in range(0, len(pads), 2) for p in (pads[i + 1], pads[i])]
    reversed_ = [p for i in range(len(pads) - 2, -1, -2) for p in (pads[i], pads[i + 1])]
    halves = [p for i in range(0, len(pads), 2) for p in _halves(pads[i] + pads[i + 1])]
    ways = ((flipped, "with ends swapped"), (reversed_, "with axes swapped"), (halves, "both ends alike"))
    for other, words in ways:
        if other != pads:
            yield Variant(
                "padding",
                f"pads {words}",
                "PyTorch's pad counts from the last axis: (left, right, top, bottom)",
                call.with_(pad=other),
            )
    if known == "constant":
        yield Fit(
            "padding-value",
            "pads with {value}",
            "pad with {known}",
            float(call.get("value") or 0),
            lambda value: call.with_(value=value),
            (0.0, 1.0, -1.0),
        )


def _symmetric(x: torch.Tensor, pads: list[int]) -> torch.Tensor:
    for axis, before, after in zip(itertools.count(1), pads[::2], pads[1::2], strict=False):
        size = x.shape[-axis]
        places = torch.arange(-before, size + after) % (2 * size)
        x = x.index_select(-axis, torch.minimum(places, 2 * size - 1 - places))
    return x


def _halves(total: int) -> tuple[int, int]:
    return total // 2, total - total // 2


def _many(value: Any, rank: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value] * rank
    return values * rank if len(values) == 1 else values


def _padded(pads: list[tuple[int, int]], mode: str = "constant", dilation: tuple[int, ...] | None = None):
    flat = [p for pair in reversed(pads) for p in pair]

    other = dilation

    def run(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        conv = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        return conv(F.pad(x, flat, mode=mode), weight, bias, stride, 0, other or dilation, groups)

    return run


def _offset(offset: int):
    def run(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        conv = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        out = conv(x, weight, bias, 1, padding, dilation, groups)
        for axis, step in enumerate(_many(stride, weight.dim() - 2), start=2):
            out = out[(slice(None),) * axis + (slice(min(offset, step - 1), None, step),)]
        return out

    return run


def _interleaved(parts: int):
    def run(x, weight, *rest, **named):
        order = torch.arange(x.shape[1]).reshape(-1, parts).T.reshape(-1)
        conv = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        return conv(x[:, order], weight, *rest, **named)

    return run


def _interleaved_outputs(groups: int):
    def run(x, weight, *rest, **named):
        conv = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        out = conv(x, weight, *rest, **named)
        return out[:, torch.arange(out.shape[1]).reshape(groups, -1).T.reshape(-1)]

    return run


def _cut(axes: tuple[int, ...], lo: int, hi: int):
    def run(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        rank = weight.dim() - 2
        conv = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        whole = conv(x, weight, None, stride, 0, 0, groups, dilation)
        pads = []
        for axis in reversed(range(rank)):
            before, after = (lo, hi) if axis in axes else (0, 0)
            p, extra = _many(padding, rank)[axis], _many(output_padding, rank)[axis]
            pads += [-(p + before), extra - (p + after)]
        out = F.pad(whole, pads)
        return out if bias is None else out + bias.reshape(-1, *[1] * rank)

    return run
