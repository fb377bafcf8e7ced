"""A model on both sides: convolution, norm, a linear layer and an LSTM, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import graphmode as gm


class Reference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, (3, 2))
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 3)
        self.cell = torch.nn.LSTM(3, 2)


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = gm.nn.Conv2d(2, 4, (3, 2), rngs=rngs)
        self.norm = gm.nn.BatchNorm2d(4, rngs=rngs)
        self.head = gm.nn.Linear(4, 3, rngs=rngs)
        self.cell = gm.nn.LSTM(3, 2, rngs=rngs)


class SmallReference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, (3, 2))
        self.head = torch.nn.Linear(4, 3, bias=False)


class Small(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = gm.nn.Conv2d(2, 4, (3, 2), rngs=rngs)
        self.head = gm.nn.Linear(4, 3, bias=False, rngs=rngs)


class MatricesReference(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 7, bias=False)
        self.second = torch.nn.Linear(7, 5, bias=False)
        self.square = torch.nn.Linear(5, 5, bias=False)


class Matrices(nnx.Module):
    """For Muon."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = gm.nn.Linear(4, 7, bias=False, rngs=rngs)
        self.second = gm.nn.Linear(7, 5, bias=False, rngs=rngs)
        self.square = gm.nn.Linear(5, 5, bias=False, rngs=rngs)


MODELS = {
    "all": (Reference, Port),
    "small": (SmallReference, Small),
    "matrices": (MatricesReference, Matrices),
}


def pair(which: str = "small", dtype: str = "float64") -> tuple[torch.nn.Module, nnx.Module]:
    """The same weights on both sides."""
    theirs, ours = MODELS[which]
    torch.manual_seed(0)
    reference = theirs().to(getattr(torch, dtype))
    port = ours(nnx.Rngs(0))
    gm.weights.load(port, reference.state_dict())
    return reference, port


def gradients(reference: torch.nn.Module, step: int) -> dict[str, np.ndarray]:
    """In PyTorch's layout, by its names."""
    rng = np.random.default_rng((5, step))
    return {name: rng.standard_normal(p.shape) for name, p in reference.named_parameters()}


def step_torch(
    reference: torch.nn.Module, optimizer: torch.optim.Optimizer, given: Mapping[str, np.ndarray | None]
) -> None:
    for name, p in reference.named_parameters():
        array = given.get(name)
        p.grad = None if array is None else torch.tensor(array, dtype=p.dtype)
    optimizer.step()


def in_layout(port: nnx.Module, given: Mapping[str, np.ndarray]) -> Any:
    """Gradients as a tree like `nnx.state(port, nnx.Param)`."""
    state = nnx.state(port, nnx.Param)
    of = {leaf.path: leaf for leaf in gm.weights.leaves(port)}

    def put(path: Any, leaf: nnx.Variable) -> nnx.Variable:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        (array,) = of[name].transform.to_model(given[of[name].name])
        return leaf.replace(jnp.asarray(array, leaf.get_value().dtype))

    return jax.tree_util.tree_map_with_path(put, state, is_leaf=lambda node: isinstance(node, nnx.Variable))


def many_steps(rules: Sequence[Any]) -> Callable[..., Any]:
    """`([(parameters, state), ...], gradients of all steps) -> [(parameters, state), ...]`, in one graph."""

    @jax.jit
    def run(begun: Any, every: Any) -> Any:
        def body(carry: Any, grads: Any) -> Any:
            after = []
            for tx, (params, state) in zip(rules, carry, strict=True):
                updates, state = tx.update(grads, state, params)
                after.append((jax.tree.map(jnp.add, params, updates), state))
            return after, None

        return jax.lax.scan(body, begun, every)[0]

    return run


def stacked(port: nnx.Module, reference: torch.nn.Module, steps: Iterable[int]) -> Any:
    """The gradients of these steps as trees like `nnx.state(port, nnx.Param)`."""
    return jax.tree.map(lambda *of: jnp.stack(of), *(in_layout(port, gradients(reference, step)) for step in steps))


def assert_same_weights(port: nnx.Module, reference: torch.nn.Module, tolerance: float = 1e-10) -> None:
    ours = gm.weights.named_arrays(port, of=nnx.Param)
    for name, p in reference.named_parameters():
        theirs = p.detach().double().numpy()
        np.testing.assert_allclose(ours[name], theirs, rtol=tolerance, atol=tolerance, err_msg=name)
