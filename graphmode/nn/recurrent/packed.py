"""Sequences of several lengths: padded, with their lengths beside them, where PyTorch packs them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import as_integer, as_word, check_array

Array = jax.Array
Call = TypeVar("Call", bound=Callable[..., Any])


@functools.partial(jax.tree_util.register_dataclass, data_fields=["padded", "lengths"], meta_fields=["batch_first"])
@dataclasses.dataclass(frozen=True)
class PackedSequence:
    """A padded batch and how many steps of each sequence are real: what a graph has in place of PyTorch's packed steps.

    A pytree. RNN, LSTM and GRU take it, whatever their `batch_first`, and give their output as one.

    Attributes:
      padded: `[T, B, ...]`, or `[B, T, ...]` where `batch_first`.
      lengths: `[B]` integers.
      batch_first: how `padded` lies.
    """

    padded: Array
    lengths: Array
    batch_first: bool = False

    def __getattr__(self, name: str) -> Any:
        if name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
            raise AttributeError(
                f"PackedSequence has no {name}, whose shape depends on the lengths; its padded batch is .padded"
            )
        raise AttributeError(f"PackedSequence has no {name}")

    def laid(self, batch_first: bool) -> PackedSequence:
        """The same, with the batch as its first axis, or as its second."""
        if batch_first == self.batch_first:
            return self
        return PackedSequence(self.padded.swapaxes(0, 1), self.lengths, batch_first)


def pack_padded_sequence(
    input: Array, lengths: Array | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """A padded batch with its lengths, for RNN, LSTM and GRU.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html

    Args:
      input: `[T, B, ...]`, or `[B, T, ...]` where `batch_first`.
      lengths: `[B]` integers up to T.
      batch_first: how `input` lies.
      enforce_sorted: whether lengths that are known as the graph is made have to fall; no order is needed here.

    Raises:
      ValueError: where `input` and `lengths` do not fit, or lengths that are known rise where they may not, or are
        negative or above T.
      TypeError: where `lengths` are no integers.
    """
    check_array("input", input)
    if input.ndim < 2:
        raise ValueError(f"input has shape {tuple(input.shape)}; give [B, T, ...] with batch_first, else [T, B, ...]")
    counts = lengths if isinstance(lengths, jax.Array) else np.asarray(lengths)
    batch, steps = input.shape[:2] if batch_first else input.shape[1::-1]
    if not jnp.issubdtype(counts.dtype, jnp.integer):
        raise TypeError(f"lengths has dtype {counts.dtype}; give integers")
    if counts.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(counts.shape)}; give ({batch},), one for each sequence of input")
    if not isinstance(counts, jax.core.Tracer):
        known = np.asarray(counts)
        if known.size and not 0 <= known.min() <= known.max() <= steps:
            raise ValueError(f"lengths go from {known.min()} to {known.max()}; give 0 to {steps}, the steps of input")
        if enforce_sorted and (np.diff(known) > 0).any():
            raise ValueError("lengths rise, and enforce_sorted is True; give them falling, or enforce_sorted=False")
    return PackedSequence(input, jnp.asarray(counts), batch_first)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Array, Array]:
    """The padded batch of a `PackedSequence`, and its lengths.

    It has as many steps as what was packed, and not, as PyTorch's, as the longest sequence, which only a run knows.
    Where the two differ, give PyTorch's function `total_length`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_packed_sequence.html

    Args:
      sequence: from `pack_padded_sequence`, or from a recurrent layer.
      batch_first: how the result lies.
      padding_value: what stands behind each sequence's end.
      total_length: the steps of the result, at least as many as the longest sequence has; None for those of what was
        packed.

    Raises:
      TypeError: where `sequence` is no `PackedSequence`.
      ValueError: where `total_length` is negative.
    """
    if not isinstance(sequence, PackedSequence):
        raise TypeError(f"sequence is {type(sequence).__name__}; give what pack_padded_sequence or a layer gives")
    padded = sequence.laid(True).padded
    if total_length is not None:
        steps = as_integer("total_length", total_length, least=0)
        missing = max(steps - padded.shape[1], 0)
        padded = jnp.pad(padded[:, :steps], [(0, 0), (0, missing), *[(0, 0)] * (padded.ndim - 2)])
    real = jnp.arange(padded.shape[1]) < sequence.lengths[:, None]
    real = real.reshape(*real.shape, *[1] * (padded.ndim - 2))
    padded = jnp.where(real, padded, jnp.asarray(padding_value, padded.dtype))
    return (padded if batch_first else padded.swapaxes(0, 1)), sequence.lengths


def pad_sequence(
    sequences: Sequence[Array], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Array:
    """Arrays `[T_i, ...]` of any lengths in one, `[T, B, ...]`, or `[B, T, ...]` where `batch_first`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html

    Args:
      sequences: which have the same axes behind the first.
      batch_first: how the result lies.
      padding_value: what fills a sequence up to the length of the longest.
      padding_side: `"right"` or `"left"` of the sequences.

    Raises:
      ValueError: where there is no sequence, or their further axes differ.
    """
    as_word("padding_side", padding_side, ("right", "left"))
    if not len(sequences):
        raise ValueError("sequences is empty; give at least one array")
    shapes = {sequence.shape[1:] for sequence in sequences}
    if len(shapes) > 1:
        raise ValueError(
            f"sequences have the further axes {sorted(shapes)}; give arrays that differ in the first alone"
        )
    longest = max(sequence.shape[0] for sequence in sequences)

    def filled(sequence: Array) -> Array:
        missing = longest - sequence.shape[0]
        ends = (0, missing) if padding_side == "right" else (missing, 0)
        return jnp.pad(sequence, [ends, *[(0, 0)] * (sequence.ndim - 1)], constant_values=padding_value)

    return jnp.stack([filled(sequence) for sequence in sequences], axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Array], enforce_sorted: bool = True) -> PackedSequence:
    """Arrays `[T_i, ...]` as one `PackedSequence`.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_sequence.html

    Raises:
      ValueError: as `pad_sequence` and `pack_padded_sequence`.
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def takes_packed(call: Call) -> Call:
    """A recurrent layer's call, which takes a `PackedSequence` too and gives its output as one."""

    @functools.wraps(call)
    def called(self: Any, input: Array | PackedSequence, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, PackedSequence):
            return call(self, input, *args, **kwargs)
        if kwargs.get("lengths") is not None:
            raise ValueError("lengths were given, and input is a PackedSequence, which has its own; leave lengths out")
        packed = input.laid(self.batch_first)
        output, state = call(self, packed.padded, *args, **{**kwargs, "lengths": packed.lengths})
        return PackedSequence(output, packed.lengths, self.batch_first), state

    return cast(Call, called)
