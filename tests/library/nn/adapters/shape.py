"""Adapters of this room."""

from .base import FIRST, LAST, Adapter, spatial, to_first, to_last

ADAPTERS: dict[str, Adapter] = {}
FUNCTION_ADAPTERS: dict[str, Adapter] = {}

ADAPTERS |= {name: spatial(2) for name in ("PixelShuffle", "PixelUnshuffle")}
FUNCTION_ADAPTERS |= {name: spatial(2) for name in ("pixel_shuffle", "pixel_unshuffle")}


def _channels_last(args, kwargs, layout):
    return ((to_last(args[0], None), *args[1:]) if layout == LAST else args), kwargs


def _channels_first(output, args, kwargs, layout):
    return to_first(output, None) if layout == LAST else output


# The second axis of any number of them.
_ANY_RANK = Adapter(layouts=(LAST, FIRST), inputs=_channels_last, outputs=_channels_first)
ADAPTERS["ChannelShuffle"] = FUNCTION_ADAPTERS["channel_shuffle"] = _ANY_RANK
# The samples join and split any axes of any array; what channels last does is tested beside.
FUNCTION_ADAPTERS["flatten"] = FUNCTION_ADAPTERS["unflatten"] = Adapter(layouts=(FIRST,))
