"""Functions that a draft has a copy of, where it needs them."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from graphmode import nn

if TYPE_CHECKING:
    import einops


def taking(kind: Any, rngs: nnx.Rngs) -> Any:
    """What makes a module, given `rngs` where it takes them."""
    makes = kind
    while isinstance(makes, partial):
        makes = makes.func
    is_class = isinstance(makes, type)
    parameters = inspect.signature(makes.__init__ if is_class else makes).parameters
    return partial(kind, rngs=rngs) if "rngs" in parameters else kind


def layer_named(name: str, *default: Any) -> Any:
    """The layer of this name, with channels where PyTorch has them."""
    kind: Any = getattr(nn, name, *default)
    is_class = isinstance(kind, type)
    takes_format = is_class and "data_format" in inspect.signature(kind.__init__).parameters
    return partial(kind, data_format="channels_first") if takes_format else kind


def named_children(module: nnx.Module) -> list[tuple[str, nnx.Module]]:
    """The modules that a module holds, by name, in the order they came in."""
    return [(name, each) for name, each in vars(module).items() if isinstance(each, nnx.Module)]


def children(module: nnx.Module) -> list[nnx.Module]:
    """The modules that a module holds, in the order they came in."""
    return [each for each in vars(module).values() if isinstance(each, nnx.Module)]


def named_modules(module: nnx.Module) -> list[tuple[str, nnx.Module]]:
    """A module and those inside of it, by the names that lead to them."""
    inside = ((name, each) for name, child in named_children(module) for each in named_modules(child))
    return [("", module), *((f"{name}.{last}".rstrip("."), each) for name, (last, each) in inside)]


def modules(module: nnx.Module) -> list[nnx.Module]:
    """A module and those inside of it, each once."""
    return list({id(each): each for _, each in named_modules(module)}.values())


def scatter(x: jax.Array, dim: int, index: jax.Array, source: jax.Array | float) -> jax.Array:
    """`x` with the source's elements, or a number, where `index` says along one axis."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    values = jnp.broadcast_to(source, index.shape) if jnp.ndim(source) == 0 else jnp.asarray(source)
    return x.at[tuple(places)].set(values[tuple(map(slice, index.shape))])


def scatter_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` plus the source's elements where `index` says along one axis; what comes to one place is added up."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    return x.at[tuple(places)].add(source[tuple(map(slice, index.shape))])


def index_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` plus the source's slices at these places of one axis; what comes to one place is added up."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].add(source)


def index_copy(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` with the source's slices at these places of one axis."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


def with_value(x: jax.Array, value: jax.Array) -> jax.Array:
    """`x` with another value, as a write to `x.data` gives it: the gradient goes to `x` as if nothing was written."""
    return x + jax.lax.stop_gradient(value - x)


def places_where(mask: jax.Array) -> tuple[jax.Array, ...]:
    """The places where a mask holds, axis by axis, and behind them as many beyond its end as it has elements besides:
    what `.at[]` adds or writes there is dropped."""
    return jnp.nonzero(mask, size=mask.size, fill_value=mask.shape)


def fill_where(x: jax.Array, mask: jax.Array, value: jax.Array | float) -> jax.Array:
    """`x` with a number, or another array's elements, where a mask over the first axes holds."""
    return jnp.where(mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim)), value, x).astype(x.dtype)


def along_axes(mask: jax.Array, x: jax.Array) -> jax.Array:
    """A mask over the first axes of `x`, with an axis for each of its own."""
    return mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim))


def in_pieces(x: jax.Array, sizes: Any, dim: int = 0) -> list[jax.Array]:
    """`x.split(sizes, dim)`: pieces of one length, of which the last may be shorter, or of several."""
    places = np.arange(sizes, x.shape[dim], sizes) if np.ndim(sizes) == 0 else np.cumsum(sizes)[:-1]
    return jnp.split(x, places, axis=dim)


def expanded(x: jax.Array, sizes: Any) -> jax.Array:
    """`x.expand(sizes)`: of another shape by repeating, where -1 is the length that is there."""
    sizes = (sizes,) if np.ndim(sizes) == 0 else tuple(sizes)
    there = (1,) * (len(sizes) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(own if size == -1 else size for own, size in zip(there, sizes, strict=True)))


def searchsorted(ordered: jax.Array, values: jax.Array, side: str = "left") -> jax.Array:
    """`torch.searchsorted`: the places of values in what is in order along the last axis, row by row."""
    if jnp.ndim(ordered) == 1:
        return jnp.searchsorted(ordered, values, side=side)
    return jnp.vectorize(partial(jnp.searchsorted, side=side), signature="(n),(m)->(m)")(ordered, values)


def unfold(x: jax.Array, dim: int, size: int, step: int) -> jax.Array:
    """`x.unfold(dim, size, step)`: the windows of one axis in its place, and what is in each in a last axis."""
    dim %= x.ndim
    starts = jnp.arange(0, x.shape[dim] - size + 1, step)
    return jnp.moveaxis(jnp.take(x, starts[:, None] + jnp.arange(size), axis=dim), dim + 1, -1)


class Context:
    """What `forward` of an autograd function keeps for its `backward`, as PyTorch's `ctx`."""

    def __init__(self, count: int):
        self.needs_input_grad = (True,) * count
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *values: Any) -> None:
        self.saved_tensors = values

    def mark_non_differentiable(self, *values: Any) -> None:
        pass  # a gradient that is handed back for what has none counts as zero

    def set_materialize_grads(self, value: bool) -> None:
        pass  # gradients are arrays here, of zeros where there is none


def apply_function(function: Any, *given: Any) -> Any:
    """What `function.forward(ctx, ...)` gives, whose gradient `function.backward(ctx, ...)` is."""
    is_array = [isinstance(each, jax.Array) for each in given]
    kept: dict[str, Any] = {}  # what is no array goes from one to the other by Python

    def all_of(arrays: tuple[jax.Array, ...]) -> list[Any]:
        left = iter(arrays)
        return [next(left) if taken else each for taken, each in zip(is_array, given, strict=True)]

    def forward(*arrays: jax.Array) -> tuple[Any, Any]:
        ctx = Context(len(given))
        handed = all_of(arrays)
        if hasattr(function, "setup_context"):
            made = function.forward(*handed)
            function.setup_context(ctx, tuple(handed), made)
        else:
            made = function.forward(ctx, *handed)
        leaves, kept["structure"] = jax.tree.flatten(vars(ctx))
        kept["leaves"] = [None if isinstance(each, jax.Array) else each for each in leaves]
        return made, ([each for each in leaves if isinstance(each, jax.Array)], arrays)

    def backward(saved: Any, gradients: Any) -> tuple[Any, ...]:
        values, arrays = saved
        left = iter(values)
        ctx = Context(len(given))
        leaves = [next(left) if each is None else each for each in kept["leaves"]]
        vars(ctx).update(jax.tree.unflatten(kept["structure"], leaves))
        made = function.backward(ctx, *(gradients if isinstance(gradients, tuple) else (gradients,)))
        made = made if isinstance(made, tuple) else (made,)
        found = [each for taken, each in zip(is_array, made, strict=False) if taken]
        return tuple(map(taken_as, arrays, found))

    def taken_as(array: jax.Array, gradient: jax.Array | None) -> Any:
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            return np.zeros(array.shape, jax.dtypes.float0)
        return jnp.zeros_like(array) if gradient is None else gradient

    call = jax.custom_vjp(lambda *arrays: forward(*arrays)[0])
    call.defvjp(forward, backward)
    return call(*(each for each, taken in zip(given, is_array, strict=True) if taken))


def index_fill(x: jax.Array, dim: int, index: jax.Array, value: jax.Array | float) -> jax.Array:
    """`x` with a number at these places of one axis."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(value)


def scatter_reduce(
    x: jax.Array, dim: int, index: jax.Array, source: jax.Array, reduce: str, include_self: bool = True
) -> jax.Array:
    """`x.scatter_reduce(dim, index, source, reduce)`: what comes to one place, with what is there, as one."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    at, source = tuple(places), source[tuple(map(slice, index.shape))]
    neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
    begin = x if include_self else x.at[at].set(neutral)
    if reduce == "prod":
        return begin.at[at].multiply(source)
    if reduce in ("sum", "mean"):
        total = begin.at[at].add(source)
        kept = jnp.ones_like(x) if include_self else jnp.ones_like(x).at[at].set(0)
        return total if reduce == "sum" else total / jnp.maximum(kept.at[at].add(1), 1)
    extreme = jax.lax.stop_gradient(begin.at[at].max(source) if reduce == "amax" else begin.at[at].min(source))
    own, others = begin == extreme, source == extreme[at]  # the gradient goes to all that reach it, in equal parts
    count = own.astype(x.dtype).at[at].add(others.astype(x.dtype))
    shared = jnp.where(own, begin, 0).at[at].add(jnp.where(others, source, 0)) / jnp.maximum(count, 1)
    return extreme + shared - jax.lax.stop_gradient(shared)


def topk(x: jax.Array, k: int, dim: int = -1, largest: Any = True, *_: Any) -> tuple[jax.Array, jax.Array]:
    """`x.topk(k, dim, largest)`: the k largest or smallest along one axis, best first, and where they are."""
    place = jnp.take(jnp.argsort(x, axis=dim, stable=True, descending=largest), jnp.arange(k), axis=dim)
    return jnp.take_along_axis(x, place, axis=dim), place


def kthvalue(x: jax.Array, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    """`x.kthvalue(k, dim, keepdim)`: the k-th smallest along one axis, and where it is."""
    place = jnp.take(jnp.argsort(x, axis=dim), jnp.asarray([k - 1]), axis=dim)
    both = jnp.take_along_axis(x, place, axis=dim), place
    return both if keepdim else (both[0].squeeze(dim), both[1].squeeze(dim))


def median(x: jax.Array, dim: int, keepdim: bool = False) -> tuple[jax.Array, jax.Array]:
    """`x.median(dim, keepdim)`: of an even number the lower one of the two in the middle, and where it is."""
    return kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def truncated_divide(x: jax.Array, y: Any) -> jax.Array:
    """`torch.div(x, y, rounding_mode="trunc")`, which gives integers of integers."""
    if jnp.issubdtype(jnp.result_type(x, y), jnp.inexact):
        return jnp.trunc(x / y)
    return jnp.sign(x) * jnp.sign(y) * (jnp.abs(x) // jnp.abs(y))


def unflatten(x: jax.Array, dim: int, sizes: tuple[int, ...]) -> jax.Array:
    """`x` with one axis as several."""
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def cdist(x: jax.Array, y: jax.Array, p: float = 2.0) -> jax.Array:
    """The distances of all rows of `x` from all rows of `y`; where one is 0, so is its gradient."""
    apart = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 1:
        return apart.sum(-1)
    if p == float("inf"):
        return apart.max(-1)
    powers = jnp.sum(apart**p, -1)
    return jnp.where(powers > 0, jnp.where(powers > 0, powers, 1) ** (1 / p), 0)


def hann_window(length: int, periodic: bool = True) -> jax.Array:
    """`0.5 - 0.5 cos`, of a period of so many steps, or of one less."""
    return cosine_window(length, periodic, (0.5, -0.5))


def hamming_window(length: int, periodic: bool = True) -> jax.Array:
    """`0.54 - 0.46 cos`, of a period of so many steps, or of one less."""
    return cosine_window(length, periodic, (0.54, -0.46))


def blackman_window(length: int, periodic: bool = True) -> jax.Array:
    """`0.42 - 0.5 cos + 0.08 cos`, of a period of so many steps, or of one less."""
    return cosine_window(length, periodic, (0.42, -0.5, 0.08))


def cosine_window(length: int, periodic: bool, parts: tuple[float, ...]) -> jax.Array:
    """A window of cosines, each of twice the frequency of the one before, the first a constant."""
    if length == 1:
        return jnp.ones(1)
    angles = 2 * np.pi * np.arange(length) / (length if periodic else length - 1)
    return jnp.asarray(sum(part * np.cos(k * angles) for k, part in enumerate(parts)))


def window_of_frames(window: jax.Array | None, length: int, n_fft: int, dtype: Any) -> jax.Array:
    """A window, or ones, in the middle of a frame."""
    window = jnp.ones(length, dtype) if window is None else window
    before = (n_fft - length) // 2
    return jnp.pad(window, (before, n_fft - length - before))


def stft(
    x: jax.Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: jax.Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool = True,
    return_complex: bool = True,
) -> jax.Array:
    """`torch.stft`: `[..., frequencies, frames]` of `[..., samples]`; real and imaginary part in a last axis else."""
    hop_length, win_length = hop_length or n_fft // 4, win_length or n_fft
    if center:
        ends = [(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)]
        x = jnp.pad(x, ends, mode={"replicate": "edge", "circular": "wrap"}.get(pad_mode, pad_mode))
    starts = np.arange(0, x.shape[-1] - n_fft + 1, hop_length)
    frames = x[..., starts[:, None] + np.arange(n_fft)]
    frames = frames * window_of_frames(window, win_length, n_fft, x.dtype)
    made = (jnp.fft.rfft if onesided else jnp.fft.fft)(frames, norm="ortho" if normalized else None).swapaxes(-1, -2)
    return made if return_complex else jnp.stack((made.real, made.imag), axis=-1)


def istft(
    x: jax.Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: jax.Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
) -> jax.Array:
    """`torch.istft`: `[..., samples]` of `[..., frequencies, frames]`; frames that overlap are added up and weighed."""
    hop_length, win_length = hop_length or n_fft // 4, win_length or n_fft
    window = window_of_frames(window, win_length, n_fft, x.real.dtype)
    inverse = jnp.fft.irfft if onesided else jnp.fft.ifft
    frames = inverse(x.swapaxes(-1, -2), n=n_fft, norm="ortho" if normalized else None).real * window
    count = frames.shape[-2]
    places = np.arange(count)[:, None] * hop_length + np.arange(n_fft)
    total = n_fft + hop_length * (count - 1)
    made = jnp.zeros((*frames.shape[:-2], total), frames.dtype).at[..., places].add(frames)
    weight = jnp.zeros(total, frames.dtype).at[places].add(jnp.broadcast_to(window**2, places.shape))
    begin = n_fft // 2 if center else 0
    end = begin + length if length is not None else total - n_fft // 2 if center else total
    made = made[..., begin:end] / jnp.where(weight[begin:end] > 1e-11, weight[begin:end], 1)
    return jnp.pad(made, [(0, 0)] * (made.ndim - 1) + [(0, max(end - total, 0))])


class PreTrainedModel(nnx.Module):
    """The base of models that keep the settings they were built with."""

    def __init__(self, config: Any, **kwargs: Any):
        self.config = config

    @property
    def dtype(self) -> Any:
        parameters = jax.tree.leaves(nnx.state(self, nnx.Param))
        return next(x.dtype for x in parameters if jnp.issubdtype(x.dtype, jnp.floating))


def activation_named(name: str) -> Any:
    """The activation that `transformers` has under this name."""
    functions: dict[str, Any] = {
        "gelu": nn.functional.gelu,
        "gelu_new": partial(nn.functional.gelu, approximate="tanh"),
        "gelu_pytorch_tanh": partial(nn.functional.gelu, approximate="tanh"),
        "leaky_relu": nn.functional.leaky_relu,
        "linear": lambda x: x,
        "mish": nn.functional.mish,
        "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
        "relu": nn.functional.relu,
        "relu2": lambda x: nn.functional.relu(x) ** 2,
        "relu6": nn.functional.relu6,
        "sigmoid": nn.functional.sigmoid,
        "silu": nn.functional.silu,
        "swish": nn.functional.silu,
        "tanh": nn.functional.tanh,
    }
    return functions[name]


class Rearrange(nnx.Module):
    """`einops.rearrange` as a layer."""

    def __init__(self, pattern: str, **axes_lengths: int):
        self.pattern, self.axes_lengths = pattern, tuple(axes_lengths.items())

    def __call__(self, x: jax.Array) -> jax.Array:
        return einops.rearrange(x, self.pattern, **dict(self.axes_lengths))


class Reduce(nnx.Module):
    """`einops.reduce` as a layer."""

    def __init__(self, pattern: str, reduction: Any, **axes_lengths: int):
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, tuple(axes_lengths.items())

    def __call__(self, x: jax.Array) -> jax.Array:
        return einops.reduce(x, self.pattern, self.reduction, **dict(self.axes_lengths))


@jax.tree_util.register_pytree_with_keys_class
class Output(dict):
    """Results by name, as attributes and by number too; what is None is left out."""

    def __init__(self, **values: Any):
        super().__init__({name: each for name, each in values.items() if each is not None})

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return tuple((jax.tree_util.DictKey(name), each) for name, each in self.items()), tuple(self)

    @classmethod
    def tree_unflatten(cls, names: Any, values: Any) -> Output:
        made = cls()
        made.update(zip(names, values, strict=True))
        return made


def added_mask(seen: jax.Array, inputs_embeds: jax.Array, attention_mask: jax.Array | None) -> jax.Array:
    """`[B, 1, T, T]`, to add: 0 where a step may look at another by `seen`, `[T, T]`, and that is no padding, else the
    least number."""
    if attention_mask is not None:
        seen = seen & (attention_mask != 0)[:, None, None, :]
    batch, steps = inputs_embeds.shape[:2]
    least = jnp.finfo(inputs_embeds.dtype).min
    return jnp.broadcast_to(jnp.where(seen, 0, least).astype(inputs_embeds.dtype), (batch, 1, steps, steps))


def create_causal_mask(
    config: Any, inputs_embeds: jax.Array, attention_mask: jax.Array | None = None, **kwargs: Any
) -> jax.Array:
    """`[B, 1, T, T]`, to add: 0 where a step may look at another, before it and not padding, else the least number."""
    steps = inputs_embeds.shape[1]
    seen = jnp.tril(jnp.ones((steps, steps), bool))
    return added_mask(seen, inputs_embeds, attention_mask)


def create_sliding_window_causal_mask(
    config: Any, inputs_embeds: jax.Array, attention_mask: jax.Array | None = None, **kwargs: Any
) -> jax.Array:
    """`[B, 1, T, T]`, to add: 0 where a step may look at another, itself or one of those in the window before it."""
    steps = jnp.arange(inputs_embeds.shape[1])
    ages = steps[:, None] - steps
    seen = (ages >= 0) & (ages < config.sliding_window)
    return added_mask(seen, inputs_embeds, attention_mask)


def create_bidirectional_sliding_window_mask(
    config: Any, inputs_embeds: jax.Array, attention_mask: jax.Array | None = None, **kwargs: Any
) -> jax.Array:
    """`[B, 1, T, T]`, to add: 0 where a step may look at another that is no further away than the window is wide."""
    steps = jnp.arange(inputs_embeds.shape[1])
    seen = abs(steps[:, None] - steps) <= config.sliding_window
    return added_mask(seen, inputs_embeds, attention_mask)


def create_recurrent_attention_mask(
    config: Any, inputs_embeds: jax.Array, attention_mask: jax.Array | None = None, **kwargs: Any
) -> jax.Array | None:
    """`[B, T]`, 0 for padding; None where nothing is masked."""
    if attention_mask is None or attention_mask.ndim != 2 or inputs_embeds.shape[1] == 1:
        return None
    return attention_mask[:, -inputs_embeds.shape[1] :]


def create_bidirectional_mask(
    config: Any,
    inputs_embeds: jax.Array,
    attention_mask: jax.Array | None = None,
    encoder_hidden_states: jax.Array | None = None,
    **kwargs: Any,
) -> jax.Array | None:
    """`[B, 1, T, S]`, to add: 0 where there is no padding, and else the least number; None where nothing is masked."""
    if attention_mask is None:
        return None
    least = jnp.finfo(inputs_embeds.dtype).min
    mask = jnp.where(attention_mask != 0, 0, least).astype(inputs_embeds.dtype)[:, None, None, :]
    return jnp.broadcast_to(mask, (mask.shape[0], 1, inputs_embeds.shape[1], mask.shape[-1]))
