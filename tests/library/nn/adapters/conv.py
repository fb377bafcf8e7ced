"""Adapters of this room: layouts, kernels of functions, and lazy layers that have their channels already."""

import dataclasses

import jax.numpy as jnp

from .base import FIRST, LAST, Adapter, spatial, to_first, to_last

RANKS = (1, 2, 3)


def _initialised(rank):
    """A lazy layer for the channels that the sample's torch module has learnt."""

    def build(torch_build, args, kwargs, extras):
        import graphmode.nn as ours

        original = torch_build()
        layer = getattr(ours, f"Lazy{type(original).__name__}")(*args, **kwargs, **extras)
        size, channels = (4,) * rank, original.in_channels
        layer.initialize((1, *size, channels) if extras["data_format"] == LAST else (1, channels, *size))
        assert type(layer).__name__ == type(original).__name__
        return layer

    return dataclasses.replace(spatial(rank), build=build)


def _with_kernel(rank):
    """For the functions: PyTorch's weight, `[out, in, *kernel]`, is the second argument."""

    def inputs(args, kwargs, layout):
        kwargs = dict(kwargs)
        names = ("input", "weight", "bias")
        operands = {**dict(zip(names, args, strict=False)), **{n: kwargs.pop(n) for n in names if n in kwargs}}
        if operands["weight"].ndim != rank + 2:  # which is ours to refuse
            return tuple(operands.values()), kwargs
        operands["weight"] = jnp.transpose(operands["weight"], (*range(2, rank + 2), 1, 0))
        if layout == LAST:
            operands["input"] = to_last(operands["input"], rank)
        return tuple(operands.get(name) for name in names) + args[3:], kwargs

    return dataclasses.replace(spatial(rank), inputs=inputs)


def _columns(array, layout):
    return jnp.swapaxes(array, -1, -2) if layout == LAST else array


UNFOLD = Adapter(
    layouts=(LAST, FIRST),
    inputs=lambda args, kwargs, layout: ((to_last(args[0], 2) if layout == LAST else args[0], *args[1:]), kwargs),
    outputs=lambda out, args, kwargs, layout: _columns(out, layout),
)
FOLD = Adapter(
    layouts=(LAST, FIRST),
    inputs=lambda args, kwargs, layout: ((_columns(args[0], layout), *args[1:]), kwargs),
    outputs=lambda out, args, kwargs, layout: to_first(out, 2) if layout == LAST else out,
)

ADAPTERS: dict[str, Adapter] = {
    **{f"Conv{kind}{rank}d": spatial(rank) for kind in ("", "Transpose") for rank in RANKS},
    **{f"LazyConv{kind}{rank}d": _initialised(rank) for kind in ("", "Transpose") for rank in RANKS},
    "Fold": FOLD,
    "Unfold": UNFOLD,
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    **{f"conv{kind}{rank}d": _with_kernel(rank) for kind in ("", "_transpose") for rank in RANKS},
    "fold": FOLD,
    "unfold": UNFOLD,
}
