"""Spectra and their logarithms: windows, padding, power for magnitude, an epsilon that is added or a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ..variants import Called, Variant, after, of, signature

signature("hann_window hamming_window blackman_window bartlett_window", "window_length periodic")
signature("stft", "input n_fft hop_length win_length window center pad_mode normalized onesided return_complex")

WINDOWS = {"hann": torch.hann_window, "hamming": torch.hamming_window, "blackman": torch.blackman_window}
SMALL = 0.1  # a constant that keeps a logarithm or a quotient finite is smaller, mostly


@of("hann_window", "hamming_window", "blackman_window", "bartlett_window")
def window(call: Called) -> Iterator[Variant]:
    periodic = bool(call.get("periodic", True))
    yield Variant(
        "window",
        f"has the {'symmetric' if periodic else 'periodic'} window",
        _window_fix(call.name.removesuffix("_window"), periodic),
        call.with_(periodic=not periodic),
    )


@of("stft")
def spectrum(call: Called) -> Iterator[Variant]:
    size = call.get("n_fft")
    length = call.get("win_length") or size
    given = call.get("window")
    known = torch.ones(length, dtype=call.args[0].dtype) if given is None else given
    for name, make in WINDOWS.items():
        for periodic in (True, False):
            other = make(length, periodic=periodic, dtype=known.dtype, device=known.device)
            if other.shape == known.shape and not torch.allclose(other, known, rtol=0, atol=1e-6):
                said = f"has the {'periodic' if periodic else 'symmetric'} {name} window"
                yield Variant("window", said, "give the reference's window", call.with_(window=other))
    if given is not None:
        yield Variant("window", "has no window", "give the reference's window", call.with_(window=None))
    if given is not None and length < size:
        for pads, where in (((0, size - length), "start"), ((size - length, 0), "end")):
            moved = call.with_(window=F.pad(given, pads), win_length=size)
            yield Variant("window", f"has the window at the {where} of a frame", "centre it in the frame", moved)
    centred = bool(call.get("center", True))
    yield Variant(
        "padding",
        "does not pad" if centred else "pads by half a frame",
        f"center={centred}: {'pad' if centred else 'do not pad'} by n_fft // 2 at each end",
        call.with_(center=not centred),
    )
    mode = call.get("pad_mode", "reflect")
    for another in ("constant", "reflect", "replicate", "circular"):
        if centred and another != mode:
            said = f"pads in the mode {another}"
            yield Variant("padding-mode", said, f"pad in the mode {mode}", call.with_(pad_mode=another))
    normalized = bool(call.get("normalized", False))
    yield Variant(
        "scale",
        f"{'does not divide' if normalized else 'divides'} by the root of the frame's length",
        f"normalized={normalized}",
        call.with_(normalized=not normalized),
    )


@of("add", "__add__", "sum", "abs", "square", "pow", "__pow__")
def power(call: Called) -> Iterator[Variant]:
    """A power for a magnitude, or the other way round."""
    result = call.site.result
    if not isinstance(result, torch.Tensor) or not result.is_floating_point() or not bool((result >= 0).all()):
        return
    if call.name == "abs":
        said, fix = "takes the squared magnitude, the power", "take the magnitude: jnp.abs"
        yield Variant("exponent", said, fix, after(torch.square))
    else:
        said, fix = _of_a_root(call)
        yield Variant("exponent", said, fix, after(torch.sqrt), is_guess=True)


def _of_a_root(call: Called) -> tuple[str, str]:
    """What a port does that gives the root of this, and what to do about it: of a power nobody takes the root."""
    power = 2.0 if call.name == "square" else _number(call.args[1]) if "pow" in call.name else None
    if power is None:
        return f"takes the root of what {call.name} gives", "take no root, as of a power spectrum"
    what = "it" if bool((call.args[0] >= 0).all()) else "its magnitude"
    if power == 2:
        return f"takes {what} where the reference takes its square", "square it: x**2"
    return f"raises {what} to the power {power / 2:g}", f"raise it to the power {power:g}"


@of("clamp", "clamp_min", "clip", "maximum")
def small_limit(call: Called) -> Iterator[Variant]:
    limit = _number(call.args[1] if len(call.args) > 1 else call.site.kwargs.get("min", call.site.kwargs.get("other")))
    if limit is not None and limit > 0:
        yield Variant(
            "limits",
            f"adds {limit:g} where the reference limits to it",
            f"limit it: jnp.maximum(x, {limit:g})",
            lambda func, args, kwargs: args[0] + limit,
            is_guess=limit >= SMALL,
        )


@of("add", "__add__", "__radd__")
def small_summand(call: Called) -> Iterator[Variant]:
    limit = _number(call.args[1] if len(call.args) > 1 else None)
    if limit is not None and limit > 0 and isinstance(call.args[0], torch.Tensor):
        yield Variant(
            "limits",
            f"limits to {limit:g} where the reference adds it",
            f"add it: x + {limit:g}",
            lambda func, args, kwargs: args[0].clamp(min=limit),
            is_guess=limit >= SMALL,
        )


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _window_fix(name: str, periodic: bool) -> str:
    wanted = f"torch.{name}_window is periodic: divide by n" if periodic else "divide by n - 1"
    return f"{wanted}; np.{'hanning' if name == 'hann' else name} and jnp's are symmetric"
