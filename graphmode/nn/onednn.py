"""What of oneDNN XLA's CPU backend brings along, which PyTorch's own kernels run on.

XLA calls oneDNN where a custom call of a known name and configuration stands, but no longer puts one there by itself.
The configuration is XLA's own and no promise of it: it is used with versions of jaxlib that it was tried with, on
x86-64 under Linux, in float32, on one device, and not in what is exported; elsewhere the same primitives are
operations of `jax.lax`.

What calls oneDNN has no place in JAX's persistent compilation cache: jaxlib cannot serialise it, and warns or ends the
process. So where `jax_compilation_cache_dir` is set it is left out. `GRAPHMODE_ONEDNN=0` in the environment has it
never; `GRAPHMODE_ONEDNN=1` insists on it, and refuses a cache.

Source: https://github.com/openxla/xla/blob/main/xla/service/cpu/onednn_config.proto
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import jax
import jaxlib
import numpy as np
from jax.interpreters import mlir
from jax.sharding import AxisType

SWITCH = "GRAPHMODE_ONEDNN"
TRIED = ((0, 10), (0, 11), (0, 12))  # versions of jaxlib; another configuration may end the process


def is_there() -> bool:
    """Whether this jaxlib has it, in a form that is known, and it is wanted.

    Raises:
      ValueError: where `GRAPHMODE_ONEDNN` is neither 0 nor 1, or is 1 where there is a cache.
    """
    cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    wanted = os.environ.get(SWITCH) or ("0" if cache else "1")
    if wanted not in ("0", "1"):
        raise ValueError(f"{SWITCH} is {wanted!r} in the environment; give 0 for XLA's own operations, 1 for oneDNN's")
    if wanted == "1" and cache:
        raise ValueError(
            f"{SWITCH} is 1 in the environment and jax_compilation_cache_dir is {cache!r}, and jaxlib cannot serialise "
            f"what calls oneDNN; do without the cache, or without {SWITCH} for XLA's own operations"
        )
    version = tuple(int(part) for part in jaxlib.__version__.split(".")[:2])
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64") and version in TRIED
    return known and wanted == "1"


def is_free() -> bool:
    """Whether no mesh says how arrays are shared out among devices."""
    return all(kind == AxisType.Auto for kind in jax.sharding.get_abstract_mesh().axis_types)


def lowered(
    by_onednn: Callable[..., Any], by_xla: Callable[..., Any], is_safe: Callable[..., bool]
) -> Callable[..., Any]:
    """A rule for a CPU: oneDNN in float32 on one device, where `is_safe(*avals, **params)`; elsewhere XLA's own."""

    def lower(ctx: Any, *operands: Any, **params: Any) -> Any:
        here = all(aval.dtype == np.float32 for aval in ctx.avals_in) and is_there()
        here = here and is_safe(*ctx.avals_in, **params)
        context = ctx.module_context
        alone = getattr(context.axis_context, "num_devices", None) == 1
        exported = getattr(context.lowering_parameters, "for_export", True)
        call = by_onednn if here and alone and not exported else by_xla
        return mlir.lower_fun(call, multiple_results=False)(ctx, *operands, **params)

    return lower


def call(target: str, result: Any, config: dict[str, Any], *operands: jax.Array) -> jax.Array:
    """What XLA's CPU backend leaves to oneDNN under this name."""
    of = jax.ffi.ffi_call(target, result, custom_call_api_version=2, legacy_backend_config=json.dumps(config))
    return of(*operands)
