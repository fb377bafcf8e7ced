"""Whether a script draws random numbers while it trains, seen by what a step does to the streams of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from flax import nnx
from torch.nn.modules.dropout import _DropoutNd

LISTED = 3


def torch_streams() -> tuple[Any, ...]:
    """Where the streams stand that PyTorch's script may draw from: PyTorch's, numpy's and Python's own."""
    numpys: Any = np.random.get_state()
    cuda = torch.cuda.get_rng_state().numpy().tobytes() if torch.cuda.is_initialized() else b""
    return torch.get_rng_state().numpy().tobytes(), cuda, numpys[1].tobytes(), numpys[2], random.getstate()


def jax_streams(state: nnx.State) -> dict[str, int]:
    """How much each stream of an `nnx.Rngs` in the model has given, by its path; `state` is the model's."""
    return {
        ".".join(map(str, path)): int(np.sum(variable.get_raw_value()))
        for path, variable in nnx.to_flat_state(state)
        if isinstance(variable, nnx.RngCount)
    }


def torch_sources(module: torch.nn.Module) -> str:
    """Modules that draw in training; those of functions are not known by name."""
    found = [
        f"{name} ({type(inner).__name__} of p={inner.p:g})"
        for name, inner in module.named_modules()
        if isinstance(inner, _DropoutNd) and inner.p > 0
    ]
    return _listed(found) or "F.dropout, torch.rand, or another function that draws"


def jax_sources(before: dict[str, int], after: dict[str, int]) -> str:
    """Streams that gave something in between; empty where none did."""
    return _listed([name.removesuffix(".count") for name, count in after.items() if count != before.get(name)])


def what_to_do(reference: str, port: str) -> str:
    """Why the losses part; `reference` and `port` name what draws on either side, or are empty."""
    if not reference:
        return (
            f"the port ({port}) draws random numbers in training, and the PyTorch script does not: switch that off in "
            "the port (p=0 for dropout), or switch it on in the PyTorch script and off on both sides for the comparison"
        )
    who = f"the PyTorch script ({reference}) draws random numbers in training, and the port does not"
    if port:
        who = f"the PyTorch script ({reference}) and the port ({port}) draw random numbers in training"
    return (
        f"{who}. PyTorch's are not JAX's, so the losses differ however right the port is: switch them off on both "
        "sides for the comparison (p=0 for dropout), or draw them in `batches`, as a part of the batch"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
