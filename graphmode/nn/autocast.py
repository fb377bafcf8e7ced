"""`torch.autocast` for a graph: which functions run in a low precision, which in float32, which in the widest given."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
from flax import nnx

from .arguments import as_word

P = ParamSpec("P")
R = TypeVar("R")

Rule = Literal["lower", "float32", "float32 by dtype", "promote", "as hx", "refuse"]

_CONVOLUTIONS = {f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)}
_LOSSES = {
    "cosine_embedding_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss",
    "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
    "soft_margin_loss", "triplet_margin_loss", "binary_cross_entropy_with_logits",
}  # fmt: skip

# ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP and its like), by the functions of torch.nn.functional; where
# arguments choose the function of ATen's that has the rule, what they are follows.
RULES: dict[str, dict[str, Rule]] = {
    "cuda": {
        **dict.fromkeys(_CONVOLUTIONS, "lower"),
        **dict.fromkeys(["linear", "matmul", "bmm", "baddbmm", "prelu"], "lower"),
        **dict.fromkeys(["einsum", "einsum without products"], "lower"),
        **dict.fromkeys(["scaled_dot_product_attention", "rnn_cell", "lstm_cell", "gru_cell"], "lower"),
        **dict.fromkeys(["rnn", "lstm", "gru"], "lower"),
        **dict.fromkeys(_LOSSES, "float32"),
        **dict.fromkeys(["cross_entropy", "gaussian_nll_loss"], "float32"),  # made of log_softmax, log and pow
        **dict.fromkeys(["softplus", "layer_norm", "rms_norm", "group_norm"], "float32"),
        **dict.fromkeys(["cosine_similarity", "cdist", "pdist", "interpolate"], "float32"),
        **dict.fromkeys(["pairwise_distance", "normalize", "multilabel_soft_margin_loss"], "float32"),  # of norm, sum
        **dict.fromkeys(["lp_pool1d", "lp_pool2d", "lp_pool3d", "local_response_norm"], "float32"),  # of pow
        **dict.fromkeys(["softmax", "log_softmax"], "float32 by dtype"),
        **dict.fromkeys(["bilinear", "grid_sample"], "promote"),
        "binary_cross_entropy": "refuse",
    },
    "cpu": {
        **dict.fromkeys(_CONVOLUTIONS, "lower"),
        **dict.fromkeys(["linear", "matmul", "bmm", "baddbmm", "einsum", "scaled_dot_product_attention"], "lower"),
        **dict.fromkeys(["rnn", "rnn_cell", "lstm"], "lower"),
        **dict.fromkeys(["gru", "gru_cell", "lstm_cell"], "as hx"),  # their gates join the state in its own dtype
        **dict.fromkeys(_LOSSES - {"kl_div", "huber_loss"}, "float32"),
        **dict.fromkeys(["huber_loss", "kl_div", "ctc_loss", "cross_entropy", "binary_cross_entropy"], "float32"),
        **dict.fromkeys(
            ["avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d", "lp_pool3d", "grid_sample", "cdist"], "float32"
        ),
        **dict.fromkeys(["max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d"], "float32"),
        **dict.fromkeys(["pad reflect 1d", "pad reflect 2d"], "float32"),
        **dict.fromkeys(["pad replicate 1d", "pad replicate 2d", "pad replicate 3d"], "float32"),
        "prelu": "lower",
    },
}


@dataclass(frozen=True)
class _State:
    dtype: str
    device_type: str


# Part of the key of JAX's caches: a function compiled outside an autocast is traced again inside one.
_context = jax.make_user_context(default_value=None)


class autocast(contextlib.ContextDecorator):
    """Runs `graphmode.nn`'s layers and functions in mixed precision, by the rules of `torch.autocast`.

    Products (convolutions, linear layers, attention, recurrent cells) take their floating inputs and weights in
    `dtype`; softmax, norms and losses in float32; parameters keep their own dtype, and so do float64 arrays. What is
    not `graphmode.nn`'s (`jnp.exp`, `@`) runs in the dtype it is given; `nn.functional.matmul`, `bmm` and `einsum`
    follow the rules. It works around a call of a jitted function as well as inside of one, and costs nothing there.

    Source: https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference

    Args:
      dtype: of the products: bfloat16 or float16.
      device_type: whose rules: `"cuda"`, or `"cpu"`, which has fewer.
      enabled: False leaves everything in its own dtype, inside an outer autocast too.

    Raises:
      ValueError: for another dtype or device type.

    Example:
      >>> linear = Linear(3, 2, rngs=nnx.Rngs(0))
      >>> with autocast(jnp.bfloat16):
      ...     y = linear(jnp.ones((1, 3)))
      >>> y.dtype, linear.weight.dtype
      (dtype(bfloat16), dtype('float32'))
    """

    def __init__(self, dtype: Any = jnp.bfloat16, *, device_type: str = "cuda", enabled: bool = True):
        if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
            raise ValueError(f"dtype is {jnp.dtype(dtype)}; choose bfloat16 or float16, or set enabled=False")
        device_type = as_word("device_type", device_type, list(RULES))
        self._state = _State(jnp.dtype(dtype).name, device_type) if enabled else None
        self._entered: list[Any] = []

    def __enter__(self) -> autocast:
        self._entered.append(_context(self._state))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._entered.pop().__exit__(*raised)


def autocast_dtype() -> jnp.dtype | None:
    """What products are taken in under the autocast that is entered; None outside of any."""
    return None if _context.value is None else jnp.dtype(_context.value.dtype)


def autocasts(function: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """Makes a function of `nn.functional` follow the rule that its name (or this one) has in `RULES`."""
    name = name or function.__name__

    @functools.wraps(function)
    def ruled(*args: P.args, **kwargs: P.kwargs) -> R:
        state = _context.value
        rule = None if state is None else RULES[state.device_type].get(name)
        if rule is None:
            return function(*args, **kwargs)
        if rule == "refuse":
            raise TypeError(
                f"{name} is not safe in mixed precision, and PyTorch refuses it under autocast; take "
                f"{name}_with_logits without the sigmoid before it, or leave the autocast around it with enabled=False"
            )
        if rule == "float32 by dtype":
            if kwargs.get("dtype") is None and any(map(_is_eligible, jax.tree.leaves((args, kwargs)))):
                return function(*args, **{**kwargs, "dtype": jnp.float32})
            return function(*args, **kwargs)
        if rule == "as hx":
            rule = "float32" if _widest(_hx(*cast("Any", args), **cast("Any", kwargs))) == "float32" else "lower"
        target = {"lower": state.dtype, "float32": "float32", "promote": _widest((args, kwargs))}[rule]
        args, kwargs = cast("tuple[Any, Any]", _to((args, kwargs), target))
        with _context(None):
            return function(*args, **kwargs)

    return ruled


def _is_eligible(leaf: Any) -> bool:
    return (
        not _draws(leaf)
        and hasattr(leaf, "dtype")
        and jnp.issubdtype(leaf.dtype, jnp.floating)
        and leaf.dtype != jnp.float64
    )


def _to(tree: Any, dtype: str) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if _is_eligible(leaf) else leaf, tree, is_leaf=_draws)


def _draws(leaf: Any) -> bool:
    """Whether it counts its draws, which a copy would do in vain."""
    return isinstance(leaf, nnx.Rngs | nnx.RngStream)


def _hx(input: jax.Array, hx: Any = None, *args: Any, **kwargs: Any) -> Any:
    """What a recurrent function starts from: where no state is given, zeros in the dtype of its input."""
    return input if hx is None else hx


def _widest(tree: Any) -> str:
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(tree) if _is_eligible(leaf)]
    return jnp.result_type(*dtypes).name if dtypes else "float32"
