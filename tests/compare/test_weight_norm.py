"""A dilated causal convolution whose weight PyTorch's older `weight_norm` computes anew in each call."""

import jax
import jax.numpy as jnp
import pytest
import torch
from flax import nnx
from graphmode.compare import Case, check
from told_causes import causes

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
WIDTH, KERNEL, DILATION = 3, 3, 2
SPAN = (KERNEL - 1) * DILATION


class Causal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.utils.weight_norm(
            torch.nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=SPAN, dilation=DILATION), dim=0
        )

    def forward(self, x):
        return self.conv(x)[:, :, :-SPAN]


class Conv(nnx.Module):
    def __init__(self):
        self.weight_g = nnx.Param(jnp.ones((WIDTH, 1, 1)))
        self.weight_v = nnx.Param(jnp.ones((WIDTH, WIDTH, KERNEL)))
        self.bias = nnx.Param(jnp.zeros(WIDTH))


class CausalPort(nnx.Module):
    def __init__(self, rngs, *, dilation=DILATION):
        self.conv, self.dilation = Conv(), dilation

    def __call__(self, x):
        v, pads = self.conv.weight_v[...], [((KERNEL - 1) * self.dilation, 0)]
        w = self.conv.weight_g * v / jnp.linalg.norm(v, axis=(1, 2), keepdims=True)
        y = jax.lax.conv_general_dilated(x, w, (1,), pads, rhs_dilation=(self.dilation,))
        return y + self.conv.bias[:, None]


def signals(rng):
    return (rng.standard_normal((2, WIDTH, 12)),)


def test_a_weight_that_is_computed_in_each_call_is_compared():
    assert check(Case(name="c", summary="s", reference=Causal, model=CausalPort, inputs=signals)).passed


def test_another_dilation_with_the_padding_that_it_needs_is_told():
    found = causes(Causal, lambda rngs: CausalPort(rngs, dilation=1), signals)
    assert found == [("dilation", "has dilation (1,), and is padded at the start as that needs")]
