"""Buffers and other fixed tensors that a port may ignore, turn the sign of, or take another one for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from .change import Change
from .parameters import Make, is_own
from .replay import Replay
from .variants import Variant
from .wiring import unused

USE = "use {} as the reference does"
COUNTER = "num_batches_tracked"  # which no result depends on


def own_buffers(replay: Replay) -> dict[str, torch.Tensor]:
    """The numbers, by name below the module, that it holds besides the parameters with a gradient, and not in a module
    that the port has, too."""
    return {
        name: x
        for name, x in replay.held().items()
        if name not in replay.parameters and is_own(replay, name) and _is_of_numbers(x) and not name.endswith(COUNTER)
    }


def buffer_variants(replay: Replay) -> Iterator[tuple[Variant, Change]]:
    """Of the module's own buffers, those first that say least."""
    own = own_buffers(replay)
    for name, x in replay.held().items():
        if x.dtype == torch.bool and x.dim() == 0 and is_own(replay, name):
            says = f"does what the reference does where {name} is {not x}: as it does in other calls than the first"
            fix = f"choose by {name}, as the reference does: jnp.where or jax.lax.cond"
            # what a later call finds is what this one is given instead, and no longer another
            makes = {name: torch.zeros_like if x else torch.ones_like}
            yield Variant("branch", says, fix, unused), Change(parameters=makes, stays=True)
    for name, x in own.items():
        for words, make in (("zero", torch.zeros_like), ("one", torch.ones_like)):
            if not torch.equal(make(x), x):
                yield _variant("buffer-missing", f"does not use {name} ({words})", USE.format(name), {name: make})
        if x.any():
            yield _variant("sign", f"has the sign of {name} turned", "keep its sign", {name: torch.neg})
        if _is_permutation(x) and not any(torch.equal(x.argsort(), y) for y in own.values()):
            says, fix = f"uses the inverse of the permutation {name}", USE.format(name)
            yield _variant("inverse-permutation", says, fix, {name: torch.argsort})
    for (name, x), (other, y) in itertools.permutations(own.items(), 2):
        if _are_alike(x, y):
            yield _instead(name, other, y)
    for (name, x), (other, y) in itertools.combinations(own.items(), 2):
        if _are_alike(x, y):
            makes = {name: _copy_of(y), other: _copy_of(x)}
            yield _variant("swapped-buffers", f"swaps {name} and {other}", "carry each into its own place", makes)
    elsewhere = itertools.chain(replay.model.named_parameters(), replay.model.named_buffers())
    for other, y in elsewhere:
        for name, x in own.items():
            if _are_alike(x, y) and not any(y is each for each in own.values()):
                yield _instead(name, other, y)


def _variant(id: str, says: str, fix: str, makes: dict[str, Make]) -> tuple[Variant, Change]:
    return Variant(id, says, fix, unused), Change(parameters=makes)


def _instead(name: str, other: str, tensor: torch.Tensor) -> tuple[Variant, Change]:
    return _variant("swapped-buffers", f"uses {other} for {name}", USE.format(name), {name: _copy_of(tensor)})


def _copy_of(tensor: torch.Tensor) -> Make:
    return lambda _: tensor.detach().clone()  # which the module may write to


def _are_alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x is not y and x.shape == y.shape and x.dtype == y.dtype and not torch.equal(x, y)


def _is_of_numbers(x: torch.Tensor) -> bool:
    return x.numel() > 0 and x.dtype != torch.bool and not x.is_complex()


def _is_permutation(x: torch.Tensor) -> bool:
    if x.dim() != 1 or x.is_floating_point() or torch.equal(x.argsort(), x):
        return False
    return torch.equal(x.sort().values, torch.arange(len(x), dtype=x.dtype, device=x.device))
