"""Resizing: which mode, which corners, which size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F

from ..variants import Called, Variant, of, signature

signature("interpolate", "input size scale_factor mode align_corners recompute_scale_factor antialias")
signature("grid_sample", "input grid mode padding_mode align_corners")
signature("affine_grid", "theta size align_corners")
signature("upsample", "input size scale_factor mode align_corners")


@of("interpolate", "upsample")
def modes(call: Called) -> Iterator[Variant]:
    x, mode, corners = call.args[0], call.get("mode", "nearest"), call.get("align_corners")
    smooth = {3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}[x.dim()]
    size = tuple(call.site.result.shape[2:])
    larger = all(new >= old for new, old in zip(size, x.shape[2:], strict=True))
    if mode in smooth:
        yield Variant(
            "align-corners",
            f"resizes with align_corners={not corners}",
            f"give align_corners={bool(corners)}",
            call.with_(align_corners=not corners),
        )
        if mode == "bicubic" or not larger:
            a_half = mode == "bicubic" and larger
            yield Variant(
                "resize-coefficient" if a_half else "antialias",
                "interpolates with a = -0.5" if a_half else "smooths before it makes smaller",
                "PyTorch's bicubic has a = -0.75" if a_half else "jax.image.resize: give antialias=False",
                _resized(mode, antialias=True),
            )
    for other in ("nearest", "nearest-exact", *smooth):
        for aligned in (False, True) if other in smooth else (None,):
            if other != mode:
                words = "" if aligned is None else f" with align_corners={aligned}"
                yield Variant(
                    "resize-mode",
                    f"resizes in the mode {other}{words}",
                    f"resize in the mode {mode}{_of_jax(other)}",
                    _resized(other, align_corners=aligned),
                )
    yield Variant(
        "resize-scale",
        "takes the scale from the sizes",
        "PyTorch takes the scale_factor itself",
        _resized(mode, align_corners=corners),
    )


def _resized(mode: str, **how: Any) -> Any:
    """To the size that the call gives, in this turn where it is in a loop."""
    return lambda func, args, kwargs: F.interpolate(args[0], func(*args, **kwargs).shape[2:], mode=mode, **how)


def _of_jax(mode: str) -> str:
    return ": JAX's nearest is PyTorch's nearest-exact" if mode == "nearest-exact" else ""


@of("grid_sample")
def sampled(call: Called) -> Iterator[Variant]:
    corners = bool(call.get("align_corners", False))
    yield Variant(
        "align-corners",
        f"samples with align_corners={not corners}",
        f"give align_corners={corners}",
        call.with_(align_corners=not corners),
    )
    for name, values in (
        ("mode", ("bilinear", "nearest", "bicubic")),
        ("padding_mode", ("zeros", "border", "reflection")),
    ):
        for other in values:
            if other != call.get(name, values[0]):
                yield Variant(
                    "resize-mode",
                    f"samples with {name}={other!r}",
                    f"give {name}={call.get(name, values[0])!r}",
                    call.with_(**{name: other}),
                )
    yield Variant(
        "axes-order",
        "takes x and y of the grid in the other order",
        "the grid holds (x, y)",
        call.with_(grid=lambda g: g.flip(-1)),
    )


@of("affine_grid")
def laid_out(call: Called) -> Iterator[Variant]:
    corners = bool(call.get("align_corners", False))
    yield Variant(
        "align-corners",
        f"lays the grid out with align_corners={not corners}",
        f"give align_corners={corners}: the ends are the {'centres' if corners else 'edges'} of the outer pixels",
        call.with_(align_corners=not corners),
    )
    if call.args[0].shape[-1] == 3:
        yield Variant(
            "axes-order",
            "multiplies by (y, x, 1)",
            "multiply by (x, y, 1)",
            call.with_(theta=lambda t: t[..., [1, 0, 2]]),
        )
    yield Variant(
        "axes-order",
        "gives the coordinates of the grid in the other order",
        "the grid holds (x, y)",
        call.with_(theta=lambda t: t.flip(-2)),
    )
