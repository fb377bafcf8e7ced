"""Tensors of one number throughout: a first state, a column of ones, what a loop's results are written into."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..variants import Called, Fit, Variant, after, of
from .mask import HIDES

FILLED = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}


@of(*FILLED, "full", "full_like", "new_full")
def filled(call: Called) -> Iterator[Variant | Fit]:
    """Another number; of a mask nothing, since those that mask have their own."""
    result = call.site.result
    known = FILLED.get(call.name, float(result.flatten()[0]) if result.numel() else HIDES)
    if result.dtype == torch.bool or not HIDES < known < -HIDES:
        return
    for value in (0, 1, -1):
        if value != known:
            yield Variant(
                "constant",
                f"has {value} in all of what {call.name} gives, where the reference has {known:g}",
                f"fill it with {known:g}, as the reference does",
                after(lambda x, value=value: torch.full_like(x, value)),
                is_guess=True,
            )
    if result.is_floating_point():
        yield Fit(
            "constant",
            f"has {{value}} in all of what {call.name} gives, where the reference has {{known}}",
            "fill it with {known}, as the reference does",
            known,
            lambda value: after(lambda x: torch.full_like(x, value)),
            (0.0, 1.0, -1.0),
        )
