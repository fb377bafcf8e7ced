"""The functional forms of this room. `inplace` is taken for PyTorch's sake everywhere, and means nothing."""

from .piecewise import hardshrink, hardsigmoid, hardswish, hardtanh, relu, relu6, softshrink, threshold
from .slopes import leaky_relu, prelu, rrelu
from .smooth import (
    celu,
    elu,
    gelu,
    glu,
    logsigmoid,
    mish,
    selu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
    tanhshrink,
)
from .softmax import gumbel_softmax, log_softmax, softmax, softmin

__all__: list[str] = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "rrelu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]
