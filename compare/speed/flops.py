"""Floating-point operations that `FlopCounterMode` has no formula for, or counts more of than are needed.

Shapes come in place of tensors. Two operations for each multiplication, as PyTorch's own formulas count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Shape = tuple[int, ...]


def _mv(matrix: Shape, vector: Shape, **_: Any) -> int:
    return 2 * math.prod(matrix)


def _addmv(bias: Shape, matrix: Shape, vector: Shape, **_: Any) -> int:
    return 2 * math.prod(matrix)


def _dot(a: Shape, b: Shape, **_: Any) -> int:
    return 2 * math.prod(a)


def _convolution_backward(gradient: Shape, x: Shape, weight: Shape, *settings: Any, **_: Any) -> int:
    """One product for the input's gradient and one for the weight's, each as large as the forward one. PyTorch's own
    formula takes the weight's without its groups: of a depthwise convolution as many times too much as it has channels.
    """
    transposed, wanted = settings[4], settings[7][:2]
    places = math.prod((x if transposed else gradient)[2:])
    return sum(wanted) * 2 * gradient[0] * places * math.prod(weight)


def _recurrent(passes: int, *args: Any, **_: Any) -> int:
    """Every weight matrix meets every item of every step once, forward; the backward pass has two products for it."""
    items, weights = math.prod(args[0][:-1]), args[1:3] if _is_shape(args[1]) else args[1]
    return passes * sum(2 * items * math.prod(weight) for weight in weights if len(weight) == 2)


def _attention(overload: torch._ops.OpOverload, passes: int, *args: Any, **named: Any) -> int:
    """Two products over pairs of query and key, forward, and four backward: what a kernel that keeps no scores
    computes a second time is left out, and so are the pairs that causal attention has no use for."""
    given = dict(zip((a.name for a in overload._schema.arguments), args, strict=False)) | named
    query, key, value = given["query"], given["key"], given["value"]
    queries, keys = query[-2], key[-2]
    pairs = sum(min(i + 1, keys) for i in range(queries)) if given.get("is_causal") else queries * keys
    return passes * 2 * math.prod(query[:-2]) * pairs * (query[-1] + value[-1])


def _is_shape(value: Any) -> bool:
    return bool(value) and isinstance(value[0], int)


def _attention_formulas() -> dict[Any, Callable[..., int]]:
    found: dict[Any, Callable[..., int]] = {}
    for kind in ("flash", "efficient", "cudnn"):
        for name in (f"{kind}_attention", f"{kind}_attention_for_cpu"):
            for suffix, passes in (("", 1), ("_backward", 2)):
                packet = getattr(aten, f"_scaled_dot_product_{name}{suffix}", None)
                if packet is not None:
                    found[packet] = functools.partial(_attention, packet.default, passes)
    return found


FORMULAS: dict[Any, Callable[..., int]] = {
    aten.mv: _mv,
    aten.addmv: _addmv,
    aten.dot: _dot,
    aten.convolution_backward: _convolution_backward,
    **{op: functools.partial(_recurrent, 1) for op in (aten.mkldnn_rnn_layer, aten._cudnn_rnn, aten.miopen_rnn)},
    **{
        op: functools.partial(_recurrent, 2)
        for op in (aten.mkldnn_rnn_layer_backward, aten._cudnn_rnn_backward, aten.miopen_rnn_backward)
    },
    **_attention_formulas(),
}
