"""Softmax and log-sum-exp over groups of rows: attention over the edges of a graph, or over ragged sequences."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .segment_reduce import Rows, _extreme_of, _sum, _wide, as_floating
from .segments import Groups, as_column, members, per_row, settled_segments


def segment_softmax(x: Rows, groups: Groups, *, num_segments: int | None = None) -> jax.Array:
    """Softmax within each group: `torch.softmax(x[ids == g], 0)`, back in the order of the rows.

    Args:
      x: `[N, ...]` floating, or a `Padded` of such: its invalid rows belong to no group.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.

    Returns:
      `[N, ...]` in the dtype of `x`; 0, and with no gradient, for rows of no group. A group whose rows are all -inf
      gives NaN, as in PyTorch: to leave rows out, make them no members.

    Raises:
      ValueError: where `x` has not as many rows as `groups`, or no floats.
      TypeError: where `groups` are no `Segments`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 2, 0]), num_segments=3)
      >>> segment_softmax(jnp.array([7., 2., 7.]), groups).tolist()
      [0.5, 1.0, 0.5]
    """
    x, groups = members(x, groups, num_segments)
    x = as_floating(x, "segment_softmax")
    inside = as_column(groups.inside, x)
    wide = jnp.where(inside, _wide(x), 0)
    highest = _extreme_of(jax.lax.stop_gradient(wide), groups, True)
    weights = jnp.where(inside, jnp.exp(wide - per_row(highest, groups)), 0)
    shares = weights / per_row(_sum(weights, groups), groups, 1)
    return settled_segments(shares.astype(x.dtype), groups)


def segment_logsumexp(
    x: Rows, groups: Groups, *, empty: float = -jnp.inf, num_segments: int | None = None
) -> jax.Array:
    """Logarithm of the sum of exponentials of each group: `torch.logsumexp(x[ids == g], 0)`.

    Args:
      x: `[N, ...]` floating, or a `Padded` of such: its invalid rows belong to no group.
      groups: of `N` rows: `Segments`; or ids, with `num_segments`, and then one that is out of range raises.
      empty: stands, with no gradient, where a group has no row; -inf is torch's, the logarithm of no sum.

    Returns:
      `[num_segments, ...]` in the dtype of `x`. A group whose rows are all -inf gives -inf and no gradient, where
      PyTorch's gradient is NaN.

    Raises:
      ValueError: where `x` has not as many rows as `groups`, or no floats.
      TypeError: where `groups` are no `Segments`.

    Example:
      >>> import jax.numpy as jnp
      >>> from graphmode.ops import segments
      >>> groups = segments(jnp.array([0, 1, 0]), num_segments=2)
      >>> segment_logsumexp(jnp.array([0., 2., 0.]), groups).round(3).tolist()
      [0.6930000185966492, 2.0]
    """
    x, groups = members(x, groups, num_segments)
    x = as_floating(x, "segment_logsumexp")
    inside = as_column(groups.inside, x)
    wide = jnp.where(inside, _wide(x), 0)
    highest = _extreme_of(jax.lax.stop_gradient(wide), groups, True)
    # exp(inf - inf) and exp(-inf - -inf) are NaN: where all is infinite nothing needs a shift.
    shift = jnp.where(jnp.isfinite(highest), highest, 0)
    total = _sum(jnp.where(inside, jnp.exp(wide - per_row(shift, groups)), 0), groups)
    nothing = total == 0
    logs = jnp.where(nothing, -jnp.inf, jnp.log(jnp.where(nothing, 1, total)) + shift)
    has_rows = as_column(groups.counts > 0, logs)
    return settled_segments(jnp.where(has_rows, logs, empty).astype(x.dtype), groups)
