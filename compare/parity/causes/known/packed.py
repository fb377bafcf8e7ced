"""Packed sequences: their lengths are not taken, or for others than they are of."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ..change import Site
from ..variants import Called, Variant, of

LENGTHS = "stop each sequence at its length: gm.nn's recurrent layers take lengths=, and Flax's nnx.RNN seq_lengths="
MOST_MORE = 32  # steps of padding beyond the longest sequence
ORDER = "keep sequences and lengths in one order: nothing needs to be sorted where the lengths are a mask"


@of("_pack_padded_sequence")
def packed(call: Called) -> Iterator[Variant]:
    yield Variant(
        "lengths-missing",
        "runs over the padding: takes no lengths of sequences, where the reference packs them",
        LENGTHS,
        lambda func, args, kwargs: func(args[0], _full(*args[:3]), *args[2:], **kwargs),
    )


@of("lstm", "gru", "rnn_tanh", "rnn_relu")
def run_packed(call: Called) -> Iterator[Variant]:
    """Where the layer is looked at alone, the padding that a port's takes is zero."""
    if isinstance(call.args[1], torch.Tensor) and call.args[1].dim() == 1 and call.args[0].dim() == 2:
        yield Variant(
            "lengths-missing",
            "runs over the padding: takes no lengths of sequences, where the reference's are packed",
            LENGTHS,
            _over_the_padding,
        )
        for more in range(1, MOST_MORE + 1):
            yield Variant(
                "lengths-missing",
                f"runs over the padding, {more} steps beyond the longest sequence: takes no lengths of sequences, "
                "where the reference's are packed",
                LENGTHS,
                functools.partial(_over_the_padding, more=more),
                is_guess=True,
            )


def _over_the_padding(func: Any, args: Any, kwargs: Any, more: int = 0) -> Any:
    data, sizes, *rest = args
    sizes = torch.cat([sizes, sizes.new_zeros(more)])
    steps, batch = len(sizes), int(sizes[0])
    seen = (torch.arange(batch)[None] < sizes[:, None]).flatten()
    padded = data.new_zeros(steps * batch, data.shape[1]).index_put((seen.nonzero()[:, 0],), data)
    out, *last = func(padded, torch.full_like(sizes, batch), *rest, **kwargs)
    return out[seen], *last


@of("sort")
def lengths_sorted(call: Called) -> Iterator[Variant]:
    if call.is_made_in("pack_padded_sequence"):
        yield Variant(
            "lengths-order",
            "takes the lengths from the longest to the shortest, and the sequences in their own order",
            ORDER,
            lambda func, args, kwargs: _in_own_order(func(*args, **kwargs)),
        )


@of("scatter_")
def back_in_order(call: Called) -> Iterator[Variant]:
    if call.is_made_in("invert_permutation"):
        yield Variant(
            "lengths-order",
            "leaves outputs and last states in the order of the lengths, from the longest to the shortest",
            ORDER,
            lambda func, args, kwargs: torch.arange(len(args[0]), dtype=args[0].dtype, device=args[0].device),
        )


def padding_set_to_zero(sites: list[Site]) -> Iterator[tuple[Variant, list[Site]]]:
    """Last states of the padding, beside outputs that are zero there: two calls, one of which packs."""
    packs = [site for site in sites if site.name == "_pack_padded_sequence"]
    unpacks = [site for site in sites if site.name == "_pad_packed_sequence"]
    if len(packs) == 1 and unpacks:
        says = "runs over the padding, and sets its outputs there to zero: last states are those of the padding"
        yield Variant("lengths-missing", says, LENGTHS, _Masked()), [*packs, *unpacks]


class _Masked:
    """In place of the calls: the first packs whole sequences and notes their lengths, the others set the rest to 0."""

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ == "_pack_padded_sequence":
            self.lengths = args[1]
            return func(args[0], _full(*args[:3]), *args[2:], **kwargs)
        x, lengths = func(*args, **kwargs)
        batch_first = bool(args[2])
        places = torch.arange(x.shape[1 if batch_first else 0])
        seen = places[None] < self.lengths[:, None] if batch_first else places[:, None] < self.lengths[None]
        return x * seen.reshape(*seen.shape, *[1] * (x.dim() - 2)).to(x), lengths


def _full(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> torch.Tensor:
    return torch.full_like(lengths, x.shape[1 if batch_first else 0])


def _in_own_order(result: Any) -> Any:
    values, order = result
    return values, torch.arange(len(order), dtype=order.dtype, device=order.device)
