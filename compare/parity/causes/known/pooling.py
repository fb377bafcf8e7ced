"""Pooling: which windows there are, what counts in them, and what is taken of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from ..variants import Called, Variant, instead, of, signature

MAX = ("max_pool1d", "max_pool2d", "max_pool3d")
AVERAGE = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
ADAPTIVE = tuple(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3))
signature(" ".join(MAX), "input kernel_size stride padding dilation ceil_mode return_indices")
signature(" ".join(AVERAGE), "input kernel_size stride padding ceil_mode count_include_pad divisor_override")
signature(" ".join(ADAPTIVE), "input output_size")


@of(*MAX, *AVERAGE)
def windows(call: Called) -> Iterator[Variant]:
    ceil = bool(call.get("ceil_mode", False))
    yield Variant(
        "ceil-mode",
        f"{'drops' if ceil else 'keeps'} the last window that is not full",
        f"give ceil_mode={ceil}",
        call.with_(ceil_mode=not ceil),
    )
    if call.name in AVERAGE:
        counted = bool(call.get("count_include_pad", True))
        yield Variant(
            "count-include-pad",
            f"{'leaves the padding out of' if counted else 'counts the padding in'} the mean",
            f"give count_include_pad={counted}",
            call.with_(count_include_pad=not counted),
        )
    rank = int(call.name[-2])
    other = f"{'avg' if call.name in MAX else 'max'}_pool{rank}d"
    stride = call.get("stride") or call.get("kernel_size")
    settings = (call.get("kernel_size"), stride, call.get("padding", 0))
    yield Variant(
        "pooling",
        f"takes the {'mean' if call.name in MAX else 'largest'} of each window",
        f"take the {'largest' if call.name in MAX else 'mean'}",
        lambda func, args, kwargs: getattr(F, other)(args[0], *settings),
    )
    padding = call.get("padding", 0)
    if call.name in MAX and padding != 0:
        yield Variant(
            "padding-value", "pads with zeros before it takes the largest", "pad with -inf", instead(_zero_padded(rank))
        )
    known = [*padding] if isinstance(padding, list | tuple) else [padding] * rank
    for lo, hi in ((-1, 1), (1, -1), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, -1)):
        yield Variant(
            "padding",
            f"pads {lo:+d} at the start and {hi:+d} at the end of what the reference pads",
            f"pad {padding} on both sides",
            instead(_shifted(call.name, rank, known, lo, hi)),
        )


@of(*ADAPTIVE)
def adaptive(call: Called) -> Iterator[Variant]:
    other = call.name.replace("avg", "!").replace("max", "avg").replace("!", "max")
    yield Variant(
        "pooling",
        f"computes {other}",
        f"compute {call.name}",
        lambda func, args, kwargs: getattr(F, other)(args[0], call.get("output_size")),
    )


def _zero_padded(rank: int):
    def run(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        pads = [padding] * rank if isinstance(padding, int) else list(padding)
        flat = [p for pad in reversed(pads) for p in (pad, pad)]
        pool = getattr(F, f"max_pool{rank}d")
        return pool(F.pad(x, flat), kernel_size, stride, 0, dilation, ceil_mode)

    return run


def _shifted(name: str, rank: int, known: list[int], lo: int, hi: int):
    def run(x, kernel_size, stride=None, *rest, **kwargs):
        if any(p + lo < 0 or p + hi < 0 for p in known):
            raise ValueError("less than no padding")
        flat = [p for pad in reversed(known) for p in (pad + lo, pad + hi)]
        if name.startswith("max"):
            return getattr(F, name)(F.pad(x, flat, value=float("-inf")), kernel_size, stride or kernel_size)
        counted = F.avg_pool2d if rank == 2 else getattr(F, name)
        return counted(F.pad(x, flat), kernel_size, stride or kernel_size)

    return run


@of("max_unpool1d", "max_unpool2d", "max_unpool3d")
def unpool(call: Called) -> Iterator[Variant]:
    yield Variant(
        "pooling",
        "writes nothing back",
        "write the values to their indices",
        lambda func, args, kwargs: torch.zeros_like(func(*args, **kwargs)),
    )
