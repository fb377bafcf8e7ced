"""A checksum of every array of a state, computed where the array lies: the same on one device and in shards of many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .manifest import is_key, named_leaves

CHUNK = 2**18  # words that numpy mixes at a time, in the processor's cache


def checksums(state: Any) -> dict[str, int]:
    """Of the arrays of a state that have elements, by name; each device reads its own shards once.

    A sum over the words of a mix of bits and position that is a permutation of the former: one word that has changed is
    always found, several are missed once in 2**32.
    """
    named = {name: leaf for name, leaf in named_leaves(state).items() if leaf.size}
    found = {name: _of_array(jax.random.key_data(leaf) if is_key(leaf) else leaf) for name, leaf in named.items()}
    return {name: int(value) for name, value in jax.device_get(found).items()}


def _of_array(array: jax.Array) -> Any:
    """On the host where the array is: XLA would take a tenth of a second to compile it for each shape."""
    on_host = isinstance(array, np.ndarray) or (
        array.is_fully_addressable and all(device.platform == "cpu" for device in array.devices())
    )
    return on_host_memory(np.asarray(array)) if on_host else on_device(array)


def on_host_memory(array: np.ndarray) -> int:
    words = _words(np, np.ascontiguousarray(array)).reshape(-1)
    total = 0
    for start in range(0, words.size, CHUNK):
        part = words[start : start + CHUNK]
        place = np.arange(start, start + part.size, dtype=np.uint64).astype(np.uint32)
        total += int(_mixed(part.astype(np.uint32), place).sum(dtype=np.uint64))
    return total % 2**32


@jax.jit
def on_device(array: jax.Array) -> jax.Array:
    words = _words(jnp, array)
    place = jnp.zeros((), jnp.uint32)
    for axis, size in enumerate(words.shape):
        place = place * np.uint32(size % 2**32) + jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    return jnp.sum(_mixed(words.astype(jnp.uint32), place), dtype=jnp.uint32)


def _words(xp: Any, array: Any) -> Any:
    """The bits of an array, none lost, as unsigned integers of at most 32: one or two a number, or as many more."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return xp.stack([_words(xp, array.real), _words(xp, array.imag)])
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint8)
    info = jnp.iinfo if jnp.issubdtype(array.dtype, jnp.integer) else jnp.finfo
    if info(array.dtype).bits < 8:
        array = array.astype(jnp.float32)  # fewer bits are packed here and not there
    bits = array.dtype.itemsize * 8
    word = {8: jnp.uint8, 16: jnp.uint16}.get(bits, jnp.uint32)
    if xp is np:
        return np.ascontiguousarray(array).view(word) if array.ndim else array.reshape(1).view(word)
    return jax.lax.bitcast_convert_type(array, word)


def _mixed(x: Any, place: Any) -> Any:
    """MurmurHash3's last step, which is a permutation of the words."""
    x = x ^ (place * np.uint32(0x9E3779B1))
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
