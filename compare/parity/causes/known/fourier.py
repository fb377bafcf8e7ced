"""Fourier transforms and complex numbers: a norm, an axis, a direction, a conjugate, what is imaginary left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..variants import Called, Variant, of, signature

ALONG_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
ALONG_MANY = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
signature(" ".join(f"fft_{name}" for name in ALONG_ONE), "input n dim norm")
signature(" ".join(f"fft_{name}" for name in ALONG_MANY), "input s dim norm")

NORMS = ("backward", "ortho", "forward")
INVERSES = {"fft": "ifft", "ifft": "fft", "fft2": "ifft2", "ifft2": "fft2", "fftn": "ifftn", "ifftn": "fftn"}


@of(*(f"fft_{name}" for name in (*ALONG_ONE, *ALONG_MANY)))
def transform(call: Called) -> Iterator[Variant]:
    norm, name = call.get("norm") or "backward", call.name.removeprefix("fft_")
    for another in NORMS:
        if another != norm:
            fix = f"give jnp.fft.{name} norm={norm!r}"
            yield Variant("fft-norm", f"has norm={another!r}", fix, call.with_(norm=another))
    if name in ALONG_ONE:
        rank, axis = call.args[0].dim(), call.get("dim", -1)
        for other in range(rank):
            if other != axis % rank:
                fix = f"transform axis {axis}"
                yield Variant("axis", f"transforms axis {other} for {axis}", fix, call.with_(dim=other))
    if name in INVERSES:
        instead = getattr(torch.fft, INVERSES[name])
        yield Variant(
            "fft-direction",
            f"computes {INVERSES[name]} for {name}",
            f"write jnp.fft.{name}",
            lambda func, args, kwargs: instead(*args, **kwargs),
        )


@of("mul", "mul_", "__mul__", "__rmul__", "__imul__", "matmul", "__matmul__", "bmm", "einsum", "div", "__truediv__")
def factors(call: Called) -> Iterator[Variant]:
    """Of complex numbers."""
    places = [place for place, x in enumerate(call.args) if isinstance(x, torch.Tensor)]
    for number, place in enumerate(places, 1):
        if not call.args[place].is_complex():
            continue
        which = f"operand {number} of {call.name.strip('_')}"
        yield Variant(
            "conjugate",
            f"takes the conjugate of {which}",
            "take it as it is; jnp.vdot and .conj().T conjugate, as torch.vdot and .mH do",
            _at(place, torch.conj),
        )
        yield Variant(
            "imaginary-part",
            f"leaves out what is imaginary in {which}",
            "keep it complex: a cast to a real dtype drops it",
            _at(place, lambda x: torch.complex(x.real, torch.zeros_like(x.real))),
        )


@of("conj", "conj_physical", "resolve_conj")
def conjugated(call: Called) -> Iterator[Variant]:
    if call.args[0].is_complex():
        said = "does not take the conjugate"
        yield Variant("conjugate", said, "take jnp.conj of it", lambda func, args, kwargs: args[0].clone())


def _at(place: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The call with another argument there."""
    return lambda func, args, kwargs: func(*args[:place], change(args[place]), *args[place + 1 :], **kwargs)
