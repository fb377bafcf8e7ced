"""Operations against eager PyTorch: each a record of inputs, our form and theirs, under `jit`, `vmap` and gradients.

A test module lists its `Differential`s in a table and hands `cases(TABLE)` to `pytest.mark.parametrize`; `run` draws
configurations with hypothesis. A configuration holds what decides shapes and static arguments, and is drawn from few
choices, so that graphs are compiled once each; values come from a generator, special ones (ties, zeros of both signs,
infinities) mixed in by `values_of`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from compiling import AS_FOR_USERS
from hypothesis import strategies as st

import graphmode as gm

QUICK, THOROUGH = 5, int(os.environ.get("GRAPHMODE_TEST_EXAMPLES", "200"))
LANES = 3
FLOATING = ("float32", "float64", "bfloat16")
DTYPES = (*FLOATING, "int32", "bool")
# relative to the largest entry: sums and products in another order
ROUNDING = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 4e-2}
MOST_ERROR = 5  # times PyTorch's own

Arrays = dict[str, np.ndarray]
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Differential:
    """One operation and the eager PyTorch code that it stands for.

    Attributes:
      name: of the operation, as a user types it.
      configs: strategy of a mapping of hashable values: sizes, capacities, static arguments.
      arrays: `(rng, config, dtype)` -> numpy arrays by name; shapes follow from `config` alone.
      ours: `(config, **arrays)` -> pytree of arrays, traceable.
      eager: `(config, **tensors)` -> the same structure; `padded` brings a dynamic result to the form of a `Padded`.
      dtypes: those that make sense.
      gradients: names of the arrays that are differentiated, in floating dtypes.
      exact: whether results must be the same to the last bit, or to rounding; gradients are compared to rounding.
      optimised: whether XLA compiles as for users, which matters where multiplication and addition may become one
        operation that rounds once, or quickly.
    """

    name: str
    configs: st.SearchStrategy[Config]
    arrays: Callable[[np.random.Generator, SimpleNamespace, str], Arrays]
    ours: Callable[..., Any]
    eager: Callable[..., Any]
    dtypes: tuple[str, ...] = DTYPES
    gradients: tuple[str, ...] = ()
    exact: bool = True
    optimised: bool = False


def cases(table: Iterable[Differential]) -> list[Any]:
    """Parameters `(differential, dtype, examples)` of a test: a few examples in the first dtype of each, and, marked
    slow, many in every one."""
    quick = [pytest.param(one, one.dtypes[0], QUICK, id=f"{one.name}-{one.dtypes[0]}-{QUICK}") for one in table]
    thorough = [
        pytest.param(one, dtype, THOROUGH, id=f"{one.name}-{dtype}-{THOROUGH}", marks=pytest.mark.slow)
        for one in table
        for dtype in one.dtypes
    ]
    return [*quick, *thorough]


def run(one: Differential, dtype: str, examples: int, *, shrink: bool = True) -> None:
    """Raises `AssertionError` with configuration and seed where an example disagrees, a small one with `shrink`."""
    phases = [hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])]

    @hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=phases,
        deadline=None,
    )
    @hypothesis.given(config=one.configs, seed=st.integers(0, 2**31 - 1))
    def agree(config: Config, seed: int) -> None:
        examine(one, dtype, config, seed)

    try:
        agree()
    finally:
        # Each compiled graph holds memory maps, of which a process may have 65,530 on Linux: XLA dies of the next one.
        for compiled in (_jitted, _mapped, _pulled_back):
            compiled.cache_clear()


def is_caught(one: Differential, dtype: str = "float32", examples: int = 60) -> bool:
    """Whether a differential, its `ours` replaced by a faulty form, disagrees with PyTorch."""
    try:
        run(one, dtype, examples, shrink=False)
    except AssertionError:
        return True
    return False


def examine(one: Differential, dtype: str, config: Config, seed: int) -> None:
    """One example: values under `jit`, gradients, and several lanes under `vmap`, each against eager PyTorch."""
    rng = np.random.default_rng(seed)
    key = tuple(sorted(config.items()))
    lanes = [one.arrays(rng, SimpleNamespace(**config), dtype) for _ in range(LANES)]
    wanted = [_from_torch(one.eager(SimpleNamespace(**config), **_tensors(lane))) for lane in lanes]
    with jax.enable_x64(dtype == "float64"):
        _compare(_from_jax(_jitted(one, key)(lanes[0])), wanted[0], one.exact, dtype, "under jit")
        stacked = {name: np.stack([lane[name] for lane in lanes]) for name in lanes[0]}
        mapped = _from_jax(_mapped(one, key)(stacked))
        for i, lane in enumerate(wanted):
            _compare([leaf[i] for leaf in mapped], lane, one.exact, dtype, f"lane {i} under vmap")
        if one.gradients and dtype in FLOATING and all(lanes[0][name].size for name in one.gradients):
            _compare_gradients(one, key, config, lanes[0], rng, dtype)


def padded(rows: torch.Tensor, capacity: int, fill_value: float = 0) -> dict[str, torch.Tensor]:
    """What a `Padded` holds of dynamic `rows` `[count, ...]`: cut or filled to the capacity, with the true count."""
    held = rows[:capacity]
    filling = torch.full((capacity - len(held), *rows.shape[1:]), fill_value, dtype=rows.dtype)
    valid = torch.arange(capacity) < len(rows)
    return {"values": torch.cat([held, filling]), "valid": valid, "count": torch.tensor(len(rows))}


def values_of(
    rng: np.random.Generator, shape: int | tuple[int, ...], dtype: str, *, special: bool = True
) -> np.ndarray:
    """Random values; with `special`, ties and zeros of both signs, and infinities at times. No NaN."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "int32":
        return rng.integers(-4, 5, shape).astype(np.int32)
    values = rng.standard_normal(shape)
    if special:
        kind = rng.integers(4)
        if kind == 0:
            values = np.round(values)
        if kind == 1:
            values = np.where(rng.random(shape) < 0.2, rng.choice([-0.0, 0.0, np.inf, -np.inf], shape), values)
    return np.asarray(values).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def mask_of(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """A random mask: empty, full, or anything between."""
    return rng.random(shape) < rng.choice([0.0, 0.2, 0.5, 0.8, 1.0])


@functools.cache
def _jitted(one: Differential, key: tuple[tuple[str, Any], ...]) -> Callable[[Arrays], Any]:
    return _compiled(one, lambda arrays: one.ours(SimpleNamespace(**dict(key)), **arrays))


@functools.cache
def _mapped(one: Differential, key: tuple[tuple[str, Any], ...]) -> Callable[[Arrays], Any]:
    return _compiled(one, jax.vmap(lambda arrays: one.ours(SimpleNamespace(**dict(key)), **arrays)))


@functools.cache
def _pulled_back(one: Differential, key: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    def pull(chosen: Arrays, others: Arrays, cotangents: list[np.ndarray]) -> Any:
        def floating(chosen: Arrays) -> list[jax.Array]:
            leaves = _leaves(one.ours(SimpleNamespace(**dict(key)), **chosen, **others))
            return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]

        return jax.vjp(floating, chosen)[1](cotangents)[0]

    return _compiled(one, pull)


def _compiled(one: Differential, function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function, compiler_options=AS_FOR_USERS if one.optimised else None)


def _compare_gradients(
    one: Differential, key: Any, config: Config, arrays: Arrays, rng: np.random.Generator, dtype: str
) -> None:
    # Infinities make NaN gradients in both worlds, at places that are no one's concern.
    arrays = {name: _finite(array) if name in one.gradients else array for name, array in arrays.items()}
    outputs = [a for a in _from_torch(one.eager(SimpleNamespace(**config), **_tensors(arrays))) if _is_floating(a)]
    cotangents = [rng.standard_normal(a.shape).astype(a.dtype) for a in outputs]
    wanted = _eager_gradients(one, config, arrays, cotangents)
    chosen = {name: arrays[name] for name in one.gradients}
    others = {name: array for name, array in arrays.items() if name not in one.gradients}
    found = _pulled_back(one, key)(chosen, others, cotangents)
    got = [np.asarray(found[name]) for name in one.gradients]
    try:
        _compare(got, wanted, False, dtype, f"gradient of {one.gradients}")
    except AssertionError:
        if dtype != "bfloat16" or not _are_as_precise(one, config, arrays, cotangents, got, wanted):
            raise


def _eager_gradients(
    one: Differential, config: Config, arrays: Arrays, cotangents: list[np.ndarray]
) -> list[np.ndarray]:
    tensors = _tensors(arrays)
    for name in one.gradients:
        tensors[name].requires_grad_()
    outputs = [leaf for leaf in _leaves(one.eager(SimpleNamespace(**config), **tensors)) if leaf.is_floating_point()]
    pairs = [(o, _tensor(c)) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
    sources = [tensors[name] for name in one.gradients]
    if pairs:
        found = torch.autograd.grad([o for o, _ in pairs], sources, [c for _, c in pairs], allow_unused=True)
    else:
        found = tuple(None for _ in sources)
    return [_numpy(torch.zeros_like(s) if g is None else g) for s, g in zip(sources, found, strict=True)]


def _are_as_precise(
    one: Differential,
    config: Config,
    arrays: Arrays,
    cotangents: list[np.ndarray],
    got: list[np.ndarray],
    wanted: list[np.ndarray],
) -> bool:
    """Where terms of eight bits cancel neither side is near the other: then ours may be five times as far from the
    gradient in float64 as PyTorch's, as in the verdict *precise*."""
    wide = {name: array.astype(np.float64) if _is_floating(array) else array for name, array in arrays.items()}
    truths = _eager_gradients(one, config, wide, [c.astype(np.float64) for c in cotangents])
    for ours, theirs, truth in zip(got, wanted, truths, strict=True):
        errors = [np.abs(side.astype(np.float64) - truth) for side in (ours, theirs)]
        if not np.max(errors[0], initial=0) <= MOST_ERROR * np.max(errors[1], initial=0):
            return False
    return True


def _is_floating(array: np.ndarray) -> bool:
    return array.dtype == ml_dtypes.bfloat16 or np.issubdtype(array.dtype, np.floating)


def _finite(array: np.ndarray) -> np.ndarray:
    # By way of float64: nan_to_num leaves bfloat16 as it is.
    return np.asarray(np.nan_to_num(array.astype(np.float64), posinf=3, neginf=-3)).astype(array.dtype)


def _compare(got: list[np.ndarray], wanted: list[np.ndarray], exact: bool, dtype: str, where: str) -> None:
    assert len(got) == len(wanted), f"{where}: {len(got)} arrays, and PyTorch gives {len(wanted)}"
    for i, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        what = f"{where}, array {i}"
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, and PyTorch gives {theirs.shape}"
        kinds = [_kind(array.dtype) for array in (ours, theirs)]
        assert kinds[0] == kinds[1], f"{what}: dtype {ours.dtype}, and PyTorch gives {theirs.dtype}"
        if ours.dtype == ml_dtypes.bfloat16:
            # NumPy does not know its NaN.
            ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
        if exact or kinds[0] in "ib":
            np.testing.assert_array_equal(ours, theirs, err_msg=what)
            continue
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        finite = theirs[np.isfinite(theirs)]
        scale = max(1.0, float(np.abs(finite).max())) if finite.size else 1.0
        rounding = ROUNDING[dtype if dtype in ROUNDING else kinds[0]]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=rounding * scale, err_msg=what)


def _kind(dtype: np.dtype) -> str:
    """Integers of any width are one kind: indices are int32 here and int64 there."""
    return "i" if np.issubdtype(dtype, np.integer) else str(dtype)


def _leaves(tree: Any) -> list[Any]:
    """In one order for both: a `Padded` as the mapping that `padded` gives."""
    plain = jax.tree.map(
        lambda node: (
            {"values": node.values, "valid": node.valid, "count": node.count} if isinstance(node, gm.Padded) else node
        ),
        tree,
        is_leaf=lambda node: isinstance(node, gm.Padded),
    )
    return jax.tree.leaves(plain)


def _from_jax(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in _leaves(tree)]


def _from_torch(tree: Any) -> list[np.ndarray]:
    return [_numpy(leaf) for leaf in _leaves(tree)]


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: _tensor(array) for name, array in arrays.items()}


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(array, order="C").view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
