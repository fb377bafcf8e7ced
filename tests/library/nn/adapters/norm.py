"""Adapters of this room."""

from dataclasses import replace

from .base import FIRST, LAST, PLAIN, Adapter, spatial, to_first, to_last


def _channels_second(args, kwargs, layout):
    """PyTorch's rule for any number of axes, the fewest included: the second axis has the channels."""
    if layout == LAST and args and args[0].ndim > 2:
        args = (to_last(args[0], None), *args[1:])
    if layout == LAST and "input" in kwargs:
        kwargs = {**kwargs, "input": to_last(kwargs["input"], None)}
    return args, kwargs


def _back(out, args, kwargs, layout):
    return to_first(out, None) if layout == LAST and out.ndim > 2 else out


def _rate_of_pairs(outputs, args, kwargs):
    """Two values become -1 and 1 whatever they are: their gradient is what `eps` leaves of terms as large as this."""
    x = args[0].detach()
    values, count = (x.flatten(-len(args[1])), 2) if isinstance(args[1], tuple) else (x.flatten(1), 2 * args[1])
    if values.shape[-1] != count or not len(values):
        return {}
    variance = values.unflatten(-1, (-1, 2)).var(-1, correction=0)
    return {"gradient.0.0": float((variance + kwargs.get("eps", 1e-5)).rsqrt().max())}


ANY_RANK = Adapter(layouts=(LAST, FIRST), inputs=_channels_second, outputs=_back)
RANKS = {rank: spatial(rank) for rank in (1, 2, 3)}

ADAPTERS: dict[str, Adapter] = {
    "SyncBatchNorm": ANY_RANK,
    "BatchNorm1d": ANY_RANK,
    "BatchNorm2d": RANKS[2],
    "BatchNorm3d": RANKS[3],
    "InstanceNorm1d": RANKS[1],
    "InstanceNorm2d": RANKS[2],
    "InstanceNorm3d": RANKS[3],
    "GroupNorm": ANY_RANK,
    "LocalResponseNorm": ANY_RANK,
}
FUNCTION_ADAPTERS: dict[str, Adapter] = {
    "batch_norm": ANY_RANK,
    "group_norm": replace(ANY_RANK, scale=_rate_of_pairs),
    "instance_norm": ANY_RANK,
    "layer_norm": replace(PLAIN, scale=_rate_of_pairs),
    "local_response_norm": ANY_RANK,
}
