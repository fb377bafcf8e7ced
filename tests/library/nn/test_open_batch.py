"""`jax.export` with a batch whose length is left open: what chooses its way by size takes the one that serves all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from graphmode.nn import functional as F


def depthwise_gradient(x, weight):
    return jax.grad(lambda weight: (F.conv2d(x, weight, groups=16) ** 2).sum())(weight)


ROWS = ((100,), (100,))
CASES = {
    "group norm": (lambda x: F.group_norm(x, 4), ((56, 56, 16),)),
    "instance norm": (F.instance_norm, ((56, 56, 16),)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), ((16, 16, 16),)),
    "batch norm of vectors": (lambda x: F.batch_norm(x, None, None, training=True), ((16,),)),
    "squared error": (F.mse_loss, ROWS),
    "Huber loss": (F.huber_loss, ROWS),
    "cosine embedding": (lambda x, y: F.cosine_embedding_loss(x, y, jnp.sign(x[:, 0])), ROWS),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, 2 * y), ROWS),
    "classes": (lambda x: F.nll_loss(x, jnp.argmax(x, -1)), ((10,),)),
    "gradient of a depthwise convolution": (depthwise_gradient, ((12, 12, 16), None)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_export_serves_batches_of_any_length(name):
    function, shapes = CASES[name]
    (batch,) = export.symbolic_shape("batch")
    weight = (3, 3, 1, 16)

    def arrays(length):
        rng = np.random.default_rng(0)
        drawn = (rng.standard_normal(weight if shape is None else (length, *shape)) for shape in shapes)
        return [jnp.asarray(x, jnp.float32) for x in drawn]

    open_ = (weight if shape is None else (batch, *shape) for shape in shapes)
    exported = export.export(jax.jit(function))(*(jax.ShapeDtypeStruct(s, jnp.float32) for s in open_))
    for length in (2, 32):
        given = arrays(length)
        wanted = function(*given)
        scale = float(jnp.abs(wanted).max())
        np.testing.assert_allclose(exported.call(*given), wanted, rtol=1e-4, atol=1e-5 * scale)
