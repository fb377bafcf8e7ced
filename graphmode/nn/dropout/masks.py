"""Where the mask of a dropout comes from: given for the call, given for the whole model, or drawn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Rngs = nnx.Rngs | nnx.RngStream | jax.Array
Source = Callable[[tuple[int, ...], float], jax.Array] | Iterable[jax.Array]


class _Entered:
    """A source for the length of its `with` block.

    Attributes:
      asked: number of masks that were taken from it.
    """

    def __init__(self, source: Source):
        self.asked = 0
        self._source = source
        self._masks: Iterator[jax.Array] | None = None if callable(source) else iter(source)

    def mask(self, shape: tuple[int, ...], p: float) -> jax.Array:
        self.asked += 1
        if self._masks is None:
            return self._source(shape, p)  # type: ignore[operator]
        try:
            return next(self._masks)
        except StopIteration:
            raise ValueError(
                f"dropout_masks held {self.asked - 1} masks, and a dropout of shape {shape} (p={p}) asks for another; "
                "give one for every dropout that draws, in the order of their calls"
            ) from None

    def check_used(self) -> None:
        if isinstance(self._source, Sized) and self.asked < len(self._source):
            raise ValueError(
                f"dropout_masks held {len(self._source)} masks, and {self.asked} were asked for; fewer dropouts drew "
                "(those in evaluation, with p of 0 or 1, or with a mask of their own do not), or a jitted function ran "
                "twice on what it was traced with: enter dropout_masks inside of it, and pass the masks as arguments"
            )


# Part of the key of JAX's caches: a function compiled outside is traced again inside, and asks for its masks.
_context = jax.make_user_context(default_value=None)


@contextlib.contextmanager
def dropout_masks(source: Source) -> Iterator[None]:
    """Every dropout inside takes its mask from here instead of drawing one, in the order of the calls.

    So a model in training can be run on the very masks that another run of it drew, PyTorch's for instance. A dropout
    that would draw none (in evaluation, with `p` of 0 or 1, on an empty input, with `mask=` given) does not ask.

    Masks are asked for while a function is traced. Arrays that change from step to step are therefore arguments of the
    jitted function, which enters `dropout_masks` inside; and the body of a scan or of a `jax.checkpoint` asks once.

    Args:
      source: called with the shape of the mask and `p`, or an iterable of masks; each boolean, True where the input is
        kept, and of a shape that broadcasts to that asked for (the input's; for the dropouts of features 1 on the
        spatial axes).

    Raises:
      ValueError: where an iterable has too few masks, or, being of known length, too many; where a shape does not fit.
      TypeError: where a mask is not boolean.

    Example:
      >>> dropout = Dropout(0.5)
      >>> with dropout_masks([jnp.array([True, False])]):
      ...     y = dropout(jnp.ones(2))
      >>> y.tolist()
      [2.0, 0.0]
    """
    entered = _Entered(source)
    with _context(entered):
        yield
    entered.check_used()


def mask_for(
    shape: tuple[int, ...], p: float, mask: jax.Array | None, rngs: Rngs | None, *, of: str = "dropout"
) -> jax.Array:
    """A boolean array that broadcasts to `shape`, True where the input is kept.

    Args:
      shape: of a mask that is drawn.
      p: chance of False.
      mask: this one, where given.
      rngs: drawn from, where no mask is given and none is held by `dropout_masks`: `dropout` of an `nnx.Rngs`, a
        stream, or a key.
      of: name for messages.

    Raises:
      ValueError: where a mask has another shape, or there is nothing to draw from.
      TypeError: where a mask is not boolean, or `rngs` is none of these.
    """
    if mask is not None:
        return _checked(mask, shape, "mask")
    if _context.value is not None:
        return _checked(_context.value.mask(shape, p), shape, "a mask of dropout_masks")
    if rngs is None:
        raise ValueError(
            f"{of} (p={p}) is in training and has nothing to draw its mask from; build the layer, or call it, with "
            "rngs=nnx.Rngs(...), give mask=, enter dropout_masks, or switch to evaluation with .eval() (training=False)"
        )
    # A float32 threshold: of a Python float JAX draws 64 bits for each element under x64.
    return jax.random.bernoulli(key_from(rngs), jnp.float32(1 - p), shape)


def key_from(rngs: Rngs) -> jax.Array:
    """The next key of a stream (of `dropout` in an `nnx.Rngs`), or the key itself."""
    if isinstance(rngs, nnx.Rngs):
        return rngs.dropout()
    if isinstance(rngs, nnx.RngStream):
        return rngs()
    if isinstance(rngs, jax.Array):
        return rngs
    raise TypeError(f"rngs is {rngs!r}; give an nnx.Rngs, one of its streams, or a key")


def stream_from(rngs: nnx.Rngs | nnx.RngStream | None) -> Any:
    """What a layer that is built with `rngs` keeps to draw from: a stream of its own, or None."""
    if rngs is None:
        return nnx.data(None)
    if isinstance(rngs, nnx.Rngs):
        return rngs.dropout.fork()
    if isinstance(rngs, nnx.RngStream):
        return rngs.fork()
    raise TypeError(f"rngs is {rngs!r}; give an nnx.Rngs or one of its streams")


def _checked(mask: jax.Array, shape: tuple[int, ...], name: str) -> jax.Array:
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(f"{name} is {mask.dtype}, and bool was wanted, True where the input is kept; compare it, != 0")
    aligned = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > len(shape) or any(mine not in (1, wanted) for mine, wanted in aligned):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, and one that broadcasts to {shape} was wanted")
    return mask
