"""Methods of `gm.Padded` against eager PyTorch on the dynamic `x[mask]`."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from differential import DTYPES, FLOATING, Differential, cases, is_caught, mask_of, padded, run, values_of
from hypothesis import strategies as st

import graphmode as gm

CHOICES = {
    "shape": st.sampled_from([(0,), (7,), (7, 2)]),
    # None: valid entries anywhere, NaN between them; else at the front, as compact leaves them
    "capacity": st.sampled_from([None, 4, 7]),
}


def rows_and_mask(rng, config, dtype, *, nan=False):
    x, mask = values_of(rng, config.shape, dtype), mask_of(rng, config.shape[0])
    if dtype in FLOATING:
        x[~mask] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
        if nan and rng.random() < 0.4:
            x[rng.random(x.shape) < 0.3] = np.nan
    return {"x": x, "mask": mask}


def rows_with_nan(rng, config, dtype):
    return rows_and_mask(rng, config, dtype, nan=True)


def rows_and_weight(rng, config, dtype):
    return {**rows_and_mask(rng, config, dtype), "weight": values_of(rng, (), dtype, special=False)}


def two_collections(rng, config, dtype):
    x, y = rows_and_mask(rng, config, dtype), rows_and_mask(rng, config, dtype)
    return {**x, "y": y["x"], "other": y["mask"]}


def collection(c, x, mask):
    if c.capacity is None:
        return gm.Padded(x, mask, jnp.sum(mask))
    return gm.compact(x, mask, capacity=c.capacity)


def held(c, x, mask):
    """The rows that our collection holds."""
    return x[mask] if c.capacity is None else x[mask][: c.capacity]


def in_slots(c, rows, mask, fill_value=0):
    """Dynamic rows where our collection has them, with its valid marks and count."""
    if c.capacity:
        out = padded(rows, c.capacity, fill_value)
        return out | {"count": mask.sum()}
    values = torch.full((len(mask), *rows.shape[1:]), fill_value, dtype=rows.dtype)
    # not in place, so that gradients come through
    slots = torch.cumsum(mask, 0) - 1
    if len(rows):
        shown = mask.reshape(-1, *[1] * (rows.ndim - 1))
        values = torch.where(shown, rows[slots.clamp(min=0)], values)
    return {"values": values, "valid": mask, "count": mask.sum()}


def at_front(c, rows, mask, fill_value=0):
    return padded(rows, c.capacity or c.shape[0], fill_value) | {"count": mask.sum()}


def of_rows(name, ours, eager, *, dtypes, arrays=rows_and_mask, exact=False, gradients=("x",), **more):
    return Differential(
        name=f"Padded.{name}",
        configs=st.fixed_dictionaries({**CHOICES, **more}),
        arrays=arrays,
        ours=ours,
        eager=eager,
        dtypes=dtypes,
        gradients=gradients,
        exact=exact,
    )


def extreme(rows, reduce, neutral):
    if len(rows):
        return reduce(rows)
    integer, boolean = (-(2**31), False) if neutral < 0 else (2**31 - 1, True)
    fill = {torch.int32: integer, torch.bool: boolean}.get(rows.dtype, neutral)
    return torch.full(rows.shape[1:], fill, dtype=rows.dtype)


def eager_argmax(c, x, mask):
    rows = held(c, x, mask)
    if not len(rows):
        return torch.full(c.shape[1:], c.capacity or c.shape[0])
    found = rows.argmax(0)
    return mask.nonzero()[:, 0][found] if c.capacity is None else found


def eager_variance(c, x, mask):
    rows = held(c, x, mask)
    return rows.var(0) if len(rows) > 1 else rows.var(0).detach()


def eager_argsort(c, x, mask):
    indices = held(c, x, mask).sort(dim=0, stable=True, descending=c.descending).indices
    indices = mask.nonzero()[:, 0][indices] if c.capacity is None else indices
    return at_front(c, indices, mask, c.capacity or c.shape[0])


def eager_map(c, x, mask, weight):
    rows = held(c, x, mask)
    found = [row.sum() * weight + 1 for row in rows]
    return in_slots(c, torch.stack(found) if found else torch.zeros(0, dtype=x.dtype), mask, 3)


def mapped(c, x, mask, weight, **more):
    found = collection(c, x, mask)
    how = dict([c.how]) if c.how and found.capacity else {}
    return found.map(lambda row: row.sum() * weight + 1, **how, **more)


def eager_concat(c, x, mask, y, other):
    rows = torch.cat([held(c, x, mask), held(c, y, other)])
    return padded(rows, 5, 1) | {"count": mask.sum() + other.sum()}


def eager_scatter(c, x, mask):
    dense = x.clone()
    places = mask.nonzero()[:, 0] if c.capacity is None else mask.nonzero()[: c.capacity, 0]
    if len(places):
        dense[places] = held(c, x, mask) * 2
    return dense


def eager_compact(c, x, mask):
    further = torch.arange(len(mask)) % 2 == 0
    if c.capacity is None:
        return padded(x[mask & further], 3) | {"count": (mask & further).sum()}
    rows = held(c, x, mask)
    lost = int(mask.sum()) - len(rows)
    rows = rows[torch.arange(len(rows)) % 2 == 0]
    return padded(rows, 3) | {"count": torch.tensor(len(rows) + lost)}


DIRECTION = {"descending": st.booleans()}
SORT = of_rows(
    "sort",
    lambda c, x, mask: collection(c, x, mask).sort(descending=c.descending, fill_value=1),
    lambda c, x, mask: at_front(c, held(c, x, mask).sort(dim=0, stable=True, descending=c.descending).values, mask, 1),
    dtypes=DTYPES,
    arrays=rows_with_nan,
    exact=True,
    **DIRECTION,
)
MAP = of_rows(
    "map",
    lambda c, x, mask, weight: mapped(c, x, mask, weight, fill_value=3),
    eager_map,
    dtypes=FLOATING,
    arrays=rows_and_weight,
    gradients=("x", "weight"),
    how=st.sampled_from(((), ("chunk", 1), ("chunk", 2), ("sizes", (1, 2)), ("sizes", (3,)))),
)
CONCAT = of_rows(
    "concat",
    lambda c, x, mask, y, other: collection(c, x, mask).concat(collection(c, y, other), capacity=5, fill_value=1),
    eager_concat,
    dtypes=("float32", "bool"),
    arrays=two_collections,
    exact=True,
    gradients=("x", "y"),
)
SCATTER = of_rows(
    "scatter",
    lambda c, x, mask: collection(c, x, mask).map(lambda row: row * 2).scatter(mask, into=x),
    eager_scatter,
    dtypes=("float32", "int32"),
    exact=True,
)
TABLE = [
    of_rows(
        "sum",
        lambda c, x, mask: collection(c, x, mask).sum(),
        lambda c, x, mask: held(c, x, mask).sum(0),
        dtypes=("float32", "bool"),
    ),
    of_rows(
        "mean",
        lambda c, x, mask: collection(c, x, mask).mean(),
        lambda c, x, mask: held(c, x, mask).mean(0),
        dtypes=("float32",),
    ),
    of_rows("var", lambda c, x, mask: collection(c, x, mask).var(), eager_variance, dtypes=("float32",)),
    of_rows(
        "max",
        lambda c, x, mask: collection(c, x, mask).max(),
        lambda c, x, mask: extreme(held(c, x, mask), lambda rows: rows.amax(0), -torch.inf),
        dtypes=("float32", "bool"),
        arrays=rows_with_nan,
        exact=True,
    ),
    of_rows(
        "min",
        lambda c, x, mask: collection(c, x, mask).min(),
        lambda c, x, mask: extreme(held(c, x, mask), lambda rows: rows.amin(0), torch.inf),
        dtypes=("float32", "bool"),
        arrays=rows_with_nan,
        exact=True,
    ),
    of_rows(
        "argmax",
        lambda c, x, mask: collection(c, x, mask).argmax(),
        eager_argmax,
        dtypes=("float32", "int32"),
        arrays=rows_with_nan,
        exact=True,
        gradients=(),
    ),
    of_rows(
        "softmax",
        lambda c, x, mask: collection(c, x, mask).softmax(),
        lambda c, x, mask: in_slots(c, held(c, x, mask).softmax(0), mask),
        dtypes=("float32",),
    ),
    SORT,
    of_rows(
        "argsort",
        lambda c, x, mask: collection(c, x, mask).argsort(descending=c.descending),
        eager_argsort,
        dtypes=DTYPES,
        arrays=rows_with_nan,
        exact=True,
        gradients=(),
        **DIRECTION,
    ),
    MAP,
    CONCAT,
    of_rows(
        "compact",
        lambda c, x, mask: collection(c, x, mask).compact(jnp.arange(c.capacity or c.shape[0]) % 2 == 0, capacity=3),
        eager_compact,
        dtypes=("float32", "bool"),
        exact=True,
    ),
    SCATTER,
]


@pytest.mark.parametrize(("one", "dtype", "examples"), cases(TABLE))
def test_agrees_with_eager_pytorch(one, dtype, examples):
    run(one, dtype, examples)


def padding_sorted_in(c, x, mask):
    found = collection(c, x, mask)
    return dataclasses.replace(found, values=jnp.sort(found.values, axis=0, descending=c.descending))


def overflow_forgotten(c, x, mask, y, other):
    joined = collection(c, x, mask).concat(collection(c, y, other), capacity=5, fill_value=1)
    return dataclasses.replace(joined, count=jnp.sum(joined.valid))


def every_row_mapped(c, x, mask, weight):
    return mapped(c, x, mask, weight)


def first_row_for_the_lost(c, x, mask):
    found = collection(c, x, mask).map(lambda row: row * 2)
    rank = jnp.clip(jnp.cumsum(mask) - 1, 0, found.capacity - 1)
    return jnp.where(mask.reshape(-1, *[1] * len(c.shape[1:])), found.values[rank], x) if found.capacity else x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (SORT, padding_sorted_in),
        (CONCAT, overflow_forgotten),
        (MAP, every_row_mapped),
        (SCATTER, first_row_for_the_lost),
    ],
    ids=["sort", "concat", "map", "scatter"],
)
def test_a_planted_fault_is_caught(one, fault):
    assert is_caught(dataclasses.replace(one, ours=fault))
