"""Adapters of this room: images move with the layout, their flat spatial indices do not change."""

from __future__ import annotations

from dataclasses import replace

import torch

import graphmode.nn as ours

from .base import LAST, Adapter, spatial, to_last


def _of_unpooling(rank: int) -> Adapter:
    def inputs(args, kwargs, layout):
        if layout == LAST:
            args = tuple(to_last(array, rank) for array in args[:2]) + args[2:]
            size = kwargs.get("output_size")
            if size is not None and len(size) == rank + 2:
                kwargs = {**kwargs, "output_size": (size[0], *size[2:], size[1])}
        return args, kwargs

    return replace(spatial(rank), inputs=inputs)


def _of_fractional(rank: int) -> Adapter:
    def build(builder, args, kwargs, extras):
        kwargs = {name.removeprefix("_"): value for name, value in kwargs.items()}
        return getattr(ours, f"FractionalMaxPool{rank}d")(*args, **kwargs, **extras)

    return replace(spatial(rank), build=build)


def _of_fractional_function(rank: int) -> Adapter:
    plain = spatial(rank)

    def inputs(args, kwargs, layout):
        kwargs = {name.removeprefix("_"): value for name, value in kwargs.items()}
        return plain.inputs(args, kwargs, layout)

    def given(module, args, kwargs, outputs):
        if "_random_samples" in kwargs:
            return {}
        with torch.random.fork_rng():
            torch.manual_seed(42)  # as `wrapper_set_seed` of op_db does before every call
            return {"random_samples": torch.rand(*args[0].shape[:2], rank, dtype=args[0].dtype)}

    return replace(plain, inputs=inputs, given=given)


KINDS = {"Avg": "avg", "LP": "lp", "AdaptiveAvg": "adaptive_avg", "AdaptiveMax": "adaptive_max"}

ADAPTERS: dict[str, Adapter] = {
    **{f"{kind}Pool{rank}d": spatial(rank) for kind in ("Max", *KINDS) for rank in (1, 2, 3)},
    **{f"MaxUnpool{rank}d": _of_unpooling(rank) for rank in (1, 2, 3)},
    **{f"FractionalMaxPool{rank}d": _of_fractional(rank) for rank in (2, 3)},
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    **{f"{kind}_pool{rank}d": spatial(rank) for kind in ("max", *KINDS.values()) for rank in (1, 2, 3)},
    **{f"max_unpool{rank}d": _of_unpooling(rank) for rank in (1, 2, 3)},
    **{f"fractional_max_pool{rank}d": _of_fractional_function(rank) for rank in (2, 3)},
}
