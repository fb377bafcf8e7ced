"""A decoder of images: transposed convolution, pixel shuffle, three kinds of resizing, and activations with limits."""

from __future__ import annotations

import jax
import torch
import torch.nn.functional as TF
from flax import nnx

import graphmode as gm
import graphmode.nn.functional as F

from ....case import Case, channels_first, channels_last


class Reference(torch.nn.Module):
    """`[B, 3, 4, 5]` -> three images `[B, 2, H, W]`, of 16x20, 8x10 and 7x9."""

    def __init__(self) -> None:
        super().__init__()
        self.grow = torch.nn.ConvTranspose2d(3, 6, (3, 4), stride=2, padding=1, output_padding=(1, 0))
        self.limit = torch.nn.Hardtanh(-0.7, 0.8)
        self.mix = torch.nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect")
        self.elu = torch.nn.ELU(0.6)
        self.shuffle = torch.nn.PixelShuffle(2)
        self.linear = torch.nn.Upsample((8, 10), mode="bilinear")
        self.near = torch.nn.Upsample((7, 9), mode="nearest")
        self.cubic = torch.nn.Upsample((7, 9), mode="bicubic")
        self.norm = torch.nn.InstanceNorm2d(3, affine=True)
        self.out = torch.nn.Conv2d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = self.shuffle(self.elu(self.mix(self.limit(self.grow(x)))))
        small = TF.softplus(self.linear(self.norm(x)))
        return large, self.out(small), self.out(self.near(x) + self.cubic(x))


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.grow = gm.nn.ConvTranspose2d(3, 6, (3, 4), stride=2, padding=1, output_padding=(1, 0), rngs=rngs)
        self.limit = gm.nn.Hardtanh(-0.7, 0.8)
        self.mix = gm.nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect", rngs=rngs)
        self.elu = gm.nn.ELU(0.6)
        self.shuffle = gm.nn.PixelShuffle(2)
        self.linear = gm.nn.Upsample((8, 10), mode="bilinear")
        self.near = gm.nn.Upsample((7, 9), mode="nearest")
        self.cubic = gm.nn.Upsample((7, 9), mode="bicubic")
        self.norm = gm.nn.InstanceNorm2d(3, affine=True)
        self.out = gm.nn.Conv2d(3, 2, 1, rngs=rngs)

    def activate(self, x: jax.Array) -> jax.Array:
        return F.softplus(x)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, ...]:
        large = self.shuffle(self.elu(self.mix(self.limit(self.grow(x)))))
        small = self.activate(self.linear(self.norm(x)))
        return large, self.out(small), self.out(self.near(x) + self.cubic(x))


CASE = Case(
    name="upsampler",
    summary=__doc__.splitlines()[0],
    reference=Reference,
    model=Port,
    inputs=lambda rng: (rng.standard_normal((2, 3, 4, 5)),),
    to_model=channels_last,
    to_reference=channels_first,
)
