"""How one parameter's array is laid out in PyTorch and in the port: invertible transforms, exact to the bit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Arrays = tuple[np.ndarray, ...]


class Transform(Protocol):
    """Takes the arrays of a rule's keys to those of its paths, and back.

    Hashable, since a parameter carries its transform as NNX metadata. Both directions raise `ValueError` where an
    array's rank or length cannot be meant.
    """

    def to_model(self, *arrays: np.ndarray) -> Arrays: ...

    def to_reference(self, *arrays: np.ndarray) -> Arrays: ...

    def gradient_to_reference(self, *arrays: np.ndarray) -> Arrays:
        """Gradients by the port's arrays as gradients by PyTorch's (the transpose of `to_model`)."""
        ...


class _Orthogonal:
    """A transform that only moves elements: its inverse is its transpose."""

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        raise NotImplementedError

    def gradient_to_reference(self, *arrays: np.ndarray) -> Arrays:
        return self.to_reference(*arrays)


@dataclass(frozen=True)
class Identity(_Orthogonal):
    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return arrays

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return arrays


@dataclass(frozen=True)
class Permute(_Orthogonal):
    """`to_model` is `transpose(axes)`."""

    axes: tuple[int, ...]

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return tuple(self._checked(a).transpose(self.axes) for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(self._checked(a).transpose(np.argsort(self.axes)) for a in arrays)

    def _checked(self, array: np.ndarray) -> np.ndarray:
        if array.ndim != len(self.axes):
            raise ValueError(f"shape {array.shape} has {array.ndim} axes, and {len(self.axes)} were wanted")
        return array


@dataclass(frozen=True)
class ConvKernel(_Orthogonal):
    """`[out, in / groups, *window]` to `[*window, in / groups, out]`: any rank, grouped and depthwise too."""

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return tuple(_at_least(a, 3).transpose(*range(2, a.ndim), 1, 0) for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(_at_least(a, 3).transpose(a.ndim - 1, a.ndim - 2, *range(a.ndim - 2)) for a in arrays)


@dataclass(frozen=True)
class ConvTransposeKernel(_Orthogonal):
    """`[in, out, *window]` to `[*window, out, in]`, or, `flipped`, to `[*window[::-1], in, out]`."""

    flipped: bool = False

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        if self.flipped:
            return tuple(_flip_window(_at_least(a, 3).transpose(*range(2, a.ndim), 0, 1)) for a in arrays)
        return tuple(_at_least(a, 3).transpose(*range(2, a.ndim), 1, 0) for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        if self.flipped:
            unflipped = (_flip_window(_at_least(a, 3)) for a in arrays)
            return tuple(a.transpose(a.ndim - 2, a.ndim - 1, *range(a.ndim - 2)) for a in unflipped)
        return tuple(_at_least(a, 3).transpose(a.ndim - 1, a.ndim - 2, *range(a.ndim - 2)) for a in arrays)


@dataclass(frozen=True)
class LinearGeneral(_Orthogonal):
    """`[prod(outputs), prod(inputs)]` to `[*inputs, *outputs]`, or `[prod(outputs)]` to `[*outputs]` for a bias."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return tuple(self._checked(a).T.reshape(self.inputs + self.outputs) for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(a.reshape(self._flat[::-1]).T for a in arrays)

    @property
    def _flat(self) -> tuple[int, ...]:
        return tuple(math.prod(axes) for axes in (self.outputs, self.inputs) if axes)

    def _checked(self, array: np.ndarray) -> np.ndarray:
        if array.shape != self._flat:
            raise ValueError(f"shape {array.shape} where {self._flat} was wanted")
        return array


@dataclass(frozen=True)
class SplitGates(_Orthogonal):
    """One array that stacks `gates` blocks on its first axis to one array a gate, each passed through `each`."""

    gates: int
    each: Transform

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        (stacked,) = arrays
        if stacked.ndim == 0 or stacked.shape[0] % self.gates:
            raise ValueError(f"shape {stacked.shape} does not split into {self.gates} gates on its first axis")
        return tuple(self.each.to_model(block)[0] for block in np.split(stacked, self.gates))

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return (np.concatenate([self.each.to_reference(a)[0] for a in arrays]),)


@dataclass(frozen=True)
class Stack:
    """Arrays of one shape, each passed through `each`, to one that has `counts` as its first axes."""

    counts: tuple[int, ...]
    each: Transform

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        if len({(array.shape, array.dtype) for array in arrays}) > 1:
            told = ", ".join(dict.fromkeys(f"{array.dtype}{list(array.shape)}" for array in arrays))
            raise ValueError(f"the layers are {told}, and one shape and dtype was wanted to stack them")
        made = np.stack([self.each.to_model(array)[0] for array in arrays])
        return (made.reshape(*self.counts, *made.shape[1:]),)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(self.each.to_reference(layer)[0] for layer in self._layers(*arrays))

    def gradient_to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(self.each.gradient_to_reference(layer)[0] for layer in self._layers(*arrays))

    def _layers(self, array: np.ndarray) -> list[np.ndarray]:
        flat = array.reshape(-1, *array.shape[len(self.counts) :])
        return [np.asarray(layer) for layer in flat]


@dataclass(frozen=True)
class SumBiases:
    """PyTorch's two recurrent biases, `[4H]` each, to their sum, split into `gates` arrays.

    The one lossy transform: the way back gives the sum and zero, which compute the same. Under SGD or Adam two biases
    move twice as far as one, so a port that is trained keeps both.
    """

    gates: int = 1

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return tuple(np.split(np.add(*_alike(*arrays)), self.gates))

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        total = np.concatenate(arrays)
        return total, np.zeros_like(total)

    def gradient_to_reference(self, *arrays: np.ndarray) -> Arrays:
        gradient = np.concatenate(arrays)
        return gradient, gradient


@dataclass(frozen=True)
class GruBiases:
    """PyTorch's two GRU biases, `[3H]` each (reset, update, new), to the one of `nnx.GRUCell`.

    PyTorch's reset gate scales the hidden bias of the new gate, and that cell has no place for one: the biases go over
    only where that third is zero, as their sum. The way back gives the sum and zero. `graphmode.nn` holds both.

    Raises:
      ValueError: in `to_model` where the hidden bias of the new gate is not zero.
    """

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        input_bias, hidden_bias = _alike(*arrays)
        if np.any(np.split(hidden_bias, 3)[2]):
            raise ValueError(
                "nnx.GRUCell has no place for the hidden bias of the new gate, which is not zero here; port it with "
                "graphmode.nn"
            )
        return (input_bias + hidden_bias,)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        (total,) = arrays
        return total, np.zeros_like(total)

    def gradient_to_reference(self, *arrays: np.ndarray) -> Arrays:
        raise ValueError(
            "the gradient of PyTorch's hidden bias is not known from nnx.GRUCell; port it with graphmode.nn"
        )


@dataclass(frozen=True)
class Scalar(_Orthogonal):
    """PyTorch's single parameter, `[1]`, to a scalar."""

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        return tuple(a.reshape(()) if a.shape == (1,) else a for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(a.reshape((1,)) for a in arrays)


@dataclass(frozen=True)
class Counter(_Orthogonal):
    """PyTorch's int64 counters to the int32 that JAX holds without x64.

    Raises:
      ValueError: in `to_model` where a count does not fit.
    """

    def to_model(self, *arrays: np.ndarray) -> Arrays:
        for array in arrays:
            if not np.can_cast(array.dtype, np.int64):
                raise ValueError(f"dtype {array.dtype} where a count in integers was wanted")
            if np.any(array != array.astype(np.int32)):
                raise ValueError(f"the count {array.max()} does not fit into int32")
        return tuple(a.astype(np.int32) for a in arrays)

    def to_reference(self, *arrays: np.ndarray) -> Arrays:
        return tuple(a.astype(np.int64) for a in arrays)


IDENTITY = Identity()
LINEAR = Permute((1, 0))
CONV = ConvKernel()


def _alike(first: np.ndarray, second: np.ndarray) -> Arrays:
    if first.shape != second.shape or first.dtype != second.dtype or first.ndim != 1:
        a, b = (f"{array.dtype}{list(array.shape)}" for array in (first, second))
        raise ValueError(f"the biases are {a} and {b}, and two alike of one axis were wanted")
    return first, second


def _flip_window(array: np.ndarray) -> np.ndarray:
    return np.flip(array, tuple(range(array.ndim - 2)))


def _at_least(array: np.ndarray, rank: int) -> np.ndarray:
    if array.ndim < rank:
        raise ValueError(f"shape {array.shape} has {array.ndim} axes, and at least {rank} were wanted")
    return array
