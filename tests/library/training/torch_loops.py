"""One small network on both sides with the same weights, and PyTorch's training loop over the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import graphmode as gm

Batch = dict[str, np.ndarray]


@contextmanager
def in_double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        torch.set_default_dtype(before)


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.norm(self.conv(image))).mean((2, 3)))


class Net(nnx.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        rngs = nnx.Rngs(0)
        self.conv = gm.nn.Conv2d(2, 4, 3, padding=1, bias=False, rngs=rngs)
        self.norm = gm.nn.BatchNorm2d(4)
        self.dropout = gm.nn.Dropout(dropout, rngs=rngs)
        self.head = gm.nn.Linear(4, 3, rngs=rngs)

    def __call__(self, image: jax.Array) -> jax.Array:
        return self.head(self.dropout(jnp.tanh(self.norm(self.conv(image))).mean((1, 2))))


def pair(seed: int = 0, dtype: torch.dtype = torch.float64, dropout: float = 0.0) -> tuple[TorchNet, Net]:
    torch.manual_seed(seed)
    reference = TorchNet().to(dtype)
    model = Net(dropout)
    gm.weights.load(model, reference.state_dict())
    return reference, model


def batches(count: int, rows: int = 8, seed: int = 0, dtype: str = "float64") -> list[Batch]:
    rng = np.random.default_rng(seed)
    return [
        {"image": rng.standard_normal((rows, 5, 5, 2)).astype(dtype), "label": rng.integers(0, 3, rows)}
        for _ in range(count)
    ]


def as_tensors(batch: Batch) -> dict[str, torch.Tensor]:
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in batch.items()}
    if "image" in tensors:
        tensors["image"] = tensors["image"].permute(0, 3, 1, 2)
    return tensors


def cross_entropy(model: Net, batch: Any) -> jax.Array:
    return gm.nn.functional.cross_entropy(model(batch["image"]), batch["label"])


def torch_cross_entropy(net: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"])


def in_torch(
    net: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    given: Sequence[Batch],
    *,
    loss: Callable[[Any, Any], torch.Tensor] = torch_cross_entropy,
    parts: int = 1,
    clip_norm: float | None = None,
    clip_value: float | None = None,
) -> tuple[list[float], list[float]]:
    """The usual loop; losses, and norms of the gradients before clipping."""
    losses, norms = [], []
    for batch in given:
        optimizer.zero_grad()
        total = 0.0
        rows = len(next(iter(batch.values()))) // parts
        for part in range(parts):
            cut = {name: array[part * rows : (part + 1) * rows] for name, array in batch.items()}
            value = loss(net, as_tensors(cut)) / parts
            value.backward()
            total += value.item()
        trained = [p for p in net.parameters() if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(trained, torch.inf if clip_norm is None else clip_norm)
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(trained, clip_value)
        optimizer.step()
        losses.append(total)
        norms.append(norm.item())
    return losses, norms


def in_jax(step: gm.training.TrainStep, given: Sequence[Any]) -> tuple[Any, dict[str, np.ndarray]]:
    """The last state, and each metric over the steps."""
    state, found = step.init(), []
    for batch in given:
        state, metrics = step(state, batch)
        found.append(metrics)
    return state, {name: np.array([float(metrics[name]) for metrics in found]) for name in found[0]}


def assert_same(step: gm.training.TrainStep, state: Any, net: torch.nn.Module, tolerance: float = 1e-10) -> None:
    """Parameters and running statistics, each within this part of its largest element."""
    ours, theirs = gm.weights.to_state_dict(step.model(state)), net.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=tolerance * value.abs().max().item(), msg=None)


def host(tree: Any) -> list[np.ndarray]:
    """Copies of all arrays, keys as their data."""
    return [
        np.array(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def assert_identical(ours: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> None:
    """Bit for bit."""
    assert len(ours) == len(others)
    for a, b in zip(ours, others, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
