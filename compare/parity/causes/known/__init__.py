"""The known differences, by the functions of PyTorch that they concern. Importing this registers them."""

from . import (  # noqa: F401
    activation,
    attention,
    axes,
    channel_norm,
    convolution,
    elementwise,
    embedding,
    fourier,
    gradient,
    indexed,
    integer,
    loss,
    mask,
    norm,
    pooling,
    recurrent,
    reduction,
    resize,
    shape,
    signal,
)
